"""ChainIndex: the store's index as one history sees it: by places in the history instead of record numbers.

Knows the index's segments and a history that is read record by record; pure. Gives the next and the earlier records found under
a path. A history is cut into stretches in which the record numbers rise within one segment. Without repairs those are whole
segments; each record that a repair put into the midst of older ones is a stretch of its own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from operator import ge
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mulligan.history.pages import NO_HITS, Hits, checksum
from mulligan.model.ids import ActionId
from mulligan.model.postings import NOT_RUN, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mulligan.history.index import Heads, Segment
    from mulligan.model.postings import Facts
    from mulligan.model.record import Record


class History(Protocol):
    """A chain of records, oldest first, each read when it is asked for."""

    @property
    def record_ids(self) -> Sequence[int]:
        """The number of each record."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Record: ...


class Segments(Protocol):
    """What is asked of the store's index; see history/index.py."""

    def segments(self) -> Sequence[Segment]:
        """Every segment in order."""

    def find(self, segment: Segment, path_sum: int) -> Hits | None:
        """What a segment has under a path. None: there is no such segment any more."""

    def heads(self, segment: Segment) -> Heads | None:
        """What its records are called and launched with. None: there is no such segment any more."""


class _Stretch(NamedTuple):
    """Places [start, end) of the history; their record numbers rise and lie in one segment, or in none yet."""

    start: int
    end: int
    segment: Segment | None


