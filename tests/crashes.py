"""Crashes: an operation in a forked child that is killed at one of its steps, and what must then be true of its store.

A step is a call that changes the world outside of the process: the file system's, the database's, the start of a program, and
each piece of what a running action reports. The child is warm, so a case costs tens of milliseconds. What lies between two
steps changes nothing, so a kill before each step and one after the last are all the kills there are.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twins import entry_links, said

from mulligan import Rerun, Session
from mulligan.history.store import Store
from mulligan.sandbox import trees
from mulligan.sandbox.blocks import COMPOSITE
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.stack import JUST_HELD, is_whiteout, kind_of, read_xattrs
from mulligan.sandbox.tracer import _Run
from mulligan.upkeep import gc, sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mulligan.model.layer import Layer

CASES = max(6, int(os.environ.get("MULLIGAN_CRASHES", "6")))  # kills per operation, beside those at a new kind of step
_CALLS = [
    "rename",
    "replace",
    "mkdir",
    "rmdir",
    "unlink",
    "remove",
    "link",
    "symlink",
    "mknod",
    "chmod",
    "fchmod",
    "chown",
    "fchown",
    "lchown",
    "utime",
    "setxattr",
    "removexattr",
    "fsync",
    "fdatasync",
    "write",
    "truncate",
    "ftruncate",
    "copy_file_range",
]
_PACKAGE = str(Path(trees.__file__).parent.parent)
_LOCK_FILES = {".store", ".opening"}
_killed: set[str] = set()  # kinds of step that some operation was killed at


# -------------------------------------------------------------------------------------------------- steps


class Steps:
    """Counts the steps of this process, and ends it before step `at` (from 0)."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._lock = threading.RLock()
        self.names: list[str] = []

    def step(self, call: str) -> None:
        """One step is about to be made."""
        frame = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(_PACKAGE):
            frame = frame.f_back
        if frame is None:
            return
        with self._lock:
            if len(self.names) == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
            self.names.append(f"{call} in {Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")

    def counted(self, call: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with each of its calls counted as a step."""

        def stepping(*args: Any, **kwargs: Any) -> Any:
            self.step(call)
            return function(*args, **kwargs)

        return stepping

    def install(self) -> None:
        """Count from now on. There is no way back: this is for a child that ends soon."""
        for name in _CALLS:
            setattr(os, name, self.counted(name, getattr(os, name)))
        opening = os.open

        def making(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & os.O_CREAT:
                self.step("create")
            return opening(path, flags, *args, **kwargs)

        os.open = making
        fcntl.flock = self.counted("flock", fcntl.flock)
        fcntl.ioctl = self.counted("ioctl", fcntl.ioctl)
        trees.sync_file_system = self.counted("syncfs", trees.sync_file_system)
        subprocess.Popen.__init__ = self.counted("spawn", subprocess.Popen.__init__)
        _Run._receive = self.counted("receive", _Run._receive)
        connect, step = sqlite3.connect, self.step

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *args: Any) -> sqlite3.Cursor:
                step(f"sql {statement.split(maxsplit=1)[0]}")
                return super().execute(statement, *args)

            def executemany(self, statement: str, *args: Any) -> sqlite3.Cursor:
                step(f"sql {statement.split(maxsplit=1)[0]}")
                return super().executemany(statement, *args)

        sqlite3.connect = lambda *args, **kwargs: connect(*args, factory=Connection, **kwargs)


def _children() -> set[int]:
    """The children of this process."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError):
            found.update(map(int, Path(f"/proc/self/task/{thread}/children").read_text(encoding="ascii").split()))
    return found


def _ended(child: int, others: set[int]) -> int:
    """Wait for the child, and for all that it left and that fell to us. Gives how the child ended."""
    _, how = os.waitpid(child, 0)
    while left := _children() - others:
        with suppress(ChildProcessError):
            os.waitpid(min(left), 0)
    return how


def end_at(at: int, work: Callable[[], object], notes: Path) -> list[str] | None:
    """Do the work in a child that is killed before its step `at`; None when it was, else the steps it made.

    Returns when everything that the child started has ended too: its orphans fall to this process (see conftest).
    """
    notes.unlink(missing_ok=True)
    others = _children()
    child = os.fork()
    if child == 0:
        status = 3
        try:
            steps = Steps(at)
            write = notes.write_text
            steps.install()
            work()
            names = list(steps.names)
            steps.step = lambda _: None
            write("\n".join(names))
            status = 0
        except BaseException:  # noqa: BLE001 - told to the parent, whatever it is
            notes.write_text(traceback.format_exc())
        finally:
            os._exit(status)
    how = _ended(child, others)
    if os.WIFSIGNALED(how):
        assert os.WTERMSIG(how) == signal.SIGKILL
        return None
    assert os.WEXITSTATUS(how) == 0, notes.read_text()
    return notes.read_text().split("\n")


def end_at_call(call: str, number: int, work: Callable[[], object]) -> bool:
    """Do the work in a child that strace(1) kills at its `number`-th call (from 1); whether it came to that.

    strace sees the main thread alone, where SQLite's writes and the sealing of layers are done.
    """
    waiting, go = os.pipe()
    others = _children()
    child = os.fork()
    if child == 0:
        try:
            os.close(go)
            os.read(waiting, 1)
            work()
        finally:
            os._exit(0)
    os.close(waiting)
    command = ["strace", "-qq", "-o", "/dev/null", f"--inject={call}:signal=SIGKILL:when={number}", "-p", str(child)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        tracer = ""
        while strace.poll() is None and tracer in ("", "0"):
            tracer = re.search(r"TracerPid:\s*(\d+)", Path(f"/proc/{child}/status").read_text(encoding="ascii"))[1]
        os.close(go)
        _, said = strace.communicate()
        assert tracer == str(strace.pid), said
    how = _ended(child, others)
    return os.WIFSIGNALED(how)


def chosen(names: Sequence[str], killed: set[str], cases: int = CASES) -> list[int]:
    """The steps to be killed at: of each kind that is not in `killed` the first, some spread over all, and after the last."""
    first = {name: number for number, name in reversed(list(enumerate(names))) if name not in killed}
    spread = range(len(names)) if len(names) <= cases else (number * len(names) // cases for number in range(cases))
    return sorted({*first.values(), *spread, len(names)})


# -------------------------------------------------------------------------------------------------- stores


def clear(folder: Path) -> None:
    """Remove a folder, whatever modes are in it."""
    above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        trees.remove_tree(above, folder.name)
    finally:
        os.close(above)


def copy_store(home: Path, to: Path, *, whole: bool = False) -> None:
    """A copy of a store for one case; the host's skeleton, which nothing writes to, is shared unless `whole` is asked for."""
    layers = to / "layers"
    to.mkdir(mode=0o700)
    layers.mkdir(mode=0o700)
    for one in (home / "layers").glob("base-*"):
        if whole:
            subprocess.run(["cp", "-al", one, "-t", layers], check=True)
        else:
            (layers / one.name).symlink_to(one)
    own = [one for one in home.iterdir() if one.name != "layers"]
    theirs = [one for one in (home / "layers").iterdir() if not one.name.startswith("base-")]
    where = f'cp -a "${{@:1:{len(own)}}}" "$0"; cp -a "${{@:{len(own) + 1}}}" "$0/layers"'
    subprocess.run(["bash", "-c", where, to, *own, *theirs], check=True)


def state_of(home: Path) -> dict[str, object]:
    """Each session with its history and its tree, all times left out; every layer of it is found to be as its manifest says."""
    found = {}
    contents: dict[tuple[str, str], bytes] = {}
    seen = set()
    for row in sessions(home) if home.exists() else ():
        with Session.open(row.name, home=home) as session:
            records, layers, past = session.log(), session._layers, session._past(session.head)
            for layer in (*past.bottom, *(record.layer for record in past.records)):
                if layer.id.startswith("base-"):
                    assert layers.has(layer.id)
                elif layer.id not in seen:
                    seen.add(layer.id)
                    contents.update({(layer.id, path): data for path, data in check_layer(layers, layer).items()})
            tree = past.tree()
            rows = {
                path: (node.kind, node.mode, node.uid, node.gid, node.target, node.xattrs, entry_links(tree, path),
                       contents.get((node.provider, path)))
                for path, node in tree.walk("/workspace")
            }  # fmt: skip
            history = [(record.id, record.revision, *said(record)) for record in records]
            pins = sorted(label for label in session._store.journal.pins(row.name) if label.startswith("/"))
            found[row.name] = (history, rows, session._row().next_action, pins, session.imports, session.oldest_repairable)
    return found


def check_layer(layers: LayerStore, layer: Layer) -> dict[str, bytes]:
    """A sealed layer is there, and each of its objects is as its manifest says. Gives the content of its files."""
    assert layers.has(layer.id), layer.id
    contents: dict[str, bytes] = {}
    if layers.is_empty(layer.id):
        assert not layer.manifest.paths
        return contents
    for path, entry in layer.manifest.entries.items():
        with layers.holder(layer.id, path) as (folder, name):
            held = os.open(name, JUST_HELD, dir_fd=folder)
            try:
                status = os.fstat(held)
                xattrs = read_xattrs(trees.descriptor_path(held)) if entry.kind != "link" else ()
                target = os.readlink("", dir_fd=held) if entry.kind == "link" else ""
            finally:
                os.close(held)
        mode = entry.mode if entry.kind == "link" else stat.S_IMODE(status.st_mode)
        owner = layers.ids.in_guest(status.st_uid, status.st_gid)
        there = (kind_of(status), mode, *owner, status.st_mtime_ns, target, tuple(sorted(xattrs)))
        told = (entry.kind, entry.mode, entry.uid, entry.gid, entry.mtime_ns, entry.target, tuple(sorted(entry.xattrs)))
        assert there == told, (layer.id, path, there, told)
        if entry.kind == "file":
            contents[path] = layers.read(layer.id, path)
            assert len(contents[path]) == entry.size, (layer.id, path)
    for path in layer.manifest.removed:
        with suppress(FileNotFoundError, NotADirectoryError), layers.holder(layer.id, path) as (folder, name):
            assert is_whiteout(os.stat(name, dir_fd=folder, follow_symlinks=False)), (layer.id, path)
    return contents


def check_tidy(home: Path) -> None:
    """After gc the store holds what its database names, and nothing else but composites, which are caches."""
    with Store.open(home) as store:
        known = {layer for layer in store.journal.live_layers() if not LayerStore.is_empty(layer)}
        names = {row.name for row in store.sessions()}
    there = {name for name in os.listdir(home / "layers") if not name.startswith(("base-", COMPOSITE))}
    assert there == {layer for layer in known if not layer.startswith("base-")}
    assert set(os.listdir(home / "locks")) <= _LOCK_FILES | names
    assert {name.partition("-")[0] for name in os.listdir(home)} <= {"layers", "locks", "store.db"}


def check_usable(home: Path, name: str) -> None:
    """A session can run, and repair, what comes next."""
    with Session.open(name, home=home) as session:
        record = session.run("echo next > next; cat next")
        assert record.stdout == "next\n", record
        report = session.repair(Rerun(record.id))
        assert record.id in report.ran
        assert session.files.read("next") == "next\n"


class Crashes:
    """Kills one operation at its steps, each time on a copy of the same store, and checks what is left."""

    def __init__(
        self,
        home: Path,
        place: Path,
        work: Callable[[Path], object],
        *,
        prepare: Callable[[], object] = tuple,
        whole: bool = False,
    ) -> None:
        self._home, self._place, self._work, self._prepare = home, place, work, prepare
        self._whole_copy = whole
        self.before = state_of(home) if home.exists() else {}
        self.names, self.after = self._uninterrupted()

    def _uninterrupted(self) -> tuple[list[str], dict[str, object]]:
        home = self._fresh()
        names = end_at(-1, lambda: self._work(home), self._place / "notes")
        assert names is not None
        after = state_of(home)
        return names, after

    def _fresh(self) -> Path:
        home = self._place / "case"
        clear(home)
        if self._home.exists():
            copy_store(self._home, home, whole=self._whole_copy)
        self._prepare()
        return home

    def check_all(self, also: Callable[[Path], None] = lambda _: None) -> int:
        """Kill at the chosen steps; how many were really killed. `also` checks more of a killed case, and may mend."""
        killed = 0
        steps = chosen(self.names, _killed)
        _killed.update(self.names)
        for at in steps:
            home = self._fresh()
            killed += end_at(at, lambda home=home: self._work(home), self._place / "notes") is None
            where = f"killed at step {at} of {len(self.names)}: {(*self.names, 'the end')[min(at, len(self.names))]}"
            try:
                self._check(home, at)
                also(home)
            except BaseException as error:
                error.add_note(where)
                raise
            clear(home)
        return killed

    def check_calls(self, calls: Mapping[str, int]) -> int:
        """Kill at the first calls of each system call, as many as are said; how many were really killed."""
        killed = 0
        for call, most in calls.items():
            for number in range(1, most + 1):
                home = self._fresh()
                done = end_at_call(call, number, lambda home=home: self._work(home))
                killed += done
                try:
                    self._check(home, number)
                except BaseException as error:
                    error.add_note(f"killed at {call} number {number}")
                    raise
                if not done:
                    break
        return killed

    def _check(self, home: Path, at: int) -> None:
        found = state_of(home)
        assert found in (self.before, self.after), _differences(found, self.before, self.after)
        if home.exists():
            gc(home)
            check_tidy(home)
            if at % 3 == 0:
                assert state_of(home) == found
            for name in sorted(found)[at % 6 :][:1]:
                check_usable(home, name)


def _differences(found: Mapping[str, object], *expected: Mapping[str, object]) -> list[object]:
    return [
        [(name, found.get(name), one.get(name)) for name in found.keys() | one.keys() if found.get(name) != one.get(name)]
        for one in expected
    ]
