"""Index: which records observed or wrote a path, kept beside the records in segments that never change.

Knows the tables of schema.py, pages and what of a record is indexed. Gives, per segment, the records found under a path, and
what each record was called and launched with. Knows nothing of sessions, chains or plans.

A segment covers a range of record numbers: first 256 of them, and sixteen neighbours of one size become one of the next.
Records never change and their numbers are never given twice, so a segment stays right through repairs, rollbacks and branches;
what it says of a record that gc dropped is asked by nobody. All of it can be made again from the records. It is made after a
record was appended, outside of that transaction and once in 256 times, or before it is used; what it does not cover yet is
read from the records themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mulligan.history import pages
from mulligan.model.postings import NOT_RUN

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence

    from mulligan.history.db import Db
    from mulligan.history.pages import Hits
    from mulligan.model.postings import Facts

    # The facts of those records of a range of numbers, [first, end), that are still there.
    Load = Callable[[int, int], Iterable[Facts]]

SMALLEST: Final = 256
FAN: Final = 16
AT_APPEND: Final = SMALLEST * FAN  # larger ones are made by gc: seconds of merging have no place in an action
LARGEST: Final = AT_APPEND * FAN


class Segment(NamedTuple):
    """A range of record numbers, [first, first + size), with so many postings, which lie in 2**bits pages."""

    id: int
    first: int
    size: int
    postings: int

    @property
    def end(self) -> int:
        """The first record number behind the range."""
        return self.first + self.size

    @property
    def bits(self) -> int:
        """How many bits of a checksum tell its pages apart."""
        return pages.bucket_bits(self.postings)


class Heads(NamedTuple):
    """What each record of a segment is called, and the numbers of what it was launched with and handed on.

    The name of a number without a record is empty.
    """

    names: Sequence[str]
    launches: Sequence[int]
    handoffs: Sequence[int]


class Index:
    """The segments of one store. `load` gives the facts of records that are to be covered."""

    def __init__(self, db: Db, load: Load) -> None:
        self._db = db
        self._load = load
        self._end = -1  # records below this number were covered when last asked

    def covers(self, record: int) -> bool:
        """Whether the index reaches so near to this record that there is nothing to make."""
        if self._end < 0:
            with self._db.read() as db:
                self._end = _end(db)
        return record + 1 < self._end + SMALLEST

    def extend(self, largest: int = AT_APPEND) -> None:
        """Cover every whole range of records, and put together what makes segments of up to `largest` records."""
        with self._db.read() as db:
            last = int(db.execute("SELECT coalesce(max(id), 0) FROM records").fetchone()[0])
            end = _end(db)
        while last + 1 >= end + SMALLEST:
            self.add(end, self._load(end, end + SMALLEST))
            end += SMALLEST
        self._end = end
        while self._merge(largest):
            pass

    def add(self, first: int, facts: Iterable[Facts]) -> None:
        """Cover the range of records that begins at `first`, unless somebody has done so meanwhile."""
        names, launches, handoffs = [""] * SMALLEST, [NOT_RUN] * SMALLEST, [NOT_RUN] * SMALLEST
        found: list[int] = []
        for one in facts:
            at = one.record - first
            names[at], launches[at], handoffs[at] = one.name, one.launch, one.handoff
            found += pages.packed(one.postings, at)
        found.sort()
        bits = pages.bucket_bits(len(found))
        made = list(pages.encode(found, bits, range(1 << bits)))
        with self._db.write() as db:
            if _end(db) == first:
                _insert(db, Segment(0, first, SMALLEST, len(found)), Heads(names, launches, handoffs), made)

    def segments(self) -> list[Segment]:
        """Every segment in order of its range, which begins where the one before it ends."""
        with self._db.read() as db:
            return _segments(db)

    def find(self, segment: Segment, path_sum: int) -> Hits | None:
        """What a segment has under a path. None: it was put together with its neighbours meanwhile."""
        query = "SELECT data FROM index_pages WHERE segment = ? AND bucket = ?"
        with self._db.read() as db:
            row = db.execute(query, (segment.id, pages.bucket(path_sum, segment.bits))).fetchone()
        return pages.find(row[0], path_sum) if row else None

    def heads(self, segment: Segment) -> Heads | None:
        """What a segment's records are called and launched with. None: it was put together with its neighbours meanwhile."""
        with self._db.read() as db:
            row = db.execute("SELECT names, launches, handoffs FROM index_segments WHERE id = ?", (segment.id,)).fetchone()
        return Heads(pages.decode_names(row[0]), *map(pages.decode_numbers, row[1:])) if row else None

    def _merge(self, largest: int) -> bool:
        """Put together the first neighbours that make a larger segment; whether there were any."""
        parts = _mergeable(self.segments(), largest)
        if not parts:
            return False
        heads = [self.heads(part) for part in parts]
        names = [name for head in heads if head is not None for name in head.names]
        launches = [number for head in heads if head is not None for number in head.launches]
        handoffs = [number for head in heads if head is not None for number in head.handoffs]
        made = self._merged(parts)
        with self._db.write() as db:
            if None in heads or not set(parts) <= set(_segments(db)):
                return True  # somebody else was faster
            db.executemany("DELETE FROM index_segments WHERE id = ?", [(part.id,) for part in parts])
            whole = Segment(0, parts[0].first, sum(part.size for part in parts), sum(part.postings for part in parts))
            _insert(db, whole, Heads(names, launches, handoffs), made)
        return True

    def _merged(self, parts: Sequence[Segment]) -> list[bytes]:
        """The pages of a segment in place of its parts, made bucket by bucket: each is sorted already."""
        bits = pages.bucket_bits(sum(part.postings for part in parts))
        coarse = min(part.bits for part in parts)
        made: list[bytes] = []
        for number in range(1 << coarse):
            found: list[int] = []
            for part in parts:
                finer = part.bits - coarse
                with self._db.read() as db:
                    rows = db.execute(
                        "SELECT data FROM index_pages WHERE segment = ? AND bucket BETWEEN ? AND ? ORDER BY bucket",
                        (part.id, number << finer, (number + 1 << finer) - 1),
                    ).fetchall()
                for (data,) in rows:
                    found += pages.decode(data, part.first - parts[0].first)
            found.sort()
            finer = bits - coarse
            made += pages.encode(found, bits, range(number << finer, number + 1 << finer))
        return made


