"""A disk budget: the oldest layers are given up, nothing else is lost, and from the oldest repairable point on all is exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from twins import tree_of

from mulligan import Drop, GivenUpError, Patch, Replace, Session
from mulligan.cli import main as cli
from mulligan.history.store import Store
from mulligan.upkeep import GcReport, gc, remove, sessions

MB = 1 << 20
COUNT = 12
BIG = "head -c 1000000 /dev/urandom > big; echo {n} >> log; cp log log.{n}; chmod 640 log; ln -f log.{n} link; rm -f log.{o}; mkdir -p d/{n}"


def fill(session: Session, first: int = 1, last: int = COUNT) -> None:
    """Actions of a megabyte each, of which each overwrites the one before; all append to one file, and remove, link and chmod."""
    for number in range(first, last + 1):
        session.run(BIG.format(n=number, o=number - 3), check=True)


def bytes_of(home: Path) -> int:
    """What the store takes on disk."""
    return sum(one.lstat().st_blocks * 512 for one in home.rglob("*"))


def less(home: Path, megabytes: float) -> int:
    """A budget of so many megabytes less than the store takes."""
    size = gc(home, budget=1 << 40).size
    assert size is not None
    return size - int(megabytes * MB)


@pytest.fixture
def job(home: Path):
    """A session of twelve actions and some twelve megabytes."""
    with Session.create("job", home=home) as session:
        fill(session)
        yield session


def test_within_the_budget_nothing_is_given_up(job: Session) -> None:
    """A store that fits keeps all of its layers, and says how large it is."""
    report = gc(job.home, budget=100 * MB)
    assert not report.given_up
    assert not report.oldest
    assert report.size is not None
    assert 12 * MB < report.size < 30 * MB
    assert job.oldest_repairable == "a1"


def test_beyond_it_the_oldest_layers_go_and_the_rest_is_exact(job: Session) -> None:
    """The state stays what it was; a repair from the floor on equals the corrected history, run in a twin in full."""
    before = tree_of(job)
    twin = job.branch("twin", at="a8")
    size = bytes_of(job.home)
    with twin:
        twin.run("echo nine >> log; cp log log.9", check=True)
        fill(twin, 10)
        expected = {path: row for path, row in tree_of(twin).items() if path != "/workspace/big"}
    remove("twin", job.home)
    gc(job.home)
    budget = less(job.home, 4.5)
    told = gc(job.home, budget=budget, dry_run=True)
    assert told.given_up["job"] > 0
    assert bytes_of(job.home) >= budget, "a dry run frees nothing"
    report = gc(job.home, budget=budget)
    given_up = report.given_up["job"]
    assert report.given_up == told.given_up
    assert 5 <= given_up <= 8
    assert next(one.count for one in report.freed if one.kind == "given_up") == given_up
    assert report.size is not None
    assert report.size <= budget
    assert bytes_of(job.home) < size - 4 * MB
    assert report.oldest == {"job": f"a{given_up + 1}"}
    assert [row.oldest for row in sessions(job.home)] == [f"a{given_up + 1}"]

    assert tree_of(job) == before
    assert len(job.log()) == COUNT
    assert job.run("cat log | wc -l; stat -c %h link", check=True).stdout.split() == ["12", "2"]
    job.rollback(f"a{COUNT}")
    applied = job.repair(Replace("a9", "echo nine >> log; cp log log.9"))
    assert applied.ran == ("a9", "a10", "a11", "a12")
    assert {path: row for path, row in tree_of(job).items() if path != "/workspace/big"} == expected
    assert len(job.log()) == COUNT


def test_row_39_what_is_older_than_the_oldest_repairable_point_is_refused_clearly(job: Session) -> None:
    """A change, a rollback, a branch or a difference that begins below the floor names the oldest repairable action."""
    given_up = gc(job.home, budget=less(job.home, 4.5)).given_up["job"]
    head, oldest = job.head, f"a{given_up + 1}"
    assert job.oldest_repairable == oldest
    below = f"a{given_up - 1}"
    for attempt in (
        lambda: job.plan(Drop("a1")),
        lambda: job.plan(Replace(f"a{given_up}", "true")),
        lambda: job.plan(Patch("/workspace/log.1", b"x", at="a2")),
        lambda: job.plan(Patch(f"/workspace/d/{given_up}/new", b"x")),
        lambda: job.rollback(below),
        lambda: job.branch("old", at=below),
        lambda: job.diff(f"a{given_up}"),
        lambda: job.diff("a1", oldest),
    ):
        with pytest.raises(GivenUpError, match=f"the oldest action that can be is {oldest}"):
            attempt()
    assert job.head == head
    assert job.record("a1").stdout == ""
    assert job.why(f"/workspace/log.{COUNT}")
    assert {row.path for row in job.diff()} >= {"/workspace/log", "/workspace/big"}
    assert [row.path for row in job.diff(f"a{given_up}", oldest)]
    with job.branch("new", at=f"a{given_up}") as session:  # the floor itself is a state that can be gone back to
        assert session.files.read("log").split()[-1] == str(given_up)
        assert session.oldest_repairable is None
        session.run("true", check=True)
        session.repair(Patch("/workspace/log", b"patched\n", at=f"a{COUNT + 1}"))
        assert session.files.read("log") == "patched\n"


def test_what_a_branch_or_a_pin_needs_is_kept(job: Session, tmp_path: Path) -> None:
    """One session's budget takes nothing from another one; a committed state is still compared with what was committed."""
    target = tmp_path / "out"
    target.mkdir()
    with job.branch("side", at="a3") as side:
        state = tree_of(side)
        side.commit(str(target))
        given_up = gc(job.home, budget=7 * MB, session="job").given_up
        assert set(given_up) == {"job"}
        assert tree_of(side) == state
        side.repair(Replace("a1", "echo one >> log; cp log log.1"))
        assert side.files.read("log").split() == ["one", "2", "3"]
        assert side.oldest_repairable == "a1"
        (target / "log").write_text("edited\n")
        assert side.commit(str(target)).conflicts
    assert job.files.read("log").split() == [str(n) for n in range(1, COUNT + 1)]


