"""Walk: the exact core of a repair, one pass over the slots of the corrected history.

Knows records, trees and changes; pure. It is told after each slot what became of it, and says of the next whether it stands.

Two states are walked side by side: the recorded one, s, and the corrected one, s'. D is the set of keys in which they differ.
*Validity*: an action is kept if and only if nothing it observed is in D. *Advance*: by a slot, only paths that its recorded or
its new layer touches can enter or leave D; each of them is compared anew. That alone gives early cut-off, the masking of a
change by a blind overwrite, and the hit of an old probe by a new path.
An action whose trace has a hole counts as having observed everything: it is kept only while nothing at all differs.

Beyond that, a plan may force actions to run again, and a unit of several actions (a group) runs again whole: its later members
by the verdict, while an earlier one that was kept before the unit was known to run makes the pass `torn`: it is then to be
begun anew, with the `units` known so far. At level 0 nothing is run for what it saw; whoever is kept all the same, is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mulligan.model.action import LaunchContext
from mulligan.model.change import Drop, Patch, Replace, Rerun
from mulligan.model.ids import ActionId, folders_above, parent
from mulligan.model.keys import DAT, DIR, ENV, OUT, SEARCH, STORED, TELLING, Key, parse_key
from mulligan.model.outputs import differing_parts
from mulligan.model.part import split_part
from mulligan.model.plan import Reason, Step
from mulligan.model.policy import DEFAULT_POLICY
from mulligan.model.tree import Tree
from mulligan.repair.contents import Contents
from mulligan.repair.dirty import Causes, Dirty
from mulligan.repair.schedule import build_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from mulligan.model.change import Change
    from mulligan.model.footprint import Footprint
    from mulligan.model.keys import KeyKind
    from mulligan.model.layer import Layer, Manifest
    from mulligan.model.policy import Policy
    from mulligan.model.record import Record
    from mulligan.repair.contents import Content, SamePart
    from mulligan.repair.dirty import SameBytes
    from mulligan.repair.schedule import Slot

    # record, name of a variable, the state that the action saw: whether it may have used the variable
    ReadsVariable = Callable[[Record, str, Tree], bool]

MAX_WITNESSES = 16
WORKING_FOLDER = "PWD"
UMASK = "=umask"  # no variable's name holds an equals sign
NOTES: dict[type[Change], str] = {Replace: "replaced", Rerun: "asked to run again", Drop: "dropped", Patch: "patched"}


class Pass:
    """One walk over a corrected history.

    Iterate it; ask `verdict(slot)`, do what it says, and tell by exactly one of `keep`, `ran` and `drop` what was done.
    `tree` and `launch` are the corrected state and what the next action is launched with.
    """

    def __init__(
        self,
        history: Sequence[Record],
        bottom: Iterable[Layer],
        changes: Iterable[Change],
        *,
        same_bytes: SameBytes,
        first_launch: LaunchContext,
        base_changed: Collection[str] = (),
        reads_variable: ReadsVariable | None = None,
        policy: Policy = DEFAULT_POLICY,
        forced: Mapping[ActionId, Reason] | None = None,
        units: Mapping[str, str] | None = None,
        content: Content | None = None,
        same_part: SamePart | None = None,
        slots: Sequence[Slot] | None = None,
    ) -> None:
        self.slots = build_schedule(history, changes) if slots is None else slots
        self.policy = policy
        self.launch = first_launch
        self.units = dict(units or {})  # those that run again -> the action by which they do
        self._forced = forced or {}
        self._kept_units: set[str] = set()
        self.torn = False
        self._same_bytes = same_bytes
        self._reads_variable = reads_variable if policy.env_reads == "lazy" else None
        self._base_changed = frozenset(base_changed)
        self._old = Tree()
        for layer in bottom:
            self._old.apply(layer.manifest, layer.id)
        self._new: Tree | None = None  # while nothing has changed, the two states are one tree
        self._contents = Contents(policy, content, same_part)
        self._dirty = Dirty(self._contents.equivalent)
        self._old_launch = history[0].launch if history else first_launch
        self._causes = Causes()
        self._set_by: dict[str, str] = {}  # launch variable -> the slot since which it differs
        self._told: dict[Key, str] = {}  # dirty keys that are no paths -> the slot since which they differ
        self.done = 0  # how many slots were told of
        asked = (n for n, slot in enumerate(self.slots) if slot.change is not None or slot.name in self._forced)
        self._last_asked = max(asked, default=-1)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots)

    @property
    def tree(self) -> Tree:
        """The corrected state so far, as the next slot finds it. To be read only."""
        return self._old if self._new is None else self._new

    @property
    def recorded_tree(self) -> Tree:
        """The recorded state that the next slot found. To be read only."""
        return self._old

    @property
    def dirty(self) -> frozenset[Key]:
        """D: the path keys in which the recorded and the corrected state differ now."""
        return self._dirty.keys()

    @property
    def differing(self) -> Dirty:
        """D by path. To be read only."""
        return self._dirty

    @property
    def told(self) -> Mapping[Key, str]:
        """Dirty keys that are no paths, each with the slot since which it differs. To be read only."""
        return self._told

    @property
    def launch_differs(self) -> bool:
        """Whether the next action is launched with something else than when it was recorded."""
        return self.launch != self._old_launch

    def passed_over(self, launch: LaunchContext) -> None:
        """Slots were left out that change nothing of what differs; the next action was launched with this, and is so now."""
        assert not self.launch_differs, self._set_by
        self.launch = self._old_launch = launch

    def recall(self, known: Tree, paths: Collection[str], roots: Collection[str]) -> None:
        """After slots were left out: at these paths, and all below `roots`, both states are what `known` is.

        Except where they differ: there they are right already.
        """
        ends = {path for path in paths if (node := known.get(path)) is None or node.kind != "dir"}.union(roots)
        for tree in (self._old,) if self._new is None else (self._old, self._new):
            stale = {below for path in ends for below, _ in tree.walk(path) if below not in known}
            for path in sorted(stale, reverse=True):
                if not self._dirty.kinds(path):
                    tree.place(path, None)
            for path in sorted(paths):
                if (node := known.get(path)) is not None and not self._dirty.kinds(path):
                    tree.place(path, node)

    @property
    def clean(self) -> bool:
        """Whether nothing at all differs that a later action could see."""
        return not self._dirty and not self._told and not self._base_changed and self.launch == self._old_launch

    def rest_is_kept(self, slot: Slot) -> bool:
        """Whether this slot and all after it may be kept wholesale: nothing differs, and no change is still to come."""
        assert self.slots[self.done] is slot, (self.done, slot.name)
        return self.clean and not self._dirty.loose and not self.units and self._last_asked < self.done

    @property
    def more_to_do(self) -> bool:
        """Whether a slot after the next one may run again, by what is known now."""
        return self._last_asked > self.done or bool(self.units) or not self.clean

    @property
    def difference(self) -> Dirty:
        """D as it stands, by path. To be read only."""
        return self._dirty

    def reasons_ahead(self, slot: Slot) -> list[Reason]:
        """Why a later slot of an action would run again if it came next. Slots between may take some of the reasons away."""
        assert slot.record is not None, slot
        if slot.change is not None:
            return [Reason("changed")]
        forced = self._reason_to_force(slot.record.id, slot.record)
        if forced is not None:
            return [forced]
        return self._witnesses(slot.record, ahead=True) if self.policy.level > 0 else []

    def verdict(self, slot: Slot) -> Step:
        """Keep, must_rerun or drop, with witnesses. For an inserted patch, must_rerun: its layer is to be made."""
        assert self.slots[self.done] is slot, (self.done, slot.name)
        name = ActionId(slot.name)
        if slot.change is not None:
            step = self._changed(slot, slot.change)
        else:
            assert slot.record is not None, slot
            step = self._judged(name, slot.record)
        if slot.record is not None:
            self._tell_units(slot.record, step)
        return step

    def force(self, record: Record, step: Step) -> Step:
        """The plan has the record run again, against the verdict: the units it belongs to do as well. Gives the step."""
        self._tell_units(record, step)
        return step

    def _changed(self, slot: Slot, change: Change) -> Step:
        because = [Reason("changed", note=NOTES[type(change)])]
        if isinstance(change, Rerun) and slot.record is not None:
            because += self._witnesses(slot.record)  # whether it runs on what it saw before
        return Step(ActionId(slot.name), "drop" if isinstance(change, Drop) else "must_rerun", tuple(because[:MAX_WITNESSES]))

    def _judged(self, name: ActionId, record: Record) -> Step:
        because = self._witnesses(record)
        forced = self._reason_to_force(name, record)
        if self.policy.level == 0 and forced is None:
            misfit = find_misfit(record.layer.manifest, self.tree) if because else ""
            if not misfit:
                return Step(name, "keep", tuple(because[:MAX_WITNESSES]))
            because = [Reason("misfit", note=misfit)]
        if not because and forced is not None:
            because = [forced]
        return Step(name, "must_rerun" if because else "keep", tuple(because[:MAX_WITNESSES]))

    def _reason_to_force(self, name: ActionId, record: Record) -> Reason | None:
        """Why an action runs again although nothing it saw differs; None when it need not."""
        if record.action.kind != "run":
            return None
        unit = next((unit for unit in self.policy.units(record.action) if unit in self.units), None)
        return self._forced.get(name) or (unit_reason(unit, self.units[unit], name) if unit is not None else None)

    def _tell_units(self, record: Record, step: Step) -> None:
        for unit in self.policy.units(record.action):
            if step.kind == "keep":
                self._kept_units.add(unit)
            elif unit not in self.units:
                self.units[unit] = record.id
                self.torn = self.torn or unit in self._kept_units

    def raw_reusable(self, slot: Slot) -> bool:
        """Whether the slot's recorded layer may stand on the corrected state as it lies on disk.

        It may not when something that it only inherited, by copy-up, is of another value there: a parent folder's mode, the
        content of a file that it gave another mode. Then it is to be made again from its manifest. Ask before `keep`.
        """
        assert slot.record is not None, slot
        manifest = slot.record.layer.manifest
        if self.policy.level == 0 and self._dirty:  # it may have been kept over any difference
            spoken = manifest.paths | folders_above(manifest.paths)
            if any(path in spoken for path in self._dirty):
                return False
        return stands_raw(manifest, self._dirty)

    def keep(self, slot: Slot, layer: Layer | None = None) -> frozenset[str]:
        """The slot's record stands. `layer` is what was made of its layer when that was not raw-reusable.

        Gives the paths that the layer touches.
        """
        record = slot.record
        assert record is not None, slot
        if layer is not None and layer.id != record.layer.id:
            self._fork()
        else:
            layer = record.layer
        touched = set(self._old.apply(record.layer.manifest, record.layer.id))
        if self._new is not None:
            touched |= self._new.apply(layer.manifest, layer.id)
            self._compare(touched, slot.name, ())
        self._hand_on(slot, record, rebased(self.launch, record))
        return frozenset(touched)

    def ran(self, slot: Slot, record: Record) -> None:
        """The slot was run again, or its patch was made: `record` is what stands there now."""
        layers = [record.layer]
        touched = set(self._fork().apply(record.layer.manifest, record.layer.id))
        if slot.record is not None:
            layers.append(slot.record.layer)
            touched |= self._old.apply(slot.record.layer.manifest, slot.record.layer.id)
            self._compare_told(slot.record, record)
        self._compare(touched, slot.name, layers)
        self._hand_on(slot, slot.record, record.handoff if record.action.kind == "run" else self.launch)

    def patched(self, slot: Slot, layer: Layer) -> None:
        """A patch stands in its slot, told by its layer alone."""
        touched = self._fork().apply(layer.manifest, layer.id)
        self._compare(touched, slot.name, [layer])
        self._hand_on(slot, slot.record, self.launch)

    def inserted(self, record: Record) -> frozenset[str]:
        """An action that the recorded history does not have stood here, before the next slot. Gives the paths it touches."""
        touched = self._fork().apply(record.layer.manifest, record.layer.id)
        self._compare(touched, record.id, [record.layer])
        keys = (parse_key(text) for text in record.footprint.declared_writes)
        self._told.update((key, record.id) for key in keys if key.kind in ("net", "mem"))
        self._launch_with(record.handoff if record.action.kind == "run" else self.launch, record.id)
        return touched

    def drop(self, slot: Slot) -> None:
        """The slot's action never ran."""
        assert slot.record is not None, slot
        self._fork()
        touched = self._old.apply(slot.record.layer.manifest, slot.record.layer.id)
        self._compare_told(slot.record, None)
        self._compare(touched, slot.name, [slot.record.layer])
        self._hand_on(slot, slot.record, self.launch)

    def _fork(self) -> Tree:
        if self._new is None:
            self._new = self._old.copy()
        return self._new

    def _compare(self, touched: Collection[str], name: str, changed: Sequence[Layer]) -> None:
        """Advance: let the touched paths enter or leave D. `changed`: the layers in which the two histories differ here."""
        self._dirty.compare(touched, self._old, self.tree, self._same_bytes)
        for path in touched:
            wrote: frozenset[KeyKind] = frozenset()
            for layer in changed:
                entry = layer.manifest.entries.get(path)
                wrote |= entry.sets() if entry is not None else STORED if path in layer.manifest.removed else frozenset()
            self._causes.note(path, self._dirty.kinds(path), wrote, name)

    def _compare_told(self, old: Record, new: Record | None) -> None:
        """Advance for what is no path: the outcome, and keys declared as written, which nobody can compare."""
        self._told.update((Key(OUT, old.id + part), old.id) for part in differing_parts(old, new, self._contents.equality))
        for text in {*old.footprint.declared_writes, *(new.footprint.declared_writes if new is not None else ())}:
            if (declared := parse_key(text)).kind in ("net", "mem"):
                self._told[declared] = old.id

    def _hand_on(self, slot: Slot, old: Record | None, launch: LaunchContext) -> None:
        if old is not None and old.action.kind == "run":
            self._old_launch = old.handoff
        self._launch_with(launch, slot.name)
        self.done += 1

    def _launch_with(self, launch: LaunchContext, by: str) -> None:
        self.launch = launch
        names = set(differing(self._old_launch, launch))
        self._set_by = {name: since for name, since in self._set_by.items() if name in names}
        for name in names:
            self._set_by.setdefault(name, by)

    def reads(self, record: Record, name: str, saw: Tree | None = None) -> bool:
        """Whether an action counts as having read this part of its launch context; it saw the present state, or `saw`."""
        if name == UMASK or self._surely_reads(record, name) or self._reads_variable is None:
            return self._surely_reads(record, name)
        return self._reads_variable(record, name, self._old if saw is None else saw)

    def _surely_reads(self, record: Record, name: str) -> bool:
        """The same as far as it can be told without the state that the action saw."""
        if name == UMASK and record.footprint.complete and self.policy.env_reads == "lazy":
            return record.footprint.uses_umask
        if name in (WORKING_FOLDER, UMASK) or self._reads_variable is None:
            return True
        return str(Key(ENV, name)) in record.footprint.declared_reads

    def _witnesses(self, record: Record, *, ahead: bool = False) -> list[Reason]:
        """Why the record does not stand, if so: each observation of it that differs, the most telling first.

        `ahead`: it is not the next one's, so the state that it saw is not at hand.
        """
        reads = self._surely_reads if ahead else self.reads
        because = [
            Reason("launch", str(Key(ENV, name)), self._set_by.get(name, "base"))
            for name in launch_differences(record, self.launch)
            if reads(record, name)
        ]
        footprint = record.footprint
        if not footprint.complete and not self.clean:
            because.append(Reason("incomplete", note=f"its trace has a hole ({footprint.incomplete_because[0]})"))
        waived, parts = self._contents.refined(record, self._dirty, self._old, self.tree)
        hits = self._dirty.hits(footprint, self._old, lambda path: self._search_differs(path, footprint), waived=waived)
        hits.sort(key=lambda key: (TELLING.index(key.kind), key.name))
        because += [Reason("read_changed", str(key), self._source(key)) for key in hits]
        because += [Reason("declared", str(part), self._source(Key(DAT, part.path))) for part in parts]
        because += [Reason("declared", str(key), self._source(key)) for key in self._declared(footprint)]
        if self._base_changed:
            because += _base_witnesses(footprint, self._base_changed)
        return because

    def _declared(self, footprint: Footprint) -> list[Key]:
        """Declared inputs that differ. A declared variable is an input like every launch variable, and judged there."""
        keys = (parse_key(text) for text in footprint.declared_reads)
        return [key for key in keys if split_part(key) is None and self._declared_differs(key, footprint)]

    def _declared_differs(self, key: Key, footprint: Footprint) -> bool:
        if key.kind in ("env", "net", "out", "mem"):
            return key in self._told
        if key.kind == DIR:
            return self._dirty.listing(key.name)
        return key.kind in self._dirty.kinds(key.name) or (key.kind == SEARCH and self._search_differs(key.name, footprint))

    def _search_differs(self, path: str, footprint: Footprint) -> bool:
        key = Key(SEARCH, path)
        return self._old.value(key, footprint.principal) != self.tree.value(key, footprint.principal)

    def _source(self, key: Key) -> str:
        if key.kind in ("env", "net", "out", "mem"):
            return self._told.get(key, "")
        return self._causes.of(key, self._dirty)


