"""Several processes on one store at once, and processes that are killed at any point."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time

import pytest

from mulligan.errors import ConflictError
from mulligan.history.locks import Locks
from mulligan.history.store import Store
from mulligan.model.action import LaunchContext

FORK = multiprocessing.get_context("fork")


def all_end_well(*targets):
    """Run each function in a process of its own, all at once, and wait for them."""
    started = [FORK.Process(target=target) for target in targets]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
    assert [p.exitcode for p in started] == [0] * len(targets)


def test_many_may_make_the_store_at_once(home):
    """A new store that several processes open at the same time is made once, and no one fails."""

    def open_and_add():
        with Store.open(home) as store:
            store.create(f"s{os.getpid()}", base={}, bottom=[], launch=LaunchContext())

    all_end_well(*[open_and_add] * 6)
    with Store.open(home) as store:
        assert len(store.sessions()) == 6


def test_appends_under_the_lock_all_land(home, store, session, make_record):
    """Processes that take the session's lock append one after the other: no number is used twice, none is lost."""
    store.close()

    def append_ten():
        with Store.open(home) as mine:
            for _ in range(10):
                with mine.locked(session) as row:
                    number = int(mine.journal.next_action_id(session)[1:])
                    mine.journal.append(session, row.head, make_record(number))

    all_end_well(*[append_ten] * 4)
    with Store.open(home) as mine:
        assert [r.id for r in mine.journal.chain(mine.get(session).head)] == [f"a{n}" for n in range(1, 41)]


def test_of_two_appends_to_one_head_one_wins(home, store, session, make_record):
    """Compare-and-swap holds between processes that take no lock."""
    store.close()
    won = FORK.Value("i", 0)

    def append_to_the_start():
        with Store.open(home) as mine:
            try:
                mine.journal.append(session, 0, make_record(1, layer=f"by-{os.getpid()}"))
            except ConflictError:
                return
        with won.get_lock():
            won.value += 1

    all_end_well(*[append_to_the_start] * 5)
    assert won.value == 1
    with Store.open(home) as mine:
        assert len(mine.journal.chain(mine.get(session).head)) == 1


def append_forever(home, session, make_record, told):
    """Append, say so after each, never stop."""
    with Store.open(home) as mine:
        while True:
            with mine.locked(session) as row:
                number = int(mine.journal.next_action_id(session)[1:])
                mine.journal.append(session, row.head, make_record(number, stdout=b"x" * 5000, facts=50))
                os.write(told, b".")


def test_killed_at_any_point_nothing_is_lost(home, store, session, make_record):
    """After SIGKILL the store has every record that was acknowledged, and at most the one under way besides."""
    store.close()
    chance = random.Random(20260101)
    known = 0
    for _ in range(12):
        heard, told = os.pipe()
        child = FORK.Process(target=append_forever, args=(home, session, make_record, told))
        child.start()
        os.close(told)
        said = len(os.read(heard, 1))  # it is at work
        time.sleep(chance.uniform(0, 0.05))  # no waiting for a result: the moment of the kill is what is tested
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        while more := os.read(heard, 65536):
            said += len(more)
        os.close(heard)
        with Store.open(home) as mine, mine.locked(session) as row:
            chain = mine.journal.chain(row.head)
            assert known + said <= len(chain) <= known + said + 1
            assert [r.id for r in chain] == [f"a{n}" for n in range(1, len(chain) + 1)]
            with mine._db.read() as db:
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                assert db.execute("PRAGMA foreign_key_check").fetchall() == []
            known = len(chain)


def test_who_has_to_wait_is_told_once(store, session):
    """A second holder waits until the first is done, and learns that it waits."""
    waits, entered, order = threading.Event(), threading.Event(), []

    def second():
        with Store.open(store.home) as mine, mine.locked(session, on_wait=waits.set):
            order.append("second")
        entered.set()

    other = threading.Thread(target=second)
    with store.locked(session), store.locked(session):  # re-entrant for its holder
        other.start()
        assert waits.wait(30)
        order.append("first")
    assert entered.wait(30)
    other.join()
    assert order == ["first", "second"]


def test_gc_waits_for_whoever_makes_layers(store, session):
    """While a session runs, or layers are made for a new one, gc can't hold the store."""
    for holder in (lambda: store.locked(session), store.sharing):
        waits, collected = threading.Event(), threading.Event()

        def gc(waits=waits, collected=collected):
            with Store.open(store.home) as mine, mine.exclusive(on_wait=waits.set):
                collected.set()

        other = threading.Thread(target=gc)
        with holder():
            other.start()
            assert waits.wait(30)
            assert not collected.is_set()
        other.join(30)
        assert collected.is_set()


def test_a_lock_dies_with_its_holder(store, session):
    """A killed process blocks nobody."""
    heard, told = os.pipe()

    def hold():
        with Store.open(store.home) as mine, mine.locked(session):
            os.write(told, b".")
            signal.pause()

    child = FORK.Process(target=hold)
    child.start()
    assert os.read(heard, 1) == b"."
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    for fd in (heard, told):
        os.close(fd)
    with store.locked(session, on_wait=lambda: pytest.fail("the lock is still held")):
        pass


def test_a_removed_session_does_not_split_its_lock(home, store, session):
    """Who waited for the lock of a session that was removed locks the new file, not the deleted one."""
    locks = Locks(home / "locks")
    waits, holds, done = threading.Event(), threading.Event(), threading.Event()

    def second():
        with Locks(home / "locks").session(session, waits.set):
            holds.set()
            done.wait(30)

    other = threading.Thread(target=second)
    with store.locked(session):
        other.start()
        assert waits.wait(30)
        store.remove(session)
    assert holds.wait(30)
    third_waits = threading.Event()

    def third():
        with locks.session(session, third_waits.set):
            pass

    last = threading.Thread(target=third)
    last.start()
    assert third_waits.wait(30), "two hold one session's lock"
    done.set()
    other.join()
    last.join()
