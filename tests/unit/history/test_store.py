"""Sessions: made, named, listed, branched and removed; and every way the store can refuse to open."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import mulligan
from mulligan.errors import (
    AlreadyExistsError,
    ConflictError,
    DiskFullError,
    HostError,
    NotFoundError,
    SchemaVersionError,
    StoreError,
    UsageError,
)
from mulligan.history.schema import VERSION
from mulligan.history.store import Store, default_home
from mulligan.model.action import LaunchContext
from mulligan.model.layer import Layer, Manifest


def test_a_session_is_what_it_was_made_with(store, session):
    """Base, bottom layers, launch context and configuration come back equal, paths that are not UTF-8 too."""
    base = {"kind": "host", "binds": [["/opt/\udcff", "/opt"]], "uid": 100000, "tools": None}
    row = store.create("other", base=base, bottom=[Layer("one", Manifest()), Layer("two", Manifest())],
                       launch=LaunchContext({"A": "\udcfe"}, "/w"), config={"imports": {"/src": "/workspace"}})  # fmt: skip
    assert store.get("other") == row
    assert (row.base, row.bottom, row.config) == (base, ("one", "two"), {"imports": {"/src": "/workspace"}})
    assert (row.launch.env, row.launch.cwd, row.head, row.next_action) == ({"A": "\udcfe"}, "/w", 0, 1)
    assert [r.name for r in store.sessions()] == ["other", session]


def test_a_closed_store_says_so(home):
    """Using what was closed is the caller's mistake, not damage to our data."""
    with Store.open(home) as store:
        pass
    with pytest.raises(UsageError, match="it was closed"):
        store.sessions()


def test_a_relative_home_is_where_it_was_when_the_store_was_opened(tmp_path, monkeypatch):
    """Who names a folder from where it stands may go elsewhere; the sandbox is told a path that holds from anywhere."""
    monkeypatch.chdir(tmp_path)
    with Store.open(Path("here")) as store:
        monkeypatch.chdir("/")
        assert store.home == tmp_path / "here"


def test_locks_that_cannot_be_opened_are_the_hosts_fault(home, monkeypatch):
    """A store whose folder may be read but not written to is refused with what to do."""

    def refuse(*_args):
        raise PermissionError(13, "Permission denied", str(home / "locks"))

    with Store.open(home):
        pass
    monkeypatch.setattr("mulligan.history.locks.Locks._lock", refuse)
    with pytest.raises(HostError, match="set MULLIGAN_HOME"):
        Store.open(home)


def test_sessions_outlive_the_process(home, store, session):
    """A second opening of the same folder finds the same sessions."""
    with Store.open(home) as again:
        assert again.get(session) == store.get(session)


def test_an_unknown_session_names_those_that_exist(store, session):
    """The error for a mistyped name lists what could have been meant; in an empty store it says how to make one."""
    with pytest.raises(NotFoundError, match="no session 'wrok'; the sessions are work"):
        store.get("wrok")
    with store.locked(session):
        store.remove(session)
    with pytest.raises(NotFoundError, match="mulligan new NAME"):
        store.get(session)
    with pytest.raises(NotFoundError), store.locked("nobody"):
        pass
    assert not (store.home / "locks" / "nobody").exists()


def test_a_taken_name_is_refused(store, session):
    """Neither create nor branch replaces a session."""
    with pytest.raises(AlreadyExistsError, match="session work exists already"):
        store.create(session, base={}, bottom=[], launch=LaunchContext())
    with pytest.raises(AlreadyExistsError):
        store.branch(session, session, 0)


def test_a_session_can_be_asked_before_work_is_done_for_it(store, session, fill):
    """A taken name, a moved head and a new configuration: each by its own call."""
    store.refuse_taken("free")
    with pytest.raises(AlreadyExistsError):
        store.refuse_taken(session)
    store.expect_head(session, 0)
    fill(1)
    with pytest.raises(ConflictError, match="moved on meanwhile"):
        store.expect_head(session, 0)
    store.configure(session, {"env": {"A": "b"}})
    assert store.get(session).config == {"env": {"A": "b"}}


@pytest.mark.parametrize("name", ["", ".", "..", "-s", ".x", "a/b", "a b", "a\n", "\x1b[31m", "é", "x" * 101, "a\udcff"])
def test_a_bad_name_is_refused(store, name):
    """A session's name is safe in a path, on a command line and on a terminal."""
    with pytest.raises(UsageError, match="can't be a session's name"):
        store.create(name, base={}, bottom=[], launch=LaunchContext())


def test_a_branch_shares_the_past_and_goes_its_own_way(store, session, fill, make_record):
    """A branch has the records up to its start; neither session's later actions appear in the other."""
    first, second = fill(1, 2)
    row = store.branch(session, "try-2", first)
    assert (row.head, row.bottom, row.next_action) == (first, store.get(session).bottom, 3)
    store.journal.append("try-2", first, make_record(3))
    assert [r.id for r in store.journal.chain(store.get("try-2").head)] == ["a1", "a3"]
    assert store.get(session).head == second
    with pytest.raises(ConflictError, match="collected"):
        store.branch(session, "try-3", 99)


