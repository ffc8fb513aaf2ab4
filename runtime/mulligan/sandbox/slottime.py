"""Slot time: a replay lives in its slot of history, so its files get times of that slot. Pure.

Knows manifests. Every stat(2) returns an mtime, and nobody can see whether the program used it. If a replay's files kept
the time of the repair, they would be newer than what later, kept actions had made from them: make(1) would build again,
early cut-off would never hit. So, when the replay's layer is sealed:

- what equals the recorded version takes its mtime (it *is* the old version), and so does a folder that both layers hold;
- what really changed gets a time within the recorded window, in the order written, and never the old version's own;
- a time that lies outside the replay's own window was set on purpose (`touch -d`, `tar x`) and stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mulligan.model.layer import Entry

# A file's clock is the kernel's coarse one: it may be a tick (at most 10 ms) behind the one the window was taken from.
_COARSE_NS = 10_000_000


class Window(NamedTuple):
    """The time of one execution, in nanoseconds since the epoch."""

    start: int
    end: int

    def holds(self, mtime_ns: int) -> bool:
        """Whether a time was given by the clock during this execution."""
        return self.start - _COARSE_NS <= mtime_ns <= self.end + _COARSE_NS


def plan_times(
    new: Mapping[str, Entry],
    old: Mapping[str, Entry],
    ran: Window,
    slot: Window,
    same: Callable[[str], bool],
) -> dict[str, int]:
    """The mtimes to set, by path, of a replay's layer. `same` tells whether a path has the recorded content."""
    times: dict[str, int] = {}
    moving: list[tuple[int, str]] = []
    for path, entry in new.items():
        if entry.inherit_mtime or not ran.holds(entry.mtime_ns):
            continue
        before = old.get(path)
        if before is not None and _is_old_version(entry, before, path, same):
            times[path] = before.mtime_ns
        else:
            moving.append((entry.mtime_ns, path))
    moving.sort()
    last_read, last_given = 0, 0
    for mtime, path in moving:
        given = _scaled(mtime, ran, slot)
        if mtime > last_read and last_given:
            given = max(given, last_given + 1)
        elif last_given:
            given = max(given, last_given)
        before = old.get(path)
        if before is not None and given == before.mtime_ns:
            given += 1
        times[path] = given
        last_read, last_given = mtime, given
    return times


def _is_old_version(entry: Entry, before: Entry, path: str, same: Callable[[str], bool]) -> bool:
    if entry.kind != before.kind:
        return False
    if entry.kind == "dir":
        return True
    attributes = ("mode", "uid", "gid", "size", "target", "rdev", "xattrs", "links")
    if any(getattr(entry, name) != getattr(before, name) for name in attributes):
        return False
    return entry.kind != "file" or same(path)


def _scaled(mtime: int, ran: Window, slot: Window) -> int:
    """The moment of the recorded window that corresponds to a moment of the replay; never before its start."""
    length = max(1, ran.end - ran.start)
    at = min(max(mtime - ran.start, 0), length)
    return slot.start + at * max(1, slot.end - slot.start) // length
