"""Outputs: what an action puts out, in parts that a later action can declare as its input.

Knows records; pure. The keys are `out:a1` (all of it: stdout, stderr and status), `out:a1.stdout`, `out:a1.stderr`,
`out:a1.status`, and `out:a1.outputs.NAME` for what a line `::set-output name=NAME::VALUE` of its stdout declares.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mulligan.model.ids import guest_path

if TYPE_CHECKING:
    from mulligan.model.equivalence import Equality
    from mulligan.model.record import Record

NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_LINE = re.compile(rb"^::set-output name=(" + NAME.encode() + rb")::(.*?)\r?$", re.MULTILINE)
_PART = re.compile(rf"(a[0-9]+)(\.stdout|\.stderr|\.status|\.outputs\.{NAME})?")


def parse_outputs(stdout: bytes) -> dict[str, str]:
    """The declared outputs on a standard output, by name; of several lines with one name the last counts."""
    if b"::set-output name=" not in stdout:
        return {}
    return {name.decode("ascii"): guest_path(value) for name, value in _LINE.findall(stdout)}


def writer_of(name: str) -> str:
    """The action that the name of an `out:` key is of."""
    return name.partition(".")[0]


def check_out(name: str) -> str:
    """The action that the name of an `out:` key is of. Raises ValueError, with the grammar, when it is malformed."""
    found = _PART.fullmatch(name)
    if found is None:
        raise ValueError(
            f"key 'out:{name}' is not of the form out:ACTION, out:ACTION.stdout, .stderr, .status or .outputs.NAME"
        )
    return found[1]


def differing_parts(old: Record, new: Record | None, equality: Equality | None = None) -> list[str]:
    """In what the outputs of two records differ, as endings of an `out:` key ("" for all of it). `new` None: none at all.

    A stream that was cut at its size limit may differ behind the cut, so it counts as differing. An equivalence speaks of a
    stream by its key, `out:a1.stdout`.
    """
    if new is None:
        return ["", ".stdout", ".stderr", ".status", *(f".outputs.{name}" for name in sorted(old.outputs))]
    a, b = old.outcome, new.outcome

    def differ(stream: str, mine: bytes, other: bytes) -> bool:
        return mine != other and not (equality and equality.equal(f"out:{old.id}.{stream}", mine, other))

    parts = []
    if a.stdout_truncated or b.stdout_truncated or differ("stdout", a.stdout, b.stdout):
        mine, other = old.outputs, new.outputs
        names = sorted(name for name in mine.keys() | other.keys() if mine.get(name) != other.get(name))
        parts += [".stdout", *(f".outputs.{name}" for name in names)]
    if a.stderr_truncated or b.stderr_truncated or differ("stderr", a.stderr, b.stderr):
        parts.append(".stderr")
    if (a.exit_code, a.signal) != (b.exit_code, b.signal):
        parts.append(".status")
    return ["", *parts] if parts else []
