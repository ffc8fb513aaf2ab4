"""B3: a snapshot and a rollback, for states of 10 MB, of 1 GB and of 10,000 files, at several depths of history.

A *snapshot* is all that an action pays for being kept, beyond its own run in the sandbox: sealing its layer (the manifest, a
sync of its own files and their folders, the rename), committing its record (one SQLite transaction, synced), and the list of
folders that the next action is mounted of, composites made on the way included. Building the sandbox and mounting it is B1's.
A *rollback* is `Session.rollback` and that list for the old state. Bytes of the state are real ones, made once and imported.

The peers copy or scan: `cp -a --reflink=auto` of the folder, `git stash` with one file changed (and `git stash pop`), and
`docker commit` with a run of the new image where a daemon answers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mulligan import Session
from mulligan.history.journal import Journal
from mulligan.sandbox.layer import OpenLayer
from tests.benchmarks.b1_action import IMAGE, NAME, docker, has_docker
from tests.benchmarks.measure import Table, Times, Way, interleave, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MB = 1 << 20
DEPTHS = (1, 50, 400)
SNAPSHOT_S, ROLLBACK_S = 0.002, 0.005


@dataclass(frozen=True, slots=True)
class Size:
    """A state of so many files of so many bytes."""

    name: str
    files: int
    each: int

    def make(self, folder: Path) -> Path:
        """The folder with that state, made once. Real bytes that no file system compresses or shares."""
        place = folder / self.name.replace(" ", "-").replace(",", "")
        place.mkdir(parents=True)
        for number in range(self.files):
            (place / f"{number % 100}").mkdir(exist_ok=True)
            (place / f"{number % 100}" / f"f{number}").write_bytes(os.urandom(self.each))
        return place


SIZES = (Size("10 MB", 10, MB), Size("10,000 files", 10_000, 100), Size("1 GB", 1024, MB))


@dataclass(slots=True)
class Stopwatch:
    """What of a run's time went into its snapshot, by part."""

    parts: dict[str, list[float]] = field(default_factory=dict)
    now: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """While this lasts, sealing and appending are timed."""
        seal, append = OpenLayer.seal, Journal.append
        OpenLayer.seal = self._timed("seal", seal)  # type: ignore[method-assign]
        Journal.append = self._timed("commit of the record", append)  # type: ignore[method-assign]
        try:
            yield
        finally:
            OpenLayer.seal, Journal.append = seal, append  # type: ignore[method-assign]

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **more)
            finally:
                self.add(name, time.perf_counter() - start)

        return wrapped

    def add(self, name: str, seconds: float) -> None:
        """Count a part."""
        self.parts.setdefault(name, []).append(seconds)
        self.now += seconds


