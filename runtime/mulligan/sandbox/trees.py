"""Trees on the host's disk, handled by directory descriptors: open, copy, compare, remove, sync.

Knows files and nothing of layers. What lies in a tree may have been made by a hostile guest: no symlink is ever followed,
names are any bytes, trees may be deeper than PATH_MAX and wider than memory likes, folders may have mode 000. So nothing
here recurses, and nothing holds more than a few descriptors: a folder is opened by walking from the root of its tree.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import secrets
import stat
from typing import TYPE_CHECKING

from mulligan.errors import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PASSING = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
MAKING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_FICLONE = 0x40049409  # ioctl_ficlone(2)
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
_PULLED = ".pull-"
_FEW = 64  # up to so many objects are synced one by one; more, and one syncfs(2) is cheaper

Parts = tuple[str, ...]


@contextlib.contextmanager
def space_for(what: str) -> Iterator[None]:
    """Turn a full disk or an exhausted quota into a DiskFullError that says what there was no space for."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = os.strerror(error.errno)
            raise DiskFullError(f"{what}: {reason}", remedy="free some space, or run `mulligan gc`") from error
        raise


@contextlib.contextmanager
def opened(root: int, parts: Sequence[str], flags: int = FOLDER, *, ours: bool = False) -> Iterator[int]:
    """The folder `parts` below the open folder `root`, without following a symlink anywhere."""
    fd = open_below(root, parts, flags, ours=ours)
    try:
        yield fd
    finally:
        os.close(fd)


def open_below(root: int, parts: Sequence[str], flags: int, *, ours: bool = False) -> int:
    """Open what lies at `parts` below `root`; the last part with `flags`, all before it as folders to pass.

    In a tree of `ours` (a layer), what is closed even to its owner (mode 000, without privilege) is opened all the same.
    """
    if not parts:
        return os.open(".", flags, dir_fd=root)
    at, last = root, len(parts) - 1
    for index, name in enumerate(parts):
        try:
            after = _open_at(at, name, flags if index == last else PASSING, ours=ours)
        finally:
            if at != root:
                os.close(at)
        at = after
    return at


def _open_at(folder: int, name: str, flags: int, *, ours: bool) -> int:
    try:
        return os.open(name, flags, 0o600, dir_fd=folder)
    except PermissionError:
        if not ours or name.startswith("/") or os.geteuid() == 0:
            raise
    with opened_up(descriptor_path(folder)):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if flags & os.O_PATH or stat.S_ISLNK(status.st_mode):
            return os.open(name, flags, dir_fd=folder)
        held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            with opened_up(descriptor_path(held)):
                return os.open(name, flags, dir_fd=folder)
        finally:
            os.close(held)


@contextlib.contextmanager
def opened_up(path: str) -> Iterator[None]:
    """Let the owner in for a moment. Mode 000 is seldom, and the only other way is another user namespace."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o700 == 0o700:  # noqa: PLR2004 - nothing to give
        yield
        return
    os.chmod(path, mode | 0o700)
    try:
        yield
    finally:
        os.chmod(path, mode)


def descriptor_path(fd: int) -> str:
    """A path to what an O_PATH descriptor holds, for calls that take none (getxattr, listdir)."""
    return f"/proc/self/fd/{fd}"


def split(path: str) -> Parts:
    """The components of an absolute normal path: "/a/b" gives ("a", "b"), "/" gives ()."""
    return tuple(part for part in path.split("/") if part)


def is_whiteout(status: os.stat_result) -> bool:
    """Whether this is overlayfs' mark for a removed name."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def copy_bytes(source: int, target: int) -> None:
    """Copy a file's content into an empty file: as a reflink where the file system can, with holes kept as holes."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        pass
    else:
        return
    size = os.fstat(source).st_size
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
            end = os.lseek(source, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: only a hole is left
                raise
            break
        _copy_range(source, target, start, end)
        at = end
    os.ftruncate(target, size)


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    os.lseek(source, start, os.SEEK_SET)
    os.lseek(target, start, os.SEEK_SET)
    left = end - start
    while left > 0:
        try:
            done = os.copy_file_range(source, target, min(left, 1 << 30))
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            done = _write_all(target, os.read(source, min(left, _CHUNK)))
        if done == 0:  # the file shrank while it was read
            return
        left -= done


def _write_all(target: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
    return len(data)


def write_new(folder: int, name: str, data: bytes, mode: int) -> None:
    """Make the file `name` in the open folder, with exactly this mode."""
    fd = os.open(name, MAKING, 0o600, dir_fd=folder)
    try:
        _write_all(fd, data)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def same_content(one: int, other: int) -> bool:
    """Whether two open regular files have the same bytes; sizes first, then piece by piece."""
    sizes = os.fstat(one).st_size, os.fstat(other).st_size
    if sizes[0] != sizes[1]:
        return False
    at = 0
    while (at := min(_next_data(one, at, sizes[0]), _next_data(other, at, sizes[0]))) < sizes[0]:
        here, there = os.pread(one, _CHUNK, at), os.pread(other, _CHUNK, at)
        if here != there:
            return False
        if not here:
            break
        at += len(here)
    return True


def content_digest(fd: int) -> bytes:
    """A digest of a file's content, piece by piece. Pieces of zeros count as the holes that they might be."""
    size = os.fstat(fd).st_size
    told = hashlib.sha256(size.to_bytes(8))
    at = 0
    while (at := _next_data(fd, at, size)) < size:
        start = at - at % _CHUNK
        piece = os.pread(fd, _CHUNK, start)
        if piece != _ZEROS[: len(piece)]:
            told.update(start.to_bytes(8))
            told.update(piece)
        at = start + _CHUNK
    return told.digest()


