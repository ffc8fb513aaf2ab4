"""B1: one action `true` in a session: mount, sandbox, trace, seal, fold, durable commit. By the Python API, in full.

The peers are containers without trace or snapshot. They need a daemon or runc; where there is none the table says so.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan import Session
from tests.benchmarks.measure import Table, Times, Way, interleave, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "mulligan-bench"
IMAGE = "busybox"


def docker(*argv: str) -> subprocess.CompletedProcess[bytes]:
    """A docker command."""
    return subprocess.run(["docker", *argv], capture_output=True, check=True)


def has_docker() -> bool:
    """Whether a daemon answers and has an image to run (nothing is pulled)."""
    if shutil.which("docker") is None:
        return False
    try:
        docker("image", "inspect", IMAGE)
    except subprocess.CalledProcessError:
        return False
    return True


def docker_ways() -> Iterator[tuple[str, Way]]:
    """Running containers, when there are any."""
    docker("run", "-d", "--rm", "--name", NAME, IMAGE, "sleep", "600")
    yield "docker exec true", Way(timed(lambda: docker("exec", NAME, "true")))
    yield "docker run --rm true", Way(timed(lambda: docker("run", "--rm", IMAGE, "true")), rounds=10)


def measure(folder: Path, table: Table, budget_s: float) -> dict[str, Times]:
    """The lines of B1."""
    table.title("B1  one action `true`, recorded (ms)")
    with Session.create("b1", home=folder / "store") as session:
        ways = {
            "mulligan, Session.run": Way(timed(lambda: session.run(["true"], check=True))),
            "the program alone, subprocess.run": Way(timed(lambda: subprocess.run(["true"], check=True))),
        }
        docked = has_docker()
        if docked:
            ways.update(docker_ways())
        try:
            times = interleave(ways, budget_s)
        finally:
            if docked:
                docker("rm", "-f", NAME)
    for name, taken in times.items():
        table.times(name, taken)
    mine = times["mulligan, Session.run"].median
    if docked:
        table.ratio("over docker exec", mine / times["docker exec true"].median, 1 / 5)
        table.ratio("over docker run", mine / times["docker run --rm true"].median, 1 / 25)
    else:
        table.note(f"docker exec, docker run: no daemon here, or no image {IMAGE}")
    if shutil.which("runc") is None:
        table.note("runc run: not installed here")
    return times
