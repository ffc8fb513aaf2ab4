"""Past: what can still be rebuilt of a history, and what is known by its records alone.

Knows the journal and floors. Must not know sessions, nor anything on disk: a floor's layer says that its state is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.errors import NotFoundError
from mulligan.model.tree import Tree
from mulligan.repair.schedule import too_old

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mulligan.history.floors import Floor
    from mulligan.history.journal import Chain, Journal
    from mulligan.model.action import LaunchContext
    from mulligan.model.ids import LayerId
    from mulligan.model.layer import Layer
    from mulligan.model.record import Record


@dataclass(frozen=True, slots=True)
class Past:
    """What can be rebuilt of the history that leads to a state: all of it, or what came after a floor.

    `records` were made on the layers `bottom`, the first one launched with `launch`, right after the state `since` (0: the
    session's start). What was `given_up` is known by its records alone.
    """

    bottom: tuple[Layer, ...]
    records: Chain
    launch: LaunchContext
    since: int = 0
    given_up: Sequence[Record] = ()

    @classmethod
    def read(cls, journal: Journal, head: int, bottom: Sequence[LayerId], launch: LaunchContext, floor: Floor | None) -> Past:
        """The past of a head of a session that stands on `bottom`, is launched with `launch`, and has this floor."""
        layers = [journal.layer(layer) for layer in bottom]
        if floor is None or not journal.passes(head, floor.node):
            return cls(tuple(layers), journal.chain(head), launch)
        given_up = journal.chain(floor.node)
        return cls(
            (*layers, journal.layer(floor.layer)),
            journal.chain(head, floor.node),
            launch=given_up[-1].handoff,
            since=floor.node,
            given_up=given_up,
        )

    def tree(self, count: int | None = None) -> Tree:
        """The state after so many of the records; after all of them, when none is said."""
        tree = Tree()
        records = self.records if count is None else self.records[:count]
        for layer in (*self.bottom, *(record.layer for record in records)):
            tree.apply(layer.manifest, layer.id)
        return tree

    def before(self, action: str) -> Tree:
        """The state that an action found. Raises GivenUpError, or NotFoundError."""
        return self.tree(self._number(action))

    def after(self, action: str) -> Tree:
        """The state that an action left. Raises GivenUpError, or NotFoundError."""
        if self.given_up and action == self.given_up[-1].id:
            return self.tree(0)
        return self.tree(self._number(action) + 1)

    def _number(self, action: str) -> int:
        found = next((number for number, record in enumerate(self.records) if record.id == action), None)
        if found is not None:
            return found
        if any(record.id == action for record in self.given_up):
            raise too_old(action, self.records[0].id if self.records else None)
        raise NotFoundError(f"this history has no action {action}")
