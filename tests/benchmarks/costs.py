"""`--profile`: where the time goes that tracing adds. Per program: how many calls are traced, of which kinds and in which ways,
what the tracer's CPU does for each, and how much of it is the bare stop, which no tracer of this kind can do without.

The bare stop is measured on this machine by a guest that makes 100,000 of the cheapest traced calls.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.measure import Way, interleave

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.arena import Arena
    from tests.benchmarks.measure import Table
    from tests.benchmarks.works import Work

MICROSECOND = 1e6
CHEAP_CALLS = 100_000
ROUNDS = 5
TOP = 6
# An access of "" is told by nothing and looked up nowhere: what is left is the stop, and one read of the path.
CHEAP = f"""\
#include <unistd.h>
int main(void) {{ for (int i = 0; i < {CHEAP_CALLS}; i++) access("", F_OK); return 0; }}
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """One program, measured: seconds without and with the tracer, the same in CPU time, and the tracer's counters."""

    untraced_s: float
    traced_s: float
    untraced_cpu_s: float
    traced_cpu_s: float
    counts: dict[str, int]

    @property
    def calls(self) -> int:
        """How many calls were traced."""
        return max(1, self.counts["notifications"] - self.counts["diverted"] + self.counts["entry_stops"])

    def each(self, seconds: float) -> float:
        """Microseconds per traced call."""
        return seconds / self.calls * MICROSECOND


def build_bare(folder: Path) -> Path:
    """The program of cheap calls, compiled into the project."""
    program = folder / "cheap"
    subprocess.run(["gcc", "-O1", "-static", "-o", program, "-x", "c", "-"], input=CHEAP.encode(), check=True)
    return program


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_cost(arena: Arena, argv: Sequence[str], *, stops_only: bool = False, budget_s: float = 0.0) -> Cost:
    """Untraced and traced in turns, and the counters of one more run."""
    cpu: dict[bool, list[float]] = {False: [], True: []}

    def run(*, traced: bool) -> float:
        before = _cpu_s()
        seconds = arena.run(argv, traced=traced, stops_only=stops_only)
        cpu[traced].append(_cpu_s() - before)
        return seconds

    ways = {"untraced": Way(lambda: run(traced=False)), "traced": Way(lambda: run(traced=True))}
    times = interleave(ways, budget_s, ROUNDS)
    counts: dict[str, int] = {}
    arena.run(argv, stops_only=stops_only, counts=counts)
    return Cost(
        times["untraced"].median, times["traced"].median,
        statistics.median(cpu[False][1:]), statistics.median(cpu[True][1:]), counts,
    )  # fmt: skip


def own_calls(arena: Arena, argv: Sequence[str], folder: Path) -> dict[str, int]:
    """The system calls that the tracer itself makes, counted by strace; nothing without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return {}
    out, wrapper = folder / "calls", folder / "counted-tracer"
    wrapper.write_text(f'#!/bin/sh\nexec {strace} -c -U calls,name -o {out} {arena.tracer} "$@"\n')
    wrapper.chmod(0o755)
    arena.run(argv, tracer=wrapper)
    rows = [line.split() for line in out.read_text().splitlines()]
    return {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit() and row[1] != "total"}


def _top(numbers: dict[str, int], calls: int = 0) -> str:
    ordered = sorted(numbers.items(), key=lambda item: -item[1])[:TOP]
    return ", ".join(f"{name} {number / calls:.2f}" if calls else f"{name} {number:,}" for name, number in ordered)


def report(table: Table, name: str, cost: Cost, bare: float, own: dict[str, int]) -> None:
    """The lines of one program. `bare` is what a cheap call costs on the clock, in microseconds."""
    counts = cost.counts
    added, added_cpu = cost.traced_s - cost.untraced_s, cost.traced_cpu_s - cost.untraced_cpu_s
    kinds = {key.removeprefix("call."): number for key, number in counts.items() if key.startswith("call.")}
    stops = ", ".join(f"{counts[key + '_stops']:,} {key}" for key in ("entry", "exit", "birth", "exec", "signal"))
    walks = max(1, counts["walks"])
    switches = counts["switches"] + counts["forced_switches"]
    own_cpu = (
        f"user {cost.each(counts['user_us'] / MICROSECOND):.2f}, system {cost.each(counts['system_us'] / MICROSECOND):.2f}"
    )
    table.note(
        "",
        f"{name}: {cost.untraced_s * 1e3:.0f} ms untraced, {cost.traced_s * 1e3:.0f} ms traced ({cost.traced_s / cost.untraced_s:.2f})",
        f"  traced calls        {cost.calls:,}: {_top(kinds)}",
        f"  told by             {counts['notifications']:,} notifications ({counts['diverted']:,} of them then a stop); stops: {stops}",
        f"  added per call      {cost.each(added):.1f} us on the clock, {cost.each(added_cpu):.1f} us of CPU time; the tracer's: {own_cpu}",
        f"  tracer's switches   {switches / cost.calls:.2f} per call",
        f"  tracer's own calls  {sum(own.values()) / cost.calls:.2f} per call: {_top(own, cost.calls)}"
        if own
        else "  (no strace)",
        f"  names looked up     {counts['walks']:,}, of these looked up before and remembered {counts['known_walks'] / walks:.0%}",
        f"  bare calls          {cost.calls * bare / MICROSECOND * 1e3:.0f} of the {added * 1e3:.0f} ms added",
    )


def measure(arena: Arena, works: Sequence[Work], table: Table, folder: Path, budget_s: float) -> None:
    """All lines. The project at /workspace holds the program of cheap calls."""
    notified = measure_cost(arena, ["/workspace/cheap"])
    stopped = measure_cost(arena, ["/workspace/cheap"], stops_only=True)
    bare = {name: cost.each(cost.traced_s - cost.untraced_s) for name, cost in (("notified", notified), ("stopped", stopped))}
    cpu = {
        name: cost.each(cost.traced_cpu_s - cost.untraced_cpu_s)
        for name, cost in (("notified", notified), ("stopped", stopped))
    }
    table.note(
        "",
        f"a bare call: {bare['notified']:.1f} us by notification (CPU {cpu['notified']:.1f}), "
        f"{bare['stopped']:.1f} us by a stop (CPU {cpu['stopped']:.1f}); untraced {notified.each(notified.untraced_s):.2f} us",
    )
    for work in works:
        missing = [program for program in work.needs if not arena.has(program)]
        if missing:
            table.note("", f"{work.name}: no {', '.join(missing)} here")
            continue
        cost = measure_cost(arena, work.argv, budget_s=budget_s)
        report(table, work.name, cost, bare["notified"], own_calls(arena, work.argv, folder))
    table.note("", f"load {os.getloadavg()[0]:.1f}")
