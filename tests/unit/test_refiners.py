"""Refinements: who declared to read only a part of a file, and when that part counts as the same."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from mulligan import register_refiner
from mulligan.errors import UsageError
from mulligan.model.change import Replace
from mulligan.model.footprint import Footprint
from mulligan.model.keys import parse_key
from mulligan.model.layer import Manifest
from mulligan.model.part import FilePart, parts_of, split_part, whole_of
from mulligan.model.postings import DECLARED, postings
from mulligan.repair import refiners
from mulligan.repair.refiners import check_part, same_part


@pytest.fixture
def database(tmp_path):
    """Make the bytes of a database by some statements."""

    def make(*statements):
        path = tmp_path / "db"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as db, db:
            for statement in statements:
                db.execute(statement)
        return path.read_bytes()

    return make


def test_how_a_part_is_written():
    """Behind the last #, a refiner's name and a colon; anything else belongs to the path."""
    assert split_part(parse_key("dat:/w/a#b.db#table:or:ders")) == FilePart("/w/a#b.db", "table", "or:ders")
    assert split_part(parse_key("dat:/w/a#b")) is None
    assert split_part(parse_key("ent:/w/a#table:x")) is None
    assert whole_of(parse_key("dat:/w/a#json:/x")) == parse_key("dat:/w/a")
    assert str(FilePart("/w/a", "json", "/x")) == "dat:/w/a#json:/x"
    assert parts_of(("dat:/w/a#json:/x", "dat:/w/b#json:/x", "dat:/w/b", "out:a1")) == {
        "/w/a": [FilePart("/w/a", "json", "/x")]
    }


@pytest.mark.parametrize("part", [("no-such", "x"), ("table", ""), ("json", "x")])
def test_parts_that_can_not_be_cut_out(part):
    """They are refused when they are declared."""
    with pytest.raises(UsageError, match="declare dat:/w/a#"):
        check_part(FilePart("/w/a", *part))


ORDERS = ("CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT)", "INSERT INTO orders VALUES (1, 'tea')")
USERS = "CREATE TABLE users (name TEXT)"


@pytest.mark.parametrize(
    ("more", "same"),
    [
        (("INSERT INTO users VALUES ('eve')",), True),
        (("CREATE TABLE third (x)", "CREATE INDEX i ON orders (what)"), True),
        (("INSERT INTO orders VALUES (2, 'rice')",), False),
        (("UPDATE orders SET what = x'746561'",), False),
        (("UPDATE orders SET id = 5",), False),
        (("ALTER TABLE orders ADD COLUMN n",), False),
        (("DROP TABLE orders",), False),
    ],
)
def test_a_table_of_a_database(database, more, same):
    """Its definition, row numbers, values and their types count; other tables and indexes do not."""
    part = FilePart("/w/db", "table", "orders")
    old, new = database(*ORDERS, USERS), database(*ORDERS, USERS, *more)
    assert same_part(part, {"": old}, {"": new}) is same
    check_part(part)


def test_a_table_that_neither_has(database):
    """Absence is a value, too."""
    part = FilePart("/w/db", "table", 'no "such" table')
    assert same_part(part, {"": database(*ORDERS)}, {"": database(USERS)})


def test_what_still_lies_beside_the_database(tmp_path):
    """Rows of a write-ahead log that was not merged yet are rows."""
    path = tmp_path / "db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(ORDERS[0])
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        old = {"": path.read_bytes()}
        db.execute(ORDERS[1])
        db.commit()
        new = {"": path.read_bytes(), "-wal": (tmp_path / "db-wal").read_bytes()}
    assert new["-wal"]
    assert same_part(FilePart("/w/db", "table", "orders"), old, {"": new[""]})
    assert not same_part(FilePart("/w/db", "table", "orders"), old, new)


def test_hostile_databases_differ(database, monkeypatch):
    """Damage, no database at all, a table that costs too much time, a virtual one: the part counts as differing."""
    part = FilePart("/w/db", "table", "orders")
    good = database(*ORDERS, *(f"INSERT INTO orders VALUES ({n}, '{'x' * 500}')" for n in range(2, 40)))
    assert same_part(part, {"": good}, {"": good})
    damaged = good[:4096] + b"\xff" * (len(good) - 4096)
    for bad in (damaged, good[:700], b"no database", b"SQLite format 3\0" + b"\xff" * 200):
        assert not same_part(part, {"": bad}, {"": bad})
    virtual = database("CREATE VIRTUAL TABLE orders USING fts5(x)")
    assert not same_part(part, {"": virtual}, {"": virtual})
    monkeypatch.setattr(refiners, "_SECONDS", -1.0)
    monkeypatch.setattr(refiners, "_STEPS", 10)
    assert not same_part(part, {"": good}, {"": good})