class ChainIndex:
    """The index of one history. Places are counted from 0."""

    def __init__(self, history: History, segments: Segments) -> None:
        self._history = history
        self._segments = segments
        self._ids = history.record_ids
        self._pages: dict[tuple[int, int], Hits] = {}
        self._found: dict[tuple[int, int, int], Sequence[int]] = {}
        self._nothing: dict[tuple[str, int], int] = {}  # path and bits -> before this place there is nothing
        self._tail: dict[int, Hits] = {}
        self._tail_facts: dict[int, Facts] = {}
        self._refresh()

    def __len__(self) -> int:
        return len(self._ids)

    def next(self, path: str, bits: int, position: int) -> int | None:
        """The first place from `position` on whose record is found under the path by any of these bits."""
        path_sum = checksum(path)
        while position < len(self._ids):
            stretch = self._stretch(position)
            numbers = self._numbers(stretch.segment, path_sum, bits)
            if numbers is None:
                continue
            if numbers:
                low = max(stretch.start, position)
                for at in range(bisect_left(numbers, self._ids[low]), bisect_right(numbers, self._ids[stretch.end - 1])):
                    if (place := self._place(numbers[at], low, stretch.end)) is not None:
                        return place
            position = stretch.end
        return None

    def before(self, path: str, bits: int, position: int, least: int = 0) -> Iterator[int]:
        """The places in [least, position) whose records are found under the path by any of these bits, the latest first."""
        path_sum = checksum(path)
        while position > least:
            stretch = self._stretch(position - 1)
            numbers = self._numbers(stretch.segment, path_sum, bits)
            if numbers is None:
                continue
            if numbers:
                start, end = max(stretch.start, least), min(stretch.end, position)
                low, high = bisect_left(numbers, self._ids[start]), bisect_right(numbers, self._ids[end - 1])
                for at in range(high - 1, low - 1, -1):
                    if (place := self._place(numbers[at], start, end)) is not None:
                        yield place
            position = stretch.start

    def last(self, path: str, bits: int, position: int) -> int:
        """The last place before `position` that `before` gives, or -1."""
        empty = self._nothing.get((path, bits), 0)
        place = next(self.before(path, bits, position, min(empty, position)), -1)
        if place < 0:
            self._nothing[path, bits] = max(empty, position)
        return place

    def names(self) -> list[ActionId]:
        """What each action of the history is called."""
        return [ActionId(str(name)) for name in self._column("names")]

    def breaks(self) -> dict[int, int]:
        """Places whose launch context is not what the action before them handed on, each with the place of that action."""
        launches, handoffs = self._column("launches"), self._column("handoffs")
        found: dict[int, int] = {}
        before = -1
        for place, launch in enumerate(launches):
            if launch == NOT_RUN:
                continue
            if before >= 0 and handoffs[before] != launch:
                found[place] = before
            before = place
        return found

    def _column(self, name: str) -> list[object]:
        column: list[object] = []
        heads: dict[int, Heads] = {}
        while len(column) < len(self._ids):
            start, end, segment = self._stretch(len(column))
            if segment is None:
                facts = [self._tail_facts[number] for number in self._ids[start:end]]
                column += [getattr(one, {"names": "name", "launches": "launch", "handoffs": "handoff"}[name]) for one in facts]
                continue
            head = heads.get(segment.id) or self._segments.heads(segment)
            if head is None:
                self._refresh()
                continue
            heads = {segment.id: head}
            values = getattr(head, name)
            low, high = self._ids[start] - segment.first, self._ids[end - 1] - segment.first
            if high - low == end - 1 - start:
                column += values[low : high + 1]
            else:
                column += [values[number - segment.first] for number in self._ids[start:end]]
        return column

    def _place(self, number: int, low: int, high: int) -> int | None:
        place = bisect_left(self._ids, number, low, high)
        return place if place < high and self._ids[place] == number else None

    def _stretch(self, position: int) -> _Stretch:
        return self._stretches[bisect_right(self._starts, position) - 1]

    def _numbers(self, segment: Segment | None, path_sum: int, bits: int) -> Sequence[int] | None:
        """The records of a segment that are found so. None: it was put together with its neighbours, so look for it again."""
        key = segment.id if segment is not None else -1, path_sum, bits
        numbers = self._found.get(key)
        if numbers is None:
            hits = self._hits(segment, path_sum)
            if hits is None:
                return None
            first = segment.first if segment is not None else 0
            numbers = [number + first for number, how in zip(*hits, strict=True) if how & bits]
            self._found[key] = numbers
        return numbers

    def _hits(self, segment: Segment | None, path_sum: int) -> Hits | None:
        if segment is None:
            return self._tail.get(path_sum, NO_HITS)
        key = segment.id, path_sum
        if key not in self._pages:
            found = self._segments.find(segment, path_sum)
            if found is None:
                self._refresh()
                return None
            self._pages[key] = found
        return self._pages[key]

    def _refresh(self) -> None:
        """Cut the history into stretches, and read the records that no segment covers."""
        segments = self._segments.segments()
        firsts = [segment.first for segment in segments]
        end = segments[-1].end if segments else 0
        ids, stretches = self._ids, []
        # Where the numbers do not rise: after and before each record that a repair put there.
        falls = [place for place, falling in enumerate(map(ge, ids, ids[1:]), 1) if falling]
        for low, high in zip([0, *falls], [*falls, len(ids)], strict=True):
            at = low
            while at < high:
                segment = segments[bisect_right(firsts, ids[at]) - 1] if ids[at] < end else None
                stop = bisect_left(ids, segment.end, at, high) if segment is not None else high
                stretches.append(_Stretch(at, stop, segment))
                at = stop
        self._stretches = stretches
        self._starts = [stretch.start for stretch in stretches]
        self._found = {key: numbers for key, numbers in self._found.items() if key[0] >= 0}
        self._read_tail([place for s in stretches if s.segment is None for place in range(s.start, s.end)])

    def _read_tail(self, places: list[int]) -> None:
        records: dict[int, array[int]] = {}
        bits: dict[int, array[int]] = {}
        for place in sorted(places, key=self._ids.__getitem__):
            facts = facts_of(self._history[place])
            number = self._ids[place]
            self._tail_facts[number] = facts
            sums: dict[int, int] = {}
            for path, how in facts.postings.items():
                path_sum = checksum(path)
                sums[path_sum] = sums.get(path_sum, 0) | how
            for path_sum, how in sums.items():
                records.setdefault(path_sum, array("q")).append(number)
                bits.setdefault(path_sum, array("q")).append(how)
        self._tail = {path_sum: Hits(found, bits[path_sum]) for path_sum, found in records.items()}
