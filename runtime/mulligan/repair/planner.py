"""Planner: the dry run. Which actions a repair would keep, run again or drop, and why, before anything has run.

Knows records, trees and changes; pure. It walks the same `Pass` as a replay does, and guesses one thing only: that an action
which runs again writes the same paths as before. Whether it gives them other values is not known, so what it wrote is *maybe*
dirty, and whoever relied on that may run again. What a drop or a patch changes is known exactly: whoever relied on that must.
An action that is replaced may of course write something new; a kept action that turns out to rely on it runs again, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mulligan.errors import UsageError
from mulligan.model.change import Patch
from mulligan.model.ids import LayerId, parent
from mulligan.model.keys import DAT, ENT, ENV, MTIME, OUT, TELLING, Key, parse_key
from mulligan.model.layer import Entry, Layer, Manifest
from mulligan.model.outputs import writer_of
from mulligan.model.plan import FORCING, Plan, Reason, Step
from mulligan.model.policy import DEFAULT_POLICY
from mulligan.model.tree import touched_kinds
from mulligan.repair.dirty import Causes, Dirty
from mulligan.repair.hints import find_hints
from mulligan.repair.schedule import patch_path
from mulligan.repair.walk import MAX_WITNESSES, UMASK, WORKING_FOLDER, Pass, unit_reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mulligan.model.action import LaunchContext
    from mulligan.model.change import Change
    from mulligan.model.hint import Hint
    from mulligan.model.ids import ActionId
    from mulligan.model.policy import Policy
    from mulligan.model.record import Record
    from mulligan.model.tree import Tree
    from mulligan.repair.contents import Content, SamePart
    from mulligan.repair.dirty import SameBytes
    from mulligan.repair.origins import Origins
    from mulligan.repair.schedule import Slot
    from mulligan.repair.walk import ReadsVariable

__all__ = ["Pass", "build_plan"]

PATCH_LAYER = LayerId("patch")  # stands for the layers of patches, which do not exist yet


def build_plan(
    history: Sequence[Record],
    bottom: Iterable[Layer],
    changes: Sequence[Change],
    *,
    same_bytes: SameBytes,
    first_launch: LaunchContext,
    base_changed: Collection[str] = (),
    reads_variable: ReadsVariable | None = None,
    session: str = "",
    head: int = 0,
    policy: Policy = DEFAULT_POLICY,
    content: Content | None = None,
    same_part: SamePart | None = None,
) -> Plan:
    """What these changes would do to each action of the history. Inserted patches have no step: they are among `changes`.

    Raises NotFoundError for an action that does not exist, UsageError for changes that contradict each other.
    """
    layers, units, maybe = tuple(bottom), dict[str, str](), dict[str, str]()
    by_target: dict[ActionId, list[Hint]] = {}
    for hint in find_hints(history) if policy.level == 3 else ():  # noqa: PLR2004 - the levels are documented with Policy
        by_target.setdefault(hint.target, []).append(hint)
    while True:
        walk = Pass(
            history,
            layers,
            changes,
            same_bytes=with_patches(same_bytes),
            first_launch=first_launch,
            base_changed=base_changed,
            reads_variable=reads_variable,
            policy=policy,
            units=units,
            content=with_patched(content, changes),
            same_part=same_part,
        )
        forecast = Forecast(walk, maybe, by_target)
        steps = [step for slot in walk if (step := forecast.step(slot)) is not None]
        if not walk.torn and not forecast.torn:
            return Plan(session, head, tuple(changes), tuple(steps), policy, _open_hints(history, steps))
        units, maybe = walk.units, forecast.units


def _open_hints(history: Sequence[Record], steps: Sequence[Step]) -> tuple[Hint, ...]:
    """The hints that kept actions may hang on actions that run again or are dropped."""
    kinds = {step.action: step.kind for step in steps}
    running = {action for action, kind in kinds.items() if kind != "keep"}
    if not running or len(running) == len(steps):
        return ()
    return tuple(hint for hint in find_hints(history, running) if kinds[hint.target] == "keep")


def hint_reason(hint: Hint) -> Reason:
    """Why level 3 runs the target of a hint again."""
    note = f"its {hint.place} holds {hint.token!r} (confidence {hint.confidence:.2f}), put out in"
    return Reason("hint", str(hint.key), hint.source, note)


def with_patched(content: Content | None, changes: Iterable[Change]) -> Content:
    """The contents of files, those of patches included."""
    patched = {patch_path(change): change.value for change in changes if isinstance(change, Patch)}

    def read(layer: LayerId, path: str) -> bytes:
        return content(layer, path) if content is not None and layer != PATCH_LAYER else patched[path]

    return read


def with_patches(same_bytes: SameBytes) -> SameBytes:
    """The same comparison for patches, which have no layer yet."""

    def same(layer: LayerId, path: str, other: LayerId, at: str) -> bool:
        return PATCH_LAYER not in (layer, other) and same_bytes(layer, path, other, at)

    return same


def check_patch(path: str, tree: Tree) -> None:
    """Whether a file can stand at the path in this state. Raises UsageError when it can't."""
    node, folder = tree.get(path), tree.get(parent(path))
    if node is not None and node.kind != "file":
        what = {"dir": "a folder", "link": "a symbolic link"}.get(node.kind, "no regular file")
        raise UsageError(f"patch {path!r}: there is {what} at that point of the history")
    if folder is None or folder.kind != "dir":
        raise UsageError(
            f"patch {path!r}: its folder does not exist at that point of the history, or is a read-only one of the base",
            remedy="name the action after which the patch is to stand",
        )