class Deep:
    """A session that is grown to a depth, and measured there without growing further."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.watch = Stopwatch()
        self._count = 0

    def act(self) -> None:
        """One action: it writes two small files, as a step of a job does."""
        self._count += 1
        script = f"echo {self._count} > f{self._count % 40}; echo {self._count} >> log{self._count % 60}"
        self.session.run(["/bin/sh", "-c", script], check=True)

    def grow(self, depth: int) -> None:
        """Run until the history has so many actions."""
        while len(self.session._store.journal.layer_ids(self.session.head)) < depth:
            self.act()

    def snapshot(self) -> float:
        """The seconds of one snapshot; the head goes back afterwards."""
        before = self.session.head
        self.watch.now = 0.0
        with self.watch.running():
            self.act()
        start = time.perf_counter()
        self.ready()
        self.watch.add("next stack", time.perf_counter() - start)
        self.session._store.journal.move(self.session.name, self.session.head, before)
        self.ready()
        return self.watch.now

    def rollback(self) -> float:
        """The seconds of one rollback, to the middle of the history; the head goes back afterwards."""
        head, actions = self.session.head, self.session._store.journal.states(self.session.head)
        action = actions[len(actions) // 2][1]
        start = time.perf_counter()
        self.session.rollback(action)
        self.ready()
        took = time.perf_counter() - start
        self.session._store.journal.move(self.session.name, self.session.head, head)
        self.ready()
        return took

    def ready(self) -> None:
        """The folders of the present state, as the next action gets them."""
        self.session._stack_at(self.session.head).lower_dirs()


def copy_way(project: Path, folder: Path) -> Way:
    """A copy of the whole tree."""

    def copy() -> float:
        target = folder / "copy"
        took = timed(lambda: subprocess.run(["cp", "-a", "--reflink=auto", project, target], check=True))()
        shutil.rmtree(target)
        return took

    return Way(copy, rounds=12 if sum(1 for _ in project.rglob("*")) < 500 else 3)


def git_ways(project: Path) -> dict[str, Way]:
    """`git stash` of one changed file, and back."""

    def git(*argv: str) -> None:
        subprocess.run(["git", "-c", "user.name=b", "-c", "user.email=b", *argv], cwd=project, check=True, capture_output=True)

    git("init", "-q", "--separate-git-dir", f"{project}.git")
    git("config", "core.compression", "0")
    git("config", "gc.auto", "0")
    git("add", ".")
    git("commit", "-qm", "all")
    changed = project / "0" / "f0"
    took: list[float] = []

    def stash() -> float:
        changed.write_bytes(os.urandom(100))
        seconds = timed(lambda: git("stash"))()
        took.append(timed(lambda: git("stash", "pop"))())
        return seconds

    return {"git stash": Way(stash, rounds=12), "git stash pop": Way(lambda: took.pop(0) if took else 0.0, rounds=12)}


def docker_way(project: Path) -> Way:
    """`docker commit` of a container that holds the state, and a run of the image."""
    docker("run", "-d", "--name", f"{NAME}-b3", IMAGE, "sleep", "600")
    docker("cp", str(project), f"{NAME}-b3:/workspace")

    def commit() -> float:
        took = timed(lambda: docker("commit", f"{NAME}-b3", f"{NAME}-b3"))()
        took += timed(lambda: docker("run", "--rm", f"{NAME}-b3", "true"))()
        docker("rmi", f"{NAME}-b3")
        return took

    return Way(commit, rounds=5)


def measure(folder: Path, table: Table, budget_s: float, *, quick: bool = False) -> None:
    """The lines of B3."""
    table.title("B3  snapshot and rollback at depth (ms)")
    with_docker = has_docker()
    for size in SIZES[: 2 if quick else 3]:
        project = size.make(folder)
        with Session.create("b3", imports={str(project): "/workspace"}, home=folder / f"store-{project.name}") as session:
            peers = {"cp -a --reflink=auto": copy_way(project, folder), **git_ways(project)}
            if with_docker:
                peers["docker commit, docker run"] = docker_way(project)
            for depth in DEPTHS[: 2 if quick else 3]:
                these = peers if depth == DEPTHS[-1] or quick else {}
                _at_depth(Deep(session), size, depth, table, budget_s=budget_s, peers=these)
        if with_docker:
            docker("rm", "-f", f"{NAME}-b3")
        shutil.rmtree(project)
        shutil.rmtree(f"{project}.git")
        shutil.rmtree(folder / f"store-{project.name}")
    if not with_docker:
        table.note("  docker commit: no daemon answers here")


def _at_depth(deep: Deep, size: Size, depth: int, table: Table, *, budget_s: float, peers: dict[str, Way]) -> None:
    deep.grow(depth)
    ways = {"snapshot": Way(deep.snapshot), "rollback": Way(deep.rollback), **peers}
    times = interleave(ways, budget_s / 4, least=12)
    where = f"{size.name}, depth {depth}"
    for name, taken in times.items():
        table.times(f"{where}: {name}", taken)
        if name == "snapshot":
            for part, seconds in deep.watch.parts.items():
                table.times(f"    of that {part}", Times(seconds[1:]))
    parts = deep.watch.parts
    bare = Times([seal + stack for seal, stack in zip(parts["seal"], parts["next stack"], strict=True)][1:])
    table.ratio(f"{where}: seconds of seal and next stack", bare.median, SNAPSHOT_S)
    table.ratio(f"{where}: the same with the commit", times["snapshot"].median, SNAPSHOT_S)
    table.ratio(f"{where}: seconds of a rollback", times["rollback"].median, ROLLBACK_S)
