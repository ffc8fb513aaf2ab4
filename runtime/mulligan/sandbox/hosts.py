"""The host: what this machine offers, found by trying, and what to do about what it refuses.

`HostFeatures.probe()` really does each thing in a child process: makes the namespaces, mounts the overlay, installs a
filter, traces a process, and at last runs an action from end to end. A switch in /proc does not tell what a container's
policy allows, and a policy does not tell what a file system can do.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from mulligan.errors import MulliganError
from mulligan.model.action import Action, LaunchContext
from mulligan.model.ids import ActionId
from mulligan.sandbox.hostbase import build_host_base
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.remedies import remedy_for, userns_remedy
from mulligan.sandbox.stack import Stack
from mulligan.sandbox.tracer import TRACER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_REST: Final = 0x20000000 | 0x08000000 | 0x04000000 | 0x40000000 | 0x02000000  # pid, ipc, uts, net, cgroup
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2
_SECCOMP_RET_ALLOW: Final = 0x7FFF0000
_PTRACE_SEIZE: Final = 0x4206
_FICLONE: Final = 0x40049409


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing that the machine has or lacks. Without a `required` one no action runs."""

    name: str
    ok: bool
    detail: str
    needed_for: str
    remedy: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class HostFeatures:
    """All that was looked for, in the order in which one needs the other."""

    features: tuple[Feature, ...]

    @classmethod
    def probe(cls, home: Path | None = None, environ: Mapping[str, str] | None = None) -> Self:
        """Try everything. `home` is where the store is or will be: overlayfs must work there."""
        with tempfile.TemporaryDirectory(prefix="mulligan-probe-", dir=_existing(home)) as folder:
            here = Path(folder)
            found = [
                _kernel(),
                _program(),
                _user_namespaces(),
                _overlay(here),
                _seccomp(),
                _ptrace(),
                _whole(here, environ or {}),
                _tool("bash", "shell text with bash's own features (without it, shell text is run by sh)"),
                _reflink(here),
            ]
        return cls(tuple(found))

    @property
    def runs(self) -> bool:
        """Whether actions can run here."""
        return all(feature.ok for feature in self.features if feature.required)

    def of(self, name: str) -> Feature:
        """The feature of this name."""
        return next(feature for feature in self.features if feature.name == name)


def _existing(home: Path | None) -> Path | None:
    """The nearest folder at or above the store's that exists and can be written to."""
    at = home
    while at is not None and not (at.is_dir() and os.access(at, os.W_OK)):
        at = at.parent if at != at.parent else None
    return at


def _kernel() -> Feature:
    system = os.uname()
    numbers = tuple(int(part) for part in system.release.split("-")[0].split(".")[:2] if part.isdigit())
    ok = system.sysname == "Linux" and numbers >= (5, 11) and system.machine == "x86_64"
    remedy = "" if ok else "Mulligan needs Linux 5.11 or newer on x86-64"
    return Feature("kernel", ok, f"{system.sysname} {system.release} {system.machine}", "everything", remedy, required=True)


def _program() -> Feature:
    ok = os.access(TRACER, os.X_OK)
    remedy = "" if ok else "install Mulligan again with a C compiler at hand, or run `make -C tracer`"
    return Feature("tracer program", ok, str(TRACER), "everything", remedy, required=True)


def _user_namespaces() -> Feature:
    number = _in_child(lambda: _unshare(_CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_REST))
    detail = "user, mount, pid, ipc, uts, net and cgroup namespaces can be made" if number == 0 else os.strerror(number)
    return Feature(
        "namespaces", number == 0, detail, "isolation of actions", "" if number == 0 else userns_remedy(), required=True
    )


def _overlay(here: Path) -> Feature:
    names = ("lower", "upper", "work", "merged")
    for name in names:
        (here / name).mkdir()
    rootless = os.geteuid() != 0
    number = _in_child(lambda: _mount_overlay([str(here / name) for name in names], rootless=rootless))
    how = "as an ordinary user" if rootless else "as root"
    detail = f"overlayfs mounts {how} below {here.parent}" if number == 0 else os.strerror(number)
    remedy = "" if number == 0 else remedy_for("overlay", number)
    return Feature("overlayfs", number == 0, detail, "layers", remedy, required=True)


