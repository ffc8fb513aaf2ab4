"""Layers on disk: sealing, phantoms, orphans, imports, patches."""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from mulligan.errors import NotFoundError, StoreError, UsageError
from mulligan.model.action import Outcome
from mulligan.model.events import Create, RawEntry, Read, Write
from mulligan.model.ids import LayerId
from mulligan.model.tree import Tree
from mulligan.sandbox.imports import import_folder
from mulligan.sandbox.manifests import decode_manifest, encode_manifest
from mulligan.sandbox.patch import patch_layer

from .conftest import NS, UID

if TYPE_CHECKING:
    from pathlib import Path

    from mulligan.model.events import Event
    from mulligan.model.layer import Layer
    from mulligan.sandbox.layer import LayerStore, OpenLayer
    from mulligan.sandbox.stack import Stack

    from .conftest import Maker


@dataclass
class Ran:
    """What a run would have left."""

    events: list[Event] = field(default_factory=list)
    entries: list[RawEntry] = field(default_factory=list)
    outcome: Outcome = field(default_factory=lambda: Outcome(0, None))


def walk(upper: Path, stack: Stack) -> list[RawEntry]:
    """The upper directory as the tracer reports it."""
    ids = stack.base.ids
    rows = []
    for path in sorted(upper.rglob("*")):
        status = path.lstat()
        uid, gid = ids.in_guest(status.st_uid, status.st_gid)
        kind = "dir" if path.is_dir() else "file"
        name = f"/{path.relative_to(upper)}"
        mode = status.st_mode & 0o7777
        rows.append(RawEntry(name, kind, mode, uid, gid, status.st_size, status.st_mtime_ns, status.st_nlink, status.st_ino))
    return rows


def copy_up(layer: OpenLayer, stack: Stack, path: str) -> None:
    """Do what overlayfs does when a file is opened for writing."""
    at = layer.upper
    for name in path.split("/")[1:-1]:
        at /= name
        at.mkdir()
    file = layer.upper / path[1:]
    file.write_bytes(stack.read(path))
    for made in (file, *file.parents):
        if made == layer.upper:
            break
        seen = stack.lstat(f"/{made.relative_to(layer.upper)}")
        layer.own(made, seen.uid, seen.gid)
        made.chmod(seen.mode)
        os.utime(made, ns=(seen.mtime_ns, seen.mtime_ns))


def test_a_layer_that_changes_nothing_has_no_directory(layers: LayerStore, make: Maker) -> None:
    """An empty layer is only an id: the stack leaves it out, and nothing of it is on disk."""
    with layers.begin() as opened:
        layer = opened.seal(Ran(), make.stack(make.layer(("/a", b""))))
    layers.settle()
    assert layers.is_empty(layer.id)
    assert layers.has(layer.id)
    assert layer.id not in os.listdir(layers.root)
    assert len(os.listdir(layers.root)) == 1


def test_what_is_not_sealed_is_removed(layers: LayerStore) -> None:
    """An exception in the middle of an action leaves no layer."""
    with contextlib.suppress(KeyboardInterrupt), layers.begin() as opened:
        (opened.upper / "half").write_text("x")
        raise KeyboardInterrupt
    layers.settle()
    assert os.listdir(layers.root) == []


def test_a_phantom_is_dropped_with_its_copied_parents(layers: LayerStore, make: Maker) -> None:
    """A file opened for writing and not written leaves no copy, nor the folders that were copied up only for it."""
    stack = make.stack(make.layer(("/d", None), ("/d/e", None), ("/d/e/f", b"content")))
    with layers.begin() as opened:
        copy_up(opened, stack, "/d/e/f")
        events: list[Event] = [Read("/d/e/f"), Write("/d/e/f", truncated=False)]
        layer = opened.seal(Ran(events, walk(opened.upper, stack)), stack)
    assert layer.manifest.paths == frozenset()


def test_a_parent_with_something_else_in_it_stays(layers: LayerStore, make: Maker) -> None:
    """Dropping a phantom leaves its parent's time as it was, and what else is in the parent."""
    stack = make.stack(make.layer(("/d", None), ("/d/f", b"content")))
    with layers.begin() as opened:
        copy_up(opened, stack, "/d/f")
        (opened.upper / "d" / "new").write_bytes(b"n")
        os.utime(opened.upper / "d", ns=(7, 7))
        events: list[Event] = [Read("/d/f"), Write("/d/f", truncated=False), Create("/d/new")]
        layer = opened.seal(Ran(events, walk(opened.upper, stack)), stack)
    assert set(layer.manifest.entries) == {"/d", "/d/new"}
    assert os.stat(layers.path(layer.id) / "d").st_mtime_ns == 7


