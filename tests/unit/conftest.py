"""Made-up histories for the tests of the pure middle: records told by what they relied on and what they wrote."""

from __future__ import annotations

import pytest

from mulligan.model.action import Action, LaunchContext, Outcome
from mulligan.model.footprint import Footprint
from mulligan.model.ids import ActionId, LayerId, RecordId
from mulligan.model.layer import Entry, Layer, Manifest
from mulligan.model.record import Record
from mulligan.repair.planner import Pass, build_plan

LAUNCH = LaunchContext({"PATH": "/bin"}, "/w")


class Story:
    """A history in the making. `content` has the bytes of each layer's files, by layer and path."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.content: dict[tuple[str, str], bytes] = {}
        self.bottom = [self.layer("base", {"/w": Entry("dir"), "/w/a": b"A", "/w/d": Entry("dir"), "/w/d/x": b"X"})]
        self.handoff = LAUNCH

    def layer(self, name, writes, removes=()) -> Layer:
        """A layer that makes files of these bytes, or has these entries."""
        entries = {}
        for path, value in writes.items():
            if isinstance(value, bytes):
                self.content[name, path] = value
            entries[path] = value if isinstance(value, Entry) else Entry("file", size=len(value))
        return Layer(LayerId(name), Manifest(entries, frozenset(removes)))

    def record(
        self,
        name,
        writes=None,
        removes=(),
        *,
        layer="",
        stdout=b"",
        stderr=b"",
        env=None,
        cwd=None,
        exit_code=0,
        labels=(),
        text=None,
        **facts,
    ) -> Record:
        """A record that belongs to no history yet. `facts` are a footprint's sets."""
        handoff = LaunchContext({**self.handoff.env, **(env or {})}, cwd or self.handoff.cwd)
        sets = {key: frozenset(v) if isinstance(v, (list, set)) else v for key, v in facts.items()}
        return Record(
            record_id=RecordId(1),
            revision=1,
            action=Action(ActionId(name), shell=text or f"do {name}", labels=labels),
            launch=self.handoff,
            handoff=handoff,
            outcome=Outcome(exit_code, None, stdout=stdout, stderr=stderr),
            footprint=Footprint(**sets),
            layer=self.layer(layer or f"layer-{name}", writes or {}, removes),
        )

    def act(self, writes=None, removes=(), **facts) -> Record:
        """Append a record."""
        record = self.record(f"a{len(self.records) + 1}", writes, removes, **facts)
        self.records.append(record)
        self.handoff = record.handoff
        return record

    def same_bytes(self, layer, path, other, at) -> bool:
        """Whether two layers hold the same bytes."""
        return self.content[layer, path] == self.content[other, at]

    def bytes_of(self, layer, path) -> bytes:
        """What a layer's file holds."""
        return self.content[layer, path]

    def plan(self, *changes, **options):
        """The dry run."""
        options = {"same_bytes": self.same_bytes, "first_launch": LAUNCH, "content": self.bytes_of, **options}
        return build_plan(self.records, self.bottom, changes, **options)

    def walk(self, *changes, **options) -> Pass:
        """The exact pass."""
        options = {"same_bytes": self.same_bytes, "first_launch": LAUNCH, "content": self.bytes_of, **options}
        return Pass(self.records, self.bottom, changes, **options)


@pytest.fixture
def story() -> Story:
    """An empty history over /w/a, /w/d and /w/d/x."""
    return Story()
