"""Rebase: a kept layer made again on another state below it, from its manifest, by copies (reflinks where there are any).

Knows layers, the tree that will be below, and the stack that provides its bytes. A raw upper directory holds more than was
meant: parents copied up with their old metadata, the old content of a file of which only the mode was set. Where the
state below has changed, those parts must come from the new state; what the action made itself stays its very own file.

Rejected: hard links from the old layer. They would cost no bytes, but overlayfs shows the link count of the real inode
(without `index`, see ovl_getattr), so every file of both layers would show one link too many to the next stat(2), which a
run from the start would not. Whiteouts are kept where there still is something to hide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mulligan.errors import InternalError
from mulligan.model.ids import prefixes
from mulligan.model.layer import Entry, Layer
from mulligan.sandbox.trees import space_for
from mulligan.sandbox.writing import LayerWriter

if TYPE_CHECKING:
    from mulligan.model.tree import Node, Tree
    from mulligan.sandbox.layer import LayerStore
    from mulligan.sandbox.stack import Stack


def rematerialise(layers: LayerStore, layer: Layer, below: Tree, stack: Stack) -> Layer:
    """The layer made again over `below`, whose bytes `stack` provides. Raises DiskFullError; leaves nothing then."""
    if layers.is_empty(layer.id):
        return layer
    with layers.begin() as opened, LayerWriter(opened) as writer, space_for(f"make layer {layer.id} again"):
        opened.dress_root(stack.root())
        _Rebase(layers, layer, below, writer).run()
        return opened.seal_manifest(writer.finish())


class _Rebase:
    def __init__(self, layers: LayerStore, layer: Layer, below: Tree, writer: LayerWriter) -> None:
        self._layers = layers
        self._layer = layer
        self._below = below
        self._writer = writer
        self._copied: dict[str, str] = {}  # first name of a copied link group, by each of its names

    def run(self) -> None:
        """Make every entry, parents first, then what is removed."""
        manifest = self._layer.manifest
        for path in sorted(manifest.entries):
            self._parents(path)
            self._entry(path, manifest.entries[path])
        for path in sorted(manifest.removed):
            if path in self._below and not self._is_hidden(path):
                self._parents(path)
                self._writer.whiteout(path)
            else:
                self._writer.removed.add(path)  # still what the action meant; there is nothing to hide

    def _parents(self, path: str) -> None:
        """Folders on the way that the layer does not speak of itself: copies of those below."""
        for above in prefixes(path):
            if above not in self._writer.entries:
                node = self._below.get(above)
                if node is None or node.kind != "dir":
                    raise InternalError(f"layer {self._layer.id} has {path!r}, and the state below has no folder {above!r}")
                copied = Entry("dir", made=False, inherit_mode=True, inherit_mtime=True, inherit_xattrs=True)
                self._writer.folder(above, _inherited(copied, node))

    def _is_hidden(self, path: str) -> bool:
        """Whether the layer itself already hides the name: below a folder it replaced, or by an object at a parent's name."""
        entries = self._writer.entries
        return any(above in entries and (entries[above].opaque or entries[above].kind != "dir") for above in prefixes(path))

    def _entry(self, path: str, entry: Entry) -> None:
        node = self._below.get(path)
        now = entry if node is None or node.kind != entry.kind or entry.made else _inherited(entry, node)
        if now.kind == "dir":
            self._folder(path, now)
        elif now.kind != "file":
            self._node(path, now)
        elif now.inherit_content and node is not None and (node.provider, path) != (self._layer.id, path):
            self._file_from_below(path, now, node)
        else:
            self._copy(path, now)

    def _folder(self, path: str, entry: Entry) -> None:
        if path == "/":
            self._writer.entries[path] = entry  # the upper directory itself: only its metadata are to be set
        else:
            self._writer.folder(path, entry)

    def _node(self, path: str, now: Entry) -> None:
        first = self._first_name(path, now)
        if first is not None:
            self._writer.same_as(first, path, now)
        else:
            self._writer.node(path, now)

    def _first_name(self, path: str, entry: Entry) -> str | None:
        """The name under which a link group was copied already; else this name becomes it."""
        for name in (path, *entry.links):
            if name in self._copied:
                return self._copied[name]
        if entry.links:
            self._copied[path] = path
        return None

    def _copy(self, path: str, entry: Entry) -> None:
        """The layer's own content."""
        first = self._first_name(path, entry)
        if first is not None:
            self._writer.same_as(first, path, entry)
            return
        with self._layers.opened(self._layer.id, path) as fd:
            self._writer.file(path, entry, fd)

    def _file_from_below(self, path: str, entry: Entry, node: Node) -> None:
        """Only metadata were meant: the content is the new provider's."""
        first = self._first_name(path, entry)
        if first is not None:
            self._writer.same_as(first, path, entry)
            return
        with self._layers.opened(node.provider, path) as fd:
            self._writer.file(path, entry, fd)


def _inherited(entry: Entry, node: Node) -> Entry:
    """The entry with what it inherits taken from the new state below."""
    if entry.inherit_content:
        entry = replace(entry, size=node.size, target=node.target, rdev=node.rdev)
    if entry.inherit_mode:
        entry = replace(entry, mode=node.mode, uid=node.uid, gid=node.gid)
    if entry.inherit_mtime:
        entry = replace(entry, mtime_ns=node.mtime_ns)
    return replace(entry, xattrs=node.xattrs) if entry.inherit_xattrs else entry
