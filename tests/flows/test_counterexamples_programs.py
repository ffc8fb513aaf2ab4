"""The counterexamples that need real programs, or the kernel's less usual ways, each a test named after its row.

All compare the repaired history with one that was run from the start as corrected: outputs, names, bytes, modes, owners, link
groups and extended attributes.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from twins import Act, act, repaired

from mulligan import Drop, Replace, Session
from mulligan.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PYTHON = "python3"


@pytest.fixture
def project(tmp_path: Path, fsops: Path) -> Path:
    """A folder to import that holds the guest for file operations."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(fsops, folder / "fsops")
    return folder


@pytest.fixture
def program(lacking_here: Callable[[str], None]) -> Callable[[str], str]:
    """The path of a program that the host has, or no test."""

    def find(name: str) -> str:
        path = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if path is None:
            lacking_here(f"there is no {name}")
        return str(path)

    return find


# -------------------------------------------------------------------------------------------------- links


@pytest.mark.parametrize("easy", [40, 2], ids=["layers", "folded"])
def test_row_17_the_boundaries_of_hard_links(home: Path, monkeypatch: pytest.MonkeyPatch, easy: int) -> None:
    """A later write to one name of a file leaves its other name as it was, in layers as they are and in folded ones."""
    monkeypatch.setattr("mulligan.sandbox.composite.EASY", easy)
    history = [
        act("echo bad > o"),
        act("echo 1 > f; ln f g; ln f h"),
        act("echo 2 > f; cat g h"),
        act("chmod 600 h; cat f g"),
        *(act(f"echo {number} > n{number % 3}; ln -f g l{number}") for number in range(2 if easy == 40 else 16)),
        act("cat f g h o; stat -c '%n %a' f g h"),
    ]
    report = repaired(home, act("echo 0 > o"), history, {0: act("echo good > o"), 2: act("echo two > f; cat g h")})
    assert {"a2", "a4", report.ran[-1]} <= set(report.ran)
    assert "a3" in report.kept


def test_row_44_overwriting_through_a_link_that_was_never_made(home: Path) -> None:
    """`> x` on a name that a dropped action had linked to y runs again: x is new then, and y is as it was."""
    start = act("echo 1 > y")
    report = repaired(home, start, [act("ln y x"), act("echo 2 > x"), act("cat x y")], {0: None}, then=[act("cat x y")])
    assert "a3" in report.ran
    linked = [act("echo 1 > z; ln z x"), act("echo 2 > x; cat z"), act("cat x z")]
    assert "a3" in repaired(home, start, linked, {0: act("echo 1 > z; echo 1 > x")}).ran


# -------------------------------------------------------------------------------------------------- real programs


def test_row_24_bytecode_that_is_told_by_time_and_size(home: Path, program: Callable[[str], str]) -> None:
    """A .pyc is told from a stale one by its source's time and size alone: with both the same, who imported it runs again."""
    program("python3")
    write = "printf 'X = {}\\n' > mod.py; touch -d @1700000000 mod.py"
    use = act(f"{PYTHON} -c 'import mod; print(mod.X)'; ls __pycache__ | wc -l", env={"PYTHONPATH": "/workspace"})
    history = [act(write.format(2)), use, use, act("echo beside")]
    report = repaired(home, act(write.format(1)), history, {0: act(write.format(3))}, then=[use])
    assert report.ran == ("a2", "a3", "a4")


def test_row_25_make_compares_times(home: Path, program: Callable[[str], str]) -> None:
    """After a repair make finds up to date what a run from the start would leave so, and makes what that would make."""
    make = program("make")
    rules = "printf 'all: a b\\na: one\\n\\tcp one a\\nb: two common\\n\\tcat two common > b\\n' > Makefile; echo c > common"
    history = [
        act("echo 1 > one"), act("echo 2 > two"), act(f"{make} a"), act(f"{make} b"), act(make), act("echo 3 >> two"), act(f"{make} -q; echo $?"),
        act(make), act(make),
    ]  # fmt: skip
    report = repaired(
        home, act(rules), history, {0: act("sleep 0.03; echo one > one")}, then=[act(f"{make} -q; echo $?"), act(make)]
    )
    assert {"a2", "a4"} <= set(report.ran)
    assert {"a3", "a5", "a7"} <= set(report.kept)
    repaired(home, act(rules), history, {1: act("sleep 0.03; echo two > two")}, then=[act(f"{make} -q; echo $?"), act(make)])


