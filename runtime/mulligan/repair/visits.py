"""Visits: the places of a long history that a forecast must look at; at all others it would change nothing.

Knows a history's index and what a walk and its forecast say that differs; pure. Between two visits nothing differs that any
record in between observed, and none of them wrote to a path that differs. Such a record is kept for certain, and leaves all
that is known of the two states as it was. So it is passed over without being read, and the plan comes out as if it had been
looked at.

What differs is followed as long as it does: from the place where a path begins to differ, everybody who wrote it, or who
removed or replaced a folder above it, is visited too. The states are right at such paths, and are made right (see origins.py)
at the paths of an action that runs again, before it does. At any other path they may be out of date, in the same way on both
sides.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

from mulligan.model.ids import parent, prefixes
from mulligan.model.postings import DECLARED, FLAG, INCOMPLETE, LISTED, READ, SHUTS, TOLD, WRITTEN, observers, writers
from mulligan.repair.schedule import Slot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mulligan.model.change import Change, Patch
    from mulligan.model.keys import Key
    from mulligan.repair.dirty import Dirty
    from mulligan.repair.index import ChainIndex, History
    from mulligan.repair.walk import Pass

_NEVER = 1 << 60
LAUNCHES = 256  # this many actions are looked at one after the other because of what they are launched with, and no more


class Forecast(Protocol):
    """What a forecast says beyond its walk: paths that may differ, and whatever else may."""

    maybe: Dirty
    told: dict[Key, str]

    @property
    def launch_may_differ(self) -> bool:
        """Whether an action may be launched with something else than when it was recorded."""


class TooFarError(Exception):
    """What differs reaches all the rest of the history, action by action. Never leaves the planner."""


class Visits:
    """The slots to look at, in order. Each is to be told to the walk and the forecast before the next one is asked for."""

    def __init__(
        self,
        history: History,
        index: ChainIndex,
        walk: Pass,
        forecast: Forecast,
        *,
        named: Mapping[int, Change],
        patches: Mapping[int, Sequence[Patch]],
        base_changed: Collection[str],
    ) -> None:
        self._history = history
        self._index = index
        self._walk = walk
        self._forecast = forecast
        self._named = named
        self._patches = patches
        self._base_changed = base_changed
        self._breaks = index.breaks()
        self._fixed = sorted({*named, *(place for place in patches if place >= 0), *self._breaks, *self._breaks.values()})
        self._launches = 0  # looked at for what they are launched with
        self._due: dict[tuple[str, int], int] = {}  # path and bits -> the next place found so, as asked from an earlier one
        self._paths: dict[str, int] = {}  # path that differs -> the next place that has to do with it
        self._heap: list[tuple[int, str]] = []  # the same, with what is no longer true
        walk.differing.watch, forecast.maybe.watch = self._watches = set[str](), set[str]()

    def __iter__(self) -> Iterator[tuple[int, Slot]]:
        """Places and their slots; an inserted patch has the place of the action that it stands after."""
        for patch in self._patches.get(-1, ()):
            yield -1, Slot(None, patch)
        position = 0
        while (position := self._next(position)) < len(self._index):
            record = self._history[position]
            if record.action.kind == "run" and position not in self._breaks and not self._walk.launch_differs:
                self._walk.passed_over(record.launch)
            yield position, Slot(record, self._named.get(position))
            for patch in self._patches.get(position, ()):
                yield position, Slot(None, patch)
            position += 1

    def _next(self, position: int) -> int:
        """The first place from `position` on that must be looked at; the history's length when there is none."""
        walk, told = self._walk, self._forecast.told
        if self._forecast.launch_may_differ and position < len(self._index):
            self._launches += 1
            if self._launches > LAUNCHES:
                raise TooFarError
            return position
        at = bisect_left(self._fixed, position)
        first = self._fixed[at] if at < len(self._fixed) else len(self._index)
        for path in self._base_changed:
            first = min(first, self._seek(path, READ, position))
        if walk.told or told:
            first = min(first, self._seek(TOLD, FLAG, position))
        if not walk.clean or told or self._forecast.maybe:
            first = min(first, self._seek(INCOMPLETE, FLAG, position))
        return min(first, self._next_for_paths(position))

    def _next_for_paths(self, position: int) -> int:
        """The first place from `position` on that has to do with a path or a listing that differs."""
        for watch in self._watches:
            for path in watch:
                self._follow(path, position)
                self._follow_listing(parent(path), position)
            watch.clear()
        while self._heap:
            due, path = self._heap[0]
            if self._paths.get(path) == due and due >= position:
                return due
            heapq.heappop(self._heap)
            if self._paths.get(path) == due:
                (self._follow_listing if path.endswith("//") else self._follow)(path.removesuffix("//"), position)
        return len(self._index)

    def _follow(self, path: str, position: int) -> None:
        """Wait for the next place whose record may notice that the path differs as it does now, or may change that."""
        kinds = self._walk.differing.kinds(path) | self._forecast.maybe.kinds(path)
        if not kinds:
            self._paths.pop(path, None)
            return
        due = self._seek(path, observers(kinds) | writers(kinds), position)
        nodes = self._walk.recorded_tree.get(path), self._walk.tree.get(path)
        for name in {path}.union(*(node.group.names for node in nodes if node is not None and node.group is not None)):
            if name != path:
                due = min(due, self._seek(name, WRITTEN, position))
            for folder in prefixes(name):
                due = min(due, self._seek(folder, SHUTS, position))
        self._wait(path, due)

    def _follow_listing(self, folder: str, position: int) -> None:
        """Wait for the next who lists the folder, when its listing differs."""
        key = f"{folder}//"  # no path ends so
        if self._walk.differing.listing(folder) or self._forecast.maybe.listing(folder):
            self._wait(key, self._seek(folder, LISTED | DECLARED, position))
        else:
            self._paths.pop(key, None)

    def _wait(self, key: str, due: int) -> None:
        if self._paths.get(key) != due:
            self._paths[key] = due
            heapq.heappush(self._heap, (due, key))

    def _seek(self, path: str, bits: int, position: int) -> int:
        due = self._due.get((path, bits), -1)
        if due < position:
            found = self._index.next(path, bits, position)
            due = self._due[path, bits] = _NEVER if found is None else found
        return due
