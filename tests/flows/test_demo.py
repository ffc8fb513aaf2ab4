"""The worked example, as a user meets it: `mulligan demo` with its real programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from mulligan import Session, errors

if TYPE_CHECKING:
    from pathlib import Path


def mulligan(home: Path, *args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a user calls it."""
    return subprocess.run(
        [sys.executable, "-m", "mulligan", *args],
        capture_output=True, text=True, check=False, timeout=120, cwd=cwd, stdin=subprocess.DEVNULL,
        env={**os.environ, "MULLIGAN_HOME": str(home), **env},
    )  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> tuple[Path, dict]:
    """The store in which the demo has run once, and what it told as JSON."""
    home = tmp_path_factory.mktemp("demo") / "store"
    done = mulligan(home, "demo", "--json", cwd=tmp_path_factory.mktemp("elsewhere"))
    assert done.returncode == 0, done.stderr
    return home, json.loads(done.stdout)


def test_only_what_depended_on_the_wrong_memory_runs_again(told):
    """a3, which fetched the code, is kept; backup, config and restart run again, since they read what a1 wrote."""
    _, report = told
    assert report["kept"] == ["a3"]
    assert report["ran"] == ["a1", "a2", "a4", "a5"]
    assert report["diverged"] == ["a5"]
    assert (report["applied"], report["dropped"], report["failed"]) == (True, [], [])


def test_every_rerun_has_a_witness(told):
    """Each action that ran again says which path made it so, and by whom; nothing was declared."""
    home, report = told
    because = {s["action"]: s["because"] for s in report["plan"]}
    assert because["a1"][0]["kind"] == "changed"
    assert ("dat:/workspace/run/connection", "a1") in {(r["key"], r["from"]) for r in because["a2"]}
    assert ("dat:/workspace/run/connection", "a1") in {(r["key"], r["from"]) for r in because["a4"]}
    assert ("dat:/workspace/config/config.yaml", "a4") in {(r["key"], r["from"]) for r in because["a5"]}
    assert because["a3"] == []
    with Session.open(report["session"], home=home) as session:
        assert all(r.action.reads == r.action.writes == () for r in session.log())


def test_the_state_after_the_repair_is_that_of_the_corrected_job(told):
    """Config and backup are of the production database, the service answered, the code is the one fetched once."""
    home, report = told
    with Session.open(report["session"], home=home) as session:
        assert "/workspace/db/production.db" in session.files.read("/workspace/config/config.yaml")
        records = session.log()
        assert [r.exit_code for r in records] == [0] * 5
        assert '"status": "healthy"' in records[4].stdout
        assert "tenants" in records[1].stdout
        assert [r.revision for r in records] == [2, 2, 1, 2, 2]
        assert session.files.exists("/workspace/app/.git/HEAD")


def test_a_second_demo_tells_its_story_too(told, tmp_path):
    """The demo runs again beside the first, from any folder, in well under a minute, and ends with the table."""
    home, report = told
    began = time.monotonic()
    done = mulligan(home, "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 60
    table = done.stdout.partition("The repair:")[2]
    assert [line.split()[:2] for line in table.splitlines() if line.startswith("a")][:5] == [
        ["a1", "ran"], ["a2", "ran"], ["a3", "kept"], ["a4", "ran"], ["a5", "ran:"]
    ]  # fmt: skip
    assert report["session"] == "demo"
    assert "kept as demo-2" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_without_git_the_demo_says_what_to_install(tmp_path):
    """A missing program of the demo is the host's lack, with the remedy, and no session is made."""
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python3").symlink_to(sys.executable)
    done = mulligan(tmp_path / "store", "demo", PATH=str(bare))
    assert done.returncode == errors.HostError.exit_code
    assert "install the package git" in done.stderr
