"""Journal: the chain of records of each session, appended to in single transactions.

Knows the tables of schema.py and the codec. Gives append, publish, move and the readings of a chain. Knows nothing of
layers' files: whoever appends a record has sealed and synced its layer before.

A head is the number of a node, 0 for the state before the first action. Every change of a head is a compare-and-swap
against the head the caller worked from; nothing is retired here, so a lost race loses only the caller's own attempt.
What no head reaches any more is dropped by `collect`, which gc calls while it holds the store alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, overload

from mulligan.errors import ConflictError, NotFoundError, StoreError
from mulligan.history import codec
from mulligan.history.floors import HELD
from mulligan.history.index import LARGEST, Index
from mulligan.model.ids import ActionId, LayerId, RecordId, guest_path, raw_path
from mulligan.model.layer import Layer
from mulligan.model.postings import facts_of
from mulligan.model.record import Record

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mulligan.history.db import Db
    from mulligan.history.floors import Floor
    from mulligan.model.postings import Facts

NO_HEAD: Final = 0
NEW: Final = RecordId(0)  # the id of a record that is not in the journal yet

_CHAIN: Final = """
WITH RECURSIVE chain (node, parent, record, depth) AS (
    SELECT id, parent, record, 0 FROM nodes WHERE id = ?
    UNION ALL
    SELECT nodes.id, nodes.parent, nodes.record, chain.depth + 1 FROM chain JOIN nodes ON nodes.id = chain.parent
)
"""
_SINCE: Final = """
WITH RECURSIVE chain (parent, record, depth) AS (
    SELECT parent, record, 0 FROM nodes WHERE id = :head
    UNION ALL
    SELECT nodes.parent, nodes.record, chain.depth + 1 FROM chain JOIN nodes ON nodes.id = chain.parent
    WHERE chain.parent NOT IN (:known, :floor)
)
SELECT layer, coalesce(parent, 0) FROM chain JOIN records ON records.id = chain.record ORDER BY depth DESC
"""
_RECORD: Final = """
SELECT records.id, records.revision, records.body, records.layer, layers.bytes, layers.manifest, out.data, err.data
FROM records
JOIN layers ON layers.id = records.layer
LEFT JOIN streams AS out ON out.digest = records.stdout
LEFT JOIN streams AS err ON err.digest = records.stderr
WHERE records.id = ?
"""
_REACHABLE: Final = """
CREATE TEMP TABLE reachable AS
WITH RECURSIVE kept (node) AS (
    SELECT head FROM sessions WHERE head IS NOT NULL
    UNION
    SELECT head FROM pins WHERE head IS NOT NULL
    UNION
    SELECT nodes.parent FROM kept JOIN nodes ON nodes.id = kept.node WHERE nodes.parent IS NOT NULL
)
SELECT node FROM kept
"""
_NAMED_LAYERS: Final = "SELECT layer FROM records UNION SELECT layer FROM session_layers UNION SELECT layer FROM floors"

_Node = TypeVar("_Node", bound=tuple[Any, ...])

NOTHING_SEEN: Final[Mapping[str, Version]] = MappingProxyType({})


class Version(NamedTuple):
    """What tells one state of a file of the host's base from another."""

    mtime_ns: int
    size: int
    ino: int


class Appended(NamedTuple):
    """A record as it stands in the journal, and the head that includes it."""

    record: Record
    head: int


class Published(NamedTuple):
    """The records of a new chain, oldest first, and its head."""

    records: tuple[Record, ...]
    head: int


@dataclass(frozen=True, slots=True)
class Collected:
    """What `collect` dropped from the database."""

    records: int
    layers: frozenset[LayerId]


