"""Store: the folder that keeps everything, and the sessions in it.

Knows the database, the locks and the journal. Gives `Store`, a context manager. Knows nothing of layers' files below
`<store>/layers`, nor of how an action is run.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import platformdirs

from mulligan.errors import AlreadyExistsError, DiskFullError, HostError, NotFoundError, UsageError
from mulligan.history import codec
from mulligan.history.db import Db
from mulligan.history.floors import Floor
from mulligan.history.journal import Journal, add_layer, check_head, expect_head, no_session
from mulligan.history.locks import Locks
from mulligan.model.ids import LayerId

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from mulligan.model.action import LaunchContext
    from mulligan.model.layer import Layer

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_SESSION: Final = (
    "SELECT id, name, base, launch, config, coalesce(head, 0), next_action, created_ns, node, layer"
    " FROM sessions LEFT JOIN floors ON floors.session = sessions.id"
)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as stored: its base, the layers it stands on before its first action (bottom first), and its head.

    `base` and `config` are JSON-able and belong to the layers above; `head` is 0 before the first action. Below its `floor`,
    if it has one, its states can't be rebuilt.
    """

    name: str
    base: Mapping[str, Any]
    bottom: tuple[LayerId, ...]
    launch: LaunchContext
    config: Mapping[str, Any]
    head: int
    next_action: int
    created_ns: int
    floor: Floor | None = None


def default_home(environ: Mapping[str, str]) -> Path:
    """The store's folder: `$MULLIGAN_HOME`, else the user's data folder of this platform."""
    named = environ.get("MULLIGAN_HOME")
    return Path(named).absolute() if named else Path(platformdirs.user_data_dir("mulligan", appauthor=False))


