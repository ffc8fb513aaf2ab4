"""Runner: one action from what is asked to a record, and the layers that a repair makes. The replay's workshop.

Knows the sandbox and the pure folds. Gives records that no journal has yet. Must not know sessions, heads or locks.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from mulligan.errors import UsageError
from mulligan.model.action import LaunchContext
from mulligan.model.fold import check_writes, fold_footprint, handoff
from mulligan.model.ids import parent
from mulligan.model.own import is_state
from mulligan.model.record import Record
from mulligan.repair.rebase import rematerialise
from mulligan.repair.replay import NEW
from mulligan.sandbox.base import base_version
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.patch import patch_layer
from mulligan.sandbox.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mulligan.model.action import Action
    from mulligan.model.equivalence import Equality
    from mulligan.model.ids import LayerId
    from mulligan.model.layer import Layer
    from mulligan.model.tree import Tree
    from mulligan.sandbox.base import Base
    from mulligan.sandbox.layer import LayerStore

    Output = Callable[[bytes], None]


ABSENT = (0, 0, 0)  # the version of what the base does not have


class Attempt:
    """The layers made in one attempt to add to history. They are removed unless `keep` says that the journal has them."""

    def __init__(self, equality: Equality | None = None) -> None:
        self.made: list[LayerId] = []
        self.equality = equality  # what counts as equal in it

    def keep(self) -> None:
        """The journal has them."""
        self.made.clear()


class Runner:
    """Runs the actions of one session over its base."""

    def __init__(self, base: Base, layers: LayerStore) -> None:
        self.base = base
        self.layers = layers
        self._sandbox = NativeSandbox(base, layers)
        self._attempt = Attempt()

    @contextmanager
    def attempt(self, equality: Equality | None = None) -> Iterator[Attempt]:
        """Whatever ends the attempt before `keep`, be it a full disk: the layers made in it are gone at once."""
        self._attempt = attempt = Attempt(equality)
        try:
            yield attempt
        finally:
            for layer in attempt.made:
                self.layers.remove(layer)
            attempt.keep()

    def stack(self, layers: Sequence[LayerId], *, once: bool = False) -> Stack:
        """The state that these layers, bottom first, make over the base. A replay stands on its state `once`."""
        return Stack(tuple(layers), self.base, self.layers, once=once)

    def execute(
        self,
        action: Action,
        launch: LaunchContext,
        below: Sequence[LayerId],
        replay_of: Record | None = None,
        *,
        on_stdout: Output | None = None,
        on_stderr: Output | None = None,
        interrupt: Callable[[], bool] | None = None,
    ) -> Record:
        """Run, seal and fold one action on the layers `below`; the caller appends the record.

        With `replay_of` the layer is put into that record's slot of time. Raises HostError or TracerError when the action
        could not be run or traced, InterruptedRunError (also when `interrupt` says so): then nothing of it is left.
        """
        stack = self.stack(below, once=replay_of is not None)
        with self.layers.begin() as opened:
            watchers = {"on_stdout": on_stdout, "on_stderr": on_stderr}
            trace = self._sandbox.run(action, launch, stack, opened, **watchers, interrupt=interrupt)
            layer = self._made(opened.seal(trace, stack, replay_of, self._attempt.equality))
        footprint = fold_footprint(
            trace.events,
            layer.manifest,
            LaunchContext({**launch.env, **action.env}, action.cwd or launch.cwd, launch.umask),
            declared_reads=action.reads,
            declared_writes=action.writes,
            rootless=self.base.rootless,
        )
        unseen = check_writes(trace.events, trace.entries)
        if unseen:  # whoever got a write past the tracer may have got a read past it, too
            because = (*footprint.incomplete_because, f"unseen_write: {unseen[0]}")
            footprint = replace(footprint, incomplete_because=because)
        left = handoff(trace.events, launch.umask) if action.shell is not None else None
        outcome = trace.outcome
        if replay_of is not None:  # it stands in that slot's time, where the next repair must find it again
            slot = replay_of.outcome
            outcome = replace(outcome, started_ns=slot.started_ns, ended_ns=slot.ended_ns)
        return Record(
            record_id=NEW,
            revision=replay_of.revision + 1 if replay_of else 1,
            action=action,
            launch=launch,
            handoff=self._standing(launch.cwd, handed_on(launch, action, left), below, layer),
            outcome=outcome,
            footprint=footprint,
            layer=layer,
        )

    def _standing(self, was: str, left: LaunchContext, below: Sequence[LayerId], layer: Layer) -> LaunchContext:
        """What is handed on, with a working directory that is there: of one that was removed, what is left above it.

        The kernel calls a removed one by its last path with " (deleted)" behind it (d_path); no action could start there.
        """
        if left.cwd == was and not layer.manifest.removed:
            return left
        at, stack = left.cwd, self.stack([*below, layer.id], once=True)
        with suppress(UsageError):  # a closed folder: it is there, and that is all that counts
            while at != "/" and is_state(at):
                there = stack.find(at)
                if there is not None and there.entry.kind == "dir":
                    break
                at = parent(at)
        return left if at == left.cwd else replace(left, cwd=at)

    def rematerialise(self, layer: Layer, below: Tree, under: Sequence[LayerId]) -> Layer:
        """The layer made again from its manifest for another state below it."""
        made = rematerialise(self.layers, layer, below, self.stack(under, once=True))
        return layer if made.id == layer.id else self._made(made)

    def patch(self, path: str, value: bytes, under: Sequence[LayerId], mtime_ns: int) -> Layer:
        """A layer that sets the content of one file of the state that `under` makes."""
        return self._made(patch_layer(self.layers, self.stack(under, once=True), path, value, mtime_ns))

    def _made(self, layer: Layer) -> Layer:
        self._attempt.made.append(layer.id)
        return layer

    def discard(self, layer: Layer) -> None:
        """Remove a layer of this attempt that is not to be kept."""
        self._attempt.made.remove(layer.id)
        if not self.layers.is_empty(layer.id):
            self.layers.throw_away(layer.id)

    def content(self, layer: Layer, path: str) -> bytes:
        """The bytes of a file that the layer holds."""
        return self.layers.read(layer.id, path)

    def seen(self, records: Iterable[Record]) -> dict[str, tuple[int, int, int]]:
        """The versions of the base's files that the records relied on, absent ones too: those files are live on the host."""
        tops = tuple(target for _, target in self.base.binds)  # most paths lie under none of them, and that is quickly told
        observed = {path for record in records for path in record.footprint.observed_paths() if path.startswith(tops)}
        paths = {path for path in observed if self.base.bound(path) is not None}
        merely_passed = {path for record in records for path in record.footprint.probed}
        for record in records:
            merely_passed -= record.footprint.saw | record.footprint.stats | record.footprint.listed
        versions = {path: self._version(path) for path in paths}
        # Whoever only probed a folder does not rely on its times, which change with every name in it.
        return {path: version for path, version in versions.items() if not (path in merely_passed and self._is_folder(path))}

    def _version(self, path: str) -> tuple[int, int, int]:
        return base_version(self.base, path) or ABSENT

    def _is_folder(self, path: str) -> bool:
        there = self.base.bound(path)
        return there is not None and os.path.isdir(there[1])

    def changed_since(self, versions: Iterable[tuple[str, tuple[int, int, int]]]) -> frozenset[str]:
        """Those of these base files that the host has in another version now."""
        return frozenset(path for path, version in versions if self._version(path) != tuple(version))


def handed_on(launch: LaunchContext, action: Action, left: LaunchContext | None) -> LaunchContext:
    """What the next action starts with: exports, cwd and umask of shell text, without what was set for this action only."""
    if left is None:
        return launch
    env = dict(left.env)
    for name, value in action.env.items():
        if env.get(name) == value:
            del env[name]
            if name in launch.env:
                env[name] = launch.env[name]
    cwd = launch.cwd if action.cwd is not None and left.cwd == action.cwd else left.cwd
    return LaunchContext(env, cwd, left.umask)
