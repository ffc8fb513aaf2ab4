"""A folder of the host that results are written to, as safely as if its owner were being attacked.

Knows file descriptors of the host only. Every component is opened from its parent's descriptor without following
symlinks (open(2), O_NOFOLLOW), so neither a link in the folder nor a name made inside a sandbox leads out of it.
Each file is replaced at once: written beside its place, synced, then renamed over it (rename(2)). A folder is locked, shared,
while something lies beside its place in it; so what a killed process left there can be told, by the next one to come, from what
another process is about to rename.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from mulligan.errors import DiskFullError, HostError, NotFoundError, UsageError
from mulligan.model.ids import shown
from mulligan.sandbox.trees import content_digest, copy_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_BESIDE = re.compile(r"\.mulligan-[0-9a-f]{16}")

ObjectKind = Literal["absent", "file", "dir", "link", "other"]


@dataclass(frozen=True, slots=True)
class Object:
    """What lies at a path: kind, permission bits, digest of a file's content, target of a symlink."""

    kind: ObjectKind
    mode: int = 0
    digest: bytes = b""
    target: str = ""


ABSENT = Object("absent")


class HostFolder:
    """One folder of the host, held open by its descriptor. Paths are relative, "/"-separated, without "." or ".."."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise NotFoundError(
                f"there is no folder {shown(path)!r}", remedy="make it first, if it is the right one"
            ) from error
        except OSError as error:
            what = f"open folder {shown(path)!r}: {os.strerror(error.errno or 0)}"
            raise UsageError(what, remedy="name a folder that you may write to") from error
        self.path = path
        info = os.fstat(self._fd)
        self._owner = (info.st_uid, info.st_gid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        os.close(self._fd)

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        *folders, name = path.split("/")
        fd = os.open(".", _DIR, dir_fd=self._fd)  # no dup(2): a lock belongs to the open file
        try:
            for part in folders:
                if create:
                    self._ensure(part, fd)
                below = os.open(part, _DIR, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd, name
        finally:
            os.close(fd)

    def _ensure(self, name: str, fd: int) -> None:
        try:
            os.mkdir(name, 0o755, dir_fd=fd)
        except FileExistsError:
            return
        self._own(name, fd)

    def _own(self, name: str, fd: int) -> None:
        if os.geteuid() == 0:  # what root writes into somebody's folder belongs to that somebody
            os.chown(name, *self._owner, dir_fd=fd, follow_symlinks=False)

    def look(self, path: str) -> Object:
        """What lies at the path; a parent that is missing, a link or no folder makes it absent."""
        try:
            with self._parent(path) as (fd, name):
                return _look(fd, name)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return ABSENT
            raise self._failed("look at", path, error) from error

    def blocking(self, path: str) -> str | None:
        """The first parent of the path that exists and is no folder (a symlink, a file): it can't be written through."""
        parts = path.split("/")[:-1]
        above = ("/".join(parts[:n]) for n in range(1, len(parts) + 1))
        return next((one for one in above if self.look(one).kind not in ("dir", "absent")), None)

    def tidy(self, folders: Iterable[str]) -> None:
        """Remove from these folders what a killed process left beside a file's place."""
        for folder in folders:
            with suppress(OSError), self._parent(f"{folder}/x".lstrip("/")) as (fd, _):
                left = [name for name in os.listdir(fd) if _BESIDE.fullmatch(name)]
                if left and _locked(fd, fcntl.LOCK_EX):
                    for name in left:
                        os.unlink(name, dir_fd=fd)
                    _locked(fd, fcntl.LOCK_UN)

    def put(self, path: str, want: Object, source: int, mtime_ns: int) -> None:
        """Make the path what `want` says, a file with the content of the descriptor `source`.

        Set-id bits are never carried to the host. Folders stay open to their owner.
        """
        try:
            with self._parent(path, create=True) as (fd, name):
                _clear_other_kind(fd, name, want.kind)
                if want.kind == "dir":
                    self._ensure(name, fd)
                    os.chmod(name, want.mode & 0o777 | 0o700, dir_fd=fd)
                else:
                    self._replace(fd, name, want, source, mtime_ns)
        except OSError as error:
            raise self._failed("write", path, error) from error

    def close_up(self, path: str, want: Object) -> None:
        """Take from a folder that was put here what its owner may not do with it either."""
        if want.mode & 0o700 != 0o700:  # noqa: PLR2004 - all of the owner's bits
            try:
                with self._parent(path) as (fd, name):
                    os.chmod(name, want.mode & 0o777, dir_fd=fd)
            except OSError as error:
                raise self._failed("write", path, error) from error

    def _replace(self, fd: int, name: str, want: Object, source: int, mtime_ns: int) -> None:
        beside = f".mulligan-{secrets.token_hex(8)}"
        _locked(fd, fcntl.LOCK_SH)
        try:
            if want.kind == "link":
                os.symlink(want.target, beside, dir_fd=fd)
            else:
                _write_synced(fd, beside, source, mtime_ns)
            self._own(beside, fd)
            if want.kind == "file":  # after chown(2), which clears bits
                os.chmod(beside, want.mode & 0o777, dir_fd=fd)
            os.rename(beside, name, src_dir_fd=fd, dst_dir_fd=fd)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=fd)
            raise
        os.fsync(fd)

    def remove(self, path: str) -> None:
        """Remove the name; a folder that is not empty (the host holds more in it) stays."""
        try:
            with self._parent(path) as (fd, name):
                kind = _look(fd, name, content=False).kind
                if kind == "dir":
                    os.rmdir(name, dir_fd=fd)
                elif kind != "absent":
                    os.unlink(name, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.ELOOP):
                return
            raise self._failed("remove", path, error) from error

    def _failed(self, what: str, path: str, error: OSError) -> HostError:
        where = f"{what} {shown(path)!r} in {shown(self.path)!r}: {os.strerror(error.errno or 0)}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return DiskFullError(where, remedy="free some space and commit again; what was written so far is whole")
        return HostError(where, remedy="check the folder's permissions")


def _locked(fd: int, how: int) -> bool:
    """Try to lock an open folder. Whoever else holds a lock on it is not waited for."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _look(fd: int, name: str, *, content: bool = True) -> Object:
    try:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return ABSENT
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISDIR(info.st_mode):
        return Object("dir", mode)
    if stat.S_ISLNK(info.st_mode):
        return Object("link", target=os.readlink(name, dir_fd=fd))
    if not stat.S_ISREG(info.st_mode):
        return Object("other", mode)
    if not content:
        return Object("file", mode)
    with os.fdopen(os.open(name, _FILE, dir_fd=fd), "rb") as file:
        return Object("file", mode, content_digest(file.fileno()))


def _clear_other_kind(fd: int, name: str, kind: str) -> None:
    """rename(2) can't put a file over a folder nor the other way round: an (empty) object of the other kind goes first."""
    there = _look(fd, name, content=False).kind
    if there == "dir" and kind != "dir":
        os.rmdir(name, dir_fd=fd)
    elif kind == "dir" and there not in ("dir", "absent"):
        os.unlink(name, dir_fd=fd)


def _write_synced(fd: int, name: str, source: int, mtime_ns: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=fd), "wb") as file:
        copy_bytes(source, file.fileno())
        os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))
        os.fsync(file.fileno())
