"""States of a session: reading one from outside, and telling two apart.

Knows trees and stacks. Must not know sessions: whoever has one says which state is meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.model.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mulligan.model.layer import Entry, Layer
    from mulligan.model.tree import Node
    from mulligan.sandbox.stack import Stack


WORKSPACE = "/workspace"


def absolute(path: str) -> str:
    """A guest path as a person may write it: a relative one begins at /workspace."""
    return path if path.startswith("/") else f"{WORKSPACE}/{path.removeprefix('./')}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that differs between two states. `old` and `new` are what each holds there, None for nothing."""

    path: str
    what: str  # "added", "removed", "changed" (kind, content or target), "mode" (only metadata)
    old: Node | None
    new: Node | None


class Files:
    """Reading the state at the session's head from outside.

    A relative path begins at /workspace; symlinks resolve inside the state only.
    """

    def __init__(self, stack: Callable[[], Stack]) -> None:
        self._stack = stack

    def read_bytes(self, path: str) -> bytes:
        """The bytes of a file. Raises NotFoundError, or UsageError for what is no regular file."""
        return self._stack().read(absolute(path))

    def read(self, path: str) -> str:
        """The text of a file (UTF-8; other bytes become U+FFFD)."""
        return self.read_bytes(path).decode("utf-8", "replace")

    def list(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(self._stack().listdir(absolute(path)))

    def exists(self, path: str) -> bool:
        """Whether the path is there (a dangling symlink is)."""
        return self._stack().exists(absolute(path))

    def stat(self, path: str) -> Entry:
        """Kind, mode, owner, size, mtime and target of the object itself, as seen inside."""
        return self._stack().lstat(absolute(path))


def build_tree(layers: Iterable[Layer]) -> Tree:
    """The state that these layers, bottom first, make."""
    tree = Tree()
    for layer in layers:
        tree.apply(layer.manifest, layer.id)
    return tree


def find_differences(old: Tree, new: Tree) -> list[Difference]:
    """Every path in which two states differ, sorted; a folder counts only by its own attributes."""
    before, after = dict(old.walk("/")), dict(new.walk("/"))
    out = []
    for path in sorted(before.keys() | after.keys()):
        was, now = before.get(path), after.get(path)
        if was is None or now is None:
            out.append(Difference(path, "added" if was is None else "removed", was, now))
        elif (was.kind, was.target, was.provider) != (now.kind, now.target, now.provider) and was.kind != "dir":
            out.append(Difference(path, "changed", was, now))
        elif (was.kind, was.mode, was.uid, was.gid) != (now.kind, now.mode, now.uid, now.gid):
            out.append(Difference(path, "mode" if was.kind == now.kind else "changed", was, now))
    return out
