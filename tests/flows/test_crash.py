"""Mulligan is killed at each of its steps; what the store then holds is the state before or after, and all goes on from there.

MULLIGAN_CRASHES is the number of kills per operation, spread over all kinds of step; a large number means every step.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from crashes import CASES, Crashes, clear

from mulligan import Drop, Patch, Replace, Session, budget
from mulligan.sandbox import blocks, composite
from mulligan.sandbox.stack import kind_of
from mulligan.upkeep import gc, remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mulligan.sandbox.hosts import HostFeatures

ROOM = 1 << 29
MAKE = (
    "mkdir -p d/e; echo one; echo 1 > d/a; ln d/a d/b; ln -s a d/l; echo two; echo x >> x; chmod 600 y; rm z; exec 3<>w; exec 3>&-;"
    " rm -r gone; mkdir gone; mv moved moved2; echo three"
)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place for many stores: in memory when there is enough, since a killed process loses nothing that was not synced."""
    memory = Path("/dev/shm")
    if os.geteuid() == 0 and memory.is_dir() and shutil.disk_usage(memory).free > ROOM:
        place = Path(tempfile.mkdtemp(dir=memory))
        yield place
        clear(place)
    else:
        yield tmp_path_factory.mktemp("crash")


@pytest.fixture
def place(room: Path) -> Iterator[Path]:
    """A fresh folder for one test."""
    place = Path(tempfile.mkdtemp(dir=room))
    yield place
    clear(place)


@pytest.fixture(scope="module")
def template(room: Path, sandboxes: HostFeatures) -> Path:
    """A store with three sessions over an imported folder, and history that no head reaches."""
    assert sandboxes.runs
    place = room / "template"
    project = place / "project"
    (project / "sub").mkdir(parents=True)
    (project / "sub" / "old").write_text("old\n")
    (project / "kept").write_text("kept\n")
    home = place / "store"
    with Session.create("s", home=home, imports={str(project): "/workspace"}) as session:
        session.run("echo 0 > x; echo 0 > y; echo 0 > z; echo 0 > w; mkdir gone; echo 0 > gone/f; echo 0 > moved", check=True)
        session.run("echo bad > in; mkdir out; chmod 700 out", check=True)
        session.run("cat in > out/copy; export V=1", check=True)
        session.run("echo b > out/beside; chmod 600 in", check=True)
        session.run("echo $V; cat out/copy", check=True)
        with session.branch("t", at="a4") as other:
            other.run("echo t > t; seq 100 | while read n; do echo $n > gone/$n; done", check=True)
            other.run("echo left behind > behind", check=True)
            other.rollback("a6")
        host = place / "host"  # where session c commits to
        closed = 500 if os.geteuid() == 0 else 750  # an ordinary user can take nothing out of a closed folder
        with session.branch("c", at="a1") as other:
            other._store.configure("c", {"imports": {str(host): "/workspace"}})
            other.run(
                f"cat kept sub/old > sub/new; mkdir -p d/e; echo f > d/e/f; ln -s kept l; ln -s f d/e/l; chmod {closed} d",
                check=True,
            )
            other.run("rm kept; mkdir kept; echo in > kept/in; rm -r sub; echo sub > sub; echo 1 > x", check=True)
    return home


def test_a_run(template: Path, place: Path) -> None:
    """A run that is killed is in the history with all it did, or not at all."""

    def work(home: Path) -> None:
        with Session.open("s", home=home) as session:
            session.run(MAKE, check=True)

    assert Crashes(template, place, work).check_all() > 10


