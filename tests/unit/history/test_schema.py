"""Upgrades: a store of an earlier version is brought to this one when it is opened, all at once or not at all."""

from __future__ import annotations

import sqlite3

import pytest

from mulligan.errors import SchemaVersionError, StoreError
from mulligan.history import schema
from mulligan.history.store import Store
from mulligan.model.action import LaunchContext
from mulligan.model.layer import Layer, Manifest

# The tables as the first version of Mulligan made them.
VERSION_1 = """
CREATE TABLE layers (id TEXT PRIMARY KEY, bytes INTEGER NOT NULL, manifest BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE streams (digest BLOB PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE records (
    id INTEGER PRIMARY KEY AUTOINCREMENT, action TEXT NOT NULL, revision INTEGER NOT NULL,
    layer TEXT NOT NULL REFERENCES layers (id), stdout BLOB REFERENCES streams (digest),
    stderr BLOB REFERENCES streams (digest), body BLOB NOT NULL
) STRICT;
CREATE TABLE nodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, parent INTEGER REFERENCES nodes (id), record INTEGER NOT NULL REFERENCES records (id)
) STRICT;
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, base BLOB NOT NULL, launch BLOB NOT NULL,
    config BLOB NOT NULL, head INTEGER REFERENCES nodes (id), next_action INTEGER NOT NULL, created_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE session_layers (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE, position INTEGER NOT NULL,
    layer TEXT NOT NULL REFERENCES layers (id), PRIMARY KEY (session, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE pins (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE, label BLOB NOT NULL,
    head INTEGER REFERENCES nodes (id), PRIMARY KEY (session, label)
) STRICT, WITHOUT ROWID;
CREATE TABLE base_versions (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE, path BLOB NOT NULL, mtime_ns INTEGER NOT NULL,
    size INTEGER NOT NULL, ino INTEGER NOT NULL, PRIMARY KEY (session, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX nodes_by_parent ON nodes (parent);
CREATE INDEX nodes_by_record ON nodes (record);
CREATE INDEX records_by_layer ON records (layer);
CREATE INDEX records_by_stdout ON records (stdout);
CREATE INDEX records_by_stderr ON records (stderr);
PRAGMA application_id = 1297435724;
PRAGMA user_version = 1;
"""
NEXT = "ALTER TABLE layers ADD COLUMN depth INTEGER; CREATE TABLE marks (layer TEXT REFERENCES layers (id)) STRICT"


@pytest.fixture
def old_home(home):
    """A store of version 1."""
    home.mkdir(mode=0o700)
    db = sqlite3.connect(home / "store.db")
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(VERSION_1)
    db.close()
    return home


@pytest.fixture
def next_version(monkeypatch):
    """Schema versions above this one, each with its statements: `next_version(NEXT)` is one, with two there are two."""

    def add(*statements):
        first = schema.VERSION
        monkeypatch.setattr(schema, "VERSION", first + len(statements))
        for number, text in enumerate(statements, first):
            monkeypatch.setitem(schema.UPGRADES, number, text)

    return add


def tables(home):
    """Version, tables with their columns, and indexes of a store."""
    db = sqlite3.connect(home / "store.db")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    columns = {name: db.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in names}
    indexes = db.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index' ORDER BY name").fetchall()
    db.close()
    return version, columns, indexes


def test_an_old_store_becomes_what_a_new_one_is(old_home, tmp_path):
    """A store of the first version and a new one have the same tables once they were opened, and the old one works."""
    with Store.open(old_home) as store, Store.open(tmp_path / "new"):
        store.create("s", base={}, bottom=[Layer("one", Manifest())], launch=LaunchContext())
        assert store.get("s").bottom == ("one",)
    assert tables(old_home) == tables(tmp_path / "new")
    assert tables(old_home)[0] == schema.VERSION


def test_every_step_is_taken_and_what_was_stored_stays(home, store, session, next_version):
    """Several versions are made up for at once."""
    before = store.get(session)
    store.close()
    next_version(NEXT, "CREATE TABLE more (x) ; DROP TABLE marks")
    with Store.open(home) as later:
        assert later.get(session) == before
    version, columns, _ = tables(home)
    assert version == schema.VERSION
    assert "more" in columns
    assert "marks" not in columns
    assert "depth" in [column[1] for column in columns["layers"]]


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(home, store, session, next_version):
    """A step that can't be carried out takes the steps before it back, and the store says so."""
    store.close()
    before = tables(home)
    next_version(NEXT, "CREATE TABLE layers (x)")
    with pytest.raises(StoreError, match="layers already exists"):
        Store.open(home)
    assert tables(home) == before


def test_an_upgraded_store_is_refused_by_an_older_program(home, store, session, next_version, monkeypatch):
    """There is no way back: the older program names both versions."""
    store.close()
    older = schema.VERSION
    next_version(NEXT)
    Store.open(home).close()
    monkeypatch.setattr(schema, "VERSION", older)
    with pytest.raises(SchemaVersionError, match=f"has schema version {older + 1}, and this Mulligan reads version {older}"):
        Store.open(home)
