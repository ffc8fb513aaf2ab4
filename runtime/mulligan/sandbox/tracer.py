"""Driving the tracer program: one process per action, which launches the action, traces it and reports.

Knows the wire protocol's four descriptors and the guest's three streams. Gives a Trace. Must not know layers or records.

One loop over selectors, no thread. The guest is hostile: it may write forever (a cap per stream; what is over is drained
and dropped), read nothing, ignore every signal, leave children that hold its stdout (the streams are read until the
tracer has ended, which it does once its whole tree is dead, not until they close). Whatever ends the loop, an exception
or Ctrl-C too, the control descriptor is closed, which ends the action at once, and the tracer is waited for: nothing is left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from mulligan.errors import DiskFullError, HostError, InterruptedRunError, TracerError
from mulligan.model.action import Outcome
from mulligan.model.events import Killed
from mulligan.sandbox.decode import Facts, decode_events
from mulligan.sandbox.remedies import remedy_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mulligan.model.events import Event, RawEntry

TRACER: Final = Path(__file__).resolve().parent.parent / "_bin" / "mulligan-tracer"
DEFAULT_CAP: Final = 10 << 20
_CHUNK: Final = 1 << 18
_MOST_FACTS: Final = 256 << 20  # bytes of events: some ten million facts, which are decoded and folded in memory
_GRACE_S: Final = 10.0  # the tracer's own time to report after it was told to end; then it is killed


@dataclass(frozen=True, slots=True)
class Trace:
    """What one run gave: the outcome, the facts in order, the upper directory as it lay, and what tracing cost."""

    outcome: Outcome
    events: list[Event]
    entries: list[RawEntry]
    stops: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # where the tracer's time went, if that was asked for


@dataclass(frozen=True, slots=True)
class Streams:
    """What becomes of the guest's output: how many bytes are kept, and who watches all of it as it comes."""

    stdout_cap: int = DEFAULT_CAP
    stderr_cap: int = DEFAULT_CAP
    on_stdout: Callable[[bytes], None] | None = None
    on_stderr: Callable[[bytes], None] | None = None
    owner: tuple[int, int] | None = None  # the guest's ids on disk, if they are not ours: it may then open /dev/stdout


@dataclass(slots=True)
class _Stream:
    cap: int | None
    watcher: Callable[[bytes], None] | None = None
    kept: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    def take(self, data: bytes) -> None:
        if self.watcher is not None:
            self.watcher(data)
        if self.cap is not None and len(self.kept) + len(data) > self.cap:
            self.truncated = True
            data = data[: self.cap - len(self.kept)]
        self.kept += data


def run_traced(
    spec: bytes,
    *,
    stdin: bytes = b"",
    timeout_s: float | None = None,
    streams: Streams | None = None,
    interrupt: Callable[[], bool] | None = None,
    program: Path = TRACER,
) -> Trace:
    """Run one action in its sandbox. `interrupt` is asked now and then; true ends the action as Ctrl-C would.

    Raises HostError when the machine refuses something, TracerError when the tracer fails: the action has no outcome then.
    """
    with _Run(spec, stdin, streams or Streams(), program) as run:
        run.loop(timeout_s, interrupt)
        return run.trace()


