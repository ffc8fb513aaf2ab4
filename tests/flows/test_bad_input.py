"""Bad input gets one clear sentence and a documented exit code, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mulligan import Equivalence, MergeConflictError, Patch, Policy, Replace, Rerun, Session, errors
from mulligan.history.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence


def mulligan(home: Path, *args: str | bytes, stdin: bytes = b"", cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """The command line, as a user calls it."""
    command: Sequence[str | bytes] = [sys.executable, "-m", "mulligan", *args]
    env = {**os.environ, "MULLIGAN_HOME": str(home)}
    return subprocess.run(command, input=stdin, capture_output=True, env=env, cwd=cwd, check=False, timeout=60)


def expect(done: subprocess.CompletedProcess[bytes], kind: type[errors.MulliganError], *words: str) -> None:
    """One sentence on stderr that has the words, no traceback, and the exit code of the error's class."""
    text = done.stderr.decode()
    assert done.returncode == kind.exit_code, (done.returncode, text)
    assert "Traceback" not in text
    assert len(text.strip().splitlines()) == 1, text
    for word in words:
        assert word in text


def test_unknown_session(home: Path) -> None:
    """A session that does not exist is named, with what there is instead."""
    Session.create("there", home=home).close()
    expect(mulligan(home, "log", "-s", "nope"), errors.NotFoundError, "nope", "there")


def test_unknown_action(home: Path) -> None:
    """An action that does not exist is named, with those that do."""
    with Session.create("s", home=home) as session:
        session.run("true")
    expect(mulligan(home, "show", "-s", "s", "a9"), errors.NotFoundError, "a9", "a1")
    expect(mulligan(home, "repair", "-s", "s", "--drop", "a9"), errors.NotFoundError, "a9")
    expect(mulligan(home, "rollback", "-s", "s", "a9"), errors.NotFoundError, "a9")


def test_unknown_base(home: Path) -> None:
    """A base that does not exist is a sentence, and no session is left behind."""
    expect(mulligan(home, "new", "x", "--base", "/no/such/rootfs"), errors.NotFoundError, "/no/such/rootfs")
    expect(mulligan(home, "log", "-s", "x"), errors.NotFoundError, "x")


def test_name_taken(home: Path) -> None:
    """A second session of one name is refused, and the first one stays."""
    with Session.create("s", home=home) as session:
        session.run("echo 1 > x")
    expect(mulligan(home, "new", "s"), errors.AlreadyExistsError, "s")
    with Session.open("s", home=home) as session:
        assert session.files.read("/workspace/x") == "1\n"


def test_missing_program(home: Path) -> None:
    """A program that is not there is the action's own failure, 127, and is recorded."""
    done = mulligan(home, "run", "-s", "default", "--", "no-such-program", cwd=home.parent)
    assert done.returncode == 127
    assert b"no-such-program" in done.stderr
    with Session.open("default", home=home) as session:
        assert session.log()[-1].exit_code == 127


def test_unreadable_import(home: Path, tmp_path: Path) -> None:
    """A folder that can't be imported is named with the reason, and no session is left behind."""
    expect(mulligan(home, "new", "x", "--import", str(tmp_path / "absent")), errors.NotFoundError, "absent")
    if os.geteuid() != 0:  # root reads everything
        folder = tmp_path / "locked"
        folder.mkdir()
        (folder / "secret").write_text("x")
        (folder / "secret").chmod(0)
        expect(mulligan(home, "new", "x", "--import", str(folder)), errors.UsageError, "secret")
    expect(mulligan(home, "log", "-s", "x"), errors.NotFoundError, "x")


