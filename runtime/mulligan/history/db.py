"""Db: one connection to `store.db`, its transactions, and SQLite's errors as ours.

Knows sqlite3. Gives `Db.read()` and `Db.write()`, each a transaction. Knows nothing of what the tables mean.

Durability: WAL with `synchronous = FULL`, so a transaction whose COMMIT has returned outlives a power cut, and a
process killed at any instant leaves the state before or after it. Writers begin with BEGIN IMMEDIATE: a transaction
that read first and wants to write later could get SQLITE_BUSY at once, without the busy handler being asked, when
another writer came in between.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

from mulligan.errors import ConflictError, DiskFullError, HostError, MulliganError, StoreError, UsageError
from mulligan.history import schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

BUSY_SECONDS: Final = 30.0
_ROOM: Final = 1 << 20  # with less free than this, an I/O error counts as a full disk


class Db:
    """A connection, safe for use from several threads of the process that opened it, and closed as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._closed = False
        with self._translated("open"):
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
            )
            try:
                self._connection.execute("PRAGMA foreign_keys = ON")
                self._connection.execute("PRAGMA synchronous = FULL")
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; closing twice is harmless."""
        with self._lock, self._translated("close"):
            self._connection.close()
            self._closed = True

    def prepare(self) -> None:
        """Create the tables in a new database, or check those of an old one and bring them to this version."""
        with self._lock, self._translated("open"):
            if schema.is_new(self._connection):
                schema.create(self._connection)
            schema.check(self._connection, str(self._path.parent))
            schema.upgrade(self._connection)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the store and changes nothing."""
        with self._lock, self._translated("read"), self._transaction("BEGIN"):
            yield self._connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is durable when the block has ended, and has left nothing when the block raised."""
        with self._lock, self._translated("write"), self._transaction("BEGIN IMMEDIATE"):
            yield self._connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        if self._connection.in_transaction:  # a nested block is part of the one around it
            yield
            return
        self._connection.execute(begin)
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # A failed COMMIT or a full disk may have rolled back already (sqlite.org/lang_transaction.html).
            with suppress(sqlite3.OperationalError):
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self, operation: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._ours(operation, error) from error

    def _ours(self, operation: str, error: sqlite3.Error) -> MulliganError:
        if self._closed:
            return UsageError(f"{operation} store {self._path.parent}: it was closed", remedy="open the session again")
        code = getattr(error, "sqlite_errorcode", 0)
        what = f"{operation} store {self._path.parent}: {error}"
        match code & 0xFF:  # the low byte is the primary code (sqlite.org/rescode.html)
            case sqlite3.SQLITE_FULL:
                return DiskFullError(what, remedy="free space there, or run `mulligan gc`")
            case sqlite3.SQLITE_IOERR if self._is_full():
                return DiskFullError(what, remedy="free space there, or run `mulligan gc`")
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return ConflictError(f"{what} by another process for {BUSY_SECONDS:.0f} s", remedy="try again")
            case sqlite3.SQLITE_CANTOPEN if self._is_full():
                return DiskFullError(what, remedy="free space there, or run `mulligan gc`")
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                return HostError(what, remedy="make the folder writable for this user, or set MULLIGAN_HOME")
            case sqlite3.SQLITE_IOERR:
                return HostError(what, remedy="check the disk it lies on (the kernel's log names the fault)")
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return StoreError(f"{what}: the file is damaged", remedy="restore it from a copy, or set MULLIGAN_HOME")
            case _:
                return StoreError(what)

    def _is_full(self) -> bool:
        try:
            room = os.statvfs(self._path.parent)
        except OSError:
            return False
        return room.f_bavail * room.f_frsize < _ROOM or (room.f_files > 0 and room.f_favail == 0)
