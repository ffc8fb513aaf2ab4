"""Two tracers, one truth: what the native tracer reports of a guest, the slow reference reports, too, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mulligan.model import events as ev
from mulligan.model.action import Action, LaunchContext
from mulligan.model.ids import ActionId
from mulligan.model.own import is_state
from mulligan.model.tree import Tree
from mulligan.sandbox.hostbase import build_host_base
from mulligan.sandbox.imports import import_folder
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SOURCES = Path(__file__).parents[1] / "guests"
REFERENCE = Path(__file__).with_name("reference.py")
NAMES = sorted(source.stem for source in SOURCES.glob("*.c") if '#include "guest.h"' in source.read_text(encoding="ascii"))
DEADLINE_S = 20
SKIPPED = 77
ROUNDS = int(os.environ.get("MULLIGAN_EXAMPLES", "40"))

Fact = tuple[object, ...]


@dataclass
class Worlds:
    """One state in two forms: as a stack for the sandbox, and as a folder that the reference takes as its root."""

    store: LayerStore
    sandbox: NativeSandbox
    stack: Stack
    root: Path
    env: dict[str, str]

    def native(self, argv: Sequence[str]) -> tuple[int | None, set[Fact]]:
        """The exit code, and what the native tracer reports."""
        action = Action(ActionId("a1"), argv=tuple(argv), timeout_s=DEADLINE_S)
        with self.store.begin() as opened:
            trace = self.sandbox.run(action, LaunchContext(self.env, "/workspace"), self.stack, opened)
            opened.seal(trace, self.stack)
        return trace.outcome.exit_code, {fact for event in trace.events for fact in facts_of(event)}

    def reference(self, argv: Sequence[str]) -> tuple[int | None, set[Fact]]:
        """The exit code, and what the reference reports."""
        workspace = self.root / "workspace"
        shutil.rmtree(workspace)
        workspace.mkdir(mode=0o755)
        command = [sys.executable, str(REFERENCE), str(self.root), "/workspace", str(DEADLINE_S), "--", *argv]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=2 * DEADLINE_S)
        assert "Traceback" not in done.stderr, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return done.returncode, {tuple(tuple(part) if isinstance(part, list) else part for part in line) for line in lines}


def facts_of(event: ev.Event) -> list[Fact]:
    """An event as the reference tells it; nothing for what the reference does not tell."""
    kind = "XATTR_READ" if isinstance(event, ev.XattrRead) else type(event).__name__.upper()
    match event:
        case ev.Stat(path, _):  # whether it was the caller's own folder is the native tracer's to say
            return [(kind, path)]
        case ev.Meta(path, what):
            return [(kind, path, int(what))]
        case ev.Exec():
            argv = tuple(part.decode("utf-8", "surrogateescape") for part in event.argv)
            return [(kind, event.path, argv, event.cwd, event.errno)]
        case ev.Credentials():
            return [(kind,)]
        case ev.Killed():
            return [(kind, event.name)]
        case ev.Incomplete():
            return []
        case _:
            return [(kind, *event)]


def of_state(facts: set[Fact]) -> set[Fact]:
    """Without the kernel's own views, which are no state."""
    return {fact for fact in facts if len(fact) < 2 or not str(fact[1]).startswith("/") or is_state(str(fact[1]))}


