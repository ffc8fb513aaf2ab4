"""B5: a job of 200 actions, one of them wrong, with three real dependents: a repair, against running more than that again.

The job compiles small C modules and runs a test of each, turn by turn, adds their results up and reports. Early in it one
module was compiled with a wrong rate; its test, the sum and the report depend on that. Against the repair stand running the
whole corrected job, and what a tool can do that knows no dependencies: roll back to before the wrong action and run all the
rest. Each works on its own branch of the same recording, and all must end with the same report.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan import Replace, Session
from mulligan.model.policy import Policy
from tests.benchmarks.measure import Times, Way, interleave

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.measure import Table

MODULES = 98
WRONG = 10  # the module that was compiled with a wrong rate
BAR = 20
WAITING = 8

MODULE = """\
#include <stdio.h>
#include "rate.h"
static long steps[{size}];
long part_{name}(long start) {{
    long sum = 0;
    for (int i = 0; i < {size}; i++) {{ steps[i] = start * RATE + i * {number}; sum += steps[i] % 97; }}
    return sum;
}}
int main(void) {{ printf("{name} %ld\\n", part_{name}({number})); return 0; }}
"""


def make_project(folder: Path) -> Path:
    """The sources."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "rate.h").write_text("#ifndef RATE\n#define RATE 17\n#endif\n")
    for number in range(1, MODULES + 1):
        text = MODULE.format(name=f"m{number:03}", number=number, size=200 + number)
        (folder / "src" / f"m{number:03}.c").write_text(text)
    return folder


def actions() -> list[str]:
    """The job as it should have been."""
    told = ["mkdir build results"]
    for number in range(1, MODULES + 1):
        name = f"m{number:03}"
        told += [
            f"gcc -O1 -c -o build/{name}.o src/{name}.c",
            f"gcc -o build/{name} build/{name}.o && build/{name} > results/{name}",
        ]
    return [
        *told,
        "cat results/* | awk '{ sum += $2 } END { print NR, sum }' > total",
        'echo "$(wc -l < total) line: modules and sum $(cat total)" > report',
        "ls src > sources",
    ]


def measure(folder: Path, table: Table, rounds: int) -> None:
    """The lines of B5."""
    good = actions()
    place = 1 + 2 * (WRONG - 1)
    bad = [text.replace("-O1", "-O1 -DRATE=7") if number == place else text for number, text in enumerate(good)]
    imports = {str(make_project(folder / "project")): "/workspace"}
    table.title(f"B5  repair: {len(good)} actions, one wrong, three depend on it (ms)")
    with Session.create("b5", imports=imports, home=folder / "store") as session:
        start = time.perf_counter()
        ids = [session.run(text, check=True).id for text in bad]
        recording = time.perf_counter() - start
        minimal = (ids[place], ids[place + 1], *ids[-3:-1])
        reports: set[str] = set()

        def on_a_branch(work: Callable[[Session], object]) -> Callable[[], float]:
            def run() -> float:
                number[0] += 1
                with session.branch(f"turn-{number[0]}") as branch:
                    began = time.perf_counter()
                    work(branch)
                    took = time.perf_counter() - began
                    reports.add(branch.files.read("/workspace/report"))
                    return took

            return run

        def repair(branch: Session) -> None:
            report = branch.repair(Replace(ids[place], good[place]))
            assert report.ran == minimal, (report.ran, minimal)

        def from_the_wrong_one(branch: Session) -> None:
            branch.rollback(ids[place - 1])
            for text in good[place:]:
                branch.run(text, check=True)

        def from_the_start(branch: Session) -> None:
            branch._store.journal.move(branch.name, branch.head, 0)
            for text in good:
                branch.run(text, check=True)

        number = [0]
        mine, rest, whole = (on_a_branch(work) for work in (repair, from_the_wrong_one, from_the_start))
        mine()  # warms up
        repairs, rests, wholes = list[float](), list[float](), list[float]()
        for _ in range(rounds):  # the short one between the long ones: what else the machine does meanwhile hits all alike
            for call, seconds in ((mine, repairs), (rest, rests), (mine, repairs), (whole, wholes), (mine, repairs)):
                seconds.append(call())
        assert len(reports) == 1, reports
    times = {
        f"repair: plan, {len(minimal)} actions run again, publish": Times(repairs),
        "rolled back to before it, the rest run again": Times(rests),
        "all run again": Times(wholes),
    }
    for way, taken in times.items():
        table.times(way, taken)
    table.times("recording it", Times([recording]))
    fast, suffix, all_again = (taken.median for taken in times.values())
    table.note(f"  executed: {len(minimal)} of {len(good)} actions, the minimal set")
    table.ratio("repair over all run again", fast / all_again, 1 / BAR)
    table.ratio("repair over rolled back and the rest run again", fast / suffix, 1 / BAR)
    _at_once(folder, table, rounds)


def _at_once(folder: Path, table: Table, rounds: int) -> None:
    """Replays that do not depend on each other, one after the other and two at a time."""
    with Session.create("at-once", home=folder / "store") as session:
        first = session.run("echo 1 > n", check=True).id
        for number in range(WAITING):
            session.run(f"cat n > r{number}; grep -q 1 n || sleep 1", check=True)

        def repair(jobs: int) -> float:
            with session.branch(f"jobs-{jobs}-{time.monotonic_ns()}") as branch:
                began = time.perf_counter()
                report = branch.repair(Replace(first, "echo 2 > n"), policy=Policy(jobs=jobs))
                took = time.perf_counter() - began
                assert len(report.ran) == WAITING + 1
                assert report.in_vain == 0
                return took

        times = interleave({f"jobs {jobs}": Way(lambda jobs=jobs: repair(jobs), rounds) for jobs in (1, 2)}, 0, least=rounds)
    for jobs, taken in times.items():
        table.times(f"{WAITING} independent replays of 1 s, {jobs}", taken)
    one, two = (taken.median for taken in times.values())
    table.ratio("two at a time over one at a time", two / one, 1 / 1.6)
