"""The central law, on the real overlay and the real tracer: repair equals running the corrected history, and runs no more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from counts import counts
from histories import GUEST, Asked, Command, Edit, Story, story
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minimal import NOT_EXACT, kind_of, needed, told_of
from twins import said, slots_of_times, tree_of

from mulligan import Drop, Patch, Record, Replace, Report, Rerun, Session
from mulligan.errors import UsageError
from mulligan.model.change import Change
from mulligan.model.policy import Policy
from mulligan.sandbox import layer as layers

EXAMPLES = int(os.environ.get("MULLIGAN_EXAMPLES", "500"))
PATIENCE_S = 120  # nothing here takes that long: whoever waits for ever is seen to
NAME = "repair equals rerun, on the overlay"


@dataclass(frozen=True)
class Slot:
    """One place of a history as it should be: an action, or a patch, and by which id the session knows it."""

    id: str
    asked: Asked
    patch: tuple[str, str] | None = None


@dataclass(frozen=True)
class Done:
    """A repair that was made: the slots of the corrected history, the first of them that it reached, and who was named."""

    slots: list[Slot]
    first: int
    named: frozenset[str]
    before: list[Record]
    report: Report


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, fsops: Path, shared_home: Path) -> Iterator[Session]:
    """A session with a small tree and the guest program, in which nothing was run: every case is a branch of it.

    Its layers are not synced: that they outlive a crash is not what is tested here.
    """
    folder = tmp_path_factory.mktemp("project")
    shutil.copy2(fsops, folder / "fsops")
    (folder / "t" / "d").mkdir(parents=True)
    (folder / "t" / "e").mkdir()
    (folder / "t" / "a").write_text("base a")
    (folder / "t" / "b").write_text("base b")
    (folder / "t" / "e" / "x").symlink_to("../a")
    (folder / "t" / "l").symlink_to("d")
    (folder / "t" / "d" / "x").write_text("base x")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layers, "sync_tree", lambda *_: None)
        with Session.create("begun", imports={str(folder): "/workspace"}, home=shared_home) as session:
            yield session


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(told=story, jobs=st.sampled_from([1, 2, 4]))
@pytest.mark.timeout(3600)
def test_repair_equals_rerun(told: Story, jobs: int, begun: Session) -> None:
    """The tree, every output, what is handed on and the slot of every file's time equal those of a serial run.

    The serial run is of the corrected history from the first change on, after one repair and after any that follow, with one
    replay at a time or several. No action is kept that would have seen something else, and none runs again without need but
    for what is listed in minimal.py.
    """
    name = f"p{os.urandom(6).hex()}"
    with ExitStack() as opened:
        session = origin = opened.enter_context(begun.branch(name))
        slots = record(session, told)
        was = session.head, session.log()
        if told.branched:
            session = opened.enter_context(session.branch(f"{name}-branch"))
        for count, edits in enumerate(told.repairs):
            done = repair(session, slots, edits, jobs)
            if done is None:
                continue
            slots = done.slots
            at = slots[done.first - 1].id if done.first else None
            with session.branch(f"{name}-{count}", at=at) as twin:
                if at is None:
                    twin._store.journal.move(twin.name, twin.head, 0)
                expected = [*twin.log(), *(run(twin, slot) for slot in slots[done.first :])]
                compare(session, slots, twin, expected)
                count_up(session, done, expected)
        assert not told.branched or (origin.head, origin.log()) == was


def record(session: Session, told: Story) -> list[Slot]:
    """Run the history as told; gives its slots."""
    slots = [Slot(_run(session, one).id, one) for one in told.actions]
    if told.back_to < len(slots):
        session.rollback(slots[told.back_to - 1].id)
        slots = slots[: told.back_to]
    return slots + [Slot(_run(session, one).id, one) for one in told.more]


def repair(session: Session, slots: list[Slot], edits: tuple[Edit, ...], jobs: int) -> Done | None:
    """Repair the session; None when it can't be repaired so."""
    numbers = {edit.number: edit for edit in edits if edit.number < len(slots)}
    corrected: list[Slot] = []
    changes: list[Change] = []
    for number, slot in enumerate(slots):
        edit = numbers.get(number)
        kind = "" if edit is None or (slot.patch is not None and edit.kind != "drop") else edit.kind
        if edit is not None and kind in ("replace", "more"):
            instead = edit.of(slot.asked.command)
            changes.append(Replace(slot.id, _command(instead)))
            corrected.append(Slot(slot.id, Asked(instead, slot.asked.options)))
        elif kind == "drop":
            changes.append(Drop(slot.id))
        else:
            corrected.append(slot)
        if kind == "rerun":
            changes.append(Rerun(slot.id))
        if edit is not None and kind == "patch":
            changes.append(Patch(edit.path, edit.value.encode(), at=slot.id))
            corrected.append(Slot("", Asked(()), (edit.path, edit.value)))
    before, head = session.log(), session.head
    try:
        report = session.apply(session.plan(*changes, policy=Policy(jobs=jobs)), keep_going=True)
    except UsageError:  # a patch where there is no place for a file
        assert session.head == head
        fewer = tuple(edit for edit in edits if edit.kind != "patch")
        return repair(session, slots, fewer, jobs) if fewer != edits else None  # one of an earlier repair has lost its place
    assert report.applied
    first = next((n for n, slot in enumerate(slots) if n in numbers), len(slots))
    assert not {slot.id for slot in slots[:first]} & set(report.ran), "nothing runs before the first change"
    ids = [r.id for r in before]
    assert {i for i in (*report.ran, *report.kept, *report.dropped) if i in ids} == set(ids)
    patches = [r.id for r in session.log() if r.id not in ids]
    named = frozenset(str(change.id) for change in changes if not isinstance(change, Patch))
    return Done(
        [slot if slot.id else Slot(patches.pop(0), slot.asked, slot.patch) for slot in corrected], first, named, before, report
    )


