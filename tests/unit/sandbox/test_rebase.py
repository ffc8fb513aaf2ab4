"""A kept layer on another state: what the action meant stays, what it only inherited comes from the new state."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from mulligan.model.layer import Layer, Manifest
from mulligan.model.tree import Tree
from mulligan.repair.rebase import rematerialise
from mulligan.sandbox.writing import LayerWriter

from .conftest import NS, entry

if TYPE_CHECKING:
    from mulligan.model.layer import Entry
    from mulligan.sandbox.layer import LayerStore
    from mulligan.sandbox.stack import Stack

    from .conftest import Maker


def copied(kind: str, **more: object) -> Entry:
    """An entry of which all was inherited by copy-up."""
    flags = {
        "made": False,
        "inherit_mode": True,
        "inherit_mtime": True,
        "inherit_xattrs": True,
        "inherit_content": kind == "file",
    }
    return replace(entry(kind), **{**flags, **more})


def written(layers: LayerStore, *items: tuple[str, Entry, bytes | None], removed: tuple[str, ...] = ()) -> Layer:
    """A layer as an action left it."""
    with layers.begin() as opened, LayerWriter(opened) as writer:
        for path, one, data in items:
            if one.kind == "dir":
                writer.folder(path, one)
            else:
                writer.file(path, replace(one, size=len(data or b"")), data or b"")
        for path in removed:
            writer.whiteout(path)
        return opened.seal_manifest(writer.finish())


def over(make: Maker, new: Layer, kept: Layer) -> tuple[Layer, Stack]:
    """The kept layer made again over `new`, and the stack of both."""
    below = Tree()
    below.apply(new.manifest, new.id)
    again = rematerialise(make.store, kept, below, make.stack(new))
    return again, make.stack(new, again)


def test_a_parents_mode_comes_from_the_new_state(layers: LayerStore, make: Maker) -> None:
    """Row 9: a folder copied up only as a parent does not carry its old mode along."""
    kept = written(layers, ("/d", copied("dir"), None), ("/d/y", entry(), b"mine"))
    new = written(layers, ("/d", replace(entry("dir"), mode=0o700, mtime_ns=NS + 9), None), ("/d/z", entry(), b"z"))
    again, stack = over(make, new, kept)
    assert (stack.lstat("/d").mode, stack.lstat("/d").mtime_ns) == (0o700, NS + 9)
    assert stack.read("/d/y") == b"mine"
    assert stack.listdir("/d") == ["y", "z"]
    assert again.manifest.entries["/d"].mode == 0o700


def test_an_own_file_is_a_copy_with_one_link(layers: LayerStore, make: Maker) -> None:
    """A hard link between layers would show in the file's link count, so what the action made is copied."""
    kept = written(layers, ("/f", entry(), b"mine"))
    again, stack = over(make, written(layers, ("/g", entry(), b"")), kept)
    assert stack.read("/f") == b"mine"
    assert (layers.path(again.id) / "f").stat().st_nlink == 1
    assert again.manifest == kept.manifest


def test_a_chmod_takes_the_new_content(layers: LayerStore, make: Maker) -> None:
    """Row 7: of a file whose mode alone was set, the content is the new state's and the mode the action's own."""
    kept = written(layers, ("/x", copied("file", mode=0o600, inherit_mode=False), b"old content"))
    new = written(layers, ("/x", replace(entry(), mtime_ns=NS + 3), b"new"))
    again, stack = over(make, new, kept)
    seen = stack.lstat("/x")
    assert (stack.read("/x"), seen.mode, seen.mtime_ns) == (b"new", 0o600, NS + 3)
    assert (layers.path(new.id) / "x").stat().st_mode & 0o777 == 0o644
    assert (layers.path(kept.id) / "x").read_bytes() == b"old content"
    assert again.manifest.entries["/x"].size == 3


def test_an_inherited_mode_is_set_on_a_copy(layers: LayerStore, make: Maker) -> None:
    """A file that was rewritten keeps its content and takes the new mode, and the old layer's file is not touched."""
    kept = written(layers, ("/x", replace(entry(), made=False, inherit_mode=True), b"mine"))
    new = written(layers, ("/x", replace(entry(), mode=0o755), b"other"))
    _, stack = over(make, new, kept)
    assert (stack.read("/x"), stack.lstat("/x").mode) == (b"mine", 0o755)
    assert (layers.path(kept.id) / "x").stat().st_mode & 0o777 == 0o644


def test_whiteouts_and_opaque_folders_stay_where_they_hide(layers: LayerStore, make: Maker) -> None:
    """A removal goes on hiding what is below, also something new in a folder that was made again."""
    kept = written(
        layers, ("/d", replace(entry("dir"), opaque=True), None), ("/d/own", entry(), b""), removed=("/gone", "/absent")
    )
    new = written(layers, ("/d", entry("dir"), None), ("/d/z", entry(), b"z"), ("/gone", entry(), b"g"))
    again, stack = over(make, new, kept)
    assert stack.listdir("/") == ["d"]
    assert stack.listdir("/d") == ["own"]
    assert not (layers.path(again.id) / "absent").exists()
    assert again.manifest.removed == frozenset({"/gone", "/absent"})


def test_link_groups_survive_a_copy(layers: LayerStore, make: Maker) -> None:
    """Two names of one file are two names of one file in the new layer, also when it had to be copied."""
    with layers.begin() as opened, LayerWriter(opened) as writer:
        one = replace(entry(size=4), made=False, inherit_mode=True, links=("/b",))
        writer.file("/a", one, b"mine")
        writer.same_as("/a", "/b", replace(one, links=("/a",)))
        kept = opened.seal_manifest(writer.finish())
    new = written(layers, ("/a", replace(entry(), mode=0o600), b"x"), ("/b", replace(entry(), mode=0o600), b"x"))
    again, stack = over(make, new, kept)
    assert os.path.samefile(layers.path(again.id) / "a", layers.path(again.id) / "b")
    assert not os.path.samefile(layers.path(again.id) / "a", layers.path(kept.id) / "a")
    assert stack.lstat("/b").mode == 0o600


def test_an_empty_layer_is_its_own_rebase(layers: LayerStore, make: Maker) -> None:
    """There is nothing to make again."""
    with layers.begin() as opened:
        kept = opened.seal_manifest(Manifest())
    again, _ = over(make, written(layers, ("/g", entry(), b"")), kept)
    assert again is kept
