"""The chain: append, publish and move by compare-and-swap; what is reachable stays and the rest can be collected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mulligan.errors import ConflictError, NotFoundError, StoreError
from mulligan.history.journal import NEW
from mulligan.history.store import Store


def test_a_chain_is_read_back_as_it_was_appended(home, store, session, make_record):
    """Another process reads the same records, in order, with outputs and layers."""
    made, head = [], 0
    for number in range(1, 6):
        record, head = store.journal.append(session, head, make_record(number, stdout=b"%d\n" % number * 100))
        made.append(record)
    with Store.open(home) as again:
        assert again.journal.chain(head) == made
        assert again.journal.last(head) == made[-1]
        assert again.journal.layer_ids(head) == tuple(r.layer_id for r in made)
        assert again.journal.layer("layer-2") == made[1].layer
        assert again.journal.record(session, "a3") == made[2]
    assert store.journal.chain(0) == []
    assert store.journal.last(0) is None
    assert len({r.record_id for r in made}) == 5


def test_a_moved_head_refuses_an_append(store, session, fill, make_record):
    """Compare-and-swap: what was made for an old head is not appended, and nothing of it is left in the journal."""
    first, second = fill(1, 2)
    with pytest.raises(ConflictError, match=f"its head is {second}, and this was made for {first}"):
        store.journal.append(session, first, make_record(3))
    assert store.get(session).head == second
    assert "layer-3" not in store.journal.live_layers()
    assert store.journal.next_action_id(session) == "a3"


def test_a_repair_is_published_as_a_whole(store, session, fill, make_record):
    """Kept records are shared with the old chain, new ones added, and the old chain stays readable until gc."""
    *_, old = fill(1, 2, 3, 4)
    chain = store.journal.chain(old)
    changed = replace(make_record(2, layer="layer-2b"), revision=2)
    published = store.journal.publish(session, old, [chain[0], changed, chain[2], chain[3]])
    assert store.get(session).head == published.head
    after = store.journal.chain(published.head)
    assert tuple(after) == published.records
    assert [r.revision for r in after] == [1, 2, 1, 1]
    assert after[0].record_id == chain[0].record_id
    assert after[2] == chain[2]
    assert store.journal.chain(old) == chain
    assert store.journal.head_at(session, "a1") == 1, "the shared beginning keeps its node"


def test_a_publish_for_an_old_head_changes_nothing(store, session, fill, make_record):
    """An action appended during a repair makes the repair's compare-and-swap fail."""
    first, second = fill(1, 2)
    with pytest.raises(ConflictError):
        store.journal.publish(session, first, [make_record(7)])
    assert store.get(session).head == second
    assert "layer-7" not in store.journal.live_layers()


def test_publishing_nothing_empties_the_history(store, session, fill):
    """Dropping every action gives the state before the first."""
    *_, head = fill(1, 2)
    assert store.journal.publish(session, head, []).head == 0
    assert store.get(session).head == 0


def test_numbers_never_go_back(store, session, fill, make_record):
    """After a rollback the next action gets a new number, so an id always means one slot."""
    first, second = fill(1, 2)
    store.journal.move(session, second, first)
    assert store.journal.next_action_id(session) == "a3"
    assert store.journal.next_action_id(session, ahead=2) == "a5"
    store.journal.publish(session, first, [*store.journal.chain(first), make_record(9)])
    assert store.journal.next_action_id(session) == "a10"


def test_an_unknown_action_names_those_that_exist(store, session, fill):
    """An action that was rolled back or never was is not found, and the error lists the others."""
    with pytest.raises(NotFoundError, match="it has none yet"):
        store.journal.record(session, "a1")
    first, second = fill(1, 2)
    store.journal.move(session, second, first)
    with pytest.raises(NotFoundError, match="session work has no action a2; it has a1"):
        store.journal.head_at(session, "a2")


def test_the_first_version_seen_stays_until_a_repair(store, session, make_record):
    """An append keeps the versions of the base's files that earlier actions saw; a repair replaces them."""
    journal, odd = store.journal, "/usr/\udcff"
    _, head = journal.append(session, 0, make_record(1), {odd: (1, 2, 3)})
    _, head = journal.append(session, head, make_record(2), {odd: (9, 9, 9), "/usr/b": (4, 5, 6)})
    assert journal.versions(session) == {odd: (1, 2, 3), "/usr/b": (4, 5, 6)}
    store.branch(session, "other", head)
    journal.publish(session, head, journal.chain(head), {odd: (9, 9, 9)})
    assert journal.versions(session)[odd].mtime_ns == 9
    assert journal.versions("other")[odd] == (1, 2, 3)


def test_gc_keeps_what_any_head_reaches(store, session, fill):
    """Rolled-back history goes, unless a branch still stands on it; bottoms of sessions stay."""
    first, second, third = fill(1, 2, 3)
    store.branch(session, "other", second)
    store.journal.move(session, third, first)
    assert store.journal.live_layers() == {"skeleton", "layer-1", "layer-2"}
    gone = store.journal.collect()
    assert (gone.records, gone.layers) == (1, {"layer-3"})
    assert store.journal.live_layers() == {"skeleton", "layer-1", "layer-2"}
    assert [r.id for r in store.journal.chain(second)] == ["a1", "a2"]
    with pytest.raises(ConflictError, match="collected"):
        store.journal.chain(third)
    with pytest.raises(ConflictError, match="collected"):
        store.journal.move(session, first, third)
    with pytest.raises(StoreError, match="does not know"):
        store.journal.layer("layer-3")


def test_gc_keeps_a_pinned_state(store, session, fill):
    """A state that was committed to a folder stays readable after a rollback, until the pin moves or the session goes."""
    first, second, third = fill(1, 2, 3)
    store.journal.pin(session, "/srv/\udcff", third)
    store.branch(session, "other", first)
    store.journal.move(session, third, first)
    assert store.journal.collect().layers == set()
    assert store.journal.pins(session) == store.journal.pins("other") == {"/srv/\udcff": third}
    store.journal.pin(session, "/srv/\udcff", 0)
    store.journal.pin("other", "/srv/\udcff", second)
    assert store.journal.collect().layers == {"layer-3"}
    store.remove("other")
    assert store.journal.collect().layers == {"layer-2"}
    assert store.journal.pins(session) == {"/srv/\udcff": 0}


def test_gc_after_removing_every_session_leaves_nothing(store, session, fill):
    """Records, outputs and layers of a removed session are dropped; a new session starts from a1."""
    fill(1, 2)
    store.remove(session)
    assert store.journal.collect().layers == {"skeleton", "layer-1", "layer-2"}
    with store._db.read() as db:
        for table in ("nodes", "records", "layers", "streams", "session_layers", "base_versions"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


def test_equal_outputs_are_stored_once(store, session, make_record):
    """A rematerialised record shares its output with the one it came from."""
    record, head = store.journal.append(session, 0, make_record(1, stdout=b"x" * 100))
    store.journal.publish(session, head, [replace(record, record_id=NEW)])
    with store._db.read() as db:
        assert db.execute("SELECT count(*) FROM streams").fetchone() == (1,)


def test_a_layer_never_changes(store, session, make_record):
    """A record that names a layer of the journal does not overwrite it."""
    record, head = store.journal.append(session, 0, make_record(1))
    other = make_record(2, layer="layer-1")
    store.journal.append(session, head, other)
    with Store.open(store.home) as again:
        assert again.journal.layer("layer-1") == record.layer
