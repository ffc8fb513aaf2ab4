"""Arena: one store with one state, and programs that run over it traced, untraced, or under another tracer.

Every way starts from the same layers in the same kind of sandbox, and what it writes is thrown away: like is compared
with like. A run gives the seconds between the start of the sandbox and the program's end, without Python's own work
before and after.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mulligan.model.action import Action, LaunchContext
from mulligan.model.ids import ActionId
from mulligan.model.tree import Tree
from mulligan.sandbox.bases import build_base
from mulligan.sandbox.imports import import_folder
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.stack import Stack
from mulligan.sandbox.tracer import TRACER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mulligan.model.ids import LayerId
    from mulligan.sandbox.base import Base

STRACE = ("strace", "-f", "--seccomp-bpf", "-e", "trace=%file,%network", "-o", "/dev/null")
REPROZIP = ("reprozip", "trace", "-w", "--dont-identify-packages", "--dont-find-inputs-outputs", "-d", "/tmp/reprozip")


@dataclass(slots=True)
class Arena:
    """See above. `programs` is a folder put first in the PATH, whose programs the base then has, too."""

    base: Base
    store: LayerStore
    layers: list[LayerId]
    launch: LaunchContext
    tracer: Path = TRACER

    @classmethod
    def build(cls, folder: Path, project: Path, programs: Path | None = None) -> Self:
        """A store in `folder`, and a copy of `project` at /workspace."""
        store = LayerStore(folder / "layers")
        environ = dict(os.environ)
        if programs is not None:
            environ["PATH"] = f"{programs}:{environ['PATH']}"
        base, bottom = build_base("host", store, environ)
        below = Tree()
        for layer in bottom:
            below.apply(layer.manifest, layer.id)
        bottom.append(import_folder(store, str(project), "/workspace", base, below=below))
        env = {**base.env, "GIT_OPTIONAL_LOCKS": "0", "REPROZIP_USAGE_STATS": "off", "LC_ALL": "C"}
        return cls(base, store, [layer.id for layer in bottom], LaunchContext(env, "/workspace"))

    def close(self) -> None:
        """Wait until everything thrown away is removed."""
        self.store.settle()

    def action(self, argv: Sequence[str]) -> Action:
        """The program as an action."""
        return Action(id=ActionId("a1"), kind="run", argv=tuple(argv))

    def prepare(self, argv: Sequence[str]) -> None:
        """Run a program and keep what it wrote for all runs after it."""
        stack = Stack(tuple(self.layers), self.base, self.store)
        with self.store.begin() as opened:
            trace = NativeSandbox(self.base, self.store).run(self.action(argv), self.launch, stack, opened)
            assert trace.outcome.ok, trace.outcome
            self.layers.append(opened.seal(trace, stack).id)

    def run(
        self, argv: Sequence[str], *, traced: bool = True, tracer: Path | None = None, stops_only: bool = False,
        counts: dict[str, int] | None = None,
    ) -> float:  # fmt: skip
        """One run, and its seconds. What it wrote is gone when this returns. `counts` gets the tracer's counters."""
        sandbox = NativeSandbox(self.base, self.store, traced=traced, program=tracer or self.tracer)
        sandbox.stops_only, sandbox.count = stops_only, counts is not None
        stack = Stack(tuple(self.layers), self.base, self.store)
        with self.store.begin() as opened:
            trace = sandbox.run(self.action(argv), self.launch, stack, opened)
        self.store.settle()
        assert trace.outcome.ok, (argv, trace.outcome)
        if counts is not None:
            counts.update(trace.counts)
        return trace.outcome.duration_ms / 1e3

    def traced(self, argv: Sequence[str], tracer: Path | None = None, *, stops_only: bool = False) -> Callable[[], float]:
        """Runs of the program with Mulligan's tracer."""
        return lambda: self.run(argv, tracer=tracer, stops_only=stops_only)

    def untraced(self, argv: Sequence[str]) -> Callable[[], float]:
        """Runs of the program in the same sandbox, with no tracer and no filter."""
        return lambda: self.run(argv, traced=False)

    def peer(self, tool: Sequence[str], argv: Sequence[str]) -> Callable[[], float]:
        """Runs of the program under another tracer, in the same sandbox without ours."""
        return self.untraced([*tool, *argv])

    def has(self, program: str) -> bool:
        """Whether the base's PATH has this program."""
        return shutil.which(program, path=self.base.env["PATH"]) is not None