class Chain(Sequence[Record]):
    """The records that lead to a head, oldest first, each read when it is asked for."""

    def __init__(self, record_ids: Sequence[RecordId], read: Callable[[RecordId], Record]) -> None:
        self.record_ids = record_ids
        self._read = read

    def __len__(self) -> int:
        return len(self.record_ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # as of a list

    @overload
    def __getitem__(self, position: int) -> Record: ...

    @overload
    def __getitem__(self, position: slice) -> Chain: ...

    def __getitem__(self, position: int | slice) -> Record | Chain:
        if isinstance(position, slice):
            return Chain(self.record_ids[position], self._read)
        return self._read(self.record_ids[position])


class Journal:
    """The records of all sessions of one store. `index` is what is known of them by path."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self.index = Index(db, self._facts)
        self._records: dict[RecordId, Record] = {}  # records never change, so what was read once stays right
        self._layers: dict[LayerId, Layer] = {}
        # A head, the floor that was asked with it, and the layers that lead to it.
        self._walked: tuple[int, Floor | None, tuple[LayerId, ...]] = (NO_HEAD, None, ())

    def append(
        self, session: str, expected_head: int, record: Record, seen: Mapping[str, tuple[int, int, int]] = NOTHING_SEEN
    ) -> Appended:
        """Add a record after `expected_head`, durably or not at all.

        `seen` has the versions of files of the base which the action read; a version stored before stays.
        Raises ConflictError when the head has moved.
        """
        with self._db.write() as db:
            number = expect_head(db, session, expected_head)
            stored = self._insert(db, record)
            head = _add_node(db, expected_head, stored.record_id)
            _set_head(db, number, head, (record.id,))
            db.executemany("INSERT OR IGNORE INTO base_versions VALUES (?, ?, ?, ?, ?)", _version_rows(number, seen))
        self._remember(stored)
        return Appended(stored, head)

    def publish(
        self,
        session: str,
        expected_head: int,
        records: Sequence[Record],
        seen: Mapping[str, tuple[int, int, int]] = NOTHING_SEEN,
        *,
        after: int = NO_HEAD,
    ) -> Published:
        """Make `records`, oldest first, the session's whole history (`after` a state of it), durably or not at all.

        Records with the id `NEW` are added; the others are in the journal already. Nodes of the old chain are used
        again as far as the two agree. `seen` replaces stored versions: the actions that ran again saw these.
        Raises ConflictError when the head has moved.
        """
        with self._db.write() as db:
            number = expect_head(db, session, expected_head)
            stored = [self._insert(db, r) if r.record_id == NEW else r for r in records]
            head = after
            old = iter(_since(_nodes(db, expected_head), after))
            shared = True
            for record in stored:
                node, there = next(old, (NO_HEAD, NEW)) if shared else (NO_HEAD, NEW)
                shared = shared and there == record.record_id
                head = node if shared else _add_node(db, head, record.record_id)
            _set_head(db, number, head, [r.id for r in stored])
            db.executemany("INSERT OR REPLACE INTO base_versions VALUES (?, ?, ?, ?, ?)", _version_rows(number, seen))
        for record in stored:
            self._remember(record)
        return Published(tuple(stored), head)

    def move(self, session: str, expected_head: int, head: int) -> None:
        """Make `head` the session's head. Raises ConflictError when it has moved from `expected_head`."""
        with self._db.write() as db:
            number = expect_head(db, session, expected_head)
            check_head(db, head)
            _set_head(db, number, head, ())

    def pin(self, session: str, label: str, head: int, *, instead_of: str | None = None) -> None:
        """Keep the state `head` from gc under a label of the session's own, in place of what the label named before.

        The label `instead_of` names nothing any more.
        """
        with self._db.write() as db:
            number = _session(db, session)[0]
            check_head(db, head)
            db.execute("INSERT OR REPLACE INTO pins VALUES (?, ?, ?)", (number, raw_path(label), head or None))
            if instead_of is not None:
                db.execute("DELETE FROM pins WHERE session = ? AND label = ?", (number, raw_path(instead_of)))

    def pins(self, session: str) -> dict[str, int]:
        """The states that the session keeps, by label."""
        with self._db.read() as db:
            number = _session(db, session)[0]
            rows = db.execute("SELECT label, coalesce(head, 0) FROM pins WHERE session = ?", (number,))
            return {guest_path(label): head for label, head in rows}

    def chain(self, head: int, since: int = NO_HEAD) -> Chain:
        """The records that lead to `head`, oldest first; those after the state `since`, if that is on the way."""
        with self._db.read() as db:
            return Chain([RecordId(record) for _, record in _since(_nodes(db, head), since)], self._read)

    def passes(self, head: int, state: int) -> bool:
        """Whether the history that leads to `head` has this state."""
        with self._db.read() as db:
            return any(node == state for node, _ in _nodes(db, head))

    def first(self, head: int, floor: Floor | None = None) -> ActionId | None:
        """The first action that leads to `head`, or the first after a floor; None when there is none."""
        query = _CHAIN + "SELECT action FROM chain JOIN records ON records.id = chain.record WHERE coalesce(parent, 0) = ?"
        with self._db.read() as db:
            row = db.execute(query, (head, floor.node if floor else NO_HEAD)).fetchone()
        return ActionId(row[0]) if row else None

    def states(self, head: int, since: int = NO_HEAD) -> list[tuple[int, ActionId]]:
        """Every state on the way to `head`, oldest first, with the action that it is right after."""
        query = _CHAIN + "SELECT node, action FROM chain JOIN records ON records.id = chain.record ORDER BY depth DESC"
        with self._db.read() as db:
            return [(node, ActionId(action)) for node, action in _since(db.execute(query, (head,)).fetchall(), since)]

    def layer_ids(self, head: int, floor: Floor | None = None) -> tuple[LayerId, ...]:
        """The layers of the records that lead to `head`, bottom first, without reading the records.

        Where a floor is on the way, its layer stands for all up to there. Nodes never change: what led to the head that was
        asked for last is not read again when this one continues it.
        """
        stands = {NO_HEAD: (), **({floor.node: (floor.layer,)} if floor else {})}
        if head in stands:
            return stands[head]
        known, lain_on, layers = self._walked
        if lain_on != floor:
            known, layers = NO_HEAD, ()
        if head != known:
            stands[known] = layers
            with self._db.read() as db:
                rows = db.execute(_SINCE, {"head": head, "known": known, "floor": floor.node if floor else known}).fetchall()
            layers = (*(stands[rows[0][1]] if rows else ()), *(LayerId(layer) for layer, _ in rows))
            self._walked = (head, floor, layers)
        return layers

    def last(self, head: int) -> Record | None:
        """The record that `head` adds; None before the first action."""
        with self._db.read() as db:
            row = db.execute("SELECT record FROM nodes WHERE id = ?", (head,)).fetchone()
            return self._load(db, RecordId(row[0])) if row else None

    def record(self, session: str, action: str) -> Record:
        """The record that an action's slot has in the session's present history."""
        return self._slot(session, action)[1]

    def head_at(self, session: str, action: str) -> int:
        """The head right after an action of the session's present history."""
        return self._slot(session, action)[0]

    def length(self, head: int) -> int:
        """How many actions the history up to `head` has."""
        with self._db.read() as db:
            return int(db.execute(_CHAIN + "SELECT count(*) FROM chain", (head,)).fetchone()[0])

    def layer(self, layer: LayerId) -> Layer:
        """A layer, with its manifest, by its id."""
        if layer not in self._layers:
            with self._db.read() as db:
                row = db.execute("SELECT bytes, manifest FROM layers WHERE id = ?", (layer,)).fetchone()
            if row is None:
                raise StoreError(f"read layer {layer}: the journal does not know it")
            self._layers[layer] = Layer(layer, codec.decode_manifest(row[1]), row[0])
        return self._layers[layer]

    def next_action_id(self, session: str, ahead: int = 0) -> ActionId:
        """The id for the session's next action (or the one `ahead` of it); used up when a record with it is stored.

        Call it under the session's lock. The numbers of a session never go back, not even after a rollback.
        """
        with self._db.read() as db:
            return ActionId(f"a{_session(db, session)[2] + ahead}")

    def versions(self, session: str) -> dict[str, Version]:
        """What the session's actions saw of the host's base: path to version."""
        query = "SELECT path, mtime_ns, size, ino FROM base_versions WHERE session = ?"
        with self._db.read() as db:
            number = _session(db, session)[0]
            return {guest_path(path): Version(*rest) for path, *rest in db.execute(query, (number,))}

    def live_layers(self) -> frozenset[LayerId]:
        """The layers that some session, or a state that one has pinned, is made of: all but those that were given up."""
        with self._db.read() as db:
            return frozenset(LayerId(layer) for (layer,) in db.execute(HELD))

    def collect(self, *, dry_run: bool = False) -> Collected:
        """Drop what no head reaches: rolled back and replaced history, and that of removed sessions; or only tell it.

        The caller holds the store alone (`Store.exclusive`).
        """
        with self._db.write() as db:
            db.execute("SAVEPOINT collecting")
            db.execute("DROP TABLE IF EXISTS temp.reachable")
            db.execute(_REACHABLE)
            # Parents and children go in one statement, and foreign keys are checked at its end.
            db.execute("DELETE FROM nodes WHERE id NOT IN (SELECT node FROM reachable)")
            db.execute("DROP TABLE temp.reachable")
            gone = db.execute("DELETE FROM records WHERE id NOT IN (SELECT record FROM nodes)").rowcount
            db.execute(
                "DELETE FROM streams WHERE digest NOT IN (SELECT stdout FROM records WHERE stdout IS NOT NULL)"
                " AND digest NOT IN (SELECT stderr FROM records WHERE stderr IS NOT NULL)"
            )
            layers = db.execute(f"DELETE FROM layers WHERE id NOT IN ({_NAMED_LAYERS}) RETURNING id").fetchall()
            if dry_run:
                db.execute("ROLLBACK TO collecting")
            db.execute("RELEASE collecting")
        self._records.clear()
        self._layers.clear()
        self._walked = (NO_HEAD, None, ())
        if not dry_run:
            self.index.extend(LARGEST)
        return Collected(gone, frozenset(LayerId(layer) for (layer,) in layers))

    def _slot(self, session: str, action: str) -> tuple[int, Record]:
        query = _CHAIN + ("SELECT node, record FROM chain JOIN records ON records.id = chain.record WHERE records.action = ?")
        with self._db.read() as db:
            head = _session(db, session)[1]
            row = db.execute(query, (head, action)).fetchone()
            if row is None:
                raise NotFoundError(f"session {session} has no action {action}", remedy=_known_actions(db, head))
            return row[0], self._load(db, RecordId(row[1]))

    def _insert(self, db: sqlite3.Connection, record: Record) -> Record:
        add_layer(db, record.layer)
        body = codec.encode_body(record.action, record.launch, record.handoff, record.outcome, record.footprint)
        row = db.execute(
            "INSERT INTO records (action, revision, layer, stdout, stderr, body) VALUES (?, ?, ?, ?, ?, ?)",
            (
                record.id,
                record.revision,
                record.layer_id,
                _add_stream(db, record.outcome.stdout),
                _add_stream(db, record.outcome.stderr),
                body,
            ),
        )
        return replace(record, record_id=RecordId(row.lastrowid or 0))

    def _facts(self, first: int, end: int) -> Iterator[Facts]:
        """What the index keeps of these records. They are not remembered: there may be many, and each is read once."""
        with self._db.read() as db:
            for (number,) in db.execute("SELECT id FROM records WHERE id >= ? AND id < ?", (first, end)).fetchall():
                yield facts_of(self._records.get(number) or self._fetch(db, RecordId(number)))

    def _read(self, record: RecordId) -> Record:
        with self._db.read() as db:
            return self._load(db, record)

    def _load(self, db: sqlite3.Connection, record: RecordId) -> Record:
        if record not in self._records:
            self._remember(self._fetch(db, record))
        return self._records[record]

    def _fetch(self, db: sqlite3.Connection, record: RecordId) -> Record:
        row = db.execute(_RECORD, (record,)).fetchone()
        if row is None:
            raise StoreError(f"read record {record}: the journal does not have it")
        number, revision, body, layer, size, manifest, out, err = row
        return Record(
            RecordId(number),
            revision,
            *codec.decode_body(body, codec.decode_stream(out) if out else b"", codec.decode_stream(err) if err else b""),
            layer=self._layers.get(layer) or Layer(LayerId(layer), codec.decode_manifest(manifest), size),
        )

    def _remember(self, record: Record) -> None:
        self._records[record.record_id] = record
        self._layers[record.layer_id] = record.layer


def add_layer(db: sqlite3.Connection, layer: Layer) -> None:
    """Store a layer's row, unless it is there: a layer never changes."""
    if not db.execute("SELECT 1 FROM layers WHERE id = ?", (layer.id,)).fetchone():
        row = (layer.id, layer.bytes, codec.encode_manifest(layer.manifest))
        db.execute("INSERT INTO layers VALUES (?, ?, ?)", row)


def check_head(db: sqlite3.Connection, head: int) -> None:
    """Refuse a head that gc has collected since the caller learnt of it."""
    if head != NO_HEAD and not db.execute("SELECT 1 FROM nodes WHERE id = ?", (head,)).fetchone():
        raise ConflictError(f"read history: state {head} has been collected", remedy="open the session again")


def expect_head(db: sqlite3.Connection, session: str, expected_head: int) -> int:
    """The number of a session whose head is still `expected_head`. Raises ConflictError when it has moved on."""
    number, head, _ = _session(db, session)
    if head != expected_head:
        raise ConflictError(
            f"session {session} moved on meanwhile: its head is {head}, and this was made for {expected_head}",
            remedy="nothing was changed; plan or run it again",
        )
    return number


def no_session(db: sqlite3.Connection, name: str) -> NotFoundError:
    """The error for a session that is not there; names those that are."""
    names = [n for (n,) in db.execute("SELECT name FROM sessions ORDER BY name LIMIT 11")]
    remedy = "make one with `mulligan new NAME`"
    if names:
        remedy = "the sessions are " + ", ".join(names[:10]) + (" and more (`mulligan ps`)" if len(names) > 10 else "")  # noqa: PLR2004
    return NotFoundError(f"there is no session {name!r}", remedy=remedy)


def _session(db: sqlite3.Connection, name: str) -> tuple[int, int, int]:
    """Number, head and next action of a session."""
    row = db.execute("SELECT id, coalesce(head, 0), next_action FROM sessions WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise no_session(db, name)
    number, head, following = row
    return number, head, following


def _set_head(db: sqlite3.Connection, number: int, head: int, stored: Iterable[ActionId]) -> None:
    used = max((_number(a) for a in stored), default=0)
    db.execute(
        "UPDATE sessions SET head = ?, next_action = max(next_action, ?) WHERE id = ?",
        (head or None, used + 1, number),
    )


def _number(action: ActionId) -> int:
    digits = action[1:]
    return int(digits) if action[:1] == "a" and digits.isdecimal() else 0


def _add_node(db: sqlite3.Connection, parent: int, record: RecordId) -> int:
    row = db.execute("INSERT INTO nodes (parent, record) VALUES (?, ?)", (parent or None, record))
    return int(row.lastrowid or 0)


def _nodes(db: sqlite3.Connection, head: int) -> list[tuple[int, RecordId]]:
    """Nodes and their records from the oldest to `head`."""
    check_head(db, head)
    return db.execute(_CHAIN + "SELECT node, record FROM chain ORDER BY depth DESC", (head,)).fetchall()


def _since(nodes: list[_Node], state: int) -> list[_Node]:
    """Those of the nodes after a state, or all when it is not among them."""
    at = next((number for number, node in enumerate(nodes) if node[0] == state), -1) if state != NO_HEAD else -1
    return nodes[at + 1 :]


def _add_stream(db: sqlite3.Connection, data: bytes) -> bytes | None:
    if not data:
        return None
    digest = hashlib.sha256(data).digest()
    if not db.execute("SELECT 1 FROM streams WHERE digest = ?", (digest,)).fetchone():
        db.execute("INSERT INTO streams VALUES (?, ?)", (digest, codec.encode_stream(data)))
    return digest


def _version_rows(session: int, seen: Mapping[str, tuple[int, int, int]]) -> list[tuple[Any, ...]]:
    return [(session, raw_path(path), *version) for path, version in seen.items()]


def _known_actions(db: sqlite3.Connection, head: int) -> str:
    query = _CHAIN + "SELECT action FROM chain JOIN records ON records.id = chain.record ORDER BY depth DESC"
    known = [a for (a,) in db.execute(query, (head,))]
    if not known:
        return "it has none yet"
    return f"it has {', '.join(known)}" if len(known) <= 10 else f"it has {known[0]} to {known[-1]} (`mulligan log`)"  # noqa: PLR2004
