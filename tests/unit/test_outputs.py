"""Outputs of actions: the lines that declare them, their keys, and who runs again when a part differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mulligan.history.lineage import explain, reliances
from mulligan.model.change import Drop, Replace
from mulligan.model.equivalence import Equality
from mulligan.model.outputs import check_out, differing_parts, parse_outputs
from mulligan.model.policy import Equivalence


def test_lines_that_declare_an_output():
    """`::set-output name=NAME::VALUE` on a line of its own; the last one of a name counts; other lines are plain output."""
    said = b"noise\n::set-output name=db_host::db7:5432::x\r\n::set-output name=e::\n ::set-output name=f::1\n::set-output name=::2\n"
    assert parse_outputs(said) == {"db_host": "db7:5432::x", "e": ""}
    assert parse_outputs(b"::set-output name=a::1\n::set-output name=a::2") == {"a": "2"}
    assert parse_outputs(b"::set-output name=a::\xff") == {"a": "\udcff"}


@pytest.mark.parametrize("name", ["a1", "a12.stdout", "a1.stderr", "a1.status", "a1.outputs.db_host", "a1.outputs.x.y"])
def test_keys_of_outputs(name):
    """All of an action's output, or one part of it."""
    assert check_out(name) == name.partition(".")[0]


@pytest.mark.parametrize("name", ["", "b1", "a", "a1.", "a1.exit", "a1.outputs", "a1.outputs.", "a1.stdout.x", "a1 "])
def test_malformed_keys_of_outputs(name):
    """They are refused with the grammar."""
    with pytest.raises(ValueError, match=r"out:ACTION.stdout, .stderr, .status or .outputs.NAME"):
        check_out(name)


def test_what_differs_between_two_outputs(story):
    """Parts are compared exactly; a stream that was cut may differ behind the cut; a dropped action has none at all."""
    old = story.record("a1", stdout=b"::set-output name=k::1\n::set-output name=l::1\nx")
    assert differing_parts(old, old) == []
    new = story.record("a1", stdout=b"::set-output name=k::2\n::set-output name=l::1\nx")
    assert differing_parts(old, new) == ["", ".stdout", ".outputs.k"]
    assert differing_parts(old, story.record("a1", stdout=old.outcome.stdout, exit_code=3)) == ["", ".status"]
    assert differing_parts(old, story.record("a1", stdout=old.outcome.stdout, stderr=b"!")) == ["", ".stderr"]
    assert differing_parts(old, None) == ["", ".stdout", ".stderr", ".status", ".outputs.k", ".outputs.l"]
    equality = Equality((Equivalence("out:*.stdout", rb"\d+"),))
    assert differing_parts(old, new, equality) == []
    assert differing_parts(old, story.record("a1", stdout=b"other"), equality) == ["", ".stdout", ".outputs.k", ".outputs.l"]
    cut = replace(old, outcome=replace(old.outcome, stdout_truncated=True))
    assert ".stdout" in differing_parts(cut, cut)


@pytest.mark.parametrize(
    ("part", "runs"),
    [("", True), (".stdout", True), (".outputs.k", True), (".outputs.l", False), (".status", False), (".stderr", False)],
)
def test_who_declared_a_part_runs_again_when_that_differs(story, part, runs):
    """The dry run fears for all readers of an output; the walk knows which part differs."""
    story.act(stdout=b"::set-output name=k::1\n")
    story.act(declared_reads=(f"out:a1{part}",))
    assert [s.kind for s in story.plan(Replace("a1", "x")).steps] == ["must_rerun", "may_rerun"]
    walk = story.walk(Replace("a1", "x"))
    walk.verdict(walk.slots[0])
    walk.ran(walk.slots[0], story.record("a1", layer="new", stdout=b"::set-output name=k::2\n"))
    step = walk.verdict(walk.slots[1])
    assert (step.kind == "must_rerun") is runs
    if runs:
        assert (step.because[0].kind, step.because[0].key, step.because[0].source) == ("declared", f"out:a1{part}", "a1")


def test_declared_writes_are_facts(story):
    """Who declared to read what a rerun action declared to write runs again; the edges say that they were declared."""
    story.act(declared_writes=("mem:goal",))
    story.act(declared_writes=("mem:goal", "net:db"))
    story.act(declared_reads=("mem:goal",))
    story.act(declared_reads=("net:db", "net:other"))
    assert [s.kind for s in story.plan(Drop("a1")).steps] == ["drop", "keep", "must_rerun", "keep"]
    declared = [(o.writer, o.reader, str(o.key)) for o in reliances(story.records, story.bottom) if o.provenance == "declared"]
    assert declared == [
        ("a1", "a3", "mem:goal"), ("a2", "a3", "mem:goal"), ("a2", "a4", "net:db"), ("base", "a4", "net:other"),
    ]  # fmt: skip
    assert explain(story.records, "mem:goal").lines == (
        "mem:goal", "  a1 declared to write it", "  a2 declared to write it", "  a3 relied on it as of a1, mem:goal (declared)",
        "  a3 relied on it as of a2, mem:goal (declared)",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "key", "provenance"),
    [
        ({"saw": ["/w/b"]}, "dat:/w/b", "traced"),
        ({"stats": ["/w/b"]}, "ent:/w/b", "traced"),
        ({"listed": ["/w"]}, "dir:/w", "traced"),
        ({"xattrs": ["/w/b"]}, "ent:/w/b", "traced"),
        ({}, "env:A", "traced"),
        ({"declared_reads": ("out:a1.status",)}, "out:a1.status", "declared"),
        ({"declared_reads": ("env:A",)}, "env:A", "declared"),
        ({"declared_reads": ("mem:m",)}, "mem:m", "declared"),
        ({"declared_reads": ("dat:/w/b",)}, "dat:/w/b", "declared"),
    ],
)
def test_why_has_a_witness_of_every_kind(story, facts, key, provenance):
    """Each kind of reliance is told with its key, how it is known, and by whom."""
    story.act({"/w/b": b"1"}, env={"A": "1"}, declared_writes=("mem:m",))
    story.act(**facts)
    told = explain(story.records, "a2", story.bottom).data["relied_on"]
    assert {"key": key, "provenance": provenance, "confidence": 1.0, "from": "a1"} in told
