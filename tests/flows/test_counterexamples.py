"""The counterexamples of the repair model, each a test named after its row: a history, the bad action, what must happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mulligan import Drop, Patch, Replace, Session
from mulligan.errors import ConflictError
from mulligan.model.action import Action, LaunchContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mulligan import Report
    from mulligan.model.change import Change

DUMP = (
    "find . -printf '%P %y %m %n %l\\n' | sort; find . -type f -print0 | sort -z | xargs -0 -r sha256sum;"
    " getfattr -d -m - -R . 2>/dev/null; true"
)


class History:
    """A session, and a twin at the same start on which the corrected history is run whole."""

    def __init__(self, home: Path, name: str, start: str) -> None:
        self.session = Session.create(name, home=home)
        self.session.run(start, check=True)  # a1 sets the stage
        self.twin = self.session.branch(f"{name}-twin")

    def close(self) -> None:
        """Close both sessions."""
        self.twin.close()
        self.session.close()

    def run(self, *commands: str) -> list[str]:
        """Run each command as an action; their ids."""
        return [self.session.run(c).id for c in commands]

    def repair(self, *changes: Change, rerun: Sequence[str], keep_going: bool = False) -> Report:
        """Repair, and compare tree and outputs with the whole corrected history `rerun`."""
        report = self.session.apply(self.session.plan(*changes), keep_going=keep_going)
        assert report.applied, report
        expected = [self.twin.run(c) for c in rerun]
        found = self.session.log()[1:]
        assert [(r.stdout, r.exit_code) for r in found] == [(r.stdout, r.exit_code) for r in expected]
        assert self.session.run(DUMP).stdout == self.twin.run(DUMP).stdout
        return report


@pytest.fixture
def begin(home: Path) -> Iterator[Callable[[str], History]]:
    """Begin a history whose first action is the given text."""
    opened: list[History] = []

    def make(start: str) -> History:
        opened.append(History(home, f"h{len(opened)}", start))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def test_row_1_a_probe_for_an_absent_file(begin: Callable[[str], History]) -> None:
    """Creating a file that an action had looked for in vain makes it run again."""
    h = begin("mkdir d; echo x > x")
    a, b = h.run("echo 1 > d/one", "test -e cfg.local && echo local || echo default")
    new = "echo 1 > d/one; echo hi > cfg.local"
    report = h.repair(Replace(a, new), rerun=[new, "test -e cfg.local && echo local || echo default"])
    assert report.ran == (a, b)


def test_row_2_a_listing(begin: Callable[[str], History]) -> None:
    """Adding a name to a folder that an action listed makes it run again."""
    h = begin("mkdir n; touch n/1.num n/2.num")
    count = "ls n/*.num | wc -l"
    a, b = h.run("echo 3 > n/3.num", count)
    new = "echo 3 > n/3.num; echo 7 > n/7.num"
    report = h.repair(Replace(a, new), rerun=[new, count])
    assert report.ran == (a, b)


def test_row_3_a_new_path_of_a_replay(begin: Callable[[str], History]) -> None:
    """A replay that writes a path it had not written before makes those run again who had only looked for that path."""
    h = begin("mkdir d e; echo no > flag")
    second = "grep -q yes flag && echo new > d/new; true"
    third = "cat d/new 2>/dev/null || echo none"
    a, b, c = h.run("echo no > flag", second, third)
    report = h.repair(Replace(a, "echo yes > flag"), rerun=["echo yes > flag", second, third])
    assert report.ran == (a, b, c)


def test_row_4_the_same_bytes(begin: Callable[[str], History]) -> None:
    """A replacement that produces the same bytes cuts the repair off: nothing else runs."""
    h = begin("mkdir d")
    a, b, c = h.run("echo hello > x", "cat x > y", "cat y > z")
    report = h.repair(Replace(a, "printf 'hello\\n' > x"), rerun=["printf 'hello\\n' > x", "cat x > y", "cat y > z"])
    assert report.ran == (a,)
    assert report.kept[-2:] == (b, c)


def test_row_5_a_blind_overwrite(begin: Callable[[str], History]) -> None:
    """Who reads what was overwritten blindly in between is not touched."""
    h = begin("echo old > x")
    a, b, c = h.run("echo bad > x", "echo fine > x", "cat x")
    report = h.repair(Replace(a, "echo good > x"), rerun=["echo good > x", "echo fine > x", "cat x"])
    assert report.ran == (a,)
    assert {b, c} <= set(report.kept)


def test_row_6_an_append(begin: Callable[[str], History]) -> None:
    """An append carries the old content along, so it runs again, and so does who reads the result."""
    h = begin("echo old > x")
    a, b, c = h.run("echo bad > x", "echo more >> x", "cat x")
    report = h.repair(Replace(a, "echo good > x"), rerun=["echo good > x", "echo more >> x", "cat x"])
    assert report.ran == (a, b, c)


def test_row_7_chmod_only(begin: Callable[[str], History]) -> None:
    """A layer that only changes a mode never brings old content back."""
    h = begin("echo old > x")
    a, _b, c = h.run("echo bad > x", "chmod 600 x", "cat x")
    report = h.repair(Replace(a, "echo good > x"), rerun=["echo good > x", "chmod 600 x", "cat x"])
    assert {a, c} <= set(report.ran)
    assert h.session.files.read("/workspace/x") == "good\n"


def test_row_8_opened_for_writing_and_not_written(begin: Callable[[str], History]) -> None:
    """A file that was opened read-write and not written leaves no copy that could shadow a new version."""
    h = begin("echo old > x")
    touch = "exec 3<>x; exec 3>&-"
    a, b = h.run("echo bad > x", touch)
    assert "/workspace/x" not in h.session.record(b).layer.manifest.entries
    h.repair(Replace(a, "echo good > x"), rerun=["echo good > x", touch])
    assert h.session.files.read("/workspace/x") == "good\n"


def test_row_9_the_mode_of_a_parent_is_inherited(begin: Callable[[str], History]) -> None:
    """A folder that a layer holds only as a parent has the mode that the new stack gives it."""
    h = begin("mkdir d; echo 0 > d/z")
    a, b = h.run("echo 1 > o", "echo y > d/y")
    new = "echo 1 > o; chmod 700 d"
    report = h.repair(Replace(a, new), rerun=[new, "echo y > d/y"])
    assert b in report.kept
    assert h.session.run("stat -c %a d").stdout == "700\n"


def test_row_10_a_kept_folder_is_not_opaque(begin: Callable[[str], History]) -> None:
    """`mkdir` of a folder that exists hides nothing that a replay puts into it."""
    h = begin("mkdir d; echo 0 > d/a")
    second = "mkdir d 2>/dev/null; echo y > d/y"  # `mkdir -p` also stats d, whose mtime is an input
    a, b = h.run("echo 1 > o", second)
    new = "echo 1 > o; echo z > d/z"
    report = h.repair(Replace(a, new), rerun=[new, second])
    assert b in report.kept
    assert h.session.files.read("/workspace/d/z") == "z\n"


def test_row_11_a_folder_removed_and_made_again(begin: Callable[[str], History]) -> None:
    """`rm -r d; mkdir d` runs again when d has got another entry, and the entry is gone."""
    h = begin("mkdir d; echo 0 > d/a")
    a, b = h.run("echo 1 > o", "rm -r d; mkdir d")
    new = "echo 1 > o; echo z > d/z"
    report = h.repair(Replace(a, new), rerun=[new, "rm -r d; mkdir d"])
    assert report.ran == (a, b)
    assert h.session.files.list("/workspace/d") == []


def test_row_12_removing_what_is_not_there_any_more(begin: Callable[[str], History]) -> None:
    """`rm x` runs again, and fails, when the action that made x is dropped."""
    h = begin("mkdir d")
    a, b = h.run("echo 1 > x", "rm x")
    plan = h.session.plan(Drop(a))
    assert not h.session.apply(plan).applied
    report = h.repair(Drop(a), rerun=["rm x"], keep_going=True)
    assert report.dropped == (a,)
    assert report.ran == report.diverged == report.failed == (b,)


def test_row_13_writing_into_a_folder_that_was_never_made(begin: Callable[[str], History]) -> None:
    """A write into a folder whose maker is dropped runs again, fails, and does not revive the folder."""
    h = begin("mkdir other")
    a, b = h.run("mkdir d", "echo y > d/y")
    report = h.repair(Drop(a), rerun=["echo y > d/y"], keep_going=True)
    assert report.ran == (b,)
    assert not h.session.files.exists("/workspace/d")


def test_row_14_a_file_where_a_folder_was(begin: Callable[[str], History]) -> None:
    """A layer with d/y can't stand where d has become a file: the action runs again."""
    h = begin("mkdir other")
    a, b = h.run("mkdir d", "echo y > d/y; true")
    report = h.repair(Replace(a, "echo file > d"), rerun=["echo file > d", "echo y > d/y; true"])
    assert report.ran == (a, b)


