"""Policy: how cautious a repair is. Frozen; what the choices mean is carried out by repair/."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mulligan.model.action import Action

GROUP = "group:"  # how a label begins that makes its actions one sub-task

Level = Literal[0, 1, 2, 3, 4]
Granularity = Literal["action", "group", "session"]
EnvReads = Literal["lazy", "launch"]


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Two contents of a file that `paths` (a glob over absolute paths) names count as one when they differ only where
    `pattern`, a regular expression over bytes, matches. An action's output has the path `out:a1.stdout` or `out:a1.stderr`.
    """

    paths: str
    pattern: bytes


@dataclass(frozen=True, slots=True)
class Policy:
    """How a repair decides.

    level: 0 only what was named (unsound: the rest is kept whatever it saw), 1 what an observation proves (the default), 2
    also all that the dry run reaches, without cut-off, 3 also what hangs on hints, 4 everything from the first change on.
    granularity: what runs again as one: each action, all that share a label `group:NAME`, or the whole session.
    env_reads: whether a launch variable counts as read by whoever may have used it (`lazy`), or by all that were launched
    with it (`launch`).
    jobs: how many replays may run at the same time; 0 for as many as there are CPUs.
    """

    level: Level = 1
    granularity: Granularity = "action"
    env_reads: EnvReads = "lazy"
    equivalences: tuple[Equivalence, ...] = ()
    jobs: int = 0

    @property
    def sound(self) -> bool:
        """Whether the result of a repair is that of the whole corrected history."""
        return self.level > 0

    def units(self, action: Action) -> tuple[str, ...]:
        """The names of what the action belongs to and runs again as one with."""
        if self.granularity == "session":
            return ("session",)
        return tuple(label for label in action.labels if label.startswith(GROUP)) if self.granularity == "group" else ()


DEFAULT_POLICY = Policy()
