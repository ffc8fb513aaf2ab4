"""The index: what is found under a path, through every size of segment, and how it is made and put together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mulligan.history import index as indexes
from mulligan.history import pages
from mulligan.history.index import Index
from mulligan.model.change import Drop
from mulligan.model.ids import RecordId
from mulligan.model.postings import FILE, READ, WRITTEN, facts_of, postings
from mulligan.repair.index import ChainIndex
from mulligan.repair.planner import build_plan
from mulligan.repair.sparse import build_sparse_plan


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Segments of 4, 8 and 16 records."""
    monkeypatch.setattr(indexes, "SMALLEST", 4)
    monkeypatch.setattr(indexes, "FAN", 2)


def found(index, path, bits):
    """The records that all segments have under a path."""
    got = []
    for segment in index.segments():
        hits = index.find(segment, pages.checksum(path))
        got += [segment.first + at for at, how in zip(hits.records, hits.bits, strict=True) if how & bits]
    return got


@pytest.mark.parametrize("largest", [4, 8, 16])
def test_a_record_is_found_under_all_it_observed_and_wrote(store, fill, make_record, largest):
    """Every posting of every covered record is found, and no other, whatever was put together."""
    fill(*range(1, 46))
    index = store.journal.index
    index.extend(largest)
    assert {segment.size for segment in index.segments()} == {size for size in (4, 8, 16) if size <= largest}
    end = index.segments()[-1].end
    expected = {}
    for number in range(1, end):
        record = make_record(number)
        for path, bits in postings(record.footprint, record.layer.manifest).items():
            expected.setdefault(path, []).append((number, bits))
    for path, hits in expected.items():
        for bits in (READ, WRITTEN, FILE):
            assert found(index, path, bits) == [number for number, how in hits if how & bits], (path, bits)
    assert found(index, "/nowhere", READ | WRITTEN) == []


def test_heads_have_a_name_and_launch_for_each_record(store, fill, make_record):
    """Names and the numbers of launch contexts come back at the place of their record; a gap has none."""
    fill(*range(1, 20))
    index = store.journal.index
    index.extend()
    for segment in index.segments():
        heads = index.heads(segment)
        for at, name in enumerate(heads.names):
            facts = facts_of(make_record(segment.first + at)) if segment.first + at > 0 else None
            expected = ("", 0, 0) if facts is None else (facts.name, facts.launch, facts.handoff)
            assert (name, heads.launches[at], heads.handoffs[at]) == expected


def test_equal_launch_contexts_have_one_number_and_others_another(make_record):
    """The order of the variables does not matter; a value, a name and the working folder do."""
    record = make_record(1)

    def number(**env):
        return facts_of(replace(record, launch=replace(record.launch, env=env))).launch

    assert number(A="1", B="2") == number(B="2", A="1")
    assert len({number(A="1"), number(A="2"), number(B="1"), number(A="1", B=""), number()}) == 5
    assert facts_of(replace(record, launch=replace(record.launch, cwd="/x"))).launch != facts_of(record).launch


def test_segments_leave_no_gap_and_only_whole_ranges_are_covered(store, fill):
    """The tail that fills no segment stays out, and a later call goes on from there."""
    index = store.journal.index
    for count in (3, 1, 9, 30):
        fill(*range(1, count + 1))
        index.extend()
        segments = index.segments()
        ends = [0, *(segment.end for segment in segments)]
        assert [segment.first for segment in segments] == ends[:-1]
        last = store.journal.last(store.get("work").head).record_id
        assert ends[-1] == (last + 1) // 4 * 4
        assert index.covers(last)
        assert not index.covers(RecordId(last + 4))


def test_a_segment_that_was_put_together_meanwhile_is_gone(store, fill):
    """Who still knows the old segment is told to look again, and finds the same."""
    fill(*range(1, 18))
    index = store.journal.index
    index.extend(4)
    old = index.segments()
    history = store.journal.chain(store.get("work").head)
    chain = ChainIndex(history, index)
    Index(store._db, store.journal._facts).extend(16)
    assert index.find(old[0], pages.checksum("/workspace/3")) is None
    assert index.heads(old[0]) is None
    assert chain.next("/workspace/3", FILE, 0) == 2
    assert list(chain.before("/workspace/old", WRITTEN, 17)) == list(range(16, -1, -1))
    assert chain.names() == [f"a{n}" for n in range(1, 18)]


def test_two_who_make_the_same_segment_make_it_once(store, fill):
    """A range that is covered already is left as it is."""
    fill(*range(1, 9))
    index = store.journal.index
    index.extend(4)
    before = index.segments()
    index.add(0, ())
    index.add(4, ())
    assert index.segments() == before
    assert found(index, "/workspace/3", FILE) == [3]


def test_the_index_can_be_made_again(store, fill):
    """Dropped as a whole, it comes out the same."""
    fill(*range(1, 30))
    index = store.journal.index
    index.extend()
    before = [(segment[1:], found(index, "/workspace/old", WRITTEN)) for segment in index.segments()]
    with store._db.write() as db:
        db.execute("DELETE FROM index_segments")
        assert db.execute("SELECT count(*) FROM index_pages").fetchone() == (0,)
    again = Index(store._db, store.journal._facts)
    again.extend()
    assert [(segment[1:], found(again, "/workspace/old", WRITTEN)) for segment in again.segments()] == before


def test_what_gc_dropped_is_asked_by_nobody(store, session, fill):
    """After a rollback and gc the chain's index gives the records of the chain alone, and larger segments are made."""
    heads = fill(*range(1, 12))
    store.journal.move(session, heads[-1], heads[4])
    fill(*range(12, 30))
    store.journal.index.extend(4)
    store.journal.collect()
    history = store.journal.chain(store.get(session).head)
    chain = ChainIndex(history, store.journal.index)
    assert max(segment.size for segment in store.journal.index.segments()) == 16
    assert list(chain.before("/workspace/old", WRITTEN, len(chain))) == list(range(len(chain) - 1, -1, -1))
    assert chain.next("/workspace/8", FILE, 0) is None
    assert chain.names() == [f"a{n}" for n in (*range(1, 6), *range(12, 30))]


def test_a_plan_reads_the_records_that_matter(store, session, make_record):
    """Of three hundred actions a plan by the index reads a few, and comes out as the plan that reads all."""
    head, launch = 0, store.get(session).launch
    for number in range(1, 301):
        record = make_record(number)
        seen = frozenset({"/workspace/150"}) if number in {200, 250} else frozenset()
        footprint = replace(record.footprint, saw=record.footprint.saw | seen)
        record = replace(record, launch=launch, handoff=launch, footprint=footprint)
        head = store.journal.append(session, head, record).head
    store.journal.index.extend()
    read = set()

    def noted(record):
        read.add(record)
        return store.journal._read(record)

    history = store.journal.chain(head)
    history._read = noted
    chain = ChainIndex(history, store.journal.index)
    options = {"same_bytes": lambda *_: False, "first_launch": launch, "session": session, "head": head}
    sparse = build_sparse_plan(history, chain, [], [Drop("a150")], **options)
    assert sparse == build_plan(store.journal.chain(head), [], [Drop("a150")], **options)
    assert sparse.of("must_rerun") == ["a200", "a250"]
    assert len(read) <= 12, sorted(read)
