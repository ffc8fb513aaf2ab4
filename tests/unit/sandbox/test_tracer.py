"""Driving the tracer: what its faults become, and that nothing of it is left. A script speaks the protocol in its place."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mulligan.errors import DiskFullError, HostError, InterruptedRunError, TracerError
from mulligan.sandbox import tracer
from mulligan.sandbox.tracer import Streams, run_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    Script = Callable[[str], Path]

GOOD = r"""
def frame(body): os.write(events, len(body).to_bytes(4, "little") + body)
frame(b"\x91\x93\x00\x01\xa6x86_64")
frame(b"\x91\x93\x3c\x03\x02")
os.write(status, b"hello 1\nstarted 1\nrusage 2000 1000 4096\nexited 4\nstops 5\n")
"""


def children() -> set[str]:
    """The children of this process, those that ended and were not waited for among them."""
    return {pid for told in Path("/proc/self/task").glob("*/children") for pid in told.read_text().split()}


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Make a program that takes the tracer's place."""

    def made(body: str) -> Path:
        file = tmp_path / "tracer"
        head = f"#!{sys.executable} -SE\nimport os, sys, time\nspec, events, status, control = map(int, sys.argv[1:])\n"
        file.write_text(head + body)
        file.chmod(0o755)
        return file

    return made


def test_a_good_run_is_told(script: Script) -> None:
    """Outcome, streams, stdin and the specification go where they belong."""
    body = "os.write(1, sys.stdin.buffer.read()); os.write(2, os.read(spec, 100))" + GOOD
    trace = run_traced(b"the spec", stdin=b"in\0\xff", program=script(body))
    outcome = trace.outcome
    assert (outcome.exit_code, outcome.stdout, outcome.stderr, outcome.user_ms) == (4, b"in\0\xff", b"the spec", 2.0)
    assert trace.stops == 5
    assert outcome.ended_ns > outcome.started_ns


def test_output_over_the_cap_is_drained_and_marked(script: Script) -> None:
    """A cap keeps the first bytes; the rest is read so that nobody blocks, and a watcher gets all."""
    seen: list[bytes] = []
    streams = Streams(stdout_cap=1000, on_stdout=seen.append)
    outcome = run_traced(
        b"", program=script("sys.stdout.write('x' * 3000000); sys.stdout.flush()" + GOOD), streams=streams
    ).outcome
    assert outcome.stdout == b"x" * 1000
    assert outcome.stdout_truncated
    assert not outcome.stderr_truncated
    assert sum(len(piece) for piece in seen) == 3_000_000


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("os.write(status, b'error overlay 1 mount refused\\n')", HostError, "overlay: mount refused"),
        ("os.write(status, b'error upper 28 no room\\n')", DiskFullError, "no room"),
        ("os.write(status, b'hello 1\\n')", TracerError, "told no outcome"),
        ("os.kill(os.getpid(), 9)", TracerError, "signal 9"),
        ("os.write(status, b'exited 0\\n')", TracerError, "cut off"),
        ("os.write(status, b'exited what\\n')", TracerError, "exited what"),
        (GOOD + "os.write(events, b'junk')", TracerError, "cut off"),
    ],
)
def test_a_failing_tracer_gives_no_outcome(script: Script, body: str, kind: type[Exception], words: str) -> None:
    """What the machine refuses is a HostError with a remedy, a dead or confused tracer a TracerError."""
    with pytest.raises(kind, match=words):
        run_traced(b"", program=script(body))


def test_a_missing_tracer_says_how_to_build_it(tmp_path: Path) -> None:
    """Without the program the sentence names what to do."""
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(HostError, match="make -C tracer"):
        run_traced(b"", program=tmp_path / "nope")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_deadline_closes_the_control_descriptor(script: Script) -> None:
    """At the deadline the tracer is told to end; the outcome says that time ran out."""
    body = "os.read(control, 1); os.write(status, b'stopped killed\\n')" + GOOD.replace("exited 4", "signaled 9")
    outcome = run_traced(b"", timeout_s=0.2, program=script(body)).outcome
    assert (outcome.timed_out, outcome.signal, outcome.exit_code) == (True, "SIGKILL", None)


def test_a_deadline_before_the_command_began_is_a_timeout_too(script: Script) -> None:
    """The tracer then tells an error, since nothing was started: for the caller time ran out, and nothing ran."""
    body = "os.read(control, 1); os.write(status, b'stopped killed\\nerror launch 4 too early\\n')"
    trace = run_traced(b"", timeout_s=0.1, program=script(body))
    assert (trace.outcome.timed_out, trace.outcome.signal, trace.events) == (True, "SIGKILL", [])


def test_a_tracer_that_does_not_end_is_killed(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ignores its control descriptor too is killed after a grace, and the action has no outcome."""
    monkeypatch.setattr(tracer, "_GRACE_S", 0.3)
    with pytest.raises(TracerError):
        run_traced(b"", timeout_s=0.1, program=script("time.sleep(60)"))


def test_an_interrupt_leaves_nothing(script: Script) -> None:
    """Ctrl-C ends the tracer by its control descriptor and waits for it; no descriptor, no child is left."""
    before, had = len(os.listdir("/proc/self/fd")), children()
    threading.Timer(0.3, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run_traced(b"", program=script("os.read(control, 1)"))
    assert children() == had
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_caller_can_interrupt_too(script: Script) -> None:
    """The callback that asks for an end is heard within a moment."""
    started = time.monotonic()
    with pytest.raises(InterruptedRunError):
        run_traced(b"", interrupt=lambda: time.monotonic() - started > 0.2, program=script("os.read(control, 1)"))


def test_a_watcher_that_fails_ends_the_action(script: Script) -> None:
    """An exception of the caller's own callback passes through, and the tracer is gone."""

    def fail(_: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_traced(b"", streams=Streams(on_stdout=fail), program=script("os.write(1, b'x'); os.read(control, 1)"))


def test_a_guest_that_reads_no_input_does_not_block(script: Script) -> None:
    """More stdin than a pipe holds, and nobody who reads it."""
    assert run_traced(b"", stdin=b"x" * 1_000_000, program=script(GOOD)).outcome.exit_code == 4


def test_a_stranger_that_holds_stdout_does_not_hold_the_run(script: Script) -> None:
    """When the tracer has ended the run is over, whoever still has the pipe open."""
    body = "child = os.fork()\nif child == 0: os.read(control, 1); os._exit(0)\nos.write(1, b'out')" + GOOD
    assert run_traced(b"", program=script(body)).outcome.stdout == b"out"
