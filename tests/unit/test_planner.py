"""Planning on made-up histories: who is kept, who runs again, and the witness that is given for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mulligan.errors import NotFoundError, UsageError
from mulligan.model.change import Drop, Patch, Replace, Rerun
from mulligan.model.layer import Entry
from mulligan.model.plan import Reason

COPIED = Entry("dir", made=False, inherit_mode=True, inherit_mtime=True, inherit_xattrs=True)


def kinds(plan):
    return [step.kind for step in plan.steps]


def reason(plan, action):
    return next(step for step in plan.steps if step.action == action).because[0]


# -- the dry run


def test_without_a_change_all_is_kept(story):
    """A plan of nothing does nothing."""
    story.act({"/w/b": b"1"})
    story.act(saw=["/w/b"])
    assert kinds(story.plan()) == ["keep", "keep"]


def test_who_read_what_runs_again_may_run_again(story):
    """A replay may come out the same, so its readers only may run again; others are kept. The witness is key and writer."""
    story.act({"/w/b": b"1"})
    story.act(saw=["/w/b"])
    story.act(saw=["/w/a"])
    plan = story.plan(Replace("a1", "other"))
    assert kinds(plan) == ["must_rerun", "may_rerun", "keep"]
    assert reason(plan, "a1") == Reason("changed", note="replaced")
    assert reason(plan, "a2") == Reason("reads_rewritten", "dat:/w/b", "a1")


def test_who_read_what_is_dropped_must_run_again(story):
    """A drop is exact: the file is certainly gone. What that reader wrote may change in turn."""
    story.act({"/w/b": b"1"})
    story.act({"/w/c": b"2"}, saw=["/w/b"], missed=["/w/c"])
    story.act(saw=["/w/c"])
    plan = story.plan(Drop("a1"))
    assert kinds(plan) == ["drop", "must_rerun", "may_rerun"]
    assert reason(plan, "a2") == Reason("read_changed", "ent:/w/b", "a1")
    assert reason(plan, "a3") == Reason("reads_rewritten", "dat:/w/c", "a2")


def test_a_blind_overwrite_masks_a_drop(story):
    """Who reads what a kept action wrote over the dropped one's file is kept (row 5)."""
    story.act({"/w/a": b"bad"}, overwrote=["/w/a"])
    story.act({"/w/a": b"new"}, overwrote=["/w/a"])
    story.act(saw=["/w/a"])
    assert kinds(story.plan(Drop("a1"))) == ["drop", "keep", "keep"]


def test_a_drop_that_uncovers_an_earlier_writing_reaches_its_reader(story):
    """Below the dropped overwrite lies another value."""
    story.act({"/w/a": b"bad"})
    story.act(saw=["/w/a"])
    assert kinds(story.plan(Drop("a1"))) == ["drop", "must_rerun"]


def test_a_drop_of_an_equal_value_reaches_nobody(story):
    """Bytes are compared, and only where two layers could differ."""
    story.act({"/w/a": b"A"})
    story.act(saw=["/w/a"])
    assert kinds(story.plan(Drop("a1"))) == ["drop", "keep"]


def test_an_absent_file_that_an_action_may_bring_back(story):
    """Whoever found a file missing depends on who removed it."""
    story.act(removes=["/w/a"])
    story.act(missed=["/w/a"])
    plan = story.plan(Drop("a1"))
    assert kinds(plan) == ["drop", "must_rerun"]
    assert reason(plan, "a2") == Reason("read_changed", "ent:/w/a", "a1")


def test_a_listing_depends_on_every_name(story):
    """A new name in a listed folder is told by the folder (row 2); new content of an old name is not."""
    story.act({"/w/d/y": b"1"})
    story.act({"/w/d/x": b"2"})
    story.act(listed=["/w/d"])
    assert reason(story.plan(Drop("a1")), "a3") == Reason("read_changed", "dir:/w/d", "a1")
    assert kinds(story.plan(Drop("a2"))) == ["keep", "drop", "keep"]


def test_a_removed_folder_reaches_who_looked_below_it(story):
    """All below a folder goes with it, and every path below relies on it."""
    story.act({"/w/n": Entry("dir"), "/w/n/x": b"1"})
    story.act(missed=["/w/n/y"])
    plan = story.plan(Drop("a1"))
    assert kinds(plan) == ["drop", "must_rerun"]
    assert reason(plan, "a2").key == "ent:/w/n"


