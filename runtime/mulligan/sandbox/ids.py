"""IdMap: which user and group ids the sandbox has, and as what they lie on disk.

Knows the ids of this process. Root inside is never root outside: when Mulligan runs as root, the guest's 0 is an
unprivileged id of the host, and layers on disk carry the shifted ids; an ordinary user is the same user inside.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ROOT_RANGE = (100_000, 65_536)  # where the guest's ids lie when Mulligan runs as root
_ALL_IDS = 1 << 32
_NOBODY = 65_534


@dataclass(frozen=True, slots=True)
class IdMap:
    """`uid`/`gid` are who the guest is inside; inside ids `inside`… lie on disk as `outside`…, `count` of them."""

    uid: int
    gid: int
    inside: int
    outside: int
    count: int

    @classmethod
    def of_this_process(cls) -> IdMap:
        """The map for this process: a shifted range for root, the own id for everybody else."""
        if os.geteuid() == 0:
            start, count = ROOT_RANGE
            top = _mapped_top()
            if top < start + count:  # inside a container with few ids: take the upper part of what there is
                count = max(1, top // 2)
                start = top - count
            return cls(0, 0, 0, start, count)
        return cls(os.geteuid(), os.getegid(), os.geteuid(), os.geteuid(), 1)

    @property
    def rootless(self) -> bool:
        """Whether the guest is an ordinary user, the one who runs Mulligan."""
        return self.uid != 0

    def on_disk(self, inside: int) -> int:
        """The id on disk of an inside id; what is not mapped becomes the guest's own."""
        if self.rootless:
            return -1  # chown(2): leave as it is; every file is the user's own
        offset = inside - self.inside
        return self.outside + (offset if 0 <= offset < self.count else 0)

    def in_guest(self, uid: int, gid: int) -> tuple[int, int]:
        """Owner and group inside, of those on disk; 65534, as the kernel says, for one that is not mapped."""
        if self.rootless:
            return (uid if uid == self.uid else _NOBODY, gid if gid == self.gid else _NOBODY)
        return self._shifted(uid), self._shifted(gid)

    def _shifted(self, on_disk: int) -> int:
        offset = on_disk - self.outside
        return self.inside + offset if 0 <= offset < self.count else _NOBODY


def _mapped_top() -> int:
    """One more than the highest id of this process's user namespace."""
    try:
        rows = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return _ALL_IDS
    return max((int(row[0]) + int(row[2]) for row in rows), default=_ALL_IDS)
