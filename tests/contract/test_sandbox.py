"""The contract of a sandbox: what one action gets, gives back and leaves, whatever it does."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mulligan
from mulligan.errors import HostError
from mulligan.model.action import Action, LaunchContext
from mulligan.model.events import Exec, Incomplete, Missed, Read
from mulligan.model.fold import check_writes, handoff
from mulligan.model.ids import ActionId
from mulligan.sandbox.hostbase import build_host_base
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mulligan.model.layer import Layer
    from mulligan.sandbox.tracer import Trace

ORDINARY = 1234  # any id without a privilege


class Place:
    """A growing stack over the host base, on which actions run one after the other."""

    def __init__(self, home: Path) -> None:
        self.store = LayerStore(home / "layers")
        self.base, skeleton = build_host_base(self.store, {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"})
        self.layers = [skeleton.id]
        self.sandbox = NativeSandbox(self.base, self.store)
        self.last: Layer = skeleton

    @property
    def stack(self) -> Stack:
        """The state as it stands."""
        return Stack(tuple(self.layers), self.base, self.store)

    def run(
        self, command: str | list[str], *, cwd: str = "/workspace", env: dict[str, str] | None = None, **more: object
    ) -> Trace:
        """Run shell text or argv; its layer joins the stack. The facts must equal the upper directory."""
        action = (
            Action(ActionId("a1"), shell=command, **more)  # type: ignore[arg-type]
            if isinstance(command, str)
            else Action(ActionId("a1"), argv=tuple(command), **more)  # type: ignore[arg-type]
        )
        stack = self.stack
        with self.store.begin() as opened:
            trace = self.sandbox.run(action, LaunchContext({**self.base.env, **(env or {})}, cwd), stack, opened)
            assert check_writes(trace.events, trace.entries) == []
            self.last = opened.seal(trace, stack)
        self.layers.append(self.last.id)
        return trace

    def out(self, command: str | list[str], **more: object) -> str:
        """The stdout of a command that must succeed."""
        outcome = self.run(command, **more).outcome  # type: ignore[arg-type]
        assert outcome.exit_code == 0, outcome
        return outcome.stdout.decode()


def untraced(place: Place) -> Place:
    """The place, whose actions run without a tracer from now on."""
    place.sandbox = NativeSandbox(place.base, place.store, traced=False)
    return place


@pytest.fixture
def place(shared_home: Path) -> Iterator[Place]:
    """A fresh stack in a store that the tests of this run share."""
    made = Place(shared_home)
    yield made
    made.store.settle()


# ---------------------------------------------------------------------------------------------- what comes back


@pytest.mark.parametrize("status", [0, 1, 3, 126, 127, 255])
def test_exit_codes_are_the_commands_own(place: Place, status: int) -> None:
    """Every exit code passes as it is, of shell text and of argv."""
    assert place.run(f"exit {status}").outcome.exit_code == status
    outcome = place.run(["sh", "-c", f"exit {status}"]).outcome
    assert (outcome.exit_code, outcome.signal) == (status, None)


def test_a_signal_is_told_by_its_name(place: Place) -> None:
    """A command that a signal ends has no exit code."""
    outcome = place.run("kill -SEGV $$").outcome
    assert (outcome.exit_code, outcome.signal, outcome.shell_status) == (None, "SIGSEGV", 139)


def test_streams_are_exact(place: Place) -> None:
    """stdin, stdout and stderr are bytes: nothing is decoded, added or lost."""
    data = bytes(range(256)) * 4000
    outcome = place.run(["sh", "-c", "tee /dev/stderr"], stdin=data).outcome
    assert outcome.stdout == data
    assert outcome.stderr == data
    assert place.run(["cat"]).outcome.stdout == b""


def test_output_can_be_watched_as_it_comes(place: Place) -> None:
    """Callbacks get the bytes while the command runs."""
    seen: list[bytes] = []
    with place.store.begin() as opened:
        action = Action(ActionId("a1"), shell="echo one; echo two")
        place.sandbox.run(action, LaunchContext(place.base.env), place.stack, opened, on_stdout=seen.append)
    assert b"".join(seen) == b"one\ntwo\n"


def test_more_output_than_the_cap_is_marked(place: Place) -> None:
    """The first 10 MiB are kept, the flag is set, and the command is not held up."""
    outcome = place.run("head -c 12000000 /dev/zero").outcome
    assert (outcome.exit_code, len(outcome.stdout), outcome.stdout_truncated) == (0, 10 << 20, True)


def test_a_missing_program_is_127_and_one_that_is_none_126(place: Place) -> None:
    """As in a shell: not found is 127, not executable 126, with a line on stderr. The action is what failed, not Mulligan."""
    missing = place.run(["no-such-program", "x"]).outcome
    assert (missing.exit_code, missing.stdout) == (127, b"")
    assert b"no-such-program" in missing.stderr
    assert place.run(["/etc/passwd"]).outcome.exit_code == 126
    assert place.run(["/etc"]).outcome.exit_code == 126
    assert place.run(["true"], cwd="/no/such/folder").outcome.exit_code == 126


# ---------------------------------------------------------------------------------------------- what it gets


def test_the_environment_is_clean(place: Place) -> None:
    """A program finds what it is launched with and nothing else."""
    rows = dict(row.split("=", 1) for row in place.out(["env"], env={"EXTRA": "a b"}).splitlines())
    assert rows == {**place.base.env, "EXTRA": "a b"}


def test_exports_and_cwd_are_handed_on(place: Place) -> None:
    """Shell text hands on its exported variables and its working directory, whatever its exit status."""
    left = handoff(place.run("mkdir -p sub; cd sub; export A=$'x\\ny'; B=2; exit 5").events)
    assert left is not None
    assert left.env["A"] == "x\ny"
    assert "B" not in left.env
    assert left.cwd == "/workspace/sub"
    assert handoff(place.run("kill -9 $$").events) is None


def test_the_guest_is_who_it_should_be(place: Place) -> None:
    """Root inside is an unprivileged id outside; an ordinary user is the same user inside, without capabilities."""
    ids = place.base.ids
    assert place.out("id -u; id -g; id -un").split() == [str(ids.uid), str(ids.gid), place.base.env["USER"]]
    place.out("touch mine")
    status = (place.store.path(place.last.id) / "workspace" / "mine").stat()
    assert status.st_uid == (os.geteuid() if ids.rootless else ids.on_disk(0))
    assert status.st_uid != 0
    if ids.rootless:
        assert "CapEff:\t0000000000000000" in place.out("cat /proc/self/status")


def test_the_host_is_out_of_reach(place: Place) -> None:
    """No home folder, no process, no network, no way to mount; the system's folders can't be written to."""
    marker = Path(place.store.root) / "marker"
    marker.write_text("x")
    assert place.run(["cat", str(marker)]).outcome.exit_code == 1
    marker.unlink()
    assert place.run("ls -A ~ | grep -v '^[.]'").outcome.stdout == b""
    assert place.out("ls /proc | grep -c '^[0-9]'").strip() in {"3", "4", "5"}
    assert place.out("cat /proc/net/dev | tail -n +3 | cut -d: -f1").split() == ["lo"]
    for command in ("mount -t tmpfs x /tmp", "touch /usr/bin/x", "echo x > /proc/sys/kernel/core_pattern", "cat /etc/shadow"):
        assert place.run(command).outcome.exit_code != 0, command


def test_only_three_descriptors_are_open(place: Place) -> None:
    """0, 1 and 2, and nothing of ours."""
    assert place.out(["sh", "-c", "ls /proc/$$/fd"]).split() == ["0", "1", "2"]


def test_programs_of_the_host_run(place: Place) -> None:
    """What is on PATH outside runs inside, with its libraries and its configuration."""
    assert place.out(["bash", "-c", "echo $((6 * 7))"]) == "42\n"
    assert place.out("echo b; echo a | sort; date +%Y > /dev/null && echo ok") == "b\na\nok\n"


# ---------------------------------------------------------------------------------------------- state


def test_what_an_action_leaves_the_next_one_finds(place: Place) -> None:
    """Files, removals, modes, links and folders made again are in the next action's state, and readable from outside."""
    place.run("echo one > f; mkdir d; echo x > d/old; chmod 640 f; ln -s f l; ln f h")
    assert place.out("cat l; stat -c %a f; stat -c %h h") == "one\n640\n2\n"
    place.run("rm -r d; mkdir d; echo y > d/new; rm h; printf 'odd' > $'new\\nline\\xff'")
    assert place.out("ls d") == "new\n"
    assert place.stack.listdir("/workspace") == sorted(["d", "f", "l", "new\nline\udcff"])
    assert place.stack.read("/workspace/l") == b"one\n"
    assert place.last.manifest.paths == frozenset()


