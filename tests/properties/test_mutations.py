"""A tracer that overlooks one kind of fact is found out: with that kind dropped, repairs go wrong or the layer disagrees."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from twins import act, repaired

from mulligan.errors import MulliganError
from mulligan.model import events as ev
from mulligan.model.fold import check_writes
from mulligan.model.footprint import OBSERVED
from mulligan.model.keys import KeyKind
from mulligan.sandbox import tracer
from mulligan.sandbox.decode import Facts, decode_events
from mulligan.sandbox.layer import OpenLayer

# What changes, by another first action; what the second does; what a third one says of it.
EXAMPLES: dict[type, tuple[str, str, str, str]] = {
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
    was, instead, *rest = (act(["/workspace/fsops", *text.split()]) for text in example)
    repaired(home, act("true"), [was, *rest], {0: instead}, project=project)


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
