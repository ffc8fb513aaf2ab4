"""Two real jobs of many actions, each with the corrections that are made to it: for the flow tests and for the benchmark.

Knows nothing of sessions: a job is the files it begins with, the programs it takes, and texts to run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Fix:
    """A correction of a job. Actions are numbered from 1, as sessions do.

    `replaced` and `dropped` name actions, `patch` is a path with its new bytes, put after the action `at`. `ran` is all that
    must run again, no more and no less; `cut_off` what the plan must have feared for and the repair kept. Where it is not
    `compared`, the comparison after the next fix does for both: a full run takes long.
    """

    name: str
    ran: tuple[int, ...]
    replaced: Mapping[int, str] = field(default_factory=dict)
    dropped: tuple[int, ...] = ()
    patch: tuple[str, bytes, int] | None = None
    cut_off: tuple[int, ...] = ()
    compared: bool = True


@dataclass(frozen=True)
class Job:
    """What is done: over which files, by which programs, in which actions; and how it is corrected, one fix after the other."""

    name: str
    programs: tuple[str, ...]
    make: Callable[[Path], object]
    actions: tuple[str, ...]
    fixes: tuple[Fix, ...]