def _mergeable(segments: Sequence[Segment], largest: int) -> Sequence[Segment]:
    for at, segment in enumerate(segments):
        run = segments[at : at + FAN]
        whole = segment.size * FAN
        if whole <= largest and segment.first % whole == 0 and len(run) == FAN and all(s.size == segment.size for s in run):
            return run
    return ()


def _end(db: sqlite3.Connection) -> int:
    row = db.execute("SELECT first + size FROM index_segments ORDER BY first DESC LIMIT 1").fetchone()
    return int(row[0]) if row else 0


def _segments(db: sqlite3.Connection) -> list[Segment]:
    return [Segment(*row) for row in db.execute("SELECT id, first, size, postings FROM index_segments ORDER BY first")]


def _insert(db: sqlite3.Connection, segment: Segment, heads: Heads, made: Sequence[bytes]) -> None:
    numbers = map(pages.encode_numbers, (heads.launches, heads.handoffs))
    row = db.execute(
        "INSERT INTO index_segments (first, size, postings, names, launches, handoffs) VALUES (?, ?, ?, ?, ?, ?)",
        (*segment[1:], pages.encode_names(heads.names), *numbers),
    )
    numbered = ((row.lastrowid, bucket, data) for bucket, data in enumerate(made))
    db.executemany("INSERT INTO index_pages VALUES (?, ?, ?)", numbered)
