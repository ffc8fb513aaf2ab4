"""Commit: bring the session's result to a folder of the host, refusing what somebody else changed meanwhile.

Knows trees (what the session holds) and a HostFolder. Three versions of each path count: the one the session started
from (`befores`: imported, or committed last), the one it holds now (`after`), and the host's. A path the session did not
change is never touched; one that it changed is written only when the host still has the version from before, or the
new one already. Otherwise that is a conflict, and then nothing at all is written.

Killed on the way, a commit leaves each path old or new (or absent, where a folder was to take a file's place or the other way
round: no call of the kernel's does that at once). What it set out to write is then a second version from before, so
the next commit completes it, or takes it back when the session has gone another way meanwhile.
"""

from __future__ import annotations

import stat as stats
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.hostfolder import ABSENT, HostFolder, Object
from mulligan.sandbox.trees import content_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from mulligan.model.tree import Node, Tree

    OpenNode = Callable[[str, Node], AbstractContextManager[int]]


BEGUN = "begun:"  # before a host folder's path: the label of the state that a commit there set out to write


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
    olds: tuple[Object, ...]  # what the host may have
    new: Object
    node: Node | None  # what the session holds there
    guest: str  # the path inside


def find_befores(folder: str, pins: Mapping[str, int], tree_at: Callable[[int], Tree], start: Tree) -> list[Tree]:
    """What the session knows the folder to have held: at its last commit there (by `pins`), or at the session's start.

    A commit that was killed left each path as it was or as it was to be: both are known.
    """
    known = [tree_at(pins[folder]) if folder in pins else start]
    return known if BEGUN + folder not in pins else [*known, tree_at(pins[BEGUN + folder])]


def commit(
    folder: str,
    guest: str,
    befores: Sequence[Tree],
    after: Tree,
    opened: OpenNode,
    *,
    begin: Callable[[], None],
    dry_run: bool,
) -> CommitReport:
    """Write what changed below the guest folder `guest` from `befores` (any of them) to `after` into the host's `folder`.

    `opened` gives a descriptor for reading a file node. `begin` is called before the first change. Raises UsageError when
    the folder can't be opened, HostError
    (DiskFullError) when a write fails; each file is then either old or new, never torn.
    """
    moves, skipped = _moves(guest, befores, after, opened)
    with HostFolder(folder) as host:
        todo, conflicts = _confront(host, moves)
        written = tuple(sorted(m.path for m in todo if m.new.kind != "absent"))
        removed = tuple(sorted(m.path for m in todo if m.new.kind == "absent"))
        if conflicts or dry_run:
            return CommitReport(written, removed, tuple(sorted(conflicts)), skipped, applied=False)
        begin()
        host.tidy({move.path.rpartition("/")[0] for move in moves})
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
        if (blocking is not None and blocking not in folders) or not _expected(there, move.olds):
            conflicts.append(move.path)
            continue
        todo.append(move)
        if move.new.kind == "dir":
            folders.add(move.path)
    return todo, conflicts


def _expected(there: Object, olds: Iterable[Object]) -> bool:
    return any(_same(there, old) or there.kind == old.kind == "dir" for old in olds)


def _same(a: Object, b: Object) -> bool:
    if a.kind != b.kind:
        return False
    if a.kind in ("file", "dir"):
        return a.digest == b.digest and (a.mode & 0o777) == (b.mode & 0o777)
    return a.target == b.target


def _write(host: HostFolder, todo: Sequence[_Move], opened: OpenNode) -> None:
    for move in sorted(todo, key=lambda m: m.path, reverse=True):  # children before their folders
        if move.new.kind == "absent" or (move.new.kind != "dir" and any(old.kind == "dir" for old in move.olds)):
            host.remove(move.path)
    for move in sorted(todo, key=lambda m: m.path):
        if move.node is not None:
            with opened(move.guest, move.node) if move.new.kind == "file" else nullcontext(-1) as source:
                host.put(move.path, move.new, source, move.node.mtime_ns)
    for move in sorted(todo, key=lambda m: m.path, reverse=True):  # a folder may be closed to its owner, once it is full
        if move.new.kind == "dir":
            host.close_up(move.path, move.new)


def _moves(guest: str, befores: Sequence[Tree], after: Tree, opened: OpenNode) -> tuple[list[_Move], tuple[str, ...]]:
    moves, skipped = [], []
    old_nodes, new_nodes = [dict(before.walk(guest)) for before in befores], dict(after.walk(guest))
    for path in sorted({*new_nodes, *(path for nodes in old_nodes for path in nodes)} - {guest}):
        olds, new = [nodes.get(path) for nodes in old_nodes], new_nodes.get(path)
        if all(_same_node(old, new) for old in olds):
            continue
        relative = path[len(guest.rstrip("/")) + 1 :]
        if new is not None and new.kind not in ("file", "dir", "link"):
            skipped.append(relative)
            continue
        was, now = {_object(path, old, opened) for old in olds}, _object(path, new, opened)
        if len(befores) > 1 and len({one.kind for one in was}) > 1:  # killed between the end of one kind and the next
            was.add(ABSENT)
        if not all(_same(old, now) for old in was):
            moves.append(_Move(relative, tuple(was), now, new, path))
    return moves, tuple(skipped)


def _same_node(a: Node | None, b: Node | None) -> bool:
    if a is None or b is None:
        return a is b
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
