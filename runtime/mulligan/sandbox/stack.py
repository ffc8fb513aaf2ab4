"""Stack: an ordered list of layers over a base, which is one state of the world, read from the host's side.

Knows layers on disk, whiteouts and opaque folders. Gives content, metadata and listings of the union, without mounting
anything. Everything below a layer was made by a guest, so it is read as hostile: component by component from open
folders, symlinks followed only as the guest would see them, never on the host; a FIFO or a device is refused unopened.

The rules of the union (Documentation/filesystems/overlayfs.rst): the topmost layer that has a name decides; a whiteout (a
0:0 character device) ends the search; folders merge downwards until one is opaque or what lies below is no folder.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.errors import NotFoundError, UsageError
from mulligan.model.ids import BASE_LAYER, GuestPath, LayerId, join, parent, raw_path, shown
from mulligan.model.layer import Entry, NodeKind
from mulligan.sandbox.composite import COMFORT
from mulligan.sandbox.trees import FOLDER, PASSING, READING, descriptor_path, is_whiteout, open_below, opened_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mulligan.sandbox.base import Base
    from mulligan.sandbox.layer import LayerStore

JUST_HELD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_SYMLINKS = 40  # as the kernel's MAXSYMLINKS
OPAQUE = {False: "trusted.overlay.opaque", True: "user.overlay.opaque"}  # by rootless
OVERLAY_XATTRS = ("trusted.overlay.", "user.overlay.")

_KINDS: dict[int, NodeKind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "sock",
    stat.S_IFCHR: "char",
    stat.S_IFBLK: "block",
}


def kind_of(status: os.stat_result) -> NodeKind:
    """The kind of object a stat result speaks of."""
    return _KINDS[stat.S_IFMT(status.st_mode)]


def read_xattrs(path: str, overlay: str | None = None) -> tuple[tuple[bytes, bytes], ...]:
    """The extended attributes of the object itself, without the overlay's own; none where there is no support.

    `overlay` is the prefix of its own in a layer. A guest's attribute of such a name lies there with the prefix doubled, and is
    told so, as in manifests. Anything else (None) keeps no name that a layer could take for its own.
    """
    try:
        names = os.listxattr(path, follow_symlinks=path.startswith("/proc/self/fd/"))
    except OSError:
        return ()
    found = []
    for name in sorted(names):
        own = name.startswith(overlay or OVERLAY_XATTRS) and not (overlay and name.startswith(f"{overlay}overlay."))
        if not own:
            with contextlib.suppress(OSError):
                found.append((os.fsencode(name), os.getxattr(path, name)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Seen:
    """One object of a state: its physical path, who provides it, and its metadata as the guest sees them."""

    path: GuestPath
    provider: LayerId
    entry: Entry
    device: int
    inode: int


@dataclass(slots=True)
class _Spot:
    """Where a walk stands: the object, where to find it, and (for a folder) the open folders that merge in it."""

    path: GuestPath
    provider: LayerId
    holder: int  # descriptor of the folder that holds the name
    name: str
    status: os.stat_result
    merged: list[tuple[LayerId, int]]


class Stack:
    """Layers, bottom to top, over a base; the lowest is the base's skeleton.

    What it is read and mounted of is its `cover`: composites take the place of runs of layers, so that one state of a long
    history is few folders. Where an object's provider is asked for, a composite may be the answer.
    """

    def __init__(self, layers: tuple[LayerId, ...], base: Base, store: LayerStore, *, once: bool = False) -> None:
        """`once`: nobody will stand on this state again, so nothing is folded for it unless it must."""
        self._easy = COMFORT if once else None
        self.layers = layers
        self.base = base
        self.store = store
        self._binds = {target: source for source, target in base.binds}
        self._opaque = OPAQUE[base.ids.rootless]
        self._own = self._opaque.removesuffix("opaque")

    @functools.cached_property
    def cover(self) -> list[LayerId]:
        """The layers and composites that make up the state, bottom first. Layers that changed nothing are in none."""
        return self.store.composites.cover(self.layers, self._easy)

    def _present(self) -> list[tuple[LayerId, str]]:
        """The folders that make up the state, topmost first."""
        root = str(self.store.root)
        return [(one, f"{root}/{one}/upper") for one in reversed(self.cover)]

    def lower_dirs(self) -> list[str]:
        """The directories to mount, topmost first."""
        return self.store.composites.lowers(self.cover)

    # ------------------------------------------------------------------------------------------------ asking

    def root(self) -> Entry:
        """The metadata of "/": those of the topmost directory."""
        fd = os.open(f"{self.store.root}/{self.cover[-1]}/upper", PASSING)
        try:
            status = os.fstat(fd)
            return self._entry(fd, _Spot(GuestPath("/"), self.layers[0], fd, ".", status, []))
        finally:
            os.close(fd)

    def read(self, path: str) -> bytes:
        """The content of a file, symlinks followed within the state."""
        with self.opened(path) as fd, os.fdopen(os.dup(fd), "rb") as file:
            return file.read()

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """A descriptor for reading a regular file, symlinks followed within the state."""
        with self._walk(path, follow=True) as spot:
            if not stat.S_ISREG(spot.status.st_mode):
                raise UsageError(f"{shown(path)} is not a regular file but a {_plain(spot.status)}: it has no content to read")
            try:
                fd = os.open(spot.name, READING, dir_fd=spot.holder)
            except PermissionError as error:
                raise UsageError(f"{shown(path)}: {error.strerror}") from error
            try:
                yield fd
            finally:
                os.close(fd)

    def lstat(self, path: str) -> Entry:
        """The metadata of the object itself. Raises NotFoundError."""
        return self.see(path).entry

    def see(self, path: str, *, follow: bool = False) -> Seen:
        """The object with its provider and its physical path. Raises NotFoundError."""
        with self._walk(path, follow=follow) as spot:
            fd = open_below(spot.holder, (spot.name,), JUST_HELD, ours=spot.provider != BASE_LAYER)
            try:
                return Seen(spot.path, spot.provider, self._entry(fd, spot), spot.status.st_dev, spot.status.st_ino)
            finally:
                os.close(fd)

    def find(self, path: str) -> Seen | None:
        """As `see`, with None for what is not there."""
        try:
            return self.see(path)
        except NotFoundError:
            return None

    def exists(self, path: str) -> bool:
        """Whether the name exists, be it a dangling symlink."""
        return self.find(path) is not None

    def readlink(self, path: str) -> str:
        """The target of a symlink."""
        entry = self.lstat(path)
        if entry.kind != "link":
            raise UsageError(f"{shown(path)} is not a symlink")
        return entry.target

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted; symlinks followed within the state."""
        with self._walk(path, follow=True) as spot:
            if not stat.S_ISDIR(spot.status.st_mode):
                raise UsageError(f"{shown(path)} is not a folder")
            return self._names(spot)

    # ------------------------------------------------------------------------------------------------ walking

    def _names(self, spot: _Spot) -> list[str]:
        names: set[str] = set()
        hidden: set[str] = set()
        for layer, folder in spot.merged:
            fd = open_below(folder, (".",), FOLDER, ours=layer != BASE_LAYER)
            with contextlib.closing(_Open(fd)) as readable, os.scandir(readable.fd) as rows:
                for row in rows:
                    if row.name in hidden:
                        continue
                    hidden.add(row.name)
                    gone = (
                        layer != BASE_LAYER and not row.is_dir(follow_symlinks=False) and not row.is_file(follow_symlinks=False)
                    )
                    if not (gone and is_whiteout(row.stat(follow_symlinks=False))):
                        names.add(row.name)
        return sorted(names)

    def _entry(self, fd: int, spot: _Spot) -> Entry:
        status = spot.status
        kind = kind_of(status)
        uid, gid = self.base.ids.in_guest(status.st_uid, status.st_gid)
        return Entry(
            kind=kind,
            mode=stat.S_IMODE(status.st_mode),
            uid=uid,
            gid=gid,
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            target=os.readlink("", dir_fd=fd) if kind == "link" else "",
            rdev=status.st_rdev if kind in ("char", "block") else 0,
            xattrs=() if kind == "link" else read_xattrs(descriptor_path(fd), self._own),
        )

    @contextlib.contextmanager
    def _walk(self, path: str, *, follow: bool) -> Iterator[_Spot]:
        """Stand on the object at `path`. A symlink or a `..` starts again from the root with the physical path so far."""
        if b"\0" in raw_path(path) or not path.startswith("/"):
            raise UsageError(f"{shown(path)!r} is not an absolute path")
        links, rest = 0, path
        while True:
            with contextlib.closing(_Walk(self)) as walk:
                again = _attempt(walk, rest, follow=follow, asked=path)
                if again is None:
                    yield walk.spot
                    return
            rest, was_link = again
            links += was_link
            if links > _MAX_SYMLINKS:
                raise UsageError(f"{shown(path)}: {os.strerror(errno.ELOOP)}")