def test_a_run_at_its_system_calls(template: Path, place: Path, lacking_here: Callable[[str], None]) -> None:
    """Killed in the middle of SQLite's own writes and syncs, and of sealing, a run is in the history or not."""
    if shutil.which("strace") is None:
        lacking_here("there is no strace")

    def work(home: Path) -> None:
        with Session.open("s", home=home) as session:
            session.run(MAKE, check=True)

    most = max(2, CASES // 2)
    calls = {"pwrite64": 2 * most, "fdatasync": most, "fsync": most, "renameat": most, "rename": 1, "ftruncate": 1}
    assert Crashes(template, place, work).check_calls(calls) > 5


def test_a_repair(template: Path, place: Path) -> None:
    """A repair with replays, a patch and a layer made again is published whole or not at all."""

    def work(home: Path) -> None:
        with Session.open("s", home=home) as session:
            report = session.repair(Replace("a2", "echo good > in; mkdir out; chmod 750 out"), Patch("y", b"patched\n"))
            assert report.applied

    assert Crashes(template, place, work).check_all() > 10


def test_a_drop(template: Path, place: Path) -> None:
    """A repair that drops an action, and one that fails on the way, leave the history before or after."""

    def work(home: Path) -> None:
        with Session.open("t", home=home) as session:
            assert session.apply(session.plan(Drop("a3")), keep_going=True).applied
            assert not session.apply(session.plan(Replace("a2", "exit 3"))).applied

    assert Crashes(template, place, work).check_all() > 5


def test_a_new_session(template: Path, place: Path) -> None:
    """A session that is killed while it is made, in a store that is there or in none, is there with all it imports or not."""
    project = place / "project"
    (project / "d").mkdir(parents=True)
    (project / "d" / "f").write_bytes(b"f")
    (project / "l").symlink_to("d/f")
    os.link(project / "d" / "f", project / "g")

    def work(home: Path) -> None:
        Session.create("new", home=home, imports={str(project): "/workspace/p"}).close()

    assert Crashes(template, place, work, whole=True).check_all() > 5
    assert Crashes(place / "none", place, work).check_all() > 5


def test_moving_and_branching(template: Path, place: Path) -> None:
    """A rollback, a branch and the end of a session are done or not."""

    def back(home: Path) -> None:
        with Session.open("s", home=home) as session:
            session.rollback("a3")

    def branch(home: Path) -> None:
        with Session.open("s", home=home) as session:
            session.branch("u", at="a2").close()

    for work in (back, branch, lambda home: remove("t", home)):
        assert Crashes(template, place, work).check_all() > 1


def test_a_merge(template: Path, place: Path) -> None:
    """A merge that is killed has put all of the branch's actions into the history or none."""

    def work(home: Path) -> None:
        with Session.open("s", home=home) as session:
            assert session.merge("t", replay=True).applied

    assert Crashes(template, place, work).check_all() > 3


def test_gc(template: Path, place: Path) -> None:
    """A gc that is killed has taken nothing that a session stands on; the next one takes the rest."""

    def work(home: Path) -> None:
        gc(home)

    assert Crashes(template, place, work).check_all() > 5


def test_gc_within_a_budget(template: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gc that gives up layers has moved all floors or none, and taken no layer that a session still needs."""
    monkeypatch.setattr(budget, "_OBJECT_BYTES", 0)  # in memory a folder takes no space, so that giving up seems to gain none

    def work(home: Path) -> None:
        assert gc(home, budget=0).given_up

    assert Crashes(template, place, work).check_all() > 5


def test_folding(template: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A composite that is not whole is no composite: killed while it is made, it is made again."""
    monkeypatch.setattr(composite, "EASY", 0)
    monkeypatch.setattr(blocks, "SPAN", 2)

    def work(home: Path) -> None:
        with Session.open("s", home=home) as session:
            session.run("cat out/copy > after", check=True)
            assert any(layer.startswith(blocks.COMPOSITE) for layer in os.listdir(home / "layers"))

    assert Crashes(template, place, work).check_all() > 5


def test_a_commit(template: Path, place: Path) -> None:
    """A commit that is killed leaves each path old or new; the next one completes it, or takes it back after a rollback."""
    host, source = template.parent / "host", template.parent / "project"

    def prepare() -> None:
        clear(host)
        shutil.copytree(source, host, symlinks=True)

    def work(home: Path) -> None:
        with Session.open("c", home=home) as session:
            assert session.commit(str(host)).applied

    prepare()
    was = _told(host)
    cases = Crashes(template, place, work, prepare=prepare)
    now = _told(host)
    seen: set[str] = set()

    def also(home: Path) -> None:
        there = _told(host)
        for path in sorted(there.keys() | was.keys() | now.keys()):
            if Path(path).name.startswith(".mulligan-"):
                seen.add("beside")
                continue
            one = there.get(path)
            kinds = {was[path][0] if path in was else "", now[path][0] if path in now else ""}
            between = one is None and len(kinds - {""}) > 1
            folder = one is not None and one[0] == "dir" and "dir" in kinds
            assert between or folder or one in (was.get(path), now.get(path)), (path, one, was.get(path), now.get(path))
        with Session.open("c", home=home) as session:
            if len(seen) % 2:
                session.rollback("a1")
            seen.add(str(len(seen)))
            session.run("true")
            report = session.commit(str(host))
            assert report.applied, report
            expected = dict(session._tree_of(session.log()).walk("/workspace"))
            assert set(_told(host)) == {p.removeprefix("/workspace/") for p in expected if p != "/workspace"}
            for path, (kind, *_rest, data) in _told(host).items():
                assert kind == expected[f"/workspace/{path}"].kind
                assert kind != "file" or data == session.files.read_bytes(path)

    assert cases.check_all(also) > 10
    assert "beside" in seen


def _told(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that lies below a folder of the host: kind, mode, and content or target."""
    rows: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        kind = kind_of(status)
        data = path.read_bytes() if kind == "file" else os.readlink(path) if kind == "link" else None
        rows[str(path.relative_to(folder))] = (kind, stat.S_IMODE(status.st_mode), data)
    return rows
