"""A workshop on the model machine, and a pool without threads whose replays finish in an order that is drawn at random.

With them the engine's own `Replay` repairs a `World`, one action after the other or several at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import machine
from world import BOTTOM, Program, Slotted, World, made_again

from mulligan.model.action import Action, LaunchContext
from mulligan.model.change import Change
from mulligan.model.ids import ActionId, LayerId
from mulligan.model.layer import Layer
from mulligan.model.plan import Plan, Report
from mulligan.model.policy import DEFAULT_POLICY, Policy
from mulligan.model.record import Record
from mulligan.model.tree import Tree
from mulligan.repair.pool import Pool, Task
from mulligan.repair.replay import Replay

NOBODY: set[str] = set()


class DrawnPool(Pool[Record]):
    """Does jobs when somebody waits for one: which comes first, and what else is done meanwhile, is drawn."""

    def __init__(self, size: int, pick: Callable[[int], int]) -> None:
        super().__init__(size)
        self._pick = pick  # a number below the one that is given
        self.added = 0

    def add(self, order: int, job: Callable[[Callable[[], bool]], Record]) -> Task[Record]:
        """A job more; perhaps one of all is done at once."""
        task = Task(order, job)
        self._waiting.append(task)
        self.added += 1
        if self._pick(2):
            self._one_more()
        return task

    def result_of(self, task: Task[Record]) -> bool:
        """Do jobs until this one is done, or perhaps find that it never began."""
        while not task.ended:
            if not task.started and self._pick(4) == 0:
                task.called_off = True
                return False
            self._one_more()
        return True

    def close(self) -> None:
        """Nothing is left to be done."""
        assert all(task.called_off or task.ended for task in self._waiting)

    def _one_more(self) -> None:
        self._waiting = [task for task in self._waiting if not task.ended and not task.called_off]
        if self._waiting:
            task = self._waiting[self._pick(len(self._waiting))]
            task.started = True
            task.do()
            task.ended = True


class Shop:
    """Runs actions and makes layers on the model machine."""

    def __init__(self, world: World, programs: dict[str, Program]) -> None:
        self.world = world
        self.programs = {slot.id: slot.program for slot in world.slots} | programs
        self.now = {slot.id: slot.now for slot in world.slots}
        self.alive: set[LayerId] = set()
        self.executed: list[ActionId] = []
        self.late: set[str] = set()  # actions that run out of time when they are begun early

    def execute(
        self,
        action: Action,
        launch: LaunchContext,
        below: Sequence[LayerId],
        replay_of: Record | None,
        *,
        interrupt: Callable[[], bool] | None = None,
    ) -> Record:
        """Run a program on the merged view of the layers."""
        assert replay_of is not None
        assert interrupt is None or not interrupt()
        self.executed.append(action.id)
        late = interrupt is not None and action.id in self.late
        slot = Slotted(action.id, self.programs[action.id], self.now[action.id])
        record = self.world.execute(slot, self._state(below), launch)
        return replace(
            record,
            record_id=0,
            action=action,
            outcome=replace(record.outcome, timed_out=late, **_window(slot.now)),
            layer=self._made(record.layer),
        )

    def rematerialise(self, layer: Layer, below: Tree, under: Sequence[LayerId]) -> Layer:
        """The layer made again."""
        assert set(below.paths()) == set(self._state(under)), "the planner's tree is the state that the layers make"
        made = Layer(self.world.new_layer(), layer.manifest)
        self.world.layers[made.id] = made_again(layer.manifest, self.world.layers[layer.id], self._state(under))
        return self._made(made)

    def patch(self, path: str, value: bytes, under: Sequence[LayerId], mtime_ns: int) -> Layer:
        """A plain write, at that time."""
        slot = Slotted(ActionId("patch"), (("write", path, value),), mtime_ns, patch=True)
        return self._made(self.world.execute(slot, self._state(under), LaunchContext()).layer)

    def content(self, layer: Layer, path: str) -> bytes:
        """What the layer holds at the path."""
        return self.world.layers[layer.id].inodes[path].data

    def read(self, layer: LayerId, path: str) -> bytes:
        """What a layer holds at the path."""
        return self.world.layers[layer].inodes[path].data

    def discard(self, layer: Layer) -> None:
        """The layer is not wanted."""
        self.alive.remove(layer.id)

    def _made(self, layer: Layer) -> Layer:
        self.alive.add(layer.id)
        return layer

    def _state(self, below: Sequence[LayerId]) -> machine.State:
        assert below[0] == BOTTOM
        state = self.world.base
        for layer in below[1:]:
            state = machine.lay(state, self.world.layers[layer])
        return state


def repair(
    world: World,
    changes: list[Change],
    programs: dict[str, Program],
    pool: Pool[Record] | None,
    *,
    policy: Policy = DEFAULT_POLICY,
    late: set[str] = NOBODY,
) -> tuple[Report, list[Record], Shop]:
    """Repair a world with the engine's own replay. The world itself gets nothing but layers."""
    shop = Shop(world, programs)
    shop.late = late
    records = [replace(r, outcome=replace(r.outcome, **_window(shop.now[r.id]))) for r in world.records]
    replay = Replay(
        world.plan(changes, policy) if policy != DEFAULT_POLICY else Plan("s", 1, tuple(changes), ()),
        records,
        [world.bottom],
        shop,
        same_bytes=world.same_bytes,
        first_launch=LaunchContext(),
        base_changed=(),
        reads_variable=lambda record, name, _: world.reads(record, name),
        next_id=lambda ahead: ActionId(f"a{len(records) + 1 + ahead}"),
        content=shop.read,
        pool=pool,
    )
    report, made = replay.run(keep_going=True, progress=None)
    assert shop.alive == {r.layer.id for r in made} - {r.layer.id for r in records}, "what was made in vain is gone"
    return report, made, shop


def _window(now: int) -> dict[str, int]:
    return {"started_ns": now, "ended_ns": now}