def test_equal_bytes_written_anew_are_no_phantom(layers: LayerStore, make: Maker) -> None:
    """A file that was written has a new mtime: it was meant, whatever its bytes."""
    stack = make.stack(make.layer(("/f", b"content")))
    with layers.begin() as opened:
        copy_up(opened, stack, "/f")
        os.utime(opened.upper / "f", ns=(NS + 1, NS + 1))
        layer = opened.seal(Ran([Write("/f", truncated=False)], walk(opened.upper, stack)), stack)
    assert set(layer.manifest.entries) == {"/f"}


def test_other_bytes_under_the_old_time_are_no_phantom(layers: LayerStore, make: Maker) -> None:
    """The bytes are compared: a write that somebody hid by setting the time back is kept."""
    stack = make.stack(make.layer(("/f", b"content")))
    with layers.begin() as opened:
        copy_up(opened, stack, "/f")
        (opened.upper / "f").write_bytes(b"CONTENT")
        os.utime(opened.upper / "f", ns=(NS, NS))
        layer = opened.seal(Ran([Write("/f", truncated=False)], walk(opened.upper, stack)), stack)
    assert set(layer.manifest.entries) == {"/f"}


def test_orphans_are_what_no_live_process_works_on(layers: LayerStore, make: Maker) -> None:
    """Open folders without a lock and unknown layers are orphans; those that are worked on, and known ones, are not."""
    known, unknown = make.layer(("/a", b"")), make.layer(("/b", b""))
    (layers.root / ".open-killed").mkdir()
    (layers.root / ".gone-half").mkdir()
    layers.settle()
    with layers.begin() as opened:
        found = layers.orphans([known.id])
        assert opened.folder.name not in found
    assert sorted(found) == sorted([".gone-half", ".open-killed", unknown.id])
    for name in found:
        layers.remove(name)
    layers.settle()
    assert os.listdir(layers.root) == [known.id]


def test_a_sealed_layer_stays_locked_until_its_row_is_committed(layers: LayerStore, make: Maker) -> None:
    """Between sealing and the end of the context a collector keeps its hands off."""
    with layers.begin() as opened:
        (opened.upper / "f").write_bytes(b"x")
        stack = make.stack(make.layer(("/a", b"")))
        layer = opened.seal(Ran([Create("/f")], walk(opened.upper, stack)), stack)
        assert layer.id not in layers.orphans([])
    assert layer.id in layers.orphans([])


def test_an_import_carries_all_and_is_owned_by_the_guest(layers: LayerStore, make: Maker, tmp_path: Path) -> None:
    """Bytes, modes, times, symlinks, hard links and strange names come along; the owner inside is the guest's user."""
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "file").write_bytes(b"content")
    (source / "sub" / "file").chmod(0o751)
    os.utime(source / "sub" / "file", ns=(NS, NS))
    os.link(source / "sub" / "file", source / "other")
    (source / "link").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe")
    (source / "bad\udcff\n").write_bytes(b"")
    root = make.layer(("/workspace", None))
    base = make.stack(root).base
    below = Tree()
    below.apply(root.manifest, root.id)
    layer = import_folder(layers, str(source), "/workspace", base, below)
    stack = make.stack(root, layer)
    assert stack.listdir("/workspace") == sorted(["bad\udcff\n", "link", "other", "pipe", "sub"])
    seen = stack.lstat("/workspace/sub/file")
    assert (seen.mode, seen.uid, seen.mtime_ns, stack.read("/workspace/sub/file")) == (0o751, UID, NS, b"content")
    assert stack.readlink("/workspace/link") == "/etc/passwd"
    assert layer.manifest.entries["/workspace/other"].links == ("/workspace/sub/file",)
    one, other = (layers.path(layer.id) / f"workspace/{name}" for name in ("other", "sub/file"))
    assert one.samefile(other)


