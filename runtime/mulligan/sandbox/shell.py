"""Shell text as a program: how variables, working directory and umask pass on to the next action.

Pure. At the shell's end something in it tries to start a program that does not exist; the tracer reports the attempt with its
whole environment, working directory and umask, and those are handed on. No output is parsed, nothing is written into the state,
and a shell that is killed hands on nothing. The last program of a text that bash execs in its own place, as it is wont to,
comes after that end: whether it is killed makes no difference.

Bash runs the text as it stands. The tracer loads a few instructions into it (tracer/inside/handoff.c) that make the attempt
when it exits or execs, out of the text's sight: no trap of ours, no line before the first one, no command in `set -x` or in a
message about syntax. That needs a bash that is linked dynamically and offers its own functions to loadable builtins, as
distributions build it. Other shells (dash, busybox) have no such way in: there the text stands behind an EXIT trap on the
same line, and one that sets its own EXIT trap, or that execs its last program, hands on what it got.

Rejected: a wrapper that takes the text as an argument and evals it (`set -x` and messages then show the eval), a file in
BASH_ENV that sets the trap (`trap -p` shows it, and a text's own replaces it), a helper inside that the guest could replace.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from mulligan.model.fold import HANDOFF_PROGRAM

if TYPE_CHECKING:
    from collections.abc import Sequence

# A subshell tries, so that the shell itself outlives the failure; `|| :`, lest `set -e` or an ERR trap take notice.
_TRAP: Final = f'trap "{{ (exec {HANDOFF_PROGRAM}) || :; }} 2>/dev/null" EXIT; '
NAME: Final = "mulligan"  # $0

_NEEDED: Final = (b"maybe_make_export_env", b"export_env", b"array_needs_making", b"temporary_env")  # by handoff.c
_ELF64: Final = b"\x7fELF\x02\x01"
_PT_INTERP: Final = 3
_HEADER: Final = struct.Struct("<32xQ14xHH")  # of Elf64_Ehdr: where the program headers are, their size and number
_MOST_HEADERS: Final = 64


def build_shell(shell: str, text: str, *, loaded: bool) -> Sequence[str]:
    """The argv that runs shell text in the given shell. `loaded`: the tracer is asked to load what hands on."""
    return (shell, "-c", text if loaded else _TRAP + text, NAME)


def can_be_loaded(program: bytes) -> bool:
    """Whether this is a bash that what hands on can be loaded into: dynamically linked, with its own symbols."""
    if not program.startswith(_ELF64) or len(program) < _HEADER.size:
        return False
    at, size, count = _HEADER.unpack_from(program)
    kinds = [program[at + size * i : at + size * i + 4] for i in range(min(count, _MOST_HEADERS))]
    return struct.pack("<I", _PT_INTERP) in kinds and all(name in program for name in _NEEDED)
