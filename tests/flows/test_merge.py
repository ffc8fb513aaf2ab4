"""Merging branches on the real overlay: what goes together becomes one history, what does not is shown and changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from twins import said, tree_of

from mulligan import MergeConflictError, RepairFailedError, Replace, Session, UsageError
from mulligan.cli.main import main
from mulligan.upkeep import gc, remove

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Sides:
    """A session with a branch, and twins on which the same is run one after the other."""

    def __init__(self, home: Path, start: str) -> None:
        self.ours = Session.create("ours", home=home)
        self.ours.run(start, check=True)
        self.theirs, self.twin, self.other = (self.ours.branch(name) for name in ("theirs", "twin", "other"))

    def run(self, ours: Sequence[str], theirs: Sequence[str]) -> None:
        """What each side does since they parted."""
        for side, commands in ((self.ours, ours), (self.theirs, theirs)):
            for command in commands:
                side.run(command)
        for side, commands in ((self.twin, (*ours, *theirs)), (self.other, (*theirs, *ours))):
            for command in commands:
                side.run(command)

    def same_as_serial(self, *, commutes: bool) -> None:
        """The merged history says and holds what ours and then theirs give (and when they commute, theirs and then ours)."""
        assert [said(r) for r in self.ours.log()] == [said(r) for r in self.twin.log()]
        assert tree_of(self.ours) == tree_of(self.twin)
        if commutes:
            assert tree_of(self.ours) == tree_of(self.other)

    def close(self) -> None:
        """Close all four."""
        for side in (self.ours, self.theirs, self.twin, self.other):
            side.close()


@pytest.fixture
def sides(home: Path) -> Iterator[Sides]:
    """Two branches of a session with a few files."""
    made = Sides(home, "mkdir d e n; echo 1 > a; echo 2 > b; echo 3 > d/x; ln a hard; chmod 700 e; mkdir gone; echo g > gone/g")
    yield made
    made.close()


def test_what_goes_together_is_merged(sides: Sides, home: Path) -> None:
    """Two sides that rely on nothing of each other become one history without a run, be it in the same folders."""
    sides.run(
        ["echo 5 > n/ours", "chmod 750 d; rm b; echo same > both", "cat n/ours"],
        [
            "echo 6 > n/theirs",
            "cat n/theirs d/x > e/copy; rm -r gone",
            "chmod 600 a; setfattr -n user.k -v v d/x 2>/dev/null; true",
        ],
    )
    before = sides.ours.head
    report = sides.ours.merge("theirs", dry_run=True)
    assert (report.applied, report.conflicts, report.common, sides.ours.head) == (False, (), "a1", before)
    report = sides.ours.merge("theirs")
    assert report.applied
    assert report.theirs == (("a2", "a5"), ("a3", "a6"), ("a4", "a7"))
    assert not report.ran
    sides.same_as_serial(commutes=True)
    remove("theirs", home)
    gc(home)
    assert sides.ours.repair(Replace("a5", "echo 66 > n/theirs")).ran == ("a5", "a6")
    assert sides.ours.files.read("e/copy") == "66\n3\n"
    assert sides.ours.run("echo on").id == "a8"


CONFLICTS = {
    "they read what we wrote": (["echo new > a"], ["cat a > c"], {("they_read", "dat:/workspace/a")}),
    "we read what they wrote": (["cat a > c"], ["echo new > a"], {("we_read", "dat:/workspace/a")}),
    "both wrote": (["echo one > b"], ["echo two > b"], {("both_wrote", "dat:/workspace/b")}),
    "a listing": (["ls n"], ["echo 6 > n/theirs"], {("we_read", "dir:/workspace/n")}),
    "a name looked for": (["echo 5 > n/new"], ["test -e n/new || echo none"], {("they_read", "ent:/workspace/n/new")}),
    "both made": (
        ["echo 5 > n/new"],
        ["echo 5 > n/new"],
        {("they_read", "ent:/workspace/n/new"), ("we_read", "ent:/workspace/n/new")},
    ),
    "a folder gone": (["rm -rf gone"], ["echo h > gone/h"], {("they_read", "ent:/workspace/gone")}),
    "exports": (["export V=1"], ["export V=2"], {("both_wrote", "env:V")}),
    "working folders": (["cd d"], ["cd e"], {("both_wrote", "env:PWD")}),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_what_does_not_go_together_is_shown_and_replayed(sides: Sides, name: str) -> None:
    """A conflict names its key, both actions and its kind, and changes nothing; with replay the result is ours and then theirs."""
    ours, theirs, expected = CONFLICTS[name]
    sides.run(ours, theirs)
    before = sides.ours.head
    with pytest.raises(MergeConflictError) as refused:
        sides.ours.merge("theirs")
    assert sides.ours.head == before
    found = {(one.kind, one.key) for one in refused.value.report.conflicts}
    assert expected <= found
    assert {(one.ours, one.theirs) for one in refused.value.report.conflicts} == {("a2", "a2")}
    report = sides.ours.merge("theirs", replay=True, keep_going=True)
    assert report.applied
    assert set(report.ran) <= {"a3"}
    sides.same_as_serial(commutes=False)


def test_exports_and_folders_pass_on(sides: Sides) -> None:
    """What one side exported, or the folder it went to, holds after the merge when the other side did not depend on it."""
    for side in (sides.ours, sides.twin):
        side.run(["touch", "n/ours"], cwd="/workspace")
    for side in (sides.theirs, sides.twin):
        side.run("export THEIR_NAME=theirs; cd d")
        side.run("echo $THEIR_NAME > ../e/v; pwd")
    assert sides.ours.merge("theirs").applied
    for side in (sides.ours, sides.twin):
        assert side.run("echo $THEIR_NAME; pwd").stdout == "theirs\n/workspace/d\n"
    sides.same_as_serial(commutes=False)


def test_a_replay_that_fails_changes_nothing(sides: Sides) -> None:
    """When an action of theirs fails on top of ours, nothing is merged, unless that is wanted."""
    sides.run(["rm a"], ["cat a > c", "echo 6 > n/theirs"])
    before = sides.ours.head
    with pytest.raises(RepairFailedError, match=r"a3 failed on top of ours with exit code 1 \(cat: a: No such file"):
        sides.ours.merge("theirs", replay=True)
    assert sides.ours.head == before
    report = sides.ours.merge("theirs", replay=True, keep_going=True)
    assert (report.ran, report.failed) == (("a3",), ("a3",))
    sides.same_as_serial(commutes=False)


def test_one_side_alone(sides: Sides, home: Path) -> None:
    """A branch that is only ahead is taken over as it is, one that is only behind adds nothing, a stranger is refused."""
    sides.theirs.run("echo 6 > n/theirs")
    report = sides.ours.merge("theirs")
    assert report.theirs == (("a2", "a2"),)
    assert sides.ours.log() == sides.theirs.log()
    assert sides.ours.merge("theirs").theirs == ()
    assert sides.theirs.merge("other").theirs == ()
    with Session.create("stranger", home=home, imports={}) as stranger:
        stranger.run("true")
        tree = home.parent / "imported"
        tree.mkdir()
        with (
            Session.create("imported", home=home, imports={str(tree): "/workspace/i"}),
            pytest.raises(UsageError, match="no branches"),
        ):
            stranger.merge("imported")


def test_declared_outputs_follow_their_actions(sides: Sides) -> None:
    """An action that declared the output of another one of its branch relies on it still, under the id that it has now."""
    sides.ours.run("echo 5 > n/ours")
    sides.theirs.run("echo said")
    sides.theirs.run("echo relied > e/r", reads=["out:a2"])
    sides.ours.merge("theirs")
    assert sides.ours.record("a4").action.reads == ("out:a3",)
    assert sides.ours.repair(Replace("a3", "echo otherwise")).ran == ("a3", "a4")


def test_the_command(sides: Sides, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`mulligan merge` prints the table of conflicts and ends with 103, or what was merged with 0; --json says all of it."""
    sides.run(["echo new > a"], ["cat a > c"])

    def run(*words: str) -> tuple[int, str]:
        code = main(["merge", "-s", "ours", *words], {"MULLIGAN_HOME": str(home)})
        return code, capsys.readouterr().out

    code, text = run("theirs")
    assert code == 103
    assert "dat:/workspace/a  a2    a2      they read what we wrote" in text
    code, text = run("theirs", "--dry-run", "--json")
    told = json.loads(text)
    assert code == 0
    assert told["conflicts"][0] == {"kind": "they_read", "ours": "a2", "theirs": "a2", "note": "", "key": "dat:/workspace/a"}
    assert run("theirs", "--replay") == (0, "merged theirs since a1: a2 as a3; run again: a3\n")


