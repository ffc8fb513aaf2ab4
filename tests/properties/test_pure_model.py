"""The central law on the model machine: a repair equals running the corrected history from the start, and runs no more."""

from __future__ import annotations

import os

import machine
import pytest
from counts import counts
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from world import Program, Repair, World

from mulligan.errors import UsageError
from mulligan.model import events as ev
from mulligan.model.change import Change, Drop, Patch, Replace, Rerun
from mulligan.model.layer import Entry
from mulligan.model.plan import Plan
from mulligan.model.policy import DEFAULT_POLICY, Policy
from mulligan.model.record import Record

EXAMPLES = int(os.environ.get("MULLIGAN_EXAMPLES", "500"))
PATHS = ["/w/a", "/w/b", "/w/d", "/w/d/a", "/w/d/b", "/w/e", "/w/e/a", "/w/l", "/w/l/a"]
BASE: Program = (
    ("mkdir", "/w"), ("write", "/w/a", b"A"), ("mkdir", "/w/d"), ("write", "/w/d/a", b"DA"), ("link", "/w/a", "/w/b"),
    ("symlink", "d", "/w/l"),
)  # fmt: skip

# For these kinds of key an action may run again although it saw the same, each with its reason.
NOT_EXACT = {
    "meta.links": "a file's names are told as they were before the action, which may itself have parted them before it looked",
    "env": "whoever names a variable counts as having looked at it, also who only sets it",
}
paths = st.sampled_from(PATHS)
contents = st.sampled_from([b"", b"1", b"2", b"long"])
one_path = ["read", "remove", "mkdir", "rmdir", "stat", "exists", "list", "readlink", "utime", "report", "getxattr"]
simple = st.one_of(
    st.tuples(st.sampled_from(one_path), paths),
    st.tuples(st.sampled_from(["write", "append", "setxattr"]), paths, contents),
    st.tuples(st.sampled_from(["copy", "rename", "link"]), paths, paths),
    st.tuples(st.just("truncate"), paths, st.sampled_from([0, 1, 5])),
    st.tuples(st.just("chmod"), paths, st.sampled_from([0o600, 0o644, 0o755])),
    st.tuples(st.just("symlink"), st.sampled_from(["a", "d", "e", "../w/b"]), paths),
    st.tuples(st.just("list"), st.just("/w")),
    st.tuples(st.just("export"), st.sampled_from("VW"), st.sampled_from(["1", "2"])),
    st.tuples(st.sampled_from(["getenv", "getenv", "unset"]), st.sampled_from("VW")),
)
ops = st.one_of(simple, simple, simple, st.tuples(st.just("if"), paths, simple, simple))
programs = st.lists(ops, min_size=1, max_size=4).map(tuple)
histories = st.lists(programs, min_size=2, max_size=7)


@st.composite
def repairs(draw, world: World) -> tuple[list[Change], dict[str, Program]]:
    """One to three changes that do not contradict each other."""
    ids = draw(st.lists(st.sampled_from([s.id for s in world.slots]), min_size=1, max_size=3, unique=True))
    changes: list[Change] = []
    new: dict[str, Program] = {}
    for name in ids:
        patch = next(s.patch for s in world.slots if s.id == name)
        what = "drop" if patch else draw(st.sampled_from(["replace", "replace", "drop", "rerun", "patch"]))
        if what == "replace":
            new[name] = draw(programs)
            changes.append(Replace(name, "program"))
        elif what == "drop":
            changes.append(Drop(name))
        elif what == "rerun":
            changes.append(Rerun(name))
        else:
            path = draw(st.sampled_from(["/w/a", "/w/b"]))
            at = draw(st.sampled_from([None, name]))
            if not any(isinstance(c, Patch) for c in changes):
                changes.append(Patch(path, draw(contents), at))
    return changes or [Rerun(ids[0])], new


