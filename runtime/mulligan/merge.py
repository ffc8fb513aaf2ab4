"""Merge: one branch's actions put after another's, when their facts allow it.

Knows records, the walk over a corrected history and a workshop. Gives the merged records and the conflicts; publishing is the
caller's. Two branches of one session share their first actions. What they did since commutes when Bernstein's conditions hold:
neither observed what the other changed, and what both wrote came out the same. All three are decided by values, by two walks:
theirs with our actions put between the fork and them, and ours with theirs. An observation that differs is a conflict; so is
a key in which the two final states differ. Times are left out of that last comparison, since they only tell who came last.

When nothing conflicts, the merged history is what running ours and then theirs would give, and but for times what theirs and
then ours would. With `replay`, their actions that saw something else run again after ours, in order: a rebase.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from mulligan.errors import ConflictError, GivenUpError, RepairFailedError, UsageError
from mulligan.history.journal import NO_HEAD
from mulligan.model.footprint import Footprint
from mulligan.model.ids import ActionId
from mulligan.model.keys import ENT, ENV, MEM, MTIME, NET, OUT, TELLING, Key, parse_key
from mulligan.model.plan import describe_end
from mulligan.repair.dirty import Dirty
from mulligan.repair.planner import check_patch
from mulligan.repair.replay import NEW
from mulligan.repair.walk import differing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mulligan.history.journal import Journal
    from mulligan.history.store import SessionRow
    from mulligan.model.ids import LayerId
    from mulligan.model.record import Record
    from mulligan.repair.dirty import SameBytes
    from mulligan.repair.replay import Workshop
    from mulligan.repair.schedule import Slot
    from mulligan.repair.walk import Pass

    Walker = Callable[[Sequence[Record]], Pass]
    Seer = Callable[[Sequence[Record]], dict[str, tuple[int, int, int]]]  # the versions of the base's files they relied on

ConflictKind = Literal["they_read", "we_read", "both_wrote"]
MIXED = (-1, -1, -1)  # the version of a file of the base that no host has
SAID: dict[ConflictKind, str] = {
    "they_read": "they read what we wrote",
    "we_read": "we read what they wrote",
    "both_wrote": "both wrote it, and not the same",
}


@dataclass(frozen=True, slots=True)
class Clash:
    """One conflict: the key, our action and theirs, each by the id it has in its own session. `note` where there is no key."""

    key: str
    ours: str
    theirs: str
    kind: ConflictKind
    note: str = ""


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge of `branch` into `session` did, or would do.

    `common` is the last action that both share, empty when there is none; `ours` are our actions since, `theirs` those of the
    branch with the ids they have here. `ran` (new ids) ran again on top of ours, the rest of theirs was kept as recorded.
    """

    session: str
    branch: str
    common: str = ""
    ours: tuple[ActionId, ...] = ()
    theirs: tuple[tuple[ActionId, ActionId], ...] = ()
    conflicts: tuple[Clash, ...] = ()
    ran: tuple[ActionId, ...] = ()
    failed: tuple[ActionId, ...] = ()
    applied: bool = False
    head: int = 0


class MergeConflictError(ConflictError):
    """Two branches do not go together. `report` says why; nothing was changed."""

    def __init__(self, report: MergeReport) -> None:
        count = len(report.conflicts)
        super().__init__(
            f"merge {report.branch} into {report.session}: {count} conflict{'s' if count != 1 else ''}; nothing was changed",
            remedy="look at them with --dry-run, or run their actions again on top of ours with --replay",
        )
        self.report = report


