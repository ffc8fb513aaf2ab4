"""Merging: the manifests of several layers in a row as one, which does to any state what they do one after the other.

Knows manifests; pure. It is to manifests what folding is to the layers on disk, by the same rules: a removed name stays
removed, since a state below may have it; a folder over a removed name or over a non-folder is opaque; what a later layer
inherits, it inherits from an earlier one that set it, and only else from the state below.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mulligan.model.ids import join, parent
from mulligan.model.layer import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mulligan.model.layer import Entry


def merge_manifests(manifests: Iterable[Manifest]) -> Manifest:
    """The manifests, bottom first, as one. Each names the folders above what it sets, as sealed layers' do."""
    merged = _Merged()
    for manifest in manifests:
        for path in manifest.removed:
            merged.remove(path)
        for path in sorted(manifest.entries):
            merged.lay(path, manifest.entries[path])
    return Manifest(merged.entries, frozenset(merged.removed))


class _Merged:
    """What the manifests so far come to, with the names below each folder that any of them speaks of."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.removed: set[str] = set()
        self._names: dict[str, set[str]] = {}

    def remove(self, path: str) -> None:
        """The name and all below it are gone, whatever there was."""
        if path == "/":
            return
        self._forget(path)
        self.removed.add(path)
        self._enter(path)

    def lay(self, path: str, entry: Entry) -> None:
        """An entry over what there is."""
        was, gone = self.entries.get(path), path in self.removed
        if gone:
            self.removed.discard(path)
            entry = replace(entry, made=True, opaque=entry.kind == "dir")
        elif was is not None and was.kind != entry.kind:
            entry = replace(entry, made=True, opaque=entry.kind == "dir")
            self._forget(path)
        elif was is not None:
            if entry.opaque:
                self._forget(path)
            entry = _over(was, entry)
        elif entry.kind != "dir" or entry.opaque:
            self._forget(path)  # names removed below a folder that is none any more
        self.entries[path] = entry
        self._enter(path)

    def _enter(self, path: str) -> None:
        while path != "/":
            folder = parent(path)
            names = self._names.setdefault(folder, set())
            name = path.rpartition("/")[2]
            if name in names:
                return
            names.add(name)
            path = folder

    def _forget(self, path: str) -> None:
        """Nothing is said of the path and of what lies below it."""
        todo = [path]
        while todo:
            at = todo.pop()
            self.entries.pop(at, None)
            self.removed.discard(at)
            todo += [join(at, name) for name in self._names.pop(at, ())]


def _over(was: Entry, entry: Entry) -> Entry:
    """An entry over one of the same kind: what it inherits is the other one's, be it that one's own or inherited in turn."""
    if entry.made:
        return replace(entry, opaque=entry.opaque or was.opaque)
    entry = replace(entry, made=was.made, opaque=entry.opaque or was.opaque)
    if entry.inherit_content:
        entry = replace(entry, inherit_content=was.inherit_content, size=was.size, target=was.target, rdev=was.rdev)
    if entry.inherit_mode:
        entry = replace(entry, inherit_mode=was.inherit_mode, mode=was.mode, uid=was.uid, gid=was.gid)
    if entry.inherit_mtime:
        entry = replace(entry, inherit_mtime=was.inherit_mtime, mtime_ns=was.mtime_ns)
    return replace(entry, inherit_xattrs=was.inherit_xattrs, xattrs=was.xattrs) if entry.inherit_xattrs else entry
