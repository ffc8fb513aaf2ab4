"""How cautious a repair is, on real sessions: levels, groups, declared outputs, hints, equivalences, refinements."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from twins import tree_of

from mulligan import Drop, Equivalence, Policy, Replace, Rerun, Session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def session(home: Path) -> Iterator[Session]:
    """A fresh session."""
    with Session.create("s", home=home) as session:
        yield session


def test_level_0_keeps_what_it_should_not_and_says_so(session: Session) -> None:
    """Kept over a changed input, an action is reported as stale, marked as such, and run by the next sound repair."""
    session.run("mkdir d; echo 1 > n")
    session.run("cat n > m")
    report = session.repair(Replace("a1", "mkdir d; echo 2 > n"), policy=Policy(0))
    assert (report.ran, report.stale) == (("a1",), ("a2",))
    assert (session.files.read("/workspace/m"), session.files.read("/workspace/n")) == ("1\n", "2\n")
    assert "stale" in session.record("a2").footprint.incomplete_because[0]
    report = session.repair(Replace("a1", "mkdir d; echo 3 > n"), policy=Policy(0))
    assert report.stale == ("a2",)
    assert len(session.record("a2").footprint.incomplete_because) == 1
    assert session.repair(Replace("a1", "mkdir d; echo 4 > n")).ran == ("a1", "a2")
    assert session.files.read("/workspace/m") == "4\n"


def test_level_0_never_makes_a_corrupt_state(session: Session) -> None:
    """What a kept layer can't stand on is not revived: its action runs again, and may fail."""
    session.run("mkdir d; echo 1 > n; echo 1 > o")
    session.run("echo y > d/y")
    session.run("rm o; chmod 600 n")
    plan = session.plan(Replace("a1", "echo 1 > n"), policy=Policy(0))
    report = session.apply(plan, keep_going=True)
    assert (report.ran, report.stale, report.failed) == (("a1", "a2"), ("a3",), ("a2",))
    assert session.files.list("/workspace") == ["n"]
    assert session.run("ls; cat n").stdout == "n\n1\n"


HISTORY = (
    "echo 1 > a; mkdir d; echo x > d/x",
    "cat a > b",
    "rm d/x; echo y > d/y",
    "ls d > list",
    "cat b list > both; chmod 600 b",
)
CHANGED = "echo 2 > a; mkdir d; echo x > d/x; echo z > d/z"


def test_every_sound_policy_gives_the_corrected_history(session: Session) -> None:
    """On real layers, too, levels and granularities differ in what runs, and not in what comes out."""
    for number, command in enumerate(HISTORY):
        session.run(command, labels=["group:even"] if number % 2 else ())
    trees, ran = [], []
    with session.branch("fresh") as twin:
        twin._store.journal.move(twin.name, twin.head, 0)
        for command in (CHANGED, *HISTORY[1:]):
            twin.run(command)
        expected = tree_of(twin)
    policies = [Policy(level) for level in (1, 2, 3, 4)] + [Policy(granularity="group"), Policy(2, "session", jobs=1)]
    for number, policy in enumerate(policies):
        with session.branch(f"try-{number}") as branch:
            ran.append(branch.repair(Replace("a1", CHANGED), policy=policy).ran)
            trees.append(tree_of(branch))
    assert trees == [expected] * len(policies)
    assert ran[0] == ("a1", "a2", "a4", "a5")  # a3 saw d/x alone
    assert all(set(ran[0]) <= set(more) for more in ran)
    assert ran[3] == ran[5] == ("a1", "a2", "a3", "a4", "a5")


def test_level_4_runs_the_whole_suffix(session: Session) -> None:
    """From the first change on all runs again, and the result is that of the corrected history."""
    for command in ("echo 1 > a", "echo 2 > b", "echo 3 > c"):
        session.run(command)
    report = session.repair(Replace("a2", "echo 22 > b"), policy=Policy(4))
    assert (report.kept, report.ran) == (("a1",), ("a2", "a3"))
    assert {r.kind for s in report.plan.steps[2:] for r in s.because} == {"level"}


def test_a_group_runs_again_whole_on_real_layers(session: Session, home: Path) -> None:
    """Also an earlier member that only the replay finds out to belong to it; what ran before that is not run twice."""
    session.run("echo 1 > seed")
    session.run("date +%N > stamp; cat n 2>/dev/null; true", labels=["group:build"])
    session.run("echo 1 > n")
    session.run("cat n > out", labels=["group:build"])
    session.run("echo other > side")
    plan = session.plan(Replace("a3", "echo 2 > n"), policy=Policy(granularity="group"))
    assert [s.kind for s in plan.steps] == ["keep", "may_rerun", "must_rerun", "may_rerun", "keep"]
    ran: list[tuple[str, str]] = []
    report = session.apply(plan, progress=lambda action, what, _done, _of: ran.append((action, what)))
    assert report.ran == ("a2", "a3", "a4")
    assert ("a2", "keep") in ran
    assert ("a2", "run") in ran  # the pass was begun anew when a4 was seen to run
    assert session.files.read("/workspace/out") == "2\n"
    assert session.repair(Drop("a5"), policy=Policy(granularity="session")).kept == ()


