"""A patch's layer: one file with a value that somebody asserts, on top of a stack.

Knows the state below. Metadata of the file and of its parents are taken from there: only the content is meant.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mulligan.errors import NotFoundError, UsageError
from mulligan.model.ids import BASE_LAYER, parent, prefixes, shown
from mulligan.model.layer import Entry
from mulligan.sandbox.base import UNSTATEFUL
from mulligan.sandbox.trees import space_for
from mulligan.sandbox.writing import LayerWriter

if TYPE_CHECKING:
    from mulligan.model.layer import Layer
    from mulligan.sandbox.layer import LayerStore
    from mulligan.sandbox.stack import Stack


def patch_layer(store: LayerStore, stack: Stack, path: str, data: bytes, mtime_ns: int) -> Layer:
    """A layer over `stack` in which the file at the physical `path` has the content `data` and this mtime.

    Raises UsageError where no file can stand: below the host's folders, over a folder, without its parent folder.
    """
    ids = stack.base.ids
    if any(path == top or path.startswith(f"{top}/") for top in UNSTATEFUL) or stack.base.bound(path) is not None:
        raise UsageError(f"patch {shown(path)}: it lies in a read-only folder of the host")
    below = stack.find(path)
    if below is not None and below.entry.kind != "file":
        raise UsageError(f"patch {shown(path)}: it is no file but a {below.entry.kind}")
    entry = Entry("file", 0o644, ids.uid, ids.gid) if below is None else below.entry
    entry = replace(entry, size=len(data), mtime_ns=mtime_ns, made=below is None)
    if below is not None:
        entry = replace(entry, inherit_mode=True, inherit_xattrs=True)
    with store.begin() as layer, LayerWriter(layer) as writer, space_for(f"patch {shown(path)}"):
        layer.dress_root(stack.root())
        for above in prefixes(path):
            writer.folder(above, _parent_entry(stack, above, path))
        if below is None and parent(path) != "/":  # a new name changes its folder's time
            above = parent(path)
            writer.entries[above] = replace(writer.entries[above], inherit_mtime=False, mtime_ns=mtime_ns)
        writer.file(path, entry, data)
        return layer.seal_manifest(writer.finish())


def _parent_entry(stack: Stack, above: str, path: str) -> Entry:
    found = stack.find(above)
    if found is None:
        raise NotFoundError(f"patch {shown(path)}: there is no folder {shown(above)}")
    if found.entry.kind != "dir" or found.provider == BASE_LAYER:
        raise UsageError(f"patch {shown(path)}: {shown(above)} is no folder of the state")
    return replace(found.entry, made=False, inherit_mode=True, inherit_mtime=True, inherit_xattrs=True)