def shared_length(ours: Sequence[Record], theirs: Sequence[Record]) -> int:
    """How many actions two histories share from their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0].record_id == pair[1].record_id, zip(ours, theirs, strict=False)))


class Merge:
    """One merge of a session's history (`theirs`) into another's (`ours`). The caller holds the lock of ours."""

    def __init__(
        self, journal: Journal, ours: SessionRow, theirs: SessionRow, *, walker: Walker, same_bytes: SameBytes
    ) -> None:
        """`walker` begins a walk over a history of our session. Raises UsageError when the two are no branches of one."""
        if (ours.base, ours.bottom) != (theirs.base, theirs.bottom):
            raise UsageError(
                f"merge {theirs.name} into {ours.name}: they are no branches of one session",
                remedy=f"make a branch with `mulligan branch -s {ours.name} NAME`, and merge that",
            )
        self._journal, self._names, self._head = journal, (ours.name, theirs.name), ours.head
        self._walker, self._same_bytes = walker, same_bytes
        self._bottom = (*ours.bottom, *([ours.floor.layer] if ours.floor else []))
        self._since = ours.floor.node if ours.floor else NO_HEAD
        for one, other in ((ours, theirs), (theirs, ours)):
            if one.floor is not None and not journal.passes(other.head, one.floor.node):
                raise GivenUpError(
                    f"merge {theirs.name} into {ours.name}: {one.name} can't rebuild the state at which they parted",
                    remedy="`mulligan log` names the oldest action that can be repaired",
                )
        mine, old = journal.chain(ours.head, self._since), journal.chain(theirs.head, self._since)
        fork = shared_length(mine, old)
        self.common, self.ours, old = mine[:fork], mine[fork:], old[fork:]
        self.theirs = renumbered(old, ours.next_action)
        self._ids = tuple((before.id, after.id) for before, after in zip(old, self.theirs, strict=True))

    def report(self) -> MergeReport:
        """What a merge would meet. Touches nothing."""
        return MergeReport(
            *self._names,
            common=self.common[-1].id if self.common else "",
            ours=tuple(record.id for record in self.ours),
            theirs=self._ids,
            conflicts=self.find_conflicts(),
            head=self._head,
        )

    def apply(self, report: MergeReport, workshop: Workshop, seen: Seer, *, keep_going: bool) -> MergeReport:
        """Carry the merge out and publish it. Raises RepairFailedError when an action that ran again failed."""
        records, again = self.carry_out(workshop)
        before = {record.id: record.outcome.ok for record in self.theirs}
        failures = [record for record in again if before[record.id] and not record.outcome.ok]
        failed = tuple(record.id for record in failures)
        if failed and not keep_going:
            how = ("" if len(failed) == 1 else ", the first ") + describe_end(failures[0])
            what = f"{', '.join(failed)} failed on top of ours {how}"
            raise RepairFailedError(
                f"merge {report.branch} into {report.session}: {what}; nothing was changed",
                remedy="mend the branch, or merge all the same with --keep-going",
            )
        done = self._journal.publish(
            report.session, self._head, records, {**self._versions(), **seen(again)}, after=self._since
        )
        return replace(report, ran=tuple(record.id for record in again), failed=failed, applied=True, head=done.head)

    def _versions(self) -> dict[str, tuple[int, int, int]]:
        """What the branch saw of the host's base. Where we saw another version, neither can be told unchanged."""
        ours, theirs = (self._journal.versions(name) for name in self._names)
        return {path: seen if ours.get(path, seen) == seen else MIXED for path, seen in theirs.items()}

    def _stand(self, mine: Sequence[Record], others: Iterable[Record]) -> tuple[Pass, Sequence[Slot], set[str]]:
        """A walk that stands before the first of `mine`, the others' actions having come between the fork and it."""
        walk = self._walker([*self.common, *mine])
        fork = len(self.common)
        for slot in walk.slots[:fork]:
            walk.keep(slot)
        touched: set[str] = set()
        for record in others:
            touched |= walk.inserted(record)
        return walk, walk.slots[fork:], touched

    def find_conflicts(self) -> tuple[Clash, ...]:
        """Why the two sides do not commute; empty when they do."""
        known = {after: before for before, after in self._ids}
        clashes: list[Clash] = []
        over, slots, touched = self._stand(self.theirs, self.ours)
        for slot in slots:
            theirs = known[ActionId(slot.name)]
            reasons = over.verdict(slot).because
            clashes += [Clash(reason.key, reason.source, theirs, "they_read", reason.note) for reason in reasons]
            touched |= over.keep(slot)
        under, slots, more = self._stand(self.ours, self.theirs)
        for slot in slots:
            for reason in under.verdict(slot).because:
                source = known.get(ActionId(reason.source), reason.source)
                clashes.append(Clash(reason.key, slot.name, source, "we_read", reason.note))
            more |= under.keep(slot)
        for key in self._differing(over, under, touched | more):
            source = _last_writer(self.theirs, key)
            clashes.append(Clash(str(key), _last_writer(self.ours, key), known.get(ActionId(source), source), "both_wrote"))
        return tuple(dict.fromkeys(clashes))

    def _differing(self, over: Pass, under: Pass, touched: Iterable[str]) -> list[Key]:
        """The keys in which ours;theirs and theirs;ours end differently, the most telling one of each path."""
        dirty = Dirty()
        dirty.compare(touched, over.tree, under.tree, self._same_bytes)
        order = (ENT, *TELLING)
        kinds = {path: dirty.kinds(path) - {MTIME} for path in dirty}
        keys = [Key(min(kinds[path], key=order.index), path) for path in sorted(kinds) if kinds[path]]
        keys += [Key(ENV, name) for name in differing(over.launch, under.launch)]
        return keys + sorted(_outside(self.ours) & _outside(self.theirs))

    def carry_out(self, workshop: Workshop) -> tuple[list[Record], list[Record]]:
        """Put theirs after ours. Gives the whole merged history, and those of it that ran again."""
        walk, slots, _ = self._stand(self.theirs, self.ours)
        records = [*self.common, *self.ours]
        below = [*self._bottom, *(record.layer_id for record in records)]
        again: list[Record] = []
        for slot in slots:
            assert slot.record is not None
            if walk.verdict(slot).kind == "keep":
                record = _keep(walk, slot, slot.record, workshop, below)
            else:
                record = _run_again(walk, slot.record, workshop, below)
                walk.ran(slot, record)
                again.append(record)
            records.append(record)
            below.append(record.layer_id)
        return records, again


