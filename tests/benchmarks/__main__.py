"""`python -m tests.benchmarks [--quick] [NAMES...]`: one table, machine and versions on top. NAMES: b1 b2 b3 b4 b5 b6 b7 b8 jobs, or part of a program's name.

With `--profile` instead: where the time goes that tracing adds, for the programs of B2 (costs.py).
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.benchmarks import b1_action, b2_tracing, b3_depth, b4_plan, b5_repair, b6_ingest, b7_sessions, costs, jobs
from tests.benchmarks.arena import Arena
from tests.benchmarks.measure import Table
from tests.benchmarks.works import STORM, WORKS, make_project


def machine() -> str:
    """What the figures depend on."""
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} x {model}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def version(program: str, option: str = "--version") -> str:
    """The first line that a program says of itself."""
    if shutil.which(program) is None:
        return f"no {program}"
    said = subprocess.run([program, option], capture_output=True, text=True, check=False)
    return ((said.stdout or said.stderr).splitlines() or [program])[0]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="b1 b2 b3 b4 b5 b6 b7 b8 jobs, or part of a program's name; all when left out")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no reprozip: under a minute")
    parser.add_argument("--seconds", type=float, default=None, help="per program, in place of the default")
    parser.add_argument("--reprozip", type=Path, default=None, metavar="FOLDER", help="the bin folder of a venv that has it")
    parser.add_argument("--tracer", type=Path, action="append", default=[], help="another tracer program to compare with")
    parser.add_argument("--stops", action="store_true", help="b2 also with ptrace stops alone, as on a kernel before 6.6")
    parser.add_argument("--profile", action="store_true", help="where the time goes that tracing adds, for the programs of b2")
    return parser.parse_args()


def profile(names: list[str], table: Table, budget_s: float) -> None:
    """Print where the time goes; `names` as for main(), all programs of B2 when there are none."""
    works = [work for work in WORKS if not names or "b2" in names or any(name in work.name.lower() for name in names)]
    with tempfile.TemporaryDirectory(prefix="mulligan-bench-") as name:
        folder = Path(name)
        git = any("git" in work.needs for work in works)
        project = make_project(folder / "project", storm=False, repository=git)
        costs.build_bare(project)
        arena = Arena.build(folder / "arena", project)
        if git:
            arena.prepare(["git", "-C", "repository", "update-index", "-q", "--refresh"])
        costs.measure(arena, works, table, folder, budget_s)
        arena.close()


def main() -> None:
    """Print the table."""
    options = arguments()
    names = [name.lower() for name in options.names]
    wanted = {name for name in ("b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "jobs") if not names or name in names}
    works = [work for work in WORKS if "b2" in wanted or any(name in work.name.lower() for name in names)]
    each = options.seconds or (2.0 if options.quick else 12.0)
    table = Table()
    table.note(machine(), f"{version('gcc')}; {version('strace', '-V')}; {version('git')}")
    if options.profile:
        profile(names, table, options.seconds or 0.0)
        return
    start = time.monotonic()
    programs = options.reprozip.absolute() if options.reprozip else None
    with tempfile.TemporaryDirectory(prefix="mulligan-bench-") as name:
        folder = Path(name)
        git = any("git" in work.needs for work in works)
        project = make_project(folder / "project", storm=bool(wanted & {"b6", "b8"}), repository=git)
        if "b1" in wanted:
            b1_action.measure(folder / "b1", table, each)
        if "b8" in wanted:
            works.append(replace(STORM, name=f"B8  {STORM.name}"))
        if works:
            arena = Arena.build(folder / "arena", project, programs)
            if git:
                arena.prepare(["git", "-C", "repository", "update-index", "-q", "--refresh"])
            slow = {"reprozip": not options.quick, "least": 2 if options.quick else 3}
            b2_tracing.measure(arena, works, table, each, stops=options.stops, tracers=options.tracer, **slow)
            arena.close()
        if "b3" in wanted:
            b3_depth.measure(folder / "b3", table, each, quick=options.quick)
        if "b4" in wanted:
            b4_plan.measure(folder / "b4", table, each, quick=options.quick)
        if "b5" in wanted:
            b5_repair.measure(folder / "b5", table, 1 if options.quick else 3)
        if "b7" in wanted:
            b7_sessions.measure(folder / "b7", table, 1 if options.quick else 3)
        if "b6" in wanted:
            b6_ingest.measure(folder / "b6", project, table, each)
        if "jobs" in wanted:
            jobs.measure(folder / "jobs", table, 2 if options.quick else 5)
    table.note("", f"took {time.monotonic() - start:.0f} s, load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
