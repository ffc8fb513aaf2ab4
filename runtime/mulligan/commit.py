"""Commit: bring the session's result to a folder of the host, refusing what somebody else changed meanwhile.

Knows trees (what the session holds) and a HostFolder. Three versions of each path count: the one the session started
from (`before`: imported, or committed last), the one it holds now (`after`), and the host's. A path the session did not
change is never touched; one that it changed is written only when the host still has the version from before, or the
new one already. Otherwise that is a conflict, and then nothing at all is written.
"""

from __future__ import annotations

import stat as stats
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.hostfolder import ABSENT, HostFolder, Object
from mulligan.sandbox.trees import content_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from mulligan.model.tree import Node, Tree

    OpenNode = Callable[[str, Node], AbstractContextManager[int]]


@dataclass(frozen=True, slots=True)
class CommitReport:
    """Paths relative to the folder, sorted. `skipped`: FIFOs, sockets and devices, which have no meaning outside."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    applied: bool = False


@dataclass(frozen=True, slots=True)
class _Move:
    path: str
    old: Object
    new: Object
    node: Node | None  # what the session holds there
    guest: str  # the path inside


def commit(folder: str, guest: str, before: Tree, after: Tree, opened: OpenNode, *, dry_run: bool) -> CommitReport:
    """Write what changed below the guest folder `guest` from `before` to `after` into the host's `folder`.

    `opened` gives a descriptor for reading a file node. Raises UsageError when the folder can't be opened, HostError
    (DiskFullError) when a write fails; each file is then either old or new, never torn.
    """
    moves, skipped = _moves(guest, before, after, opened)
    with HostFolder(folder) as host:
        todo, conflicts = _confront(host, moves)
        written = tuple(sorted(m.path for m in todo if m.new.kind != "absent"))
        removed = tuple(sorted(m.path for m in todo if m.new.kind == "absent"))
        if conflicts or dry_run:
            return CommitReport(written, removed, tuple(sorted(conflicts)), skipped, applied=False)
        _write(host, todo, opened)
    return CommitReport(written, removed, (), skipped, applied=True)


def _confront(host: HostFolder, moves: Sequence[_Move]) -> tuple[list[_Move], list[str]]:
    todo, conflicts = [], []
    folders: set[str] = set()  # what this commit itself makes folders of
    for move in moves:  # parents come before what is in them
        there = host.look(move.path)
        if _same(there, move.new):
            continue
        blocking = host.blocking(move.path)
        if (blocking is not None and blocking not in folders) or not _expected(there, move.old):
            conflicts.append(move.path)
            continue
        todo.append(move)
        if move.new.kind == "dir":
            folders.add(move.path)
    return todo, conflicts


def _expected(there: Object, old: Object) -> bool:
    return _same(there, old) or there.kind == old.kind == "dir"


def _same(a: Object, b: Object) -> bool:
    if a.kind != b.kind:
        return False
    if a.kind in ("file", "dir"):
        return a.digest == b.digest and (a.mode & 0o777) == (b.mode & 0o777)
    return a.target == b.target


def _write(host: HostFolder, todo: Sequence[_Move], opened: OpenNode) -> None:
    for move in sorted(todo, key=lambda m: m.path, reverse=True):  # children before their folders
        if move.new.kind == "absent" or (move.old.kind == "dir" and move.new.kind != "dir"):
            host.remove(move.path)
    for move in sorted(todo, key=lambda m: m.path):
        if move.node is not None:
            with opened(move.guest, move.node) if move.new.kind == "file" else nullcontext(-1) as source:
                host.put(move.path, move.new, source, move.node.mtime_ns)
    for move in sorted(todo, key=lambda m: m.path, reverse=True):  # a folder may be closed to its owner, once it is full
        if move.new.kind == "dir":
            host.close_up(move.path, move.new)


def _moves(guest: str, before: Tree, after: Tree, opened: OpenNode) -> tuple[list[_Move], tuple[str, ...]]:
    moves, skipped = [], []
    old_nodes, new_nodes = dict(before.walk(guest)), dict(after.walk(guest))
    for path in sorted((old_nodes.keys() | new_nodes.keys()) - {guest}):
        old, new = old_nodes.get(path), new_nodes.get(path)
        if old is not None and new is not None and _same_node(old, new):
            continue
        relative = path[len(guest.rstrip("/")) + 1 :]
        if new is not None and new.kind not in ("file", "dir", "link"):
            skipped.append(relative)
            continue
        was, now = _object(path, old, opened), _object(path, new, opened)
        if not _same(was, now):
            moves.append(_Move(relative, was, now, new, path))
    return moves, tuple(skipped)


def _same_node(a: Node, b: Node) -> bool:
    return (a.kind, a.provider, a.target, a.mode) == (b.kind, b.provider, b.target, b.mode)


def _object(path: str, node: Node | None, opened: OpenNode) -> Object:
    if node is None:
        return ABSENT
    mode = stats.S_IMODE(node.mode)
    if node.kind == "file":
        with opened(path, node) as fd:
            return Object("file", mode, content_digest(fd))
    if node.kind == "link":
        return Object("link", target=node.target)
    return Object("dir", mode) if node.kind == "dir" else Object("other", mode)
