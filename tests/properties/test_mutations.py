"""A tracer that overlooks one kind of fact is found out: with that kind dropped, repairs go wrong or the layer disagrees."""

from __future__ import annotations

import ast
import os
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
from twins import act, repaired

from mulligan import Session
from mulligan.errors import MulliganError
from mulligan.model import events as ev
from mulligan.model.fold import check_writes
from mulligan.model.footprint import OBSERVED
from mulligan.model.keys import PATH_KINDS, KeyKind
from mulligan.repair import walk
from mulligan.sandbox import tracer
from mulligan.sandbox.decode import Facts, decode_events
from mulligan.sandbox.layer import OpenLayer

BECOME = "setpriv --reuid 65534 --regid 65534 --clear-groups"

# What changes, by another first action; what the second does; what a third one says of it. Operations of fsops, or a shell text;
# some only root can try.
EXAMPLES: dict[type, tuple[str, ...]] = {
    ev.Read: ("w t/x one", "w t/x two", "R t/x", ""),
    ev.Stat: ("w t/x one", "w t/x one h t/x 600", "S t/x", ""),
    ev.Probe: ("S t", "d t/d", "g t/d", ""),
    ev.Missed: ("w t/x one", "w t/x one w t/y two", "R t/y", ""),
    ev.Link: ("s f t/l", "s d t/l", "Y t/l", ""),
    ev.List: ("S t", "w t/d/y two", "d t/d", "L t"),
    ev.XattrRead: ("X t/f one", "X t/f two", "G t/f", ""),
    ev.Create: ("w t/x one", "w t/x two", "c t/x t/y", "R t/y"),
    ev.Write: ("w t/x one", "w t/x two", "a t/x more", "R t/x"),
    ev.Mkdir: ("w t/x one", "w t/x two", "m t/n", "L t"),
    ev.Remove: ("w t/x one", "w t/x two", "u t/x", "L t"),
    ev.Rename: ("w t/x one", "w t/x two", "r t/x t/y", "R t/y"),
    ev.Hardlink: ("w t/x one", "w t/x two", "l t/x t/y", "R t/y"),
    ev.Symlink: ("w t/x one", "w t/x two", "s x t/y", "R t/y"),
    ev.Mknod: ("w t/x one", "w t/x two", "f t/y", "S t/y"),
    ev.Meta: ("w t/f one", "w t/f two", "h t/f 600", "R t/f"),
    ev.Umask: ("sh:umask 022", "sh:umask 077", "sh:umask"),
    ev.Credentials: ("sh:mkdir d; echo 1 > d/x", "sh:mkdir -m 700 d; echo 1 > d/x", f"root:{BECOME} cat d/x"),
}

# Facts that no repair of one file shows: the tests that fail without them.
ELSEWHERE: dict[type, str] = {
    ev.Exec: "properties/test_mutations.py::test_a_lost_exec_loses_what_is_handed_on",
    ev.Connect: "contract/test_probes_tracing.py::test_17_18_no_network_is_reachable_and_no_socket_of_the_host",
    ev.Killed: "contract/test_sandbox.py::test_a_background_process_is_killed_and_reported",
    ev.Incomplete: "flows/test_repair_rules.py::test_an_incomplete_action_counts_as_having_read_everything",
}

# The same for each kind of key that an observation stands for.
KEYS: dict[tuple[str, KeyKind], tuple[str, ...]] = {
    ("saw", "dat"): ("w t/x one", "w t/x two", "R t/x"),
    ("stats", "meta.mtime"): ("k t/f 1", "k t/f 2", "S t/f"),
    ("stats", "meta.mode"): ("h t/f 600", "h t/f 640", "S t/f"),
    ("stats", "meta.links"): ("S t/f", "l t/f t/g", "S t/f"),
    ("xattrs", "meta.xattr"): ("X t/f one", "X t/f two", "G t/f"),
    ("linked", "ent"): ("s f t/l", "s d t/l", "Y t/l"),
    ("missed", "ent"): ("S t", "w t/y two", "R t/y"),
    ("probed", "meta.mode"): ("h t/f 600", "h t/f 700", "sh:[ -x t/f ] && echo yes"),
    ("saw", "meta.search"): ("h t/f 644", "h t/f 600", f"root:{BECOME} ./fsops R t/f"),
}
# Dropping one of these alone hides nothing, since another fact of the same action stands for the same.
IMPLIED: dict[tuple[str, KeyKind], str] = {
    **{
        (name, "ent"): "what comes, goes or becomes of another kind differs in all of its keys"
        for name in ("saw", "stats", "probed", "listed", "xattrs", "overwrote", "executed")
    },
    ("listed", "dir"): "listings are asked of the set itself: dropping List is tried above",
    ("listed", "meta.search"): "whoever opens a folder to list it asks for its mode, too",
    ("overwrote", "meta.mode"): "who writes to a file was told that it is there, with its mode",
    ("overwrote", "meta.links"): "the overlay parts a name from the others before the first write: who writes can't see them",
    ("executed", "dat"): "a program is read, too",
    ("executed", "meta.mode"): "and whether somebody may run what was read is asked of it (meta.search)",
}