def test_row_15_a_symlink_retargeted(begin: Callable[[str], History]) -> None:
    """Who read through a symlink runs again when the link points elsewhere."""
    h = begin("mkdir v1 v2; echo 1 > v1/lib; echo 2 > v2/lib")
    a, b = h.run("ln -s v1 cur", "cat cur/lib")
    report = h.repair(Replace(a, "ln -s v2 cur"), rerun=["ln -s v2 cur", "cat cur/lib"])
    assert report.ran == (a, b)


def test_row_16_moving_a_folder_of_a_lower_layer(begin: Callable[[str], History]) -> None:
    """`mv` of a folder made earlier copies what is in it, so it runs again when a file in it changes."""
    h = begin("mkdir d; echo 0 > d/a")
    a, b = h.run("echo bad > d/f", "mv d new")
    report = h.repair(Replace(a, "echo good > d/f"), rerun=["echo good > d/f", "mv d new"])
    assert report.ran == (a, b)
    assert h.session.files.read("/workspace/new/f") == "good\n"


def test_row_18_a_replay_writes_what_a_later_action_wrote(begin: Callable[[str], History]) -> None:
    """A replay stands in its own slot: what a later, kept action wrote over it stays."""
    h = begin("echo 0 > n")
    t, _, look = h.run("cat n > /dev/null; echo 1 > f", "echo 2 > f", "cat f")
    new = "cat n > /dev/null; echo 3 > f"
    report = h.repair(Replace(t, new), rerun=[new, "echo 2 > f", "cat f"])
    assert report.ran == (t,)
    assert h.session.record(look).stdout == "2\n"
    assert h.session.files.read("/workspace/f") == "2\n"


