"""Levels and granularities on made-up histories: who runs again beyond what was seen, and why."""

from __future__ import annotations

import pytest

from mulligan.model.change import Drop, Replace
from mulligan.model.layer import Entry
from mulligan.model.policy import Policy


def kinds(plan):
    return [step.kind for step in plan.steps]


def chain(story):
    """a1 writes b, a2 makes c of it, a3 reads c, a4 reads nothing that was written."""
    story.act({"/w/b": b"1"}, missed=["/w/b"])
    story.act({"/w/c": b"2"}, saw=["/w/b"], missed=["/w/c"])
    story.act(saw=["/w/c"])
    story.act(saw=["/w/a"])


@pytest.mark.parametrize(
    ("level", "steps"),
    [
        (0, ["must_rerun", "keep", "keep", "keep"]),
        (1, ["must_rerun", "may_rerun", "may_rerun", "keep"]),
        (2, ["must_rerun", "must_rerun", "must_rerun", "keep"]),
        (3, ["must_rerun", "must_rerun", "must_rerun", "keep"]),
        (4, ["must_rerun", "must_rerun", "must_rerun", "must_rerun"]),
    ],
)
def test_what_a_level_runs_again(story, level, steps):
    """0: what was named. 1: also who may see a difference. 2: those without cut-off. 4: all from the change on."""
    chain(story)
    plan = story.plan(Replace("a1", "other"), policy=Policy(level))
    assert kinds(plan) == steps
    assert plan.policy.sound is (level > 0)
    assert ("UNSOUND" in str(plan)) is (level == 0)


def test_level_0_says_over_what_it_keeps(story):
    """The step of an action that is kept unsoundly has the reasons for which it should run again."""
    chain(story)
    exact = story.plan(Drop("a1"), policy=Policy(0)).steps
    assert [(s.kind, [r.kind for r in s.because]) for s in exact] == [
        ("drop", ["changed"]), ("keep", ["read_changed"]), ("keep", []), ("keep", []),
    ]  # fmt: skip
    told = story.plan(Replace("a1", "other"), policy=Policy(0)).steps[1]
    assert [(r.kind, r.key) for r in told.because] == [("reads_rewritten", "dat:/w/b")]


def test_level_0_runs_what_can_not_stand(story):
    """A layer whose folder has vanished would be a corrupt state: its action runs again, and the reason says so."""
    story.act({"/w/n": Entry("dir")}, missed=["/w/n"])
    story.act({"/w/n": Entry("dir", made=False, inherit_mode=True), "/w/n/x": b"1"}, missed=["/w/n/x"])
    story.act({"/w/a": Entry("file", 0o600, made=False, inherit_content=True, inherit_mtime=True)}, probed=["/w/a"])
    step = story.plan(Drop("a1"), policy=Policy(0)).steps[1]
    assert (step.kind, step.because[0].kind, step.because[0].note) == (
        "must_rerun", "misfit", "it changed a part of /w/n, which is not there",
    )  # fmt: skip


def test_what_must_run_by_the_plan_runs_from_level_2_on(story):
    """An action that surely sees a difference in the plan may see none in the replay, after another one restored it."""
    story.act({"/w/a": b"B"}, overwrote=["/w/a"])
    story.act({"/w/a": Entry("file", 0o600, made=False, inherit_content=True, inherit_mtime=True)}, probed=["/w/a"])
    story.act(saw=["/w/a"])
    assert list(story.plan(Drop("a1")).forced) == []
    plan = story.plan(Drop("a1"), policy=Policy(2))
    assert [r.kind for r in plan.steps[2].because] == ["read_changed", "level"]
    assert list(plan.forced) == ["a3"]


def test_a_forced_action_runs_whatever_it_saw(story):
    """The walk of a repair runs what the plan forced, with the plan's reason, and all of it before anything is kept whole."""
    chain(story)
    plan = story.plan(Replace("a2", "other"), policy=Policy(4))
    assert {a: r.kind for a, r in plan.forced.items()} == {"a3": "level", "a4": "level"}
    walk = story.walk(policy=plan.policy, forced=plan.forced)
    assert not walk.rest_is_kept(walk.slots[0])
    steps = []
    for slot in walk:
        steps.append(walk.verdict(slot))
        walk.keep(slot)
    assert kinds_of(steps) == ["keep", "keep", "must_rerun", "must_rerun"]
    assert steps[3].because[0].note == "level 4 runs all again from the first change on"


def kinds_of(steps):
    return [step.kind for step in steps]


def test_a_group_runs_again_whole(story):
    """Who shares a label group:NAME with an action that runs again does so, too, also if it came before; others do not."""
    story.act({"/w/b": b"1"}, labels=("group:x",))
    story.act({"/w/c": b"1"}, labels=("plain",))
    story.act(saw=["/w/b"], labels=("plain",))
    story.act(saw=["/w/c"], labels=("group:x",))
    plan = story.plan(Replace("a2", "other"), policy=Policy(granularity="action"))
    assert kinds(plan) == ["keep", "must_rerun", "keep", "may_rerun"]
    plan = story.plan(Replace("a2", "other"), policy=Policy(granularity="group"))
    assert kinds(plan) == ["may_rerun", "must_rerun", "may_rerun", "may_rerun"]
    assert plan.steps[0].because[0].kind == "group"
    plan = story.plan(Drop("a2"), policy=Policy(granularity="group"))
    assert kinds(plan) == ["must_rerun", "drop", "may_rerun", "must_rerun"]
    assert list(plan.forced) == ["a1"]


def test_groups_pull_each_other(story):
    """An earlier member that is pulled in may pull another group, and so on until nothing changes."""
    story.act({"/w/b": b"1"}, labels=("group:x",))
    story.act(saw=["/w/b"], labels=("group:y",))
    story.act({"/w/c": b"1"}, labels=("group:y", "group:x"))
    story.act(saw=["/w/a"])
    plan = story.plan(Drop("a3"), policy=Policy(granularity="group"))
    assert kinds(plan) == ["must_rerun", "must_rerun", "drop", "keep"]


def test_a_session_is_one_unit(story):
    """With granularity session everything runs again as soon as one action does, and nothing when none does."""
    chain(story)
    assert set(kinds(story.plan(policy=Policy(granularity="session")))) == {"keep"}
    assert set(kinds(story.plan(Replace("a4", "other"), policy=Policy(granularity="session")))) == {"must_rerun"}


def test_a_pass_that_finds_a_group_late_is_torn(story):
    """What only a replay finds out: an earlier member was kept. The pass then is to begin anew with the unit known."""
    story.act({"/w/c": b"1"}, labels=("group:x",))
    story.act({"/w/b": b"1"})
    story.act(saw=["/w/b"], labels=("group:x",))
    policy = Policy(granularity="group")
    walk = story.walk(Drop("a2"), policy=policy)
    for slot in walk.slots[:2]:
        walk.verdict(slot)
        walk.drop(slot) if slot.name == "a2" else walk.keep(slot)
    assert not walk.torn
    walk.verdict(walk.slots[2])
    assert walk.torn
    again = story.walk(Drop("a2"), policy=policy, units=walk.units)
    assert again.verdict(again.slots[0]).kind == "must_rerun"
