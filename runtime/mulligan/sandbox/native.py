"""The native engine: one action in fresh namespaces over its stack, by the tracer program.

Knows bases, stacks, open layers, actions. Gives a Trace; sealing the layer and making a record of it is the caller's.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from mulligan.errors import HostError, MulliganError
from mulligan.sandbox.limits import Limits
from mulligan.sandbox.mounts import MAX_LOWERS, build_command, build_mounts, build_spec
from mulligan.sandbox.remedies import read_switch
from mulligan.sandbox.shell import build_shell, can_be_loaded
from mulligan.sandbox.tracer import TRACER, Streams, Trace, run_traced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mulligan.model.action import Action, LaunchContext
    from mulligan.sandbox.base import Base
    from mulligan.sandbox.layer import LayerStore, OpenLayer
    from mulligan.sandbox.stack import Stack


class NativeSandbox:
    """Runs the actions of one session. Holds nothing between two actions.

    With `stops_only` every traced call is a stop, as on kernels before 6.6: for tests, and to measure what that costs.
    `count` has the tracer report counters, which go into the trace as they are: to see where its time goes.
    """

    stops_only: bool = False
    count: bool = False

    def __init__(
        self, base: Base, store: LayerStore, limits: Limits | None = None, *, traced: bool = True, program: Path = TRACER
    ) -> None:
        """`traced=False` is for measuring what tracing costs: such an action is incomplete, and no filter guards the host."""
        self.base = base
        self.store = store
        self.limits = limits or Limits()
        self._traced = traced
        self._program = program
        self._loadable: bool | None = None

    def run(
        self,
        action: Action,
        launch: LaunchContext,
        stack: Stack,
        layer: OpenLayer,
        *,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
        interrupt: Callable[[], bool] | None = None,
    ) -> Trace:
        """Run one action on a stack, its changes going to the open layer.

        `on_stdout` and `on_stderr` get all output as it comes, of which the outcome keeps no more than the caps.
        Raises HostError or TracerError: the action then has no outcome.
        """
        lowers = stack.lower_dirs()
        if len(lowers) > MAX_LOWERS:
            message = f"the state is made of {len(lowers)} folders, and the kernel stacks at most {MAX_LOWERS}"
            raise HostError(message, remedy="free some space, so that layers can be folded")
        layer.dress_root(stack.root())
        launch = replace(launch, env={**launch.env, **action.env}, cwd=action.cwd or launch.cwd)
        base = replace(self.base, binds=tuple(bind for bind in self.base.binds if os.path.exists(bind[0])))
        ops = build_mounts(base, lowers, str(layer.upper), str(layer.work))
        loaded = action.shell is not None and self._loads(stack)
        ops += build_command(self.base, self.limits, self.argv(action, loaded=loaded), launch, handoff=loaded)
        ids = self.base.ids
        owner = None if ids.rootless else (ids.on_disk(ids.uid), ids.on_disk(ids.gid))
        streams = Streams(on_stdout=on_stdout, on_stderr=on_stderr, owner=owner)
        return run_traced(
            build_spec(ops, traced=self._traced, stops_only=self.stops_only, count=self.count),
            stdin=action.stdin,
            timeout_s=action.timeout_s,
            streams=streams,
            interrupt=interrupt,
            program=self._program,
        )

    def _loads(self, stack: Stack) -> bool:
        """Whether what hands on can be loaded into the shell, as it is in the state of the first shell action run here."""
        if self._loadable is None:
            try:
                # 2: no memory file may be run, and the object comes in one.
                self._loadable = read_switch("vm/memfd_noexec") != "2" and can_be_loaded(stack.read(self.base.shell))
            except MulliganError:
                self._loadable = False  # the shell is not there, or can't be read: the action will say so
        return self._loadable

    def argv(self, action: Action, *, loaded: bool = False) -> Sequence[str]:
        """The program and its arguments: an action is argv, or shell text for the base's shell."""
        assert action.kind == "run", action.kind
        if action.shell is not None:
            return build_shell(self.base.shell, action.shell, loaded=loaded)
        return action.argv
