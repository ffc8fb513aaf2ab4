"""A shell action can't tell that it hands on: what it says is what a plain `bash -c` says, and what it leaves goes on."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from mulligan import Session
from mulligan.sandbox import native

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAIN = [
    "if", "((", "echo 'it", "echo a)\necho b", "for x in; do", "echo $LINENO\necho $LINENO", "false\nno-such-program\necho $LINENO", "trap -p; trap",
    "trap 'echo bye $BASH_COMMAND $LINENO' EXIT; exit 2", "trap 'echo $BASH_COMMAND' DEBUG; true; x=1", "set -x; true; (exit 3)", "set -xv; x=1",
    "exec 5> log; BASH_XTRACEFD=5; set -x; true; cat log", "echo $BASH_COMMAND; echo $BASH_EXECUTION_STRING", 'echo $_; echo "${BASH_SOURCE[@]}" ${FUNCNAME[@]}',
    "set | grep -c ^LD_; env | grep -c ^LD_; declare -F; alias; shopt -p expand_aliases; enable | wc -l", "ls /proc/$$/fd", "echo $- $SHLVL $# $0",
    'old=$(trap -p EXIT); echo "[$old]"; kill -KILL $$', "set -e; trap 'echo err $LINENO' ERR; false", "kill -TERM $$", "exec no-such-program",
    "sh -c 'kill -KILL $$'", "ps -o comm= -p $$ 2> /dev/null || cat /proc/$$/comm", "tr '\\0' ' ' < /proc/$$/cmdline", "jobs; (sleep 0 &); wait; times | wc -l",
]  # fmt: skip


@pytest.fixture(scope="module")
def session(shared_home: Path) -> Iterator[Session]:
    """One session for all texts."""
    with Session.create("shell-texts", home=shared_home) as opened:
        if not opened.base.shell.endswith("bash"):
            pytest.skip("there is no bash")
        yield opened


@pytest.mark.parametrize("text", PLAIN)
def test_a_text_sees_a_plain_shell(session: Session, tmp_path: Path, text: str) -> None:
    """Messages about syntax, line numbers, traps, traces, names and descriptors are those of a plain `bash -c`."""
    inside = session.run(text)
    env = dict(inside.launch.env) | {"HOME": str(tmp_path)}
    plain = ["env", "--default-signal", session.base.shell, "-c", text, "mulligan"]  # whatever these tests were started with
    outside = subprocess.run(plain, cwd=tmp_path, env=env, capture_output=True, check=False)
    status = inside.outcome.shell_status if outside.returncode >= 0 else -(inside.outcome.shell_status - 128)
    assert (inside.outcome.stdout, inside.outcome.stderr, status) == (outside.stdout, outside.stderr, outside.returncode)
    assert inside.footprint.complete


LEAVING = {
    "exit": "exit 3", "end": "true", "syntax": "eval 'if'", "error": "set -e; false", "unset": "set -u; echo $nope", "own trap": "trap 'export B=2' EXIT; exit 1",
    "trap that exits": "trap 'export B=2; exit 5' EXIT", "exec": "exec true", "exec with a variable": "A=9 exec true", "last program": "A=9 /bin/true",
    "exec fails": "exec no-such-program", "killed program": "sh -c 'kill -KILL $$'", "cleared traps": "trap - EXIT; trap '' TERM; true", "pipe": "true | cat",
    "background": "sleep 60 & true", "function": "f() { exec true; }; f", "list": "true && /bin/true", "return": "return 4",
    "posix": "set -o posix; true", "restricted": "set -r; true", "no descriptors": "exec 0<&- 1>&- 2>&-; true", "sourced": "echo 'export B=2; exit' > s; . ./s",
}  # fmt: skip


@pytest.mark.parametrize("way", LEAVING)
def test_whichever_way_a_shell_ends(shared_home: Path, way: str) -> None:
    """Variables, working directory and umask pass on at every end of the shell but its own violent one."""
    with Session.create(f"leaving-{way.replace(' ', '-')}", home=shared_home) as session:
        left = session.run(f"export A=1; mkdir d; cd d; umask 027; unset TERM; {LEAVING[way]}").handoff
        assert (left.env["A"], left.env.get("B", "2"), left.cwd, left.umask) == ("1", "2", "/workspace/d", 0o027)
        assert ("B" in left.env) == ("B=2" in LEAVING[way])
        assert not {"LD_PRELOAD", "TERM"} & set(left.env)
        assert session.run("echo $A; pwd; umask").stdout == "1\n/workspace/d\n0027\n"


def test_where_nothing_can_be_loaded_a_trap_does_it(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory files can't be run, or the shell is no such bash, the text stands behind a trap, and hands on all the same."""
    monkeypatch.setattr(native, "read_switch", lambda _: "2")
    with Session.create("behind-a-trap", home=shared_home) as session:
        left = session.run("export A=1; mkdir d; cd d; umask 027; trap -p; exit 3")
        assert (left.handoff.env["A"], left.handoff.cwd, left.handoff.umask) == ("1", "/workspace/d", 0o027)
        assert "handoff" in left.stdout


def test_a_shell_that_is_killed_hands_on_nothing(session: Session) -> None:
    """The variables of a shell that a signal ends are lost, as are those of a subshell."""
    assert "LOST" not in session.run("export LOST=1; kill -TERM $$").handoff.env
    assert "LOST" not in session.run("export LOST=1; kill -KILL $$; true").handoff.env
    assert "LOST" not in session.run("(export LOST=1; exec true); (export LOST=1); x=$(export LOST=1; exec true)").handoff.env


def test_an_own_preload_is_kept(session: Session) -> None:
    """A session that preloads a library of its own gets it, first and for all programs, and passes it on as it was."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no compiler")
    session.run(
        'printf \'#include <stdlib.h>\\n__attribute__((constructor)) static void f(void) { setenv("LOADED", "1", 1); }\' > l.c;'
        " gcc -shared -fPIC -o l.so l.c; export LD_PRELOAD=/workspace/l.so",
        check=True,
    )
    assert session.run("echo $LOADED $LD_PRELOAD; env | grep LD_").stdout == "1 /workspace/l.so\nLD_PRELOAD=/workspace/l.so\n"
    assert session.run("unset LD_PRELOAD").handoff.env.get("LD_PRELOAD") is None
