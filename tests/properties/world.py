"""A session on the model machine: records folded from its facts, a repair that carries a `Pass` out, and the full serial oracle.

What the real thing does with layers on disk is done here with the machine's: a kept layer is laid raw when the pass says that
it may be, and else made again from its manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import machine
from machine import Inode, Op, Run, Sealed, State

from mulligan.model.action import Action, LaunchContext, Outcome
from mulligan.model.change import Change, Drop, Patch, Replace
from mulligan.model.events import Event
from mulligan.model.fold import check_writes, fold_footprint, fold_manifest
from mulligan.model.ids import ActionId, LayerId, RecordId
from mulligan.model.layer import Layer, Manifest
from mulligan.model.plan import Plan, Step
from mulligan.model.policy import DEFAULT_POLICY, Policy
from mulligan.model.record import Record
from mulligan.repair.planner import Pass, build_plan
from mulligan.repair.schedule import Slot, patch_path

Program = tuple[Op, ...]
BOTTOM = LayerId("bottom")


@dataclass(frozen=True)
class Slotted:
    """A program in its slot, which has its own time."""

    id: ActionId
    program: Program
    now: int
    patch: bool = False
    labels: tuple[str, ...] = ()


@dataclass
class Repair:
    """What a repair did: the new session, the slots it ran, and those that saw something else than when they were recorded.

    `beyond` are those that ran and saw the same, each with the kinds of key for which they ran.
    """

    world: World
    ran: list[ActionId]
    needed: list[ActionId]
    beyond: dict[ActionId, set[str]] = field(default_factory=dict)
    misfits: list[Step] = field(default_factory=list)


class World:
    """One history over one base. `unseen` is a kind of event that its tracer fails to report."""

    def __init__(self, base: Program, unseen: type[Event] | None = None) -> None:
        self.unseen = unseen
        self.layers: dict[LayerId, Sealed] = {}
        made = machine.run(list(base), machine.start(), 1)
        self.layers[BOTTOM] = made.sealed
        self.bottom = Layer(BOTTOM, fold_manifest(made.events, made.sealed.raw))
        self.base = machine.lay(machine.start(), made.sealed)
        self.slots: list[Slotted] = []
        self.records: list[Record] = []
        self.runs: dict[LayerId, Run] = {}
        self.programs: dict[LayerId, Program] = {}
        self.reads = self.mentions

    def append(self, program: Program, labels: tuple[str, ...] = ()) -> None:
        """Run one more action on the head."""
        number = len(self.slots) + 1
        slot = Slotted(ActionId(f"a{number}"), program, number * 100, labels=labels)
        launch = self.records[-1].handoff if self.records else LaunchContext()
        self.slots.append(slot)
        self.records.append(self.execute(slot, self.state(), launch))

    def new_layer(self) -> LayerId:
        """The id of one more layer."""
        return LayerId(f"layer-{len(self.layers)}")

    def state(self) -> State:
        """The head's state, as the overlay would show it."""
        state = self.base
        for record in self.records:
            state = machine.lay(state, self.layers[record.layer.id])
        return state

    def execute(self, slot: Slotted, below: State, launch: LaunchContext) -> Record:
        """Run, seal and fold one action."""
        run = machine.run(list(slot.program), below, slot.now, dict(launch.env))
        said = check_writes(run.events, run.sealed.raw)
        assert said == [], said
        layer = Layer(self.new_layer(), fold_manifest(run.events, run.sealed.raw))
        self.layers[layer.id], self.runs[layer.id], self.programs[layer.id] = run.sealed, run, slot.program
        facts = [event for event in run.events if self.unseen is None or not isinstance(event, self.unseen)]
        return Record(
            record_id=RecordId(len(self.layers)),
            revision=1,
            action=Action(slot.id, kind="patch" if slot.patch else "run", shell="program", labels=slot.labels),
            launch=launch,
            handoff=launch if slot.patch else LaunchContext(run.env),
            outcome=Outcome(0, None, stdout=repr(run.transcript).encode()),
            footprint=fold_footprint(facts, layer.manifest, launch, rootless=False),
            layer=layer,
        )

    def walk(self, changes: list[Change], policy: Policy = DEFAULT_POLICY, units: dict[str, str] | None = None) -> Pass:
        """The pass of a repair by these changes. Raises UsageError for a patch that can't be meant, beyond level 1."""
        return Pass(
            self.records,
            [self.bottom],
            changes,
            same_bytes=self.same_bytes,
            first_launch=LaunchContext(),
            reads_variable=lambda record, name, _: self.reads(record, name),
            policy=policy,
            forced=self.plan(changes, policy).forced if policy != DEFAULT_POLICY else None,
            units=units,
        )

    def plan(self, changes: list[Change], policy: Policy = DEFAULT_POLICY) -> Plan:
        """The dry run. Raises UsageError for a patch that can't be meant."""
        options = {"same_bytes": self.same_bytes, "first_launch": LaunchContext(), "policy": policy}
        options["reads_variable"] = lambda record, name, _: self.reads(record, name)
        return build_plan(self.records, [self.bottom], changes, session="s", head=7, **options)

    def mentions(self, record: Record, name: str) -> bool:
        """Whether the variable's name stands in the program: the model's programs have nothing else to read names from."""
        return name in words_of(self.programs[record.layer.id])

    def same_bytes(self, layer: LayerId, path: str, other: LayerId, at: str) -> bool:
        """Whether two layers hold the same bytes."""
        return self.layers[layer].inodes[path].data == self.layers[other].inodes[at].data

    def repair(
        self,
        changes: list[Change],
        programs: dict[str, Program],
        policy: Policy = DEFAULT_POLICY,
        units: dict[str, str] | None = None,
    ) -> Repair:
        """Carry a repair out. `programs` has what each replaced action is replaced by."""
        walk, new = self.walk(changes, policy, units), World.__new__(World)
        vars(new).update(vars(self))
        new.slots, new.records = [], []
        done = Repair(new, [], [])
        old = {slot.id: slot for slot in self.slots}
        state = self.base
        for number, slot in enumerate(walk):
            if walk.rest_is_kept(slot):
                for later in walk.slots[number:]:
                    assert later.record is not None
                    new.slots.append(old[later.record.id])
                    new.records.append(later.record)
                break
            step = walk.verdict(slot)
            if walk.torn:
                return self.repair(changes, programs, policy, walk.units)
            kind = step.kind
            if kind == "drop":
                walk.drop(slot)
                continue
            if slot.record is None:
                here = self._patch_slot(slot)
            else:
                here = old[slot.record.id]
                here = replace(
                    here, program=programs.get(here.id, here.program) if isinstance(slot.change, Replace) else here.program
                )
            if kind == "keep":
                record = self._kept(slot, walk, state)
            else:
                done.misfits += [step for reason in step.because if reason.kind == "misfit"]
                record = self.execute(here, state, walk.launch)
                walk.ran(slot, record)
                done.ran.append(here.id)
                if slot.change is not None or slot.record is None or self._saw_else(record, slot.record):
                    done.needed.append(here.id)
                else:
                    done.beyond[here.id] = {reason.key.partition(":")[0] or reason.kind for reason in step.because}
            new.slots.append(here)
            new.records.append(record)
            state = machine.lay(state, self.layers[record.layer.id])
            _agree(walk, state, self)
        return done

    def _saw_else(self, record: Record, old: Record) -> bool:
        """Whether the program really saw something else than when it was recorded."""
        return self.runs[record.layer.id].seen != self.runs[old.layer.id].seen

    def _patch_slot(self, slot: Slot) -> Slotted:
        assert isinstance(slot.change, Patch)
        path, now = patch_path(slot.change), 1_000_000 + len(self.layers)  # a time of its own
        return Slotted(ActionId(f"p{len(self.layers)}"), (("write", path, slot.change.value),), now, patch=True)

    def _kept(self, slot: Slot, walk: Pass, state: State) -> Record:
        record = slot.record
        assert record is not None
        launch = walk.launch
        if walk.raw_reusable(slot):
            walk.keep(slot)
            return replace(record, launch=launch, handoff=walk.launch)
        layer = Layer(self.new_layer(), record.layer.manifest)
        self.layers[layer.id] = made_again(record.layer.manifest, self.layers[record.layer.id], state)
        self.runs[layer.id], self.programs[layer.id] = self.runs[record.layer.id], self.programs[record.layer.id]
        walk.keep(slot, layer)
        return replace(record, layer=layer, launch=launch, handoff=walk.launch)

    def oracle(self) -> tuple[State, list[bytes], list[dict[str, str]]]:
        """Everything run from the start: the state, what each action printed, and which variables it handed on."""
        state, env, said, handed = self.base, {}, [], []
        for slot in self.slots:
            run = machine.run(list(slot.program), state, slot.now, env)
            env = env if slot.patch else run.env
            state = machine.lay(state, run.sealed)
            said.append(repr(run.transcript).encode())
            handed.append(env)
        return state, said, handed


