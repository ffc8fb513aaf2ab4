"""The probes of the runtime itself (rows 21 to 27): its programs, secrets, views, deaths, commits and long runs."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan import HostError, Record, Replace, Session, hostfolder, upkeep
from mulligan.errors import DiskFullError
from mulligan.history.journal import Journal
from mulligan.sandbox import native

Guests = Callable[..., dict[str, str]]
Told = Callable[[Record], str]


# ---------------------------------------------------------------------------------------------- 21, 22, 23: what is ours


def test_21_programs_that_the_guest_plants_are_never_ours(session: Session) -> None:
    """A PATH full of the guest's own sh, bash, env, timeout, tar and git changes nothing in what we do."""
    names = "sh bash env timeout tar git cat cp rm mv ln python3 mulligan-tracer unshare newuidmap newgidmap"
    session.run(
        f"mkdir bin; for n in {names}; do printf '#!/bin/sh\\necho $0 >> /workspace/used\\nexit 9\\n' > bin/$n; chmod +x bin/$n; done\n"
        "export PATH=/workspace/bin:$PATH SHELL=/workspace/bin/sh ENV=/workspace/bin/sh BASH_ENV= IFS=/"
    )
    assert session.run("echo plain").outcome.stdout == b"plain\n"
    assert session.run("while :; do :; done", timeout=0.3).outcome.timed_out
    session.repair(Replace("a2", "echo other > out"))
    assert session.files.read("/workspace/out") == "other\n"
    assert not session.files.exists("/workspace/used")
    assert session.run(["cat", "x"]).exit_code == 9, "the guest itself does get its own"