def test_a_hint_is_told_and_followed_at_level_3_alone(session: Session) -> None:
    """What somebody typed from an output into a later command: no trace shows it, so it is kept, unless one asks for more."""
    session.run("printf 'created volume vol-%x' 2134547489")
    session.run("echo vol-7f3a9c21 > mounted")
    session.run("cat mounted; date > /dev/null")
    change = Replace("a1", "printf 'created volume vol-%x' 16711935")
    plan = session.plan(change)
    assert [(hint.source, hint.target, hint.token) for hint in plan.hints] == [("a1", "a2", "vol-7f3a9c21")]
    assert plan.of("keep") == ["a2", "a3"]
    assert "may hang on a1 by out:a1.stdout" in str(session.why("a2"))
    assert session.graph().edges["a1", "a2", "out:a1.stdout"]["provenance"] == "weak"
    report = session.repair(change, policy=Policy(3))
    assert report.ran == ("a1", "a2", "a3")  # level 3 knows no cut-off either
    assert session.repair(Replace("a1", "true"), policy=Policy(2)).kept == ("a2", "a3")


CHAIN = ("cat n.txt > b", "cat b > c", "cat c > d", "cat d > e")


def test_row_23_a_result_that_differs_each_time(session: Session) -> None:
    """A random id in a result reaches all who depend on it; that is reported, by its path, with what it looks like."""
    session.run('echo "id $(cat /proc/sys/kernel/random/uuid)" > n.txt')
    for command in CHAIN:
        session.run(command)
    report = session.repair(Rerun("a1"))
    assert report.ran == ("a1", "a2", "a3", "a4", "a5")
    told = {(one.action, one.key, one.looks, one.same_input) for one in report.volatile}
    assert ("a1", "dat:/workspace/n.txt", ("uuid",), True) in told
    assert ("a2", "dat:/workspace/b", ("uuid",), False) in told


@pytest.mark.parametrize(
    "made", ["cat /proc/sys/kernel/random/uuid", "head -c $(($(date +1%N) % 50 + 1)) /dev/zero | tr '\\0' 7"]
)
def test_row_23_an_equivalence_cuts_it_off(session: Session, made: str) -> None:
    """When somebody asserts that the id does not matter, its readers are kept, also if they look at time and size.

    Whoever changed the mode alone keeps no bytes of the old version.
    """
    session.run(f'echo "id $({made})" > n.txt')
    for command in CHAIN:
        session.run(command)
    session.run("stat -c '%s %y' n.txt; chmod 600 n.txt")
    before = session.files.read("/workspace/n.txt")
    policy = Policy(equivalences=(Equivalence("/workspace/*.txt", b"[0-9a-f-]{20,}|7+"),))
    report = session.repair(Rerun("a1"), policy=policy)
    assert (report.ran, report.volatile) == (("a1",), ())
    assert session.files.read("/workspace/b") == before
    after = session.files.read("/workspace/n.txt")
    assert session.run("cat n.txt").stdout == after
    report = session.repair(Replace("a1", "echo other > n.txt"), policy=policy)
    assert report.ran == ("a1", "a2", "a3", "a4", "a5", "a6", "a7")


INSERT = "python3 -I -c \"import sqlite3; d = sqlite3.connect('shop.db'); d.execute('INSERT INTO {} VALUES (?)', ({},)); d.commit()\""
SELECT = "python3 -I -c \"import sqlite3; print(sqlite3.connect('shop.db').execute('SELECT * FROM {}').fetchall())\""


@pytest.mark.skipif(shutil.which("python3") is None, reason="there is no Python in the base")
def test_row_33_two_tables_of_one_file(session: Session) -> None:
    """Two tables are one file: who read the one runs again for the other, unless it declared its part; a writer always does."""
    session.run("python3 -I -c \"import sqlite3; d = sqlite3.connect('shop.db'); d.execute('CREATE TABLE a (x)');"
                " d.execute('CREATE TABLE b (x)'); d.commit()\"", check=True)  # fmt: skip
    session.run(INSERT.format("a", 1), check=True)
    whole = session.run(SELECT.format("b"), check=True).id
    part = session.run(SELECT.format("b"), reads=["dat:/workspace/shop.db#table:b"], check=True).id
    other = session.run(SELECT.format("a"), reads=["dat:/workspace/shop.db#table:a"], check=True).id
    writer = session.run(INSERT.format("b", 3), reads=["dat:/workspace/shop.db#table:b"], check=True).id
    report = session.repair(Replace("a2", INSERT.format("a", 2)))
    assert report.ran == ("a2", whole, other, writer)
    assert part in report.kept
    assert session.record(other).stdout == "[(2,)]\n"
    assert session.run(SELECT.format("b")).stdout == "[(3,)]\n"