def renumbered(records: Sequence[Record], first_free: int) -> list[Record]:
    """The records with ids that are free in another session; what they say of each other's outputs follows."""
    new: dict[str, ActionId] = {}
    number = first_free
    for record in records:
        number = max(number, int(record.id.removeprefix("a")))
        new[record.id] = ActionId(f"a{number}")
        number += 1
    if all(before == after for before, after in new.items()):
        return list(records)
    return [_renamed(record, new) for record in records]


def _renamed(record: Record, new: dict[str, ActionId]) -> Record:
    def keys(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(_renamed_key(text, new) for text in texts)

    action, footprint = record.action, record.footprint
    return replace(
        record,
        record_id=NEW,
        revision=1,
        action=replace(action, id=new[record.id], reads=keys(action.reads), writes=keys(action.writes)),
        footprint=replace(
            footprint, declared_reads=keys(footprint.declared_reads), declared_writes=keys(footprint.declared_writes)
        ),
    )


def _renamed_key(text: str, new: dict[str, ActionId]) -> str:
    key = parse_key(text)
    action, dot, part = key.name.partition(".")
    return str(Key(OUT, f"{new[action]}{dot}{part}")) if key.kind == OUT and action in new else text


def _outside(records: Iterable[Record]) -> set[Key]:
    """Declared keys of what nobody can compare."""
    keys = {parse_key(text) for record in records for text in record.footprint.declared_writes}
    return {key for key in keys if key.kind in (NET, MEM)}


def _last_writer(records: Sequence[Record], key: Key) -> str:
    """The last action that had a hand in the key: it wrote it, removed it, or took away or replaced a folder above it."""
    for record in reversed(records):
        manifest = record.layer.manifest
        if key.kind == ENV:
            if key.name in differing(record.launch, record.handoff):
                return record.id
        elif key.kind in (NET, MEM):
            if str(key) in record.footprint.declared_writes:
                return record.id
        elif key.name in manifest.paths:
            return record.id
    if key.kind in (ENV, NET, MEM) or key.name == "/":
        return ""
    return _last_writer(records, Key(ENT, key.name.rpartition("/")[0] or "/"))


def _keep(walk: Pass, slot: Slot, record: Record, workshop: Workshop, below: Sequence[LayerId]) -> Record:
    layer, launch = record.layer, walk.launch
    if not walk.raw_reusable(slot):
        layer = workshop.rematerialise(layer, walk.tree, tuple(below))
    walk.keep(slot, layer)
    if (layer.id, launch, walk.launch) == (record.layer.id, record.launch, record.handoff):
        return record
    return replace(record, record_id=NEW, layer=layer, launch=launch, handoff=walk.launch)


def _run_again(walk: Pass, record: Record, workshop: Workshop, below: Sequence[LayerId]) -> Record:
    """Run after all of ours, at its own time: in its old slot it could be older than what it is made from."""
    path = record.action.patch_path
    if path is None:
        return workshop.execute(record.action, walk.launch, tuple(below), None)
    check_patch(path, walk.tree)
    now, new, there = time.time_ns(), path not in walk.tree, frozenset((path,))
    return replace(
        record,
        record_id=NEW,
        launch=walk.launch,
        handoff=walk.launch,
        outcome=replace(record.outcome, started_ns=now, ended_ns=now),
        footprint=Footprint(
            missed=there if new else frozenset(),
            overwrote=frozenset() if new else there,
            wrote=there,
            launch_env=walk.launch.env,
            launch_cwd=walk.launch.cwd,
        ),
        layer=workshop.patch(path, workshop.content(record.layer, path), tuple(below), now),
    )
