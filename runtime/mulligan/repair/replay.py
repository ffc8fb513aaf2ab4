"""Replay: carrying a plan out, slot by slot, without touching the head.

Knows records, the walk over a corrected history, and a workshop that runs actions and makes layers. Gives the records of
the new history and a report; publishing them by compare-and-swap is the caller's. Each action that runs again runs in its
own slot: on the new state of all slots before it, while the later ones that nothing touched keep their layers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from mulligan.model.action import Action, LaunchContext, Outcome
from mulligan.model.change import Patch, Replace
from mulligan.model.equivalence import Equality
from mulligan.model.footprint import Footprint
from mulligan.model.ids import ActionId, LayerId, RecordId
from mulligan.model.plan import Reason, Report, Step
from mulligan.model.record import Record
from mulligan.repair.parallel import EarlyReplays
from mulligan.repair.planner import check_patch
from mulligan.repair.remembering import Remembering
from mulligan.repair.schedule import patch_path
from mulligan.repair.volatile import Files, find_volatile
from mulligan.repair.walk import Pass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from mulligan.model.layer import Layer
    from mulligan.model.plan import Plan, Volatile
    from mulligan.model.tree import Tree
    from mulligan.repair.contents import Content, SamePart
    from mulligan.repair.dirty import SameBytes
    from mulligan.repair.pool import Pool
    from mulligan.repair.schedule import Slot
    from mulligan.repair.walk import ReadsVariable

    # action, what is done with it ("run", "keep", "drop", "patch"), its number in the history, how many there are
    Progress = Callable[[ActionId, str, int, int], None]

GAP_NS = 100_000  # by which a patch stands after the slot before it, whose times may reach a little over its end
NEW = RecordId(0)  # of a record that the journal does not have yet
STALE = "stale: a repair of level 0 kept it although what it saw had changed"


class Workshop(Protocol):
    """What changes the world for a replay."""

    def execute(
        self,
        action: Action,
        launch: LaunchContext,
        below: Sequence[LayerId],
        replay_of: Record | None,
        *,
        interrupt: Callable[[], bool] | None = None,
    ) -> Record:
        """Run an action on the layers `below` (bottom first), in the slot of `replay_of`. Several threads may do so at once.

        `interrupt` is asked now and then; true ends the action with InterruptedRunError, and nothing of it is left.
        """

    def rematerialise(self, layer: Layer, below: Tree, under: Sequence[LayerId]) -> Layer:
        """The layer made again from its manifest for another state below."""

    def patch(self, path: str, value: bytes, under: Sequence[LayerId], mtime_ns: int) -> Layer:
        """A layer that sets the content of one file; mode and owner are those of what is there, if anything."""

    def content(self, layer: Layer, path: str) -> bytes:
        """The bytes of a file that the layer holds."""

    def discard(self, layer: Layer) -> None:
        """Remove a layer of this repair's own that stands in no history."""


@dataclass(slots=True)
class _Tally:
    """What became of each slot."""

    ran: list[ActionId]
    kept: list[ActionId]
    dropped: list[ActionId]
    diverged: list[ActionId]
    failures: list[Record]
    steps: list[Step]