def _attempt(walk: _Walk, path: str, *, follow: bool, asked: str) -> tuple[str, bool] | None:
    """Run a walk, with what fails said in terms of the path that was asked for."""
    try:
        return walk.run(path, follow=follow)
    except FileNotFoundError as error:
        raise NotFoundError(f"{shown(asked)} does not exist in this state") from error
    except NotADirectoryError as error:
        raise NotFoundError(f"{shown(asked)} does not exist in this state: a part of it is no folder") from error
    except OSError as error:  # EACCES of a folder that is closed to its owner too, ENAMETOOLONG
        raise UsageError(f"{shown(asked)}: {error.strerror}") from error


def _look(folder: int, name: str, *, ours: bool) -> os.stat_result:
    """The name itself in an open folder. A layer's folder may have been closed to its owner, and be open in a later layer."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except PermissionError:
        if not ours or os.geteuid() == 0:
            raise
    with opened_up(descriptor_path(folder)):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)


class _Open:
    """A descriptor that `contextlib.closing` can close."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        os.close(self.fd)


class _Walk:
    """One pass from the root down a path, holding only the folders of one level open."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._opaque = stack._opaque  # noqa: SLF001 - this class is the Stack's own
        self._binds = stack._binds  # noqa: SLF001
        self._held: list[int] = []
        merged = [(layer, os.open(path, PASSING)) for layer, path in stack._present()]  # noqa: SLF001
        self._held = [fd for _, fd in merged]
        self.spot = _Spot(GuestPath("/"), merged[0][0], merged[0][1], ".", os.stat(merged[0][1]), merged)

    def close(self) -> None:
        for fd in self._held:
            os.close(fd)
        self._held = []

    def run(self, path: str, *, follow: bool) -> tuple[str, bool] | None:
        """Walk down; None when `spot` stands on the object, else the path to start again with (and: by a symlink)."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        only_folder = path.endswith(("/", "/."))
        for index, name in enumerate(parts):
            rest = parts[index + 1 :]
            if not stat.S_ISDIR(self.spot.status.st_mode):
                raise NotADirectoryError
            if name == "..":
                return "/".join([parent(self.spot.path), *rest]) or "/", False
            above = self.spot.path
            self._enter(name)
            if stat.S_ISLNK(self.spot.status.st_mode) and (rest or follow or only_folder):
                target = os.readlink(self.spot.name, dir_fd=self.spot.holder)
                return "/".join([target if target.startswith("/") else f"{above}/{target}", *rest]), True
        if only_folder and not stat.S_ISDIR(self.spot.status.st_mode):
            raise NotADirectoryError
        return None

    def _enter(self, name: str) -> None:
        """Step to the child `name` of the folder the walk stands on."""
        path = GuestPath(join(self.spot.path, name))
        source = self._binds.get(path)
        if source is not None:
            self._enter_bind(path, source)
            return
        keep: list[int] = []
        merged: list[tuple[LayerId, int]] = []
        found: _Spot | None = None
        for layer, folder in self.spot.merged:
            try:
                status = _look(folder, name, ours=layer != BASE_LAYER)
            except FileNotFoundError:
                continue
            if layer != BASE_LAYER and is_whiteout(status):
                break
            if not stat.S_ISDIR(status.st_mode):
                found = found or _Spot(path, layer, folder, name, status, merged)
                break
            fd = open_below(folder, (name,), PASSING, ours=layer != BASE_LAYER)
            keep.append(fd)
            merged.append((layer, fd))
            found = found or _Spot(path, layer, folder, name, status, merged)
            if layer != BASE_LAYER and self._is_opaque(fd):
                break
        self._step(found, keep)

    def _enter_bind(self, path: GuestPath, source: str) -> None:
        fd = os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(fd)
        folder, name = os.path.split(source)
        holder = os.open(folder, PASSING)
        self._step(_Spot(path, BASE_LAYER, holder, name, status, [(BASE_LAYER, fd)]), [fd, holder])

    def _step(self, found: _Spot | None, keep: list[int]) -> None:
        """Let go of the level above, but for the descriptor that holds the object's name."""
        holder = found.holder if found else -1
        for fd in self._held:
            if fd != holder:
                os.close(fd)
        self._held = [*keep, *([holder] if holder in self._held and holder not in keep else [])]
        if found is None:
            raise FileNotFoundError
        self.spot = found

    def _is_opaque(self, fd: int) -> bool:
        try:
            return os.getxattr(descriptor_path(fd), self._opaque) == b"y"
        except OSError:
            return False


def _plain(status: os.stat_result) -> str:
    words = {"dir": "folder", "link": "symlink", "fifo": "FIFO", "sock": "socket", "char": "device", "block": "device"}
    return words.get(kind_of(status), "file")