def test_a_folder_that_may_be_passed_no_longer(story):
    """For an ordinary user the owner's bits of every folder on the way are an input; for root they are not."""
    story.act({"/w/d": Entry("dir", 0, made=False, inherit_mtime=True)})
    story.act(saw=["/w/d/x"], principal="owner")
    story.act(saw=["/w/d/x"], principal="root")
    plan = story.plan(Drop("a1"))
    assert kinds(plan) == ["drop", "must_rerun", "keep"]
    assert reason(plan, "a2").key == "meta.search:/w/d"


def test_an_incomplete_action_relies_on_everything(story):
    """A hole in the trace: it runs again as soon as anything may differ, and is kept when nothing does."""
    story.act({"/w/b": b"1"})
    story.act(incomplete_because=("unknown_syscall: 999",))
    assert kinds(story.plan(Rerun("a1"))) == ["must_rerun", "may_rerun"]
    assert kinds(story.plan(Drop("a1"))) == ["drop", "must_rerun"]
    assert reason(story.plan(Drop("a1")), "a2").kind == "incomplete"
    assert kinds(story.plan()) == ["keep", "keep"]


def test_an_export_reaches_later_launches(story):
    """A dropped export is missing for all that started with it; one that runs again may change (row 20)."""
    story.act(env={"DB": "x"})
    story.act()
    assert reason(story.plan(Drop("a1")), "a2") == Reason("launch", "env:DB", "a1")
    assert kinds(story.plan(Rerun("a1"))) == ["must_rerun", "may_rerun"]


def test_a_changed_working_folder_reaches_later_launches(story):
    """So does a `cd` (row 46)."""
    story.act(cwd="/w/d")
    story.act()
    assert reason(story.plan(Drop("a1")), "a2") == Reason("launch", "env:PWD", "a1")


def test_a_variable_that_would_no_longer_be_unset(story):
    """An action that had been launched without a variable may be launched with it when the one that unset it runs again."""
    story.act(env={"DB": "x"})
    unset = story.act()
    bare = replace(unset.handoff, env={"PATH": "/bin"})
    story.records[-1] = replace(unset, handoff=bare)
    story.handoff = bare
    story.act()
    plan = story.plan(Replace("a2", "other"))
    assert reason(plan, "a3") == Reason("launch", "env:DB", "a2")
    assert kinds(story.plan(Replace("a2", "other"), reads_variable=lambda *_: False)) == ["keep", "must_rerun", "keep"]


def test_a_declared_output_is_an_input(story):
    """An action that declares `out:a1` depends on what a1 printed and how it ended (rows 21 and 22)."""
    story.act(stdout=b"1")
    story.act(declared_reads=("out:a1",))
    story.act()
    assert kinds(story.plan(Rerun("a1"))) == ["must_rerun", "may_rerun", "keep"]
    assert reason(story.plan(Drop("a1")), "a2") == Reason("declared", "out:a1", "a1")


def test_a_declared_path_is_an_input(story):
    """A declared file counts like an observed one."""
    story.act({"/w/a": b"2"})
    story.act(declared_reads=("dat:/w/a",))
    assert reason(story.plan(Drop("a1")), "a2") == Reason("declared", "dat:/w/a", "a1")


def test_a_changed_base_reaches_its_readers(story):
    """A system file that changed since is told as such."""
    story.act(saw=["/usr/bin/cc"])
    story.act(saw=["/w/a"])
    plan = story.plan(base_changed=["/usr/bin/cc"])
    assert kinds(plan) == ["must_rerun", "keep"]
    assert reason(plan, "a1") == Reason("base_changed", "dat:/usr/bin/cc", "base")


def test_a_patch_stands_after_the_last_writer(story):
    """Readers after the last writer must run again, earlier ones saw the earlier value."""
    story.act({"/w/a": b"bad"})
    story.act(saw=["/w/a"])
    story.act({"/w/a": b"worse"})
    story.act(saw=["/w/a"])
    plan = story.plan(Patch("/w/a", b"right value"))
    assert kinds(plan) == ["keep", "keep", "keep", "must_rerun"]
    assert reason(plan, "a4") == Reason("read_changed", "dat:/w/a", "patch of /w/a")