def check(
    data_draw, history: list[Program], unseen: type[ev.Event] | None = None, rounds: int = 2, *, overlook: bool = False
) -> None:
    """Record a history, repair it once and again, and hold each result against the oracle. What is not blinded is counted."""
    world = World(BASE, unseen)
    if overlook:
        world.reads = lambda *_: False
    for program in history:
        world.append(program)
    for _ in range(rounds):
        changes, new = data_draw(repairs(world))
        first = first_change(world, changes)
        suffix = {slot.id for slot in world.slots[first:]}
        before = {slot.id for slot in world.slots}
        done = world.repair(changes, new)
        state, said, handed = done.world.oracle()
        assert [record.outcome.stdout for record in done.world.records] == said
        assert machine.shown(done.world.state()) == machine.shown(state)
        assert [record.handoff.env for record in done.world.records] == handed
        assert {name for name in done.ran if name in before} <= suffix
        if unseen is None and not overlook:
            assert all(kinds <= NOT_EXACT.keys() for kinds in done.beyond.values()), done.beyond
            count_up(world, done, plan_of(world, changes))
        world = done.world
        if not world.slots:
            return


def count_up(world: World, done: Repair, plan: Plan | None) -> None:
    """Count what ran and what had to; patches are no actions."""
    actions = {slot.id for slot in world.slots if not slot.patch}
    kept = (actions - set(done.ran)) & {slot.id for slot in done.world.slots}
    sums = counts("repair equals rerun, on the model machine")
    sums.repairs += 1
    sums.actions += len(actions)
    sums.executed += len(actions & set(done.ran))
    sums.minimal += len(actions & set(done.needed))
    sums.kept += len(kept)
    sums.extra.update(", ".join(sorted(kinds)) for kinds in done.beyond.values())
    sums.cut_off += len(kept & set(plan.of("may_rerun"))) if plan is not None else 0


def first_change(world: World, changes: list[Change]) -> int:
    """The index of the first slot that a change can reach."""
    if any(isinstance(change, Patch) for change in changes):
        return 0
    return min(n for n, slot in enumerate(world.slots) if any(slot.id == c.id for c in changes if not isinstance(c, Patch)))


EVERY = list(HealthCheck)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=EVERY)
@given(data=st.data(), history=histories)
def test_repair_equals_rerun(data, history):
    """A repaired tree, and what each action printed, equal the full serial run of the corrected history; twice in a row.

    And only those actions run again that really saw something else than when they were recorded, but for NOT_EXACT.
    """
    check(data.draw, history)


LOOKING = {
    ev.Read: "read", ev.Stat: "stat", ev.Probe: "exists", ev.Missed: "exists", ev.Link: "readlink", ev.List: "list",
    ev.XattrRead: "getxattr",
}  # fmt: skip
few = st.sampled_from(["/w/a", "/w/d", "/w/d/b", "/w/l"])
writing = st.one_of(
    st.tuples(st.sampled_from(["write", "setxattr"]), few, contents),
    st.tuples(st.sampled_from(["remove", "mkdir"]), few),
    st.tuples(st.just("chmod"), few, st.sampled_from([0o600, 0o700])),
    st.tuples(st.just("symlink"), st.sampled_from(["a", "e"]), few),
)


@pytest.mark.parametrize("unseen", list(LOOKING), ids=lambda kind: kind.__name__)
def test_a_blind_tracer_is_found_out(unseen):
    """A tracer that fails to report any one kind of observation breaks the law: the suite sees what it claims to see."""
    one = st.lists(st.one_of(writing, st.tuples(st.just(LOOKING[unseen]), few)), min_size=1, max_size=3).map(tuple)

    @settings(
        max_examples=4000, deadline=None, suppress_health_check=EVERY, phases=[Phase.generate], database=None,
        derandomize=True, report_multiple_bugs=False, print_blob=False,
    )  # fmt: skip
    @given(data=st.data(), history=st.lists(one, min_size=2, max_size=5))
    def law(data, history):
        check(data.draw, history, unseen)

    with pytest.raises(AssertionError):
        law()


def test_a_use_of_a_variable_that_is_overlooked_is_found_out():
    """Deciding that a variable was not read, where it was, breaks the law: the histories do read variables."""
    one = st.one_of(
        st.tuples(st.just("export"), st.just("V"), st.sampled_from(["1", "2"])), st.tuples(st.just("getenv"), st.just("V"))
    )

    @settings(
        max_examples=4000, deadline=None, suppress_health_check=EVERY, phases=[Phase.generate], database=None,
        derandomize=True, report_multiple_bugs=False, print_blob=False,
    )  # fmt: skip
    @given(data=st.data(), history=st.lists(st.lists(one, min_size=1, max_size=2).map(tuple), min_size=2, max_size=5))
    def law(data, history):
        check(data.draw, history, overlook=True)

    with pytest.raises(AssertionError):
        law()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=EVERY)