def test_a_read_leaves_no_layer(place: Place) -> None:
    """An action that changes nothing leaves an empty layer, also when it opened files for writing."""
    place.run("echo x > f")
    place.run("exec 3<>f; cat f; ls -la /etc > /dev/null")
    assert place.store.is_empty(place.last.id)
    assert place.stack.read("/workspace/f") == b"x\n"


def test_what_an_action_closes_to_itself_is_state_too(place: Place) -> None:
    """Folders and files of mode 000 are sealed, found again with their modes, and removed with their layer."""
    place.run("mkdir -p d/e; echo x > d/e/f; exec 3<>d/e/f; chmod 000 d/e/f d/e d")
    assert place.out("stat -c '%a %n' d; chmod 700 d; chmod 700 d/e; stat -c %a d/e/f") == "0 d\n0\n"
    closed = place.layers.pop(-2)
    place.store.remove(closed)
    assert not place.store.has(closed)


def test_tmp_is_state_and_kernel_views_are_not(place: Place) -> None:
    """/tmp belongs to the session; /dev/shm and /proc are fresh for each action."""
    place.run("echo x > /tmp/t; echo y > /dev/shm/s")
    assert place.out("cat /tmp/t; ls /dev/shm") == "x\n"


def test_what_was_relied_on_is_told(place: Place) -> None:
    """Reads, absences and programs are facts of the trace."""
    place.run("echo x > f")
    events = place.run("cat f; cat nope").events
    assert Read("/workspace/f") in events
    assert Missed("/workspace/nope") in events
    assert any(isinstance(event, Exec) and event.argv == (b"cat", b"f") for event in events)


