"""Making a layer by hand: folders, files, links put into an open layer's upper directory, with the manifest kept along.

Knows the upper directory and manifest entries. Serves all layers that no action writes: skeletons, imports, patches, and
layers made again on another stack. Folders get their times last, since making an entry in a folder changes them.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Self

from mulligan.model.ids import raw_path
from mulligan.model.layer import Entry, Manifest
from mulligan.sandbox.stack import OPAQUE
from mulligan.sandbox.trees import MAKING, PASSING, Parts, copy_bytes, descriptor_path, open_below, split

if TYPE_CHECKING:
    from types import TracebackType

    from mulligan.sandbox.layer import OpenLayer

_TYPES = {"fifo": stat.S_IFIFO, "sock": stat.S_IFSOCK, "char": stat.S_IFCHR, "block": stat.S_IFBLK}


class LayerWriter:
    """Fills an open layer. Use as a context manager; `manifest()` at the end describes what was made."""

    def __init__(self, layer: OpenLayer) -> None:
        self.layer = layer
        self.entries: dict[str, Entry] = {}
        self.removed: set[str] = set()
        self._top = os.open(layer.upper, PASSING)
        self._folder: tuple[Parts, int] = ((), self._top)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._folder[1] != self._top:
            os.close(self._folder[1])
        os.close(self._top)

    def _at(self, path: str) -> tuple[int, str]:
        """The open folder that holds the path, and the name in it."""
        parts = split(path)
        held, fd = self._folder
        if held != parts[:-1]:
            if fd != self._top:
                os.close(fd)
            self._folder = ((), self._top)
            if parts[:-1]:
                self._folder = (parts[:-1], open_below(self._top, parts[:-1], PASSING))
        return self._folder[1], parts[-1]

    def folder(self, path: str, entry: Entry) -> None:
        """Make a folder. Its mode and times are set by `finish`, when all in it is made."""
        fd, name = self._at(path)
        os.mkdir(name, 0o700, dir_fd=fd)
        self.entries[path] = entry

    def root(self, mode: int, mtime_ns: int) -> None:
        """Tell what "/" is, for a layer at the very bottom: nothing below says it."""
        ids = self.layer.store.ids
        uid, gid = (ids.uid, ids.gid) if ids.rootless else (0, 0)
        self.entries["/"] = Entry("dir", mode, uid, gid, mtime_ns=mtime_ns)

    def file(self, path: str, entry: Entry, content: bytes | int) -> None:
        """Make a file from bytes, or by copying an open file."""
        fd, name = self._at(path)
        out = os.open(name, MAKING, 0o600, dir_fd=fd)
        try:
            if isinstance(content, bytes):
                view = memoryview(content)
                while view:
                    view = view[os.write(out, view) :]
            else:
                copy_bytes(content, out)
        finally:
            os.close(out)
        self._dress(path, entry)

    def node(self, path: str, entry: Entry) -> None:
        """Make a symlink, FIFO, socket or device."""
        fd, name = self._at(path)
        if entry.kind == "link":
            os.symlink(raw_path(entry.target), raw_path(name), dir_fd=fd)
        else:
            os.mknod(name, _TYPES[entry.kind] | 0o600, entry.rdev, dir_fd=fd)
        self._dress(path, entry)

    def hard_link(self, source: int, source_name: str, path: str, entry: Entry) -> None:
        """Give a file of another layer this name, too. It is shared: nothing of it may be changed from here on."""
        fd, name = self._at(path)
        os.link(source_name, name, src_dir_fd=source, dst_dir_fd=fd, follow_symlinks=False)
        self.entries[path] = entry

    def same_as(self, made: str, path: str, entry: Entry) -> None:
        """Another name of a file made before."""
        parts = split(made)
        source = open_below(self._top, parts[:-1], PASSING)
        try:
            self.hard_link(source, parts[-1], path, entry)
        finally:
            os.close(source)

    def whiteout(self, path: str) -> None:
        """Remove the name from what lies below."""
        fd, name = self._at(path)
        os.mknod(name, stat.S_IFCHR, 0, dir_fd=fd)
        self.removed.add(path)

    def finish(self) -> Manifest:
        """Give the folders their metadata, deepest first, and tell what was made."""
        folders = [path for path, entry in self.entries.items() if entry.kind == "dir"]
        for path in sorted(folders, key=lambda one: one.count("/"), reverse=True):
            self._dress(path, self.entries[path])
        root = self.layer.root_mtime_ns
        if "/" not in self.entries and root is not None:
            os.utime(".", ns=(root, root), dir_fd=self._top)
        return Manifest(self.entries, frozenset(self.removed))

    def _dress(self, path: str, entry: Entry) -> None:
        """Owner first (chown takes set-id bits away), then mode, attributes, and times last."""
        fd, name = self._at(path) if path != "/" else (self._top, ".")
        self.layer.own(name, entry.uid, entry.gid, folder=fd)
        if entry.kind != "link":
            if entry.xattrs or entry.opaque:
                self._mark(fd, name, entry)
            os.chmod(name, entry.mode, dir_fd=fd)
        os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=fd, follow_symlinks=False)
        self.entries[path] = entry

    def _mark(self, folder: int, name: str, entry: Entry) -> None:
        held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            for key, value in entry.xattrs:
                os.setxattr(descriptor_path(held), key, value)
            if entry.opaque:
                os.setxattr(descriptor_path(held), OPAQUE[self.layer.store.ids.rootless], b"y")
        finally:
            os.close(held)
