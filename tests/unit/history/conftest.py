"""Fixtures of the store's tests: an open store, a session in it, and records made up for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.history.journal import NEW
from mulligan.history.store import Store
from mulligan.model.action import Action, LaunchContext, Outcome
from mulligan.model.footprint import Footprint
from mulligan.model.ids import ActionId, LayerId
from mulligan.model.layer import Entry, Layer, Manifest
from mulligan.model.record import Record


def build_record(number: int, *, layer: str = "", stdout: bytes = b"", facts: int = 3) -> Record:
    """A record of action `number`, not in any journal yet."""
    footprint = Footprint(
        saw=frozenset(f"/usr/lib/{n}.so" for n in range(facts)),
        missed=frozenset({f"/workspace/not\udcff-{number}"}),
        wrote=frozenset({f"/workspace/{number}"}),
    )
    manifest = Manifest({f"/workspace/{number}": Entry("file", size=number)}, frozenset({"/workspace/old"}))
    return Record(
        record_id=NEW,
        revision=1,
        action=Action(ActionId(f"a{number}"), shell=f"echo {number}"),
        launch=LaunchContext({"PATH": "/bin"}),
        handoff=LaunchContext({"PATH": "/bin", "N": str(number)}, "/workspace"),
        outcome=Outcome(0, None, stdout=stdout, started_ns=number, ended_ns=number + 1),
        footprint=footprint,
        layer=Layer(LayerId(layer or f"layer-{number}"), manifest, 4096),
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder for a store, not made yet."""
    return tmp_path / "store"


@pytest.fixture
def store(home: Path):
    """An open store without sessions."""
    with Store.open(home) as opened:
        yield opened


@pytest.fixture
def session(store: Store) -> str:
    """The name of a session without actions, which stands on one layer."""
    bottom = [Layer(LayerId("skeleton"), Manifest({"/tmp": Entry("dir", mode=0o1777)}))]
    store.create("work", base={"kind": "host"}, bottom=bottom, launch=LaunchContext({"HOME": "/root"}))
    return "work"


@pytest.fixture
def make_record():
    """The function that makes records up."""
    return build_record


@pytest.fixture
def fill(store: Store, session: str):
    """A function that appends the actions of these numbers to the session and gives the head after each."""

    def append_all(*numbers: int) -> list[int]:
        heads = []
        for number in numbers:
            head = store.get(session).head
            heads.append(store.journal.append(session, head, build_record(number, stdout=b"%d" % number)).head)
        return heads

    return append_all
