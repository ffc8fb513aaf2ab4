"""Dirty: the keys in which two states differ, kept by path, and which of them a footprint relied on.

Knows trees and footprints; pure. `Dirty.compare` gives the exact difference of two trees; `Dirty.mark` says that a path may
differ, for plans that are made before anything ran. A key that is never in it is equal in both states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mulligan.model.ids import folders_above, parent, prefixes
from mulligan.model.keys import DAT, DIR, ENT, LINKS, MODE, MTIME, SEARCH, STORED, TELLING, XATTR, Key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from mulligan.model.footprint import Footprint
    from mulligan.model.ids import LayerId
    from mulligan.model.keys import KeyKind
    from mulligan.model.tree import Node, Tree

    SameBytes = Callable[[LayerId, str, LayerId, str], bool]
    Equivalent = Callable[[str, Node, Node], bool]


class Causes:
    """By which slot each dirty key came to differ."""

    def __init__(self) -> None:
        self._slots: dict[str, dict[KeyKind, str]] = {}

    def note(self, path: str, dirty: frozenset[KeyKind], wrote: frozenset[KeyKind], slot: str) -> None:
        """`slot` has touched the path: it answers for what it wrote, and for what no earlier slot answers for."""
        before = self._slots.get(path, {})
        now = {kind: slot if kind in wrote else before.get(kind, slot) for kind in dirty}
        if now:
            self._slots[path] = now
        else:
            self._slots.pop(path, None)

    def of(self, key: Key, dirty: Dirty) -> str:
        """The slot that a reason for this key names; empty when there is none."""
        if key.kind == DIR:
            key = Key(ENT, dirty.listed_child(key.name))
        slots = self._slots.get(key.name, {})
        return slots.get(MODE if key.kind == SEARCH else key.kind) or next(iter(slots.values()), "")


class Dirty:
    """Paths with the kinds of key in which they differ. `dir` and `meta.search` are derived from the others."""

    def __init__(self, equivalent: Equivalent | None = None) -> None:
        self._equivalent = equivalent
        self.loose: set[str] = set()  # files that count as equal, of other bytes
        self._kinds: dict[str, frozenset[KeyKind]] = {}
        self._names: dict[str, set[str]] = {}  # folder -> its entries that are in only one state, or of another kind
        self.watch: set[str] | None = None  # gets every path that is looked at again, when somebody asks for it

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def kinds(self, path: str) -> frozenset[KeyKind]:
        """The kinds of key in which the path differs, without the derived ones."""
        return self._kinds.get(path, frozenset())

    def on_disk(self, path: str) -> frozenset[KeyKind]:
        """The kinds of key in which the path differs, also where it counts as equal."""
        return self.kinds(path) | {DAT, MTIME} if path in self.loose else self.kinds(path)

    def listing(self, folder: str) -> bool:
        """Whether a listing of the folder differs."""
        return folder in self._names

    def listed_child(self, folder: str) -> str:
        """An entry of the folder by which its listing differs; the folder itself when there is none."""
        return min(self._names.get(folder, ()), default=folder)

    def __len__(self) -> int:
        return len(self._kinds)

    def keys(self) -> frozenset[Key]:
        """Every differing key, listings included."""
        keys = {Key(kind, path) for path, kinds in self._kinds.items() for kind in kinds}
        return frozenset(keys | {Key(DIR, folder) for folder in self._names})

    def compare(self, paths: Iterable[str], old: Tree, new: Tree, same_bytes: SameBytes) -> None:
        """Find out anew in what the two states differ at these paths."""
        for path in paths:
            a, b = old.get(path), new.get(path)
            kinds = _difference(path, old, new, same_bytes)
            self.loose.discard(path)
            if DAT in kinds and a is not None and b is not None and self._is_equivalent(path, a, b):
                self.loose.add(path)
                kinds -= {DAT, MTIME} if a.mtime_ns == b.mtime_ns else {DAT}
            renamed = ENT in kinds and (a.kind if a is not None else None) != (b.kind if b is not None else None)
            self._put(path, kinds, renamed=renamed)

    def _is_equivalent(self, path: str, a: Node, b: Node) -> bool:
        return a.kind == b.kind == "file" and self._equivalent is not None and self._equivalent(path, a, b)

    def mark(self, path: str, kinds: frozenset[KeyKind] = STORED) -> None:
        """Say that the path may differ in these, too."""
        kinds |= self.kinds(path)
        self._put(path, kinds, renamed=ENT in kinds)

    def clear(self, path: str, kinds: frozenset[KeyKind] = STORED) -> None:
        """Say that the path no longer differs in these."""
        if path in self._kinds:
            kinds = self._kinds[path] - kinds
            self._put(path, kinds, renamed=ENT in kinds)

    def clear_below(self, folders: Collection[str]) -> None:
        """Say that nothing below these paths differs any more."""
        for path in [path for path in self._kinds if any(folder in folders for folder in prefixes(path))]:
            self.clear(path)

    def hits(
        self,
        footprint: Footprint,
        old: Tree,
        search_differs: Callable[[str], bool],
        *,
        exact: bool = True,
        waived: Collection[str] = (),
    ) -> list[Key]:
        """The dirty keys that the footprint relied on, the most telling one of each path. `old` is the state it saw.

        When what differs is known exactly, that a file is there or not tells more than its content. Of the files in `waived`
        content, size and time are no matter.
        """
        order = (ENT, *TELLING) if exact else TELLING
        found: dict[str, set[KeyKind]] = {}
        sets = [(paths, kinds) for paths, kinds in footprint.sets() if paths]
        for path, differing in self._kinds.items():
            dirty = differing - {DAT, MTIME} if path in waived else differing
            for paths, kinds in sets:
                if path in paths:
                    hit = {k for k in kinds if k in dirty or (k == SEARCH and _may_search(dirty) and search_differs(path))}
                    if hit:
                        found.setdefault(path, set()).update(hit)
        for folder in self._names:
            if folder in footprint.listed:
                found.setdefault(folder, set()).add(DIR)
        for path, kind in self._on_the_way(footprint, old, search_differs):
            found.setdefault(path, set()).add(kind)
        return [Key(min(kinds, key=order.index), path) for path, kinds in sorted(found.items())]

    def _on_the_way(self, footprint: Footprint, old: Tree, search_differs: Callable[[str], bool]) -> list[tuple[str, KeyKind]]:
        """Folders that the action passed and that are no longer there, or may no longer be passed."""
        folders = [p for p, kinds in self._kinds.items() if _may_search(kinds) and (node := old.get(p)) and node.kind == "dir"]
        if not folders:
            return []
        passed = {"/"} | folders_above(footprint.observed_paths())
        hits: list[tuple[str, KeyKind]] = []
        for path in folders:
            if path in passed:
                if ENT in self._kinds[path]:
                    hits.append((path, ENT))
                elif search_differs(path):
                    hits.append((path, SEARCH))
        return hits

    def _put(self, path: str, kinds: frozenset[KeyKind], *, renamed: bool) -> None:
        if self.watch is not None:
            self.watch.add(path)
        if kinds:
            self._kinds[path] = kinds
        else:
            self._kinds.pop(path, None)
        folder = parent(path)
        if renamed:
            self._names.setdefault(folder, set()).add(path)
        elif folder in self._names:
            self._names[folder].discard(path)
            if not self._names[folder]:
                del self._names[folder]


def _may_search(kinds: Collection[KeyKind]) -> bool:
    return ENT in kinds or MODE in kinds or XATTR in kinds


def _difference(path: str, old: Tree, new: Tree, same_bytes: SameBytes) -> frozenset[KeyKind]:
    """The kinds of key in which the path differs between two states."""
    a, b = old.get(path), new.get(path)
    if a is None and b is None:
        return frozenset()
    if a is None or b is None or a.kind != b.kind:
        return STORED
    kinds: set[KeyKind] = set()
    if (a.target, a.rdev) != (b.target, b.rdev):
        kinds.add(ENT)
    if (a.mode, a.uid, a.gid) != (b.mode, b.uid, b.gid):
        kinds.add(MODE)
    if a.mtime_ns != b.mtime_ns or (a.size != b.size and a.kind != "dir"):
        kinds.add(MTIME)
    if a.xattrs != b.xattrs:
        kinds.add(XATTR)
    if (a.group or b.group) and old.value(Key(LINKS, path)) != new.value(Key(LINKS, path)):
        kinds.add(LINKS)
    if a.kind == "file" and not _same_content(path, a, b, same_bytes):
        kinds.add(DAT)
    return frozenset(kinds)


def _same_content(path: str, a: Node, b: Node, same_bytes: SameBytes) -> bool:
    """Layers never change, so one provider means one content; only otherwise the bytes are looked at."""
    return a.provider == b.provider or (a.size == b.size and same_bytes(a.provider, path, b.provider, path))