class _Run:
    """The life of one tracer process. Leaving the context ends it, whatever happened."""

    def __init__(self, spec: bytes, stdin: bytes, streams: Streams, program: Path) -> None:
        self._open: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._stdout = _Stream(streams.stdout_cap, streams.on_stdout)
        self._stderr = _Stream(streams.stderr_cap, streams.on_stderr)
        self._events, self._status = _Stream(None), _Stream(None)
        self._sending: dict[int, memoryview] = {}
        self._streams: dict[int, _Stream] = {}
        self._timed_out = False
        self._control = -1
        self._pidfd = -1
        self._returncode = 0
        self._started_ns = time.time_ns()
        self._ended_ns = 0
        self._process = self._spawn(spec, stdin, streams, program)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        if self._process.poll() is None:
            self._wait_quietly()
        for fd in tuple(self._open):
            self._close(fd)
        self._selector.close()

    # ------------------------------------------------------------------------------------------------ starting

    def _spawn(self, spec: bytes, stdin: bytes, streams: Streams, program: Path) -> subprocess.Popen[bytes]:
        theirs: list[int] = []
        try:
            guest = [self._sender(stdin, theirs), *(self._receiver(s, theirs) for s in (self._stdout, self._stderr))]
            if streams.owner is not None:
                for fd in guest:
                    os.fchown(fd, *streams.owner)
            spec_fd = self._sender(spec, theirs)
            events, status = (self._receiver(s, theirs) for s in (self._events, self._status))
            control, self._control = self._pipe()
            theirs.append(control)
            passed = (spec_fd, events, status, control)
            return _start(program, guest, passed)
        except BaseException:
            for fd in tuple(self._open):
                self._close(fd)
            self._selector.close()
            raise
        finally:
            for fd in theirs:
                self._close(fd)

    def _pipe(self) -> tuple[int, int]:
        reading, writing = os.pipe()
        self._open.update((reading, writing))
        return reading, writing

    def _receiver(self, stream: _Stream, theirs: list[int]) -> int:
        reading, writing = self._pipe()
        theirs.append(writing)
        os.set_blocking(reading, False)
        self._streams[reading] = stream
        self._selector.register(reading, selectors.EVENT_READ)
        return writing

    def _sender(self, data: bytes, theirs: list[int]) -> int:
        reading, writing = self._pipe()
        theirs.append(reading)
        os.set_blocking(writing, False)
        self._sending[writing] = memoryview(data)
        if self._send(writing):
            self._selector.register(writing, selectors.EVENT_WRITE)
        return reading

    # ------------------------------------------------------------------------------------------------ running

    def loop(self, timeout_s: float | None, interrupt: Callable[[], bool] | None) -> None:
        """Move bytes until the tracer has ended and all it wrote is read."""
        self._pidfd = os.pidfd_open(self._process.pid)
        self._open.add(self._pidfd)
        self._selector.register(self._pidfd, selectors.EVENT_READ)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._pidfd in self._open:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            for key, _ in self._selector.select(_shorter(left, 0.1 if interrupt else None)):
                self._serve(key.fd)
            if len(self._events.kept) > _MOST_FACTS:
                message = f"the action did more than can be recorded: over {_MOST_FACTS >> 20} MiB of facts"
                raise HostError(message, remedy="split it into smaller actions; nothing of it was kept")
            if interrupt is not None and interrupt():
                raise InterruptedRunError("the action was interrupted; nothing of it was kept")
            if deadline is not None and time.monotonic() >= deadline and self._pidfd in self._open:
                deadline = self._on_deadline()
        self._ended_ns = time.time_ns()
        self._drain()

    def _on_deadline(self) -> float | None:
        """First the action is ended; if the tracer then does not end in time, it is killed (and its tree with it)."""
        if self._timed_out:
            self._process.kill()
            return None
        self._timed_out = True
        self.end()
        return time.monotonic() + _GRACE_S

    def _serve(self, fd: int) -> None:
        if fd == self._pidfd:
            self._returncode = self._process.wait()
            self._close(fd)
        elif fd in self._sending:
            if not self._send(fd):
                self._close(fd)
        else:
            self._receive(fd)

    def _send(self, fd: int) -> bool:
        """Write what goes into the pipe now; whether anything is left. A reader that went away wants no more."""
        view = self._sending[fd]
        try:
            while view:
                view = view[os.write(fd, view) :]
        except BlockingIOError:
            self._sending[fd] = view
            return True
        except BrokenPipeError:
            pass
        self._close(fd)
        return False

    def _receive(self, fd: int) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close(fd)
            return False
        self._streams[fd].take(data)
        return True

    def _drain(self) -> None:
        """Read what the dead left in the pipes; whoever still holds one open is not of the action's tree."""
        for fd in tuple(self._streams):
            while fd in self._open and self._receive(fd):
                pass

    def end(self) -> None:
        """End the action: the tracer kills its tree at the end of file of its control descriptor."""
        if self._control in self._open:
            self._close(self._control)

    def _wait_quietly(self) -> None:
        """Wait for the tracer to end, emptying its pipes so that it can; kill it when it does not."""
        deadline = time.monotonic() + _GRACE_S
        while self._process.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):
                if time.monotonic() > deadline:
                    self._process.kill()
                for key, _ in self._selector.select(0.05):
                    if key.fd in self._streams:
                        self._receive(key.fd)
                    elif key.fd in self._open:
                        self._close(key.fd)

    def _close(self, fd: int) -> None:
        if fd in self._open:
            self._open.remove(fd)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(fd)
            self._sending.pop(fd, None)
            os.close(fd)

    # ------------------------------------------------------------------------------------------------ reporting

    def trace(self) -> Trace:
        """The outcome and the facts, once the loop is over."""
        status = _Status.parse(bytes(self._status.kept))
        if self._timed_out and status.stopped and status.error is not None:  # before the command began: nothing ran
            status.signal = signal.SIGKILL
            return Trace(self._outcome(status, Facts([], [], (0, 0))), [], [])
        status.check(self._returncode)
        facts = decode_events(self._events.kept)
        return Trace(self._outcome(status, facts), facts.events, facts.entries, sum(facts.stops), status.counts)

    def _outcome(self, status: _Status, facts: Facts) -> Outcome:
        number = status.signal
        return Outcome(
            exit_code=status.exit_code,
            signal=None if number is None else _signal_name(number),
            stdout=bytes(self._stdout.kept),
            stderr=bytes(self._stderr.kept),
            stdout_truncated=self._stdout.truncated,
            stderr_truncated=self._stderr.truncated,
            timed_out=self._timed_out and status.stopped,
            started_ns=self._started_ns,
            ended_ns=self._ended_ns,
            duration_ms=(self._ended_ns - self._started_ns) / 1e6,
            user_ms=status.user_us / 1000,
            system_ms=status.system_us / 1000,
            max_rss_kib=status.max_rss_kib,
            killed_at_end=tuple(event.name for event in facts.events if isinstance(event, Killed)),
        )