@pytest.mark.skipif(UID == 0, reason="root may read everything")
def test_an_import_that_cannot_be_read_names_the_file(layers: LayerStore, make: Maker, tmp_path: Path) -> None:
    """An unreadable file is a UsageError with its path, and no layer is left."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "secret").write_text("x")
    (tmp_path / "source" / "secret").chmod(0)
    root = make.layer(("/workspace", None))
    with pytest.raises(UsageError, match="source/secret: Permission denied"):
        import_folder(layers, str(tmp_path / "source"), "/workspace", make.stack(root).base, Tree())
    layers.settle()
    assert os.listdir(layers.root) == [root.id]


def test_an_import_leaves_out_the_store_itself(layers: LayerStore, make: Maker, tmp_path: Path) -> None:
    """A store within the imported folder is no part of the state."""
    (tmp_path / "file").write_text("x")
    root = make.layer(("/workspace", None))
    layer = import_folder(layers, str(tmp_path), "/workspace", make.stack(root).base, Tree())
    assert make.stack(root, layer).listdir("/workspace") == ["file"]


@pytest.mark.parametrize("target", ["relative", "/", "/proc/x", "/dev", "/usr/share/x", "/a/../.."])
def test_an_import_to_no_place_of_the_state_is_refused(layers: LayerStore, make: Maker, tmp_path: Path, target: str) -> None:
    """Kernel views, the host's folders and the root itself are no targets."""
    base = make.stack(make.layer(("/usr", None)), binds=(("/usr", "/usr"),)).base
    with pytest.raises(UsageError, match="import"):
        import_folder(layers, str(tmp_path), target, base, Tree())
    with pytest.raises(NotFoundError):
        import_folder(layers, str(tmp_path / "nope"), "/workspace", base, Tree())


def test_a_patch_sets_content_and_inherits_the_rest(layers: LayerStore, make: Maker) -> None:
    """A patched file keeps mode and owner, its folders are as below; a new one is 0644 and its folder's time moves."""
    root = make.layer(("/d", None), ("/d/f", b"old"))
    os.chmod(layers.path(root.id) / "d" / "f", 0o600)
    stack = make.stack(root)
    patch = patch_layer(layers, stack, "/d/f", b"new content", NS + 5)
    both = make.stack(root, patch)
    assert both.read("/d/f") == b"new content"
    assert (both.lstat("/d/f").mode, both.lstat("/d/f").mtime_ns, both.lstat("/d").mtime_ns) == (0o600, NS + 5, NS)
    assert patch.manifest.entries["/d"].inherit_mtime
    fresh = patch_layer(layers, stack, "/d/g", b"", NS + 5)
    assert make.stack(root, fresh).lstat("/d/g").mode == 0o644
    assert not fresh.manifest.entries["/d"].inherit_mtime
    for path, error in (("/none/x", NotFoundError), ("/d", UsageError), ("/proc/x", UsageError), ("/d/f/x", UsageError)):
        with pytest.raises(error):
            patch_layer(layers, stack, path, b"", NS)


def test_same_bytes_compares_layers(layers: LayerStore, make: Maker) -> None:
    """Equal content of two layers is equal whatever the path; a lost layer is a StoreError, not an answer."""
    one, other = make.layer(("/a", b"same"), ("/b", b"other")), make.layer(("/c", b"same"))
    assert layers.same_bytes(one.id, "/a", other.id, "/c")
    assert not layers.same_bytes(one.id, "/b", other.id, "/c")
    layers.remove(other.id)
    with pytest.raises(StoreError, match=other.id):
        layers.same_bytes(one.id, "/a", other.id, "/c")


def test_a_shared_layer_is_made_once(layers: LayerStore, make: Maker) -> None:
    """The second process that seals a layer of the same name takes the first one's, and its manifest is on disk."""
    manifest = make.layer(("/a\udcff", b"x"), ("/l", "target")).manifest
    sealed: list[Layer] = []
    for _ in range(2):
        with layers.begin() as opened:
            (opened.upper / "a\udcff").write_bytes(b"x")
            (opened.upper / "l").symlink_to("target")
            sealed.append(opened.seal_shared(LayerId("base-1"), manifest))
    layers.settle()
    assert sealed[0] == sealed[1] == layers.find_shared(LayerId("base-1"))
    assert layers.find_shared(LayerId("base-2")) is None
    assert "base-1" not in layers.orphans([])


def test_a_manifest_survives_its_file() -> None:
    """What is decoded equals what was encoded; bytes of something else are a StoreError."""
    with pytest.raises(StoreError):
        decode_manifest(b"\x93\x01\x02\x03")
    with pytest.raises(StoreError):
        decode_manifest(encode_manifest.__doc__.encode())  # type: ignore[union-attr]


def test_the_lock_of_a_dead_process_is_free(layers: LayerStore) -> None:
    """The lock is flock(2) on the open layer's folder: it ends with the process that holds it."""
    with layers.begin() as opened:
        fd = os.open(opened.folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