def _seccomp() -> Feature:
    number = _in_child(_install_filter)
    detail = "filters can be installed" if number == 0 else os.strerror(number)
    remedy = "" if number == 0 else "the kernel must be built with CONFIG_SECCOMP_FILTER, and the container must allow it"
    return Feature("seccomp", number == 0, detail, "tracing at a bearable cost", remedy, required=True)


def _ptrace() -> Feature:
    number = _in_child(_trace_a_child)
    detail = "a child can be traced" if number == 0 else os.strerror(number)
    remedy = "" if number == 0 else remedy_for("ptrace", number)
    return Feature("ptrace", number == 0, detail, "recording what an action relied on", remedy, required=True)


def _whole(here: Path, environ: Mapping[str, str]) -> Feature:
    """An action, really run."""
    needed = "everything"
    try:
        store = LayerStore(here / "layers")
        base, skeleton = build_host_base(store, environ)
        stack = Stack((skeleton.id,), base, store)
        started = time.perf_counter()
        with store.begin() as layer:
            action = Action(ActionId("probe"), argv=("sh", "-c", "exit 7"), timeout_s=30.0)
            outcome = NativeSandbox(base, store).run(action, LaunchContext(base.env), stack, layer).outcome
        took = (time.perf_counter() - started) * 1e3
        store.settle()
    except MulliganError as error:
        return Feature("sandbox", ok=False, detail=error.message, needed_for=needed, remedy=error.remedy, required=True)
    ok = outcome.exit_code == 7  # noqa: PLR2004 - what the action was asked to give
    detail = f"an action ran in {took:.0f} ms" if ok else f"an action gave {outcome}"
    return Feature("sandbox", ok, detail, needed, "" if ok else "please report this", required=True)


def _tool(name: str, needed_for: str) -> Feature:
    path = shutil.which(name)
    return Feature(name, path is not None, path or "not on PATH", needed_for, "" if path else f"install {name}")


def _reflink(here: Path) -> Feature:
    (here / "one").write_bytes(b"x" * 8192)
    needed = "imports and metadata-only changes that cost no space"
    with (here / "one").open("rb") as source, (here / "two").open("wb") as target:
        try:
            fcntl.ioctl(target, _FICLONE, source.fileno())
        except OSError:
            remedy = "nothing to do: files are copied instead (btrfs and xfs can share them)"
            return Feature("reflink", ok=False, detail="files are copied", needed_for=needed, remedy=remedy)
    return Feature("reflink", ok=True, detail="files are shared", needed_for=needed)


# -------------------------------------------------------------------------------------------------- in a child


def _in_child(attempt: Callable[[], None]) -> int:
    """Do something in a child process; 0, or the errno of the OSError it raised. Nothing of it is left in this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        number = 0
        try:
            attempt()
        except OSError as error:
            number = error.errno or 1
        finally:
            with contextlib.suppress(OSError):
                os.write(writing, number.to_bytes(4, "little"))
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read(4)
    os.waitpid(child, 0)
    return int.from_bytes(said, "little") if said else 1


def _call(name: str, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(getattr(libc, name)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _unshare(flags: int) -> None:
    _call("unshare", flags)


def _mount_overlay(folders: list[str], *, rootless: bool) -> None:
    lower, upper, work, merged = folders
    uid, gid = os.geteuid(), os.getegid()
    _unshare(_CLONE_NEWNS | (_CLONE_NEWUSER if rootless else 0))
    if rootless:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")
    options = f"lowerdir={lower},upperdir={upper},workdir={work},index=off,metacopy=off,redirect_dir=nofollow,xino=off"
    options += ",volatile" + (",userxattr" if rootless else "")
    _call("mount", b"none", b"/", None, 0x4000 | 0x40000, None)  # MS_REC | MS_PRIVATE
    _call("mount", b"overlay", os.fsencode(merged), b"overlay", 0, os.fsencode(options))


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def _install_filter() -> None:
    """A filter of one instruction: allow."""
    allow = _Instruction(0x06, 0, 0, _SECCOMP_RET_ALLOW)  # BPF_RET | BPF_K
    program = _Program(1, ctypes.pointer(allow))
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)


def _trace_a_child() -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        _call("ptrace", _PTRACE_SEIZE, child, None, None)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
