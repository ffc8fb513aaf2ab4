"""Hints: which words of an output count as seen again in what a later action was given, and what follows from them."""

from __future__ import annotations

import pytest

from mulligan.history.graph import as_json, build_graph, dot, mermaid, text
from mulligan.history.lineage import explain
from mulligan.model.action import LaunchContext
from mulligan.model.change import Replace
from mulligan.model.policy import Policy
from mulligan.repair.hints import confidence, find_hints, words_of

HOST = "db7.prod.example"


def pairs(story, sources=None):
    return [(hint.source, hint.target, hint.token) for hint in find_hints(story.records, sources)]


def asked_and_used(story):
    """a1 puts a host name out, a2 has it in its command, a3 has nothing of it."""
    story.act(stdout=f"host={HOST}\n".encode())
    story.act(text=f"psql -h {HOST}:5432 -c x")
    story.act(text="true")


@pytest.mark.parametrize(
    "word", ["a1b2c3", HOST, "/srv/data/set-42", "userName", "550e8400-e29b-41d4-a716-446655440000", "123456"]
)
def test_words_that_are_rare_by_their_form(word):
    """Ids, host names, paths, numbers: a digit, mixed case or joints, six characters or more; marks around them are none."""
    assert word in words_of(f'say "{word}", and (={word}).')
    assert 0 < confidence(word) < 1


@pytest.mark.parametrize("word", ["a1b2c", "password", "Password", "DATABASE", "x" * 300 + "1", "....", "-------"])
def test_words_that_are_not(word):
    """Short ones, plain words of a language, and what is too long to have been typed."""
    assert word not in words_of(f"say {word} twice")


def test_confidence_rises_with_length_and_variety():
    """A uuid is surer than a number of six digits, and a number than nothing."""
    assert confidence("123456") < confidence("a1b2c3d4") < confidence("550e8400-e29b-41d4-a716-446655440000") < 1


def test_a_rare_word_of_an_output_in_a_later_command(story):
    """It hints at the one action that put it out, with part, place and confidence, also as a piece of a longer word."""
    asked_and_used(story)
    (hint,) = find_hints(story.records)
    assert (hint.source, hint.target, hint.token, hint.part, hint.place) == ("a1", "a2", HOST, "stdout", "command")
    assert str(hint.key) == "out:a1.stdout"
    assert pairs(story, {"a1"}) == pairs(story)
    assert pairs(story, {"a2"}) == []


def test_what_two_actions_put_out_hints_at_none(story):
    """Of two sources nobody can say which it was; one that only repeats what it was given is no second source."""
    story.act(stdout=b"id=abc123def\n")
    story.act(text="use abc123def", stdout=b"used abc123def\n")
    story.act(text="use abc123def again")
    assert pairs(story) == [("a1", "a2", "abc123def"), ("a1", "a3", "abc123def")]
    story.act(stdout=b"abc123def")
    story.act(text="use abc123def once more")
    assert "a5" not in [target for _, target, _ in pairs(story)]


def test_what_was_known_before_is_no_news(story):
    """A word that stood in a command, its own included, or in the environment before the output, hints at nothing."""
    story.handoff = LaunchContext({"HOME": "/home/u5er42"}, "/w")
    story.act(text="echo abc123def", stdout=b"abc123def /home/u5er42\n")
    story.act(text="use abc123def in /home/u5er42")
    assert pairs(story) == []


def test_a_declared_output_is_told_as_such(story):
    """The key of the hint names the declared output, so that it can be declared as an input."""
    story.act(stdout=b"::set-output name=db_host::db7.prod.example\n")
    story.act(text=f"psql -h {HOST}")
    assert str(find_hints(story.records)[0].key) == "out:a1.outputs.db_host"


def test_a_plan_mentions_hints_and_level_3_follows_them(story):
    """At level 1 the target is kept, and the plan says that it may hang on the source; level 3 runs it again, and says why."""
    asked_and_used(story)
    plan = story.plan(Replace("a1", "other"))
    assert [s.kind for s in plan.steps] == ["must_rerun", "keep", "keep"]
    assert [(hint.source, hint.target) for hint in plan.hints] == [("a1", "a2")]
    assert f"hint: a2 may hang on a1's output by '{HOST}' (confidence 0." in str(plan)
    plan = story.plan(Replace("a1", "other"), policy=Policy(3))
    assert [s.kind for s in plan.steps] == ["must_rerun", "must_rerun", "keep"]
    reason = plan.steps[1].because[0]
    assert (reason.kind, reason.key, reason.source) == ("hint", "out:a1.stdout", "a1")
    assert HOST in reason.note
    assert plan.hints == ()
    assert "a2" in plan.forced
    assert story.plan(Replace("a3", "other")).hints == ()


def test_hints_are_drawn_as_such(story):
    """Text, dot, Mermaid and JSON tell a hint from what is sure; `why` lists it with its word and confidence."""
    asked_and_used(story)
    hints = find_hints(story.records)
    graph = build_graph(story.records, story.bottom, hints)
    assert "    <~ a1  out:a1.stdout (db7.prod.example, 0." in text(graph)
    assert "style=dashed" in dot(graph)
    assert "a1 -.->|" in mermaid(graph)
    (edge,) = as_json(graph)["edges"]
    assert (edge["provenance"], edge["token"], edge["key"]) == ("weak", HOST, "out:a1.stdout")
    assert 0 < edge["confidence"] < 1
    why = explain(story.records, "a2", story.bottom, hints)
    assert "  may hang on a1 by out:a1.stdout ('db7.prod.example' stands in both, confidence 0." in str(why)
    assert why.data["relied_on"][0]["provenance"] == "weak"
    assert "  a2 may hang on it by out:a1.stdout" in str(explain(story.records, "a1", story.bottom, hints))
    assert "  a2 may hang on it as of a1, out:a1.stdout" in str(explain(story.records, "out:a1", story.bottom, hints))


def test_a_hint_adds_nothing_to_what_is_sure(story):
    """Where a traced or declared edge joins the two, there is no weak one."""
    story.act({"/w/b": b"1"}, stdout=f"host={HOST}\n".encode())
    story.act(text=f"psql -h {HOST}", saw=["/w/b"])
    graph = build_graph(story.records, story.bottom, find_hints(story.records))
    assert {data["provenance"] for *_, data in graph.edges(data=True)} == {"traced"}
