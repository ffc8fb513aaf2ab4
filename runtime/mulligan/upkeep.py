"""Upkeep: what concerns a store and all its sessions: listing, removing, freeing space.

Knows the store and its layers. Must not know how actions are run or repaired.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.history.store import SessionRow, Store, default_home
from mulligan.sandbox.layer import LayerStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def remove(name: str, home: Path | None = None) -> None:
    """Remove a session; gc frees what no other session shares with it."""
    with Store.open(home or default_home(os.environ)) as store, store.locked(name):
        store.remove(name)


def sessions(home: Path | None = None) -> list[SessionRow]:
    """All sessions of a store, by name."""
    with Store.open(home or default_home(os.environ)) as store:
        return store.sessions()


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
        return GcReport(len(gone), collected.records, freed)