def test_row_26_the_stat_cache_of_git(home: Path, program: Callable[[str], str]) -> None:
    """Inode numbers and ctimes in git's index make nothing dirty, and a repaired repository is clean and right."""
    git = program("git")
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER")
           for what, value in (("NAME", "n"), ("EMAIL", "e"), ("DATE", "2024-01-02T03:04:05Z"))}  # fmt: skip

    def run(text: str) -> Act:
        return act(text.replace("git ", f"{git} "), env={**who, "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"})

    start = run("git init -q -b main r; cd r; echo 1 > f; echo 1 > g; git add .; git commit -qm one; cd ..; mkdir other")
    status = "cd r; git status --short; git ls-files -s; git log --format=%H; git diff | cat; cd .."
    history = [run("echo bad > other/n"), run(status), run("cd r; echo 2 > f; git commit -qam two; cd .."), run(status)]
    report = repaired(home, start, history, {0: act("echo good > other/n")}, but=r"/\.git/index$", then=[run(status)])
    assert report.ran == ("a2",)
    history[0] = run("cd r; echo bad > g; git add g; cd ..")
    other = {0: run("cd r; echo good > g; git add g; cd ..")}
    report = repaired(
        home, start, history, other, but=r"/\.git/(index|logs/.*)$", then=[run(status), run("cd r; git fsck --strict 2>&1")]
    )
    assert report.ran == ("a2", "a3", "a4", "a5")


# -------------------------------------------------------------------------------------------------- boundaries


def test_row_30_a_daemon_ends_with_its_action(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that an action leaves is killed at its end and writes nothing later; the record, `show` and JSON say so."""
    daemon = (
        "(trap '' HUP TERM; exec >/dev/null 2>&1 </dev/null; while :; do echo tick >> log; sleep 0.02; done) &"
        " until [ -s log ]; do :; done; echo started{}"
    )
    with Session.create("s", home=home) as session:
        session.run("mkdir d")
        left = session.run(daemon.format(""))
        assert left.outcome.killed_at_end
        count = "wc -l < log 2>/dev/null; sleep 0.2; wc -l < log"
        lines = session.run(count).stdout.split()
        assert len(set(lines)) <= 1, lines
        assert session.run(["ps", "-A", "-o", "comm="]).stdout.split().count("sleep") == 0
        report = session.repair(Replace("a2", daemon.format(" again")))
        assert "a2" in report.ran
        assert session.record("a2").outcome.killed_at_end
        lines = session.record("a3").stdout.split()
        assert len(set(lines)) <= 1, lines
    for words, form in ((["show", "a2"], str), (["show", "a2", "--json"], json.loads)):
        capsys.readouterr()
        assert main([*words, "-s", "s"], {"MULLIGAN_HOME": str(home)}) == 0
        told = form(capsys.readouterr().out)
        assert told["outcome"]["killed_at_end"] if isinstance(told, dict) else "killed" in told, told


WAYS = {
    "a FIFO": ("mkfifo p; (echo secret > p) & sleep 0.05", "test -p p && timeout 0.2 cat p || echo nothing"),
    "a unix socket": (
        f"{PYTHON} -c 'import os, socket, time; s = socket.socket(socket.AF_UNIX); s.bind(\"s\"); s.listen(); os.fork() or time.sleep(9)' & sleep 0.3",
        f"test -S s; {PYTHON} -c 'import socket; print(socket.socket(socket.AF_UNIX).connect_ex(\"s\"))'",
    ),
    "an abstract socket": (
        f"{PYTHON} -c 'import socket, time; s = socket.socket(socket.AF_UNIX); s.bind(\"\\0s\"); s.listen(); time.sleep(9)' & sleep 0.3",
        f"{PYTHON} -c 'import socket; print(socket.socket(socket.AF_UNIX).connect_ex(\"\\0s\"))'",
    ),
    "shared memory": ("echo secret > /dev/shm/x; ls /dev/shm", "ls -A /dev/shm; cat /dev/shm/x 2>/dev/null || echo nothing"),
    "SysV memory and queues": ("ipcmk -M 64 > /dev/null; ipcmk -Q > /dev/null; ipcs | grep -c 0x", "ipcs | grep -c 0x"),
    "a passed descriptor": (
        "exec 9<> /workspace/o; echo $$ > pid",
        "ls /proc/$(cat pid)/fd/9 2>/dev/null || echo none; ls /proc/self/fd | wc -w",
    ),
    "a lock": ("exec 9> lock; flock 9; sleep 9 & echo held", "flock -n lock echo free"),
}


@pytest.mark.parametrize("way", WAYS)
def test_row_31_nothing_passes_between_actions_but_the_state(home: Path, way: str) -> None:
    """What processes share beside files ends with their action: no later one can be reached by it, in a run or in a replay."""
    first, second = WAYS[way]
    plain = act("echo bad > o")
    report = repaired(
        home, act("echo 0 > o"), [plain, act(first), act(second)], {0: act("echo good > o"), 1: act(f"{first}; true")}
    )
    assert {"a2", "a3"} <= set(report.ran)
    with Session.create("look", home=home) as session:
        session.run(first)
        said = session.run(second).stdout.split()
        assert "secret" not in said
        assert said[-1:] != ["9"]


# -------------------------------------------------------------------------------------------------- less usual ways to write

GUEST = "/workspace/fsops"
LESS_USUAL = {
    "MAP_SHARED": f'{GUEST} M y "$(cat x)"',
    "MAP_SHARED of what was there": f"{GUEST} M x zz; cat x > y",
    "copy_file_range": f"{GUEST} C x y",
    "O_TMPFILE and linkat": f'rm y; {GUEST} T y "$(cat x)"',
    "RENAME_EXCHANGE": f"{GUEST} x x y",
    "a descriptor of the folder": f'{GUEST} q y "$(cat x)"',
    "/proc/self/fd": "exec 3< x; cat /proc/self/fd/3 > y; exec 4> z; cat x > /proc/self/fd/4",
    "memfd and execveat": f"{PYTHON} -c 'import os; m = os.memfd_create(\"m\"); os.write(m, open(\"/bin/cat\", \"rb\").read());"
    " os.execve(m, [\"cat\", \"x\"], {{}})' > y".replace("{{}}", "{}"),
    "sendfile": f"{PYTHON} -c 'import os; i = os.open(\"x\", 0); o = os.open(\"y\", os.O_CREAT | os.O_WRONLY); os.sendfile(o, i, 0, 99)'",
    "splice": f"{PYTHON} -c 'import os; i = os.open(\"x\", 0); o = os.open(\"y\", os.O_CREAT | os.O_WRONLY); r, w = os.pipe();"
    " os.splice(i, w, 99); os.splice(r, o, 99)'",
}  # fmt: skip


@pytest.mark.parametrize("way", LESS_USUAL)
def test_row_32_less_usual_ways_to_read_and_write(home: Path, project: Path, way: str) -> None:
    """However an action reads x and writes y, it runs again when x changes, and whoever reads y does, too."""
    history = [act("echo bad > x"), act(LESS_USUAL[way]), act("cat y")]
    report = repaired(home, act("echo old > x; echo 1 > y"), history, {0: act("echo good > x")}, project=project)
    assert report.ran == ("a2", "a3", "a4")


# -------------------------------------------------------------------------------------------------- all of a file

ATTRIBUTES = """
import os, struct
def attempt(*args):
    try:
        os.setxattr(*args)
    except OSError as error:
        print(args[1], error.strerror)
open("d/all", "w").write("content")
attempt("d/all", "user.k", b"v\\0v")
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in [(1, 6, 2**32 - 1), (2, 4, 0), (4, 4, 2**32 - 1), (16, 6, 2**32 - 1), (32, 0, 2**32 - 1)])
attempt("d/all", "system.posix_acl_access", acl)
os.mkdir("d/sub")
attempt("d/sub", "system.posix_acl_default", acl)
open("d/cap", "w").write("x")
attempt("d/cap", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0))
open("d/set", "w").write("x")
os.chmod("d/set", 0o6755)
with open("d/sparse", "wb") as file:
    file.truncate(50 << 20)
    file.seek(20 << 20)
    file.write(b"island")
