"""Jobs: two real jobs, each correction of theirs repaired and run whole, turn by turn. The lines are rows for the README."""

from __future__ import annotations

import shutil
import statistics
import time
from typing import TYPE_CHECKING

from mulligan import Policy
from tests.jobs.course import Course
from tests.jobs.package import PACKAGE
from tests.jobs.pipeline import PIPELINE

if TYPE_CHECKING:
    from pathlib import Path

    from mulligan import Report
    from tests.benchmarks.measure import Table
    from tests.jobs import Job

SERIAL = Policy(jobs=1)
HEAD = (
    "| job | correction | actions | run again | kept | of these cut off | repair | with `--jobs 1` | all again | repair / all |"
)


def measure(folder: Path, table: Table, rounds: int) -> None:
    """A row for each correction of each job."""
    table.note("", HEAD, "|---|---|---|---|---|---|---|---|---|---|")
    for number, job in enumerate((PACKAGE, PIPELINE)):
        missing = [program for program in job.programs if not shutil.which(program)]
        if missing:
            table.note(f"{job.name}: not measured, without {', '.join(missing)}")
        else:
            _measure_job(job, folder / str(number), table, rounds)


def _measure_job(job: Job, folder: Path, table: Table, rounds: int) -> None:
    seconds: dict[tuple[str, str], list[float]] = {}
    reports: dict[str, Report] = {}
    course = Course.begin(job, folder)
    course.record(job)
    for number in range(rounds):
        ways = [("repair", course.copy(), None), ("serial", course.copy(), SERIAL)]
        for fix in job.fixes:
            for name, way, policy in ways if number % 2 else reversed(ways):
                start = time.perf_counter()
                reports[fix.name] = way.apply(fix, way.plan(fix, policy))
                seconds.setdefault((fix.name, name), []).append(time.perf_counter() - start)
            with ways[0][1].twin() as twin:
                start = time.perf_counter()
                ways[0][1].run_whole(twin)
                seconds.setdefault((fix.name, "whole"), []).append(time.perf_counter() - start)
        for _, way, _ in ways:
            way.close()
    for fix in job.fixes:
        report = reports[fix.name]
        repair, serial, whole = (statistics.median(seconds[fix.name, way]) for way in ("repair", "serial", "whole"))
        counts = [
            len(report.ran) + len(report.kept) + len(report.dropped),
            len(report.ran),
            len(report.kept),
            len(report.cut_off),
        ]
        figures = " | ".join((*map(str, counts), f"{repair:.2f}", f"{serial:.2f}", f"{whole:.2f}", f"{repair / whole:.2f}"))
        table.note(f"| {job.name} | {fix.name} | {figures} |")
    course.close()
