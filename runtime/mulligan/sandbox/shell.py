"""Shell text as a program: how exported variables and the working directory pass on to the next action.

Pure. The text runs as it stands in `bash -c` (in `sh -c` where there is no bash), behind an EXIT trap on the same line.
At the shell's end the trap tries to start a program that does not exist; the tracer reports the attempt with its whole
environment and its working directory, and those are handed on. No helper of ours is in the sandbox, nothing is
written, no variable is left behind, line numbers are right, and a shell that is killed hands on nothing.

Rejected: a wrapper that takes the text as an argument and evals it (`set -x` and messages then show the eval), and one
that asks a helper inside (it could be replaced by the guest). The trap keeps the status that the shell is about to end
with, whichever way it ends. A text that sets its own EXIT trap, or that execs its last program, hands on what it got.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mulligan.model.fold import HANDOFF_PROGRAM

if TYPE_CHECKING:
    from collections.abc import Sequence

# A subshell tries, so that the shell itself outlives the failure; `|| :`, lest `set -e` or an ERR trap take notice.
_TRAP: Final = f'trap "{{ (exec {HANDOFF_PROGRAM}) || :; }} 2>/dev/null" EXIT; '
NAME: Final = "mulligan"  # $0


def build_shell(shell: str, text: str) -> Sequence[str]:
    """The argv that runs shell text in the given shell."""
    return (shell, "-c", _TRAP + text, NAME)
