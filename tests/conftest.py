"""What all tests share: the host's features in the header, stores, compiled guests, and the check that nothing is left.

A test that needs what this host lacks skips with the reason; with MULLIGAN_MUST_WORK=1 (set in CI) it fails instead.
With MULLIGAN_STOPS_ONLY=1 every traced call is a stop, as on kernels that can't wake in place (tracer/src/notify.h).
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from mulligan.model.events import Incomplete, Killed
from mulligan.model.fold import check_writes
from mulligan.model.layer import Layer
from mulligan.runner import Runner
from mulligan.sandbox.hosts import HostFeatures
from mulligan.sandbox.layer import OpenLayer
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.removal import settle
from mulligan.sandbox.trees import remove_tree

sys.path.insert(0, str(Path(__file__).parent))
from merged import Comparing, Helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mulligan.sandbox.layer import Ran

GUESTS = Path(__file__).parent / "guests"
_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 10.0
_RUNS_SANDBOXES = frozenset({"home", "shared_home", "sandboxes"})


def must_work() -> bool:
    """Whether what cannot be tested here is a failure."""
    return os.environ.get("MULLIGAN_MUST_WORK", "") not in ("", "0")


def lacking(reason: str) -> None:
    """This test can't run here: skip it, or fail it where all must work."""
    if must_work():
        pytest.fail(f"MULLIGAN_MUST_WORK is set, and {reason}")
    pytest.skip(reason)


def pytest_configure() -> None:
    """Whatever a test leaves running becomes our child, so that it can be found; Ctrl-C is heard.

    A shell starts its background jobs with SIGINT ignored, and that is inherited (POSIX, sh, "Asynchronous Lists").
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not os.access(".", os.W_OK):  # a checkout that belongs to somebody else: no place for found examples
        settings.register_profile("read-only", database=None)
        settings.load_profile("read-only")
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    NativeSandbox.stops_only = os.environ.get("MULLIGAN_STOPS_ONLY", "") not in ("", "0")


_FEATURES: list[HostFeatures] = []


def features() -> HostFeatures:
    """What this host offers, probed once."""
    if not _FEATURES:
        _FEATURES.append(HostFeatures.probe(environ=os.environ))
    return _FEATURES[0]


def pytest_report_header() -> list[str]:
    """Tell what this host has and lacks, before the tests do."""
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    rows = [f"{'ok     ' if one.ok else 'MISSING'} {one.name}: {one.detail}" for one in features().features]
    compiler = shutil.which("cc")
    rows.append(f"{'ok     ' if compiler else 'MISSING'} C compiler: {compiler or 'guests are not compiled'}")
    return [f"mulligan's host features, as {who}:", *(f"  {row}" for row in rows)]


# -------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def sandboxes() -> HostFeatures:
    """The host can run sandboxes; the test skips (or fails) where it can't."""
    found = features()
    missing = [f"{one.name} ({one.detail})" for one in found.features if one.required and not one.ok]
    if missing:
        lacking(f"this host lacks {', '.join(missing)}")
    return found


@pytest.fixture(scope="session")
def lacking_here() -> Callable[[str], None]:
    """Say what this host lacks for a test: it skips, or fails where all must work."""
    return lacking


@pytest.fixture
def home(tmp_path: Path, sandboxes: HostFeatures) -> Path:
    """A place for a fresh store, not made yet."""
    assert sandboxes.runs
    return tmp_path / "store"


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory, sandboxes: HostFeatures) -> Path:
    """A place for one store that many tests use, so that the host's skeleton is made once."""
    assert sandboxes.runs
    return tmp_path_factory.mktemp("shared") / "store"


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compile a guest program of tests/guests by its name; gives the static executable."""
    folder = tmp_path_factory.mktemp("guests")
    folder.chmod(0o755)

    def compiled(name: str) -> Path:
        program = folder / name
        if not program.exists():
            compiler = shutil.which("cc")
            if compiler is None:
                lacking("there is no C compiler")
            command = [compiler, "-O1", "-static", "-pthread", "-Wall", "-o", program, GUESTS / f"{name}.c"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        return program

    return compiled


@pytest.fixture(scope="session")
def fsops(guest: Callable[[str], Path]) -> Path:
    """The guest that does file operations as it is told."""
    return guest("fsops")


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove a test's temporary folder at its end: pytest's own tidying fails on folders that are deep, or closed to their owner.

    What is removed in the background has then been removed: the next test may count descriptors.
    """
    yield
    settle()
    folder: Path | None = (request.node.funcargs or {}).get("tmp_path")  # none after Ctrl-C
    if folder is not None and folder.exists():
        above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            remove_tree(above, folder.name)
        finally:
            os.close(above)