def test_row_19_a_replay_sees_nothing_of_later_actions(begin: Callable[[str], History]) -> None:
    """A replay reads what stood there before its slot, not what a later, kept action made of it."""
    h = begin("echo old > cfg; echo 0 > n")
    a, t, c = h.run("echo 1 > n", "cat n cfg", "echo new > cfg")
    report = h.repair(Replace(a, "echo 2 > n"), rerun=["echo 2 > n", "cat n cfg", "echo new > cfg"])
    assert report.ran == (a, t)
    assert c in report.kept
    assert h.session.record(t).stdout == "2\nold\n"


def test_row_21_only_the_output_differs(begin: Callable[[str], History]) -> None:
    """Who declared an action's output as input runs again when only its stdout differs; who declared its status does not."""
    h = begin("true")
    a = h.session.run("echo 1").id
    b, c, d = (
        h.session.run(f"echo {n}", reads=[key]).id for n, key in enumerate((f"out:{a}", f"out:{a}.status", f"out:{a}.stdout"))
    )
    report = h.repair(Replace(a, "echo 2"), rerun=["echo 2", "echo 0", "echo 1", "echo 2"])
    assert (report.ran, report.kept) == ((a, b, d), ("a1", c))
    assert h.session.plan(Drop(a)).of("must_rerun") == [b, c, d]


