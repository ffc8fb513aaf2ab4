"""Limits: what an action may take of the machine, as rlimits of its processes.

Knows this process's own hard limits, which nobody may raise. Since Linux 5.14 processes are counted per user and user
namespace, so each action has the limit for itself (before: per user id outside, so that the actions of one user share it).
It is high enough for any build, and low enough that a fork bomb can't take the machine's last process id or its memory.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

_NUMBERS: Final = {
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "fsize": resource.RLIMIT_FSIZE,
    "core": resource.RLIMIT_CORE,
    "as": resource.RLIMIT_AS,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of each process of an action. None leaves the limit as it is."""

    nofile: int | None = 65_536
    nproc: int | None = 16_384
    fsize: int | None = None
    core: int | None = 0  # a core file would be a write that no program asked for
    address_space: int | None = None

    def rlimits(self) -> list[tuple[str, str]]:
        """(name as in prlimit(1), value) of every limit that is set, no higher than what this process may have."""
        wanted = {"nofile": self.nofile, "nproc": self.nproc, "fsize": self.fsize, "core": self.core, "as": self.address_space}
        return [(name, str(_allowed(name, value))) for name, value in wanted.items() if value is not None]


def _allowed(name: str, value: int) -> int:
    hard = resource.getrlimit(_NUMBERS[name])[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
