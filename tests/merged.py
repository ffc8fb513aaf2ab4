"""What a manifest says and what is there: after every action the two are compared, at all paths that the action touched.

The tree is built from the manifests alone: those of the layers below and the new one. What is there is read through a real,
read-only overlay mount of the same layers, in the mount namespace of a helper process, or without privilege through Stack.
Both are asked for kind, mode, owner, size, time, target, device, attributes, link count, content and listings.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
import sqlite3
import stat
import subprocess
import sys
import threading
from collections import OrderedDict
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

MOST_PATHS = int(os.environ.get("MULLIGAN_PATHS", "150"))  # compared after one action, evenly spread when there are more
_OPTIONS = "index=off,metacopy=off,redirect_dir=nofollow,xino=off,nfs_export=off"
_LONGEST = 3500  # an option page has 4096 bytes, and so has a path
_MANY = 1 << 20
Row = tuple[Any, ...]


# -------------------------------------------------------------------------------------------------- the helper process


def serve() -> None:
    """Answer requests on stdin: mount these layers, look at these paths, and unmount."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = Path(sys.argv[1])
    (place / "merged").mkdir()
    (place / "empty").mkdir()

    def call(function: str, *args: object) -> None:
        if getattr(libc, function)(*args) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"{function}: {os.strerror(code)}")

    call("unshare", 0x00020000)  # CLONE_NEWNS
    call("mount", b"none", b"/", None, (1 << 18) | (1 << 14), None)  # MS_PRIVATE | MS_REC
    while True:
        try:
            folder, lowers, questions = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            os.chdir(folder)
            lowerdir = ":".join([*lowers, str(place / "empty")])
            call("mount", b"overlay", str(place / "merged").encode(), b"overlay", 1, f"lowerdir={lowerdir},{_OPTIONS}".encode())
            try:
                answer: object = look(str(place / "merged"), questions)
            finally:
                os.chdir("/")
                call("umount2", str(place / "merged").encode(), 0)
        except OSError as error:
            answer = error
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def look(top: str, questions: list[tuple[str, bytes | None]]) -> list[tuple[Row | None, list[str] | None]]:
    """For each path what lies there, and in a folder the names. A question holds the path of the file that provides the bytes."""
    return [_look(f"{top}{path}", provider) for path, provider in questions]


def _look(path: str, provider: str | None) -> tuple[Row | None, list[str] | None]:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    target, xattrs, names, same = "", [], None, True
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(path)
    else:
        every = sorted(os.listxattr(path, follow_symlinks=False))
        own = [
            name for name in every if not name.startswith("trusted.overlay.")
        ]  # a guest's user.overlay.* are plain data here
        xattrs = [(os.fsencode(name), os.getxattr(path, name, follow_symlinks=False)) for name in own]
    if stat.S_ISDIR(status.st_mode):
        names = sorted(os.listdir(path))
    if stat.S_ISREG(status.st_mode) and provider is not None:
        same = digest(path) == digest(provider)
    owner = status.st_uid, status.st_gid
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0  # a symlink's is told by its target
    links = 1 if stat.S_ISDIR(status.st_mode) else status.st_nlink
    rdev = status.st_rdev if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode) else 0
    mode = 0 if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode)
    return (stat.S_IFMT(status.st_mode), mode, owner, size, status.st_mtime_ns, target, rdev, tuple(xattrs), links, same), names


def digest(path: str) -> bytes:
    """The content of a file; of a large one its beginning and its end."""
    with open(path, "rb") as file:
        told = hashlib.sha256(file.read(_MANY))
        with suppress(OSError):
            file.seek(-_MANY, os.SEEK_END)
            told.update(file.read(_MANY))
    return told.digest()


if __name__ == "__main__":
    serve()
    raise SystemExit


from mulligan.history.codec import decode_manifest  # noqa: E402 - the helper needs none of it, and starts the faster
from mulligan.model.ids import parent  # noqa: E402
from mulligan.model.keys import LINKS, Key  # noqa: E402
from mulligan.model.layer import Layer, Manifest  # noqa: E402
from mulligan.model.own import is_state  # noqa: E402
from mulligan.model.tree import Tree  # noqa: E402
from mulligan.sandbox.stack import Stack  # noqa: E402

KINDS = {
    "file": stat.S_IFREG, "dir": stat.S_IFDIR, "link": stat.S_IFLNK, "fifo": stat.S_IFIFO, "sock": stat.S_IFSOCK,
    "char": stat.S_IFCHR, "block": stat.S_IFBLK,
}  # fmt: skip