# -------------------------------------------------------------------------------------------------- nothing is left


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that runs sandboxes leaves no process, mount, namespace, cgroup, pipe or process descriptor."""
    if not _RUNS_SANDBOXES & set(request.fixturenames):
        yield
        return
    before = _mounts(), _descriptors(), _cgroups()
    running = _family()
    yield
    left = _wait_until_gone(running)
    assert not left, f"processes are left: {left}"
    mounts, descriptors, cgroups = before
    assert not (left := [row for row in _mounts() if row not in mounts]), f"mounts are left: {left}"
    assert _cgroups() == cgroups
    more = {kind: count for kind, count in _descriptors().items() if count > descriptors.get(kind, 0)}
    assert not more, f"descriptors are left: {more}"


def _mounts() -> list[str]:
    """This namespace's mounts that could be a sandbox's; what others on the machine mount meanwhile is their business."""
    rows = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return [row for row in rows if " overlay " in row or "/layers/" in row or "/store" in row]


def _descriptors() -> dict[str, int]:
    """How many pipes, process and namespace descriptors this process holds."""
    count: dict[str, int] = {}
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            kind = os.readlink(f"/proc/self/fd/{entry}").split(":")[0]
            if kind in ("pipe", "anon_inode", "mnt", "user", "pid", "net"):
                count[kind] = count.get(kind, 0) + 1
    return count


def _cgroups() -> set[Path]:
    return set(Path("/sys/fs/cgroup").glob("*/mulligan*")) | set(Path("/sys/fs/cgroup").glob("mulligan*"))


def _family() -> dict[int, str]:
    """Every descendant of this process, by pid: its name. As subreaper we are the parent of all that lost theirs."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                text = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8", errors="replace")
                name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
                names[int(entry)] = f"{name} ({rest[0]})"
                children.setdefault(int(rest[1]), []).append(int(entry))
    found: dict[int, str] = {}
    waiting = [os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found[child] = names[child]
            waiting.append(child)
    return found


def _wait_until_gone(running: dict[int, str]) -> dict[int, str]:
    """Wait for the end of each process that was not there before; gives those that do not end."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        left = {pid: name for pid, name in _family().items() if pid not in running}
        if not left or time.monotonic() > deadline:
            return left
        pid = next(iter(left))
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            try:
                ended = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]
            finally:
                os.close(fd)
            if ended:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)  # an orphan that fell to us


# -------------------------------------------------------------------------------------------------- writes are true


@pytest.fixture(autouse=True)
def writes_are_true(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After every action of every test, the tracer's write facts equal the upper directory, in both directions.

    A killed process may die between the kernel's change and the tracer's look at its result, so runs that were ended
    from outside, or whose background processes were, are left out, as are those that the tracer called incomplete.
    """
    seal, wrong = OpenLayer.seal, []

    def checked(layer: OpenLayer, run: Ran, *args: Any, **kwargs: Any) -> Layer:
        cut_short = run.outcome.timed_out or any(isinstance(e, Killed | Incomplete) for e in run.events)
        if not cut_short:
            wrong.extend(check_writes(run.events, run.entries))
        return seal(layer, run, *args, **kwargs)

    monkeypatch.setattr(OpenLayer, "seal", checked)
    yield
    assert not wrong, wrong


# -------------------------------------------------------------------------------------------------- manifests are true


@pytest.fixture(scope="session")
def merged_view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helper | None]:
    """A process that mounts overlays for looking at; None without privilege."""
    if os.geteuid() != 0:
        yield None
        return
    helper = Helper(str(tmp_path_factory.mktemp("merged")))
    yield helper
    helper.end()


@pytest.fixture(autouse=True)
def manifests_are_true(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, merged_view: Helper | None
) -> Iterator[None]:
    """After every action of every test, and after every layer made by hand or made again, the manifests tell what is there."""
    if not _RUNS_SANDBOXES & set(request.fixturenames):
        yield
        return
    comparing = Comparing(merged_view)
    execute, rematerialise, patch = Runner.execute, Runner.rematerialise, Runner.patch
    init = Layer.__init__

    def made(layer: Layer, *args: Any, **kwargs: Any) -> None:
        init(layer, *args, **kwargs)
        comparing.learn(layer)

    def executed(runner: Runner, action: Any, launch: Any, below: Any, *args: Any, **kwargs: Any) -> Any:
        record = execute(runner, action, launch, below, *args, **kwargs)
        comparing.check(runner.stack(below), record.layer)
        return record

    def made_again(runner: Runner, layer: Layer, below: Any, under: Any) -> Layer:
        done = rematerialise(runner, layer, below, under)
        comparing.check(runner.stack(under), done)
        return done

    def patched(runner: Runner, path: str, value: bytes, under: Any, mtime_ns: int) -> Layer:
        done = patch(runner, path, value, under, mtime_ns)
        comparing.check(runner.stack(under), done)
        return done

    monkeypatch.setattr(Layer, "__init__", made)
    monkeypatch.setattr(Runner, "execute", executed)
    monkeypatch.setattr(Runner, "rematerialise", made_again)
    monkeypatch.setattr(Runner, "patch", patched)
    yield
    assert not comparing.wrong, comparing.wrong[:5]
