"""Lineage and graph: whose writing an observation saw, and how that is drawn."""

from __future__ import annotations

import json

import pytest

from mulligan.errors import NotFoundError
from mulligan.history.graph import as_json, build_graph, dot, mermaid, text
from mulligan.history.lineage import explain, reliances
from mulligan.model.layer import Entry


def edges(story):
    return [(one.writer, one.reader, str(one.key)) for one in reliances(story.records, story.bottom) if one.writer != "base"]


def test_the_last_writer_counts(story):
    """An observation belongs to the last action before it that set that key."""
    story.act({"/w/b": b"1"})
    story.act({"/w/b": b"2"})
    story.act(saw=["/w/b"])
    story.act({"/w/b": b"3"})
    assert edges(story) == [("a2", "a3", "dat:/w/b")]


def test_what_no_action_wrote_is_the_base_s(story):
    """A file of the base has no writer."""
    story.act(saw=["/w/a", "/usr/bin/cc"])
    assert [one.writer for one in reliances(story.records, story.bottom)] == ["base", "base"]


def test_an_absent_file_has_a_writer_too(story):
    """Whoever misses a file relies on who removed it, if only with its folder."""
    story.act(removes=["/w/d"])
    story.act(missed=["/w/d"])
    story.act(missed=["/w/d/x"])
    assert edges(story) == [("a1", "a2", "ent:/w/d"), ("a1", "a3", "ent:/w/d/x")]


def test_a_listing_has_every_writer_of_a_name(story):
    """Making and removing a name both show in a listing; writing to an old one does not."""
    story.act({"/w/d/y": b"1"})
    story.act(removes=["/w/d/x"])
    story.act({"/w/d/y": Entry("file", made=False)})
    story.act(listed=["/w/d"])
    assert edges(story) == [("a1", "a4", "dir:/w/d"), ("a2", "a4", "dir:/w/d")]


def test_a_mode_and_a_content_may_have_two_writers(story):
    """A chmod writes the mode only: the content is still the first one's."""
    story.act({"/w/b": b"1"})
    story.act({"/w/b": Entry("file", 0o755, made=False, inherit_content=True, inherit_mtime=True, inherit_xattrs=True)})
    story.act(saw=["/w/b"], executed=["/w/b"])
    assert edges(story) == [("a1", "a3", "dat:/w/b"), ("a2", "a3", "meta.mode:/w/b")]


def test_a_folder_on_the_way_counts_when_nothing_else_does(story):
    """Who only passed a folder relies on its maker; with a closer reliance it is not told."""
    story.act({"/w/n": Entry("dir")})
    story.act({"/w/n/x": b"1"})
    story.act(saw=["/w/n/x"])
    assert edges(story) == [("a1", "a3", "ent:/w/n"), ("a2", "a3", "dat:/w/n/x")]


def test_an_export_is_an_edge(story):
    """A variable and a working folder that were handed on are inputs of later launches."""
    story.act(env={"A": "1"}, cwd="/w/d")
    story.act()
    assert edges(story) == [("a1", "a2", "env:A"), ("a1", "a2", "env:PWD")]


def test_a_declared_output_is_an_edge(story):
    """It is marked as declared, all else as traced."""
    story.act({"/w/b": b"1"})
    story.act(declared_reads=("out:a1",), saw=["/w/b"])
    graph = build_graph(story.records, story.bottom)
    assert {data["provenance"] for *_, data in graph.edges(data=True)} == {"declared", "traced"}
    assert graph.nodes["a1"]["text"] == "do a1"