class Helper:
    """The helper process, started at once so that no test finds it new."""

    def __init__(self, place: str) -> None:
        self._lock = threading.Lock()
        command = [sys.executable, "-I", "-S", __file__, place]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def look(
        self, folder: str, lowers: list[str], questions: list[tuple[str, str | None]]
    ) -> list[tuple[Row | None, list[str] | None]]:
        """What lies at these paths of the merged view. Raises OSError when it can't be mounted."""
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            pickle.dump((folder, lowers, questions), self._process.stdin)
            self._process.stdin.flush()
            answer = pickle.load(self._process.stdout)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def end(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class Comparing:
    """Compares states with what their manifests say. `wrong` has what was found."""

    def __init__(self, helper: Helper | None) -> None:
        self.wrong: list[str] = []
        self._process = os.getpid()
        self._helper = helper
        self._manifests: dict[str, Manifest] = {}
        self._trees: OrderedDict[tuple[str, ...], Tree] = OrderedDict()
        self._lock = threading.RLock()

    def learn(self, layer: Layer) -> None:
        """Remember what a layer's manifest says."""
        self._manifests[layer.id] = layer.manifest

    def check(self, stack: Stack, layer: Layer) -> None:
        """Compare the state with `layer` on top of `stack` at all that the layer touches, its folders' listings included.

        Not in a forked child: it shares the helper's pipes with its parent.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            self.learn(layer)
            whole = Stack((*stack.layers, layer.id), stack.base, stack.store)
            tree = self._tree(whole)
            if tree is not None:
                self._compare(whole, tree, layer)

    def _tree(self, stack: Stack) -> Tree | None:
        layers = tuple(stack.layers)
        if layers in self._trees:
            return self._trees[layers]
        if not layers:
            return Tree()
        manifest = self._manifest(layers[-1], stack)
        below = self._tree(Stack(layers[:-1], stack.base, stack.store)) if len(layers) > 1 else Tree()
        if manifest is None or below is None:
            return None
        tree = below.copy()
        tree.apply(manifest, layers[-1])
        self._trees[layers] = tree
        while len(self._trees) > 40:
            self._trees.popitem(last=False)
        return tree

    def _manifest(self, layer: str, stack: Stack) -> Manifest | None:
        """The manifest of a layer that this process made, or that is in its store."""
        if layer not in self._manifests:
            store = stack.store.root.parent / "store.db"
            if not store.exists():
                return None
            with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
                row = db.execute("SELECT manifest FROM layers WHERE id = ?", (layer,)).fetchone()
            if row is None:
                return None
            self._manifests[layer] = decode_manifest(row[0])
        return self._manifests[layer]

    def _compare(self, stack: Stack, tree: Tree, layer: Layer) -> None:
        touched = {*layer.manifest.paths, *_raw_paths(stack, layer)}
        paths = sorted(p for p in touched | {parent(p) for p in touched} if self._is_comparable(p, stack))
        paths = paths if len(paths) <= MOST_PATHS else paths[:: len(paths) // MOST_PATHS + 1]
        providers = [self._provider(stack, tree, path) for path in paths]
        questions = list(zip(paths, providers, strict=True))
        for path, (there, names) in zip(paths, self._look(stack, questions), strict=True):
            told = self._told(path, tree, stack)
            if there != told:
                self.wrong.append(f"{path!r}: there is {there}, and the manifests say {told} ({layer.id})")
            expected = [name for name in tree.children(path) if path != "/" or is_state(f"/{name}")]
            if names is not None and [name for name in names if path != "/" or is_state(f"/{name}")] != expected:
                self.wrong.append(f"{path!r}: it holds {names}, and the manifests say {expected} ({layer.id})")

    @staticmethod
    def _is_comparable(path: str, stack: Stack) -> bool:
        return is_state(path) and stack.base.bound(path) is None and len(os.fsencode(path)) < _LONGEST

    @staticmethod
    def _provider(stack: Stack, tree: Tree, path: str) -> str | None:
        node = tree.get(path)
        return f"{stack.store.path(node.provider)}{path}" if node is not None and node.kind == "file" else None

    def _told(self, path: str, tree: Tree, stack: Stack) -> Row | None:
        node = tree.get(path)
        if node is None:
            return None
        ids = stack.base.ids
        owner = node.uid, node.gid
        if self._helper is not None:
            owner = ids.on_disk(node.uid), ids.on_disk(node.gid)
        size = node.size if node.kind == "file" else 0
        links = tree.value(Key(LINKS, path))[1] if node.kind != "dir" and self._helper is not None else 1
        mode = 0 if node.kind == "link" else node.mode
        return (
            KINDS[node.kind],
            mode,
            owner,
            size,
            node.mtime_ns,
            node.target,
            node.rdev,
            tuple(sorted(node.xattrs)),
            links,
            True,
        )

    def _look(self, stack: Stack, questions: list[tuple[str, str | None]]) -> list[tuple[Row | None, list[str] | None]]:
        if self._helper is None:
            return [_seen(stack, path) for path, _ in questions]
        root = str(stack.store.root)
        lowers = [os.path.relpath(path, root) for path in stack.lower_dirs()]
        return self._helper.look(root, lowers, questions)


def _raw_paths(stack: Stack, layer: Layer) -> list[str]:
    """All that lies in the layer's upper directory, whether it was meant or not; of a very large one a part."""
    if stack.store.is_empty(layer.id):
        return []
    top = os.fsencode(stack.store.path(layer.id))
    found: list[str] = []
    for folder, folders, files in os.walk(top):
        at = os.fsdecode(folder[len(top) :])
        found += [f"{at}/{os.fsdecode(name)}" for name in (*folders, *files)]
        if len(found) > 10 * MOST_PATHS:
            break
    return found


def _seen(stack: Stack, path: str) -> tuple[Row | None, list[str] | None]:
    seen = stack.find(path)
    if seen is None:
        return None, None
    entry = seen.entry
    size = entry.size if entry.kind == "file" else 0
    mode = 0 if entry.kind == "link" else entry.mode
    names = stack.listdir(path) if entry.kind == "dir" else None
    row = KINDS[entry.kind], mode, (entry.uid, entry.gid), size, entry.mtime_ns, entry.target, entry.rdev
    return (*row, tuple(sorted(entry.xattrs)), 1, True), names