def test_a_floor_moves_up_and_down_to_nothing(job: Session) -> None:
    """A second budget folds the floor itself; a budget of nothing leaves the present state alone, and says so."""
    first = gc(job.home, budget=less(job.home, 2.5)).given_up["job"]
    before = tree_of(job)
    second = gc(job.home, budget=less(job.home, 2.5)).given_up["job"]
    assert job.oldest_repairable == f"a{first + second + 1}"
    assert tree_of(job) == before
    report = gc(job.home, budget=0)
    assert job.oldest_repairable is None
    assert report.size is not None
    assert report.size > 0
    assert tree_of(job) == before
    fill(job, COUNT + 1, COUNT + 2)
    assert job.oldest_repairable == f"a{COUNT + 1}"
    assert job.repair(Drop(f"a{COUNT + 1}")).ran == (f"a{COUNT + 2}",)
    assert not gc(job.home, budget=100 * MB).given_up


def test_killed_before_its_transaction_a_budget_has_changed_nothing(job: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folded layer is an orphan then, and the next gc removes it."""
    before = tree_of(job)

    def killed(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Store, "lay_floors", killed)
        with pytest.raises(KeyboardInterrupt):
            gc(job.home, budget=less(job.home, 4.5))
    assert job.oldest_repairable == "a1"
    assert tree_of(job) == before
    assert [one for one in (job.home / "layers").iterdir() if one.name.startswith("floor-")]
    report: GcReport = gc(job.home)
    assert report.layers == 1
    assert not [one for one in (job.home / "layers").iterdir() if one.name.startswith("floor-")]
    assert job.repair(Drop("a1")).applied


def test_branches_merge_above_the_floor_and_not_across_it(job: Session) -> None:
    """What two branches did since the floor goes together as ever; what parted below it is refused."""
    with job.branch("early", at="a2") as early, job.branch("late") as late:
        early.run("echo early > early", check=True)
        late.run("echo late > late", check=True)
        gc(job.home, budget=less(job.home, 4.5), session="job")
        job.run("echo ours > ours", check=True)
        with pytest.raises(GivenUpError, match="can't rebuild the state at which they parted"):
            job.merge("early")
        assert job.merge("late").applied
    assert (job.files.read("ours"), job.files.read("late")) == ("ours\n", "late\n")
    assert len(job.log()) == COUNT + 2


def test_the_command_line_tells_the_oldest_repairable_point(job: Session, capsys: pytest.CaptureFixture[str]) -> None:
    """`gc --budget`, `log` and `ps` name it, and what is older ends with its own exit code."""
    environ = {"MULLIGAN_HOME": str(job.home), "MULLIGAN_SESSION": "job"}
    budget = str(less(job.home, 4.5))
    assert cli.main(["gc", "--budget", budget, "--dry-run"], environ) == 0
    assert "would go for the budget" in capsys.readouterr().out
    assert job.oldest_repairable == "a1"
    assert cli.main(["gc", "--budget", budget], environ) == 0
    oldest = job.oldest_repairable
    assert oldest is not None
    assert f"job: the oldest action that can be repaired is {oldest}" in capsys.readouterr().out
    assert cli.main(["log"], environ) == 0
    assert f"can't be repaired or gone back to any more; the oldest action that can be is {oldest}" in capsys.readouterr().out
    assert cli.main(["log", "--json"], environ) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["repairable"] for row in rows] == [int(row["action"][1:]) >= int(oldest[1:]) for row in rows]
    assert cli.main(["ps"], environ) == 0
    assert oldest in capsys.readouterr().out
    assert cli.main(["repair", "--drop", "a1", "--yes"], environ) == 105
    assert f"the oldest action that can be is {oldest}" in capsys.readouterr().err
    assert cli.main(["rollback", "a1"], environ) == 105
    assert cli.main(["gc", "--budget", "lots"], environ) == 100
    assert cli.main(["gc", "-s", "job"], environ) == 100


def test_a_floor_stops_below_what_was_committed_even_of_a_history_that_was_repaired_since(home: Path, tmp_path: Path) -> None:
    """A state that was committed stands on the first floor: a second one stays below all that the state shares with the present."""
    target = tmp_path / "out"
    target.mkdir()
    with Session.create("job", home=home) as session:
        fill(session, 1, 8)
        first = gc(home, budget=less(home, 2.5)).given_up["job"]
        floor = session.oldest_repairable
        assert session.commit(str(target)).applied
        session.repair(Replace("a8", "echo eight >> log"))
        fill(session, 9, 12)
        gc(home, budget=less(home, 4.5))
        oldest = session.oldest_repairable
        assert floor is not None
        assert first < int(str(oldest)[1:]) <= 8
        assert session.repair(Replace("a8", "echo 8 >> log")).applied
        assert session.commit(str(target)).applied
        assert gc(home, budget=0).given_up["job"] > 0, "what was committed is the present state again"


def test_a_floor_stays_where_the_committed_state_is_the_floor_itself(home: Path, tmp_path: Path) -> None:
    """What was committed right at the floor is still compared with the folder after later budgets."""
    target = tmp_path / "out"
    target.mkdir()
    with Session.create("job", home=home) as session:
        fill(session, 1, 4)
        assert gc(home, budget=0).given_up == {"job": 4}
        assert session.commit(str(target)).applied
        fill(session, 5, 8)
        assert not gc(home, budget=0).given_up
        assert session.commit(str(target)).applied
        assert gc(home, budget=0).given_up == {"job": 4}
        assert session.files.read("log").split() == [str(n) for n in range(1, 9)]


def test_a_plan_that_a_budget_overtook_is_refused(job: Session) -> None:
    """Between a plan and the repair a floor may be laid: what the plan corrects below it can't be corrected any more."""
    plans = [
        job.plan(Patch("/workspace/d/1/new", b"x", at="a1")),
        job.plan(Drop("a2")),
        job.plan(Patch("/workspace/log.1", b"x")),
    ]
    before = tree_of(job)
    assert gc(job.home, budget=less(job.home, 4.5)).given_up["job"] > 2
    for plan in plans:
        with pytest.raises(GivenUpError):
            job.apply(plan, keep_going=True)
    assert tree_of(job) == before
