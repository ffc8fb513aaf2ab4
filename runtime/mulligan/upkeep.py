"""Upkeep: what concerns a store and all its sessions: listing, removing, freeing space.

Knows the store and its layers. Must not know how actions are run or repaired.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from mulligan.budget import Ledger, choose_cuts, given_up, lay_floors, read_line
from mulligan.errors import UsageError
from mulligan.history.store import Store, default_home
from mulligan.sandbox.blocks import COMPOSITE
from mulligan.sandbox.composite import STEP
from mulligan.sandbox.layer import LayerStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from mulligan.history.store import SessionRow
    from mulligan.model.ids import ActionId, LayerId


def remove(name: str, home: Path | None = None, on_wait: Callable[[], None] | None = None) -> None:
    """Remove a session; gc frees what no other session shares with it."""
    with Store.open(home or default_home(os.environ)) as store, store.locked(name, on_wait):
        store.remove(name)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session of a store: how many actions its present history has, and what it stands on.

    `oldest` is the oldest action that can be repaired; `given_up` says whether some before it can't be any more.
    """

    name: str
    actions: int
    base: Mapping[str, Any]
    head: int
    created_ns: int
    oldest: ActionId | None
    given_up: bool


def sessions(home: Path | None = None) -> list[SessionInfo]:
    """All sessions of a store, by name."""
    with Store.open(home or default_home(os.environ)) as store:
        return [
            SessionInfo(
                row.name,
                store.journal.length(row.head),
                row.base,
                row.head,
                row.created_ns,
                store.journal.first(row.head, row.floor),
                row.floor is not None,
            )
            for row in store.sessions()
        ]


Kind = Literal["layers", "composites", "orphans", "given_up"]


@dataclass(frozen=True, slots=True)
class Freed:
    """So many folders of one kind.

    "layers" that no session reaches, "composites" that no history uses, "orphans" of killed work, layers that were "given_up".
    """

    kind: Kind
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GcReport:
    """What gc freed, by kind, and how many records of actions that no session reaches.

    With a budget: how many actions of each session were `given_up` for it, the `size` that is left (of the store, or of the
    session that was named), and in `oldest`, for each session with a floor, the oldest action that can be repaired.
    """

    freed: tuple[Freed, ...]
    records: int
    given_up: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, ActionId | None] = field(default_factory=dict)
    size: int | None = None

    @property
    def layers(self) -> int:
        """How many folders went, of all kinds."""
        return sum(one.count for one in self.freed)

    @property
    def bytes(self) -> int:
        """The bytes on disk that they took."""
        return sum(one.bytes for one in self.freed)


def gc(
    home: Path | None = None,
    on_wait: Callable[[], None] | None = None,
    *,
    dry_run: bool = False,
    budget: int | None = None,
    session: str | None = None,
) -> GcReport:
    """Free what no session reaches: rolled back history, removed sessions, leavings of killed processes.

    With a `budget` in bytes, a store (or the session that is named) that is larger gives up composites, and then the layers
    of its oldest actions: they stay in the log, and can't be repaired or gone back to any more.
    """
    if budget is not None and budget < 0:
        raise UsageError(f"budget {budget}: give the bytes that may be used, 0 or more")
    with Store.open(home or default_home(os.environ)) as store, store.exclusive(on_wait):
        if session is not None:
            store.get(session)
        layers = LayerStore(store.home / "layers")
        collected = store.journal.collect(dry_run=dry_run)
        known = store.journal.live_layers() | _composites_in_use(store, layers)
        report = GcReport(_free(layers, known, dry_run=dry_run), collected.records)
        if budget is not None:
            report = _keep_to(store, layers, report, budget, session, dry_run=dry_run)
        layers.settle()
        if not dry_run:
            store.tidy()
        oldest = {row.name: store.journal.first(row.head, row.floor) for row in store.sessions() if row.floor}
        return replace(report, oldest=oldest)


def _composites_in_use(store: Store, layers: LayerStore) -> set[LayerId]:
    """The composites of every session's history: a repair may need those of any part of it."""
    return {
        composite
        for row in store.sessions()
        for head in {row.head, *store.journal.pins(row.name).values()}
        for composite in layers.composites.blocks((*row.bottom, *store.journal.layer_ids(head, row.floor)))
    }


def _free(layers: LayerStore, known: Collection[LayerId], *, dry_run: bool, named: Kind = "layers") -> tuple[Freed, ...]:
    """Remove every folder that is not known, and say what it was."""
    gone: dict[Kind, list[int]] = {named: [], "composites": [], "orphans": []}
    for name in layers.orphans(known):
        kind: Kind = "orphans" if name.startswith((".", STEP)) else "composites" if name.startswith(COMPOSITE) else named
        gone[kind].append(layers.disk_bytes(name))
        if not dry_run:
            layers.remove(name)
    return tuple(Freed(kind, len(sizes), sum(sizes)) for kind, sizes in gone.items())


def _keep_to(
    store: Store, layers: LayerStore, report: GcReport, budget: int, session: str | None, *, dry_run: bool
) -> GcReport:
    """Give up what must be for the budget: first composites that no present state is mounted of, then the oldest layers."""
    rows = [row for row in store.sessions() if session is None or row.name == session]
    size = _size(store, layers, rows, whole=session is None)
    if size > budget:
        freed = _free(layers, store.journal.live_layers() | _mounted(store, layers), dry_run=dry_run)
        report = replace(report, freed=_sum(report.freed, freed))
        size = _size(store, layers, rows, whole=session is None) - (sum(one.bytes for one in freed) if dry_run else 0)
    if size > budget:
        lines = [read_line(store, layers, row) for row in rows]
        fixed = _database_bytes(store) if session is None else 0
        cuts = choose_cuts(lines, Ledger(layers), fixed, budget)
        report = replace(report, given_up=given_up(cuts))
        if cuts and not dry_run:
            lay_floors(store, layers, cuts)
            known = store.journal.live_layers() | _composites_in_use(store, layers)
            report = replace(report, freed=_sum(report.freed, _free(layers, known, dry_run=False, named="given_up")))
            rows = [row for row in store.sessions() if session is None or row.name == session]
            size = _size(store, layers, rows, whole=session is None)
    return replace(report, size=size)


def _mounted(store: Store, layers: LayerStore) -> set[LayerId]:
    """The composites that a present state is mounted of."""
    return {
        layer
        for row in store.sessions()
        for layer in layers.composites.there((*row.bottom, *store.journal.layer_ids(row.head, row.floor)))
    }


def _size(store: Store, layers: LayerStore, rows: Collection[SessionRow], *, whole: bool) -> int:
    """The bytes on disk of the store, or of what these sessions are made of."""
    if whole:
        return _database_bytes(store) + sum(layers.disk_bytes(name) for name in os.listdir(layers.root))
    held: set[LayerId] = set()
    for row in rows:
        for head in {row.head, *store.journal.pins(row.name).values()}:
            ids = (*row.bottom, *store.journal.layer_ids(head, row.floor))
            held.update(ids, layers.composites.present(ids))
    return sum(layers.disk_bytes(layer) for layer in held)


def _database_bytes(store: Store) -> int:
    return sum(path.stat().st_size for path in store.home.glob("store.db*"))


def _sum(*reports: tuple[Freed, ...]) -> tuple[Freed, ...]:
    totals: dict[Kind, Freed] = {}
    for one in (freed for report in reports for freed in report):
        was = totals.get(one.kind, Freed(one.kind, 0, 0))
        totals[one.kind] = Freed(one.kind, was.count + one.count, was.bytes + one.bytes)
    return tuple(totals.values())
