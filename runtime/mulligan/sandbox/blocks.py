"""Blocks: which runs of a history's layers are folded together, so that a long history needs few lowers. Pure.

Knows ids of layers, nothing of disks. Gives the `Skyline` of a sequence of layers: the largest blocks that cover it, bottom
first, and below each block the smaller ones it is made of.

Where a block ends is told by its content alone: behind an element whose id hashes to a multiple of 16. Elements of level 0
are layers, and the blocks of one level are the elements of the next, so blocks span about 16, 256 and 4096 layers. A layer
that is replaced, dropped or inserted thus changes the blocks that hold it and none of the others, wherever they come to
stand, as in a prolly tree; blocks cut by position would all be new after an insertion. A block has at least two elements
and at most 32, whatever the hashes say: that bounds the lowers of any history to 32 for each level, and what is changed by a
bound comes right again at the next end that a hash tells.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.model.ids import LayerId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FORMAT = "1"  # of a composite; part of its name
COMPOSITE = "fold-"  # a cache, made again when it is missing
SPAN = 16  # elements of a block, on average
_LEAST, _MOST = 2, 32


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A run of layers: one layer (then without parts), or a run that may be folded into one composite."""

    id: LayerId
    layers: tuple[LayerId, ...]
    parts: tuple[Block, ...] = ()
    level: int = 0

    def walk(self) -> Iterator[Block]:
        """The block, and all blocks in it that are more than one layer."""
        if self.parts:
            yield self
            for part in self.parts:
                yield from part.walk()


def build_run(parts: Sequence[Block]) -> Block:
    """The run of these blocks, one after the other; of a single one, itself."""
    if len(parts) == 1:
        return parts[0]
    layers = tuple(layer for part in parts for layer in part.layers)
    return Block(composite_id(layers), layers, tuple(parts), parts[0].level + 1)


def composite_id(layers: Sequence[LayerId], prefix: str = COMPOSITE) -> LayerId:
    """The name of what these layers, bottom first, are folded into. It depends on nothing else."""
    told = hashlib.sha256("\n".join((FORMAT, *layers)).encode())
    return LayerId(prefix + told.hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class Skyline:
    """A sequence of layers as blocks: `open[k]` are the elements of level k that are in no block yet, bottom first."""

    layers: tuple[LayerId, ...] = ()
    open: tuple[tuple[Block, ...], ...] = ()

    def extended(self, layers: Sequence[LayerId]) -> Skyline:
        """The skyline of this sequence with more layers on top."""
        rows = [list(row) for row in self.open]
        for layer in layers:
            _push(rows, Block(layer, (layer,)))
        return Skyline((*self.layers, *layers), tuple(tuple(row) for row in rows))

    def elements(self) -> list[Block]:
        """The blocks that cover the sequence, bottom first: the largest ones, then what is in none yet."""
        return [block for row in reversed(self.open) for block in row]


def _push(rows: list[list[Block]], element: Block) -> None:
    level = 0
    while True:
        if level == len(rows):
            rows.append([])
        row = rows[level]
        row.append(element)
        if len(row) < _LEAST or not (len(row) == _MOST or _is_end(element, level)):
            return
        element = build_run(row)
        row.clear()
        level += 1


def _is_end(element: Block, level: int) -> bool:
    """Whether the element is the last of its block; each level asks another hash, or all would end together."""
    return hashlib.blake2b(f"{level} {element.id}".encode(), digest_size=2).digest()[0] % SPAN == 0