@given(data=st.data(), history=histories)
def test_the_dry_run_foresees_every_replay(data, history):
    """Whoever runs again in a repair was said to (or may) do so by the plan, unless an action wrote what it never wrote before."""
    world = World(BASE)
    for program in history:
        world.append(program)
    changes, new = data.draw(repairs(world))
    plan = plan_of(world, changes)
    if plan is None:
        return
    done = world.repair(changes, new)
    old = {record.id: record for record in world.records}
    later = {record.id: record for record in done.world.records}
    for name in done.ran:
        if name in old and _grew(old[name], later[name]):
            return
    foreseen = {step.action for step in plan.steps if step.kind in ("may_rerun", "must_rerun")}
    assert {name for name in done.ran if name in old} <= foreseen
    assert [step.action for step in plan.steps if step.kind == "drop"] == [n for n in old if n not in later]


def plan_of(world: World, changes: list[Change], policy: Policy = DEFAULT_POLICY) -> Plan | None:
    """The dry run; None when a patch can't be meant there."""
    try:
        return world.plan(changes, policy)
    except UsageError:
        return None


policies = st.builds(Policy, st.sampled_from([1, 2, 3, 4]), st.sampled_from(["action", "group", "session"]))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=EVERY)
@given(data=st.data(), history=histories, policy=policies)
def test_every_sound_policy_gives_what_a_rerun_gives(data, history, policy):
    """At each level from 1 on and each granularity the result is the full serial run's; only what runs again differs.

    Level 4 runs exactly the suffix from the first change on, a unit runs again whole or not at all, and what the plan
    forces does run.
    """
    world = World(BASE)
    for program in history:
        world.append(program, data.draw(st.sampled_from([(), ("group:one",), ("group:two", "other")])))
    changes, new = data.draw(repairs(world))
    plan = plan_of(world, changes, policy)
    if plan is None:
        return
    done = world.repair(changes, new, policy)
    state, said, _ = done.world.oracle()
    assert [record.outcome.stdout for record in done.world.records] == said
    assert machine.shown(done.world.state()) == machine.shown(state)
    ran = {name for name in done.ran if any(name == slot.id for slot in world.slots)}
    dropped = set(plan.of("drop"))
    assert set(plan.forced) <= ran
    if policy.level == 4 and policy.granularity == "action" and not any(isinstance(c, Patch) for c in changes):
        assert ran == {slot.id for slot in world.slots[first_change(world, changes) :]} - dropped
    units: dict[str, set[str]] = {}
    for record in world.records:
        for unit in policy.units(record.action):
            units.setdefault(unit, set()).add(record.id)
    for members in units.values():
        assert not members & (ran | dropped) or members <= ran | dropped, (members, ran)


@settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=EVERY)
@given(data=st.data(), history=histories)
def test_level_0_runs_no_more_than_what_was_named(data, history):
    """Whoever runs again at level 0 was named, or its layer could not stand; the tree is what the layers make."""
    world = World(BASE)
    for program in history:
        world.append(program)
    changes, new = data.draw(repairs(world))
    if plan_of(world, changes, Policy(0)) is None:
        return
    done = world.repair(changes, new, Policy(0))  # which compares the pass's tree with the state after each slot
    named = {str(change.id) for change in changes if not isinstance(change, Patch)}
    assert {name for name in done.ran if name[0] == "a"} - named <= {step.action for step in done.misfits}


def _grew(old: Record, new: Record) -> bool:
    """Whether a replay touched what the recorded run had not, its environment included."""
    before, after = old.layer.manifest.entries, new.layer.manifest.entries
    grown = any(_sets(entry, before.get(path)) for path, entry in after.items())
    return grown or not new.layer.manifest.removed <= old.layer.manifest.removed or not _exports(new) <= _exports(old)


def _exports(record: Record) -> set[str]:
    before, after = record.launch.env, record.handoff.env
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


def _sets(new: Entry, old: Entry | None) -> bool:
    flags = ("inherit_content", "inherit_mode", "inherit_mtime", "inherit_xattrs")
    if old is None or old.made:
        return old is None
    return new.made or any(getattr(old, flag) and not getattr(new, flag) for flag in flags)