def test_a_patch_of_the_base_stands_before_all(story):
    """A file that no action wrote is patched at the start; `at` puts it elsewhere."""
    story.act(saw=["/w/a"])
    story.act(saw=["/w/a"])
    assert kinds(story.plan(Patch("dat:/w/a", b"long"))) == ["must_rerun", "must_rerun"]
    assert kinds(story.plan(Patch("/w/a", b"long", at="a1"))) == ["keep", "must_rerun"]


def test_a_patch_of_the_same_length_may_change_nothing(story):
    """Only the replay can tell whether it is the same value."""
    story.act(saw=["/w/a"])
    assert kinds(story.plan(Patch("/w/a", b"B"))) == ["may_rerun"]


def test_several_changes_in_one_plan(story):
    """Each keeps its own slot."""
    story.act({"/w/b": b"1"})
    story.act({"/w/c": b"1"})
    story.act(saw=["/w/b"])
    story.act(saw=["/w/c"])
    plan = story.plan(Drop("a1"), Rerun("a2"), session="s", head=4)
    assert kinds(plan) == ["drop", "must_rerun", "must_rerun", "may_rerun"]
    assert (plan.session, plan.head, plan.changes) == ("s", 4, (Drop("a1"), Rerun("a2")))
    assert "must_rerun read changed ent:/w/b from a1" in str(plan)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ((Drop("a9"),), NotFoundError, "no action 'a9' in this history; its actions are a1 to a2"),
        ((Patch("/w/a", b"", at="a9"),), NotFoundError, "no action 'a9'"),
        ((Drop("a1"), Rerun("a1")), UsageError, "two changes contradict each other on action a1"),
        ((Replace("a1", "x"), Replace("a1", "y")), UsageError, "contradict"),
        ((Patch("/w/a", b"1"), Patch("/w/a", b"2")), UsageError, "different values"),
        ((Replace("a1", ""),), UsageError, "by nothing"),
        ((Replace("a2", "x"),), UsageError, "a2 is a patch"),
        ((Patch("w/a", b""),), UsageError, "give an absolute path"),
        ((Patch("ent:/w/a", b""),), UsageError, "only the content"),
        ((Patch("/w/../a", b""),), UsageError, "no absolute path"),
        ((Patch("/", b""),), UsageError, "no absolute path"),
        ((Patch("/proc/x", b""),), UsageError, "view of the kernel"),
        ((Patch("/w/d", b""),), UsageError, "there is a folder"),
        ((Patch("/no/x", b""),), UsageError, "its folder does not exist"),
    ],
)
def test_a_change_that_can_not_be_meant(story, change, error, said):
    """It is refused in one sentence that names it."""
    story.act()
    story.records.append(_patch(story))
    with pytest.raises(error, match=said):
        story.plan(*change)


def test_a_change_of_an_empty_history(story):
    """Without any action the message says so."""
    with pytest.raises(NotFoundError, match="it has no action yet"):
        story.plan(Drop("a1"))


def test_the_same_change_twice_is_one(story):
    """A repeated change contradicts nothing."""
    story.act()
    assert kinds(story.plan(Drop("a1"), Drop("a1"))) == ["drop"]


def _patch(story):
    from dataclasses import replace

    record = story.record("a2", {"/w/p": b"1"})
    return replace(record, action=replace(record.action, kind="patch", shell=None, patch_path="/w/p"))


# -- the exact pass


def test_an_equal_replay_cuts_off(story):
    """A replay that comes out the same leaves nothing dirty: the rest is kept wholesale (row 4)."""
    story.act({"/w/b": b"1"})
    story.act(saw=["/w/b"])
    walk = story.walk(Rerun("a1"))
    first, second = walk
    assert walk.verdict(first).kind == "must_rerun"
    walk.ran(first, story.record("a1", {"/w/b": b"1"}, layer="again"))
    assert walk.dirty == frozenset()
    assert walk.rest_is_kept(second)
    assert walk.verdict(second).kind == "keep"


def test_a_new_path_of_a_replay_hits_an_old_probe(story):
    """What a replay writes for the first time reaches whoever had missed it (rows 1 and 3)."""
    story.act()
    story.act(missed=["/w/new"])
    walk = story.walk(Replace("a1", "x"))
    first, second = walk
    walk.ran(first, story.record("a1", {"/w/new": b"1"}, layer="again"))
    assert walk.verdict(second).because == (Reason("read_changed", "ent:/w/new", "a1"),)