def test_why_of_an_action(story):
    """It tells on whom it relied by what, and who relied on it."""
    story.act({"/w/b": b"1"})
    story.act({"/w/c": b"1"}, saw=["/w/b", "/w/a"])
    story.act(saw=["/w/c"])
    why = explain(story.records, "a2", story.bottom)
    assert str(why).splitlines() == [
        "a2  do a2", "  relied on a1 by dat:/w/b", "  relied on the base by 1 path", "  a3 relied on it by dat:/w/c",
    ]  # fmt: skip
    assert why.data["relied_on"] == [{"key": "dat:/w/b", "provenance": "traced", "confidence": 1.0, "from": "a1"}]
    assert why.data["relied_on_by"] == [{"key": "dat:/w/c", "provenance": "traced", "confidence": 1.0, "action": "a3"}]
    json.dumps(why.data)


def test_why_of_a_path(story):
    """It tells in order who made, changed, removed it and who relied on which version."""
    story.act({"/w/b": b"1"})
    story.act(saw=["/w/b"])
    story.act(removes=["/w/b"])
    story.act(missed=["/w/b"])
    assert explain(story.records, "/w/b", story.bottom).lines == (
        "/w/b", "  a1 made it", "  a2 relied on it as of a1, dat:/w/b", "  a3 removed it",
        "  a4 found it missing as of a3, ent:/w/b",
    )  # fmt: skip
    assert "no action" in str(explain(story.records, "/w/zz", story.bottom))


def test_why_of_a_variable(story):
    """It tells who set it to what, and who was launched with whose value; PWD is the working folder."""
    story.act(env={"A": "1"}, cwd="/w/d")
    story.act()
    story.act(env={"A": "2\n"})
    assert explain(story.records, "env:A").lines == (
        "env:A", "  a1 set it to 1", "  a2 was launched with it as of a1", "  a3 was launched with it as of a1",
        r"  a3 set it to 2\n",
    )  # fmt: skip
    assert "  a1 set it to /w/d" in explain(story.records, "env:PWD").lines
    with pytest.raises(NotFoundError, match="env:B"):
        explain(story.records, "env:B")


def test_writers_are_told_in_the_order_of_history(story):
    """a10 comes after a2, in the text and in what an action relied on."""
    for n in range(1, 12):
        story.act({f"/w/{n}": b"1"})
    story.act(saw=["/w/2", "/w/10", "/w/11"])
    drawn = [line.split()[1] for line in text(build_graph(story.records, story.bottom)).splitlines()[-3:]]
    told = [line.split()[2] for line in explain(story.records, "a12", story.bottom).lines[1:]]
    assert drawn == told == ["a2", "a10", "a11"]


def test_why_of_nothing(story):
    """What is neither an action nor a path is refused."""
    story.act()
    with pytest.raises(NotFoundError, match="a9"):
        explain(story.records, "a9")


def test_the_drawings_escape_what_a_guest_named(story):
    """Neither terminal codes nor quotes of a guest's file name reach a drawing raw."""
    nasty = '/w/"]\x1b[31m\n\udcff'
    story.act({nasty: b"1"})
    story.act(saw=[nasty])
    graph = build_graph(story.records, story.bottom)
    for drawing in (text(graph), dot(graph), mermaid(graph), str(explain(story.records, nasty, story.bottom))):
        assert "\x1b" not in drawing
        assert "\udcff" not in drawing
        assert "udcff" not in drawing, "a byte that is not UTF-8 is shown as in all other views"
    assert '\\"]' in dot(graph)
    assert '"]\\' not in mermaid(graph)
    data = json.loads(json.dumps(as_json(graph)))
    assert data["edges"][0]["key_b64"]
    assert mermaid(graph).startswith("flowchart LR")


def test_the_text_names_writers_and_keys(story):
    """One paragraph per action, with at most a handful of keys per writer."""
    story.act({f"/w/{n:02}": b"1" for n in range(12)})
    story.act(saw=[f"/w/{n:02}" for n in range(12)])
    drawn = text(build_graph(story.records, story.bottom))
    assert drawn.splitlines()[:2] == ["a1  do a1", "a2  do a2"]
    assert "<- a1  dat:/w/00, dat:/w/01" in drawn
    assert drawn.endswith("(+4 more)")