@pytest.fixture(autouse=True)
def writes_are_true(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What write facts and layers disagreed in, which fails every other test at once, and here is looked at."""
    seal, wrong = OpenLayer.seal, []

    def checked(layer: OpenLayer, run: Any, *args: Any, **kwargs: Any) -> Any:
        wrong.extend(check_writes(run.events, run.entries))
        return seal(layer, run, *args, **kwargs)

    monkeypatch.setattr(OpenLayer, "seal", checked)
    return wrong


@pytest.fixture(autouse=True)
def manifests_are_true() -> None:
    """Not asked here: a manifest that is made of facts with a hole is wrong, and that is the point."""


@pytest.fixture
def project(tmp_path: Path, fsops: Path) -> Path:
    """A folder with a file, a folder and the guest program."""
    folder = tmp_path / "project"
    (folder / "t" / "d").mkdir(parents=True)
    (folder / "t" / "f").write_text("base")
    shutil.copy2(fsops, folder / "fsops")
    return folder


def repair(home: Path, project: Path, example: tuple[str, ...]) -> None:
    """Run and repair an example; AssertionError where it is not what a full run gives."""
    if any(text.startswith("root:") for text in example) and (os.geteuid() != 0 or shutil.which("setpriv") is None):
        pytest.skip("only root can become another user inside, by setpriv")
    was, instead, *rest = (act(command(text)) for text in example)
    repaired(home, act("true"), [was, *rest], {0: instead}, project=project)


def command(text: str) -> str | list[str]:
    """What an example runs."""
    kind, colon, shell = text.partition(":")
    return shell if colon and kind in ("sh", "root") else ["/workspace/fsops", *text.split()]


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_a_kind_of_fact_that_is_dropped(
    kind: type, home: Path, project: Path, writes_are_true: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example passes as it is, and fails as soon as the tracer's facts of one kind do not come through."""

    def decode(*args: Any) -> Facts:
        facts = decode_events(*args)
        facts.events[:] = [event for event in facts.events if not isinstance(event, kind)]
        return facts

    repair(home, project, EXAMPLES[kind])
    assert not writes_are_true
    monkeypatch.setattr(tracer, "decode_events", decode)
    try:
        repair(home, project, EXAMPLES[kind])
    except (AssertionError, MulliganError):
        return
    assert writes_are_true


@pytest.mark.parametrize(("name", "kind"), KEYS, ids=str)
def test_a_kind_of_key_that_is_forgotten(
    name: str, kind: KeyKind, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example passes as it is, and fails as soon as an observation no longer stands for one kind of key."""
    repair(home, project, KEYS[name, kind])
    monkeypatch.setitem(OBSERVED, name, tuple(one for one in OBSERVED[name] if one != kind))
    with pytest.raises((AssertionError, MulliganError)):
        repair(home, project, KEYS[name, kind])


def test_a_lost_exec_loses_what_is_handed_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shell exported is known from its last exec alone: without that fact the next action lacks it."""

    def decode(*args: Any) -> Facts:
        facts = decode_events(*args)
        facts.events[:] = [event for event in facts.events if not isinstance(event, ev.Exec)]
        return facts

    with Session.create("execs", home=home) as session:
        session.run("export V=1; cd /tmp")
        assert session.run("echo $V; pwd").stdout == "1\n/tmp\n"
        monkeypatch.setattr(tracer, "decode_events", decode)
        session.run("export V=2; cd /")
        assert session.run("echo $V; pwd").stdout == "1\n/tmp\n"


@pytest.mark.parametrize("name", ["launch_differences", "_declared"])
def test_a_kind_of_input_that_is_forgotten(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an action is launched with, and what is declared for it, is found out like a path when it is no longer looked at."""
    history = {
        "launch_differences": [act("export V=1"), act("echo $V")],
        "_declared": [act("echo 1"), act("cat /proc/uptime > /dev/null; true", reads=["out:a2"])],
    }[name]
    instead = {0: act({"launch_differences": "export V=2", "_declared": "echo 2"}[name])}
    assert "a3" in repaired(home, act("true"), history, instead).ran
    if name == "_declared":
        monkeypatch.setattr(walk.Pass, name, lambda *_: [])
    else:
        monkeypatch.setattr(walk, name, lambda *_: [])
    try:
        report = repaired(home, act("true"), history, instead)
    except (AssertionError, MulliganError):
        return
    assert "a3" not in report.ran, "it was not this that made it run again"


def test_every_fact_and_every_key_is_tried() -> None:
    """Each kind of event, each kind of key and each observation is dropped by one of these tests, or it is said where."""
    assert {*EXAMPLES, *ELSEWHERE} == set(get_args(ev.Event))
    assert {*KEYS, *IMPLIED} == {(name, kind) for name, kinds in OBSERVED.items() for kind in kinds}
    assert {kind for _, kind in KEYS} == set(PATH_KINDS)
    assert not KEYS.keys() & IMPLIED.keys()
    for test in ELSEWHERE.values():
        file, _, name = test.partition("::")
        tree = ast.parse((Path(__file__).parents[1] / file).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, test
