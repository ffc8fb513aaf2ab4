"""A second tracer, to check the native one by: slow, simple, and written from the manual pages on python-ptrace.

    python reference.py ROOT CWD SECONDS -- PROGRAM ARG...      the environment is the program's

Runs a program with ROOT as its root folder (whose file ROOT.binds lists what to bind into it) and prints the facts of
tracer/PROTOCOL.md, one JSON array a line: kind, path and, for some kinds, more. It stops at the entry and at the exit of
every system call. What the calls mean is in reference_calls.py, how names are walked in reference_walk.py.

It knows nothing of layers and of the native tracer's code. It does not model what the sandbox refuses (the guest runs
without a filter), nor several tasks that race. After SECONDS, or when it dies, all that it traces is killed.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from ptrace import PtraceError
from ptrace.binding.func import (
    PTRACE_EVENT_CLONE,
    PTRACE_EVENT_EXEC,
    PTRACE_EVENT_FORK,
    PTRACE_EVENT_VFORK,
    PTRACE_O_TRACECLONE,
    PTRACE_O_TRACEEXEC,
    PTRACE_O_TRACEFORK,
    PTRACE_O_TRACESYSGOOD,
    PTRACE_O_TRACEVFORK,
    ptrace,
    ptrace_geteventmsg,
    ptrace_getregs,
    ptrace_syscall,
)
from reference_calls import Call, Facts
from reference_walk import thread_group

if TYPE_CHECKING:
    from reference_calls import Model

# What python-ptrace has no names for.
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_LISTEN = 0x4206, 0x4207, 0x4208
PTRACE_O_EXITKILL, PTRACE_EVENT_STOP = 0x100000, 128
WALL: Final = 0x40000000
OPTIONS: Final = (
    PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE
    | PTRACE_O_TRACEEXEC
)  # fmt: skip


class Loop:
    """The trace loop: one thread, one wait for all."""

    def __init__(self, guest: int) -> None:
        self.facts = Facts()
        self._guest = guest
        self._pending: dict[int, Model | None] = {}  # tasks inside of a call
        self._tasks = {guest}
        self.status = 0

    def run(self) -> None:
        """Trace until nothing is left."""
        while True:
            try:
                tid, status = os.waitpid(-1, WALL)
            except ChildProcessError:
                return
            with suppress(PtraceError):  # the task was killed at its stop; its end comes by wait
                if os.WIFSTOPPED(status):
                    self._stopped(tid, status)
                else:
                    self._ended(tid, status)

    def _stopped(self, tid: int, status: int) -> None:
        self._tasks.add(tid)
        number, event = os.WSTOPSIG(status), status >> 16
        if number == signal.SIGTRAP | 0x80:
            self._call(tid)
        elif event == PTRACE_EVENT_STOP and number != signal.SIGTRAP:
            ptrace(PTRACE_LISTEN, tid)
            return
        elif event == PTRACE_EVENT_EXEC:
            former = ptrace_geteventmsg(tid)
            if former != tid:  # a thread that was not the leader goes on under the leader's id
                self._pending[tid] = self._pending.pop(former, None)
                self._tasks.discard(former)
        elif event in (PTRACE_EVENT_FORK, PTRACE_EVENT_VFORK, PTRACE_EVENT_CLONE):
            self._tasks.add(ptrace_geteventmsg(tid))
        elif event == 0:
            ptrace_syscall(tid, number)
            return
        ptrace_syscall(tid)

    def _call(self, tid: int) -> None:
        if tid not in self._pending:
            model = self.facts.model(Call(self.facts, tid))
            if model is not None:
                next(model)
            self._pending[tid] = model
            return
        model = self._pending.pop(tid)
        if model is not None:
            result = struct.unpack("q", struct.pack("Q", ptrace_getregs(tid).rax))[0]
            with suppress(StopIteration):
                model.send(-errno.EINTR if -516 <= result <= -512 else result)

    def _ended(self, tid: int, status: int) -> None:
        self._tasks.discard(tid)
        self._pending.pop(tid, None)
        if tid != self._guest:
            return
        self.status = status
        for other in self._tasks:
            with suppress(OSError):
                if thread_group(other) == other:
                    self.facts.say("KILLED", Path(f"/proc/{other}/comm").read_text(encoding="utf-8").strip())
                os.kill(other, signal.SIGKILL)


def enter(root: str) -> None:
    """Make ROOT the root of this process, in a mount namespace of its own, with the folders of ROOT.binds in it."""
    libc = ctypes.CDLL(None, use_errno=True)

    def must(result: int, what: str) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)

    uid, gid = os.geteuid(), os.getegid()
    must(libc.unshare(0x20000 | (0x10000000 if uid else 0)), "unshare")  # CLONE_NEWNS, CLONE_NEWUSER
    if uid:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
    must(libc.mount(None, b"/", None, ctypes.c_ulong(0x4000 | 0x40000), None), "make private")  # MS_REC | MS_PRIVATE
    for source, target in json.loads(Path(f"{root}.binds").read_text(encoding="utf-8")):
        bind = ctypes.c_ulong(0x1000 | 0x4000)  # MS_BIND | MS_REC
        must(libc.mount(os.fsencode(source), os.fsencode(root + target), None, bind, None), f"bind {source}")
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    os.chroot(root)
    os.chdir("/")


def start(cwd: str, argv: list[str]) -> int:
    """The program, seized, just before its first call."""
    ready, go = os.pipe()
    guest = os.fork()
    if guest == 0:
        os.close(go)
        os.read(ready, 1)
        os.close(ready)
        become(cwd, argv)
    os.close(ready)
    ptrace(PTRACE_SEIZE, guest, 0, OPTIONS)
    ptrace(PTRACE_INTERRUPT, guest)  # its next stop lets the calls after it be seen
    os.waitpid(guest, WALL)
    ptrace_syscall(guest)
    os.write(go, b"!")
    os.close(go)
    return guest


def become(cwd: str, argv: list[str]) -> NoReturn:
    """The child's way into the program."""
    try:
        os.chdir(cwd)
        os.execve(argv[0], argv, os.environ)
    finally:
        os._exit(127)


def main(arguments: list[str]) -> int:
    """See the module."""
    root, cwd, seconds, _, *argv = arguments
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(seconds))
    out = os.dup(1)
    enter(root)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # the facts alone go to standard output; the guest's own output is not wanted
    os.set_inheritable(out, False)
    loop = Loop(start(cwd, argv))
    loop.run()
    with open(out, "wb") as stream:
        stream.write("".join(f"{line}\n" for line in loop.facts.said).encode())
    return os.waitstatus_to_exitcode(loop.status) & 0xFF


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
