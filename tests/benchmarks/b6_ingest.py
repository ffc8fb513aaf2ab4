"""B6: what an action of 50,000 facts costs beyond its own run: decoding, folding, sealing, recording."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mulligan import Session
from tests.benchmarks.measure import Table, Times, Way, interleave
from tests.benchmarks.works import PYTHON

if TYPE_CHECKING:
    from pathlib import Path

FACTS = 50_000
PROGRAM = """\
import os, sys
names = os.listdir("storm")[: {half}]
for name in names:
    os.stat("storm/" + name)
for number in range({facts} - len(names)):
    os.path.exists(f"storm/no{{number}}")
"""


def measure(folder: Path, project: Path, table: Table, budget_s: float, bar_s: float = 0.2) -> None:
    """The lines of B6."""
    table.title(f"B6  an action of {FACTS:,} facts (ms)")
    program = PROGRAM.format(facts=FACTS, half=FACTS // 2)
    inside: list[float] = []

    def beyond(argv: list[str]) -> float:
        start = time.perf_counter()
        record = session.run(argv, check=True)
        whole = time.perf_counter() - start
        if argv[0] != "true":
            facts = len(record.footprint.stats) + len(record.footprint.missed)
            assert facts >= FACTS, facts
            inside.append(record.outcome.duration_ms / 1e3)
        return whole - record.outcome.duration_ms / 1e3

    with Session.create("b6", imports={str(project): "/workspace"}, home=folder / "store") as session:
        times = interleave(
            {
                "beyond the action itself": Way(lambda: beyond([PYTHON, "-c", program])),
                "the same of `true`": Way(lambda: beyond(["true"])),
            },
            budget_s,
        )
    for name, taken in times.items():
        table.times(name, taken)
    table.times("the action itself, traced", Times(inside[1:]))
    table.ratio("seconds beyond the action itself", times["beyond the action itself"].median, bar_s)