def _next_data(fd: int, at: int, size: int) -> int:
    """Where the next bytes that are no hole begin; holes read as zeros, and may be larger than the disk."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA) if at < size else size
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole is left
            return size
        return at  # this file system does not know


def remove_tree(folder: int, name: str) -> None:
    """Remove `name` from the open folder, with all below it, whatever its depth and modes.

    Each folder is pulled up to one flat place before it is emptied, so depth costs neither descriptors nor path length.
    Another process may be at the same work (the place is locked against that), or have done it: what is gone is gone.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=folder)
            return
    except FileNotFoundError:
        return
    place = name if name.startswith(_PULLED) else _PULLED + name  # one that a killed removal left is taken up again
    with contextlib.suppress(FileExistsError):
        os.mkdir(place, 0o700, dir_fd=folder)
    with contextlib.suppress(FileNotFoundError):
        flat = os.open(place, FOLDER, dir_fd=folder)
        try:
            fcntl.flock(flat, fcntl.LOCK_EX)
            _empty_all(flat, None if place == name else (folder, name))
        finally:
            os.close(flat)
        os.rmdir(place, dir_fd=folder)


def _empty_all(flat: int, more: tuple[int, str] | None) -> None:
    """Empty the flat place, and a folder elsewhere that is pulled there first."""
    waiting = os.listdir(flat)  # what a killed removal left
    mark = secrets.token_hex(4)
    names = (f"{number}-{mark}" for number in itertools.count())
    if more is not None:
        with contextlib.suppress(FileNotFoundError):
            first = next(names)
            take_out(*more, flat, first)
            waiting.append(first)
    while waiting:
        with contextlib.suppress(FileNotFoundError):
            _empty(flat, waiting, names)


def _empty(flat: int, waiting: list[str], names: Iterator[str]) -> None:
    """Empty and remove the last folder in `waiting`; its own folders join the list, under fresh names."""
    name = waiting.pop()
    fd = os.open(name, FOLDER, dir_fd=flat)
    try:
        for entry in os.listdir(fd):
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(entry, dir_fd=fd, follow_symlinks=False).st_mode):
                    pulled = next(names)
                    take_out(fd, entry, flat, pulled)
                    waiting.append(pulled)
                else:
                    os.unlink(entry, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=flat)


def take_out(folder: int, name: str, target: int, new: str) -> None:
    """Move an object to another open folder, be it a folder that its owner may not write to."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.chmod(name, 0o700, dir_fd=folder)  # moving a folder writes its "..", emptying it needs r and x
    os.rename(name, new, src_dir_fd=folder, dst_dir_fd=target)


def sync_tree(top: int, folders: Sequence[Parts], files: Sequence[Parts]) -> None:
    """Make the tree below the open folder durable: object by object when they are few, else its whole file system."""
    if len(folders) + len(files) > _FEW:
        sync_file_system(top)
        return
    try:
        for parts in (*files, *folders):
            with opened(top, parts, READING, ours=True) as fd:
                os.fsync(fd)
    except PermissionError:  # a file of mode 000 that we own, without privilege
        sync_file_system(top)
    os.fsync(top)


def sync_file_system(fd: int) -> None:
    """syncfs(2) of the file system that holds the descriptor."""
    import ctypes  # noqa: PLC0415 - slow to import, and needed for large layers only

    if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def blocks_below(root: int, parts: Parts) -> int:
    """The bytes on disk of a tree; what can't be read, or goes away meanwhile, counts nothing."""
    total, waiting = 0, [parts]
    while waiting:
        at = waiting.pop()
        try:
            with opened(root, at, ours=True) as fd, searchable(fd), os.scandir(fd) as rows:
                for row in rows:
                    total += row.stat(follow_symlinks=False).st_blocks * 512
                    if row.is_dir(follow_symlinks=False):
                        waiting.append((*at, row.name))
        except OSError:
            continue
    return total


def searchable(fd: int) -> contextlib.AbstractContextManager[None]:
    """Let the owner look at what lies in an open folder."""
    return contextlib.nullcontext() if os.geteuid() == 0 else opened_up(descriptor_path(fd))
