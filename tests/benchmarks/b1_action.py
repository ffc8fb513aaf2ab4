"""B1: one action `true` in a session: mount, sandbox, trace, seal, fold, durable commit. By the Python API, in full.

The peers are containers without trace or snapshot. They need a docker daemon, or runc and root; where there is none the
table says so. `runc exec` is the part of `docker exec` that needs no daemon.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan import Session
from tests.benchmarks.measure import Table, Times, Way, interleave, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "bench-true"  # no name that a test would take for something left behind
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


class Runc:
    """Containers by runc, from one bundle that holds two static programs."""

    def __init__(self, bundle: Path) -> None:
        self.bundle = bundle
        programs = bundle / "rootfs" / "bin"
        programs.mkdir(parents=True)
        for name, text in {
            "true": "int main(void) { return 0; }",
            "wait": "#include <unistd.h>\nint main(void) { pause(); }",
        }.items():
            subprocess.run(["gcc", "-static", "-o", programs / name, "-x", "c", "-"], input=text.encode(), check=True)
        subprocess.run(["runc", "spec"], cwd=bundle, check=True)
        config = json.loads((bundle / "config.json").read_text())
        config["process"] |= {"terminal": False, "args": ["/bin/true"]}
        (bundle / "config.json").write_text(json.dumps(config))
        self._count = 0

    @classmethod
    def here(cls, bundle: Path) -> Runc | None:
        """None where it does not run."""
        if os.geteuid() != 0 or shutil.which("runc") is None or shutil.which("gcc") is None:
            return None
        try:
            made = cls(bundle)
            made.run()
        except (OSError, subprocess.CalledProcessError):
            return None
        return made

    def run(self) -> None:
        """One container, from its making to its removal."""
        self._count += 1
        subprocess.run(["runc", "run", f"{NAME}-{os.getpid()}-{self._count}"], cwd=self.bundle, capture_output=True, check=True)

    @contextlib.contextmanager
    def standing(self) -> Iterator[str]:
        """A container that waits."""
        name = f"{NAME}-{os.getpid()}"
        config = json.loads((self.bundle / "config.json").read_text())
        config["process"]["args"] = ["/bin/wait"]
        waiting = self.bundle.parent / "waiting"
        waiting.mkdir()
        config["root"]["path"] = str(self.bundle / "rootfs")
        (waiting / "config.json").write_text(json.dumps(config))
        subprocess.run(
            ["runc", "run", "-d", name], cwd=waiting, check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield name
        finally:
            subprocess.run(["runc", "delete", "-f", name], capture_output=True, check=False)


def measure(folder: Path, table: Table, budget_s: float) -> dict[str, Times]:
    """The lines of B1."""
    table.title("B1  one action `true`, recorded (ms)")
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(Session.create("b1", home=folder / "store"))
        ways = {
            "mulligan, Session.run": Way(timed(lambda: session.run(["true"], check=True))),
            "the program alone": Way(timed(lambda: subprocess.run(["true"], check=True))),
        }
        if has_docker():
            stack.callback(docker, "rm", "-f", NAME)
            ways.update(docker_ways())
        runc = Runc.here(folder / "bundle")
        if runc is not None:
            name = stack.enter_context(runc.standing())
            ways["runc run"] = Way(timed(runc.run))
            ways["runc exec"] = Way(
                timed(lambda: subprocess.run(["runc", "exec", name, "/bin/true"], capture_output=True, check=True))
            )
        times = interleave(ways, budget_s)
    for way, taken in times.items():
        table.times(way, taken)
    mine = times["mulligan, Session.run"].median
    for peer, bar in (("docker exec true", 1 / 5), ("docker run --rm true", 1 / 25), ("runc run", 1.0)):
        if peer in times:
            table.ratio(f"over {peer}", mine / times[peer].median, bar)
        else:
            table.note(f"  {peer}: not to be had here")
    return times
