"""Long histories: a session plans by its index, to the same end as by reading every record."""

from __future__ import annotations

import pytest

from mulligan import Drop, Patch, Replace, Rerun, Session
from mulligan.history import index

ACTIONS = [
    "mkdir -p src out; echo one > src/a; echo two > src/b", "cat src/a > out/a", "cat src/b > out/b", "ls out > listing",
    "rm -r out; mkdir out; echo new > out/a", "cat out/a src/b > all", "echo x >> src/a", "ln src/a src/c; chmod 600 src/c",
    "cat src/c | wc -c > size", "mv src/b src/d", "cat listing size > report", "cat src/b || echo none > missing",
]  # fmt: skip
CHANGES = [
    (Drop("a2"),), (Replace("a1", "mkdir src out; echo 1 > src/a; echo 2 > src/b"),), (Drop("a5"),), (Rerun("a7"),), (Drop("a8"),),
    (Patch("/workspace/src/a", b"patched\n", at="a3"),), (Drop("a10"), Rerun("a4")),
]  # fmt: skip


@pytest.fixture
def session(tmp_path, monkeypatch):
    """A session of a dozen real actions, which is long enough here; its index has segments of four."""
    monkeypatch.setattr(index, "SMALLEST", 4)
    monkeypatch.setattr(index, "FAN", 2)
    with Session.create("long", home=tmp_path / "store") as opened:
        for text in ACTIONS:
            opened.run(text)
        yield opened


def test_a_plan_by_the_index_is_the_plan(session, monkeypatch):
    """Of real actions, whatever the change: the same steps for the same reasons; and again after a repair."""
    assert session._store.journal.index.segments(), "nothing was indexed while the actions ran"
    for _ in range(2):
        for changes in CHANGES:
            plans = []
            for long in (1, 10**9):
                monkeypatch.setattr("mulligan.session.LONG", long)
                plans.append(session.plan(*changes))
            assert plans[0].steps == plans[1].steps, changes
        assert session.repair(Replace("a1", "mkdir -p src out; echo uno > src/a; echo two > src/b")).applied
        monkeypatch.setattr("mulligan.session.LONG", 1)


def test_a_repair_by_such_a_plan(session, monkeypatch):
    """It runs what it says, and the result is as it should be."""
    monkeypatch.setattr("mulligan.session.LONG", 1)
    report = session.repair(Replace("a1", "mkdir -p src out; echo uno > src/a; echo two > src/b"))
    assert report.applied
    assert session.files.read("/workspace/out/a") == "new\n"
    assert session.files.read("/workspace/size") == "6\n"