def _start(program: Path, guest: Sequence[int], passed: Sequence[int]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [str(program), *(str(fd) for fd in passed)],
            stdin=guest[0],
            stdout=guest[1],
            stderr=guest[2],
            pass_fds=passed,
            env={},
            cwd="/",
            start_new_session=True,  # a terminal's Ctrl-C reaches us, not it: we close its control descriptor
        )
    except FileNotFoundError as error:
        remedy = "build it with `make -C tracer`, or install Mulligan again with a C compiler at hand"
        raise HostError(f"the tracer program is missing at {program}", remedy=remedy) from error
    except OSError as error:
        raise HostError(f"start the tracer program {program}: {error.strerror}") from error


def _shorter(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number >= signal.SIGRTMIN else f"SIG{number}"


@dataclass(slots=True)
class _Status:
    """What the tracer said of itself on its status descriptor."""

    exit_code: int | None = None
    signal: int | None = None
    stopped: bool = False
    user_us: int = 0
    system_us: int = 0
    max_rss_kib: int = 0
    error: tuple[str, int, str] | None = None
    counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, raw: bytes) -> _Status:
        said = cls()
        for line in raw.decode("utf-8", "replace").splitlines():
            word, _, rest = line.partition(" ")
            try:
                said._take(word, rest)
            except ValueError as error:
                raise TracerError(f"the tracer's status line {line!r} does not follow its protocol") from error
        return said

    def _take(self, word: str, rest: str) -> None:
        match word:
            case "exited":
                self.exit_code = int(rest)
            case "signaled":
                self.signal = int(rest)
            case "stopped":
                self.stopped = True
            case "rusage":
                self.user_us, self.system_us, self.max_rss_kib = (int(number) for number in rest.split())
            case "count":
                name, _, number = rest.partition(" ")
                self.counts[name] = int(number)
            case "error" if self.error is None:
                operation, code, text = rest.split(" ", 2)
                self.error = operation, int(code), text
            case _:
                pass  # hello, started, stops: nothing that decides

    def check(self, returncode: int) -> None:
        """Raise unless there is an outcome."""
        if self.error is not None:
            operation, number, text = self.error
            if number in (errno.ENOSPC, errno.EDQUOT) and operation not in ("userns", "namespaces"):  # those: too many
                raise DiskFullError(f"sandbox: {operation}: {text}", remedy="free some space, or run `mulligan gc`")
            reason = f" ({errno.errorcode.get(number, number)})" if number else ""
            raise HostError(f"sandbox: {operation}: {text}{reason}", remedy=remedy_for(operation, number))
        if self.exit_code is None and self.signal is None:
            how = f"signal {-returncode}" if returncode < 0 else f"status {returncode}"
            message = f"the tracer ended with {how} and told no outcome"
            raise TracerError(message, remedy="the action was discarded; try it again")
