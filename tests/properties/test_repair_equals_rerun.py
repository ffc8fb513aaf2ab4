"""The central law, on the real overlay and the real tracer: repair equals running the corrected history from the start."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mulligan import Drop, Replace, Rerun, Session
from mulligan.model.ids import ActionId

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = int(os.environ.get("MULLIGAN_EXAMPLES", "300"))
PATHS = ["t/a", "t/b", "t/d", "t/d/x", "t/d/y", "t/e", "t/e/x", "t/l"]

path = st.sampled_from(PATHS)
word = st.sampled_from(["one", "two", "three33", ""])
op = st.one_of(
    st.tuples(st.sampled_from("wa"), path, word),
    st.tuples(st.sampled_from("crl"), path, path),
    st.tuples(st.sampled_from("umdoSLRAW"), path),
    st.tuples(st.just("t"), path, st.sampled_from(["0", "2", "9"])),
    st.tuples(st.just("h"), path, st.sampled_from(["600", "755", "711", "640"])),
    st.tuples(st.just("s"), st.sampled_from(["a", "d", "e/x", "../a", "/workspace/t/d"]), path),
    st.tuples(st.sampled_from("?!"), path),
)
program = st.lists(op, min_size=1, max_size=6).map(lambda ops: tuple(word for one in ops for word in one))
histories = st.lists(program, min_size=2, max_size=6)


@dataclass(frozen=True)
class Edit:
    """One change of a history, by the index of the action."""

    index: int
    kind: str
    instead: tuple[str, ...]


edits = st.builds(Edit, st.integers(0, 5), st.sampled_from(["replace", "replace", "drop", "rerun"]), program)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, fsops: Path) -> Path:
    """A folder with a small tree and the guest program."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy2(fsops, folder / "fsops")
    (folder / "t" / "d").mkdir(parents=True)
    (folder / "t" / "e").mkdir()
    (folder / "t" / "a").write_text("base a")
    (folder / "t" / "d" / "x").write_text("base x")
    return folder


def argv(ops: tuple[str, ...]) -> list[str]:
    """The guest's command line."""
    return ["/workspace/fsops", *ops]


def dump(session: Session) -> str:
    """The tree as a program inside sees it: names, kinds, modes, bytes, link counts and targets."""
    return session.run(argv(("D", "t"))).stdout


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(history=histories, changes=st.lists(edits, min_size=1, max_size=2, unique_by=lambda e: e.index))
@pytest.mark.timeout(1200)
def test_repair_equals_rerun(history: list[tuple[str, ...]], changes: list[Edit], project: Path, shared_home: Path) -> None:
    """The tree and every output after a repair equal those of a full serial run of the corrected history."""
    name = f"p{os.urandom(6).hex()}"
    with (
        Session.create(name, imports={str(project): "/workspace"}, home=shared_home) as session,
        session.branch(f"{name}-oracle") as oracle,
    ):
        ids = [session.run(argv(ops)).id for ops in history]
        corrected, assertions = correct(ids, history, {e.index: e for e in changes if e.index < len(history)})
        outputs = [(one, oracle.run(argv(ops)).stdout) for one, ops in corrected]
        report = session.apply(session.plan(*assertions))
        assert report.applied
        assert [(r.id, r.stdout) for r in session.log()] == outputs
        assert dump(session) == dump(oracle)
        named = [ids.index(ActionId(str(c.id))) for c in assertions]
        assert set(report.ran) <= set(ids[min(named, default=len(ids)) :])
        assert set(report.ran) | set(report.kept) | set(report.dropped) == set(ids)


def correct(
    ids: list[ActionId], history: list[tuple[str, ...]], edits: dict[int, Edit]
) -> tuple[list[tuple[ActionId, tuple[str, ...]]], list[Replace | Drop | Rerun]]:
    """The corrected history for the oracle, and the changes that say the same to the repair."""
    corrected: list[tuple[ActionId, tuple[str, ...]]] = []
    assertions: list[Replace | Drop | Rerun] = []
    for index, (one, ops) in enumerate(zip(ids, history, strict=True)):
        edit = edits.get(index)
        if edit is None or edit.kind == "rerun":
            corrected.append((one, ops))
        elif edit.kind == "replace":
            corrected.append((one, edit.instead))
        if edit is not None:
            made = {"replace": Replace(one, argv(edit.instead)), "drop": Drop(one), "rerun": Rerun(one)}
            assertions.append(made[edit.kind])
    return corrected, assertions
