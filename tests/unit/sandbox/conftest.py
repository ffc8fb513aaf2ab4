"""Fixtures of the sandbox's unit tests: a store of layers and a base made by hand; nothing here runs a sandbox."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mulligan.model.layer import Entry
from mulligan.sandbox.base import Base
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.stack import Stack
from mulligan.sandbox.writing import LayerWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mulligan.model.ids import LayerId
    from mulligan.model.layer import Layer

UID = 0 if os.geteuid() == 0 else os.geteuid()
GID = 0 if os.geteuid() == 0 else os.getegid()
NS = 1_600_000_000 * 10**9


def entry(kind: str = "file", mode: int | None = None, **more: object) -> Entry:
    """An entry of the guest's user."""
    standard = {"dir": 0o755, "link": 0o777}.get(kind, 0o644)
    return Entry(kind, mode if mode is not None else standard, UID, GID, mtime_ns=NS, **more)


class Maker:
    """Makes layers by hand, from short descriptions."""

    def __init__(self, store: LayerStore) -> None:
        self.store = store

    def layer(
        self,
        *items: tuple[str, object],
        removed: tuple[str, ...] = (),
        opaque: tuple[str, ...] = (),
        layer: LayerId | None = None,
    ) -> Layer:
        """A layer of (path, None for a folder | bytes for a file | str for a symlink's target)."""
        with self.store.begin(layer) as opened, LayerWriter(opened) as writer:
            for path, what in items:
                if what is None:
                    writer.folder(path, entry("dir", opaque=path in opaque))
                elif isinstance(what, bytes):
                    writer.file(path, entry(size=len(what)), what)
                else:
                    writer.node(path, entry("link", target=what))
            for path in removed:
                writer.whiteout(path)
            return opened.seal_manifest(writer.finish())

    def stack(self, *layers: Layer, binds: tuple[tuple[str, str], ...] = ()) -> Stack:
        """A stack of layers, bottom first."""
        base = Base("folder", layers[0].id, binds, ids=self.store.ids)
        return Stack(tuple(layer.id for layer in layers), base, self.store)


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[LayerStore]:
    """An empty store of layers."""
    store = LayerStore(tmp_path / "store" / "layers")
    yield store
    store.settle()


@pytest.fixture
def make(layers: LayerStore) -> Maker:
    """Makes layers in the store."""
    return Maker(layers)
