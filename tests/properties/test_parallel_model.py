"""Replays that run at once, on the model machine: the same records, layers, decisions and tree as one after the other."""

from __future__ import annotations

from dataclasses import replace

import machine
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from shop import DrawnPool, repair
from test_pure_model import BASE, EVERY, EXAMPLES, histories, policies, repairs
from world import Program, World

from mulligan.errors import UsageError
from mulligan.model.change import Change, Drop, Replace, Rerun
from mulligan.model.ids import ActionId
from mulligan.model.layer import Entry, Manifest
from mulligan.model.policy import DEFAULT_POLICY
from mulligan.model.record import Record


def recorded(*programs: Program) -> World:
    """A world with this history."""
    world = World(BASE)
    for program in programs:
        world.append(program)
    return world


def told(world: World, records: list[Record]) -> list[object]:
    """All that a history says, and the state that it leaves; of layers what was meant, for their ids tell when they were made."""
    state = world.base
    for record in records:
        state = machine.lay(state, world.layers[record.layer.id])
    rows = [(r.id, r.revision, r.action, r.launch, r.handoff, r.outcome, r.footprint, meant(r.layer.manifest)) for r in records]
    return [rows, machine.shown(state)]


def meant(manifest: Manifest) -> tuple[object, ...]:
    """A manifest without the values that it inherits."""
    return {path: asserted(entry) for path, entry in manifest.entries.items()}, manifest.removed


def asserted(entry: Entry) -> Entry:
    """An entry without the values that it inherits."""
    if entry.inherit_content:
        entry = replace(entry, size=0, target="", rdev=0)
    if entry.inherit_mode:
        entry = replace(entry, mode=0, uid=0, gid=0)
    if entry.inherit_mtime:
        entry = replace(entry, mtime_ns=0)
    return replace(entry, xattrs=()) if entry.inherit_xattrs else entry


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=EVERY)
@given(data=st.data(), history=histories, size=st.integers(2, 4), policy=st.one_of(st.just(DEFAULT_POLICY), policies))
def test_at_once_equals_one_after_the_other(data, history, size, policy):
    """Whatever finishes first, a repair with several replays at once gives the records, decisions and tree of a serial one."""
    world = World(BASE)
    for program in history:
        world.append(program, data.draw(st.sampled_from([(), (), ("group:one",)])))
    changes, new = data.draw(repairs(world))
    try:
        serial, expected, alone = repair(world, changes, new, None, policy=policy)
    except UsageError:  # a patch where there is no place for a file
        return
    pool = DrawnPool(size, lambda below: data.draw(st.integers(0, below - 1)))
    report, records, shop = repair(world, changes, new, pool, policy=policy)
    assert told(world, records) == told(world, expected)
    assert (report.ran, report.kept, report.dropped, report.plan.steps) == (
        serial.ran, serial.kept, serial.dropped, serial.plan.steps,
    )  # fmt: skip
    if policy.granularity == "action":  # else what ran before a unit grew may be taken twice
        assert len(shop.executed) == len(alone.executed) + report.in_vain
    event(f"begun early: {min(pool.added, 3)}, in vain: {min(report.in_vain, 2)}")


def first(_below: int) -> int:
    """A pool with this pick does nothing before somebody waits for it, and then the oldest job."""
    return 0


def eager(below: int) -> int:
    """A pool with this pick does jobs as soon as they come."""
    return below - 1


TOUCHED: Program = (("read", "/w/a"),)
LOOKS: Program = (("exists", "/w/e"),)
MAKES: Program = (("write", "/w/e", b"1"),)