def test_the_store_folder_is_private(home, store):
    """Nobody else may look into the store, which holds what the actions read."""
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_refused(tmp_path):
    """A store in a folder like /tmp could be swapped by anybody."""
    tmp_path.chmod(0o777)
    with pytest.raises(HostError, match="everybody may write to it"):
        Store.open(tmp_path)


def test_a_file_in_the_place_of_the_store_is_refused(tmp_path):
    """MULLIGAN_HOME that names a file gets a sentence, not a traceback."""
    (tmp_path / "f").touch()
    with pytest.raises(UsageError, match="not a folder"):
        Store.open(tmp_path / "f")
    with pytest.raises(HostError, match=r"File exists|Not a directory"):
        Store.open(tmp_path / "f" / "g")


def test_a_store_of_another_version_is_refused_and_left_alone(home, store, session):
    """The sentence names both versions; nothing is migrated, read or written."""
    store.close()
    with sqlite3.connect(home / "store.db") as db:
        db.execute(f"PRAGMA user_version = {VERSION + 6}")
    db.close()
    before = (home / "store.db").read_bytes()
    with pytest.raises(
        SchemaVersionError, match=f"has schema version {VERSION + 6}, and this Mulligan reads version {VERSION}"
    ):
        Store.open(home)
    assert (home / "store.db").read_bytes() == before


def test_a_foreign_database_is_refused(home):
    """A database of another program is not written to."""
    home.mkdir(mode=0o700)
    with sqlite3.connect(home / "store.db") as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(StoreError, match="another program"):
        Store.open(home)


def test_a_damaged_database_is_a_store_error(home):
    """A file that is no database, or is cut off, is our data damaged, and says so."""
    home.mkdir(mode=0o700)
    (home / "store.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError, match="damaged"):
        Store.open(home)


def test_damage_inside_the_database_is_a_store_error(home, store, session, fill):
    """Damage that shows only when a page is read is reported in the same way."""
    fill(*range(1, 40))
    store.close()
    with (home / "store.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (os.path.getsize(home / "store.db") - 4096))
    with pytest.raises(StoreError), Store.open(home) as damaged:
        damaged.journal.chain(damaged.get(session).head)


def test_a_full_database_loses_nothing(store, session, fill, make_record):
    """When the disk is full the append fails with its own error, and everything before it stands."""
    fill(1, 2)
    head = store.get(session).head
    pages = store._db._connection.execute("PRAGMA page_count").fetchone()[0]
    store._db._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFullError, match="free space"):
        store.journal.append(session, head, make_record(3, stdout=os.urandom(1 << 20)))
    assert store.get(session).head == head
    store._db._connection.execute("PRAGMA max_page_count = 1000000")
    store.journal.append(session, head, make_record(3))
    assert [r.id for r in store.journal.chain(store.get(session).head)] == ["a1", "a2", "a3"]


FILL_THE_DISK = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from conftest import build_record
from mulligan.errors import DiskFullError
from mulligan.history.store import Store
from mulligan.model.action import LaunchContext
home = Path(sys.argv[1]) / "store"
stored = 0
try:
    with Store.open(home) as store:
        store.create("work", base={}, bottom=[], launch=LaunchContext())
        while True:
            head = store.get("work").head
            store.journal.append("work", head, build_record(stored + 1, stdout=os.urandom(20000)))
            stored += 1
except DiskFullError as error:
    print(error)
(Path(sys.argv[1]) / "ballast").unlink()
with Store.open(home) as store:
    assert len(store.journal.chain(store.get("work").head)) == stored > 10, stored
    store.journal.append("work", store.get("work").head, build_record(stored + 1))
"""


def test_a_really_full_disk_loses_nothing(tmp_path):
    """On a small tmpfs: the error says the disk is full, and after making room all acknowledged records are there."""
    script = f"""
        mount -t tmpfs -o size=3m,mode=700 none {tmp_path}
        head -c 1000000 /dev/zero > {tmp_path}/ballast
        exec "$@"
    """
    python = [sys.executable, "-c", FILL_THE_DISK, str(tmp_path), str(Path(__file__).parent)]
    env = {**os.environ, "PYTHONPATH": str(Path(mulligan.__path__[0]).parent)}
    done = subprocess.run(["unshare", "-r", "-m", "sh", "-ec", script, "sh", *python],
                          env=env, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "free space there" in done.stdout


def test_the_home_comes_from_the_environment():
    """$MULLIGAN_HOME names the store; without it, it lies in the user's data folder."""
    assert default_home({"MULLIGAN_HOME": "/srv/m"}) == Path("/srv/m")
    assert default_home({"MULLIGAN_HOME": "here"}) == Path("here").absolute()
    assert default_home({}).name == "mulligan"
    assert default_home({"MULLIGAN_HOME": ""}) == default_home({})
