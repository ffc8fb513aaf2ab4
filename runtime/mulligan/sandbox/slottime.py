"""Slot time: a replay lives in its slot of history, so its files get times of that slot. Pure.

Knows manifests. Every stat(2) returns an mtime, and nobody can see whether the program used it. If a replay's files kept
the time of the repair, they would be newer than what later, kept actions had made from them: make(1) would build again,
early cut-off would never hit. So, when the replay's layer is sealed:

- what equals the recorded version takes its mtime (it *is* the old version), and so does a folder that both layers changed;
- what really changed gets a time within the recorded window, and never the old version's own where the size is the same,
  so that whoever goes by size and mtime (git, Python's bytecode) takes it for new;
- of two paths written one after the other, the later one never gets the earlier time: what compares two mtimes (make,
  `test -nt`) must find them as a run from the start would. Where the recorded times are in another order than the replay
  wrote in, as few as possible give way;
- a time that lies outside the replay's own window was set on purpose (`touch -d`, `tar x`) and stays. Likewise a recorded
  time is taken only if the clock gave it: one that was set, or inherited from below, is not of this slot.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


class _Written(NamedTuple):
    """One object that the replay's clock gave a time: when, under which names, and what is to be known of its past."""

    mtime: int
    moved: bool  # no recorded time is its own
    recorded: int
    names: tuple[str, ...]
    folder: bool
    taboo: int | None  # the time that it may not have


class _Point(NamedTuple):
    """A moment of the replay and the moment of the slot that it corresponds to."""

    read: int
    given: int


def plan_times(
    new: Mapping[str, Entry],
    old: Mapping[str, Entry],
    ran: Window,
    slot: Window,
    same: Callable[[str], bool],
) -> dict[str, int]:
    """The mtimes to set, by path, of a replay's layer. `same` tells whether a path has the recorded content.

    It may also take other bytes, even of another size, for the recorded content, when somebody asserted that they are equal.
    """
    written = sorted(
        _written(path, entry, old.get(path), slot, same)
        for path, entry in new.items()
        if not entry.inherit_mtime and ran.holds(entry.mtime_ns) and path == min((path, *entry.links))
    )
    fixed = _in_order(written)
    ahead = [_Point(written[index].mtime, written[index].recorded) for index in sorted(fixed, reverse=True)]
    last = _Point(max([ran.end, *(one.mtime for one in written[-1:])]), max([slot.end, *(point.given for point in ahead[:1])]))
    times: dict[str, int] = {}
    before, read, given = _Point(ran.start, slot.start), 0, 0
    for index, one in enumerate(written):
        if index in fixed:
            ahead.pop()
        if index in fixed and one.recorded >= given:
            given = one.recorded
            before = _Point(one.mtime, given)
        else:
            given = _between(one, before, ahead[-1] if ahead else last, _Point(read, given), bounded=bool(ahead))
        read = one.mtime
        times.update((name, given) for name in one.names)
    return times


def _between(one: _Written, before: _Point, after: _Point, previous: _Point, *, bounded: bool) -> int:
    """A time for what is not the recorded version: after what was written before it, and before what came next."""
    least = previous.given + (one.mtime > previous.read and previous.given > 0)
    given = max(_scaled(one.mtime, before, after), least)
    if bounded:
        given = max(min(given, after.given), previous.given)
    return given + 1 if given == one.taboo else given


def _written(path: str, entry: Entry, before: Entry | None, slot: Window, same: Callable[[str], bool]) -> _Written:
    names = (path, *entry.links)
    folder = entry.kind == "dir"
    if before is None:
        return _Written(entry.mtime_ns, True, 0, names, folder, None)
    clocked = not before.inherit_mtime and slot.holds(before.mtime_ns)
    if clocked and _is_old_version(entry, before, path, same):
        return _Written(entry.mtime_ns, False, before.mtime_ns, names, folder, None)
    alike = (entry.kind, entry.size) == (before.kind, before.size)
    return _Written(entry.mtime_ns, True, 0, names, folder, before.mtime_ns if alike and not folder else None)


def _in_order(written: Sequence[_Written]) -> set[int]:
    """The indices of those whose recorded times rise as the replay wrote them: most files, then what folders go with them."""
    tails: list[int] = []  # recorded times by which rising rows of each length end, lowest first
    ends: list[int] = []
    back: dict[int, int] = {}
    for index, one in enumerate(written):
        if one.moved or one.folder:
            continue
        at = bisect_right(tails, one.recorded)
        back[index] = ends[at - 1] if at else -1
        if at == len(tails):
            tails.append(one.recorded)
            ends.append(index)
        else:
            tails[at], ends[at] = one.recorded, index
    fixed: set[int] = set()
    at = ends[-1] if ends else -1
    while at >= 0:
        fixed.add(at)
        at = back[at]
    files = sorted(fixed)
    low, passed = 0, 0
    for index, one in enumerate(written):
        if index in fixed:
            low, passed = max(low, one.recorded), passed + 1
        elif one.folder and not one.moved and low <= one.recorded:
            high = written[files[passed]].recorded if passed < len(files) else one.recorded
            if one.recorded <= high:
                fixed.add(index)
                low = one.recorded
    return fixed


def _is_old_version(entry: Entry, before: Entry, path: str, same: Callable[[str], bool]) -> bool:
    if entry.kind != before.kind:
        return False
    if entry.kind == "dir":
        return True
    attributes = ("mode", "uid", "gid", "target", "rdev", "xattrs", "links")
    if any(getattr(entry, name) != getattr(before, name) for name in attributes):
        return False
    return entry.kind != "file" or same(path)


def _scaled(mtime: int, before: _Point, after: _Point) -> int:
    """The moment of the slot that corresponds to a moment of the replay between these two."""
    length = max(1, after.read - before.read)
    at = min(max(mtime - before.read, 0), length)
    return before.given + at * max(1, after.given - before.given) // length
