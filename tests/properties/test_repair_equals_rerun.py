"""The central law, on the real overlay and the real tracer: repair equals running the corrected history from the start."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from histories import GUEST, Command, Edit, Story, story
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from twins import said, slots_of_times, tree_of

from mulligan import Drop, Patch, Replace, Rerun, Session
from mulligan.errors import UsageError
from mulligan.model.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path

    from mulligan import Record
    from mulligan.model.change import Change

EXAMPLES = int(os.environ.get("MULLIGAN_EXAMPLES", "300"))


@dataclass(frozen=True)
class Slot:
    """One place of a history as it should be: an action, or a patch, and by which id the session knows it."""

    id: str
    command: Command
    patch: tuple[str, str] | None = None


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, fsops: Path) -> Path:
    """A folder with a small tree and the guest program."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy2(fsops, folder / "fsops")
    (folder / "t" / "d").mkdir(parents=True)
    (folder / "t" / "e").mkdir()
    (folder / "t" / "a").write_text("base a")
    (folder / "t" / "b").write_text("base b")
    (folder / "t" / "e" / "x").symlink_to("../a")
    (folder / "t" / "l").symlink_to("d")
    (folder / "t" / "d" / "x").write_text("base x")
    return folder


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(told=story, jobs=st.sampled_from([1, 2, 4]))
@pytest.mark.timeout(1200)
def test_repair_equals_rerun(told: Story, jobs: int, project: Path, shared_home: Path) -> None:
    """The tree, every output, what is handed on and the slot of every file's time equal those of a full serial run.

    The full run is of the corrected history, after one repair and after any that follow, with one replay at a time or several.
    """
    name = f"p{os.urandom(6).hex()}"
    with Session.create(name, imports={str(project): "/workspace"}, home=shared_home) as session:
        slots = record(session, told)
        for count, edits in enumerate(told.repairs):
            slots = repair(session, slots, edits, jobs)
            with session.branch(f"{name}-{count}", at=None) as twin:
                twin._store.journal.move(twin.name, twin.head, 0)
                expected = [(slot, run(twin, slot)) for slot in slots]
                found = session.log()
                assert [r.id for r in found] == [slot.id for slot in slots]
                asked = [n for n, slot in enumerate(slots) if slot.patch is None]
                assert [said(found[n]) for n in asked] == [said(expected[n][1]) for n in asked]
                result = [
                    (tree_of(one), slots_of_times(one, records))
                    for one, records in ((session, found), (twin, [r for _, r in expected]))
                ]
                assert result[0] == result[1]


def record(session: Session, told: Story) -> list[Slot]:
    """Run the history as told; gives its slots."""
    slots = [Slot(session.run(_asked(one)).id, one) for one in told.actions]
    if told.back_to < len(slots):
        session.rollback(slots[told.back_to - 1].id)
        slots = slots[: told.back_to]
    return slots + [Slot(session.run(_asked(one)).id, one) for one in told.more]


def repair(session: Session, slots: list[Slot], edits: tuple[Edit, ...], jobs: int) -> list[Slot]:
    """Repair the session; gives the slots of the corrected history."""
    numbers = {edit.number: edit for edit in edits if edit.number < len(slots)}
    corrected: list[Slot] = []
    changes: list[Change] = []
    for number, slot in enumerate(slots):
        edit = numbers.get(number)
        kind = "" if edit is None or (slot.patch is not None and edit.kind != "drop") else edit.kind
        if edit is not None and kind in ("replace", "more"):
            instead = edit.of(slot.command)
            changes.append(Replace(slot.id, _asked(instead)))
            corrected.append(Slot(slot.id, instead))
        elif kind == "drop":
            changes.append(Drop(slot.id))
        else:
            corrected.append(slot)
        if kind == "rerun":
            changes.append(Rerun(slot.id))
        if edit is not None and kind == "patch":
            changes.append(Patch(edit.path, edit.value.encode(), at=slot.id))
            corrected.append(Slot("", (), (edit.path, edit.value)))
    before, head = session.log(), session.head
    try:
        report = session.apply(session.plan(*changes, policy=Policy(jobs=jobs)), keep_going=True)
        event(f"{jobs} at once, begun in vain: {min(report.in_vain, 2)}")
    except UsageError:  # a patch where there is no place for a file
        assert session.head == head
        fewer = tuple(edit for edit in edits if edit.kind != "patch")
        return repair(session, slots, fewer, jobs) if fewer != edits else slots  # one of an earlier repair has lost its place
    assert report.applied
    first = next((n for n, slot in enumerate(slots) if n in numbers), len(slots))
    assert not {slot.id for slot in slots[:first]} & set(report.ran), "nothing runs before the first change"
    ids = [r.id for r in before]
    assert {i for i in (*report.ran, *report.kept, *report.dropped) if i in ids} == set(ids)
    patches = [r.id for r in session.log() if r.id not in ids]
    return [slot if slot.id else Slot(patches.pop(0), (), slot.patch) for slot in corrected]


def run(twin: Session, slot: Slot) -> Record:
    """Run one slot of the corrected history. A patch is what a plain write of the value would have done."""
    if slot.patch is None:
        return twin.run(_asked(slot.command))
    path, value = slot.patch
    return twin.run([GUEST, "=", path, value], cwd="/workspace")


def _asked(command: Command) -> str | list[str]:
    return command if isinstance(command, str) else [GUEST, *command]
