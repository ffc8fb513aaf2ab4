"""Contents: when two versions of a file count as one although their bytes differ, for everybody or for one action.

Knows trees, policies and footprints, and is given how bytes are read and parts compared; pure. For everybody: by an equivalence
that somebody asserted. For one action: when all that it read of the file are parts it declared, and those are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mulligan.model.equivalence import LARGEST, Equality
from mulligan.model.keys import DAT
from mulligan.model.part import COMPANIONS, LARGEST_REFINED, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mulligan.model.ids import LayerId
    from mulligan.model.part import FilePart
    from mulligan.model.policy import Policy
    from mulligan.model.record import Record
    from mulligan.model.tree import Node, Tree
    from mulligan.repair.dirty import Dirty, Equivalent

    Content = Callable[[LayerId, str], bytes]
    SamePart = Callable[[FilePart, Mapping[str, bytes], Mapping[str, bytes]], bool]


class Contents:
    """What the bytes of a state's files say beyond being the same or not. Without `content` nothing counts as equal."""

    def __init__(self, policy: Policy, content: Content | None, same_part: SamePart | None) -> None:
        self.equality = Equality(policy.equivalences)
        self._content = content
        self._same_part = same_part
        self._same: dict[tuple[object, ...], bool] = {}

    @property
    def equivalent(self) -> Equivalent | None:
        """Whether the policy takes two versions of a file for equal; None when it takes none so."""
        return self._equivalent if self.equality and self._content is not None else None

    def _equivalent(self, path: str, a: Node, b: Node) -> bool:
        if not self.equality.names(path) or max(a.size, b.size) > LARGEST:
            return False
        return self.equality.equal(path, self._read(a, path), self._read(b, path))

    def refined(self, record: Record, dirty: Dirty, old: Tree, new: Tree) -> tuple[set[str], list[FilePart]]:
        """The files of which the record read nothing but declared parts that are the same, and the parts that differ.

        Who writes to a file carries all of its content on, so for that one no part is enough.
        """
        waived: set[str] = set()
        differing: list[FilePart] = []
        if not record.footprint.declared_reads:
            return waived, differing
        for path, parts in parts_of(record.footprint.declared_reads).items():
            changed = [part for part in parts if DAT in dirty.kinds(path) and not self._is_same(part, old, new)]
            differing += changed
            if not changed and path not in record.layer.manifest.entries and path not in record.footprint.executed:
                waived.add(path)
        return waived, differing

    def _is_same(self, part: FilePart, old: Tree, new: Tree) -> bool:
        if self._same_part is None or self._content is None:
            return False
        was, now = _with_companions(part.path, old), _with_companions(part.path, new)
        at = (part, *(tuple((ending, node.provider) for ending, node in one.items()) for one in (was, now)))
        if at not in self._same:
            self._same[at] = self._compare(self._same_part, part, was, now)
        return self._same[at]

    def _compare(self, same: SamePart, part: FilePart, old: Mapping[str, Node], new: Mapping[str, Node]) -> bool:
        if "" not in old or "" not in new or max(sum(n.size for n in one.values()) for one in (old, new)) > LARGEST_REFINED:
            return False
        a, b = ({ending: self._read(node, part.path + ending) for ending, node in one.items()} for one in (old, new))
        return same(part, a, b)

    def _read(self, node: Node, path: str) -> bytes:
        assert self._content is not None, path
        return self._content(node.provider, path)


def _with_companions(path: str, tree: Tree) -> dict[str, Node]:
    """The file and what belongs to it beside it, by the ending of the name."""
    nodes = ((ending, tree.get(path + ending)) for ending in ("", *COMPANIONS))
    return {ending: node for ending, node in nodes if node is not None and node.kind == "file"}
