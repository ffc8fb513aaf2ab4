"""Budget: which layers of a store are given up so that it fits in so many bytes, and the floors that stand in for them.

Knows the store and its layers. The oldest actions go first, whichever session they are of. What a session, a branch or a pinned
state still needs is kept: giving up frees only what all who share a layer give up. One folded layer with a merged
manifest stands for all that a session gave up.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mulligan.history.floors import Floor
from mulligan.model.layer import Layer
from mulligan.model.merging import merge_manifests
from mulligan.model.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mulligan.history.store import SessionRow, Store
    from mulligan.model.ids import LayerId
    from mulligan.sandbox.layer import LayerStore

_OBJECT_BYTES = 4096  # what an object of a folded layer takes beside its content, about


@dataclass(slots=True)
class Line:
    """One session's history since its floor: `layers[n]` was made by the action that ended at `ends[n]`."""

    row: SessionRow
    states: list[int]
    layers: list[LayerId]
    ends: list[int]
    folded: list[int]  # bytes of the layer that stands for the first n actions
    most: int  # of them may be given up
    pins: list[tuple[LayerId, ...]]
    positions: list[int]  # of the pins: how many actions they have, or -1 when they are of no present history
    composites: set[LayerId]

    def cut(self, until: int) -> int:
        """How many actions ended by then."""
        return min(bisect_right(self.ends, until), self.most)


@dataclass(frozen=True, slots=True)
class Cut:
    """A session gives up the layers of its first `count` actions since its floor."""

    line: Line
    count: int


@dataclass(slots=True)
class Ledger:
    """What folders take on disk, each looked at once."""

    store: LayerStore
    _sizes: dict[LayerId, int] = field(default_factory=dict)

    def bytes(self, layers: Iterable[LayerId]) -> int:
        """Of all these folders together."""
        return sum(self._size(layer) for layer in layers)

    def _size(self, layer: LayerId) -> int:
        if layer not in self._sizes:
            self._sizes[layer] = self.store.disk_bytes(layer)
        return self._sizes[layer]


def read_line(store: Store, layers: LayerStore, row: SessionRow) -> Line:
    """The history of a session, with what giving up parts of it would leave."""
    journal, floor = store.journal, row.floor
    since = floor.node if floor else 0
    records = journal.chain(row.head, since)
    states = [node for node, _ in journal.states(row.head, since)]
    pinned = [head for head in journal.pins(row.name).values() if head]
    positions = [states.index(head) + 1 if head in states else -1 for head in pinned]
    above = [count for head in pinned if (count := _shared(store, states, head, since)) is not None]
    ends = [record.outcome.ended_ns for record in records]
    for number in range(1, len(ends)):
        ends[number] = max(ends[number], ends[number - 1])
    return Line(
        row=row,
        states=states,
        layers=[record.layer_id for record in records],
        ends=ends,
        folded=_folded_sizes(store, row, [record.layer for record in records]),
        # A pin that stands on the floor, be it of no present history, has nothing left when the floor moves past it.
        most=min(above, default=len(records)) if floor else len(records),
        pins=[journal.layer_ids(head, floor) for head in pinned],
        positions=positions,
        composites=set(layers.composites.present(layer_ids(store, row))),
    )


def _shared(store: Store, states: Sequence[int], head: int, since: int) -> int | None:
    """How many of a history's states since its floor lead to this one, too; None when the floor itself does not."""
    way = {node for node, _ in store.journal.states(head)}
    return sum(state in way for state in states) if since in way else None


def layer_ids(store: Store, row: SessionRow) -> tuple[LayerId, ...]:
    """The layers of a session's present state."""
    return (*row.bottom, *store.journal.layer_ids(row.head, row.floor))


def _folded_sizes(store: Store, row: SessionRow, layers: Sequence[Layer]) -> list[int]:
    """What the first n layers, and the floor below them, take when they are folded, for every n."""
    tree, total = Tree(), 0
    sizes: dict[str, int] = {}
    for bottom in row.bottom:
        tree.apply(store.journal.layer(bottom).manifest, bottom)
    found = []
    below = [store.journal.layer(row.floor.layer)] if row.floor else []
    for number, layer in enumerate([*below, *layers]):
        for path in tree.apply(layer.manifest, layer.id):
            total -= sizes.pop(path, 0)
            node = tree.get(path)
            if node is not None and path in layer.manifest.entries:
                sizes[path] = _OBJECT_BYTES + (node.size if node.kind == "file" else 0)
                total += sizes[path]
        if number >= len(below):
            found.append(total)
    return [0, *found]


def choose_cuts(lines: Sequence[Line], ledger: Ledger, fixed: int, budget: int) -> list[Cut]:
    """The cuts, by one time for all sessions, that come below the budget giving up least; else those that leave least.

    `fixed`: bytes that no cut can free.
    """
    times = sorted({end for line in lines for end in line.ends[: line.most]})

    def left(until: int) -> int:
        return fixed + _left(lines, [line.cut(until) for line in lines], ledger)

    low, high = 0, len(times)
    while low < high:  # the first time that is late enough
        middle = (low + high) // 2
        if left(times[middle]) <= budget:
            high = middle
        else:
            low = middle + 1
    if low == len(times):
        some = times[:: max(1, len(times) // 64)] + times[-1:]
        if not some or min(map(left, some)) >= left(-1):
            return []
        until = min(some, key=left)
    else:
        until = times[low]
    return [Cut(line, count) for line in lines if (count := line.cut(until))]


def _left(lines: Sequence[Line], counts: Sequence[int], ledger: Ledger) -> int:
    """The bytes of all folders that these sessions need after giving up so many actions each."""
    held: set[LayerId] = set()
    new = 0
    folded: set[tuple[LayerId, ...]] = set()  # branches that give up the same share one folded layer
    for line, count in zip(lines, counts, strict=True):
        held.update(line.row.bottom, line.layers[count:])
        for layers, position in zip(line.pins, line.positions, strict=True):
            if position < count:
                held.update(layers)
        below = (line.row.floor.layer,) if line.row.floor else ()
        if not count:
            held.update(below, line.composites)
        elif (given_up := (*below, *line.layers[:count])) not in folded:
            folded.add(given_up)
            new += line.folded[count]
    return ledger.bytes(held) + new


def lay_floors(store: Store, layers: LayerStore, cuts: Iterable[Cut]) -> None:
    """Fold what is given up, then make it so in one transaction. Killed before that, the folded layers are orphans."""
    floors: dict[str, Floor] = {}
    made: dict[LayerId, Layer] = {}
    for cut in cuts:
        line, journal = cut.line, store.journal
        row = line.row
        below = [row.floor.layer] if row.floor else []
        given_up = [journal.layer(layer) for layer in (*below, *line.layers[: cut.count])]
        name = layers.composites.fold_floor([layer.id for layer in given_up])
        if name not in made:
            manifest = merge_manifests(layer.manifest for layer in given_up)
            size = sum(entry.size for entry in manifest.entries.values() if entry.kind == "file")
            made[name] = Layer(name, manifest, size)
        floors[row.name] = Floor(line.states[cut.count - 1], name)
    store.lay_floors(floors, made.values())


def given_up(cuts: Iterable[Cut]) -> Mapping[str, int]:
    """How many actions each session gives up."""
    return {cut.line.row.name: cut.count for cut in cuts}
