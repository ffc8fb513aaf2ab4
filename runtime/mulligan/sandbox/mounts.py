"""The sandbox's set-up as data: an ordered list of operations for the tracer program, and their wire form. Pure.

Knows the vocabulary of tracer/PROTOCOL.md § SPEC_FD. Touches nothing: which folder lies where is told by the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mulligan.errors import UsageError
from mulligan.model.ids import raw_path, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mulligan.model.action import LaunchContext
    from mulligan.sandbox.base import Base
    from mulligan.sandbox.limits import Limits

SPEC_VERSION = "1"
HOSTNAME = "mulligan"
MAX_LOWERS = 500  # OVL_MAX_STACK of the kernel

Op = tuple[str, ...]


def build_mounts(base: Base, lowers: Sequence[str], upper: str, work: str) -> list[Op]:
    """The operations that make the root: the overlay of the stack, the base's folders over it, the kernel's views."""
    assert len(lowers) <= MAX_LOWERS, len(lowers)
    ids = base.ids
    ops: list[Op] = [("version", SPEC_VERSION), ("idmap", str(ids.inside), str(ids.outside), str(ids.count))]
    ops += [("lower", lower) for lower in lowers]
    ops.append(("upper", upper, work))
    ops += [
        ("ro-bind", source, target) for source, target in sorted(base.binds, key=lambda bind: (bind[1].count("/"), bind[1]))
    ]
    ops += [("proc", "/proc"), ("dev", "/dev"), ("hostname", HOSTNAME)]
    return ops


def build_command(base: Base, limits: Limits, argv: Sequence[str], launch: LaunchContext, *, handoff: bool = False) -> list[Op]:
    """The operations that say what runs, as whom, within which limits."""
    ops: list[Op] = [("rlimit", name, value, value) for name, value in limits.rlimits()]
    ops += [("cwd", launch.cwd), ("umask", f"0{launch.umask:o}"), ("uid", str(base.ids.uid), str(base.ids.gid))]
    ops += [("arg", argument) for argument in argv]
    ops += [("env", f"{name}={value}") for name, value in sorted(launch.env.items())]  # in one order, whoever set them
    if handoff:
        ops.append(("handoff", "1"))
    return ops


def build_spec(ops: Sequence[Op], *, traced: bool = True, stops_only: bool = False, count: bool = False) -> bytes:
    """The bytes for SPEC_FD: the operations, then how to trace, the walk of the upper directory and the end."""
    trace = "0" if not traced else "stops" if stops_only else "1"
    counts: list[Op] = [("count", "1")] if count else []
    out = bytearray()
    for op in (*ops, *counts, ("walk", "1"), ("trace", trace), ("end",)):
        for field in op:
            raw = raw_path(field)
            if b"\0" in raw:
                raise UsageError(f"{op[0]} {shown(field)!r} holds a NUL byte, which no program can be given")
            out += raw
            out.append(0)
    return bytes(out)