def test_row_22_only_the_exit_code_differs(begin: Callable[[str], History]) -> None:
    """Likewise for the exit status, and for a declared output."""
    h = begin("true")
    a = h.session.run("echo '::set-output name=host::db1'").id
    keys = (f"out:{a}", f"out:{a}.status", f"out:{a}.stdout", f"out:{a}.outputs.host")
    b, c, d, e = (h.session.run("true", reads=[key]).id for key in keys)
    same = "echo '::set-output name=host::db1'; exit 3"
    report = h.repair(Replace(a, same), rerun=[same, *["true"] * 4], keep_going=True)
    assert (report.ran, report.kept) == ((a, b, c), ("a1", d, e))
    other = "echo; echo '::set-output name=host::db2'; exit 3"
    report = h.session.apply(h.session.plan(Replace(a, other)), keep_going=True)
    assert report.ran == (a, b, d, e)
    assert h.session.record(a).outputs == {"host": "db2"}


def test_row_20_a_variable_is_read_by_whoever_names_it(begin: Callable[[str], History]) -> None:
    """An exported variable that differs makes those run again that name it, themselves or in a script; no other action."""
    h = begin("printf 'echo at $DB_HOST\\n' > script; echo rows > rows")
    history = ["export DB_HOST=old", "echo $DB_HOST > host", "cat rows > copy", "sh script", "wc -l < copy"]
    a, b, _, d, _ = h.run(*history)
    new = "export DB_HOST=older"
    assert h.repair(Replace(a, new), rerun=[new, *history[1:]]).ran == (a, b, d)


def test_row_34_dirty_then_restored(begin: Callable[[str], History]) -> None:
    """When a replay restores what was dirty, all that follows is kept."""
    h = begin("echo 0 > seed")
    fix = "cat x > /dev/null; echo same > x; echo k > k"
    a, b, c, d = h.run("echo bad > x", fix, "cat x > y", "cat y k")
    report = h.repair(Replace(a, "echo good > x"), rerun=["echo good > x", fix, "cat x > y", "cat y k"])
    assert report.ran == (a, b)
    assert report.kept[-2:] == (c, d)


def test_row_35_a_replay_that_fails_midway(begin: Callable[[str], History]) -> None:
    """When a replay fails, the head, the tree and the history stay as they were."""
    h = begin("echo 0 > seed")
    a, b, _c = h.run("echo 1 > n", "test $(cat n) = 1 && echo ok > r", "cat r > s")
    before, head = h.session.run(DUMP).stdout, h.session.head
    report = h.session.apply(h.session.plan(Replace(a, "echo 2 > n")))
    assert not report.applied
    assert report.failed == (b,)
    assert h.session.head == head
    assert h.session.run(DUMP).stdout == before


def test_row_36_a_second_repair(begin: Callable[[str], History]) -> None:
    """A second repair works from the facts of the first one's replays."""
    h = begin("echo A > p; echo B > q; echo p > which")
    a, b, c = h.run("echo p > which", "cat $(cat which) > out", "cat out")
    rest = ["cat $(cat which) > out", "cat out"]
    h.repair(Replace(a, "echo q > which"), rerun=["echo q > which", *rest])
    h.twin.rollback("a1")
    changed = h.session.apply(h.session.plan(Replace("a1", "echo A > p; echo BB > q; echo p > which")), keep_going=True)
    assert changed.applied
    assert {b, c} <= set(changed.ran)
    assert h.session.record(c).stdout == "BB\n"


def test_row_38_an_action_added_between_plan_and_repair(begin: Callable[[str], History]) -> None:
    """A plan of a head that has moved on is refused and loses nothing; a repair takes in what was added at the end."""
    h = begin("echo 0 > n")
    (a,) = h.run("echo 1 > n")
    plan = h.session.plan(Replace(a, "echo 2 > n"))
    (b,) = h.run("cat n")
    before, head = h.session.log(), h.session.head
    with pytest.raises(ConflictError):
        h.session.apply(plan)
    assert (h.session.head, h.session.log()) == (head, before)
    report = h.session.apply(plan, extend=True)
    assert report.ran == (a, b)
    assert [(r.id, r.stdout) for r in h.session.log()[1:]] == [(a, ""), (b, "2\n")]