def check_name(name: str) -> str:
    """The name itself, when a session may have it."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be a session's name",
            remedy="use up to 100 letters, digits, '.', '_' and '-', and begin with a letter, a digit or '_'",
        )
    return name


class Store:
    """An open store; several processes may have one open at once."""

    def __init__(self, home: Path, db: Db) -> None:
        self.home = home
        self.journal = Journal(db)
        self._db = db
        self._locks = Locks(home / "locks")

    @classmethod
    def open(cls, home: Path) -> Self:
        """Open the store at `home`, making it when it is not there."""
        home = home.absolute()  # the sandbox is told where layers lie, and has another working folder
        try:
            _make_home(home)
            return cls._open(home)
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            kind = DiskFullError if full else HostError
            remedy = "free space there" if full else "make the folder writable for this user, or set MULLIGAN_HOME"
            raise kind(f"open store {home}: {error.strerror}", remedy=remedy) from error

    @classmethod
    def _open(cls, home: Path) -> Self:
        with ExitStack() as cleanup:
            # One opener at a time: two that switch a new database to WAL at once would get SQLITE_BUSY.
            with Locks(home / "locks").opening():
                db = cleanup.enter_context(Db(home / "store.db"))
                db.prepare()
            cleanup.pop_all()
        return cls(home, db)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; closing twice is harmless."""
        self._db.close()

    def create(
        self,
        name: str,
        *,
        base: Mapping[str, Any],
        bottom: Sequence[Layer],
        launch: LaunchContext,
        config: Mapping[str, Any] | None = None,
    ) -> SessionRow:
        """Add a session that stands on the layers `bottom`, bottom first. Raises AlreadyExistsError."""
        check_name(name)
        blobs = (codec.encode_settings(base), codec.encode_launch(launch), codec.encode_settings(config or {}))
        with self._db.write() as db:
            _refuse_taken(db, name)
            row = db.execute(
                "INSERT INTO sessions (name, base, launch, config, next_action, created_ns) VALUES (?, ?, ?, ?, 1, ?)",
                (name, *blobs, time.time_ns()),
            )
            for position, layer in enumerate(bottom):
                add_layer(db, layer)
                db.execute("INSERT INTO session_layers VALUES (?, ?, ?)", (row.lastrowid, position, layer.id))
            return _get(db, name)

    def configure(self, name: str, config: Mapping[str, Any]) -> None:
        """Replace the configuration of a session. The caller holds its lock."""
        with self._db.write() as db:
            db.execute("UPDATE sessions SET config = ? WHERE id = ?", (codec.encode_settings(config), _number(db, name)))

    def refuse_taken(self, name: str) -> None:
        """Raise AlreadyExistsError when there is a session of this name, before work is done for a new one."""
        with self._db.read() as db:
            _refuse_taken(db, check_name(name))

    def expect_head(self, name: str, head: int) -> None:
        """Raise ConflictError when the session has moved on from `head`."""
        with self._db.read() as db:
            expect_head(db, name, head)

    def branch(self, name: str, new: str, at: int) -> SessionRow:
        """Add the session `new`, which shares everything with `name` up to the head `at`."""
        check_name(new)
        with self._db.write() as db:
            number = _number(db, name)
            _refuse_taken(db, new)
            check_head(db, at)
            row = db.execute(
                "INSERT INTO sessions (name, base, launch, config, head, next_action, created_ns)"
                " SELECT ?, base, launch, config, ?, next_action, ? FROM sessions WHERE id = ?",
                (new, at or None, time.time_ns(), number),
            )
            pair = (row.lastrowid, number)
            db.execute("INSERT INTO session_layers SELECT ?, position, layer FROM session_layers WHERE session = ?", pair)
            db.execute("INSERT INTO pins SELECT ?, label, head FROM pins WHERE session = ?", pair)
            db.execute("INSERT INTO floors SELECT ?, node, layer FROM floors WHERE session = ?", pair)
            db.execute(
                "INSERT INTO base_versions SELECT ?, path, mtime_ns, size, ino FROM base_versions WHERE session = ?",
                pair,
            )
            return _get(db, new)

    def get(self, name: str) -> SessionRow:
        """The session of this name. Raises NotFoundError, naming those that exist."""
        with self._db.read() as db:
            return _get(db, name)

    def sessions(self) -> list[SessionRow]:
        """All sessions, by name."""
        with self._db.read() as db:
            return [_row(db, row) for row in db.execute(_SESSION + " ORDER BY name").fetchall()]

    def remove(self, name: str) -> None:
        """Remove a session; its layers go with the next gc. The caller holds its lock (`locked`)."""
        with self._db.write() as db:
            db.execute("DELETE FROM sessions WHERE id = ?", (_number(db, name),))
        self._locks.forget(name)

    def lay_floors(self, floors: Mapping[str, Floor], layers: Iterable[Layer]) -> None:
        """Set the floors of these sessions, all or none; `layers` are what they name, sealed and durable.

        The caller holds the store alone (`exclusive`), and has found the states in the sessions' present histories.
        """
        with self._db.write() as db:
            for layer in layers:
                add_layer(db, layer)
            for name, floor in floors.items():
                db.execute("INSERT OR REPLACE INTO floors VALUES (?, ?, ?)", (_number(db, name), floor.node, floor.layer))

    def tidy(self) -> None:
        """Remove what a killed process left beside the database. The caller holds the store alone (`exclusive`)."""
        self._locks.tidy({row.name for row in self.sessions()})

    @contextmanager
    def locked(self, name: str, on_wait: Callable[[], None] | None = None) -> Iterator[SessionRow]:
        """Hold a session alone, and give it as it stands then; `on_wait` is called once if this call has to wait."""
        check_name(name)
        with self._locks.session(name, on_wait):
            try:
                row = self.get(name)
            except NotFoundError:
                self._locks.forget(name)
                raise
            yield row

    @contextmanager
    def sharing(self, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Keep gc away while layers are made that no session names yet."""
        with self._locks.sharing(on_wait):
            yield

    @contextmanager
    def exclusive(self, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Hold the whole store alone, for gc."""
        with self._locks.exclusive(on_wait):
            yield


def _make_home(home: Path) -> None:
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
    there = home.stat()
    if not stat.S_ISDIR(there.st_mode):
        raise UsageError(f"open store {home}: it is not a folder", remedy="set MULLIGAN_HOME to a folder")
    if there.st_uid != os.geteuid() or there.st_mode & stat.S_IWOTH:
        whose = "everybody may write to it" if there.st_uid == os.geteuid() else f"it belongs to user {there.st_uid}"
        raise HostError(f"open store {home}: {whose}", remedy="set MULLIGAN_HOME to a folder of your own")
    (home / "locks").mkdir(mode=0o700, exist_ok=True)


def _refuse_taken(db: sqlite3.Connection, name: str) -> None:
    if db.execute("SELECT 1 FROM sessions WHERE name = ?", (name,)).fetchone():
        raise AlreadyExistsError(
            f"session {name} exists already", remedy=f"take another name, or remove it with `mulligan rm {name}`"
        )


def _number(db: sqlite3.Connection, name: str) -> int:
    row = db.execute("SELECT id FROM sessions WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise no_session(db, name)
    return int(row[0])


def _get(db: sqlite3.Connection, name: str) -> SessionRow:
    row = db.execute(_SESSION + " WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise no_session(db, name)
    return _row(db, row)


@functools.lru_cache(maxsize=64)
def _settings(blob: bytes) -> Mapping[str, Any]:
    """Settings never change but as a whole, and a session is asked for several times in each run of an action."""
    return codec.decode_settings(blob)


@functools.lru_cache(maxsize=64)
def _launch(blob: bytes) -> LaunchContext:
    return codec.decode_launch(blob)


def _row(db: sqlite3.Connection, row: tuple[Any, ...]) -> SessionRow:
    number, name, base, launch, config, head, next_action, created_ns, floor, folded = row
    layers = db.execute("SELECT layer FROM session_layers WHERE session = ? ORDER BY position", (number,))
    return SessionRow(
        name=name,
        base=_settings(base),
        bottom=tuple(LayerId(layer) for (layer,) in layers),
        launch=_launch(launch),
        config=_settings(config),
        head=head,
        next_action=next_action,
        created_ns=created_ns,
        floor=None if floor is None else Floor(floor, LayerId(folded)),
    )
