"""Imports: a folder of the host copied into a layer of its own, at the bottom of a session.

Knows the host's folder and the tree it is laid over. The copy is a reflink where the file system can. The folder is read
as it is found, no symlink in it is followed; everything in it belongs to the guest's user inside. What can't be carried
along (a device, a socket) and what can't be read is said, not skipped: a state that silently lacks a file misleads.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

from mulligan.errors import NotFoundError, UsageError
from mulligan.model.ids import check_host_path, join, prefixes, raw_path, shown
from mulligan.model.layer import Entry
from mulligan.model.own import is_state
from mulligan.sandbox.stack import Stack, kind_of, read_xattrs
from mulligan.sandbox.trees import FOLDER, READING, Parts, descriptor_path, open_below, opened, space_for
from mulligan.sandbox.writing import LayerWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mulligan.model.layer import Layer
    from mulligan.model.tree import Tree
    from mulligan.sandbox.base import Base
    from mulligan.sandbox.layer import LayerStore

_FOLDER_NS = 1_700_000_000 * 10**9  # the time of folders made on the way, as in the skeleton


def import_folder(store: LayerStore, source: str, target: str, base: Base, below: Tree) -> Layer:
    """Copy the host folder `source` to the guest path `target` as a new layer over the tree `below`.

    Raises NotFoundError, or UsageError naming what can't be read or carried along.
    """
    path = check_target(target, base)
    check_host_path(source)
    there = below.get(path)
    if there is not None and there.kind != "dir":
        raise UsageError(f"import to {shown(path)}: that is no folder in the base")
    try:
        top = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFoundError(f"import {shown(source)}: there is no such folder") from error
    except OSError as error:
        raise UsageError(f"import {shown(source)}: {error.strerror}", remedy="name a folder that you may read") from error
    try:
        with store.begin() as layer, LayerWriter(layer) as writer, space_for(f"import {shown(source)}"):
            layer.dress_root(Stack((base.skeleton,), base, store).root())
            for above in prefixes(path):
                _pass_folder(writer, above, below, base)
            copier = TreeCopier(writer, top, source, base, skip=store.root.parent)
            copier.copy(path, merged=path in below)
            return layer.seal_manifest(writer.finish())
    finally:
        os.close(top)


def check_target(target: str, base: Base) -> str:
    """The normal form of a guest path to import to. Raises UsageError where nothing can be put."""
    raw_path(target)
    path = os.path.normpath(target)
    if not target.startswith("/") or path == "/" or "\0" in target:
        raise UsageError(f"import to {shown(target)!r}: name an absolute folder inside, such as /workspace")
    path = "/" + path.lstrip("/")
    if not is_state(path):
        raise UsageError(f"import to {shown(path)}: the kernel's own folders, and ours, hold no state")
    if base.bound(path) is not None or any(bind.startswith(f"{path}/") for _, bind in base.binds):
        raise UsageError(f"import to {shown(path)}: that is a read-only folder of the host")
    return path


def _pass_folder(writer: LayerWriter, path: str, below: Tree, base: Base) -> None:
    """A folder on the way to the target: as it is below, or new."""
    node = below.get(path)
    if node is None:
        writer.folder(path, Entry("dir", 0o755, base.ids.uid, base.ids.gid, mtime_ns=_FOLDER_NS))
        return
    if node.kind != "dir":
        raise UsageError(f"import below {shown(path)}: that is no folder in the base")
    entry = Entry("dir", node.mode, node.uid, node.gid, mtime_ns=node.mtime_ns, xattrs=node.xattrs)
    writer.folder(path, replace(entry, made=False, inherit_mode=True, inherit_mtime=True, inherit_xattrs=True))


class TreeCopier:
    """Copies a tree of the host into a layer, folder by folder, by descriptors."""

    def __init__(self, writer: LayerWriter, top: int, source: str, base: Base, skip: os.PathLike[str] | None = None) -> None:
        self._writer = writer
        self._top = top
        self._source = source
        self._ids = base.ids
        self._links: dict[tuple[int, int], str] = {}
        self._skip = _identity(skip)
        self.keep_owners = False  # of a root file system: its ids are inside ids
        self.left_out: tuple[str, ...] = ()  # guest paths whose content is not carried along

    def copy(self, target: str, *, merged: bool) -> None:
        """Copy all of it to `target`. `merged`: a folder is there already, and what is in it stays."""
        if target != "/":
            entry = self._entry(os.fstat(self._top), self._top)
            self._writer.folder(target, replace(entry, made=not merged, inherit_xattrs=merged))
        waiting: list[tuple[Parts, str]] = [((), target)]
        while waiting:
            parts, at = waiting.pop()
            for name, status in self._rows(parts):
                path = join(at, name)
                if stat.S_ISDIR(status.st_mode):
                    if (status.st_dev, status.st_ino) == self._skip:
                        continue
                    self._folder(parts, name, path)
                    if path not in self.left_out:
                        waiting.append(((*parts, name), path))
                else:
                    self._object(parts, name, path, status)

    def _rows(self, parts: Parts) -> Iterator[tuple[str, os.stat_result]]:
        try:
            with opened(self._top, parts) as fd, os.scandir(fd) as rows:
                found = [(row.name, row.stat(follow_symlinks=False)) for row in rows]
        except OSError as error:
            raise self._refused(parts, error.strerror or "") from error
        return iter(sorted(found, key=lambda row: row[0]))

    def _folder(self, parts: Parts, name: str, path: str) -> None:
        try:
            with opened(self._top, (*parts, name), FOLDER) as fd:
                self._writer.folder(path, self._entry(os.fstat(fd), fd))
        except PermissionError as error:
            raise self._refused((*parts, name), error.strerror or "") from error

    def _object(self, parts: Parts, name: str, path: str, status: os.stat_result) -> None:
        same = (status.st_dev, status.st_ino)
        if status.st_nlink > 1 and same in self._links:
            self._link(self._links[same], path)
            return
        kind = kind_of(status)
        if kind == "link":
            with opened(self._top, parts) as fd:
                target = os.readlink(name, dir_fd=fd)
            self._writer.node(path, self._entry(status, None, target=target))
        elif kind == "file":
            self._file(parts, name, path)
        elif kind == "fifo":
            self._writer.node(path, self._entry(status, None))
        elif kind == "sock":
            return  # means nothing without the process that listens on it
        else:
            raise self._refused((*parts, name), "is a device, which can't be imported")
        if status.st_nlink > 1:
            self._links[same] = path

    def _file(self, parts: Parts, name: str, path: str) -> None:
        try:
            fd = open_below(self._top, (*parts, name), READING)
        except OSError as error:
            raise self._refused((*parts, name), error.strerror or "") from error
        try:
            self._writer.file(path, self._entry(os.fstat(fd), fd), fd)
        finally:
            os.close(fd)

    def _link(self, first: str, path: str) -> None:
        entries = self._writer.entries
        names = (first, *entries[first].links, path)
        self._writer.same_as(first, path, entries[first])
        for name in names:
            entries[name] = replace(entries[name], links=tuple(other for other in names if other != name))

    def _entry(self, status: os.stat_result, fd: int | None, target: str = "") -> Entry:
        uid, gid = (status.st_uid, status.st_gid) if self.keep_owners else (self._ids.uid, self._ids.gid)
        found = read_xattrs(descriptor_path(fd)) if fd is not None else ()
        return Entry(
            kind=kind_of(status),
            mode=stat.S_IMODE(status.st_mode),
            uid=uid,
            gid=gid,
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            target=target,
            xattrs=tuple((key, value) for key, value in found if key.startswith(b"user.")),
        )

    def _refused(self, parts: Parts, reason: str) -> UsageError:
        return UsageError(
            f"import {shown('/'.join((self._source, *parts)))}: {reason}", remedy="make it readable, or move it away"
        )


def _identity(path: os.PathLike[str] | None) -> tuple[int, int] | None:
    if path is None:
        return None
    status = os.stat(path)
    return status.st_dev, status.st_ino
