"""What real programs did to other tracers and went wrong there: for each such case, where its right outcome is held."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from mulligan import Drop, Replace, Session
from mulligan.errors import TracerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mulligan import Record

GUESTS = Path(__file__).parents[1] / "guests"
HERE = Path(__file__)


class Case(NamedTuple):
    """A case: what it is, and the guests (tests/guests/NAME.c) and tests of this file (test_NAME) that hold it, or why none."""

    what: str
    held_by: tuple[str, ...] = ()
    no_test: str = ""


CASES = {
    1: Case("descriptors that are no files: epoll, eventfd, timerfd", ("cmake_builds", "inherited_output")),
    2: Case("all descriptors closed in a loop", ("apt_asks_and_closes", "close_everything")),
    3: Case("clone(CLONE_UNTRACED)", ("refused_calls",)),
    4: Case("faccessat2", ("access_family", "shell_asks_for_access")),
    5: Case("statx", ("stat_family",)),
    6: Case("AT_FDCWD in 32 bits", ("dirfd_sign",)),
    7: Case("vfork, posix_spawn", ("vfork_exec", "python_spawns")),
    8: Case("exec from a thread", ("thread_exec",)),
    9: Case("a listing that another file would change", ("listing_goes_stale", "getdents")),
    10: Case("the working folder of another process is renamed", ("cwd_renamed",)),
    11: Case("/dev/fd/63 from a process substitution", ("shell_substitutes_processes", "proc_fd_reopen")),
    12: Case("a log that is a link to /proc/self/fd/2", ("log_to_stderr",)),
    13: Case("start-up without a stop that is not the program's", ("first_exec_is_told",)),
    14: Case("job control", ("job_control", "shell_stops_jobs")),
    15: Case("order of seccomp and exit stops on kernels before 4.8", no_test="older than what the sandbox's mounts need"),
    16: Case("io_uring", ("refused_calls",)),
    17: Case("close_range before an exec", ("close_everything",)),
    18: Case("a debugger inside", ("tracers_inside_are_refused",)),
    19: Case("a sandbox inside", ("sandboxes_inside_are_refused",)),
    20: Case("a descriptor that was passed", ("pass_descriptor",)),
    21: Case("renames that fail in nested folders", ("rename_fails", "npm_installs", "rmdir_not_empty")),
    22: Case("fchmod of an inherited stream, a write at an inherited offset", ("inherited_output",)),
    23: Case("a file whose writer still runs, two writers", ("writers_at_the_same_time", "daemon")),
    24: Case("gzip -f, touch, tar, freopen", ("archivers_use_descriptors",)),
    25: Case("an inode number that is used again", ("inode_reuse",)),
    26: Case("a hook that is called before it was set up", no_test="nothing is loaded into the guest"),
    27: Case("programs that are linked statically", ("open_read",)),  # every guest is
    28: Case("daemons", ("daemon", "survivor")),
    29: Case("outputs that are missing or differ", no_test="a matter of repair: tests/flows/test_repair_rules.py"),
    30: Case("set-user-id programs", ("privileged_programs_end",)),
    31: Case("a host that forbids ptrace", no_test="tests/contract/test_hosts.py: told before the action runs"),
    32: Case(
        "Yama; process_vm_readv that is missing", no_test="the tracer is an ancestor by its user namespace, and falls back"
    ),
    33: Case("a seccomp listener", ("refused_calls",)),
    34: Case("ptrace and a seccomp listener together", no_test="there is no listener"),
    35: Case("ESRCH after SIGKILL", ("killed_anywhere",)),
    36: Case("a signal between two stops", ("many_signals",)),
    37: Case("ETXTBSY: a program that is written, then run", ("write_and_exec",)),
    38: Case("renameat2 without a wrapper", ("rename_exchange", "rename_fails")),
    39: Case("many threads", ("many_threads",)),
    40: Case("hashing in the stop handler", no_test="the tracer reads no content"),
    41: Case("FIOCLEX", ("close_everything",)),
    42: Case("the call of number -1", ("no_call",)),
    43: Case("a number that the table lacks", ("unknown_call", "holes_are_explained")),
    44: Case("arguments that another thread writes over", ("argument_race",)),
    45: Case("overlays that cannot be stacked", no_test="tests/contract/test_sandbox.py"),
    46: Case("a listing taken for a read of all that is in it", ("listing_is_no_read",)),
    47: Case("an action taken for another one", no_test="actions have ids"),
    48: Case("a policy that is silently absent", no_test="tests/contract/test_hosts.py"),
    49: Case("a program that never ends", ("time_runs_out",)),
    50: Case("many tiny programs", ("many_processes",)),
}


def test_every_case_is_held() -> None:
    """Each case names guests and tests that exist, or says why it has none."""
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    guests = {source.stem for source in GUESTS.glob("*.c")}
    assert sorted(CASES) == list(range(1, 51))
    for number, case in CASES.items():
        assert bool(case.held_by) is not bool(case.no_test), number
        assert set(case.held_by) <= tests | guests, (number, set(case.held_by) - tests - guests)


@pytest.fixture(scope="module")
def session(shared_home: Path) -> Iterator[Session]:
    """One session for all cases."""
    with Session.create("cases", home=shared_home) as session:
        yield session


@pytest.fixture
def run(session: Session, request: pytest.FixtureRequest) -> Callable[..., Record]:
    """Run a script in a folder of the test's own; the programs that it needs are named."""

    def run(script: str, *needs: str) -> Record:
        missing = [program for program in needs if shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin") is None]
        if missing:
            pytest.skip(f"not installed here: {', '.join(missing)}")
        folder = f"/workspace/{request.node.name}"
        return session.run(["/bin/bash", "-c", f"mkdir -p {folder} && cd {folder} && {{ {script}\n}}"], timeout=100.0)

    return run


def in_full(record: Record, code: int | None = 0) -> Record:
    """The action ended as it should, and nothing is missing from its trace."""
    outcome = record.outcome
    assert code is None or outcome.exit_code == code, (outcome.exit_code, outcome.stdout, outcome.stderr)
    assert record.footprint.incomplete_because == ()
    return record


def test_cmake_builds(run: Callable[..., Record]) -> None:
    """CMake configures and builds a project, and what it read is known."""
    record = in_full(
        run(
            "echo 'int main(void) { return 0; }' > a.c\n"
            "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(a C)\\nadd_executable(a a.c)\\n' > CMakeLists.txt\n"
            "cmake -S . -B build > log && cmake --build build >> log && ./build/a",
            "cmake", "make", "cc",
        )
    )  # fmt: skip
    assert any(path.startswith("/usr/share/cmake") for path in record.footprint.saw)


def test_apt_asks_and_closes(run: Callable[..., Record]) -> None:
    """Programs that close all descriptors before they start others are traced to their end."""
    record = in_full(run("apt-get --version > out; apt-cache policy bash >> out 2>&1; dpkg --version >> out", "apt-get"), None)
    assert "/usr/bin/apt-cache" in record.footprint.executed


def test_shell_asks_for_access(run: Callable[..., Record]) -> None:
    """`[ -w f ]` is answered, and is a probe; of what is missing, too."""
    record = in_full(run("echo x > f; [ -w f ] && [ -r /usr/bin/env ] && ! [ -x ../nothing ]"))
    assert "/usr/bin/env" in record.footprint.probed
    assert "/workspace/nothing" in record.footprint.missed


def test_python_spawns(run: Callable[..., Record]) -> None:
    """Programs started by vfork and posix_spawn run, and their reads are known."""
    script = "import os, subprocess; subprocess.run(['/bin/true']); os.waitpid(os.posix_spawn('/bin/cat', ['cat', '/usr/lib/os-release'], {}), 0)"
    record = in_full(run(f'/usr/bin/python3 -c "{script}" > out', "python3"))
    assert "/usr/lib/os-release" in record.footprint.saw


def test_listing_goes_stale(home: Path) -> None:
    """What listed a folder runs again when a name comes into it, and is kept when only a content differs."""
    with Session.create("stale", home=home) as session:
        made = session.run("mkdir d; echo 1 > d/a")
        listed = session.run("ls d > out")
        assert session.repair(Replace(made.id, "mkdir d; echo 2 > d/a")).kept == (listed.id,)
        assert session.repair(Replace(made.id, "mkdir d; echo 2 > d/a; echo 3 > d/b")).ran == (made.id, listed.id)
        assert session.files.read("/workspace/out") == "a\nb\n"


def test_listing_is_no_read(run: Callable[..., Record]) -> None:
    """Who lists a folder and looks at no more has not read what is in it."""
    record = in_full(run("/bin/ls -1 --color=never /usr/share/perl5 > out"))
    assert "/usr/share/perl5" in record.footprint.listed
    assert not [path for path in record.footprint.observed_paths() if path.startswith("/usr/share/perl5/")]


def test_shell_substitutes_processes(run: Callable[..., Record]) -> None:
    """A pipe under the name /dev/fd/63 is the reader's own, and no file."""
    record = in_full(run("cat <(cat /usr/lib/os-release) > out; diff <(echo 1) <(echo 1); test -s out"))
    assert "/usr/lib/os-release" in record.footprint.saw


def test_first_exec_is_told(session: Session) -> None:
    """The very first program of an action is in its trace, with what it read."""
    record = in_full(session.run(["/bin/true"]))
    assert {os.path.realpath("/bin/true")} <= record.footprint.executed & record.footprint.saw


def test_shell_stops_jobs(run: Callable[..., Record]) -> None:
    """Jobs that are stopped stay so until they are continued, and end."""
    record = run(
        "set -m; sleep 30 & kill -STOP $!; sleep 0.1; grep -io 'State:.*t ' /proc/$!/status\n"
        "kill -CONT $!; sleep 0.1; grep -o 'State:.*S ' /proc/$!/status; kill %1; wait; echo over"
    )
    # One that is traced and stopped is shown as `t (tracing stop)`.
    assert [line.split()[-1].lower() for line in in_full(record).outcome.stdout.decode().splitlines()] == ["t", "s", "over"]


@pytest.mark.parametrize("tool", ["strace -o /dev/null true", "gdb -batch -nx -ex run /bin/true"])
def test_tracers_inside_are_refused(tool: str, session: Session) -> None:
    """A tracer inside fails at once with its own message and status, and the trace is whole."""
    if shutil.which(tool.split(maxsplit=1)[0], path="/usr/bin") is None:
        pytest.skip(f"not installed here: {tool.split(maxsplit=1)[0]}")
    record = in_full(session.run(["/bin/bash", "-c", f"{tool}; echo status $?"], timeout=60.0))
    said = record.outcome.stdout + record.outcome.stderr
    assert b"ermitted" in said or b"denied" in said, said
    assert record.outcome.duration_ms < 30_000


@pytest.mark.parametrize("tool", ["unshare -Ur true", "bwrap --ro-bind / / true", "chroot / true"])
def test_sandboxes_inside_are_refused(tool: str, session: Session) -> None:
    """A sandbox inside fails at once with its own message and status, and the trace is whole."""
    if shutil.which(tool.split(maxsplit=1)[0], path="/usr/bin:/usr/sbin") is None:
        pytest.skip(f"not installed here: {tool.split(maxsplit=1)[0]}")
    record = in_full(session.run(["/bin/bash", "-c", f"PATH=$PATH:/usr/sbin; {tool}; test $? -ne 0"], timeout=60.0))
    assert b"ermi" in record.outcome.stderr, record.outcome.stderr  # "not permitted", "no permissions"


def test_npm_installs(run: Callable[..., Record]) -> None:
    """Npm puts a local package into node_modules, with all its renames."""
    record = run(
        'mkdir -p one two; echo \'{"name": "one", "version": "1.0.0"}\' > one/package.json; echo "module.exports = 7" > one/index.js\n'
        "(cd one && HOME=$PWD/.. npm pack --silent --offline > /dev/null) && cd two && echo '{\"name\": \"two\"}' > package.json\n"
        "HOME=$PWD/.. npm install --silent --offline --no-audit --no-fund ../one/one-1.0.0.tgz && node -p 'require(\"one\")'",
        "npm", "node",
    )  # fmt: skip
    assert in_full(record).outcome.stdout == b"7\n"


def test_writers_at_the_same_time(run: Callable[..., Record], session: Session) -> None:
    """What two writers made of a file is taken when both have ended."""
    record = in_full(run("for i in $(seq 200); do echo x >> f & echo y >> f & done; wait; wc -l < f"))
    assert record.outcome.stdout == b"400\n"
    text = session.files.read("/workspace/test_writers_at_the_same_time/f")
    assert sorted(text.split()) == ["x"] * 200 + ["y"] * 200


def test_archivers_use_descriptors(run: Callable[..., Record], session: Session) -> None:
    """Gzip -f, touch, tar and rm -r work by folder descriptors; what they did is known by its names."""
    record = in_full(
        run(
            "mkdir -p d/e; echo 1 > d/e/f; echo old > d/e/f.gz; touch -r /usr/bin/env d/e/f; gzip -f d/e/f\n"
            "tar cf a.tar d; rm -r d; tar xf a.tar; gzip -dc d/e/f.gz",
            "gzip", "tar",
        )
    )  # fmt: skip
    assert record.outcome.stdout == b"1\n"
    assert "/usr/bin/env" in record.footprint.stats
    wrote = {path.partition("/test_archivers_use_descriptors")[2] for path in record.footprint.wrote}
    assert {"/a.tar", "/d", "/d/e", "/d/e/f.gz"} <= wrote
    assert "/d/e/f" not in wrote


def test_privileged_programs_end(session: Session) -> None:
    """Programs with the set-user-id bit get no privilege by it, and end by themselves."""
    record = in_full(
        session.run(["/bin/bash", "-c", "grep NoNewPrivs /proc/self/status; su -c true nobody < /dev/null; true"], timeout=60.0)
    )
    assert record.outcome.stdout == b"NoNewPrivs:\t1\n"


def test_time_runs_out(session: Session) -> None:
    """A program that never ends, and ignores what asks it to, is ended in time."""
    begun = time.monotonic()
    record = session.run(["/bin/bash", "-c", "trap '' TERM INT HUP; while :; do sleep 0.01; done"], timeout=1.0)
    assert record.outcome.timed_out
    assert time.monotonic() - begun < 15


# -------------------------------------------------------------------------------------------------- holes, and the tracer's end


def test_holes_are_explained(home: Path, tmp_path: Path, guest: Callable[[str], Path]) -> None:
    """An action with a hole in its trace counts as having seen anything: plan, why, show and the record say so and why."""
    (tmp_path / "project").mkdir()
    shutil.copy(guest("unknown_call"), tmp_path / "project" / "unknown_call")
    with Session.create("hole", imports={str(tmp_path / "project"): "/workspace"}, home=home) as session:
        apart = session.run("echo 1 > apart")
        hole = session.run(["/workspace/unknown_call"])
        after = session.run("echo 2 > after")
        assert hole.footprint.incomplete_because
        assert hole.footprint.incomplete_because[0].startswith("unknown_syscall: ")
        steps = {step.action: step for step in session.plan(Drop(apart.id)).steps}
        assert [reason.kind for reason in steps[hole.id].because] == ["incomplete"]
        assert after.id not in {step.action for step in steps.values() if step.because and step.because[0].kind == "incomplete"}
        assert any("hole" in line and "unknown_syscall" in line for line in session.why(hole.id).lines)
    for command in (["show", hole.id], ["why", hole.id], ["repair", "--drop", apart.id, "--dry-run"]):
        done = subprocess.run(
            [sys.executable, "-m", "mulligan", *command, "--session", "hole"],
            env={**os.environ, "MULLIGAN_HOME": str(home)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "unknown_syscall" in done.stdout, (command, done)


def tracers() -> set[int]:
    """The tracers that this process has started and that run."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            name, rest = status[status.index("(") + 1 : status.rindex(")")], status[status.rindex(")") + 2 :].split()
            if name.startswith("mulligan-tracer") and int(rest[1]) == os.getpid():
                found.add(int(entry.name))
    return found


def test_killed_tracer_fails_the_action(session: Session) -> None:
    """When the tracer is killed the action has no outcome: a TracerError, all that it had started is gone, and no layer is left."""
    killed: list[int] = []

    def kill(_: bytes) -> None:
        if not killed:
            killed.extend(tracers())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    head = session.head
    with pytest.raises(TracerError):
        session.run(["/bin/bash", "-c", "echo begun; sleep 60 & sleep 60"], on_stdout=kill)
    assert killed
    assert session.head == head
    assert session.run(["/bin/true"]).outcome.exit_code == 0
