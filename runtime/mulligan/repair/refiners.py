"""Refiners: how a part of a file is cut out of it, so that an action that only read this part can be kept.

Knows a file's bytes, and those of its `-wal` and `-journal` beside it. A refiner takes the SPEC of a declared key
`dat:PATH#NAME:SPEC` and the bytes, and gives a value; two values that are equal mean that the part is the same. It raises
ValueError for what it can't read, and then the part counts as differing. To add one:

    def column(spec: str, files: Mapping[str, bytes]) -> object:
        rows = csv.DictReader(io.StringIO(files[""].decode()))   # UnicodeDecodeError is a ValueError
        return [row[spec] for row in rows]

    mulligan.register_refiner("column", column)                  # --reads 'dat:/workspace/a.csv#column:price'

A refiner must be registered where the repair is made; a part whose refiner is not known counts as differing.

The bytes come from a guest and are hostile. SQLite opens a private copy, without extensions, and may work on it for a bounded
time and in bounded memory; a damaged or a very large file differs, whatever is in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import tempfile
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from mulligan.errors import UsageError
from mulligan.model.part import LARGEST_REFINED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mulligan.model.part import FilePart

    Refiner = Callable[[str, Mapping[str, bytes]], object]

_SECONDS: Final = 5.0  # that SQLite may work on one part
_STEPS: Final = 10_000  # of SQLite's machine between two looks at the clock


def register_refiner(name: str, refiner: Refiner) -> None:
    """Let declared parts `#NAME:SPEC` be cut out by this function. Raises UsageError for a name that could not be written."""
    if not (name.isascii() and name.replace("-", "").replace("_", "").isalnum() and name == name.lower() and name[0].isalpha()):
        raise UsageError(f"refiner {name!r}: a name has lower-case letters, digits, - and _, a letter first")
    _REFINERS[name] = refiner


def check_part(part: FilePart) -> None:
    """Refuse a part that could never be cut out. Raises UsageError."""
    if part.refiner not in _REFINERS:
        raise UsageError(f"declare {part}: there is no refiner {part.refiner!r}", remedy=f"use one of {', '.join(_REFINERS)}")
    if not part.spec and part.refiner == "table":
        raise UsageError(f"declare {part}: it names no table")
    if part.refiner == "json" and part.spec and not part.spec.startswith("/"):
        raise UsageError(f"declare {part}: a JSON pointer is empty or begins with /")


def same_part(part: FilePart, old: Mapping[str, bytes], new: Mapping[str, bytes]) -> bool:
    """Whether the part is the same in both versions of the file, as far as that can be told."""
    refiner = _REFINERS.get(part.refiner)
    if refiner is None:
        return False
    try:
        return refiner(part.spec, old) == refiner(part.spec, new)
    except ValueError:
        return False


# -------------------------------------------------------------------------------------------------- SQLite


def _table(spec: str, files: Mapping[str, bytes]) -> object:
    """A table: how it is defined, and a digest of its rows in their order. None when there is none."""
    with tempfile.TemporaryDirectory(prefix="mulligan-part-") as folder:
        for ending, data in files.items():
            with open(os.path.join(folder, f"db{ending}"), "xb") as file:
                file.write(data)
        try:
            with closing(sqlite3.connect(f"file:{folder}/db?mode=rw", uri=True, isolation_level=None)) as db:
                _confine(db)
                found = db.execute("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (spec,)).fetchone()
                return None if found is None else (found[0], _digest(db, spec, found[0]))
        except (sqlite3.Error, sqlite3.Warning, OverflowError, MemoryError) as error:
            raise ValueError(f"read table {spec!r}: {error}") from error


def _confine(db: sqlite3.Connection) -> None:
    deadline = time.monotonic() + _SECONDS
    db.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_REFINED)
    db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    db.text_factory = lambda raw: ("text", raw)  # exact bytes, and no blob of the same ones
    for pragma in ("query_only = 1", "trusted_schema = 0", "cell_size_check = 1", "temp_store = 2", "mmap_size = 0"):
        db.execute(f"PRAGMA {pragma}")


def _digest(db: sqlite3.Connection, table: str, sql: Any) -> bytes:
    if b"virtual" in sql[1][:32].lower():
        raise ValueError(f"read table {table!r}: it is virtual, and lies in other tables")
    digest = hashlib.blake2b()
    for row in _rows(db, '"{}"'.format(table.replace('"', '""'))):
        digest.update(repr(row).encode() + b"\n")
    return digest.digest()


def _rows(db: sqlite3.Connection, quoted: str) -> Iterator[tuple[object, ...]]:
    try:
        rows = db.execute(f"SELECT rowid, * FROM {quoted} NOT INDEXED")
    except sqlite3.OperationalError:  # a table WITHOUT ROWID; anything else will be told by the next line
        rows = db.execute(f"SELECT * FROM {quoted} NOT INDEXED")
    yield from rows


# -------------------------------------------------------------------------------------------------- JSON


def _json(spec: str, files: Mapping[str, bytes]) -> object:
    """What a JSON pointer (RFC 6901) points at, as text; None when there is nothing there."""
    try:
        value = json.loads(files[""])
        for step in spec.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                value = value[name]
            elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
                value = value[int(name)]
            else:
                return None
        return json.dumps(value)
    except RecursionError as error:
        raise ValueError(f"read JSON at {spec!r}: it is nested too deeply") from error


_REFINERS: dict[str, Refiner] = {"table": _table, "json": _json}
