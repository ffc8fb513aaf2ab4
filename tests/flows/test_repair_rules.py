"""Rules that make a repair equal to a full re-run, each held by the history that would break it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from twins import act, repaired, said

from mulligan import Patch, Record, Replace, Session
from mulligan.errors import ConflictError

PYTHON = "/usr/bin/python3"
DEFAULT_ACL = (
    "import os, struct; os.setxattr('d', 'system.posix_acl_default', struct.pack('<I', 2)"
    " + b''.join(struct.pack('<HHI', tag, bits, 0xFFFFFFFF) for tag, bits in ((1, 7), (4, 0), (0x20, 0))))"
)
ONLY_ATIME = (
    "import ctypes; time = (ctypes.c_long * 4)(1, 0, 0, (1 << 30) - 2);"
    " assert ctypes.CDLL(None).utimensat(-100, b'x', time, 0) == 0"
)
needs_python = pytest.mark.skipif(not os.path.exists(PYTHON), reason="there is no Python to call the kernel with")


def python(text: str) -> str:
    """A shell text that runs Python text."""
    return f'{PYTHON} -I -c "{text}"'


# -------------------------------------------------------------------------------------------------- time and order


def test_a_changed_file_stays_before_what_was_written_after_it(home: Path) -> None:
    """A replay that changes one file and not the next keeps their order, wherever in its time they were written."""
    look = act("[ src -nt obj ] && echo stale || echo fresh")
    new = act("sleep 0.1; echo new > src; echo const > obj")
    repaired(home, act("true"), [act("echo old > src; echo const > obj; sleep 0.1"), look], {0: new})


def test_equal_files_written_the_other_way_round(home: Path) -> None:
    """When a replay writes equal files in another order, whoever compares their times runs again."""
    look = act("[ f -nt g ] && echo f || echo g")
    history = [act("echo A > f; sleep 0.03; echo B > g"), look]
    report = repaired(home, act("true"), history, {0: act("echo B > g; sleep 0.03; echo A > f")})
    assert "a3" in report.ran


@pytest.mark.parametrize(
    ("start", "old", "new"),
    [
        ("echo A > x", "chmod 600 x", "echo A > x; chmod 600 x"),
        ("true", "echo A > x; touch -d 2001-01-01 x", "echo A > x"),
        ("mkdir x; echo A > x/f", "chmod 600 x/f", "touch x/new; rm x/new"),
    ],
    ids=["only its mode was set", "its time was set", "a folder was only copied up"],
)
def test_a_recorded_time_that_the_slot_did_not_give(home: Path, start: str, old: str, new: str) -> None:
    """What a replay writes is new in its slot, although the recorded layer has the like of it from another time."""
    look = act("[ x -nt y ] && echo newer || echo older")
    repaired(home, act(f"{start}; sleep 0.03; echo y > y"), [act(old), look], {0: act(new)})


@needs_python
def test_setting_the_access_time_alone(home: Path) -> None:
    """Who sets only the time of access has not set the time of change: that is inherited."""
    history = [act("echo bad > x"), act(python(ONLY_ATIME)), act("[ x -nt y ] && echo newer || echo older")]
    report = repaired(home, act("echo bad > x; sleep 0.03; echo y > y"), history, {0: act("true")})
    assert "a3" in report.kept


def test_a_second_repair_finds_the_slot_of_the_first_recording(home: Path) -> None:
    """However often a source is replayed, what a later action made from it stays newer."""
    with Session.create("twice", home=home) as session:
        a = session.run("echo one > src").id
        made = session.run("cp src obj; touch obj")
        look = session.run("[ src -nt obj ] && echo stale || echo fresh")
        for text in ("echo two > src", "echo three > src; touch other", "echo three > src; chmod 600 src"):
            session.repair(Replace(a, text))
            time.sleep(0.02)
            assert session.record(look.id).stdout == "fresh\n"
            assert session.record(made.id).outcome.started_ns == made.outcome.started_ns
        assert session.files.read("/workspace/obj") == "three\n"


def test_the_time_of_the_working_folder(home: Path) -> None:
    """`find . -newer` relies on the time of `.` as of any other folder."""
    history = [act("echo 1 > s"), act("find . -newer stamp | sort")]
    repaired(home, act("echo s > s; touch d; echo 1 > stamp; sleep 0.02"), history, {0: act("echo 1 > s; echo n > n; rm n")})


# -------------------------------------------------------------------------------------------------- metadata


def test_the_root_folder_under_a_kept_layer(home: Path) -> None:
    """A kept layer does not bring back the attributes that `/` had when it was made."""
    history = [act("true"), act("echo b > b"), act("stat -c %a /")]
    repaired(home, act("true"), history, {0: act("chmod 711 /; touch /tmp/x")})


@needs_python
def test_attributes_of_the_root_folder(home: Path) -> None:
    """Extended attributes of `/` outlive the action that set them, and follow a repair."""
    look = act(python("import os; print(os.listxattr('/'))"))
    report = repaired(
        home, act("true"), [act(python("import os; os.setxattr('/', 'user.z', b'1')")), act("echo > b"), look], {0: act("true")}
    )
    assert "a4" in report.ran


@needs_python
@pytest.mark.parametrize(
    ("call", "ran"),
    [("removexattr('x', 'user.z')", "a2 a3"), ("setxattr('x', 'user.z', b'2', os.XATTR_REPLACE)", "a2 a3 a4")],
    ids=["removed", "replaced"],
)
def test_an_attribute_that_was_not_there(call: str, ran: str, home: Path) -> None:
    """Who fails to remove or to replace an attribute has seen that it is not there, and runs again when it is."""
    history = [act("true"), act(python(f"import os; os.{call}")), act(python("import os; print(os.listxattr('x'))"))]
    report = repaired(home, act("echo > x"), history, {0: act(python("import os; os.setxattr('x', 'user.z', b'1')"))})
    assert report.ran == tuple(ran.split())


@needs_python
def test_a_default_acl_is_relied_on_by_who_makes_a_file(home: Path) -> None:
    """What is made in a folder gets its permissions from the folder's default ACL."""
    history = [act("true"), act("echo y > d/y"), act("stat -c %a d/y")]
    report = repaired(home, act("mkdir d"), history, {0: act(python(DEFAULT_ACL))})
    assert "a3" in report.ran


