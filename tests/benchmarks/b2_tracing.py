"""B2 and B8: what tracing costs, per program, against no tracer, strace and reprozip in the same sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.arena import REPROZIP, STRACE
from tests.benchmarks.measure import Table, Times, Way, interleave

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.benchmarks.arena import Arena
    from tests.benchmarks.works import Work

OF_STRACE, OF_REPROZIP = 1 / 4, 1 / 20  # the bars for the time added
REPROZIP_ROUNDS = 2


def ways_of(arena: Arena, work: Work, *, reprozip: bool, stops: bool, tracers: Sequence[Path]) -> dict[str, Way]:
    """The ways to run one program; `tracers` are other tracer programs to compare with, `stops` our own without notifications."""
    argv = work.argv
    ways = {"untraced": Way(arena.untraced(argv)), "mulligan": Way(arena.traced(argv))}
    if stops:
        ways["mulligan, stops only"] = Way(arena.traced(argv, stops_only=True))
    for tracer in tracers:
        ways[f"mulligan, {tracer.name}"] = Way(arena.traced(argv, tracer))
    if arena.has("strace"):
        ways["strace"] = Way(arena.peer(STRACE, argv))
    if reprozip and work.reprozip and arena.has("reprozip"):
        ways["reprozip"] = Way(arena.peer(REPROZIP, argv), rounds=REPROZIP_ROUNDS)
    return ways


def report(table: Table, work: Work, times: dict[str, Times]) -> None:
    """The lines of one program."""
    table.title(f"{work.name} (ms)")
    for name, taken in times.items():
        table.times(name, taken)
    plain, mine = times["untraced"].median, times["mulligan"].median
    table.ratio("traced / untraced", mine / plain, work.bar)
    for peer, bar in (("strace", OF_STRACE), ("reprozip", OF_REPROZIP)):
        if peer in times:
            added = times[peer].median - plain
            if added > 0.05 * plain:  # below that it is noise
                table.ratio(f"added time / {peer}'s", (mine - plain) / added, bar)


def measure(
    arena: Arena,
    works: Sequence[Work],
    table: Table,
    budget_s: float,
    *,
    reprozip: bool,
    stops: bool = False,
    least: int = 3,
    tracers: Sequence[Path] = (),
) -> None:
    """The lines of B2, or B8."""
    for work in works:
        missing = [program for program in work.needs if not arena.has(program)]
        if missing:
            table.note("", f"{work.name}: no {', '.join(missing)} here")
            continue
        ways = ways_of(arena, work, reprozip=reprozip, stops=stops, tracers=tracers)
        report(table, work, interleave(ways, budget_s, least))
    for peer in ("strace", "reprozip"):
        if not arena.has(peer):
            table.note(f"  {peer}: not in the PATH")
