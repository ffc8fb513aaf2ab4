"""Remembering: a workshop that does nothing twice on the same ground, for a replay that must be begun anew.

Knows the workshop it stands before. When a replay finds out late that an earlier action of a group has to run, too, it goes
through history again; up to that action all stands on the very same layers, and what was done there is taken as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mulligan.model.action import Action, LaunchContext
    from mulligan.model.ids import LayerId
    from mulligan.model.layer import Layer
    from mulligan.model.record import Record
    from mulligan.model.tree import Tree
    from mulligan.repair.replay import Workshop


class Remembering:
    """A Workshop before another one."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._runs: dict[tuple[str, tuple[LayerId, ...]], tuple[Action, LaunchContext, Record]] = {}
        self._layers: dict[tuple[object, ...], Layer] = {}
        self._made: dict[LayerId, Layer] = {}

    def execute(
        self,
        action: Action,
        launch: LaunchContext,
        below: Sequence[LayerId],
        replay_of: Record | None,
        *,
        interrupt: Callable[[], bool] | None = None,
    ) -> Record:
        """The record of this very run, if there was one, else of a new one."""
        key = (action.id, tuple(below))
        if key in self._runs:
            before, start, record = self._runs[key]
            if (before, start) == (action, launch):
                return record
        record = self._workshop.execute(action, launch, below, replay_of, interrupt=interrupt)
        self._runs[key] = (action, launch, record)
        self._made[record.layer.id] = record.layer
        return record

    def rematerialise(self, layer: Layer, below: Tree, under: Sequence[LayerId]) -> Layer:
        """The layer made again; once for the same layers below."""
        made = self._once((layer.id, tuple(under)), lambda: self._workshop.rematerialise(layer, below, under))
        if made.id != layer.id:
            self._made[made.id] = made
        return made

    def patch(self, path: str, value: bytes, under: Sequence[LayerId], mtime_ns: int) -> Layer:
        """The layer of a patch; once for the same layers below."""
        made = self._once((path, value, tuple(under), mtime_ns), lambda: self._workshop.patch(path, value, under, mtime_ns))
        self._made[made.id] = made
        return made

    def content(self, layer: Layer, path: str) -> bytes:
        """The bytes of a file that the layer holds."""
        return self._workshop.content(layer, path)

    def discard(self, layer: Layer) -> None:
        """Remove the layer, and remember no run that left it."""
        for key in [key for key, (_, _, record) in tuple(self._runs.items()) if record.layer.id == layer.id]:
            del self._runs[key]
        del self._made[layer.id]
        self._workshop.discard(layer)

    def discard_all_but(self, kept: Collection[LayerId]) -> None:
        """Remove the layers of passes that were begun anew, but for those that stand in the last one."""
        for layer in [layer for layer in self._made.values() if layer.id not in kept]:
            self.discard(layer)

    def _once(self, key: tuple[object, ...], make: Callable[[], Layer]) -> Layer:
        if key not in self._layers:
            self._layers[key] = make()
        return self._layers[key]