def unit_reason(unit: str, by: str, member: str) -> Reason:
    """Why a member of a unit runs again."""
    if by == member:
        return Reason("group", note=f"its group runs again, {unit}")
    return Reason("group", source=by, note=f"runs again as one, {unit}")


def find_misfit(manifest: Manifest, tree: Tree) -> str:
    """What keeps a layer from standing on a state that it was not made for, as a sentence; empty when it can."""
    made: set[str] = set()
    for path, entry in sorted(manifest.entries.items()):
        folder, below = parent(path), tree.get(path)
        above = tree.get(folder)
        if folder not in made and (above is None or above.kind != "dir"):
            return f"it writes into {folder}, which is no folder there"
        if not entry.made and (below is None or below.kind != entry.kind):
            return f"it changed a part of {path}, which is not there"
        if entry.kind == "dir":
            made.add(path)
    return ""


def stands_raw(manifest: Manifest, dirty: Dirty) -> bool:
    """Whether a layer carries nothing along from below that is dirty."""
    entries = manifest.entries
    if (entries or manifest.removed) and "/" not in entries and dirty.kinds("/"):
        return False  # the upper directory itself has the attributes of "/" as they were
    paths = (*dirty, *dirty.loose)
    if len(entries) <= len(paths):
        return not any(entry.inherits() & dirty.on_disk(path) for path, entry in entries.items())
    return not any(entries[path].inherits() & dirty.on_disk(path) for path in paths if path in entries)


