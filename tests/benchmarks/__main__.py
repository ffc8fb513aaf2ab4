"""`python -m tests.benchmarks`: one table, machine and versions on top. Interleaved, medians and spread; ratios travel, times don't."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROUNDS = int(os.environ.get("MULLIGAN_ROUNDS", "60"))


def measure(ways: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Milliseconds per call of each way, A B A B; the first round warms up and does not count."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, call in ways.items():
            start = time.perf_counter()
            call()
            if number:
                times[name].append((time.perf_counter() - start) * 1e3)
    return times


def row(name: str, times: Sequence[float]) -> str:
    """One line of the table."""
    spread = statistics.quantiles(times, n=20)
    return f"{name:<44} {statistics.median(times):>9.2f} {spread[0]:>9.2f} {spread[-1]:>9.2f}"


def plain(argv: Sequence[str], cwd: Path) -> Callable[[], object]:
    """A program run as it is."""
    return lambda: subprocess.run(argv, cwd=cwd, capture_output=True, check=True)


def ways(session: Session, argv: Sequence[str], cwd: Path, name: str) -> dict[str, Callable[[], object]]:
    """The same program as an action, as it is, and under strace."""
    out: dict[str, Callable[[], object]] = {
        f"{name}: action": lambda: session.run(argv, check=True),
        f"{name}: plain": plain(argv, cwd),
    }
    if shutil.which("strace"):
        traced = ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=%file,%network", *argv]
        out[f"{name}: strace, no sandbox"] = plain(traced, cwd)
    return out


def main() -> None:
    """Print the table."""
    print(
        f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    )
    print(f"{'milliseconds':<44} {'median':>9} {'5 %':>9} {'95 %':>9}")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "project")
        work.mkdir()
        (work / "hello.c").write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
        with Session.create("bench", imports={str(work): "/workspace"}, home=Path(folder, "store")) as session:
            table = [
                ("true", ["true"], ROUNDS),
                ("python3 -c 'import json'", ["python3", "-c", "import json"], max(5, ROUNDS // 4)),
            ]
            if shutil.which("gcc"):
                table.append(("gcc -O2 hello.c", ["gcc", "-O2", "-o", "hello", "hello.c"], max(5, ROUNDS // 4)))
            for name, argv, rounds in table:
                for label, times in measure(ways(session, argv, work, name), rounds).items():
                    print(row(label, times))


if __name__ == "__main__":
    main()