def test_a_set_id_bit_that_a_write_took_away(home: Path) -> None:
    """A kept write keeps what the kernel made of the mode, also when its layer is made again."""
    history = [act("chmod 4755 f"), act("echo 2 > f; echo z > d/z"), act("stat -c %a f d")]
    repaired(home, act("mkdir d; echo 1 > f; touch d/x"), history, {0: act("chmod 4755 f; chmod 711 d")})


# -------------------------------------------------------------------------------------------------- what is handed on


@pytest.mark.parametrize(
    ("old", "new", "same", "options"),
    [("export X=1", "export X=2", "export X=1", {"env": {"X": "5"}}), ("cd a", "cd b", "cd a", {"cwd": "/workspace"})],
    ids=["variable", "folder"],
)
def test_handing_on_the_value_that_was_there_before(
    home: Path, old: str, new: str, same: str, options: dict[str, object]
) -> None:
    """A shell that sets a variable or goes to a folder hands that on, also when it stood so before and was hidden from it."""
    repaired(home, act("mkdir a b"), [act(old), act(same, **options), act("echo $X; pwd")], {0: act(new)})


def test_the_order_of_the_environment(home: Path) -> None:
    """A program finds its variables in one order, whoever set them."""
    history = [act("export A=1 C=2"), act("export B=1; unset C"), act(["env"])]
    repaired(home, act("true"), history, {0: act("export C=2 A=3")})


# -------------------------------------------------------------------------------------------------- the base


@pytest.mark.parametrize(
    ("look", "drift"),
    [
        ("tool", "echo 'echo two' > tool"),
        ("cat $T/share/data", "echo two > ../share/data"),
        ("ls $T/share", "touch ../share/more"),
        ("test -e $T/share/absent && echo there || echo absent", "touch ../share/absent"),
        ("readlink $T/share/link", "ln -sfn elsewhere ../share/link"),
    ],
    ids=["program", "content", "listing", "absence", "symlink"],
)
def test_the_host_drifts(look: str, drift: str, home: Path, tmp_path: Path) -> None:
    """Whoever saw a file of the host's own that is another one now, or came or went, runs again in every repair."""
    prefix = tmp_path / "prefix"
    tmp_path.chmod(0o755)
    for name in ("bin", "share"):
        (prefix / name).mkdir(parents=True)
    (prefix / "bin" / "tool").write_text("#!/bin/sh\necho one\n")
    (prefix / "bin" / "tool").chmod(0o755)
    (prefix / "share" / "data").write_text("one\n")
    (prefix / "share" / "link").symlink_to("data")
    environ = {"PATH": f"{prefix / 'bin'}:{os.environ['PATH']}"}
    with Session.create("drift", home=home, environ=environ) as session:
        start = session.run("echo 1 > n")
        saw = session.run(look.replace("$T", str(prefix)))
        kept = session.run("cat n")
        assert os.system(f"cd {prefix / 'bin'} && {drift}") == 0
        with session.branch("twin", at=start.id) as twin:
            expected = [twin.run(record.action.text) for record in (saw, kept)]
            report = session.repair(Replace(start.id, "echo 1 > n; true"))
            assert [said(record) for record in session.log()[1:]] == [said(record) for record in expected]
        assert saw.id in report.ran
        assert session.repair(Replace(start.id, "echo 1 > n")).ran == (start.id,), "the new version is known now"