class Replay:
    """One repair on its way. `run` may be called once."""

    def __init__(
        self,
        plan: Plan,
        records: Sequence[Record],
        bottom: Sequence[Layer],
        workshop: Workshop,
        *,
        same_bytes: SameBytes,
        first_launch: LaunchContext,
        base_changed: Collection[str],
        reads_variable: ReadsVariable | None = None,
        next_id: Callable[[int], ActionId],
        content: Content,
        same_part: SamePart | None = None,
        pool: Pool[Record] | None = None,
    ) -> None:
        """With a pool several replays run at the same time; the result is that of one after the other."""
        self._plan = plan
        self._workshop = workshop if plan.policy.granularity == "action" else Remembering(workshop)
        self._next_id = next_id
        self._bottom = [layer.id for layer in bottom]
        self._content = content
        self._same_bytes = same_bytes
        self._pool = pool
        self._in_vain = 0

        def begin(units: Mapping[str, str]) -> Pass:
            return Pass(
                records,
                bottom,
                plan.changes,
                same_bytes=same_bytes,
                first_launch=first_launch,
                base_changed=base_changed,
                reads_variable=reads_variable,
                policy=plan.policy,
                content=content,
                same_part=same_part,
                forced=plan.forced,
                units=units,
            )

        self._begin_pass = begin
        self._begin({})

    def _begin(self, units: Mapping[str, str]) -> None:
        """Stand before the first slot. `units` are known to run again."""
        self._walk = self._begin_pass(units)
        self._early = EarlyReplays(self._walk, self._workshop, _asked, self._same_bytes, self._pool)
        self._laid: list[Layer] = []
        self._records: list[Record] = []
        self._patches = 0
        self._tally = _Tally([], [], [], [], [], [])

    def run(self, *, keep_going: bool, progress: Progress | None) -> tuple[Report, list[Record]]:
        """Replay. The report's `applied` is False when a replay failed and `keep_going` is not set: publish nothing then."""
        started = time.monotonic()
        while (applied := self._pass_through(keep_going=keep_going, progress=progress)) is None:
            self._begin(self._walk.units)
        if isinstance(self._workshop, Remembering):
            self._workshop.discard_all_but({layer.id for layer in self._laid})
        return self._report(started, applied=applied), self._records if applied else []

    def _pass_through(self, *, keep_going: bool, progress: Progress | None) -> bool | None:
        """One pass over all slots: whether it may be applied; None when it must be begun anew, as a unit has grown."""
        with self._early:
            done = self._walk_along(keep_going=keep_going, progress=progress)
        self._in_vain += self._early.in_vain
        return done

    def _walk_along(self, *, keep_going: bool, progress: Progress | None) -> bool | None:
        total = len(self._walk.slots)
        for number, slot in enumerate(self._walk, 1):
            if self._walk.rest_is_kept(slot):
                self._keep_rest(number, progress)
                break
            step = self._walk.verdict(slot)
            if self._walk.torn:
                return None
            if progress is not None:
                what: dict[str, str] = {"keep": "keep", "drop": "drop"}
                progress(step.action, what.get(step.kind, "patch" if slot.record is None else "run"), number, total)
            self._carry_out(slot, step)
            if self._tally.failures and not keep_going:
                return False
        return True

    def _keep_rest(self, number: int, progress: Progress | None) -> None:
        """Nothing differs from here on, and nothing more is asserted: all slots from this number on stand as they are."""
        total = len(self._walk.slots)
        for at, slot in enumerate(self._walk.slots[number - 1 :], number):
            assert slot.record is not None, slot
            if progress is not None:
                progress(slot.record.id, "keep", at, total)
            self._note(Step(slot.record.id, "keep"), self._tally.kept)
            self._append(slot.record)

    def _carry_out(self, slot: Slot, step: Step) -> None:
        if step.kind == "keep":
            self._early.forgo(self._walk.done)
        if slot.record is None:
            self._insert_patch(slot)
        elif step.kind == "drop":
            self._walk.drop(slot)
            self._note(step, self._tally.dropped)
        elif step.kind == "keep":
            self._keep(slot, slot.record, step)
            self._note(step, self._tally.kept)
        else:
            self._run_again(slot, slot.record)
            self._note(step, self._tally.ran)

    def _note(self, step: Step, where: list[ActionId]) -> None:
        where.append(step.action)
        self._tally.steps.append(step)

    def _keep(self, slot: Slot, record: Record, step: Step) -> None:
        layer = record.layer
        if not self._walk.raw_reusable(slot):
            layer = self._workshop.rematerialise(layer, self._walk.tree, self._below())
        launch = self._walk.launch
        self._walk.keep(slot, layer)
        if (layer.id, launch, self._walk.launch) != (record.layer.id, record.launch, record.handoff):
            env = {**launch.env, **record.action.env}
            footprint = replace(record.footprint, launch_env=env, launch_cwd=record.action.cwd or launch.cwd)
            changed = replace(record, layer=layer, launch=launch, handoff=self._walk.launch, footprint=footprint)
            record = replace(changed, record_id=NEW, revision=record.revision + 1)
        self._append(_marked_stale(record) if step.because else record)

    def _run_again(self, slot: Slot, old: Record) -> None:
        action = old.action
        if action.patch_path is not None:
            value = self._workshop.content(old.layer, action.patch_path)
            self._put_patch(slot, action, action.patch_path, value, old.revision + 1, at=old.outcome.ended_ns)
            return
        record = self._early.execute(slot, self._bottom, self._laid)
        self._walk.ran(slot, record)
        self._append(record)
        before, after = old.outcome, record.outcome
        if (before.exit_code, before.signal) != (after.exit_code, after.signal):
            self._tally.diverged.append(record.id)
        if not after.ok and (before.ok or isinstance(slot.change, Replace)):
            self._tally.failures.append(record)

    def _insert_patch(self, slot: Slot) -> None:
        assert isinstance(slot.change, Patch), slot
        path = patch_path(slot.change)
        action = Action(id=self._next_id(self._patches), kind="patch", patch_path=path)
        self._patches += 1
        self._put_patch(slot, action, path, slot.change.value, 1, at=self._time_for(slot, path))
        self._note(Step(action.id, "must_rerun", (Reason("changed", f"dat:{path}", note="patched"),)), self._tally.ran)

    def _put_patch(self, slot: Slot, action: Action, path: str, value: bytes, revision: int, *, at: int) -> None:
        check_patch(path, self._walk.tree)
        layer = self._workshop.patch(path, value, self._below(), at)
        launch, there = self._walk.launch, frozenset((path,))
        new = path not in self._walk.tree
        record = Record(
            record_id=NEW,
            revision=revision,
            action=action,
            launch=launch,
            handoff=launch,
            outcome=Outcome(exit_code=0, signal=None, started_ns=at, ended_ns=at),
            footprint=Footprint(  # it stands on what is there: when that comes or goes, the patch is made again
                missed=there if new else frozenset(),
                overwrote=frozenset() if new else there,
                wrote=there,
                launch_env=launch.env,
                launch_cwd=launch.cwd,
            ),
            layer=layer,
        )
        self._walk.ran(slot, record)
        self._append(record)

    def _time_for(self, slot: Slot, path: str) -> int:
        """The time of an inserted patch: after the slot before it and before the one after it, which may be a patch, too."""
        number = next(n for n, one in enumerate(self._walk.slots) if one is slot)
        later = next((s.record.outcome.started_ns for s in self._walk.slots[number:] if s.record is not None), time.time_ns())
        if self._records:
            before = self._records[-1].outcome.ended_ns
            return before + min(GAP_NS, max(1, (later - before) // 2))
        there = self._walk.tree.get(path)
        return min(later, there.mtime_ns + 2 * GAP_NS) - GAP_NS if there is not None else later - GAP_NS

    def _volatile(self) -> Iterator[Volatile]:
        """What the replays gave otherwise without a cause."""
        new = {record.id: record for record in (*self._tally.failures, *self._records)}
        steps = {step.action: step for step in self._tally.steps}
        files = Files(self._same_bytes, self._content, Equality(self._plan.policy.equivalences))
        for slot in self._walk.slots:
            old = slot.record
            if old is not None and old.action.kind == "run" and old.id in self._tally.ran and old.id in new:
                yield from find_volatile(old, new[old.id], steps[old.id], slot.change, files=files)

    def _append(self, record: Record) -> None:
        self._records.append(record)
        self._laid.append(record.layer)

    def _below(self) -> tuple[LayerId, ...]:
        return (*self._bottom, *(layer.id for layer in self._laid))

    def _report(self, started: float, *, applied: bool) -> Report:
        tally = self._tally
        feared = {s.action for s in self._plan.steps if s.kind == "may_rerun"}
        return Report(
            plan=replace(self._plan, steps=tuple(tally.steps)),
            applied=applied,
            ran=tuple(tally.ran),
            kept=tuple(tally.kept),
            dropped=tuple(tally.dropped),
            cut_off=tuple(a for a in tally.kept if a in feared),
            diverged=tuple(tally.diverged),
            failed=tuple(r.id for r in tally.failures),
            failures=tuple(tally.failures),
            volatile=tuple(self._volatile()),
            stale=tuple(s.action for s in tally.steps if s.kind == "keep" and s.because),
            in_vain=self._in_vain,
            head=self._plan.head,
            seconds=time.monotonic() - started,
        )


def _marked_stale(record: Record) -> Record:
    """A record kept by level 0 over a difference: what it saw is not so any more, so the next repair may not trust it."""
    if STALE in record.footprint.incomplete_because:
        return record
    because = (*record.footprint.incomplete_because, STALE)
    again = record if record.record_id == NEW else replace(record, record_id=NEW, revision=record.revision + 1)
    return replace(again, footprint=replace(record.footprint, incomplete_because=because))


def _asked(slot: Slot) -> Action:
    """What is run in the slot."""
    assert slot.record is not None, slot
    return replaced(slot.record.action, slot.change) if isinstance(slot.change, Replace) else slot.record.action


def replaced(action: Action, change: Replace) -> Action:
    """The action with another command; all else that was asked of it stays."""
    if isinstance(change.action, str):
        return replace(action, shell=change.action, argv=())
    return replace(action, shell=None, argv=tuple(change.action))


__all__ = ["Progress", "Replay", "Workshop", "replaced"]