def test_other_schema(home: Path) -> None:
    """A store of another schema version is refused with both versions, and is not touched."""
    Session.create("s", home=home).close()
    file = home / "store.db"
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 999")
        tables = [t for (t,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [c[1] for c in db.execute(f"PRAGMA table_info({table})")]
            if "schema_version" in columns:
                db.execute(f"UPDATE {table} SET schema_version = 999")
            if {"key", "value"} <= set(columns):
                db.execute(f"UPDATE {table} SET value = '999' WHERE key LIKE '%schema%'")
    db.close()
    expect(mulligan(home, "log", "-s", "s"), errors.SchemaVersionError, "999")


@pytest.mark.parametrize(
    "asked",
    [
        {"timeout": 0}, {"timeout": float("inf")}, {"timeout": float("nan")}, {"timeout": 1e300}, {"env": {"A": 1}},
        {"env": {"A=B": "x"}}, {"env": {"": "x"}}, {"env": {"A": "\0"}}, {"labels": "one"}, {"reads": "out:a1"},
        {"reads": [1]}, {"writes": ["mem:a\0b"]}, {"labels": ["a\0b"]}, {"reads": ["dat:a"]}, {"writes": ["dat:/a/../b"]},
        {"reads": ["dat:a.db#table:t"]}, {"reads": ["dir:/a/"]}, {"reads": ["out:a1.exit"]}, {"reads": ["out:b1"]}, {"writes": ["out:a1"]},
        {"command": ["echo", 5]}, {"command": "echo a\0b"}, {"command": []}, {"timeout": "1"}, {"timeout": True}, {"stdin": "text"},
        {"cwd": 5}, {"cwd": "a\0b"},
    ],
)  # fmt: skip
def test_a_call_that_makes_no_sense(home: Path, asked: dict[str, Any]) -> None:
    """Python's callers get one sentence, too, and nothing runs."""
    with Session.create("s", home=home) as session:
        with pytest.raises(errors.UsageError):
            session.run(**{"command": "true", **asked})
        assert session.log() == []


@pytest.mark.parametrize(
    "choices",
    [
        {"level": 5}, {"level": -1}, {"level": "1"}, {"level": True}, {"level": None}, {"granularity": "all"}, {"env_reads": ""},
        {"jobs": -1}, {"jobs": 257}, {"jobs": "2"}, {"equivalences": ("*=a",)}, {"equivalences": "*=a"}, {"equivalences": None},
        {"equivalences": (Equivalence("*", b"a)|(b"),)},
    ],
)  # fmt: skip
def test_a_policy_that_makes_no_sense(home: Path, choices: dict[str, Any]) -> None:
    """A choice that does not exist is refused, and not taken for another one."""
    with Session.create("s", home=home) as session:
        session.run("true")
        head = session.head
        with pytest.raises(errors.UsageError):
            session.repair(Rerun("a1"), policy=Policy(**choices))
        assert session.head == head


@pytest.mark.parametrize(
    "change", ["a1", None, Replace("a1", 5), Replace("a1", b"x"), Replace("a1", "a\0"), Patch("/x", "text"), Patch(5, b"")]
)  # type: ignore[misc]
def test_a_change_that_makes_no_sense(home: Path, change: Any) -> None:
    """It is refused when the plan is made, and not by whatever it breaks in the middle of a repair."""
    with Session.create("s", home=home) as session:
        session.run("true")
        with pytest.raises(errors.UsageError):
            session.plan(change)


@pytest.mark.parametrize("size", ["", "x", "-1", "1e9", "nan", "5X", "9" * 400])
def test_a_budget_that_is_no_size(home: Path, size: str) -> None:
    """Nonsense is told with an example of a size, and nothing is given up."""
    Session.create("s", home=home).close()
    expect(mulligan(home, "gc", "--budget", size), errors.UsageError, "no size", "500M")


def test_merges_that_make_no_sense(home: Path) -> None:
    """With itself there is nothing to merge; a removed session is not there; what a stranger did conflicts; nothing moves."""
    with Session.create("s", home=home) as session, Session.create("stranger", home=home) as stranger:
        session.run("echo 1 > a")
        session.run("head -c 100000 /dev/zero > large")
        session.run("rm large")  # so that there is something to give up
        stranger.run("echo 2 > a")
        session.branch("gone").close()
        head = session.head
    assert mulligan(home, "rm", "gone").returncode == 0
    assert mulligan(home, "merge", "-s", "s", "s").stdout == b"s has nothing that s has not\n"
    expect(mulligan(home, "merge", "-s", "s", "gone"), errors.NotFoundError, "gone", "stranger")
    expect(mulligan(home, "merge", "-s", "s", ""), errors.NotFoundError, "stranger")
    expect(mulligan(home, "merge", "-s", "s", "stranger"), MergeConflictError, "stranger", "--dry-run")
    assert mulligan(home, "gc", "--budget", "0").returncode == 0
    expect(mulligan(home, "repair", "-s", "s", "--rerun", "a1"), errors.GivenUpError, "a1", "disk budget")
    with Session.open("s", home=home) as session:
        assert session.head == head
        assert session.files.read("/workspace/a") == "1\n"


def test_a_store_may_be_named_by_a_text(home: Path) -> None:
    """`home` is a path or its text."""
    with Session.create("s", home=str(home)):
        pass
    with Session.open("s", home=str(home)) as session:
        assert session.home == home


def test_what_why_does_not_know(home: Path, tmp_path: Path) -> None:
    """A path that nothing made and that is not there is refused; what was imported is there. A key stands for its path."""
    (tmp_path / "in").write_text("x")
    with Session.create("s", home=home, imports={str(tmp_path): "/workspace"}) as session:
        assert session.imports == {str(tmp_path): "/workspace"}
        with pytest.raises(errors.NotFoundError, match="nope"):
            session.why("nope")
        assert "no action" in str(session.why("in"))
        session.run("cat in")
        assert str(session.why("dat:/workspace/in")) == str(session.why("in"))
        assert str(session.why("dat:/workspace/in#json:/a")) == str(session.why("in"))
        session.run("echo ::set-output name=v::1")
        assert "a2 put it out" in str(session.why("out:a2.outputs.v"))
        with pytest.raises(errors.NotFoundError, match="declared it"):
            session.why("out:a2.outputs.w")
        with pytest.raises(errors.UsageError, match="not of the form"):
            session.why("out:a2.exit")


def test_ps_counts_the_present_history(home: Path) -> None:
    """An action that was rolled back, or is in a branch only, is not counted."""
    with Session.create("s", home=home) as session:
        for _ in range(3):
            session.run("true")
        with session.branch("b", at="a2"):
            session.rollback("a1")
    assert [(row["session"], row["actions"]) for row in json.loads(mulligan(home, "ps", "--json").stdout)] == [
        ("b", 2),
        ("s", 1),
    ]


def test_commit_to_a_folder_that_is_not_there(home: Path, tmp_path: Path) -> None:
    """The folder is named, and what to do."""
    Session.create("s", home=home).close()
    expect(mulligan(home, "commit", "-s", "s", str(tmp_path / "nope")), errors.NotFoundError, "nope", "make it first")


def test_an_output_that_nobody_reads(home: Path) -> None:
    """The action goes on and is recorded whole, and the command says so rather than seeming to hang."""
    Session.create("s", home=home).close()
    command = f"'{sys.executable}' -m mulligan run -s s -n -c 'seq 100000; touch done' | head -1"
    env = {**os.environ, "MULLIGAN_HOME": str(home)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, env=env, check=False, timeout=60)
    assert done.stdout == b"1\n"
    assert b"nobody reads it any more; the action runs on" in done.stderr
    with Session.open("s", home=home) as session:
        assert session.files.exists("done")


def test_hostile_names(home: Path) -> None:
    """Names with a newline, with terminal codes, or not UTF-8 come through as bytes and are escaped in views."""
    name = b"/workspace/a\n\x1b[31m\xff"
    with Session.create("s", home=home) as session:
        session.run(["bash", "-c", "printf hi > $'/workspace/a\\n\\x1b[31m\\xff'"], check=True)
        assert os.fsdecode(name) in session.record("a1").footprint.wrote
        assert session.files.read(os.fsdecode(name)) == "hi"
    shown = mulligan(home, "show", "-s", "s", "a1")
    assert shown.returncode == 0
    assert b"\x1b[31m" not in shown.stdout
    facts = json.loads(mulligan(home, "show", "-s", "s", "a1", "--json").stdout)
    assert "footprint" in facts
    listed = mulligan(home, "ls", "-s", "s", "/workspace")
    assert b"\x1b[31m" not in listed.stdout
    assert mulligan(home, "cat", "-s", "s", name).stdout == b"hi"
    assert b"\x1b[31m" not in mulligan(home, "diff", "-s", "s", "a1").stdout


def test_labels_of_any_size(home: Path) -> None:
    """A long or hostile label is cut and escaped in the table, and whole in the JSON; an unknown one is told as that."""
    label = "l\n\x1b[31m" + "x" * 5000
    with Session.create("s", home=home) as session:
        session.run("true", labels=[label])
    shown = mulligan(home, "log", "-s", "s").stdout.decode()
    assert "l\\n\\x1b[31mxx" in shown
    assert max(map(len, shown.splitlines())) < 200
    assert json.loads(mulligan(home, "log", "-s", "s", "--json").stdout)[0]["labels"] == [label]
    assert b"no action has the label y" in mulligan(home, "log", "-s", "s", "--label", "y").stdout


def test_timeout_with_a_child_that_ignores_sigterm(home: Path) -> None:
    """A timeout ends the whole tree, whatever it does with signals, and is recorded as such."""
    with Session.create("s", home=home) as session:
        record = session.run("trap '' TERM INT HUP; (trap '' TERM; sleep 300) & sleep 300", timeout=1.0)
        assert record.outcome.timed_out
        assert record.outcome.signal == "SIGKILL"
        assert record.outcome.duration_ms < 20_000


def test_ctrl_c_in_the_middle_of_a_run(home: Path) -> None:
    """Ctrl-C ends the action at once; nothing of it stays and the head has not moved."""
    with Session.create("s", home=home) as session:
        session.run("echo 1 > x")
        head = session.head
    env = {**os.environ, "MULLIGAN_HOME": str(home)}
    running = subprocess.Popen(
        [sys.executable, "-m", "mulligan", "run", "-s", "s", "-c", "echo 2 > x; echo started; sleep 300"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env,
    )  # fmt: skip
    assert running.stdout is not None
    try:
        assert running.stdout.readline() == b"started\n"  # the action's output is streamed, so it runs now
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode == errors.InterruptedRunError.exit_code
    assert b"Traceback" not in err
    with Session.open("s", home=home) as session:
        assert session.head == head
        assert session.files.read("/workspace/x") == "1\n"
    assert not [p for p in (home / "layers").iterdir() if p.name.startswith(".open")]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_full_disk(tmp_path: Path) -> None:
    """A full disk ends the action with one sentence; the history stays and goes on when there is room again."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(small)], check=True)
    try:
        home = small / "store"
        with Session.create("s", home=home) as session:
            session.run("echo 1 > x", check=True)
            head = session.head
            with pytest.raises(errors.DiskFullError, match="space"):
                session.run("dd if=/dev/zero of=big bs=1M count=200 2>/dev/null")
            assert session.head == head
            assert session.run("cat x; test ! -e big").stdout == "1\n"
        with contextlib.suppress(OSError), (small / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(b"0" * 4096):
                pass
        done = mulligan(home, "run", "-s", "s", "-c", "echo 2 > x; seq 100000")
        expect(done, errors.DiskFullError, "space")
        (small / "ballast").unlink()
        with Session.open("s", home=home) as session:
            assert session.run("cat x").stdout == "1\n"
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_several_processes_use_one_session(home: Path) -> None:
    """Actions from several processes at once all end up in one serial history."""
    Session.create("s", home=home).close()
    env = {**os.environ, "MULLIGAN_HOME": str(home)}
    runs = [
        subprocess.Popen([sys.executable, "-m", "mulligan", "run", "-s", "s", "-c", f"echo {i} >> all"], env=env, stdin=subprocess.DEVNULL)
        for i in range(5)
    ]  # fmt: skip
    assert [r.wait(60) for r in runs] == [0] * 5
    with Session.open("s", home=home) as session:
        assert sorted(session.files.read("/workspace/all").split()) == ["0", "1", "2", "3", "4"]
        assert [r.id for r in session.log()] == ["a1", "a2", "a3", "a4", "a5"]


@pytest.mark.parametrize(
    "command",
    [["rollback", "-s", "s", "a1"], ["rm", "s"], ["repair", "-s", "s", "--rerun", "a1"], ["commit", "-s", "s", "."]],
    ids=lambda command: command[0],
)
def test_waiting_for_another_process_is_told(home: Path, tmp_path: Path, command: list[str]) -> None:
    """Whatever needs a session that is at work says so instead of seeming to hang."""
    with Session.create("s", home=home) as session:
        session.run("true")
    full = [sys.executable, "-m", "mulligan", *command]
    env = {**os.environ, "MULLIGAN_HOME": str(home)}
    with Store.open(home) as store, ExitStack() as held:
        held.enter_context(store.locked("s"))
        with subprocess.Popen(full, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as waiting:
            assert waiting.stderr is not None
            told = waiting.stderr.readline().decode()
            held.close()
        assert "waiting for another process that uses s" in told
        assert waiting.returncode == 0


def test_a_killed_runtime_loses_nothing(home: Path) -> None:
    """SIGKILL of Mulligan in the middle of an action leaves the state before it, and no process."""
    with Session.create("s", home=home) as session:
        session.run("echo 1 > x")
    env = {**os.environ, "MULLIGAN_HOME": str(home)}
    running = subprocess.Popen(
        [sys.executable, "-m", "mulligan", "run", "-s", "s", "-c", "echo 2 > x; echo started; sleep 300"],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env,
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline() == b"started\n"
    running.kill()
    running.wait(30)
    running.stdout.close()
    with Session.open("s", home=home) as session:
        assert session.files.read("/workspace/x") == "1\n"
        assert session.run("cat x").stdout == "1\n"
    assert mulligan(home, "gc").returncode == 0
    assert not [p for p in (home / "layers").iterdir() if p.name.startswith(".open")]
