"""Origins: the recorded state at some paths and a place in a long history, without walking all that lies before.

Knows a history's index, its records and the state at its bottom; pure. What stands at a path follows from the last record that
set all of it, or that removed or replaced a folder above it, and from the later ones that set a part of it. Those are laid over
each other in their order, whole; at the paths asked for, the result is what walking over every record would have given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mulligan.model.ids import folders_above, prefixes
from mulligan.model.postings import CREATES, FOLDER_TIME, PARTS, RESETS, SHUTS, WRITTEN_BELOW
from mulligan.model.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mulligan.repair.index import ChainIndex, History


class Origins:
    """The recorded states of one history over a bottom, which is to stay as it is."""

    def __init__(self, history: History, index: ChainIndex, bottom: Tree) -> None:
        self._history = history
        self._index = index
        self._bottom = bottom

    def at(self, position: int, paths: Collection[str], roots: Collection[str]) -> tuple[Tree, frozenset[str]]:
        """The state before a place, right at the paths that are given with it.

        Those are `paths`, all below `roots`, the folders above, and whatever shares a file with any of them.
        """
        known: set[str] = set()
        wanted = {*paths, *roots}
        origins: set[int] = set()
        for root in roots:
            origins |= self._below(root, position)
        while True:
            fresh = (wanted | folders_above(wanted)) - known
            for path in fresh:
                origins |= self._origins(path, position)
            known |= fresh
            tree = self._laid(known, roots, origins)
            known |= {path for root in roots for path, _ in tree.walk(root)}
            wanted = _partners(tree, known) - known
            if not wanted:
                return tree, frozenset(known)

    def _laid(self, paths: Iterable[str], roots: Iterable[str], origins: Iterable[int]) -> Tree:
        tree = Tree()
        start = {path: node for path in paths if (node := self._bottom.get(path)) is not None}
        start |= {path: node for root in roots for path, node in self._bottom.walk(root)}
        for path, node in sorted(start.items()):
            tree.place(path, node)
        for position in sorted(origins):
            layer = self._history[position].layer
            tree.apply(layer.manifest, layer.id)
        return tree

    def _origins(self, path: str, position: int) -> set[int]:
        """The places of the records from which it follows what stands at the path."""
        reset = max(self._index.last(path, RESETS, position), self._last_shut(path, position))
        parts = []
        for place in self._index.before(path, PARTS, position):
            if place <= reset:
                break
            parts.append(place)
        found = {place for place in (reset, *parts) if place >= 0}
        for place in (reset, *parts):  # a folder that was not there begins with whoever has it in the layer next
            following = self._index.next(path, CREATES, place + 1)
            if following is not None and following < position:
                found.add(following)
        latest = self._index.last(path, FOLDER_TIME, position)
        return found | {latest} if latest > reset else found

    def _below(self, root: str, position: int) -> set[int]:
        """The places of the records from which it follows what stands at the path and below: it is in the layer of each."""
        reset = max(self._index.last(root, SHUTS, position), self._last_shut(root, position))
        found = {reset} if reset >= 0 else set()
        for place in self._index.before(root, WRITTEN_BELOW, position):
            if place <= reset:
                break
            found.add(place)
        return found

    def _last_shut(self, path: str, position: int) -> int:
        return max((self._index.last(folder, SHUTS, position) for folder in prefixes(path)), default=-1)


def _partners(tree: Tree, paths: Iterable[str]) -> set[str]:
    """The names that share, or once shared, a file with what stands at these paths."""
    nodes = (tree.get(path) for path in paths)
    return {name for node in nodes if node is not None and node.group is not None for name in node.group.names}
