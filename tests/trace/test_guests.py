"""Every program of tests/guests, run in a sandbox: the facts that it prints are reported, and those it denies are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mulligan.model.action import Action, LaunchContext
from mulligan.model.events import Exec, Hardlink, Incomplete, Killed, Meta, MetaWhat, Rename, Stat
from mulligan.model.ids import ActionId
from mulligan.model.tree import Tree
from mulligan.sandbox.hostbase import build_host_base
from mulligan.sandbox.imports import import_folder
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from mulligan.model.events import Event
    from mulligan.sandbox.tracer import Trace

SOURCES = Path(__file__).parents[1] / "guests"
NAMES = sorted(source.stem for source in SOURCES.glob("*.c") if '#include "guest.h"' in source.read_text(encoding="ascii"))
SKIPPED = 77
# Where it matters whether a call is told by a notification or by a stop: signals, threads, races, ends, what may block.
BOTH_WAYS = (
    "fifo", "job_control", "killed_anywhere", "lookups_and_signals", "many_signals", "open_read", "shared_path_race", "sixth_argument",
    "stat_family", "thread_exec", "unreadable_arguments", "vfork_exec",
)  # fmt: skip


@pytest.fixture(scope="module")
def run_guest(
    shared_home: Path, tmp_path_factory: pytest.TempPathFactory, guest: Callable[[str], Path]
) -> Callable[[str], Trace]:
    """Run a guest by its name, each on the same state, in an empty /workspace."""
    store = LayerStore(shared_home / "layers")
    base, skeleton = build_host_base(store, {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"})
    sandbox = NativeSandbox(base, store)
    tree = Tree()
    tree.apply(skeleton.manifest, skeleton.id)

    def run(name: str) -> Trace:
        folder = tmp_path_factory.mktemp(name)
        (folder / name).write_bytes(guest(name).read_bytes())
        (folder / name).chmod(0o755)
        programs = import_folder(store, str(folder), "/guests", base, tree)
        stack = Stack((skeleton.id, programs.id), base, store)
        action = Action(ActionId("a1"), argv=(f"/guests/{name}",))
        with store.begin() as opened:
            trace = sandbox.run(action, LaunchContext(dict(base.env), "/workspace"), stack, opened)
            opened.seal(trace, stack)
        return trace

    return run


def fact(event: Event) -> str:
    """An event as a guest prints it."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).upper()
    if isinstance(event, Rename | Hardlink):
        return f"{kind} {event.source} {event.target}"
    if isinstance(event, Incomplete):
        return f"{kind} {event.reason}"
    if isinstance(event, Killed):
        return f"{kind} {event.name}"
    if isinstance(event, Stat) and event.own_cwd:
        return f"OWN_STAT {event.path}"
    return f"{kind} {getattr(event, 'path', '')}"


@pytest.mark.parametrize("name", NAMES)
def test_guest(name: str, run_guest: Callable[[str], Trace], lacking_here: Callable[[str], None]) -> None:
    """What a program says that it did is what the tracer reports."""
    trace = run_guest(name)
    outcome = trace.outcome
    if outcome.exit_code == SKIPPED:
        lacking_here(outcome.stderr.decode())
    assert outcome.exit_code == 0, outcome
    expected = [line for line in outcome.stdout.decode().splitlines() if not line.startswith("! ")]
    denied = [line[2:] for line in outcome.stdout.decode().splitlines() if line.startswith("! ")]
    facts = {fact(event) for event in trace.events}
    facts |= {f"META_MODE {event.path}" for event in trace.events if isinstance(event, Meta) and MetaWhat.MODE in event.what}
    assert [line for line in expected if line not in facts] == []
    assert [line for line in denied if line in facts] == []
    if not any(line.startswith("INCOMPLETE") for line in expected):
        assert [event for event in trace.events if isinstance(event, Incomplete)] == []


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_guest_with_stops_only(
    name: str, run_guest: Callable[[str], Trace], lacking_here: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that can't notify in a cheap way gets the same facts by stops."""
    monkeypatch.setattr(NativeSandbox, "stops_only", True)
    test_guest(name, run_guest, lacking_here)


def test_failed_exec_carries_environment(run_guest: Callable[[str], Trace]) -> None:
    """A failed exec is reported with all that it was given: shells hand on their exports by one."""
    failed = [event for event in run_guest("exec_fails").events if isinstance(event, Exec) and event.errno]
    assert [(Path(event.path).name, event.argv, event.cwd) for event in failed] == [
        ("absent", (b"absent",), "/workspace"),
        ("plain", (b"absent",), "/workspace"),
    ]
    assert [event.umask for event in failed] == [0o022, 0o022]
    assert all(any(line.startswith(b"PATH=") for line in event.env) for event in failed)
