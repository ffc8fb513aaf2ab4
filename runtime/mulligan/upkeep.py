"""Upkeep: what concerns a store and all its sessions: listing, removing, freeing space.

Knows the store and its layers. Must not know how actions are run or repaired.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mulligan.history.store import Store, default_home
from mulligan.sandbox.layer import LayerStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


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
class GcReport:
    """What gc freed: layers and records that no session reaches, and their bytes on disk."""

    layers: int
    records: int
    bytes: int


def gc(home: Path | None = None, on_wait: Callable[[], None] | None = None, *, dry_run: bool = False) -> GcReport:
    """Free what no session reaches: rolled back history, removed sessions, leavings of killed processes."""
    with Store.open(home or default_home(os.environ)) as store, store.exclusive(on_wait):
        layers = LayerStore(store.home / "layers")
        collected = store.journal.collect(dry_run=dry_run)
        known = store.journal.live_layers() - collected.layers
        freed = 0
        gone = layers.orphans(known)
        for layer in gone:
            freed += layers.disk_bytes(layer)
            if not dry_run:
                layers.remove(layer)
        layers.settle()
        if not dry_run:
            store.tidy()
        return GcReport(len(gone), collected.records, freed)