def words_of(ops: object) -> set[str]:
    """All texts in a program, those of the branches of an `if` too."""
    return {ops} if isinstance(ops, str) else {w for op in ops for w in words_of(op)} if isinstance(ops, tuple) else set()


def corrected(world: World, changes: list[Change], programs: dict[str, Program]) -> list[Program]:
    """The programs of the corrected history without its patches: a short way to see what a change means."""
    named = {str(change.id): change for change in changes if not isinstance(change, Patch)}
    kept = [slot for slot in world.slots if not isinstance(named.get(slot.id), Drop)]
    return [programs[s.id] if isinstance(named.get(s.id), Replace) else s.program for s in kept]


def made_again(manifest: Manifest, sealed: Sealed, below: State) -> Sealed:
    """The layer with all that it inherits taken from the state below it."""
    fresh: dict[int, Inode] = {}
    inodes = {}
    for path, inode in sealed.inodes.items():
        entry, under = manifest.entries.get(path), below.get(path)
        made = fresh.setdefault(id(inode), replace(inode))
        inodes[path] = made
        if under is None or under.kind != made.kind or (entry is not None and entry.made):
            continue
        if entry is None or entry.inherit_content:
            made.data, made.target = under.data, under.target
        if entry is None or entry.inherit_mode:
            made.mode = under.mode
        if entry is None or entry.inherit_mtime:
            made.mtime = under.mtime
        if entry is None or entry.inherit_xattrs:
            made.xattr = under.xattr
    return Sealed(sealed.raw, inodes)


def _agree(walk: Pass, state: State, world: World) -> None:
    """The planner's tree is the state that the overlay shows."""
    tree = walk.tree
    assert set(tree.paths()) == set(state), set(tree.paths()) ^ set(state)
    groups: dict[int, set[str]] = {}
    for path, inode in state.items():
        groups.setdefault(id(inode), set()).add(path)
    for path, inode in state.items():
        node = tree.get(path)
        assert node is not None
        if path == "/":
            continue
        xattrs = ((b"user.x", inode.xattr),) if inode.xattr else ()
        assert (node.kind, node.mode, node.target, node.mtime_ns, node.xattrs) == (
            inode.kind, inode.mode, inode.target, inode.mtime, xattrs,
        ), (path, node, inode)  # fmt: skip
        if inode.kind == "file":
            assert node.size == len(inode.data), (path, node, inode)
            assert world.layers[node.provider].inodes[path].data == inode.data, (path, node, inode)
        if inode.kind != "dir" and node.group is not None:
            names = {name for name in node.group.names if (other := tree.get(name)) and other.group == node.group}
            assert names == groups[id(inode)], (path, names, groups[id(inode)])
