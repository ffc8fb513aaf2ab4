"""A whole day at the command line: each command in a real process, on a real sandbox, its JSON as documented."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mulligan import errors

if TYPE_CHECKING:
    from pathlib import Path


class Caller:
    """Calls `mulligan` with one store."""

    def __init__(self, home: Path, cwd: Path) -> None:
        self.home, self.cwd = home, cwd

    def __call__(self, *args: str, stdin: bytes = b"", status: int = 0, **env: str) -> bytes:
        """Call and compare the exit status; gives stdout."""
        done = subprocess.run(
            [sys.executable, "-m", "mulligan", *args],
            input=stdin, capture_output=True, check=False, timeout=120, cwd=self.cwd,
            env={**os.environ, "MULLIGAN_HOME": str(self.home), **env},
        )  # fmt: skip
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        self.stderr = done.stderr
        return done.stdout

    def json(self, *args: str, **options: Any) -> Any:
        """Call with --json and parse what came."""
        return json.loads(self(args[0], "--json", *args[1:], **options))


@pytest.fixture
def call(tmp_path) -> Caller:
    """A caller whose folder is a small project, with a store of its own elsewhere."""
    project = tmp_path / "project"
    (project / "other").mkdir(parents=True)
    (project / "prices.csv").write_text("apple 2\npear 3\n")
    return Caller(tmp_path / "store", project)


@pytest.fixture
def job(call) -> Caller:
    """A session of four actions: a1 chooses, a2 and a4 follow from it, a3 does not."""
    call("new", "job", "--import", ".")
    call("run", "-s", "job", "-c", "mkdir out && sed s/2/9/ prices.csv > out/chosen")
    call("run", "-s", "job", "-c", "sort -r out/chosen > out/sorted")
    call("run", "-s", "job", "-c", "date -u -d @0 +%Y > other/year")
    call("run", "-s", "job", "--label", "last", "-c", "cat out/sorted other/year > result; cat result")
    return call


def test_run_is_the_action_itself(call):
    """Output bytes, stdin and exit status of `run` are the action's own; the default session imports the folder."""
    assert call("run", "-c", "cat prices.csv; printf '\\377\\000'") == b"apple 2\npear 3\n\xff\x00"
    assert call("run", "--", "wc", "-c", stdin=b"12345") == b"5\n"
    call("run", "-c", "echo no >&2; exit 7", status=7)
    assert call.stderr == b"no\n"
    call("run", "-c", "kill -9 $$", status=137)
    assert [row["session"] for row in call.json("ps")] == ["default"]


def test_run_as_json(call):
    """`run --json` has the documented members, and still the action's exit status."""
    told = call.json("run", "-c", "echo out; echo err >&2; cat prices.csv absent; exit 3", status=3)
    assert told["action"] == "a1"
    assert (told["session"], told["exit_code"], told["signal"], told["stdout"]) == (
        "default",
        3,
        None,
        "out\napple 2\npear 3\n",
    )
    assert told["stderr"].startswith("err\n")
    assert told["reads"] > 2
    assert (told["writes"], told["complete"], told["incomplete_because"]) == (0, True, [])


def test_exports_and_the_working_directory_pass_on(call):
    """What shell text exports and where it leaves off is what the next action starts with; --env is for one only."""
    call("run", "-c", "export WHO=me; mkdir d; cd d")
    assert call("run", "--env", "ONCE=1", "-c", "echo $WHO $ONCE $PWD") == b"me 1 /workspace/d\n"
    assert call("run", "-c", "echo $WHO $ONCE $PWD") == b"me /workspace/d\n"
    assert call("run", "--cwd", "/", "--", "pwd") == b"/\n"