@pytest.mark.parametrize("folded", [False, True])
def test_a_branch_is_merged_in_again(sides: Sides, monkeypatch: pytest.MonkeyPatch, *, folded: bool) -> None:
    """What was kept from the branch the first time stands in the history twice, with one layer, and the state still mounts."""
    if folded:
        monkeypatch.setattr("mulligan.sandbox.composite.EASY", 2)
        monkeypatch.setattr("mulligan.sandbox.composite.COMFORT", 2)
    theirs = ("echo 1 > one; rm -f b", "mkdir -p d/sub; echo 2 > d/sub/two", "echo 3 > three", "rm -rf gone")
    for command in theirs:
        sides.theirs.run(command)
    sides.ours.run("echo y > y")
    again = ("rm -rf one d/sub three; mkdir gone; echo 4 > b", "echo z > d/z")
    sides.ours.merge("theirs")
    for command in again:
        sides.ours.run(command)
    sides.ours.merge("theirs", replay=True)
    layers = [record.layer_id for record in sides.ours.log()]
    assert len(set(layers)) < len(layers), "a layer stands in the history twice"
    for command in ("echo y > y", *theirs, *again, *theirs, "ls -R"):
        sides.twin.run(command)
    sides.ours.run("ls -R", check=True)
    sides.same_as_serial(commutes=False)
    sides.ours.repair(Replace("a1", "mkdir d e n; echo 9 > a; echo 2 > b"))
    assert sides.ours.run("cat a d/sub/two", check=True).stdout == "9\n2\n"
