"""No row of the repair model is forgotten: each names tests that exist, or the part that it waits for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from rows import NEEDS, ROWS, Row

TESTS = Path(__file__).parents[1]


def functions(file: Path) -> set[str]:
    """The tests that a file defines."""
    tree = ast.parse(file.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_row_is_listed() -> None:
    """The table has the rows 1 to 46, in order, each with a test or with what it waits for, not both and not neither."""
    assert list(ROWS) == list(range(1, 47))
    assert [number for number, row in ROWS.items() if bool(row.tests) == bool(row.pending)] == []
    assert {row.pending for row in ROWS.values()} <= {"", *NEEDS}


@pytest.mark.parametrize(("number", "row"), ROWS.items(), ids=map(str, ROWS))
def test_the_tests_of_a_row_exist(number: int, row: Row) -> None:
    """Each test that a row names is there, so that no renaming leaves a row without one."""
    for name in row.tests:
        file, _, function = name.partition("::")
        assert function in functions(TESTS / file), f"row {number}: there is no {name}"


def test_every_test_of_a_row_is_listed() -> None:
    """Whoever writes a test named after a row finds it in the table."""
    named = {
        (int(found[1]), f"{file.relative_to(TESTS)}::{function}")
        for file in TESTS.rglob("test_*.py")
        for function in functions(file)
        if (found := re.match(r"test_row_(\d+)_", function))
    }
    listed = {(number, test) for number, row in ROWS.items() for test in row.tests}
    assert named <= listed, sorted(named - listed)
