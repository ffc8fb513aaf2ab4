"""Equivalences and volatile results: what counts as equal, what only looks like a cause, and what is told of it."""

from __future__ import annotations

import pytest

from mulligan.errors import UsageError
from mulligan.model.change import Replace, Rerun
from mulligan.model.equivalence import PATTERNS, Equality, looks_like, parse_equivalence
from mulligan.model.layer import Entry
from mulligan.model.plan import Reason, Step, Volatile
from mulligan.model.policy import Equivalence, Policy
from mulligan.repair.volatile import Files, find_volatile

UUIDS = (b"550e8400-e29b-41d4-a716-446655440000", b"6ba7b810-9dad-11d1-80b4-00c04fd430c8")
STAMP = (Equivalence("/w/*.txt", rb"t=\d+"),)


def test_equal_but_for_what_the_pattern_matches():
    """The text around the matches must be the same, and as many of them; another path is not spoken of."""
    equality = Equality(STAMP)
    assert equality.equal("/w/a.txt", b"x t=1 y", b"x t=222 y")
    assert equality.equal("/w/d/a.txt", b"t=1", b"t=2")
    assert not equality.equal("/w/a.txt", b"x t=1 y", b"x t=1 z")
    assert not equality.equal("/w/a.txt", b"x t=1 t=1", b"x t=1 ")
    assert not equality.equal("/w/a", b"t=1", b"t=2")
    both = Equality((*STAMP, Equivalence("*", b"id:[a-f]+")))
    assert both.equal("/w/a.txt", b"t=1 id:ab", b"t=2 id:cd")
    assert not Equality(())


@pytest.mark.parametrize(
    "text",
    ["", "x", "=x", "x=", "*=[", "*=(", r"*=\d*", "*=@nothing", "*=a)|(b", "*=a{99999999999999999999}", "*=[[:digit:]]"],
)
def test_equivalences_that_make_no_sense(text):
    """One sentence each: no form, no regular expression, a pattern of nothing, a built-in name that is none."""
    with pytest.raises(UsageError, match="equivalence"):
        parse_equivalence(text)


@pytest.mark.parametrize("one", [Equivalence("*", "a"), Equivalence(b"*", b"a")])  # type: ignore[arg-type]
def test_a_pattern_is_bytes_and_a_glob_is_text(one):
    """What Python's callers mix up is a sentence, too."""
    with pytest.raises(UsageError, match="pattern is bytes"):
        Equality([one])


def test_several_patterns_of_one_file_keep_their_own_groups():
    """Groups, names of groups and flags are those of each pattern alone; where two match, the earlier match counts."""
    equality = Equality([Equivalence("*", rb"(?P<x>\d)(?P=x)"), Equivalence("*", rb"(?i)(?P<x>k)\1")])
    assert equality.equal("/f", b"a11b kK c", b"a22b Kk c")
    assert not equality.equal("/f", b"a11b", b"a12b")
    assert not equality.equal("/f", b"kk", b"kj")
    overlapping = Equality([Equivalence("*", b"bc"), Equivalence("*", b"ab|x")])
    assert overlapping.equal("/f", b"abc", b"xc")
    assert not overlapping.equal("/f", b"abc", b"abbc")
    assert Equality([Equivalence("*", rb"\b")]).equal("/f", b"a b", b"a b")


def test_equivalences_as_a_person_writes_them():
    """GLOB=REGEX, of which the regular expression may hold more equals signs, or the name of a built-in pattern."""
    assert parse_equivalence(r"/w/*=t=\d+") == Equivalence("/w/*", rb"t=\d+")
    assert parse_equivalence("*=@uuid") == Equivalence("*", PATTERNS["uuid"])
    assert parse_equivalence(r"*=\@x") == Equivalence("*", rb"\@x")


@pytest.mark.parametrize(
    ("a", "b", "looks"),
    [
        (b"id " + UUIDS[0], b"id " + UUIDS[1], ("uuid",)),
        (b"at 2026-11-30T10:48:39.123Z", b"at 2026-12-01T00:00:00Z", ("time",)),
        (b"Mon Nov 30 10:48:39 UTC 2026", b"Tue Dec  1 01:02:03 UTC 2026", ("time",)),
        (b"Mon, 30 Nov 2026 10:48:39 +0000", b"Tue, 01 Dec 2026 10:48:39 +0100", ("time",)),
        (b"now=1764499999", b"now=1764500000.25", ("time",)),
        (b"took 10:48:39", b"took 9:00:00", ("time",)),
        (b"at 0x7ffe10 in deadbeef12", b"at 0x7ffe2000 in 1234567890abcdef", ("hex",)),
        (b"pid 123 of 4", b"pid 45 of 4", ("number",)),
        (b"pid 123 at 10:00:00", b"pid 45 at 11:00:00", ("time", "number")),
        (b"pid 123 of a", b"pid 123 of b", ()),
        (b"1 2", b"1", ()),
        (b"\x001", b"\x002", ()),
    ],
)
def test_what_a_difference_looks_like(a, b, looks):
    """Times, uuids, hexadecimal ids and numbers, when there is no other difference, and in texts alone."""
    assert looks_like(a, b) == looks


def write(story, name, value, **facts):
    """An action that makes /w/n.txt of this content."""
    return story.record(name, {"/w/n.txt": value}, layer=f"{name}-{value}", missed=["/w/n.txt"], **facts)


def walk_to_reader(story, value, policy):
    """a1 made /w/n.txt with another value and size on replay; gives the walk before its reader a2."""
    story.records.append(write(story, "a1", b"x t=1"))
    story.act(saw=["/w/n.txt"], stats=["/w/n.txt"])
    walk = story.walk(Rerun("a1"), policy=policy)
    walk.verdict(walk.slots[0])
    walk.ran(walk.slots[0], write(story, "a1", value))
    return walk


