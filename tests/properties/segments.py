"""The index of a made-up history, in memory: small segments, of which some may be left out or be put together on the way."""

from __future__ import annotations

from mulligan.history import pages
from mulligan.history.index import Heads, Segment
from mulligan.model.postings import NOT_RUN, facts_of
from mulligan.repair.index import ChainIndex


class ReadHistory:
    """A history that notes which of its records were read."""

    def __init__(self, records):
        self._records = records
        self.record_ids = [record.record_id for record in records]
        self.read = set()

    def __len__(self):
        return len(self._records)

    def __getitem__(self, position):
        self.read.add(position)
        return self._records[position]


class MemorySegments:
    """Segments of `size` records that cover the numbers below `end`. `merge_after` finds: two neighbours each become one."""

    def __init__(self, records, size, end, merge_after=1 << 60):
        self.by_number = {record.record_id: facts_of(record) for record in records}
        self.merge_after = merge_after
        self.made = {}
        self.list = []
        for number, first in enumerate(range(0, end, size)):
            self.list.append(self._make(number, first, size))

    def _make(self, number, first, size):
        names, launches, handoffs, found = [""] * size, [NOT_RUN] * size, [NOT_RUN] * size, []
        for at in range(size):
            one = self.by_number.get(first + at)
            if one is not None:
                names[at], launches[at], handoffs[at] = one.name, one.launch, one.handoff
                found += pages.packed(one.postings, at)
        found.sort()
        segment = Segment(number, first, size, len(found))
        made = list(pages.encode(found, segment.bits, range(1 << segment.bits)))
        self.made[number] = Heads(names, launches, handoffs), made
        return segment

    def segments(self):
        """As of history/index.py."""
        return list(self.list)

    def find(self, segment, path_sum):
        """As of history/index.py; the neighbours may be put together just before."""
        self.merge_after -= 1
        if self.merge_after == 0:
            self._merge()
        if segment.id not in self.made:
            return None
        return pages.find(self.made[segment.id][1][pages.bucket(path_sum, segment.bits)], path_sum)

    def heads(self, segment):
        """As of history/index.py."""
        return self.made[segment.id][0] if segment.id in self.made else None

    def _merge(self):
        pairs = [self.list[at : at + 2] for at in range(0, len(self.list), 2)]
        number = len(self.list)
        self.made.clear()
        self.list = [self._make(number + at, pair[0].first, sum(s.size for s in pair)) for at, pair in enumerate(pairs)]


def indexed(records, size=4, covered=1.0, merge_after=1 << 60):
    """A history and its index, whose segments cover this part of it."""
    history = ReadHistory(records)
    end = int((max(history.record_ids, default=0) + size) * covered)
    return history, ChainIndex(history, MemorySegments(records, size, end, merge_after))