def test_looking_at_history(job):
    """log, show, ls, cat and diff tell what happened."""
    log = job.json("log", "-s", "job")
    assert [r["action"] for r in log] == ["a1", "a2", "a3", "a4"]
    assert [r["action"] for r in job.json("log", "-s", "job", "--label", "last")] == ["a4"]
    assert job("log", "-s", "job").splitlines()[1].startswith(b"a1      ok")
    show = job.json("show", "-s", "job", "a2")
    assert list(show) == ["action", "outcome", "outputs", "footprint", "umask", "layer"]
    assert "/workspace/out/chosen" in show["footprint"]["saw"]
    assert show["footprint"]["wrote"] == ["/workspace/out/sorted"]
    assert b"/workspace/out/chosen" in job("show", "-s", "job", "a2", "--all")
    assert job("ls", "-s", "job").split() == [b"other/", b"out/", b"prices.csv", b"result"]
    assert [e["name"] for e in job.json("ls", "-s", "job", "out")] == ["chosen", "sorted"]
    assert job("cat", "-s", "job", "other/year") == b"1970\n"
    assert job.json("cat", "-s", "job", "/workspace/other/year") == {"path": "/workspace/other/year", "content": "1970\n"}
    files = {d["path"]: d for d in job.json("diff", "-s", "job", "a2", "a4") if d["new_kind"] == "file"}
    assert set(files) == {"/workspace/other/year", "/workspace/result"}
    assert files["/workspace/other/year"]["new"] == "1970\n"
    assert b"+1970" in job("diff", "-s", "job", "a3")


def test_why_and_graph(job):
    """`why` names the writer and the path; the graph has the edge in every form."""
    assert b"/workspace/out/chosen" in job("why", "-s", "job", "a2")
    assert b"a1" in job("why", "-s", "job", "a2")
    assert b"a4" in job("why", "-s", "job", "/workspace/result")
    json.dumps(job.json("why", "-s", "job", "a4"))
    assert b"digraph" in job("graph", "-s", "job", "--format", "dot")
    assert job("graph", "-s", "job", "--format", "mermaid").startswith((b"graph", b"flowchart"))
    assert b"a4" in job("graph", "-s", "job")
    assert json.loads(job("graph", "-s", "job", "--format", "json")) == job.json("graph", "-s", "job")


def test_a_dry_run_and_then_the_repair(job):
    """The plan names a3 kept with the rest to run; carried out, exactly that happened, and the files are right."""
    change = ("--replace", "a1", "mkdir out && cp prices.csv out/chosen")
    plan = job.json("repair", "-s", "job", *change, "--dry-run")
    assert {s["action"]: s["step"] for s in plan["plan"]}["a3"] == "keep"
    assert plan["applied"] is False
    assert job("cat", "-s", "job", "result") == b"pear 3\napple 9\n1970\n"
    report = job.json("repair", "-s", "job", *change)
    assert (report["applied"], report["ran"], report["kept"]) == (True, ["a1", "a2", "a4"], ["a3"])
    assert {"dropped", "cut_off", "diverged", "effects", "head"} <= set(report)
    reasons = {s["action"]: s["because"] for s in report["plan"]}
    assert ("dat:/workspace/out/chosen", "a1") in {(r["key"], r["from"]) for r in reasons["a2"]}
    assert job("cat", "-s", "job", "result") == b"pear 3\napple 2\n1970\n"


def test_patch_drop_and_rerun_in_one_repair(job, tmp_path):
    """Changes of several kinds are one repair: a patched file, a dropped action, a forced rerun."""
    (tmp_path / "fixed").write_text("fig 1\n")
    report = job.json(
        "repair", "-s", "job", "--patch", f"/workspace/out/chosen={tmp_path / 'fixed'}", "--rerun", "a3"
    )  # fmt: skip
    assert report["applied"]
    assert {"a2", "a3", "a4"} <= set(report["ran"])
    assert job("cat", "-s", "job", "result") == b"fig 1\n1970\n"
    assert job.json("repair", "-s", "job", "--drop", "a4")["dropped"] == ["a4"]
    job("cat", "-s", "job", "result", status=errors.NotFoundError.exit_code)


def test_a_failed_repair_leaves_everything_as_it_was(job):
    """A replacement that fails is not applied: one sentence, its status, the old state. --keep-going applies it."""
    job("repair", "-s", "job", "--replace", "a2", "exit 5", status=errors.RepairFailedError.exit_code)
    assert job("cat", "-s", "job", "result") == b"pear 3\napple 9\n1970\n"
    report = job.json("repair", "-s", "job", "--replace", "a2", "exit 5", "--keep-going")
    assert report["applied"]
    assert "a2" in report["failed"]


