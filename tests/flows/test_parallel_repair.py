"""Repairs whose replays run at the same time: the result of one after the other, and nothing left of what came otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from twins import act, repaired

from mulligan import Record, Replace, Rerun, Session
from mulligan.model.policy import Policy

TWO = Policy(jobs=2)
FOREVER = "sleep 600"


@pytest.mark.parametrize(
    ("history", "changes", "ran", "in_vain"),
    [
        (["echo 1 > a", "echo 2 > b"], {0: "echo 1 > n", 1: "echo 2 >> n"}, ["a2", "a3"], 1),
        (["echo 1 > a", "cat n 2> e; true"], {0: "echo 1 > n", 1: "cat n 2> e; echo more"}, ["a2", "a3"], 1),
        (["echo 1 > a", "cat x", "ls d", "cat y"], {0: "touch d/new", 2: "ls d | sort", 3: "cat y | sort"}, ["a2", "a4", "a5"], 1),
        (["echo 1 > a", "echo 2 > d/b", "cat x > d/c", "cat d/*"], {0: "chmod 711 d", 1: None, 2: "cat y > d/c"}, ["a2", "a4", "a5"], 0),
        (["rm x", "cat x 2>&1; true", "echo 3 > c"], {0: None, 2: "cat y > c"}, ["a3", "a4"], 0),
    ],
    ids=["both write a new path", "one reads what is new", "a kept one between", "with a drop", "after a drop"],
)  # fmt: skip
def test_hazards(home: Path, history: list[str], changes: dict[int, str | None], ran: list[str], in_vain: int) -> None:
    """A replay that was begun early and saw what comes out otherwise runs again in its turn."""
    new = {number: act(text) if text is not None else None for number, text in changes.items()}
    start = act("mkdir d; echo x > x; echo y > y; echo z > d/z")
    report = repaired(home, start, [act(text) for text in history], new, policy=TWO)
    assert list(report.ran) == ran
    assert report.in_vain <= in_vain  # less when a turn came before a thread was free


def test_many_readers_of_one_file(home: Path) -> None:
    """All that read a changed file run at once, those that read them run after them, and the rest is kept."""
    history = [act("echo 1 > n"), *(act(f"cat n > r{i}") for i in range(6)), act("cat r?"), act("echo kept")]
    report = repaired(home, act("true"), history, {0: act("echo 2 > n")}, policy=Policy(jobs=4))
    assert report.ran == tuple(f"a{i}" for i in range(2, 10))
    assert report.in_vain == 0


def test_a_failure_counts_when_its_turn_comes(home: Path) -> None:
    """Of two replays that fail the earlier one is told, whichever ended first; nothing is applied and no layer is left."""
    with Session.create("s", home=home) as session:
        a, slow, quick = (session.run(text).id for text in ("echo 1 > n", "grep -q 1 n || sleep 0.3; grep 1 n", "grep 1 n"))
        head, layers = session.head, layers_of(session)
        report = session.apply(session.plan(Replace(a, "echo 2 > n"), policy=TWO))
        assert not report.applied
        assert report.failed == (slow,)
        assert quick not in report.ran
        assert session.head == head
        assert layers_of(session) == layers


def test_what_runs_in_vain_is_ended(home: Path) -> None:
    """When a replay fails, those that were begun for later slots are ended at once."""
    with Session.create("s", home=home) as session:
        a = session.run("echo 1 > n").id
        session.run("grep -q 1 n")
        session.run(f"grep -q 1 n || {FOREVER}")
        layers, began = layers_of(session), time.monotonic()
        report = session.apply(session.plan(Replace(a, "echo 2 > n"), policy=TWO))
        assert not report.applied
        assert time.monotonic() - began < 60
        assert layers_of(session) == layers


def test_interrupted(home: Path) -> None:
    """Ctrl-C ends every replay that runs; the head stays, and no layer is left."""
    with Session.create("s", home=home) as session:
        a = session.run("echo 1 > n").id
        later = [session.run(f"grep -q 1 n || {FOREVER}").id for _ in range(3)]
        head, layers = session.head, layers_of(session)

        def progress(action: str, *_: object) -> None:
            if action == later[0]:  # the walk is about to wait for it
                threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()

        with pytest.raises(KeyboardInterrupt):
            session.apply(session.plan(Replace(a, "echo 2 > n"), policy=TWO), progress=progress)
        assert session.head == head
        assert layers_of(session) == layers
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("mulligan-replay")]


def test_one_job_runs_in_the_thread_of_the_caller(home: Path) -> None:
    """With one job no thread is made, and all runs as it did before."""
    with Session.create("s", home=home) as session:
        a = session.run("echo 1 > n").id
        session.run("cat n")
        seen: list[int] = []

        def progress(*_: object) -> None:
            seen.append(sum(thread.name.startswith("mulligan-replay") for thread in threading.enumerate()))

        report = session.apply(session.plan(Replace(a, "echo 2 > n"), Rerun("a2"), policy=Policy(jobs=1)), progress=progress)
        assert report.ran == (a, "a2")
        assert seen == [0, 0]


def test_an_action_of_another_process_waits_for_the_repair(home: Path) -> None:
    """It is started while a repair runs, waits, and then stands after the repaired history."""
    with Session.create("s", home=home) as session:
        a, b = session.run("echo 1 > n").id, session.run("cat n > m").id
        started: list[subprocess.Popen[str]] = []

        def progress(action: str, *_: object) -> None:
            if action == b:
                started.append(mulligan(home, "run", "-s", "s", "-c", "cat n m"))
                assert started[0].stderr is not None
                assert "waiting for another process" in started[0].stderr.readline()

        assert session.apply(session.plan(Replace(a, "echo 2 > n"), policy=TWO), progress=progress).applied
        out, _ = started[0].communicate(timeout=60)
        assert out == "2\n2\n"
        records: list[Record] = session.log()
        assert [(r.id, r.stdout) for r in records] == [(a, ""), (b, ""), ("a3", "2\n2\n")]


def mulligan(home: Path, *args: str) -> subprocess.Popen[str]:
    """The command, started."""
    env = {**os.environ, "MULLIGAN_HOME": str(home)}
    command = [sys.executable, "-m", "mulligan", *args]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, env=env, text=True)


def layers_of(session: Session) -> set[str]:
    """The folders of layers on disk, when all that was thrown away is gone."""
    session._layers.settle()
    return set(os.listdir(session.home / "layers"))