@pytest.fixture(scope="module")
def worlds(
    shared_home: Path,
    tmp_path_factory: pytest.TempPathFactory,
    guest: Callable[[str], Path],
    lacking_here: Callable[[str], None],
) -> Worlds:
    """The host's base with all guests in /guests and nothing in /workspace, twice."""
    if importlib.util.find_spec("ptrace") is None:
        lacking_here("python-ptrace is not installed")
    store = LayerStore(shared_home / "layers")
    base, skeleton = build_host_base(store, {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"})
    folder = tmp_path_factory.mktemp("programs")
    for name in (*NAMES, "anycalls", "fsops"):
        shutil.copy(guest(name), folder / name)
        (folder / name).chmod(0o755)
    tree = Tree()
    tree.apply(skeleton.manifest, skeleton.id)
    programs = import_folder(store, str(folder), "/guests", base, tree)
    root = tmp_path_factory.mktemp("reference") / "root"
    shutil.copytree(store.path(skeleton.id), root, symlinks=True)
    shutil.copytree(folder, root / "guests")
    root.with_name("root.binds").write_text(json.dumps([*base.binds, ("/proc", "/proc"), ("/dev", "/dev")]), encoding="utf-8")
    stack = Stack((skeleton.id, programs.id), base, store)
    return Worlds(store, NativeSandbox(base, store), stack, root, {**base.env, "LANG": "C.UTF-8"})


def differences(worlds: Worlds, argv: Sequence[str]) -> dict[str, list[Fact]]:
    """What one tracer reports and the other does not."""
    code, native = worlds.native(argv)
    if code == SKIPPED:
        pytest.skip("the guest needs what this host lacks")
    again, reference = worlds.reference(argv)
    assert (code, again) == (0, 0)
    native, reference = of_state(native), of_state(reference)
    assert len(native) > 2
    return {"native only": sorted(native - reference, key=str), "reference only": sorted(reference - native, key=str)}


EXCEPTIONS = {
    "clone_fs_cached": "which name is looked up in which folder depends on the threads' timing",
    "access_list": "the reference does not look at the names of attributes",
    "argument_race": "which file is opened is a matter of luck",
    "foreign_call": "refused by the sandbox's filter, which the reference lacks",
    "job_control": "how far the child comes between two signals is a matter of luck",
    "killed_anywhere": "where the processes are killed is a matter of luck",
    "link_swapped": "which way each open goes is a matter of luck",
    "lost_capability": "the reference does not know of options of a process",
    "many_threads": "which thread finds a file of another is a matter of luck",
    "not_dumpable": "the sandbox keeps it dumpable; without that, only root's tracer can read it",
    "refused_calls": "refused by the sandbox's filter, which the reference lacks",
    "unusual_sockets": "refused by the sandbox's filter, which the reference lacks",
}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in EXCEPTIONS])
def test_guest(name: str, worlds: Worlds) -> None:
    """Both tracers report the same of a guest."""
    assert differences(worlds, [f"/guests/{name}"]) == {"native only": [], "reference only": []}


COMMANDS = {
    "shell": "set -e; mkdir d; for i in a b c; do echo $i > d/$i.txt; done; cat d/*.txt > all; cd d; ln -s ../all l; cat l; test -w a.txt",
    "python3": '/usr/bin/python3 -c \'import json, subprocess; subprocess.run(["ls", "/usr/share/perl5"]); open("x", "w").write("1")\'',
    "gcc": "echo '#include <stdio.h>' > a.c; echo 'int main(void) { return puts(\"x\") < 0; }' >> a.c; gcc -O1 a.c -o a && ./a",
    "tar": "mkdir -p a/b; seq 9 > a/n; ln a/n a/b/hard; ln -s n a/l; tar cf a.tar a; rm -r a; tar xf a.tar; find a | sort; gzip a.tar",
    "perl": 'perl -MFile::Temp -e \'my $t = File::Temp->new; rename "nothing", "there"; print -s $t\'',
}


@pytest.mark.parametrize("name", COMMANDS)
def test_command(name: str, worlds: Worlds) -> None:
    """Both tracers report the same of real programs, but for names that are made at random."""
    program = "sh" if name == "shell" else name
    if shutil.which(program, path=worlds.env["PATH"]) is None:
        pytest.skip(f"there is no {program}")
    found = differences(worlds, ["/bin/sh", "-c", COMMANDS[name]])
    assert {kind: [fact for fact in facts if not random_name(fact)] for kind, facts in found.items()} == {
        "native only": [],
        "reference only": [],
    }


def random_name(fact: Fact) -> bool:
    """Whether a fact tells of a name that is another one each time."""
    return any(part.startswith("/tmp/") for part in str(fact).split("'"))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_any_calls(seed: int, worlds: Worlds) -> None:
    """Both tracers report the same of random calls on names that meet."""
    assert differences(worlds, ["/guests/anycalls", str(seed), "250"]) == {"native only": [], "reference only": []}