def test_rollback_and_branch(job):
    """Rollback moves the head; a branch keeps what the session left, and goes its own way."""
    assert job.json("branch", "-s", "job", "try-2", "--at", "a2")["session"] == "try-2"
    job("run", "-s", "try-2", "-c", "echo mine > result")
    assert job("cat", "-s", "job", "result") == b"pear 3\napple 9\n1970\n"
    assert job("cat", "result", MULLIGAN_SESSION="try-2") == b"mine\n"
    assert job.json("rollback", "-s", "job", "a1")["action"] == "a1"
    assert [r["action"] for r in job.json("log", "-s", "job")] == ["a1"]
    job("branch", "-s", "job", "try-2", status=errors.AlreadyExistsError.exit_code)


def test_commit_writes_what_changed_and_refuses_conflicts(job):
    """The result comes to the host folder; a file that was edited there meanwhile is refused, and nothing is written."""
    dry = job.json("commit", "-s", "job", ".", "--dry-run")
    assert "result" in dry["written"]
    assert not (job.cwd / "result").exists()
    (job.cwd / "result").write_text("somebody else's\n")
    told = job.json("commit", "-s", "job", ".", status=errors.ConflictError.exit_code)
    assert (told["conflicts"], told["applied"]) == (["result"], False)
    assert not (job.cwd / "out").exists()
    (job.cwd / "result").unlink()
    assert job.json("commit", "-s", "job", ".")["applied"] is True
    assert (job.cwd / "result").read_text() == "pear 3\napple 9\n1970\n"
    assert (job.cwd / "out" / "sorted").read_text() == "pear 3\napple 9\n"


def test_rm_and_gc_free_the_space(job):
    """A removed session is gone, and gc frees its layers, once."""
    assert job.json("ps")[0]["session"] == "job"
    assert job.json("rm", "job") == {"removed": "job"}
    assert job.json("ps") == []
    would = job.json("gc", "--dry-run")
    assert would["applied"] is False
    freed = job.json("gc")
    assert freed["layers"] >= 4
    assert freed["bytes"] > 0
    assert job.json("gc")["layers"] == 0
    job("rm", "job", status=errors.NotFoundError.exit_code)


def test_doctor_looks_at_the_store_too(call, tmp_path):
    """A store that no command can use is no machine that can run Mulligan; the remedy is told."""
    (tmp_path / "file").write_text("")
    out = call("doctor", status=errors.HostError.exit_code, MULLIGAN_HOME=str(tmp_path / "file")).decode()
    assert "store: set MULLIGAN_HOME to a folder" in out
    assert "can run Mulligan" not in out


def test_doctor_says_what_there_is(call):
    """Doctor tries the host's features; here, where the other tests run, nothing needed is missing."""
    told = call.json("doctor")
    assert told["ready"] is True
    assert {"name", "ok", "required", "detail", "needed_for", "remedy"} == set(told["features"][0])
    assert b"this machine can run Mulligan" in call("doctor")


def test_a_declared_key_that_is_none_is_refused(job):
    """A malformed --reads is an error before anything runs; it could not be compared in a later repair."""
    job("run", "-s", "job", "--reads", "foo", "-c", "true", status=errors.UsageError.exit_code)
    assert b"foo" in job.stderr
    assert len(job.json("log", "-s", "job")) == 4


def test_hostile_names_reach_no_view_raw(call):
    """Whatever a guest calls its files, every view shows it escaped and every JSON parses."""
    call("run", "-c", "printf hi > $'a\\n\\x1b[31m\\xff\"]<b>'; mkdir $'d\\x1b'; ln -s $'\\xfe\\x1b' l")
    call("run", "-c", "cat a* > out; ls > names")
    change = ("--rerun", "a1", "--dry-run")
    views = [
        ("log",), ("show", "a1", "--all"), ("why", "a2"), ("graph",), ("graph", "--format", "dot"), ("diff", "a1"),
        ("graph", "--format", "mermaid"), ("ls",), ("ls", "-l"), ("repair", *change),
    ]  # fmt: skip
    for view in views:
        assert b"\x1b" not in call(*view), view
    for view in (("log",), ("show", "a1"), ("why", "a2"), ("graph",), ("diff", "a1"), ("ls",), ("repair", *change)):
        call.json(*view)