# ---------------------------------------------------------------------------------------------- endings


def test_what_runs_untraced_counts_as_having_read_everything(place: Place) -> None:
    """An action run without the tracer, as benchmarks do, has its outcome and is incomplete."""
    action = Action(ActionId("a1"), argv=("sh", "-c", "echo out; exit 3"))
    with place.store.begin() as opened:
        trace = untraced(place).sandbox.run(action, LaunchContext(place.base.env, "/"), place.stack, opened)
    assert (trace.outcome.exit_code, trace.outcome.stdout) == (3, b"out\n")
    assert trace.events == [Incomplete("untraced", "")]


def test_a_background_process_is_killed_and_reported(place: Place) -> None:
    """Nothing outlives the command; what was killed at its end is named."""
    started = time.monotonic()
    outcome = place.run('sleep 60 & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done; echo started').outcome
    assert (outcome.exit_code, outcome.stdout) == (0, b"started\n")
    assert "sleep" in outcome.killed_at_end
    assert time.monotonic() - started < 20


def test_a_daemon_that_holds_stdout_does_not_hold_the_run(place: Place) -> None:
    """setsid, double fork and an open stdout do not keep the action alive."""
    outcome = place.run("(setsid sh -c 'trap \"\" TERM HUP INT; sleep 60' &) ; echo done").outcome
    assert outcome.stdout == b"done\n"
    assert outcome.killed_at_end


def test_a_timeout_ends_the_whole_tree(place: Place) -> None:
    """At the deadline all is killed, also a child that ignores every signal it can; what was written until then is there."""
    started = time.monotonic()
    outcome = place.run("trap '' TERM INT HUP; echo before; (trap '' TERM; sleep 60) & sleep 60", timeout_s=0.5).outcome
    assert time.monotonic() - started < 20
    assert (outcome.timed_out, outcome.signal, outcome.exit_code) == (True, "SIGKILL", None)
    assert outcome.stdout == b"before\n"


def test_an_interrupt_leaves_nothing(place: Place) -> None:
    """Ctrl-C in the middle of an action: the exception passes, the tree is dead, the layer is gone."""
    held = {name for name in os.listdir(place.store.root) if not name.startswith(".")}
    threading.Timer(0.5, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        place.run("sleep 60 & trap '' INT; sleep 60")
    place.store.settle()
    assert {name for name in os.listdir(place.store.root) if not name.startswith(".gone-")} == held


def test_a_killed_tracer_fails_the_action_and_takes_the_guest_along(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracer's death is never taken for the guest's: no outcome, and nothing of the action runs on."""
    from mulligan.sandbox import tracer as driver

    start = driver._start

    def start_and_kill(program: Path, guest: object, passed: object) -> subprocess.Popen[bytes]:
        process = start(program, guest, passed)  # type: ignore[arg-type]
        threading.Timer(0.5, process.kill).start()
        return process

    monkeypatch.setattr(driver, "_start", start_and_kill)
    with pytest.raises(mulligan.errors.TracerError, match="signal 9"):
        place.run("sleep 60")


def test_a_refused_set_up_is_a_sentence_with_a_remedy(place: Place) -> None:
    """What the machine refuses is a HostError that names operation and object, and the store stays as it was."""
    lost = Stack(tuple(place.layers), place.base, place.store)
    lost.lower_dirs = lambda: ["/no/such/layer"]  # type: ignore[method-assign]
    with place.store.begin() as opened, pytest.raises(HostError, match=r"sandbox: .*No such file"):
        place.sandbox.run(Action(ActionId("a1"), shell="true"), LaunchContext(place.base.env), lost, opened)
