"""B4: the plan of one change, for histories of a thousand to a million actions of 200 facts each.

The history is made up: jobs of 64 actions, each action with a file of its own that it writes again when its job comes round, 64
jobs later. In each group of eight the last three read what the first one wrote; libraries, tools and names that are not there
fill up the 200. One action in the middle is dropped: three others depend on it, and whenever their job comes round again, the
three that find their files; neither its folder's time nor the copies of folders in everybody's layer may lead any farther.

Up to 10,000 actions the records are real ones, in a store, appended by the journal. Beyond, the index holds 16 times, or 244
times, what it has of the first 4,096 actions, with their own names; the chain of nodes is a real one; and a record that is asked
for is made up then. Segments are those that appending makes (gc makes larger ones, which are faster).

The peer is the closure over a networkx graph of all facts, from records that lie in memory. It has no index: it is built for the
question, and it follows every path, whoever wrote it in between.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from functools import lru_cache
from typing import TYPE_CHECKING

import networkx as nx

from mulligan import Drop
from mulligan.history import pages
from mulligan.history.journal import NEW, Chain
from mulligan.history.store import Store
from mulligan.model.action import Action, LaunchContext, Outcome
from mulligan.model.footprint import Footprint
from mulligan.model.ids import ActionId, LayerId, RecordId
from mulligan.model.layer import Entry, Layer, Manifest
from mulligan.model.postings import facts_of
from mulligan.model.record import Record
from mulligan.repair.index import ChainIndex
from mulligan.repair.planner import build_plan
from mulligan.repair.sparse import build_sparse_plan
from tests.benchmarks.measure import Table, Way, interleave, timed

if TYPE_CHECKING:
    from pathlib import Path

    from mulligan.model.plan import Plan

PERIOD, JOB = 4096, 64
LAUNCH = LaunchContext({f"VARIABLE_{n}": f"value {n}" for n in range(20)})
COPY = Entry("dir", made=False, inherit_mode=True, inherit_mtime=True, inherit_xattrs=True)
JOBS = [f"/workspace/job{n}" for n in range(PERIOD // JOB)]
BOTTOM = [Layer(LayerId("bottom"), Manifest({path: Entry("dir") for path in ("/workspace", *JOBS)}))]
BARS_S = {100_000: 1.0, 1_000_000: 10.0}
BAR_BYTES = 1024
COLD, PEER = "by the index, from an unopened store", "networkx: graph of all facts and its closure"
WHOLE = 10_000  # the most actions that the peer, and the walk over every record, are tried on


def made(number: int) -> Record:
    """Action `number`, with 200 facts."""
    at = number % PERIOD
    draw = random.Random(at)
    job, place = JOBS[at // JOB], at % JOB
    own = f"{job}/out{place}"
    saw = {f"/usr/lib/x86_64-linux-gnu/lib{n}.so" for n in draw.sample(range(400), 60)}
    if place % 8 > 4:
        saw.add(f"{job}/out{place - place % 8}")
    missed = {f"/usr/local/lib/python3/{n}.so" for n in draw.sample(range(2000), 60)}
    probed = {"/workspace", job, own, "/usr", "/usr/bin", *(f"/usr/bin/p{n}" for n in draw.sample(range(300), 18))}
    stats = {f"/usr/include/{n}.h" for n in draw.sample(range(1000), 200 - len(saw) - len(missed) - len(probed) - 1)}
    entries = {
        "/workspace": COPY,
        job: Entry("dir", mtime_ns=number, made=False, inherit_mode=True, inherit_xattrs=True),
        own: Entry("file", size=100, mtime_ns=number),
    }
    footprint = Footprint(
        saw=frozenset(saw), missed=frozenset(missed), probed=frozenset(probed), stats=frozenset(stats),
        executed=frozenset({"/usr/bin/sh"}), wrote=frozenset({own}),
    )  # fmt: skip
    return Record(
        NEW, 1, Action(ActionId(f"a{number}"), shell=f"make {own}"), LAUNCH, LAUNCH,
        Outcome(0, None, started_ns=number, ended_ns=number), footprint, Layer(LayerId(f"layer-{number}"), Manifest(entries)),
    )  # fmt: skip


class History:
    """A store with a history of so many actions, real or filled in."""

    def __init__(self, home: Path, count: int) -> None:
        self.home, self.count, self.real = home, count, count <= WHOLE
        self.change = Drop(f"a{count // 2 // 8 * 8}")
        self.read = self.reached = 0
        start = time.perf_counter()
        with Store.open(home) as store:
            store.create("b4", base={}, bottom=BOTTOM, launch=LAUNCH)
            self.head = _append(store, count) if self.real else _fill(store, count)
        self.seconds = time.perf_counter() - start

    def plan(self, store: Store) -> Plan:
        """The plan by the index."""
        journal = store.journal
        history = journal.chain(self.head)
        if not self.real:
            history = Chain(history.record_ids, lru_cache(1000)(self._made_up))
        options = {"same_bytes": lambda *_: False, "first_launch": LAUNCH}
        plan = build_sparse_plan(history, ChainIndex(history, journal.index), BOTTOM, [self.change], **options)
        self.read = len(journal._records) or self.read
        assert plan is not None
        assert len(plan.of("must_rerun")) == 3, plan.of("must_rerun")
        self.reached = 4 + len(plan.of("may_rerun"))
        return plan

    def _made_up(self, number: RecordId) -> Record:
        self.read += 1
        return made(number)

    def cold(self) -> None:
        """From an unopened store to the plan."""
        self.read = 0
        with Store.open(self.home) as store:
            self.plan(store)

    def whole(self) -> None:
        """From an unopened store to the plan, over every record."""
        with Store.open(self.home) as store:
            build_plan(store.journal.chain(self.head), BOTTOM, [self.change], same_bytes=lambda *_: False, first_launch=LAUNCH)

    def peak(self) -> int:
        """The most bytes that a plan holds at once, the plan itself included."""
        gc.collect()
        tracemalloc.start()
        self.cold()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most


def _append(store: Store, count: int) -> int:
    head = 0
    with store._db.write():  # one sync for all
        for number in range(1, count + 1):
            head = store.journal.append("b4", head, made(number)).head
            store.journal._records.clear()
            store.journal._layers.clear()
    store.journal.index.extend()
    return head


def _fill(store: Store, count: int) -> int:
    """Nodes for so many records that are not there, and the segments that they would have by now."""
    index = store.journal.index
    for first in range(0, PERIOD, 256):
        index.add(first, (facts_of(made(number))._replace(record=number) for number in range(first, first + 256)))
    parts = {segment.first: segment.id for segment in index.segments()}
    with store._db.write() as db:
        db.execute("CREATE TEMP TABLE pages AS SELECT * FROM index_pages")
        db.execute("CREATE TEMP TABLE segments AS SELECT * FROM index_segments")
    while index._merge(PERIOD):
        pass
    whole = index.segments()[0].id
    store._db._connection.execute("PRAGMA foreign_keys = OFF")  # the records of the nodes are not there
    with store._db.write() as db:
        db.execute("INSERT INTO temp.pages SELECT * FROM index_pages")
        db.execute("INSERT INTO temp.segments SELECT * FROM index_segments")
        _name(db, whole, 0, PERIOD)
        for first in range(PERIOD, count + 2 - PERIOD, PERIOD):
            _copy(db, whole, first, PERIOD)
        for first in range((count + 1) // PERIOD * PERIOD, count + 2 - 256, 256):
            _copy(db, parts[first % PERIOD], first, 256)
        nodes = ((number, number - 1 or None, number) for number in range(1, count + 1))
        db.executemany("INSERT INTO nodes (id, parent, record) VALUES (?, ?, ?)", nodes)
    return count


def _copy(db, source: int, first: int, size: int) -> None:
    row = db.execute(
        "INSERT INTO index_segments (first, size, postings, names, launches, handoffs)"
        " SELECT ?, size, postings, names, launches, handoffs FROM temp.segments WHERE id = ?",
        (first, source),
    )
    db.execute(
        "INSERT INTO index_pages SELECT ?, bucket, data FROM temp.pages WHERE segment = ? ORDER BY bucket",
        (row.lastrowid, source),
    )
    _name(db, row.lastrowid, first, size)


def _name(db, segment: int, first: int, size: int) -> None:
    names = pages.encode_names(f"a{number}" for number in range(first, first + size))
    db.execute("UPDATE index_segments SET names = ? WHERE id = ?", (names, segment))


def closure(records: list[Record], start: str) -> int:
    """How many actions the naive graph reaches: an edge from who wrote a path to the path, and from it to who observed it."""
    graph = nx.DiGraph()
    for record in records:
        graph.add_edges_from((path, record.id) for path in record.footprint.observed_paths())
        graph.add_edges_from((record.id, path) for path in record.layer.manifest.paths)
    return sum(1 for node in nx.descendants(graph, start) if not node.startswith("/"))


def measure(folder: Path, table: Table, budget_s: float, *, quick: bool) -> None:
    """The lines of B4."""
    for count in (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        history = History(folder / str(count), count)
        _measure(history, table, budget_s, peer=count <= (1_000 if quick else WHOLE))


def _measure(history: History, table: Table, budget_s: float, *, peer: bool) -> None:
    count = history.count
    how = "records in a store" if history.real else "filled index, records made up"
    table.title(f"B4  plan of one change in {count:,} actions ({how}) (ms)")
    ways = {COLD: Way(timed(history.cold))}
    if peer:
        records = [made(number) for number in range(1, count + 1)]
        ways["walking over every record"] = Way(timed(history.whole))
        ways[PEER] = Way(timed(lambda: closure(records, history.change.id)))
    with Store.open(history.home) as store:
        ways["by the index, again in an open session"] = Way(timed(lambda: history.plan(store)))
        times = interleave(ways, budget_s, least=2)
    for name, taken in times.items():
        table.times(name, taken)
    start = time.process_time()
    history.cold()
    used = time.process_time() - start
    table.note(f"  made in {history.seconds:.0f} s; {history.read} records read; the plan names {history.reached} actions")
    if peer:
        reach, more = closure(records, history.change.id), times[PEER].median / times[COLD].median
        table.note(f"  networkx names {reach} actions, and takes {more:.1f} times as long")
    if count in BARS_S:
        table.ratio("seconds from an unopened store", times[COLD].median, BARS_S[count])
        table.ratio("seconds of CPU time of the same, whatever else runs", used, BARS_S[count])
        table.ratio("bytes held at most, per action", history.peak() / count, BAR_BYTES)