def test_dirty_and_restored(story):
    """A later replay that restores the old value ends the trouble (row 34)."""
    story.act({"/w/b": b"1"})
    story.act({"/w/b": b"2"}, saw=["/w/b"])
    story.act(saw=["/w/b"])
    walk = story.walk(Rerun("a1"))
    first, second, third = walk
    walk.ran(first, story.record("a1", {"/w/b": b"9"}, layer="r1"))
    assert walk.verdict(second).kind == "must_rerun"
    walk.ran(second, story.record("a2", {"/w/b": b"2"}, layer="r2"))
    assert walk.rest_is_kept(third)


def test_another_mtime_is_seen_by_a_stat_only(story):
    """Equal content of another time: a reader is kept, a stat runs again."""
    story.act({"/w/b": b"1"})
    story.act(saw=["/w/b"])
    story.act(stats=["/w/b"])
    walk = story.walk(Rerun("a1"))
    first, second, third = walk
    layer = story.record("a1", {"/w/b": b"1"}, layer="r1")
    layer.layer.manifest.entries["/w/b"] = Entry("file", size=1, mtime_ns=5)
    walk.ran(first, layer)
    assert walk.verdict(second).kind == "keep"
    walk.keep(second)
    assert walk.verdict(third).because == (Reason("read_changed", "meta.mtime:/w/b", "a1"),)


def test_equal_providers_are_not_compared(story):
    """Layers never change: bytes are looked at only where another layer provides them."""
    story.act({"/w/b": b"1"})
    story.act({"/w/b": Entry("file", 0o600, size=1, made=False, inherit_content=True, inherit_mtime=True)})
    story.same_bytes = None
    walk = story.walk(Drop("a2"))
    walk.keep(walk.slots[0])
    walk.drop(walk.slots[1])
    assert {str(key) for key in walk.dirty} == {"meta.mode:/w/b"}


@pytest.mark.parametrize(
    ("entries", "reusable"),
    [
        ({"/w/d": COPIED, "/w/d/y": Entry("file")}, False),
        ({"/w/d": Entry("dir", opaque=True), "/w/d/y": Entry("file")}, True),
        ({"/w/y": Entry("file")}, True),
    ],
)
def test_what_may_stand_raw_on_another_state(story, entries, reusable):
    """A layer that inherited a folder's mode, which is another now, is made again from its manifest (row 9)."""
    story.act()
    story.act(entries)
    walk = story.walk(Replace("a1", "chmod"))
    first, second = walk
    walk.ran(first, story.record("a1", {"/w/d": Entry("dir", 0o700, made=False, inherit_mtime=True)}, layer="again"))
    assert walk.raw_reusable(second) is reusable


def test_a_layer_made_again_keeps_the_chain_of_providers(story):
    """The caller's new layer stands for the kept one in the corrected state."""
    story.act()
    story.act({"/w/d": COPIED, "/w/d/y": b"1"})
    walk = story.walk(Replace("a1", "chmod"))
    first, second = walk
    walk.ran(first, story.record("a1", {"/w/d": Entry("dir", 0o700, made=False, inherit_mtime=True)}, layer="again"))
    walk.keep(second, story.layer("remade", {"/w/d": COPIED, "/w/d/y": b"1"}))
    assert walk.tree.get("/w/d/y").provider == "remade"
    assert walk.tree.get("/w/d").mode == 0o700
    assert {str(key) for key in walk.dirty} == {"meta.mode:/w/d"}


def test_a_launch_is_handed_on(story):
    """The next action is launched with what the last one handed on in the corrected history."""
    story.act(env={"A": "1"})
    story.act()
    walk = story.walk(Rerun("a1"))
    first, second = walk
    walk.ran(first, story.record("a1", env={"A": "2"}, layer="again"))
    assert walk.launch.env["A"] == "2"
    assert walk.verdict(second).because == (Reason("launch", "env:A", "a1"),)


def test_an_unchanged_output_is_kept(story):
    """`out:` compares what was printed and how it ended."""
    story.act(stdout=b"1")
    story.act(declared_reads=("out:a1",))
    walk = story.walk(Rerun("a1"))
    first, second = walk
    walk.ran(first, story.record("a1", stdout=b"1", layer="again"))
    assert walk.verdict(second).kind == "keep"
    walk = story.walk(Rerun("a1"))
    first, second = walk
    walk.ran(first, story.record("a1", stdout=b"1", exit_code=3, layer="again"))
    assert walk.verdict(second).kind == "must_rerun"
