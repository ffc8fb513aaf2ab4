"""Schema: the tables of `store.db`, and its version, which is checked before anything else is read.

Knows SQL. Gives an initialised or checked database. Knows nothing of records or sessions beyond their columns.

The version lives in the header of the database file (`PRAGMA user_version`), so that a store of another version is
recognised without reading one of its tables. `application_id` tells a store from some other program's database.

The tables are told by their history: those of version 1, which are never edited again, and in `UPGRADES` what makes a store of
version n one of n + 1. A new store takes the same steps as an old one that is opened, so the two can't come out different.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mulligan.errors import SchemaVersionError, StoreError

if TYPE_CHECKING:
    import sqlite3

APPLICATION_ID: Final = 0x4D554C4C  # "MULL"

# History is a persistent chain: a node names its parent and the record it adds, and is never edited. A head is a node,
# or 0 for the state before the first action; so branches share their past, and a rollback moves one number.
# Paths are BLOBs, because a path need not be UTF-8.
_FIRST: Final = """
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

# Statements that make a store of version n one of n + 1, divided by semicolons: none may stand inside of a statement. A table
# that is to be made anew keeps its rows' foreign keys: they are checked, so fill the new one before the old one is dropped.
UPGRADES: Final[dict[int, str]] = {
    1: """
CREATE TABLE floors (
    session INTEGER PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    node    INTEGER NOT NULL REFERENCES nodes (id),
    layer   TEXT NOT NULL REFERENCES layers (id)
) STRICT;
CREATE INDEX floors_by_node ON floors (node);
CREATE INDEX floors_by_layer ON floors (layer);
""",
    2: """
CREATE TABLE index_segments (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    first    INTEGER NOT NULL UNIQUE,
    size     INTEGER NOT NULL,
    postings INTEGER NOT NULL,
    names    BLOB NOT NULL,
    launches BLOB NOT NULL,
    handoffs BLOB NOT NULL
) STRICT;
CREATE TABLE index_pages (
    segment INTEGER NOT NULL REFERENCES index_segments (id) ON DELETE CASCADE,
    bucket  INTEGER NOT NULL,
    data    BLOB NOT NULL,
    PRIMARY KEY (segment, bucket)
) STRICT, WITHOUT ROWID;
""",
}
VERSION: Final = 1 + len(UPGRADES)


def is_new(db: sqlite3.Connection) -> bool:
    """Whether the database holds nothing yet."""
    return _pragma(db, "user_version") == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0


def create(db: sqlite3.Connection) -> None:
    """Lay down the tables in one transaction; the version becomes visible with them or not at all."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("BEGIN IMMEDIATE")
    _execute(db, _FIRST)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA user_version = 1")
    _upgrade(db)
    db.execute("COMMIT")


def check(db: sqlite3.Connection, where: str) -> None:
    """Refuse a database that is not a store, or one of a version that this Mulligan can neither read nor upgrade."""
    if _pragma(db, "application_id") != APPLICATION_ID:
        raise StoreError(
            f"open store {where}: the file is a database of another program",
            remedy="name another folder in MULLIGAN_HOME",
        )
    found = _pragma(db, "user_version")
    if not 1 <= found <= VERSION:
        raise SchemaVersionError(
            f"open store {where}: it has schema version {found}, and this Mulligan reads version {VERSION}",
            remedy="use the Mulligan that wrote it, or name another folder in MULLIGAN_HOME",
        )


def upgrade(db: sqlite3.Connection) -> None:
    """Bring a checked store of an earlier version to this one, in one transaction; cut short, it is what it was."""
    if _pragma(db, "user_version") == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        _upgrade(db)  # reads the version anew: another process may have been first
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk may have rolled back already
            db.execute("ROLLBACK")
        raise


def _upgrade(db: sqlite3.Connection) -> None:
    for version in range(_pragma(db, "user_version"), VERSION):
        _execute(db, UPGRADES[version])
        db.execute(f"PRAGMA user_version = {version + 1}")


def _execute(db: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        if statement.strip():
            db.execute(statement)


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
