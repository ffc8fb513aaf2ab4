"""Foresight: which later slots will certainly run again, on what state to begin them early, and whether that came true.

Knows the walk, records and trees; pure. A replay that is begun before its turn stands on an *assumed* state: the corrected one
where the walk stands now, with the recorded layers of the slots between laid on it. When its turn comes, what it observed there
is held against the corrected state as a recorded action is held against it: `check` is the walk's rule of validity, with the
assumed state in place of the recorded one. So a wrong guess costs time and never a result.

What is begun early is to be needed and to come true. So a slot must be certain to run again: a change names it, or it observed
what differs now and what no slot between sets. And it must not have observed what a slot between wrote that runs again itself,
or may do so: it would stand on that one's old output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.model.change import Drop
from mulligan.model.ids import parent, prefixes
from mulligan.model.keys import DIR, ENT, MODE, SEARCH, STORED, XATTR, Key, parse_key
from mulligan.repair.dirty import Dirty
from mulligan.repair.walk import differing, launch_differences, rebased, stands_raw

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from mulligan.model.action import LaunchContext
    from mulligan.model.footprint import Footprint
    from mulligan.model.keys import KeyKind
    from mulligan.model.layer import Layer, Manifest
    from mulligan.model.plan import Reason
    from mulligan.model.record import Record
    from mulligan.model.tree import Tree
    from mulligan.repair.dirty import SameBytes
    from mulligan.repair.schedule import Slot
    from mulligan.repair.walk import Pass

HORIZON = 512  # slots that are looked at from where the walk stands


@dataclass(frozen=True, slots=True)
class Guess:
    """The state that a slot is taken to begin with: `tree`, the corrected one at slot `made_at`, and `between` laid on it."""

    number: int
    slot: Slot
    made_at: int
    tree: Tree
    between: tuple[Layer, ...]
    launch: LaunchContext


def foresee(walk: Pass, begun: Collection[int], most: int) -> list[Guess]:
    """Guesses for at most `most` slots after the next one, in order, without those that were begun already."""
    if most <= 0 or not walk.more_to_do:
        return []
    ahead = _Ahead(walk)
    found: list[Guess] = []
    tree: Tree | None = None
    for number, slot in enumerate(walk.slots[walk.done : walk.done + HORIZON], walk.done):
        runs, ready = ahead.judge(slot)
        if ready and number > walk.done and number not in begun:
            tree = tree or walk.tree.copy()
            found.append(Guess(number, slot, walk.done, tree, tuple(ahead.between), ahead.launch))
        if len(found) == most or not ahead.pass_by(slot, runs=runs):
            break
    return found


def check(walk: Pass, guess: Guess, record: Record, laid: Sequence[Layer], same_bytes: SameBytes) -> bool | None:
    """Whether a replay that was begun on a guess did what it does on the corrected state, where the walk is at its slot now.

    `laid` are the layers that the slots since the guess really left. None when it observed something that is otherwise; else
    whether its layer may stand there as it lies on disk.
    """
    assumed, differ = guess.tree.copy(), Dirty()
    if [layer.id for layer in guess.between] != [layer.id for layer in laid]:
        real = assumed.copy()
        touched = _lay(assumed, guess.between) | _lay(real, laid)
        differ.compare(touched, assumed, walk.tree, same_bytes)
    else:
        _lay(assumed, laid)
    if any(walk.reads(record, name, assumed) for name in launch_differences(record, walk.launch)):
        return None
    footprint = record.footprint
    if not footprint.complete and (differ or walk.launch != record.launch):
        return None

    def search_differs(path: str) -> bool:
        key = Key(SEARCH, path)
        return assumed.value(key, footprint.principal) != walk.tree.value(key, footprint.principal)

    if differ.hits(footprint, assumed, search_differs) or any(_declared(footprint, differ)):
        return None
    return stands_raw(record.layer.manifest, differ)


def _lay(tree: Tree, layers: Iterable[Layer]) -> set[str]:
    return {path for layer in layers for path in tree.apply(layer.manifest, layer.id)}


def _declared(footprint: Footprint, differ: Dirty) -> Iterator[bool]:
    for key in map(parse_key, footprint.declared_reads):
        yield differ.listing(key.name) if key.kind == DIR else bool(differ.kinds(key.name))


class _Written:
    """Keys that slots on the way set or may set."""

    def __init__(self) -> None:
        self._kinds: dict[str, frozenset[KeyKind]] = {}
        self._listed: set[str] = set()  # folders that got or lost a name
        self._replaced: set[str] = set()  # what lay below these is gone

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def add(self, manifest: Manifest, only: Dirty | None = None) -> None:
        """What a layer sets; of paths, only these matter."""
        for path in manifest.removed:
            self._set(path, STORED)
            self._replaced.add(path)
        paths = manifest.entries.keys() if only is None or len(only) > len(manifest.entries) else only
        for path in paths:
            if (entry := manifest.entries.get(path)) is not None:
                self._set(path, entry.sets())
                if entry.opaque or (entry.made and entry.kind != "dir"):
                    self._replaced.add(path)

    def _set(self, path: str, kinds: frozenset[KeyKind]) -> None:
        self._kinds[path] = self._kinds.get(path, frozenset()) | kinds
        if ENT in kinds:
            self._listed.add(parent(path))

    def has(self, key: Key) -> bool:
        """Whether the key may have another value because of them."""
        if key.kind == DIR:
            return key.name in self._listed
        kinds = self._kinds.get(key.name, frozenset())
        if key.kind in kinds or (key.kind == SEARCH and kinds & {ENT, MODE, XATTR}):
            return True
        return bool(self._replaced) and any(above in self._replaced for above in prefixes(key.name))

    def observed(self, footprint: Footprint) -> bool:
        """Whether the action observed any of it."""
        if not self._kinds:
            return False
        if not footprint.complete or not self._listed.isdisjoint(footprint.listed):
            return True
        return any(
            self.has(Key(kind, path))
            for paths, kinds in footprint.sets()
            for path in paths & self._kinds.keys()
            for kind in kinds
        )

    def inherited(self, manifest: Manifest) -> bool:
        """Whether a layer carries any of it along from below."""
        entries = manifest.entries
        paths = self._kinds.keys() & entries.keys()
        return any(entries[path].inherits() & self._kinds[path] for path in paths)


class _Ahead:
    """What is known of the slots from where the walk stands on, one after the other."""

    def __init__(self, walk: Pass) -> None:
        self._walk = walk
        self.launch = walk.launch
        self.between: list[Layer] = []
        self._unsettled = _Written()  # by slots that run again, or may
        self._settled = _Written()  # of what differs now, what has been set since
        self._dropped = _Written()
        self._handed_on: set[str] = set()  # launch variables that slots on the way set

    def judge(self, slot: Slot) -> tuple[bool, bool]:
        """Whether the slot may run again, and whether it certainly does and can be expected to find the assumed state."""
        record = slot.record
        if record is None or isinstance(slot.change, Drop):
            return False, False
        hit = self._unsettled.observed(record.footprint)
        certain = any(self._stays(reason) for reason in self._walk.reasons_ahead(slot))
        may = certain or hit or bool(launch_differences(record, self.launch))
        return may, certain and not hit and record.action.kind == "run"

    def _stays(self, reason: Reason) -> bool:
        """Whether no slot on the way can take this reason away."""
        if reason.kind == "read_changed":
            return not self._settled.has(parse_key(reason.key))
        if reason.kind == "launch":
            return parse_key(reason.key).name not in self._handed_on
        return reason.kind != "incomplete" or not self._settled

    def pass_by(self, slot: Slot, *, runs: bool) -> bool:
        """Lay the slot's recorded layer on the assumed state; False when nobody can tell how things stand after it."""
        record = slot.record
        if record is None:
            return False  # a patch, which is soon made
        manifest = record.layer.manifest
        if isinstance(slot.change, Drop):
            self._dropped.add(manifest)
            self._unsettled.add(manifest)
            return True
        hands_on = launch_changes(record)
        if (runs and (hands_on or record.action.kind != "run")) or self._dropped.inherited(manifest):
            return False
        if not self._walk.raw_reusable(slot):
            return False
        if runs:
            self._unsettled.add(manifest)
        self._settled.add(manifest, self._walk.difference)
        self._handed_on.update(hands_on)
        self.launch = rebased(self.launch, record)
        self.between.append(record.layer)
        return True


def launch_changes(record: Record) -> list[str]:
    """The launch variables that an action set or removed for those after it."""
    return [] if record.launch == record.handoff else differing(record.launch, record.handoff)