@pytest.mark.parametrize(
    ("history", "changes", "new", "ran", "in_vain"),
    [
        ([TOUCHED, LOOKS], [Replace("a1", "x"), Rerun("a2")], {"a1": MAKES}, ["a1", "a2"], 1),
        ([TOUCHED, TOUCHED], [Replace("a1", "x"), Replace("a2", "y")], {"a1": MAKES, "a2": MAKES}, ["a1", "a2"], 1),
        ([TOUCHED, (("list", "/w"),)], [Replace("a1", "x"), Rerun("a2")], {"a1": MAKES}, ["a1", "a2"], 1),
        ([TOUCHED, (("stat", "/w/d"),)], [Replace("a1", "x"), Rerun("a2")], {"a1": (("chmod", "/w/d", 0o700),)}, ["a1", "a2"], 1),
        ([TOUCHED, (("getenv", "V"),)], [Replace("a1", "x"), Rerun("a2")], {"a1": (("export", "V", "1"),)}, ["a1", "a2"], 1),
        ([MAKES, LOOKS], [Rerun("a1"), Rerun("a2")], {}, ["a1", "a2"], 0),
        ([MAKES, TOUCHED, LOOKS], [Drop("a1"), Rerun("a2"), Rerun("a3")], {}, ["a2", "a3"], 0),
        ([TOUCHED, MAKES, TOUCHED], [Rerun("a1"), Drop("a2"), Rerun("a3")], {}, ["a1", "a3"], 0),
        ([TOUCHED, MAKES, LOOKS], [Rerun("a1"), Drop("a2"), Rerun("a3")], {}, ["a1", "a3"], 0),
        ([TOUCHED, LOOKS, LOOKS], [Replace("a1", "x"), Rerun("a3")], {"a1": MAKES}, ["a1", "a2", "a3"], 1),
        ([TOUCHED, TOUCHED, TOUCHED], [Rerun("a1"), Rerun("a2"), Rerun("a3")], {}, ["a1", "a2", "a3"], 0),
    ],
    ids=[
        "a new path is looked for", "a new path is written by both", "a new name in a list", "a new mode", "a new variable",
        "a chain is not begun early", "after a drop", "across a drop", "hit by a drop", "who is hit by it, too", "independent",
    ],
)  # fmt: skip
def test_hazards(history: list[Program], changes: list[Change], new: dict[str, Program], ran: list[str], in_vain: int):
    """A replay begun early that observed what comes out otherwise runs again in its turn; what is sure to do so waits."""
    world = recorded(*history)
    _, expected, _ = repair(world, changes, new, None)
    report, records, shop = repair(world, changes, new, DrawnPool(2, eager))
    assert told(world, records) == told(world, expected)
    assert list(report.ran) == ran
    assert report.in_vain == in_vain
    assert len(shop.executed) == len(ran) + in_vain


def test_what_came_true_is_not_run_again():
    """A replay begun early whose state came true is taken, on a state that differs elsewhere; its layer is made again there."""
    world = recorded(TOUCHED, (("write", "/w/d/b", b"2"),))
    changes: list[Change] = [Replace("a1", "x"), Rerun("a2")]
    new: dict[str, Program] = {"a1": (("setxattr", "/w/d", b"new"),)}
    pool = DrawnPool(2, eager)
    report, records, shop = repair(world, changes, new, pool)
    assert pool.added == 1
    assert report.in_vain == 0
    assert shop.executed == [ActionId("a2"), ActionId("a1")]
    assert told(world, records) == told(world, repair(world, changes, new, None)[1])


def test_what_never_began_is_not_lost():
    """A replay whose turn comes before a thread was free for it just runs in its turn."""
    world = recorded(TOUCHED, LOOKS)
    report, _, shop = repair(world, [Rerun("a1"), Rerun("a2")], {}, DrawnPool(2, first))
    assert shop.executed == ["a1", "a2"]
    assert report.in_vain == 0


def test_who_ran_out_of_time_beside_others():
    """A replay begun early that ran out of time is run again in its turn, where others may have kept it from its work."""
    world = recorded(TOUCHED, TOUCHED)
    changes: list[Change] = [Rerun("a1"), Rerun("a2")]
    report, records, shop = repair(world, changes, {}, DrawnPool(2, eager), late={"a2"})
    assert shop.executed == ["a2", "a1", "a2"]
    assert report.in_vain == 1
    assert not any(record.outcome.timed_out for record in records)