def compare(session: Session, slots: list[Slot], twin: Session, expected: list[Record]) -> None:
    """The repaired session and its twin have said and left the same."""
    found = session.log()
    assert [r.id for r in found] == [slot.id for slot in slots]
    asked = [n for n, slot in enumerate(slots) if slot.patch is None]
    assert [said(found[n]) for n in asked] == [said(expected[n]) for n in asked]
    assert tree_of(session) == tree_of(twin)
    assert slots_of_times(session, found) == slots_of_times(twin, expected)


def count_up(session: Session, done: Done, expected: list[Record]) -> None:
    """Hold what ran against what had to; and count it."""
    least = needed(session, done.before, expected, [slot.id for slot in done.slots], done.named)
    ran = {record.id for record in done.before if record.action.kind == "run"} & set(done.report.ran)
    assert least <= ran, f"kept, although they would have seen something else: {sorted(least - ran)}"
    extra = [step.because for step in done.report.plan.steps if step.action in ran - least]
    assert {kind_of(reasons) for reasons in extra} <= NOT_EXACT.keys(), (sorted(ran - least), extra)
    sums = counts(NAME)
    sums.repairs += 1
    sums.actions += sum(record.action.kind == "run" for record in done.before)
    sums.executed += len(ran)
    sums.minimal += len(least)
    sums.kept += len(done.report.kept)
    sums.in_vain += done.report.in_vain
    sums.cut_off += len(done.report.cut_off)
    sums.extra.update(map(told_of, extra))


def run(twin: Session, slot: Slot) -> Record:
    """Run one slot of the corrected history. A patch is what a plain write of the value would have done."""
    if slot.patch is None:
        return _run(twin, slot.asked)
    path, value = slot.patch
    return twin.run([GUEST, "=", path, value], cwd="/workspace")


def _run(session: Session, asked: Asked) -> Record:
    return session.run(_command(asked.command), timeout=PATIENCE_S, **asked.options)


def _command(command: Command) -> str | list[str]:
    return command if isinstance(command, str) else [GUEST, *command]
