"""A history deeper than the kernel stacks layers: it behaves like a young one, from its first action to its last."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest
from twins import tree_of

from mulligan import Patch, Replace, Session
from mulligan.sandbox.blocks import COMPOSITE
from mulligan.sandbox.hosts import HostFeatures
from mulligan.sandbox.mounts import MAX_LOWERS
from mulligan.upkeep import gc

DEPTH = 600
SCRIPT = "echo {n} > /workspace/f{k}; echo {n} >> /workspace/log{m}"
EARLY, MIDDLE = 3, 300


def command(number: int) -> list[str]:
    """Every action writes one of 40 files and appends to one of 60: about ten rely on the third one's."""
    return ["/bin/sh", "-c", SCRIPT.format(n=number, k=number % 40, m=number % 60)]


def expected(depth: int, changed: dict[int, str] | None = None) -> dict[str, bytes]:
    """The files of the workspace after so many actions; `changed` is what some of them say instead of their number."""
    said = {n: (changed or {}).get(n, str(n)) for n in range(1, depth + 1)}
    files: dict[str, bytes] = {}
    for number, text in said.items():
        files[f"f{number % 40}"] = text.encode() + b"\n"
        files[f"log{number % 60}"] = files.get(f"log{number % 60}", b"") + text.encode() + b"\n"
    return files


def files(session: Session) -> dict[str, bytes]:
    """The files of the workspace, as they are read from the host."""
    return {name: session.files.read_bytes(name) for name in session.files.list("/workspace")}


def inside(session: Session) -> dict[str, bytes]:
    """The files of the workspace, as an action sees them."""
    said = session.run(["/bin/sh", "-c", "cd /workspace; for f in *; do echo :$f; cat $f; done"]).stdout
    parts = [one.partition("\n") for one in said.split(":")[1:]]
    return {name: text.encode() for name, _, text in parts}


@pytest.fixture(scope="module")
def deep(sandboxes: HostFeatures, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session of 600 actions that all changed something."""
    assert sandboxes.runs
    with Session.create("deep", home=tmp_path_factory.mktemp("deep") / "store") as session:
        for number in range(1, DEPTH + 1):
            assert session.run(command(number)).exit_code == 0
        yield session


@pytest.mark.timeout(240)
def test_the_state_of_a_deep_history_is_whole_and_of_few_folders(deep: Session) -> None:
    """After 600 actions the state is what they wrote, read from outside and inside, and mounts with few lowers."""
    assert files(deep) == expected(DEPTH)
    stack = deep._stack_at(deep.head)
    assert len(stack.layers) > MAX_LOWERS
    assert len(stack.lower_dirs()) < 100
    assert any(layer.startswith(COMPOSITE) for layer in stack.cover)
    with deep.branch("looked-into") as branch:
        assert inside(branch) == expected(DEPTH)


@pytest.mark.timeout(240)
def test_an_action_of_a_deep_history_costs_what_the_first_ones_cost(deep: Session) -> None:
    """Action 601 takes about as long as action 2: turn by turn in one run, medians within a factor of 1.6."""
    times: dict[str, list[float]] = {"deep": [], "young": []}
    with Session.create("young", home=deep.home) as young, deep.branch("timed") as branch:
        for number in range(15):
            for name, session in (("deep", branch), ("young", young)):
                start = time.perf_counter()
                session.run(command(number))
                times[name].append(time.perf_counter() - start)
    assert statistics.median(times["deep"]) < 1.6 * statistics.median(times["young"]), times


@pytest.mark.timeout(240)
def test_an_early_action_of_a_deep_history_is_repaired(deep: Session) -> None:
    """A repair of action 3 runs again it and those that appended to its file; the rest is kept, and all is as it must be."""
    with deep.branch("repaired") as session:
        third = "echo three > /workspace/f3; echo three >> /workspace/log3"
        report = session.repair(Replace(f"a{EARLY}", ["/bin/sh", "-c", third]))
        again = [f"a{n}" for n in range(EARLY, DEPTH + 1, 60)]
        assert list(report.ran) == again
        assert len(report.kept) == DEPTH - len(again)
        assert files(session) == inside(session) == expected(DEPTH, {EARLY: "three"})
        composites = {layer for layer in session._stack_at(session.head).cover if layer.startswith(COMPOSITE)}
        assert composites, "the corrected history is mounted of few folders, too"


@pytest.mark.timeout(240)
def test_a_patch_in_the_middle_of_a_deep_history_leaves_most_blocks_alone(deep: Session) -> None:
    """An insertion shifts all later actions by one; the composites of the untouched ones serve on."""
    store = deep._layers.composites
    before = {one for one in store.blocks(deep._layer_ids(deep.head)) if one.startswith(COMPOSITE)}
    with deep.branch("inserted") as session:
        session.repair(Patch("/workspace/f20", b"patched\n", at=f"a{MIDDLE}"))
        after = {one for one in store.blocks(session._layer_ids(session.head)) if one.startswith(COMPOSITE)}
        assert len(before) > 20
        assert len(after - before) <= 6
        assert files(session) == expected(DEPTH)
        with session.branch("patched", at=f"a{MIDDLE + 1}") as then:  # that one stands right after the patch
            assert then.files.read("f20") == "patched\n"


@pytest.mark.timeout(240)
def test_a_deep_history_rolls_back_and_branches(deep: Session) -> None:
    """The states after action 5 and after action 300 are what they were, from outside and inside."""
    with deep.branch("back") as session:
        session.rollback("a5")
        assert files(session) == inside(session) == expected(5)
    with deep.branch("half", at=f"a{MIDDLE}") as session:
        assert files(session) == inside(session) == expected(MIDDLE)
        assert tree_of(session)


@pytest.mark.timeout(240)
def test_composites_are_caches(deep: Session) -> None:
    """What a session's history uses is kept by gc; removed all the same, it is made again when it is needed."""
    with deep.branch("cached") as session:
        used = {layer for layer in session._stack_at(session.head).cover if layer.startswith(COMPOSITE)}
        assert used
        gc(deep.home)
        assert all(session._layers.path(layer).is_dir() for layer in used)
        for layer in used:
            session._layers.remove(layer)
        assert files(session) == inside(session) == expected(DEPTH)
