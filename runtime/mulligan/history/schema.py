"""Schema: the tables of `store.db`, and its version, which is checked before anything else is read.

Knows SQL. Gives an initialised or checked database. Knows nothing of records or sessions beyond their columns.

The version lives in the header of the database file (`PRAGMA user_version`), so that a store of another version is
recognised without reading one of its tables. `application_id` tells a store from some other program's database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mulligan.errors import SchemaVersionError, StoreError

if TYPE_CHECKING:
    import sqlite3

VERSION: Final = 1
APPLICATION_ID: Final = 0x4D554C4C  # "MULL"

# History is a persistent chain: a node names its parent and the record it adds, and is never edited. A head is a node,
# or 0 for the state before the first action; so branches share their past, and a rollback moves one number.
# Paths are BLOBs, because a path need not be UTF-8.
_TABLES: Final = """
CREATE TABLE layers (
    id       TEXT PRIMARY KEY,
    bytes    INTEGER NOT NULL,
    manifest BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE streams (
    digest BLOB PRIMARY KEY,
    data   BLOB NOT NULL
) STRICT;
CREATE TABLE records (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    action   TEXT NOT NULL,
    revision INTEGER NOT NULL,
    layer    TEXT NOT NULL REFERENCES layers (id),
    stdout   BLOB REFERENCES streams (digest),
    stderr   BLOB REFERENCES streams (digest),
    body     BLOB NOT NULL
) STRICT;
CREATE TABLE nodes (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    parent INTEGER REFERENCES nodes (id),
    record INTEGER NOT NULL REFERENCES records (id)
) STRICT;
CREATE TABLE sessions (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT NOT NULL UNIQUE,
    base        BLOB NOT NULL,
    launch      BLOB NOT NULL,
    config      BLOB NOT NULL,
    head        INTEGER REFERENCES nodes (id),
    next_action INTEGER NOT NULL,
    created_ns  INTEGER NOT NULL
) STRICT;
CREATE TABLE session_layers (
    session  INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    layer    TEXT NOT NULL REFERENCES layers (id),
    PRIMARY KEY (session, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE pins (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    label   BLOB NOT NULL,
    head    INTEGER REFERENCES nodes (id),
    PRIMARY KEY (session, label)
) STRICT, WITHOUT ROWID;
CREATE TABLE base_versions (
    session  INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    path     BLOB NOT NULL,
    mtime_ns INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    ino      INTEGER NOT NULL,
    PRIMARY KEY (session, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX nodes_by_parent ON nodes (parent);
CREATE INDEX nodes_by_record ON nodes (record);
CREATE INDEX records_by_layer ON records (layer);
CREATE INDEX records_by_stdout ON records (stdout);
CREATE INDEX records_by_stderr ON records (stderr);
"""


def is_new(db: sqlite3.Connection) -> bool:
    """Whether the database holds nothing yet."""
    return _pragma(db, "user_version") == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0


def create(db: sqlite3.Connection) -> None:
    """Lay down the tables in one transaction; the version becomes visible with them or not at all."""
    db.execute("PRAGMA journal_mode = WAL")
    statements = [s for s in _TABLES.split(";") if s.strip()]
    db.execute("BEGIN IMMEDIATE")
    for statement in statements:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")


def check(db: sqlite3.Connection, where: str) -> None:
    """Refuse a database that is not a store, or one of another version."""
    if _pragma(db, "application_id") != APPLICATION_ID:
        raise StoreError(
            f"open store {where}: the file is a database of another program",
            remedy="name another folder in MULLIGAN_HOME",
        )
    found = _pragma(db, "user_version")
    if found != VERSION:
        raise SchemaVersionError(
            f"open store {where}: it has schema version {found}, and this Mulligan reads version {VERSION}",
            remedy="use the Mulligan that wrote it, or name another folder in MULLIGAN_HOME",
        )


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
