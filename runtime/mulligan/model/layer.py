"""Manifest: what a sealed layer does to the state below it, in canonical form.

Knows keys' vocabulary and raw entries. A raw upper directory is more than the delta: parents that were copied up carry
old metadata, a chmod carries the old content. The manifest tells what was *meant*: explicit facts are the action's own;
what is inherited is taken from below when the layer stands on another stack.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mulligan.model.keys import DAT, LINKS, MODE, MTIME, STORED, XATTR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mulligan.model.ids import LayerId
    from mulligan.model.keys import KeyKind

NodeKind = Literal["file", "dir", "link", "fifo", "sock", "char", "block"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One path that a layer sets.

    `inherit_*`: that part came from below, by copy-up, and was not meant: content (files), mode with owner, mtime, xattrs.
    `opaque`: the folder hides what lies below it (it was removed and made again). `made`: the object did not exist below
    or was replaced, so nothing of it is inherited. `links`: the other names, within this layer, of the same file.
    """

    kind: NodeKind
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    size: int = 0
    mtime_ns: int = 0
    target: str = ""
    rdev: int = 0
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    opaque: bool = False
    made: bool = True
    inherit_content: bool = False
    inherit_mode: bool = False
    inherit_mtime: bool = False
    inherit_xattrs: bool = False
    links: tuple[str, ...] = ()

    def inherits(self) -> frozenset[KeyKind]:
        """The kinds of key that the entry only carries along from below."""
        flags: tuple[tuple[bool, KeyKind], ...] = (
            (self.inherit_content, DAT),
            (self.inherit_mode, MODE),
            (self.inherit_mtime, MTIME),
            (self.inherit_xattrs, XATTR),
        )
        return frozenset(kind for flag, kind in flags if flag)

    def sets(self) -> frozenset[KeyKind]:
        """The kinds of key that the entry sets. Whatever is copied up loses its hard links to other names below."""
        if self.made:
            return STORED
        mine: frozenset[KeyKind] = frozenset((MODE, MTIME, XATTR) if self.kind == "dir" else (DAT, LINKS, MODE, MTIME, XATTR))
        return mine - self.inherits()


@dataclass(frozen=True, slots=True)
class Manifest:
    """The canonical delta of one layer: what it sets and what it removes, by absolute guest path."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()

    @property
    def paths(self) -> frozenset[str]:
        """Every path the layer speaks of."""
        return frozenset(self.entries) | self.removed


@dataclass(frozen=True, slots=True)
class Layer:
    """The sealed upper directory of one action. Never changes once it exists; `bytes` is its size on disk."""

    id: LayerId
    manifest: Manifest
    bytes: int = 0