def test_22_the_environment_and_the_secrets_of_the_host_stay_there(
    home: Path, monkeypatch: pytest.MonkeyPatch, out: Told
) -> None:
    """No variable that was not asked for is in an action, a record, a layer or a log; /proc/1/environ is closed."""
    secret = f"secret-{os.urandom(8).hex()}"
    for name in ("AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "GITHUB_TOKEN", "LD_PRELOAD_NOT"):
        monkeypatch.setenv(name, secret)
    with Session.create("s", home=home) as session:
        told = out(session.run("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; ls -A ~/.ssh ~/.aws 2>/dev/null; true"))
        assert secret not in told
        assert session.run(["cat", "/proc/1/environ"]).exit_code == 1
        session.run("env > everything; echo $AWS_SECRET_ACCESS_KEY > key")
        assert session.files.read("/workspace/key") == "\n"
        record = session.log()[0]
        assert secret not in repr(record)
    found = [path for path in home.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert found == []


def test_23_names_and_output_are_bytes_and_views_escape_them(home: Path) -> None:
    """Newlines, terminal escapes, invalid UTF-8, names of 255 bytes and paths near 4096 round-trip; no view prints them raw."""
    evil = "n\n\x1b[31m\udcff\u202e"
    program = (
        "import os, sys\n"
        "names = [os.fsencode(sys.argv[1]), b'x' * 255, b'-rf', b'..a', b' ']\n"
        "for n in names: open(n, 'wb').write(n)\n"
        "os.mkdir(b'deep'); os.chdir(b'deep')\n"
        "size = len('/workspace/deep')\n"
        "while size + 251 < 4000: os.mkdir(b'd' * 250); os.chdir(b'd' * 250); size += 251\n"
        "last = b'e' * (4095 - size - 1 - 60)\nopen(last[:255], 'w').close()\n"
        "sys.stdout.buffer.write(names[0])"
    )
    with Session.create("s", home=home) as session:
        record = session.run(["python3", "-c", program, evil])
        assert record.outcome.stdout == os.fsencode(evil)
        assert {evil, "x" * 255, "-rf", "..a", " ", "deep"} == set(session.files.list("/workspace"))
        assert session.files.read_bytes(f"/workspace/{evil}") == os.fsencode(evil)
        longest = max(record.footprint.wrote, key=len)
        assert len(longest) > 3900
        assert session.files.exists(longest)
        assert f"/workspace/{evil}" in record.footprint.wrote
        again = session.run(["cat", evil])
        assert again.outcome.stdout == os.fsencode(evil)
    for arguments in (["log"], ["show", "a1"], ["diff", "a1"], ["ls", "/workspace"], ["why", "a2"], ["graph"]):
        command = [sys.executable, "-m", "mulligan", *arguments, *([] if "-s" in arguments else ["-s", "s"])]
        done = subprocess.run(command, env={**os.environ, "MULLIGAN_HOME": str(home)}, capture_output=True, check=False)
        assert done.returncode == 0, (arguments, done.stderr)
        printed = done.stdout.decode("utf-8")
        assert "\x1b" not in printed, arguments
        assert "\u202e" not in printed, arguments


# ---------------------------------------------------------------------------------------------- 24: death at any step

STEPS = ("mkdir", "rename", "fsync", "unlink", "rmdir", "open", "write", "chmod", "utime", "symlink", "link", "pidfd_open")
JOURNAL = ("append", "publish", "move", "pin")


class Countdown:
    """Kills this process at the given one of the calls that change something on disk or start something; else counts."""

    def __init__(self, deadly: int) -> None:
        self.deadly = deadly
        self.count = 0
        for name in STEPS:
            self.watch(os, name)
        for name in JOURNAL:
            self.watch(Journal, name)

    def watch(self, holder: object, name: str) -> None:
        """Count the calls of one function, before each and after each."""
        real = getattr(holder, name)

        def watched(*args: object, **kwargs: object) -> object:
            self.step()
            result = real(*args, **kwargs)
            if holder is Journal:
                self.step()
            return result

        setattr(holder, name, watched)

    def step(self) -> None:
        """One more."""
        self.count += 1
        if self.count == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)


def steps_of(work: Callable[[], object], deadly: int = 0) -> int | None:
    """Do the work in a child process that dies at a step; None if it died so, else how many steps there were."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            countdown = Countdown(deadly)
            work()
            status, count = 0, countdown.count
            countdown.deadly = 0
            os.write(writing, str(count).encode())
        except BaseException:  # noqa: BLE001 - told by the status; nothing of pytest may run in the child
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        said = told.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert os.waitstatus_to_exitcode(status) == 0
    return int(said)


def state_of(session: Session) -> tuple[tuple[str, ...], dict[str, str]]:
    """The commands of the history and the files that they left."""
    names = session.files.list("/workspace")
    return tuple(r.action.text for r in session.log()), {name: session.files.read(f"/workspace/{name}") for name in names}


OPERATIONS: dict[str, Callable[[Session], object]] = {
    "run": lambda session: session.run("echo more >> b; rm a; mkdir -p deep/er; echo x > new; rm -r deep"),
    "rollback": lambda session: session.rollback("a2"),
    "repair": lambda session: session.repair(Replace("a1", "echo other > a")),
}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_24_killed_at_any_step_the_session_is_as_before_or_as_after(home: Path, name: str) -> None:
    """Whatever step a run, a rollback or a repair dies at: one of the two states stands, and what it left is collected."""
    with Session.create("s", home=home) as session:
        for command in ("echo one > a", "cat a > b", "echo aside > c", "cat b > d"):
            session.run(command)
        before = state_of(session)
        with session.branch("done") as done:
            OPERATIONS[name](done)
            after = state_of(done)
        session.branch("counted").close()
    held = set(os.listdir(home / "layers"))

    def work(branch: str) -> Callable[[], object]:
        def in_child() -> None:
            with Session.open(branch, home=home) as session:
                OPERATIONS[name](session)

        return in_child

    steps = steps_of(work("counted"))
    assert steps is not None
    outcomes = set()
    for deadly in sorted({*range(1, steps + 1, max(1, steps // 12)), steps - 1, steps}):
        with Session.open("s", home=home) as session:
            session.branch(f"k{deadly}").close()
        survived = steps_of(work(f"k{deadly}"), deadly)
        with Session.open(f"k{deadly}", home=home) as session:
            now = state_of(session)
            assert now in (before, after), (deadly, survived)
            outcomes.add(now == after)
            if deadly % 3 == 0:
                session.run("echo still works > e")
    assert outcomes == {True, False}, "some deaths come before the turning point, some after"
    for session_row in upkeep.sessions(home):
        if session_row.name != "s":
            upkeep.remove(session_row.name, home)
    upkeep.gc(home)
    assert {entry for entry in os.listdir(home / "layers") if not entry.startswith("base-")} <= held


def test_24_killed_at_any_step_of_a_commit_every_file_is_old_or_new(home: Path, tmp_path: Path) -> None:
    """A commit that dies leaves no torn file, and the next commit completes it."""
    old = {f"f{n}": f"old {n}\n" for n in range(4)}
    new = {**{f"f{n}": f"new {n}\n" for n in range(3)}, "g": "made\n"}
    source = tmp_path / "source"
    source.mkdir()
    for file, text in old.items():
        (source / file).write_text(text)

    def started(number: int) -> Path:
        folder = tmp_path / f"target{number}"
        folder.mkdir()
        for file, text in old.items():
            (folder / file).write_text(text)
        with Session.create(f"s{number}", home=home, imports={str(folder): "/workspace"}) as session:
            session.run("for n in 0 1 2; do echo new $n > f$n; done; rm f3; echo made > g")
        return folder

    def work(number: int) -> Callable[[], object]:
        def in_child() -> None:
            with Session.open(f"s{number}", home=home) as session:
                assert session.commit(str(tmp_path / f"target{number}")).applied

        return in_child

    started(0)
    steps = steps_of(work(0))
    assert steps is not None
    for deadly in sorted({*range(1, steps + 1, max(1, steps // 12)), steps - 1, steps}):
        folder = started(deadly)
        steps_of(work(deadly), deadly)
        for path in folder.iterdir():
            if not path.name.startswith(".mulligan-"):  # written beside its place, not yet in it
                assert path.read_text() in (old.get(path.name), new.get(path.name)), (deadly, path)
        with Session.open(f"s{deadly}", home=home) as session:
            assert session.commit(str(folder)).applied, deadly
        there = {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith(".mulligan-")}
        assert there == new, deadly


# ---------------------------------------------------------------------------------------------- 25 to 27: the long run


def test_25_a_commit_meets_concurrent_edits_and_a_full_disk(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who edited meanwhile is told and not overwritten; a disk that fills midway leaves each file old or new, nothing else."""
    target = tmp_path / "target"
    target.mkdir()
    for name in ("a", "b", "c"):
        (target / name).write_text(f"old {name}\n")
    with Session.create("s", home=home, imports={str(target): "/workspace"}) as session:
        session.run("for n in a b c; do echo new $n > $n; done")
        (target / "b").write_text("edited\n")
        report = session.commit(str(target))
        assert (report.applied, report.conflicts) == (False, ("b",))
        assert [path.read_text() for path in sorted(target.iterdir())] == ["old a\n", "edited\n", "old c\n"]
        (target / "b").write_text("old b\n")
        real, calls = hostfolder._write_synced, []

        def full(*args: object) -> None:
            calls.append(args)
            if len(calls) == 2:
                (target / str(args[1])).write_text("torn")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(hostfolder, "_write_synced", full)
        with pytest.raises(DiskFullError):
            session.commit(str(target))
        assert {path.name: path.read_text() for path in target.iterdir()} == {"a": "new a\n", "b": "old b\n", "c": "old c\n"}
        monkeypatch.setattr(hostfolder, "_write_synced", real)
        assert session.commit(str(target)).applied
        assert [path.read_text() for path in sorted(target.iterdir())] == ["new a\n", "new b\n", "new c\n"]


def test_26_many_sessions_come_and_go_and_leave_nothing(home: Path) -> None:
    """Sessions made, used and removed in a loop: no descriptor, mount, process, layer or lock is left."""
    Session.create("first", home=home).close()
    open_before = len(os.listdir("/proc/self/fd"))
    for number in range(40):
        with Session.create(f"s{number}", home=home) as session:
            session.run("echo x > x")
        upkeep.remove(f"s{number}", home)
    upkeep.gc(home)
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert [name for name in os.listdir(home / "layers") if not name.startswith("base-")] == []
    assert {name for name in os.listdir(home / "locks") if not name.startswith(".")} <= {"first"}


def test_26_processes_that_share_a_store_never_see_each_other_s_state(home: Path) -> None:
    """Several processes, each with a session of its own and one in common: every action of everybody is there, once."""
    Session.create("common", home=home).close()
    program = (
        "import sys\nfrom pathlib import Path\nfrom mulligan import Session\nhome, me = Path(sys.argv[1]), sys.argv[2]\n"
        "with Session.create(me, home=home) as own, Session.open('common', home=home) as common:\n"
        "    for n in range(5):\n"
        "        own.run(f'echo {me} >> mine; cat * | sort -u > all')\n"
        "        common.run(f'echo {me} {n} >> log')\n"
        "    assert own.files.list('/workspace') == ['all', 'mine']\n"
        "    assert own.files.read('/workspace/all').split() == [me]\n"
    )
    racers = [subprocess.Popen([sys.executable, "-c", program, str(home), name], stderr=subprocess.PIPE) for name in "abc"]
    for racer in racers:
        _, stderr = racer.communicate(timeout=120)
        assert racer.returncode == 0, stderr.decode()
    with Session.open("common", home=home) as common:
        lines = common.files.read("/workspace/log").splitlines()
        assert sorted(lines) == sorted(f"{name} {n}" for name in "abc" for n in range(5))
        assert len(common.log()) == 15


def test_27_the_130th_action_is_as_the_first_and_the_last_possible_one_is_said(
    session: Session, monkeypatch: pytest.MonkeyPatch, out: Told
) -> None:
    """A long history changes nothing in what an action sees; past what the kernel can stack, one sentence says what to do."""
    first = session.run("echo 0 > n; ls; cat n")
    for number in range(1, 130):
        session.run(f"echo {number} > n{number}; echo {number} > n")
    last = session.run("cat n; ls | wc -l; find . -name 'n*' -newer n; cat n1 n64 n128")
    assert out(last) == "129\n130\n1\n64\n128\n"
    assert first.outcome.stdout == b"n\n0\n"
    assert last.footprint.complete
    with monkeypatch.context() as narrow:
        narrow.setattr(native, "MAX_LOWERS", len(session._stack_at(session.head).lower_dirs()) - 1)
        with pytest.raises(HostError, match=r"folders.*free some space"):
            session.run("echo too many")
    assert session.files.read("/workspace/n") == "129\n"
    session.rollback("a20")
    assert session.run("cat n").outcome.stdout == b"19\n"
