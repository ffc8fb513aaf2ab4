"""The table of system calls, and what is generated from it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mulligan.model import _generated_kinds

TRACER = Path(__file__).parents[2] / "tracer"


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    """The table."""
    return tomllib.loads((TRACER / "syscalls.toml").read_text(encoding="ascii"))


def test_generated_files_are_fresh() -> None:
    """The committed files are what the table generates."""
    done = subprocess.run([sys.executable, TRACER / "generate.py", "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_kinds_agree_with_protocol(table: dict[str, Any]) -> None:
    """PROTOCOL.md's table of events, the C side's and Python's numbers are the same."""
    rows = [line.split("|")[1:3] for line in (TRACER / "PROTOCOL.md").read_text(encoding="utf-8").splitlines()]
    documented = {cells[1].strip(): int(cells[0]) for cells in rows if len(cells) == 2 and cells[0].strip().isdigit()}
    assert documented == table["events"]
    assert documented == {name: number for name, number in vars(_generated_kinds).items() if name in documented}


def test_every_call_is_decided_once(table: dict[str, Any]) -> None:
    """A call is allowed, refused, tested or decoded; numbers are not used twice."""
    calls = table["calls"]
    for name, row in calls.items():
        assert ("action" in row) + ("decode" in row or "test" in row) == 1, name
    numbers = [row[table["arch"]] for row in calls.values() if table["arch"] in row]
    assert len(numbers) == len(set(numbers))
