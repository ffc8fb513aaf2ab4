"""Manifest: what a sealed layer does to the state below it, in canonical form.

Knows keys' vocabulary and raw entries. A raw upper directory is more than the delta: parents that were copied up carry
old metadata, a chmod carries the old content. The manifest tells what was *meant*: explicit facts are the action's own;
what is inherited is taken from below when the layer stands on another stack.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mulligan.model.ids import LayerId

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
