"""Parallel replay: later slots that will certainly run again are begun before their turn, a few at once.

Knows the walk's foresight, a pool of threads and the workshop. The walk goes on slot by slot as if nobody helped it: at each
slot that is to run again it asks for a replay that was begun early. One that came true is taken, its layer made again where it
would not stand on the corrected state as it lies; any other is thrown away, and the slot runs in its turn. So records, layers
and decisions are those of a serial repair, a failure counts when its turn comes and not before, and nothing depends on which
replay ends first: what is begun depends on the walk alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from mulligan.repair.foresight import check, foresee
from mulligan.repair.walk import rebased

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mulligan.model.action import Action, LaunchContext
    from mulligan.model.ids import LayerId
    from mulligan.model.layer import Layer
    from mulligan.model.record import Record
    from mulligan.repair.dirty import SameBytes
    from mulligan.repair.foresight import Guess
    from mulligan.repair.pool import Pool, Task
    from mulligan.repair.replay import Workshop
    from mulligan.repair.schedule import Slot
    from mulligan.repair.walk import Pass

AHEAD = 2  # replays that are begun or wait to be, for each that may run at once


@dataclass(frozen=True, slots=True)
class _Early:
    """A replay that was begun on a guess; `laid` is how many layers of slots stood below when the guess was made."""

    guess: Guess
    laid: int
    task: Task[Record]


class EarlyReplays:
    """Replays begun before their turn. Use as a context manager: at its end none runs, and nothing of them is left."""

    def __init__(
        self, walk: Pass, workshop: Workshop, asked: Callable[[Slot], Action], same_bytes: SameBytes, pool: Pool[Record] | None
    ) -> None:
        """Without a pool, none is ever begun early."""
        self._walk = walk
        self._workshop = workshop
        self._asked = asked
        self._same_bytes = same_bytes
        self._pool = pool
        self._early: dict[int, _Early] = {}
        self._called_off: list[Task[Record]] = []
        self.in_vain = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is None:
            return
        try:
            for number in tuple(self._early):
                self.forgo(number)
        finally:
            self._pool.close()
        for task in self._called_off:
            if task.result is not None:
                self._workshop.discard(task.result.layer)

    def execute(self, slot: Slot, bottom: Sequence[LayerId], laid: Sequence[Layer]) -> Record:
        """The record of the slot that the walk is at: of a replay begun early if it came true, or of one made now.

        `laid` are the layers of the slots before it, which stand on those of `bottom`.
        """
        below = (*bottom, *(layer.id for layer in laid))
        if self._pool is None:
            return self._run(slot, below)
        self._begin(self._pool, bottom, laid)
        early = self._early.pop(self._walk.done, None)
        if early is not None and self._pool.result_of(early.task):  # else it was not started yet, and nothing is lost
            record = self._came_true(early, below, laid)
            if record is not None:
                return record
            self._throw_away(early.task)
        with self._pool.working():
            return self._run(slot, below)

    def _run(self, slot: Slot, below: Sequence[LayerId]) -> Record:
        return self._workshop.execute(self._asked(slot), self._walk.launch, below, slot.record)

    def forgo(self, number: int) -> None:
        """The slot of this number is not to run again."""
        early = self._early.pop(number, None)
        if early is not None and self._pool is not None and self._pool.call_off(early.task):
            self._throw_away(early.task)

    def _throw_away(self, task: Task[Record]) -> None:
        self._called_off.append(task)
        self.in_vain += 1

    def _begin(self, pool: Pool[Record], bottom: Sequence[LayerId], laid: Sequence[Layer]) -> None:
        room = AHEAD * pool.size - len(self._early)
        for guess in foresee(self._walk, self._early.keys(), room):
            below = (*bottom, *(layer.id for layer in (*laid, *guess.between)))
            self._early[guess.number] = _Early(guess, len(laid), pool.add(guess.number, self._job(guess, below)))

    def _job(self, guess: Guess, below: Sequence[LayerId]) -> Callable[[Callable[[], bool]], Record]:
        action, old = self._asked(guess.slot), guess.slot.record
        return lambda called_off: self._workshop.execute(action, guess.launch, below, old, interrupt=called_off)

    def _came_true(self, early: _Early, below: Sequence[LayerId], laid: Sequence[Layer]) -> Record | None:
        record, walk = early.task.result, self._walk
        if record is None or record.outcome.timed_out or record.outcome.oom_killed:
            return None  # an error counts when it comes again, in its turn; so does what others at work may have brought about
        raw = check(walk, early.guess, record, laid[early.laid :], self._same_bytes)
        if raw is None:
            return None
        layer = record.layer
        if not raw:
            layer = self._workshop.rematerialise(layer, walk.tree, below)
            if layer.id != record.layer.id:
                self._workshop.discard(record.layer)
        record = replace(record, layer=layer)
        return record if record.launch == walk.launch else _launched_with(record, walk.launch)


def _launched_with(record: Record, launch: LaunchContext) -> Record:
    """The record as it would be if the action had been launched with this, in which nothing is otherwise that it relied on."""
    env, cwd = {**launch.env, **record.action.env}, record.action.cwd or launch.cwd
    footprint = replace(record.footprint, launch_env=env, launch_cwd=cwd)
    return replace(record, footprint=footprint, launch=launch, handoff=rebased(launch, record))