# -------------------------------------------------------------------------------------------------- ends of all kinds


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("cat f; exit 3", {}),
        ("cat f; kill -9 $$", {}),
        ("cat f; sleep 9", {"timeout": 0.7}),
        ("(sleep 9; echo late > late) & cat f", {}),
        ("cat f nothing; ./nothing; cat f > g", {}),
        (["/workspace/nothing"], {}),
    ],
    ids=["failed", "killed", "timed out", "left behind", "partly", "not found"],
)
def test_actions_that_end_badly(command: str | list[str], options: dict[str, object], home: Path) -> None:
    """An action that fails, is killed, runs out of time or leaves processes behind is replayed and compared like any other."""
    history = [act("echo 1 > f"), act(command, **options), act("cat g late 2>&1")]
    repaired(home, act("true"), history, {0: act("echo 2 > f; printf '#!/bin/sh\\ncat f\\n' > nothing; chmod +x nothing")})


def test_an_incomplete_action_counts_as_having_read_everything(
    home: Path, tmp_path: Path, guest: Callable[[str], Path]
) -> None:
    """An action with a hole in its trace runs again as soon as anything at all differs, and is kept while nothing does."""
    (tmp_path / "project").mkdir()
    shutil.copy(guest("unknown_call"), tmp_path / "project" / "unknown_call")
    with Session.create("hole", imports={str(tmp_path / "project"): "/workspace"}, home=home) as session:
        a = session.run("echo 1 > f")
        hole = session.run(["/workspace/unknown_call"])
        assert not hole.footprint.complete
        assert session.repair(Replace(a.id, "echo 1 > f; true")).kept == (hole.id,)
        assert session.repair(Replace(a.id, "echo 2 > f")).ran == (a.id, hole.id)


@pytest.mark.parametrize("mode", ["200", "000", "400"])
@pytest.mark.parametrize("folder", ["700", "000", "300"])
def test_files_that_are_closed_to_their_owner(mode: str, folder: str, home: Path) -> None:
    """What its owner may not read, or reach, is run over, repaired and compared like anything else."""
    start = f"mkdir d; echo 1 > d/x; chmod {mode} d/x; chmod {folder} d"
    history = [act("echo 1 > o"), act("chmod 700 d; exec 3>>d/x; exec 3>&-; echo 2 > d/y"), act("chmod 600 d/x; cat d/*")]
    try:
        repaired(home, act(start), history, {0: act("echo 1 > o; chmod 700 d; touch d/z")})
        repaired(home, act("true"), [act(start), *history], {0: act(f"{start}; chmod 600 d d/x")})
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", home], check=True)  # so that the test's folder can be removed


# -------------------------------------------------------------------------------------------------- others at work


def test_an_action_that_is_run_during_a_repair(home: Path) -> None:
    """It waits for the repair and runs on the repaired state: nothing is lost, and the order is serial."""
    with Session.create("both", home=home) as session, Session.open("both", home=home) as other, ThreadPoolExecutor() as pool:
        a, b = session.run("echo 1 > f").id, session.run("cat f > g").id
        running: list[Future[Record]] = []

        def progress(action: str, *_: object) -> None:
            if action == b:
                running.append(pool.submit(other.run, "cat f g"))

        report = session.apply(session.plan(Replace(a, "echo 2 > f")), progress=progress)
        assert report.applied
        assert running[0].result().stdout == "2\n2\n"
        assert [record.id for record in session.log()] == [a, b, "a3"]


def test_an_action_that_is_run_between_plan_and_repair(home: Path) -> None:
    """A plan of a head that has moved on is refused, and nothing changes."""
    with Session.create("late", home=home) as session, Session.open("late", home=home) as other:
        a = session.run("echo 1 > f").id
        plan = session.plan(Replace(a, "echo 2 > f"))
        other.run("cat f > g")
        head = session.head
        with pytest.raises(ConflictError):
            session.apply(plan)
        assert session.head == head
        assert session.repair(Replace(a, "echo 2 > f")).ran == (a, "a2")


def test_who_has_given_up_its_privileges(home: Path) -> None:
    """When a program changes its user, modes and owners decide what it may see, be it root that started it."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user inside, by setpriv")
    become = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    history = [act("mkdir d; echo 1 > d/x; echo 2 > y"), act(f"{become} cat d/x"), act(f"{become} cat y")]
    for text in ("mkdir -m 700 d; echo 1 > d/x; echo 2 > y", "mkdir d; echo 1 > d/x; chmod 600 d/x; echo 2 > y"):
        report = repaired(home, act("true"), history, {0: act(text)})
        assert report.kept == ("a1", "a4")


def test_a_patch_that_is_put_before_another_one(home: Path) -> None:
    """Every patch has a time of its own, between that of the slot before it and that of the slot after it."""
    with Session.create("s", home=home) as session:
        session.run("echo one > x", check=True)
        session.run("cat x", check=True)
        for value in (b"two\n", b"three\n", b"four\n"):
            assert session.apply(session.plan(Patch("x", value, at="a1"))).applied
        records = session.log()
        assert [r.action.kind for r in records] == ["run", "patch", "patch", "patch", "run"]
        times = [r.layer.manifest.entries["/workspace/x"].mtime_ns for r in records[:-1]]
        windows = [(r.outcome.started_ns, r.outcome.ended_ns) for r in records]
        assert times == sorted(set(times))
        assert all(before[1] < after[0] for before, after in pairwise(windows))
        assert records[-1].stdout == "two\n"
