"""Layers on disk: an OpenLayer is written to by one action, sealing it gives a Layer, only a Layer can be stacked.

Knows the store's folder, raw upper directories and manifests. Must not know the journal: which layers are live, others say.

`layers/<id>/upper` is one action's delta as overlayfs left it. While it is written the folder is called `.open-<id>` and
its descriptor is flocked; the lock lasts until the caller has committed its row, so a collector can tell what a killed
process left (no lock) from what another process is about to commit. Sealing: drop phantoms, fold the manifest, put a
replay's files into their slot's time, make all durable, rename into place. The overlay is mounted `volatile`: nothing
but this makes a layer durable.

A layer that changes nothing has no directory at all; its id says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from mulligan.errors import StoreError
from mulligan.model.equivalence import LARGEST
from mulligan.model.fold import fold_manifest
from mulligan.model.ids import BASE_LAYER, LayerId, shown
from mulligan.model.layer import Entry, Layer, Manifest
from mulligan.model.own import is_state
from mulligan.sandbox.composite import Composites
from mulligan.sandbox.ids import IdMap
from mulligan.sandbox.manifests import decode_manifest, encode_manifest
from mulligan.sandbox.phantoms import drop_phantoms
from mulligan.sandbox.removal import remove_later, settle
from mulligan.sandbox.slottime import Window, plan_times
from mulligan.sandbox.stack import OPAQUE
from mulligan.sandbox.trees import (
    FOLDER,
    PASSING,
    READING,
    blocks_below,
    open_below,
    opened,
    remove_tree,
    same_content,
    space_for,
    split,
    sync_file_system,
    sync_tree,
    take_out,
    write_new,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from mulligan.model.action import Outcome
    from mulligan.model.equivalence import Equality
    from mulligan.model.events import Event, RawEntry
    from mulligan.model.record import Record
    from mulligan.sandbox.stack import Stack

_OPEN, _GONE, _EMPTY = ".open-", ".gone-", "empty-"
_CACHED = "base-"  # a skeleton, found again by the next session: kept for a day after its last use
_DAY_S = 86_400.0


class Ran(Protocol):
    """What sealing needs of a run: its outcome, its facts in order, and the upper directory as the tracer found it."""

    @property
    def outcome(self) -> Outcome:
        """What came back."""

    @property
    def events(self) -> Sequence[Event]:
        """The facts, in order."""

    @property
    def entries(self) -> Sequence[RawEntry]:
        """The upper directory as it lies after the run."""


class LayerStore:
    """The folder `root` of layers in a store. Safe for several processes at once."""

    def __init__(self, root: Path, ids: IdMap | None = None) -> None:
        self.root = Path(root)
        self.ids = ids if ids is not None else IdMap.of_this_process()
        self.opaque = OPAQUE[self.ids.rootless]
        self.composites = Composites(self)
        with space_for(f"make {self.root}"):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, layer: LayerId) -> Path:
        """The upper directory of a sealed layer, to be mounted or read. Never write below it."""
        return self.root / layer / "upper"

    @staticmethod
    def is_empty(layer: LayerId) -> bool:
        """Whether the layer changes nothing, and so has no directory."""
        return layer.startswith(_EMPTY)

    @staticmethod
    def empty(name: str) -> LayerId:
        """The id of a layer that changes nothing."""
        return LayerId(_EMPTY + name)

    def has(self, layer: LayerId) -> bool:
        """Whether the layer is there."""
        return self.is_empty(layer) or self.path(layer).is_dir()

    def begin(self, layer: LayerId | None = None) -> OpenLayer:
        """A new layer to write to; use as a context manager: what is not sealed by its end is removed."""
        return OpenLayer(self, layer or LayerId(secrets.token_hex(8)))

    def remove(self, name: LayerId | str) -> None:
        """Remove a layer that nothing refers to any more, or what `orphans` found. Killed midway, it is an orphan."""
        if self.is_empty(LayerId(name)):
            return
        with self._folder() as root:
            gone = name if name.startswith(".") else _GONE + name
            if gone != name:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(name, gone, src_dir_fd=root, dst_dir_fd=root)
            remove_tree(root, gone)

    def orphans(self, known: Iterable[LayerId]) -> list[str]:
        """Names below the folder that are no known layer and that no live process is working on."""
        keep = set(known)
        with self._folder() as root:
            return [name for name in sorted(os.listdir(root)) if name not in keep and self._is_abandoned(root, name)]

    def disk_bytes(self, name: LayerId | str) -> int:
        """The blocks that a layer, or an orphan, takes on disk."""
        if self.is_empty(LayerId(name)):
            return 0
        with self._folder() as root:
            return blocks_below(root, (name,))

    @staticmethod
    def _is_abandoned(root: int, name: str) -> bool:
        try:
            with opened(root, (name,)) as fd:
                if name.startswith(_CACHED) and time.time() - os.fstat(fd).st_mtime < _DAY_S:
                    return False
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except (FileNotFoundError, NotADirectoryError):
            pass
        return True

    def throw_away(self, name: str) -> None:
        """Take a folder out of sight at once, and remove it in the background."""
        gone = f"{_GONE}{secrets.token_hex(8)}"
        with self._folder() as root:
            os.rename(name, gone, src_dir_fd=root, dst_dir_fd=root)
        remove_later(self.root, gone)

    @staticmethod
    def settle() -> None:
        """Wait until everything that was thrown away is removed."""
        settle()

    def find_shared(self, layer: LayerId) -> Layer | None:
        """A shared layer (see `OpenLayer.seal_shared`), if the store has it; it counts as used now."""
        try:
            with self._folder() as root, opened(root, (layer,)) as fd:
                os.utime(fd)
                with open(os.open("manifest", READING, dir_fd=fd), "rb") as file:
                    return _layer(layer, decode_manifest(file.read()))
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _folder(self) -> Iterator[int]:
        fd = os.open(self.root, FOLDER)
        try:
            yield fd
        finally:
            os.close(fd)

    # ---------------------------------------------------------------------------------------------- asking

    @contextlib.contextmanager
    def holder(self, layer: LayerId, path: str) -> Iterator[tuple[int, str]]:
        """The open folder of a layer that holds `path`, and the name there; no symlink is followed."""
        parts = split(path)
        with opened(-1, (str(self.path(layer)),)) as top, opened(top, parts[:-1], PASSING, ours=True) as folder:
            yield folder, parts[-1] if parts else "."

    @contextlib.contextmanager
    def opened(self, layer: LayerId, path: str) -> Iterator[int]:
        """A descriptor for reading the regular file that a layer has at `path`."""
        try:
            with self.holder(layer, path) as (folder, name):
                fd = open_below(folder, (name,), READING, ours=True)
        except OSError as error:
            raise StoreError(f"layer {layer}: {shown(path)}: {error.strerror}", remedy="restore the store") from error
        try:
            yield fd
        finally:
            os.close(fd)

    def read(self, layer: LayerId, path: str) -> bytes:
        """The content of the regular file that a layer has at `path`."""
        with self.opened(layer, path) as fd, os.fdopen(os.dup(fd), "rb") as file:
            return file.read()

    def same_bytes(self, one: LayerId, path: str, other: LayerId, other_path: str) -> bool:
        """Whether two files of layers have the same content. Files of the host base are equal when they are the same."""
        if (one, path) == (other, other_path):
            return True
        if BASE_LAYER in (one, other) or self.is_empty(one) or self.is_empty(other):
            return False
        with self.opened(one, path) as first, self.opened(other, other_path) as second:
            return same_content(first, second)


class OpenLayer:
    """A layer that is being written. `seal` consumes it; leaving the context without sealing removes it."""

    def __init__(self, store: LayerStore, layer: LayerId) -> None:
        self.store = store
        self.id = layer
        self._name = _OPEN + layer
        self._lock = -1
        self._sealed = False
        self.root_mtime_ns: int | None = None  # of "/", which making something in it changes

    @property
    def folder(self) -> Path:
        """The folder of the layer while it is open."""
        return self.store.root / self._name

    @property
    def upper(self) -> Path:
        """Where overlayfs puts what changes."""
        return self.folder / "upper"

    @property
    def work(self) -> Path:
        """Overlayfs' own scratch folder, on the same file system."""
        return self.folder / "work"

    def __enter__(self) -> Self:
        with space_for(f"begin a layer in {self.store.root}"):
            os.mkdir(self.folder, 0o700)
            self._lock = os.open(self.folder, FOLDER)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            os.mkdir("upper", 0o755, dir_fd=self._lock)
            os.mkdir("work", 0o700, dir_fd=self._lock)
            os.chmod("upper", 0o755, dir_fd=self._lock)  # noqa: S103 - whatever the umask: it is the guest's "/"
        self.own("upper", 0, 0, folder=self._lock)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._sealed:
            self._discard()
        os.close(self._lock)

    def own(self, path: Path | str, uid: int, gid: int, *, folder: int | None = None) -> None:
        """Give an object of the layer to these inside ids."""
        ids = self.store.ids
        if not ids.rootless:
            os.chown(path, ids.on_disk(uid), ids.on_disk(gid), dir_fd=folder, follow_symlinks=False)

    def dress_root(self, entry: Entry) -> None:
        """Give the upper directory the attributes of the state's "/": they are what the guest sees of it."""
        os.chmod(self.upper, entry.mode)
        self.own(self.upper, entry.uid, entry.gid)
        for name, value in entry.xattrs:
            os.setxattr(self.upper, name, value)
        os.utime(self.upper, ns=(entry.mtime_ns, entry.mtime_ns))
        self.root_mtime_ns = entry.mtime_ns

    # ---------------------------------------------------------------------------------------------- sealing

    def seal(self, run: Ran, stack: Stack, replay_of: Record | None = None, equality: Equality | None = None) -> Layer:
        """Seal what a run left. With `replay_of`, its times are put into the slot of that record.

        What counts as equal to the recorded version takes its time, like what is equal: whoever noted that version by its time
        (make, git's index) is kept, and would not know it again otherwise.
        """
        during = range(run.outcome.started_ns, run.outcome.ended_ns + 1)
        with self._let_owner_in(run.entries):
            state = self._state_only(run.entries)
            manifest = fold_manifest(run.events, drop_phantoms(self.upper, run.events, state, stack, during))
            if len(state) < len(run.entries):
                self._forget_time_of_root(manifest, stack)
            if replay_of is not None:
                manifest = self._into_slot(manifest, run.outcome, replay_of, equality)
        return self.seal_manifest(manifest)

    @contextlib.contextmanager
    def _let_owner_in(self, entries: Sequence[RawEntry]) -> Iterator[None]:
        """Without privilege, folders that the guest closed to its own user are open while the layer is worked on."""
        closed = [entry for entry in entries if entry.kind == "dir" and entry.mode & 0o700 != 0o700]  # noqa: PLR2004
        if not self.store.ids.rootless or not closed:
            yield
            return
        closed.sort(key=lambda entry: entry.path.count("/"))
        with opened(self._lock, ("upper",), PASSING) as top:
            for entry in closed:
                _set_mode(top, entry.path, entry.mode | 0o700)
            try:
                yield
            finally:
                for entry in reversed(closed):
                    with contextlib.suppress(FileNotFoundError):
                        _set_mode(top, entry.path, entry.mode)

    def _state_only(self, entries: Sequence[RawEntry]) -> list[RawEntry]:
        """Remove what was made where no state is: below the kernel's folders, or where the shell's last exec looks.

        Nothing is recorded of those places, so what stayed there would reach later actions unseen.
        """
        state = [entry for entry in entries if is_state(entry.path)]
        if len(state) < len(entries):
            with opened(self._lock, ("upper",)) as top:
                before = os.fstat(top)
                for name in {split(entry.path)[0] for entry in entries if not is_state(entry.path)}:
                    take_out(top, name, self._lock, f"dropped-{name}")  # no name of ours may meet one in the state
                    remove_tree(self._lock, f"dropped-{name}")
                os.utime(top, ns=(before.st_atime_ns, before.st_mtime_ns))
        return state

    def _forget_time_of_root(self, manifest: Manifest, stack: Stack) -> None:
        """Names in "/" that are no state have changed its time: where nothing else did, it has the time that it had below."""
        entry = manifest.entries.get("/")
        if entry is None or entry.inherit_mtime:
            below = stack.root().mtime_ns
            os.utime("upper", ns=(below, below), dir_fd=self._lock)

    def seal_manifest(self, manifest: Manifest) -> Layer:
        """Seal an upper directory that was made by hand, with the manifest that describes it."""
        if not manifest.removed and all(_is_untouched_root(path, entry) for path, entry in manifest.entries.items()):
            self._discard()
            self._sealed = True
            return Layer(LayerId(_EMPTY + self.id), Manifest())
        self._move_into_place(manifest)
        return _layer(self.id, manifest)

    def seal_shared(self, layer: LayerId, manifest: Manifest) -> Layer:
        """Seal under a name that tells the content, with the manifest beside it; another process may have been first."""
        with space_for(f"seal layer {layer}"):
            write_new(self._lock, "manifest", encode_manifest(manifest), 0o600)
        self.id = layer
        try:
            self._move_into_place(manifest)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self._discard()
            self._sealed = True
        return _layer(layer, manifest)

    def seal_composite(self, layer: LayerId, about: bytes, *, durable: bool) -> None:
        """Seal what was folded by hand, under a name that tells of what; another process may have been first."""
        write_new(self._lock, "about", about, 0o600)
        if durable:
            sync_file_system(self._lock)
        with self.store._folder() as root:  # noqa: SLF001 - an open layer is its store's
            try:
                os.rename(self._name, layer, src_dir_fd=root, dst_dir_fd=root)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                self._discard()
            if durable:
                os.fsync(root)
        self._sealed = True

    def _move_into_place(self, manifest: Manifest) -> None:
        assert not self._sealed, self.id
        root = os.open(self.store.root, FOLDER)
        try:
            with space_for(f"seal layer {self.id}"):
                self.store.throw_away(f"{self._name}/work")
                self._sync(manifest)
                os.fsync(self._lock)
                os.rename(self._name, self.id, src_dir_fd=root, dst_dir_fd=root)
                self._sealed = True
                os.fsync(root)
        finally:
            os.close(root)

    def _sync(self, manifest: Manifest) -> None:
        folders = [split(path) for path, entry in manifest.entries.items() if entry.kind == "dir" and path != "/"]
        files = [split(path) for path, entry in manifest.entries.items() if entry.kind == "file"]
        with opened(self._lock, ("upper",)) as top:
            sync_tree(top, folders, files)

    def _discard(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.store.throw_away(self._name)

    def _into_slot(self, manifest: Manifest, outcome: Outcome, record: Record, equality: Equality | None) -> Manifest:
        old = record.layer
        with opened(self._lock, ("upper",)) as top:

            def same(path: str) -> bool:
                parts = split(path)
                with (
                    self.store.opened(old.id, path) as recorded,
                    opened(top, parts[:-1], PASSING) as folder,
                    opened(folder, parts[-1:], READING, ours=True) as here,
                ):
                    return same_content(recorded, here) or _count_as_equal(equality, path, recorded, here)

            times = plan_times(
                manifest.entries,
                old.manifest.entries,
                Window(outcome.started_ns, outcome.ended_ns),
                Window(record.outcome.started_ns, record.outcome.ended_ns),
                same,
            )
            for path in sorted(times, key=len, reverse=True):
                _set_time(top, path, times[path])
        entries = {
            path: dataclasses.replace(entry, mtime_ns=times[path]) if path in times else entry
            for path, entry in manifest.entries.items()
        }
        return Manifest(entries, manifest.removed)


def _count_as_equal(equality: Equality | None, path: str, one: int, other: int) -> bool:
    if not equality or not equality.names(path) or max(os.fstat(one).st_size, os.fstat(other).st_size) > LARGEST:
        return False
    with os.fdopen(os.dup(one), "rb") as first, os.fdopen(os.dup(other), "rb") as second:
        return equality.equal(path, first.read(), second.read())


def _layer(layer: LayerId, manifest: Manifest) -> Layer:
    return Layer(layer, manifest, sum(entry.size for entry in manifest.entries.values() if entry.kind == "file"))


def _set_mode(top: int, path: str, mode: int) -> None:
    """Set a folder's mode; its path may be longer than the kernel takes in one piece."""
    with opened(top, split(path)[:-1], PASSING) as folder:
        os.chmod(path.rpartition("/")[2] or ".", mode, dir_fd=folder)


def _is_untouched_root(path: str, entry: Entry) -> bool:
    """Whether this is the upper directory itself, with nothing of it meant."""
    return path == "/" and not entry.made and entry.inherit_mode and entry.inherit_mtime and entry.inherit_xattrs


def _set_time(top: int, path: str, mtime_ns: int) -> None:
    parts = split(path)
    with opened(top, parts[:-1], PASSING) as folder:
        os.utime(parts[-1] if parts else ".", ns=(mtime_ns, mtime_ns), dir_fd=folder, follow_symlinks=False)