os.link("d/all", "d/linked")
os.symlink("all", "d/l")
os.mkfifo("d/fifo")
os.utime("d/all", ns=(1, 1234567890123456789))
"""
TOLD = """
import os
for name in sorted(os.listdir("d")):
    path = "d/" + name
    s = os.lstat(path)
    xattrs = [(k, os.getxattr(path, k, follow_symlinks=False)) for k in sorted(os.listxattr(path, follow_symlinks=False))]
    print(name, oct(s.st_mode), s.st_uid, s.st_gid, s.st_nlink, s.st_size, s.st_blocks < 1024, xattrs)
print(os.stat("d/all").st_mtime_ns)
"""


def test_row_37_all_of_a_file_in_a_layer_made_again(home: Path, program: Callable[[str], str]) -> None:
    """Attributes, ACLs, capabilities, set-id bits, holes, links and times of a kept layer outlive its being made again."""
    program("python3")
    with Session.create("s", home=home) as session:
        session.run("mkdir d; echo 0 > d/z", check=True)
        twin = session.branch("twin")
        session.run("echo 1 > o", check=True)
        made = session.run([PYTHON, "-c", ATTRIBUTES], check=True)
        new = "echo 1 > o; chmod 751 d"
        report = session.repair(Replace("a2", new))
        assert report.ran == ("a2",)
        kept = session.record("a3")
        assert kept.layer.id != made.layer.id
        with twin:
            twin.run(new, check=True)
            assert twin.run([PYTHON, "-c", ATTRIBUTES], check=True).stdout == made.stdout
            expected = twin.run([PYTHON, "-c", TOLD], check=True).stdout
        assert session.run([PYTHON, "-c", TOLD], check=True).stdout == expected
        assert "1 52428800 True" in expected
        assert "set 0o106755" in expected
        assert "user.k" in expected
        assert session.repair(Drop("a2")).kept