def test_row_38_a_head_that_moved_otherwise(begin: Callable[[str], History]) -> None:
    """A repair takes in only what was added at the end: never what was rolled back, repaired, or written where a patch belongs."""
    h = begin("echo 0 > n")
    a, b = h.run("echo 1 > n", "cat n")
    plan = h.session.plan(Replace(a, "echo 2 > n"))
    patch = h.session.plan(Patch("n", b"3\n"))
    h.run("echo 4 > n")
    with pytest.raises(ConflictError):
        h.session.apply(patch, extend=True)
    h.session.repair(Replace(b, "cat n; true"))
    for moved in (lambda: None, lambda: h.session.rollback(a)):
        moved()
        head = h.session.head
        with pytest.raises(ConflictError):
            h.session.apply(plan, extend=True)
        assert h.session.head == head


def test_row_38_an_action_added_during_a_repair(begin: Callable[[str], History]) -> None:
    """Whoever adds an action past the lock makes the compare-and-swap fail; the action is kept, and a repair goes on with it."""
    h = begin("echo 0 > n")
    a, b = h.run("echo 1 > n", "cat n")
    added: list[str] = []

    def add(action: str, *_: object) -> None:
        if action == b and len(added) < 2:
            added.append(append_past_the_lock(h.session, "cat n"))

    head = h.session.head
    with pytest.raises(ConflictError):
        h.session.apply(h.session.plan(Replace(a, "echo 2 > n")), progress=add)
    assert [r.id for r in h.session.log()[1:]] == [a, b, *added]
    assert h.session.head != head
    report = h.session.apply(h.session.plan(Replace(a, "echo 2 > n")), progress=add, extend=True)
    assert report.ran == (a, b, *added)
    assert [r.stdout for r in h.session.log()[1:]] == ["", "2\n", "2\n", "2\n"]


def append_past_the_lock(session: Session, text: str) -> str:
    """Add an action as one would who takes no lock; its id."""
    with Session.open(session.name, home=session.home) as other, other._runner.attempt() as attempt:
        head, journal = other.head, other._store.journal
        action = Action(journal.next_action_id(other.name), shell=text)
        record = other._runner.execute(action, LaunchContext(other.base.env), other._layer_ids(head))
        journal.append(other.name, head, record)
        attempt.keep()
        return action.id


def test_row_43_overwriting_keeps_the_mode(begin: Callable[[str], History]) -> None:
    """`> x` keeps the mode that x had, so it runs again when that mode changes."""
    h = begin("mkdir d")
    a, b = h.run("echo 1 > x; chmod 600 x", "echo 2 > x")
    new = "echo 1 > x; chmod 644 x"
    report = h.repair(Replace(a, new), rerun=[new, "echo 2 > x"])
    assert report.ran == (a, b)
    assert h.session.run("stat -c %a x").stdout == "644\n"


@pytest.mark.parametrize(("was", "now"), [("umask 022", "umask 077"), ("umask 027", "true"), ("true", "umask 0; cd d")])
def test_row_46_the_umask_and_the_folder_are_handed_on(begin: Callable[[str], History], was: str, now: str) -> None:
    """Who makes files, or asks for the umask, relies on the one that earlier actions left; who does neither is kept."""
    h = begin("mkdir d; echo 1 > here; chmod 644 here; echo 1 > d/here")
    history = [
        was,
        "echo 1 > made; mkdir folder; stat -c %a made folder",
        "test -e /workspace/here",
        "umask",
        "mkfifo p; rm p",
        "cat /workspace/here",
    ]
    a, b, c, d, e, f = h.run(*history)
    report = h.repair(Replace(a, now), rerun=[now, *history[1:]])
    assert report.ran == ((a, b, c, d, e, f) if "cd" in now else (a, b, d, e))
    assert [record.handoff.umask for record in h.session.log()[1:7]] == [{"umask 077": 0o077, "true": 0o022}.get(now, 0)] * 6
