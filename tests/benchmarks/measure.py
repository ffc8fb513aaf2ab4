"""Measuring: ways to do one thing, interleaved, and the table of what came out. Knows nothing of what is measured.

Machines drift and share their CPUs, so the ways take turns within one run (A B C A B C …) and only ratios between them
are held against a bar. A benchmark never passes or fails.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MILLISECOND = 1e3


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do the thing: a call that gives its own time in seconds. `rounds` bounds how often a slow one is tried."""

    call: Callable[[], float]
    rounds: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds that a way took, round by round."""

    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)

    def quantile(self, part: float) -> float:
        """The time that this part of the rounds stayed below."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """The call, giving its wall time."""

    def run() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return run


def interleave(ways: Mapping[str, Way], budget_s: float, least: int = 3) -> dict[str, Times]:
    """Every way in turn until the budget is used up, `least` rounds in any case. One round before that warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        if way.rounds > 1:
            way.call()
    start = time.perf_counter()
    done = 0
    while done < least or time.perf_counter() - start < budget_s * done / (done + 1):
        for name, way in ways.items():
            if done < way.rounds:
                seconds[name].append(way.call())
        done += 1
    return {name: Times(values) for name, values in seconds.items()}


class Table:
    """What is printed, as soon as it is known: a line per way, and a line per ratio with its bar."""

    def title(self, text: str) -> None:
        """Begin a benchmark."""
        self.note("", f"{text:<58} {'median':>9} {'5 %':>9} {'95 %':>9} {'rounds':>6}")

    def times(self, name: str, times: Times) -> None:
        """A line of milliseconds."""
        figures = " ".join(f"{part * MILLISECOND:>9.2f}" for part in (times.median, times.quantile(0.05), times.quantile(0.95)))
        self.note(f"  {name:<56} {figures} {len(times.seconds):>6}")

    def ratio(self, name: str, value: float, bar: float) -> None:
        """A ratio and the bar that it should not be above."""
        met = "met" if value <= bar else "missed"
        self.note(f"  {name:<56} {value:>9.3f}   bar {bar:<6.3g} {met}")

    def note(self, *lines: str) -> None:
        """Something else, such as what could not be measured, and why."""
        print(*lines, sep="\n", flush=True)