@pytest.mark.parametrize(
    ("pointer", "same"),
    [("/a/0", True), ("/a", False), ("", False), ("/a/9", True), ("/x~1y", True), ("/n", False), ("/a/x", True)],
)
def test_a_place_in_a_json_file(pointer, same):
    """What a pointer points at, exactly: 1 is not 1.0, and nothing is nothing in both."""
    old, new = b'{"a": [1, 2], "x/y": 3, "n": 1}', b'{"a": [1, 5],   "x/y": 3, "n": 1.0}'
    assert same_part(FilePart("/w/a", "json", pointer), {"": old}, {"": new}) is same


@pytest.mark.parametrize("bad", [b"", b"{", b"\xff", b"[" * 100_000])
def test_hostile_json_differs(bad):
    """What can't be read counts as differing."""
    assert not same_part(FilePart("/w/a", "json", "/a"), {"": bad}, {"": bad})


def test_a_refiner_of_one_s_own(monkeypatch):
    """It is registered under a name and may refuse by a ValueError; an unknown one differs."""
    monkeypatch.setattr(refiners, "_REFINERS", dict(refiners._REFINERS))
    part = FilePart("/w/a", "line", "2")
    assert not same_part(part, {"": b"a\nb"}, {"": b"a\nb"})
    register_refiner("line", lambda spec, files: files[""].split(b"\n")[int(spec) - 1])
    assert same_part(part, {"": b"a\nb\nc"}, {"": b"x\nb\nd"})
    assert not same_part(FilePart("/w/a", "line", "x"), {"": b"a"}, {"": b"a"})
    with pytest.raises(UsageError):
        register_refiner("No:Name", lambda spec, files: None)  # noqa: ARG005


def test_a_part_is_indexed_under_its_file():
    """Long histories are planned by an index of paths: whoever declared a part is found by the file's."""
    found = postings(Footprint(declared_reads=("dat:/w/f#json:/a",)), Manifest())
    assert found["/w/f"] & DECLARED


def verdict(story, old, new, declared, **facts):
    """What becomes of a reader of /w/f when its content changes from old to new."""
    story.act({"/w/f": old}, missed=["/w/f"])
    story.act(facts.pop("writes", {}), saw=["/w/f"], stats=["/w/f"], declared_reads=declared, **facts)
    walk = story.walk(Replace("a1", "x"), same_part=same_part)
    walk.verdict(walk.slots[0])
    walk.ran(walk.slots[0], story.record("a1", {"/w/f": new}, layer="new", missed=["/w/f"]))
    return walk.verdict(walk.slots[1])


OLD, NEW = b'{"a": 1, "b": 1}', b'{"a": 1, "b": 22}'


def test_who_reads_a_part_is_kept_while_it_is_the_same(story):
    """Then neither content nor size and time of the file matter to it."""
    assert verdict(story, OLD, NEW, ("dat:/w/f#json:/a",)).kind == "keep"


def test_who_reads_a_part_runs_again_when_it_differs(story):
    """The reason names the part."""
    step = verdict(story, OLD, NEW, ("dat:/w/f#json:/a", "dat:/w/f#json:/b"))
    assert step.kind == "must_rerun"
    assert ("declared", "dat:/w/f#json:/b", "a1") in [(r.kind, r.key, r.source) for r in step.because]


@pytest.mark.parametrize(
    ("declared", "facts"),
    [
        ((), {}),
        (("dat:/w/f#json:/a", "dat:/w/f"), {}),
        (("dat:/w/f#json:/a",), {"writes": {"/w/f": b"{}"}}),
        (("dat:/w/f#json:/a",), {"executed": ["/w/f"]}),
        (("dat:/w/g#json:/a",), {}),
    ],
)
def test_without_the_part_alone_all_of_the_file_counts(story, declared, facts):
    """Nothing declared, all of it declared too, written by the action itself, run as a program, another file."""
    assert verdict(story, OLD, NEW, declared, **facts).kind == "must_rerun"
