"""B7: eight sessions of one store that work at once, against one after the other: eight processes, and eight threads.

Each session compiles a small C file and runs the result, several times, beside smaller actions. What all share is the store:
its database with one writer at a time, its locks, and (threads) the interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan import Session
from tests.benchmarks.measure import Way, interleave

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.synchronize import Barrier

    from tests.benchmarks.measure import Table

SESSIONS = 8
ROUNDS = 3
ACTIONS = ("gcc -O1 -o hello hello.c", "./hello > said", "cat said | sort > sorted; ls -l > listing", "true")


def work(home: Path, name: str) -> None:
    """What one session does."""
    with Session.open(name, home=home) as session:
        for _ in range(ROUNDS):
            for text in ACTIONS:
                session.run(text, check=True)


def _worker(home: Path, name: str, ready: Barrier) -> None:
    with Session.open(name, home=home) as session:
        session.log()
    ready.wait()
    work(home, name)


def measure(folder: Path, table: Table, rounds: int) -> None:
    """The lines of B7."""
    home, project = folder / "store", folder / "project"
    project.mkdir(parents=True)
    (project / "hello.c").write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
    count = [0]

    def fresh() -> list[str]:
        """Eight new sessions."""
        count[0] += 1
        names = [f"s{count[0]}-{number}" for number in range(SESSIONS)]
        for name in names:
            Session.create(name, imports={str(project): "/workspace"}, home=home).close()
        return names

    ways: dict[str, Callable[[Path, Sequence[str]], float]] = {
        "one after the other": one_after_the_other,
        f"{SESSIONS} processes at once": processes,
        f"{SESSIONS} threads at once": threads,
    }
    table.title(f"B7  {SESSIONS} sessions of {ROUNDS * len(ACTIONS)} actions, {len(os.sched_getaffinity(0))} CPUs (ms)")
    times = interleave({name: Way(lambda way=way: way(home, fresh()), rounds) for name, way in ways.items()}, 0, least=rounds)
    alone = times["one after the other"].median
    for name, taken in times.items():
        table.times(name, taken)
    for name, taken in times.items():
        if taken is not times["one after the other"]:
            table.ratio(f"{name}, over one after the other", taken.median / alone, 1 / 1.6)


def one_after_the_other(home: Path, names: Sequence[str]) -> float:
    """Each session when the one before is done."""
    start = time.perf_counter()
    for name in names:
        work(home, name)
    return time.perf_counter() - start


def threads(home: Path, names: Sequence[str]) -> float:
    """A thread of this process for each session."""
    workers = [threading.Thread(target=work, args=(home, name)) for name in names]
    start = time.perf_counter()
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    return time.perf_counter() - start


def processes(home: Path, names: Sequence[str]) -> float:
    """A process for each session; they begin together, when all have opened theirs."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(len(names) + 1)
    workers = [context.Process(target=_worker, args=(home, name, ready)) for name in names]
    for one in workers:
        one.start()
    ready.wait()
    start = time.perf_counter()
    for one in workers:
        one.join()
        assert one.exitcode == 0, one.exitcode
    return time.perf_counter() - start
