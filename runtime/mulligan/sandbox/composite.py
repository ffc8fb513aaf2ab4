"""Composites: which folders a stack is mounted of, and making those that are missing.

Knows the store of layers and the blocks of a sequence. Gives the cover of a sequence: layers and composites, bottom first, that
together are that state. A composite is a cache: named by the layers it is made of, made when a cover first needs it, never
in the place of the layers themselves, and removed by gc when no session's history has its block any more.

How many lowers. Each one costs some 25 µs when a stack is mounted, and a look in each folder of that name at every lookup
that nobody has made before; 500 is the kernel's bound. Folding costs a copy of all that is folded, once per level: so
nothing is folded for a state of at most `EASY` lowers. Beyond, a block is folded when it is light. One that is not (a layer
of many megabytes is in it) is covered by runs of its light parts, and what is heavy stays a lower of its own: it costs one
lower, not a copy of its bytes. Larger blocks may be heavier, since their copy is shared by more actions. Only when a state
so covered would need more than `COMFORT` lowers, blocks eight times as heavy are folded, and so on.

Durability. Nothing is lost with a composite, so small ones are not synced at all; but a crash of the machine may leave one
that is there by name and lacks bytes. So it says for which boot of the machine it is good, and is made again after
another; a heavy one is synced once and good for ever.

Two processes may make the same composite at once: the second one finds the name taken and uses that. What a killed one
leaves is an open folder, which gc removes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mulligan.errors import DiskFullError, StoreError
from mulligan.model.ids import LayerId
from mulligan.sandbox.blocks import COMPOSITE, Block, Skyline, build_run, composite_id
from mulligan.sandbox.folding import fold, weigh
from mulligan.sandbox.trees import READING, opened, space_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mulligan.sandbox.layer import LayerStore

LIGHT: Final = (4 << 20, 64 << 20)  # weight up to which a block is folded as soon as it is used: of level 1, and above
EASY: Final = 40  # lowers up to which nothing is folded
COMFORT: Final = 128  # lowers of a cover above which heavier blocks are folded, too
_STEP: Final = 8
_MOST_STEPS: Final = 16  # by then everything is light
_SYNCED: Final = 16 << 20  # weight from which a composite is worth a sync
_SOURCES: Final = 128  # folders held open while folding
_MARK, _MOST_MARKS, _MOST_DIVISIONS = 128, 100, 10_000
_FOREVER: Final = "forever"
FLOOR: Final = "floor-"  # a composite that is no cache: it stands for layers that were given up
STEP: Final = "step-"  # on the way to one


@dataclass(frozen=True, slots=True)
class About:
    """What a composite says of itself: see `Folded`."""

    weight: int
    under: bool


class Composites:
    """The composites of a store of layers."""

    def __init__(self, store: LayerStore) -> None:
        self._store = store
        self._root = str(store.root)
        self._known: tuple[tuple[LayerId, ...], Skyline] = ((), Skyline())
        self._marks: list[tuple[tuple[LayerId, ...], Skyline]] = []  # beginnings of sequences asked for, for rollbacks
        self._about: dict[LayerId, About] = {}
        self._weights: dict[LayerId, int] = {}
        self._divisions: dict[tuple[LayerId, int], list[Block]] = {}
        self._heavier: dict[LayerId, int] = {}  # than this, where counting ended early
        self._making = threading.RLock()  # the same composite, by two threads that run actions at once
        self._boot = ""

    def skyline(self, layers: tuple[LayerId, ...]) -> Skyline:
        """The blocks of a sequence of layers.

        Most sequences continue the one that was asked for last; some, after a rollback, one of its beginnings.
        """
        known = self._known if layers[: len(self._known[0])] == self._known[0] else self._beginning(layers)
        before, skyline = known
        while len(before) < len(layers):
            more = layers[len(before) : (len(before) // _MARK + 1) * _MARK]
            skyline = skyline.extended([layer for layer in more if not self._store.is_empty(layer)])
            before = layers[: len(before) + len(more)]
            if len(before) % _MARK == 0:
                self._marks = [*self._marks[-_MOST_MARKS:], (before, skyline)]
        self._known = (layers, skyline)
        return skyline

    def _beginning(self, layers: tuple[LayerId, ...]) -> tuple[tuple[LayerId, ...], Skyline]:
        """The longest beginning whose blocks are known."""
        if len(self._divisions) > _MOST_DIVISIONS:
            self._divisions.clear()
        fitting = (mark for mark in self._marks if len(mark[0]) <= len(layers) and layers[: len(mark[0])] == mark[0])
        return max(fitting, key=lambda mark: len(mark[0]), default=((), Skyline()))

    def blocks(self, layers: tuple[LayerId, ...]) -> Iterator[LayerId]:
        """The names of all composites that this sequence, or its beginning, may be covered by; they need not be there."""
        for element in self.skyline(layers).elements():
            for block in element.walk():
                yield block.id
        for block in self._covering(layers):
            yield block.id

    def cover(self, layers: tuple[LayerId, ...], easy: int | None = None) -> list[LayerId]:
        """The folders that make the state of these layers, bottom first. Makes composites that are missing.

        With at most `easy` folders (default: `EASY`) nothing is made: who stands on a state once gains nothing by it.
        Where there is no space for one, its parts stand in the cover; there may then be more than the kernel stacks.
        """
        there = self.there(layers)
        if len(there) <= (EASY if easy is None else easy):
            return there
        return _once([layer for block in self._covering(layers) for layer in self._made(block)])

    def there(self, layers: tuple[LayerId, ...]) -> list[LayerId]:
        """As `cover`, of what there is already; there may be more than the kernel stacks."""
        return _once([layer for block in self._covering(layers) for layer in self._there(block)])

    def lowers(self, cover: Sequence[LayerId]) -> list[str]:
        """The directories to mount for a cover, topmost first."""
        found = []
        for layer in reversed(cover):
            folder = f"{self._root}/{layer}"
            found.append(f"{folder}/upper")
            if layer.startswith((COMPOSITE, FLOOR)) and self.about(layer).under:
                found.append(f"{folder}/under")
        return found

    # ---------------------------------------------------------------------------------------------- choosing

    def _covering(self, layers: tuple[LayerId, ...]) -> list[Block]:
        elements = self.skyline(layers).elements()
        found: list[Block] = []
        for step in range(_MOST_STEPS):
            found = [block for element in elements for block in self._divided(element, _STEP**step)]
            if len(found) <= COMFORT:
                break
        return found

    def _divided(self, block: Block, factor: int) -> list[Block]:
        """A block's cover: itself when it is light or there already, else runs of its light parts, and what is heavy."""
        if not block.parts or self._is_there(block.id):
            return [block]
        found = self._divisions.get((block.id, factor))
        if found is None:
            self._divisions[block.id, factor] = found = self._divide(block, factor)
        return found

    def _divide(self, block: Block, factor: int) -> list[Block]:
        limit = LIGHT[min(block.level, len(LIGHT)) - 1] * factor
        if self._weight(block, limit) <= limit:
            return [block]
        found: list[Block] = []
        run: list[Block] = []
        weight = 0
        for part in block.parts:
            more = self._weight(part, limit)
            if run and weight + more > limit:
                found.append(build_run(run))
                run, weight = [], 0
            if more > limit:
                found += self._divided(part, factor)
            else:
                run.append(part)
                weight += more
        if run:
            found.append(build_run(run))
        return found

    def _weight(self, block: Block, most: int) -> int:
        """The weight of a block, or a number above `most`."""
        known = self._weights.get(block.id, -1)
        if known >= 0:
            return known
        if self._is_there(block.id) and (about := self._about.get(block.id)) is not None:
            return about.weight
        if not block.parts:
            return self._weigh_layer(block.id, most)
        weight = 0
        for part in block.parts:
            weight += self._weight(part, most)
            if weight > most:
                break
        else:
            self._weights[block.id] = weight
        return weight

    def _weigh_layer(self, layer: LayerId, most: int) -> int:
        if self._heavier.get(layer, 0) > most:
            return self._heavier[layer]
        weight = weigh(str(self._store.path(layer)), most + 1)
        (self._weights if weight <= most else self._heavier)[layer] = weight
        return weight

    # ---------------------------------------------------------------------------------------------- making

    def _made(self, block: Block) -> list[LayerId]:
        """The block as one composite, if need be made now; what there is of it when there is no space for that."""
        if not block.parts or self._is_there(block.id):
            return [block.id]
        with self._making:
            try:
                if not self._is_there(block.id):  # another thread may have been at it
                    self._make(block)
            except DiskFullError:
                return self._pieces(block)
        return [block.id]

    def _there(self, block: Block) -> list[LayerId]:
        """The fewest folders that there are already for a block."""
        return [block.id] if not block.parts or self._is_there(block.id) else self._pieces(block)

    def _make(self, block: Block) -> None:
        pieces = self._pieces(block)
        if len(pieces) > _SOURCES:
            for part in block.parts:
                self._made(part)
            pieces = self._pieces(block)
        if not self._is_there(block.id) and os.path.lexists(f"{self._root}/{block.id}"):  # one of another boot
            with contextlib.suppress(FileNotFoundError):
                self._store.throw_away(block.id)
        self.fold(pieces, block.id)

    def _pieces(self, block: Block) -> list[LayerId]:
        """The fewest folders that there are already for a block that is to be made."""
        return [layer for part in block.parts for layer in self._there(part)]

    def fold(self, sources: Sequence[LayerId], name: LayerId, *, durable: bool = False) -> About:
        """Fold layers and composites, bottom first, under a name that tells them."""
        with self._store.begin() as opened_layer, space_for(f"fold {len(sources)} layers"):
            with opened(-1, (str(opened_layer.folder),)) as target:
                os.rmdir("work", dir_fd=target)
                folded = fold([str(self._store.path(source)) for source in sources], target, self._store.opaque)
            durable = durable or folded.weight > _SYNCED
            about = About(folded.weight, folded.under)
            opened_layer.seal_composite(name, self._encode(about, durable=durable), durable=durable)
        self._about[name] = about
        return about

    def fold_floor(self, layers: Sequence[LayerId]) -> LayerId:
        """Fold layers, bottom first, into one that may stand in their place for good.

        Raises DiskFullError, and leaves nothing then.
        """
        pieces = [layer for layer in layers if not self._store.is_empty(layer)]
        name = composite_id(pieces, FLOOR)
        if not pieces:
            return self._store.empty(name)
        if self._is_there(name):
            return name
        steps: list[LayerId] = []
        try:
            while len(pieces) > _SOURCES:  # more folders than may be open at once: in steps
                pieces = [self._step(pieces[at : at + _SOURCES], steps) for at in range(0, len(pieces), _SOURCES)]
            self.fold(pieces, name, durable=True)
        finally:
            for step in steps:
                self._store.remove(step)
        return name

    def _step(self, pieces: Sequence[LayerId], steps: list[LayerId]) -> LayerId:
        name = LayerId(STEP + secrets.token_hex(8))
        self.fold(pieces, name)
        steps.append(name)
        return name

    # ---------------------------------------------------------------------------------------------- telling

    def present(self, layers: tuple[LayerId, ...]) -> Iterator[LayerId]:
        """The composites of this sequence, or its beginning, that are there."""
        return (composite for composite in self.blocks(layers) if composite.startswith(COMPOSITE) and self._is_there(composite))

    def about(self, composite: LayerId) -> About:
        """What a composite that is there says of itself."""
        about = self._about.get(composite)
        if about is None and self._is_there(composite):
            about = self._about.get(composite)
        if about is None:
            raise StoreError(f"composite {composite} is not in the store", remedy="restore the store")
        return about

    def _is_there(self, composite: LayerId) -> bool:
        """Whether a composite is there and good in this boot of the machine."""
        if composite in self._about:
            if os.path.isdir(f"{self._root}/{composite}/upper"):
                return True
            self._about.pop(composite, None)
            return False
        try:
            fd = os.open(f"{self._root}/{composite}/about", READING)
        except (FileNotFoundError, NotADirectoryError):
            return False
        with open(fd, encoding="ascii", errors="replace") as file:
            about = self._decode(file.read())
        if about is None:
            return False
        self._about[composite] = about
        return True

    def _encode(self, about: About, *, durable: bool) -> bytes:
        good_in = _FOREVER if durable else self._this_boot()
        return f"{good_in} {about.weight} {int(about.under)}\n".encode()

    def _decode(self, text: str) -> About | None:
        words = text.split()
        if len(words) != 3 or not text.endswith("\n") or words[0] not in (_FOREVER, self._this_boot()):  # noqa: PLR2004
            return None
        return About(int(words[1]), words[2] == "1") if words[1].isdecimal() else None

    def _this_boot(self) -> str:
        if not self._boot:
            self._boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return self._boot


def _once(folders: Sequence[LayerId]) -> list[LayerId]:
    """Every folder once, where it comes last: the kernel takes none twice, and what is in it hides all that an earlier one has.

    A history has a layer twice when a branch is merged in again, or one that shares actions with a repaired history.
    """
    return list(dict.fromkeys(reversed(folders)))[::-1]