def launch_differences(record: Record, now: LaunchContext) -> list[str]:
    """The launch variables that differ now and that the action may have relied on; PWD is the working folder, =umask the umask.

    What was set for the action alone hides what it would have been launched with, unless it may have handed that on: a shell
    that sets a variable, or goes to a folder, to the very value it had before tells nothing by it.
    """
    action, launch = record.action, record.launch
    if action.kind != "run":
        return []
    hidden = set(action.env) if action.shell is None else set()
    went = record.footprint.probed | record.footprint.stats | record.footprint.wrote
    if (action.cwd or "").startswith("/") and (action.shell is None or launch.cwd not in went):
        hidden.add(WORKING_FOLDER)
    return [name for name in differing(launch, now) if name not in hidden]


def differing(a: LaunchContext, b: LaunchContext) -> list[str]:
    """The variables in which two launch contexts differ; PWD is the working folder."""
    env_a: Mapping[str, str] = a.env
    env_b: Mapping[str, str] = b.env
    names = [name for name in sorted(env_a.keys() | env_b.keys()) if env_a.get(name) != env_b.get(name)]
    names += [WORKING_FOLDER] if a.cwd != b.cwd else []
    return names if a.umask == b.umask else [*names, UMASK]


def rebased(launch: LaunchContext, record: Record) -> LaunchContext:
    """What a kept action hands on: what it handed on when recorded, or the same changes to another launch context."""
    if record.action.kind != "run":
        return launch
    if launch == record.launch:
        return record.handoff
    before, after = record.launch, record.handoff
    env = {name: value for name, value in launch.env.items() if name in after.env or name not in before.env}
    env |= {name: value for name, value in after.env.items() if before.env.get(name) != value}
    cwd = launch.cwd if before.cwd == after.cwd else after.cwd
    return LaunchContext(env, cwd, launch.umask if before.umask == after.umask else after.umask)


def _base_witnesses(footprint: Footprint, changed: frozenset[str]) -> list[Reason]:
    found: dict[str, Key] = {}
    for paths, kinds in footprint.sets():
        for path in paths & changed:
            key = min((Key(kind, path) for kind in kinds if kind != "ent"), default=Key("ent", path))
            found.setdefault(path, key)
    return [Reason("base_changed", str(found[path]), "base") for path in sorted(found)]
