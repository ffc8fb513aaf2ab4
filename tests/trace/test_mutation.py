"""The oracle by mutation: what a program did not look at may change in any way, and it does the same again."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from mulligan.model.action import Action, LaunchContext
from mulligan.model.events import Incomplete, Link, List, Missed, Probe, Read, Stat
from mulligan.model.ids import ActionId
from mulligan.model.tree import Tree
from mulligan.sandbox.hostbase import build_host_base
from mulligan.sandbox.imports import import_folder
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from mulligan.model.events import Event
    from mulligan.sandbox.tracer import Trace

COMMANDS = (
    "cat one/a; test -e two/missing || echo none; cat link/b",
    "ls one; for f in two/*; do echo $f; done; wc -c < one/c",
    "grep -l x one/a two/b three/* 2>&1",
    "find . -name b; cp one/b copied; cat copied",
    "/usr/bin/python3 -c 'import sys; sys.path.insert(0, \"lib\"); import first; print(first.value)'",
    "make -s; cat built; make",
    "sh ./script one; [ -d three ] && [ ! -x three/b ] && readlink link; cd two && cat ../one/../one/a",
    "tar cf - two | tar tf - | sort; mv one/a moved; cat moved; rm three/c; mkdir three/new; rmdir three/new",
    "echo more >> one/b; cat one/b; head -c 1 one/c; stat -c %s two/a; test -s two/b; echo $?",
)
MAKEFILE = "built: one/a two/a\n\tcat one/a two/a > built\nnever: three/a\n\tfalse\n"
SCRIPT = 'for d in "$@"; do for f in a b missing; do if test -f $d/$f; then cat $d/$f; fi; done; done\n'


def build_project(folder: Path) -> None:
    """Three folders of three files, a symlink, two Python modules, a Makefile and a script."""
    for name in ("one", "two", "three"):
        (folder / name).mkdir(parents=True)
        for file in "abc":
            (folder / name / file).write_text(f"{name} {file} x\n", encoding="ascii")
    (folder / "lib").mkdir()
    (folder / "lib" / "first.py").write_text("import second\nvalue = second.value\n", encoding="ascii")
    (folder / "lib" / "second.py").write_text("value = 7\n", encoding="ascii")
    (folder / "lib" / "third.py").write_text("value = 8\n", encoding="ascii")
    (folder / "link").symlink_to("two")
    (folder / "Makefile").write_text(MAKEFILE, encoding="ascii")
    (folder / "script").write_text(SCRIPT, encoding="ascii")


def change_unseen(folder: Path, events: Iterable[Event], chance: random.Random) -> int:
    """Change whatever the trace lets one change; gives how many changes were made."""
    seen: dict[str, set[type]] = {}
    for event in events:
        for place in (getattr(event, name, None) for name in ("path", "source", "target")):
            if isinstance(place, str):
                seen.setdefault(place, set()).add(type(event))
    count = 0
    for path in sorted(folder.rglob("*")):
        guest_path = "/workspace/" + str(path.relative_to(folder))
        kinds = seen.get(guest_path, set())
        listed = List in seen.get("/workspace/" + str(path.parent.relative_to(folder)).replace("/.", ""), set())
        if path.is_symlink():
            if not kinds and not listed:
                path.unlink()
                count += 1
        elif path.is_dir():
            for name in ("new-name", "missing"):
                if List not in kinds and Stat not in kinds and Missed not in seen.get(f"{guest_path}/{name}", set()):
                    (path / name).write_text("new\n", encoding="ascii")
                    count += 1
        elif kinds <= {Probe}:
            path.write_text("changed, and longer than before\n", encoding="ascii")
            if not kinds:
                path.chmod(chance.choice([0o500, 0o755]))
            if not kinds and not listed and chance.random() < 0.5:
                path.unlink()
            count += 1
    return count


@pytest.fixture
def run_on(shared_home: Path) -> Callable[[Path, str], Trace]:
    """Run shell text on a project folder."""
    store = LayerStore(shared_home / "layers")
    base, skeleton = build_host_base(store, {"PATH": "/usr/bin:/bin", "LANG": "C"})
    below = Tree()
    below.apply(skeleton.manifest, skeleton.id)

    def run(folder: Path, text: str) -> Trace:
        project = import_folder(store, str(folder), "/workspace", base, below)
        stack = Stack((skeleton.id, project.id), base, store)
        action = Action(ActionId("a1"), argv=("/bin/sh", "-c", text))
        with store.begin() as opened:
            trace = NativeSandbox(base, store).run(action, LaunchContext(dict(base.env), "/workspace"), stack, opened)
            opened.seal(trace, stack)
        return trace

    return run


def outcomes(
    run_on: Callable[[Path, str], Trace], folder: Path, text: str, without: type | None = None
) -> list[tuple[int | None, bytes]]:
    """What the text gives on the project, and then on changed ones, where facts of the kind `without` were not known."""
    build_project(folder / "before")
    first = run_on(folder / "before", text)
    assert Incomplete not in {type(event) for event in first.events}
    facts = [event for event in first.events if type(event) is not without]
    found = [(first.outcome.exit_code, first.outcome.stdout)]
    for seed in range(3):
        changed = folder / f"changed-{seed}"
        shutil.copytree(folder / "before", changed, symlinks=True)
        assert change_unseen(changed, facts, random.Random(seed)) > 0
        again = run_on(changed, text)
        found.append((again.outcome.exit_code, again.outcome.stdout))
    return found


@pytest.mark.parametrize("text", COMMANDS)
def test_unseen_does_not_matter(text: str, run_on: Callable[[Path, str], Trace], tmp_path: Path) -> None:
    """Changing everything that the trace does not mention changes neither the output nor the exit status."""
    first, *changed = outcomes(run_on, tmp_path, text)
    assert changed == [first] * len(changed)


@pytest.mark.parametrize(("kind", "number"), [(Read, 6), (Stat, 8), (Missed, 0), (List, 1), (Link, 0), (Probe, 6)])
def test_every_kind_of_fact_is_needed(kind: type, number: int, run_on: Callable[[Path, str], Trace], tmp_path: Path) -> None:
    """A tracer that forgot one kind of observation would be found out by the test above."""
    first, *changed = outcomes(run_on, tmp_path, COMMANDS[number], kind)
    assert changed != [first] * len(changed)
