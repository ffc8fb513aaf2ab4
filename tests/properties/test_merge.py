"""Merging two branches on the model machine: what is accepted commutes, and what is refused has a witness."""

from __future__ import annotations

import os
from copy import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import machine
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pure_model import BASE, EVERY, programs
from world import Program, Slotted, World, made_again

from mulligan.merge import Merge
from mulligan.model.action import Action, LaunchContext
from mulligan.model.ids import ActionId, LayerId
from mulligan.model.layer import Layer
from mulligan.model.record import Record
from mulligan.model.tree import Tree
from mulligan.repair.walk import Pass

EXAMPLES = int(os.environ.get("MULLIGAN_EXAMPLES", "300"))
few = st.lists(programs, min_size=0, max_size=3)


class Branches:
    """A common history and two that go on from it, over one store of layers; the workshop of their merge."""

    def __init__(self, common: list[Program], ours: list[Program], theirs: list[Program]) -> None:
        fork = World(BASE)
        for program in common:
            fork.append(program)
        self.ours, self.theirs = _branch(fork), _branch(fork)
        for program in ours:
            self.ours.append(program)
        for number, program in enumerate(theirs, len(common) + 1):
            slot = Slotted(ActionId(f"a{number}"), program, number * 100 + 50)  # no two actions have one time
            launch = self.theirs.records[-1].handoff if self.theirs.records else LaunchContext()
            self.theirs.slots.append(slot)
            self.theirs.records.append(self.theirs.execute(slot, self.theirs.state(), launch))
        self.fork = len(common)
        self.slots = {slot.id: slot for slot in self.ours.slots}

    def merge(self) -> Merge:
        """The merge of theirs into ours."""
        chains = {"ours": self.ours.records, "theirs": self.theirs.records}
        journal: Any = SimpleNamespace(chain=lambda head, _since: chains[head])
        sides = [
            SimpleNamespace(name=n, head=n, base={}, floor=None, bottom=(self.ours.bottom.id,), next_action=len(r) + 1)
            for n, r in chains.items()
        ]
        merge = Merge(journal, *sides, walker=self.walk, same_bytes=self.ours.same_bytes)
        for (_, new), slot in zip(merge._ids, self.theirs.slots[self.fork :], strict=True):
            self.slots[new] = replace(slot, id=new)
        return merge

    def walk(self, records: list[Record]) -> Pass:
        """A walk over a history of this store."""
        return Pass(records, [self.ours.bottom], (), same_bytes=self.ours.same_bytes, first_launch=LaunchContext())

    def execute(self, action: Action, launch: LaunchContext, below: tuple[LayerId, ...], replay_of: Record | None) -> Record:
        """Run a program again."""
        assert replay_of is None
        return self.ours.execute(self.slots[action.id], self.state(below), launch)

    def rematerialise(self, layer: Layer, below: Tree, under: tuple[LayerId, ...]) -> Layer:
        """A layer made again over another state."""
        assert below is not None
        made = Layer(LayerId(f"layer-{len(self.ours.layers)}"), layer.manifest)
        self.ours.layers[made.id] = made_again(layer.manifest, self.ours.layers[layer.id], self.state(under))
        self.ours.runs[made.id] = self.ours.runs[layer.id]
        return made

    def state(self, layers: tuple[LayerId, ...] | list[LayerId]) -> machine.State:
        """What the overlay shows of these layers."""
        state = machine.start()
        for layer in layers:
            state = machine.lay(state, self.ours.layers[layer])
        return state

    def serial(self, *, theirs_first: bool) -> World:
        """Everything run from the start, one side after the other."""
        sides = [self.ours.slots[self.fork :], self.theirs.slots[self.fork :]]
        world = _branch(self.ours)
        world.slots, world.records = [], []
        for slot in [*self.ours.slots[: self.fork], *(slot for side in sides[:: -1 if theirs_first else 1] for slot in side)]:
            launch = world.records[-1].handoff if world.records else LaunchContext()
            world.records.append(world.execute(slot, world.state(), launch))
            world.slots.append(slot)
        return world


def _branch(world: World) -> World:
    twin = copy(world)
    twin.slots, twin.records = list(world.slots), list(world.records)
    return twin


def _told(world: World) -> list[tuple[str, bytes]]:
    return sorted((slot.now, record.outcome.stdout) for slot, record in zip(world.slots, world.records, strict=True))


def _untimed(state: machine.State) -> object:
    return {path: (*row[:4], *row[5:]) for path, row in machine.shown(state).items()}


@settings(max_examples=max(1, EXAMPLES // 2), deadline=None, suppress_health_check=EVERY)
@given(common=few, ours=few, theirs=few)
def test_an_accepted_merge_commutes_and_a_refused_one_has_a_witness(common, ours, theirs):
    """What is accepted is what ours and then theirs give, and but for times what theirs and then ours give, with all that both
    printed. What is refused really came out otherwise: an action saw something else, or the two orders end differently.
    """
    both = Branches(common, ours, theirs)
    merge = both.merge()
    conflicts = merge.find_conflicts()
    first, last = both.serial(theirs_first=False), both.serial(theirs_first=True)
    fork, ours_end = len(common), len(common) + len(ours)
    if conflicts:
        seen = both.ours.runs
        they = [
            seen[a.layer.id].seen != seen[b.layer.id].seen
            for a, b in zip(first.records[ours_end:], both.theirs.records[fork:], strict=True)
        ]
        theirs_end = fork + len(theirs)
        we = [
            seen[a.layer.id].seen != seen[b.layer.id].seen
            for a, b in zip(last.records[theirs_end:], both.ours.records[fork:], strict=True)
        ]
        launch = first.records[-1].handoff != last.records[-1].handoff or any("env:" in one.key for one in conflicts)
        assert any(they) or any(we) or launch or _untimed(first.state()) != _untimed(last.state()), conflicts
        kinds = {one.kind for one in conflicts}
        assert ("they_read" in kinds) >= any(they)
        assert ("we_read" in kinds) >= any(we)
        return
    records, again = merge.carry_out(both)
    assert not again
    merged = both.state([both.ours.bottom.id, *(record.layer.id for record in records)])
    assert machine.shown(merged) == machine.shown(first.state())
    assert _untimed(merged) == _untimed(last.state())
    assert [record.outcome.stdout for record in records] == [record.outcome.stdout for record in first.records]
    assert [record.handoff for record in records] == [record.handoff for record in first.records]
    assert sorted(r.outcome.stdout for r in records) == sorted(r.outcome.stdout for r in last.records)
    assert len({record.id for record in records}) == len(records)


@settings(max_examples=max(1, EXAMPLES // 4), deadline=None, suppress_health_check=EVERY)
@given(common=few, ours=few, theirs=few)
def test_a_rebase_is_the_serial_run(common, ours, theirs):
    """With replay, a merge is what running ours and then theirs gives, conflicts or not."""
    both = Branches(common, ours, theirs)
    records, again = both.merge().carry_out(both)
    first = both.serial(theirs_first=False)
    merged = both.state([both.ours.bottom.id, *(record.layer.id for record in records)])
    assert machine.shown(merged) == machine.shown(first.state())
    assert [record.outcome.stdout for record in records] == [record.outcome.stdout for record in first.records]
    assert {record.id for record in again} <= {record.id for record in records[len(common) + len(ours) :]}