class Forecast:
    """A walk in which every action that would run again is taken to write what it wrote, of values not known."""

    def __init__(
        self, walk: Pass, units: Mapping[str, str], hints: Mapping[ActionId, Sequence[Hint]], origins: Origins | None = None
    ) -> None:
        self._walk = walk
        self._origins = origins  # of a sparse walk, by which the states are made right where they are needed
        self.place = 0  # of a sparse walk: where in the history the slot is
        self.units = dict(units)  # those that may run again -> the action by which they may
        self.torn = False
        self._kept_units: set[str] = set()
        self._begun = False  # whether an action was changed, or runs again, already
        self._running: set[ActionId] = set()
        self._hints = hints
        self.maybe = Dirty()
        self._causes = Causes()
        self._env_told = False
        self.told: dict[Key, str] = {}  # variables, outcomes and declared keys of actions that run again

    def step(self, slot: Slot) -> Step | None:
        """The step of this slot; None for a patch."""
        if slot.record is None:
            self._begun = True
            self._patch(slot)
            return None
        if self._origins is not None and (self.launch_may_differ or slot.record.launch != self._walk.launch):
            self._recall_seen(self._origins, slot.record)
        step = self._judged(self._walk.verdict(slot), slot.record)
        if step.kind != "keep":
            self._begun = True
            self._running.add(step.action)
            self._recall(slot.record.layer.manifest, self.place)
        if step.kind == "drop":
            self._walk.drop(slot)
            return step
        if step.kind == "keep":
            self._settle(slot.record.layer.manifest)
        touched = self._walk.keep(slot)
        if step.kind != "keep":
            self._mark(slot.record, touched)
        return step

    def _judged(self, step: Step, record: Record) -> Step:
        """The step with what may be, and with what the policy's level asks for."""
        level = self._walk.policy.level
        if step.kind == "keep":
            because = self._witnesses(record)
            if level == 0:
                return replace(step, because=(*step.because, *because)[:MAX_WITNESSES])
            unit = next((unit for unit in self._walk.policy.units(record.action) if unit in self.units), None)
            if not because and unit is not None and record.action.kind == "run":
                because = [unit_reason(unit, self.units[unit], record.id)]
            forced = self._reason_to_force(record, because)
            if forced is not None:
                step = self._walk.force(record, Step(step.action, "must_rerun", (forced, *because)[:MAX_WITNESSES]))
            elif because:
                step = Step(step.action, "may_rerun", tuple(because[:MAX_WITNESSES]))
        elif step.kind == "must_rerun" and step.because[0].kind != "changed":
            forced = self._reason_to_force(record, step.because)  # a replay before it may yet give what it saw
            step = step if forced is None else replace(step, because=(*step.because[: MAX_WITNESSES - 1], forced))
        if step.because and step.because[0].kind in FORCING:  # what it also saw is more telling than that it is forced
            step = replace(step, because=(*step.because, *self._more(record, step))[:MAX_WITNESSES])
        self._tell_units(record, step)
        return step

    def _more(self, record: Record, step: Step) -> list[Reason]:
        return [reason for reason in self._witnesses(record) if reason not in step.because]

    def _reason_to_force(self, record: Record, because: Sequence[Reason]) -> Reason | None:
        level = self._walk.policy.level
        if record.action.kind != "run":
            return None
        hint = next((hint for hint in self._hints.get(record.id, ()) if hint.source in self._running), None)
        if level == 4 and self._begun:  # noqa: PLR2004 - the levels are documented with Policy
            return Reason("level", note="level 4 runs all again from the first change on")
        if level >= 2 and because:  # noqa: PLR2004
            return Reason("level", note=f"level {level} runs it again")
        return hint_reason(hint) if level == 3 and hint is not None else None  # noqa: PLR2004

    def _tell_units(self, record: Record, step: Step) -> None:
        for unit in self._walk.policy.units(record.action):
            if step.kind == "keep":
                self._kept_units.add(unit)
            elif step.kind == "may_rerun" and unit not in self.units:
                self.units[unit] = record.id
                self.torn = self.torn or unit in self._kept_units

    def _witnesses(self, record: Record) -> list[Reason]:
        """What the action relied on that an action running again wrote."""
        footprint = record.footprint
        because = []
        if not footprint.complete and (self.maybe or self.told):
            because.append(Reason("incomplete", note=f"its trace has a hole ({footprint.incomplete_because[0]})"))
        hits = self.maybe.hits(footprint, self._walk.recorded_tree, lambda _: True, exact=False)
        hits.sort(key=lambda key: (TELLING.index(key.kind), key.name))
        because += [Reason("reads_rewritten", str(key), self._causes.of(key, self.maybe)) for key in hits]
        if not self.told:
            return because
        if record.action.kind == "run":
            hidden = record.action.env if record.action.shell is None else {}
            keys = sorted(key for key in self.told if key.kind == ENV and key.name not in hidden)
            told = [key for key in keys if self._walk.reads(record, key.name)]
            because += [Reason("launch", str(key), self.told[key]) for key in told]
        for key in map(parse_key, footprint.declared_reads):
            whole = Key(OUT, writer_of(key.name)) if key.kind == OUT else key
            if whole in self.told and key.kind != ENV:
                because.append(Reason("declared", str(key), self.told[whole]))
        return because

    def _mark(self, record: Record, touched: frozenset[str]) -> None:
        """The action runs again: all that it did may come out otherwise."""
        entries = record.layer.manifest.entries
        for path in touched:
            entry = entries.get(path)
            kinds = entry.sets() if entry is not None else touched_kinds(path, self._walk.tree)
            if kinds:
                self.maybe.mark(path, kinds)
                self._causes.note(path, self.maybe.kinds(path), kinds, record.id)
        self.told[Key(OUT, record.id)] = record.id
        for name in {*record.launch.env, *record.handoff.env}:
            if record.launch.env.get(name) != record.handoff.env.get(name):
                self.told[Key(ENV, name)] = record.id
        if record.launch.cwd != record.handoff.cwd:
            self.told[Key(ENV, WORKING_FOLDER)] = record.id
        if record.launch.umask != record.handoff.umask:
            self.told[Key(ENV, UMASK)] = record.id
        self._env_told = self._env_told or record.launch != record.handoff
        for key in map(parse_key, record.footprint.declared_writes):
            self.told[key] = record.id
            self._env_told = self._env_told or key.kind == ENV

    def _recall(self, manifest: Manifest, place: int) -> None:
        """A layer is going to make a difference: the states must be right wherever it reaches, although slots were left out."""
        if self._origins is None:
            return
        roots = {path for path, entry in manifest.entries.items() if entry.kind != "dir" or entry.opaque} | manifest.removed
        known, paths = self._origins.at(place, manifest.paths, roots)
        self._walk.recall(known, paths, roots)

    def _recall_seen(self, origins: Origins, record: Record) -> None:
        """Whether the action read a variable is looked up in the files that it read."""
        known, paths = origins.at(self.place, record.footprint.saw | record.footprint.executed, ())
        self._walk.recall(known, paths, ())

    @property
    def launch_may_differ(self) -> bool:
        """Whether an action may be launched with something else than when it was recorded."""
        return self._env_told or self._walk.launch_differs

    def _settle(self, manifest: Manifest) -> None:
        """A kept action's layer stands: what it sets outright is known again, whoever wrote it before."""
        if not self.maybe:
            return
        for path in manifest.removed:
            self.maybe.clear(path)
        for path, entry in manifest.entries.items():
            self.maybe.clear(path, entry.sets() | {ENT})
        replaced = {path for path, entry in manifest.entries.items() if entry.opaque or (entry.made and entry.kind != "dir")}
        self.maybe.clear_below(manifest.removed | replaced)

    def _patch(self, slot: Slot) -> None:
        """A patch of another size certainly differs; one of the same size may be what is there already."""
        assert isinstance(slot.change, Patch), slot
        path, value = patch_path(slot.change), slot.change.value
        self._recall(Manifest({path: Entry("file")}), self.place + 1)
        node = self._walk.tree.get(path)
        check_patch(path, self._walk.tree)
        if node is not None and node.size == len(value):
            self.maybe.mark(path, frozenset((DAT, MTIME)))
            self._causes.note(path, self.maybe.kinds(path), frozenset((DAT, MTIME)), slot.name)
        inherits = node is not None
        entry = Entry(
            "file", size=len(value), made=not inherits, inherit_mode=inherits, inherit_mtime=inherits, inherit_xattrs=inherits
        )
        if node is not None and node.size == len(value):
            entry = replace(entry, inherit_content=True)
        self._walk.patched(slot, Layer(PATCH_LAYER, Manifest({path: entry})))
