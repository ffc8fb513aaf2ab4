"""Upkeep: what concerns a store and all its sessions: listing, removing, freeing space.

Knows the store and its layers. Must not know how actions are run or repaired.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mulligan.history.store import Store, default_home
from mulligan.sandbox.blocks import COMPOSITE
from mulligan.sandbox.layer import LayerStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from mulligan.model.ids import LayerId


def remove(name: str, home: Path | None = None, on_wait: Callable[[], None] | None = None) -> None:
    """Remove a session; gc frees what no other session shares with it."""
    with Store.open(home or default_home(os.environ)) as store, store.locked(name, on_wait):
        store.remove(name)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session of a store: how many actions its present history has, and what it stands on."""

    name: str
    actions: int
    base: Mapping[str, Any]
    head: int
    created_ns: int


def sessions(home: Path | None = None) -> list[SessionInfo]:
    """All sessions of a store, by name."""
    with Store.open(home or default_home(os.environ)) as store:
        rows = store.sessions()
        return [SessionInfo(r.name, store.journal.length(r.head), r.base, r.head, r.created_ns) for r in rows]


@dataclass(frozen=True, slots=True)
class Freed:
    """So many of one kind: "layers" that no session reaches, "composites" that no history uses, "orphans" of killed work."""

    kind: Literal["layers", "composites", "orphans"]
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GcReport:
    """What gc freed, by kind, and how many records of actions that no session reaches."""

    freed: tuple[Freed, ...]
    records: int

    @property
    def layers(self) -> int:
        """How many folders went, of all kinds."""
        return sum(one.count for one in self.freed)

    @property
    def bytes(self) -> int:
        """The bytes on disk that they took."""
        return sum(one.bytes for one in self.freed)


def gc(home: Path | None = None, on_wait: Callable[[], None] | None = None, *, dry_run: bool = False) -> GcReport:
    """Free what no session reaches: rolled back history, removed sessions, leavings of killed processes."""
    with Store.open(home or default_home(os.environ)) as store, store.exclusive(on_wait):
        layers = LayerStore(store.home / "layers")
        collected = store.journal.collect(dry_run=dry_run)
        known = store.journal.live_layers() - collected.layers
        report = GcReport(_free(layers, known | _composites_in_use(store, layers), dry_run=dry_run), collected.records)
        layers.settle()
        if not dry_run:
            store.tidy()
        return report


def _composites_in_use(store: Store, layers: LayerStore) -> set[LayerId]:
    """The composites of every session's history: a repair may need those of any part of it."""
    return {
        composite
        for row in store.sessions()
        for head in {row.head, *store.journal.pins(row.name).values()}
        for composite in layers.composites.blocks((*row.bottom, *store.journal.layer_ids(head)))
    }


def _free(layers: LayerStore, known: Collection[LayerId], *, dry_run: bool) -> tuple[Freed, ...]:
    """Remove every folder that is not known, and say what it was."""
    gone: dict[str, list[int]] = {"layers": [], "composites": [], "orphans": []}
    for name in layers.orphans(known):
        kind = "orphans" if name.startswith(".") else "composites" if name.startswith(COMPOSITE) else "layers"
        gone[kind].append(layers.disk_bytes(name))
        if not dry_run:
            layers.remove(name)
    return tuple(Freed(kind, len(sizes), sum(sizes)) for kind, sizes in gone.items())  # type: ignore[arg-type]