@pytest.mark.parametrize(("value", "kind"), [(b"x t=22", "keep"), (b"y t=22", "must_rerun")])
def test_an_equal_content_is_cut_off(story, value, kind):
    """Who read, or looked at size and time of, a file that only differs in what does not matter is kept."""
    walk = walk_to_reader(story, value, Policy(equivalences=STAMP))
    assert walk.verdict(walk.slots[1]).kind == kind


def test_without_an_equivalence_it_is_another_content(story):
    """Bytes are bytes."""
    walk = walk_to_reader(story, b"x t=22", Policy())
    assert walk.verdict(walk.slots[1]).kind == "must_rerun"


def test_a_layer_that_carries_the_other_bytes_is_made_again(story):
    """Equal for its readers, but not on disk: whoever only changed the mode has the old bytes by copy-up."""
    story.records.append(write(story, "a1", b"x t=1"))
    inherited = Entry("file", 0o600, made=False, inherit_content=True, inherit_mtime=True, inherit_xattrs=True)
    story.act({"/w/n.txt": inherited}, probed=["/w/n.txt"])
    walk = story.walk(Rerun("a1"), policy=Policy(equivalences=STAMP))
    walk.verdict(walk.slots[0])
    walk.ran(walk.slots[0], write(story, "a1", b"x t=22"))
    assert walk.clean
    assert not walk.rest_is_kept(walk.slots[1])
    assert walk.verdict(walk.slots[1]).kind == "keep"
    assert not walk.raw_reusable(walk.slots[1])


def volatile(story, old, new, change, *because, equivalences=()):
    """What is told of a replay that ran for these reasons."""
    step = Step("a1", "must_rerun", because)
    files = Files(story.same_bytes, story.bytes_of, Equality(equivalences))
    return find_volatile(old, new, step, change, files=files)


ASKED = Reason("changed", note="asked to run again")


def test_another_result_of_the_same_input_is_volatile(story):
    """Named are the paths, and what the difference looks like; what counts as equal is left out."""
    old, new = write(story, "a1", b"id " + UUIDS[0], stdout=b"a"), write(story, "a1", b"id " + UUIDS[1], stdout=b"b")
    told = [Volatile("a1", "dat:/w/n.txt", ("uuid",)), Volatile("a1", "out:a1.stdout")]
    assert volatile(story, old, new, Rerun("a1"), ASKED) == told
    assert volatile(story, old, new, None, Reason("level", note="level 4")) == told
    assert volatile(story, old, old, Rerun("a1"), ASKED) == []
    assert volatile(story, old, new, Rerun("a1"), ASKED, equivalences=(Equivalence("*", PATTERNS["uuid"]),)) == told[1:]


def test_another_input_may_look_volatile_at_most(story):
    """With another command or another input nothing is certain; a difference that only looks like an id is told as such."""
    old, new = write(story, "a1", b"id " + UUIDS[0], stdout=b"a"), write(story, "a1", b"id " + UUIDS[1], stdout=b"b")
    looks = [Volatile("a1", "dat:/w/n.txt", ("uuid",), same_input=False)]
    assert volatile(story, old, new, Replace("a1", "x"), Reason("changed", note="replaced")) == looks
    assert volatile(story, old, new, None, Reason("read_changed", "dat:/w/a", "a0")) == looks
    assert volatile(story, old, new, Rerun("a1"), ASKED, Reason("read_changed", "dat:/w/a", "a0")) == looks
    one, two = write(story, "a1", b"sum 12345678abcdef of 3"), write(story, "a1", b"sum fedcba87654321 of 4")
    assert volatile(story, one, two, Replace("a1", "x"), Reason("changed", note="replaced")) == []  # digests must differ
    other = write(story, "a1", b"name b")
    assert volatile(story, write(story, "a1", b"name a"), other, None, Reason("read_changed", "dat:/w/a", "a0")) == []


def test_what_is_looked_into_is_bounded(story, monkeypatch):
    """A large content is told as differing, without a look at it; nobody waits for patterns in a thousand files."""
    monkeypatch.setattr("mulligan.repair.volatile.READ_AT_MOST", 100)
    names = [f"/w/{n}" for n in range(9)]
    old = story.record("a1", dict.fromkeys(names, b"id " + UUIDS[0]), layer="old")
    new = story.record("a1", dict.fromkeys(names, b"id " + UUIDS[1]), layer="new")
    assert [one.looks for one in volatile(story, old, new, Rerun("a1"), ASKED)] == [("uuid",), *[()] * 8]
    assert len(volatile(story, old, new, None, Reason("read_changed", "dat:/w/a", "a0"))) == 1
    assert looks_like(b"1" * 1024 * 1024, b"2" + b"1" * 1024 * 1024) == ()


def test_a_rerun_says_whether_it_stands_on_what_it_saw(story):
    """The reasons of an action that was asked to run again name what it sees differently, if anything."""
    story.act({"/w/a": b"B"}, overwrote=["/w/a"])
    story.act(saw=["/w/a"])
    assert [r.kind for r in story.plan(Rerun("a2")).steps[1].because] == ["changed"]
    assert [r.kind for r in _both(story)] == ["changed", "read_changed"]


def _both(story):
    walk = story.walk(Rerun("a2"), Rerun("a1"))
    walk.verdict(walk.slots[0])
    walk.ran(walk.slots[0], story.record("a1", {"/w/a": b"C"}, layer="other", overwrote=["/w/a"]))
    return walk.verdict(walk.slots[1]).because
