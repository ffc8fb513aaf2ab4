"""What the documents promise is what there is: names, commands, exit codes, dependencies."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import click
import pytest

import mulligan
from mulligan import errors
from mulligan.cli.main import COMMANDS
from mulligan.cli.main import mulligan as command_line

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ERRORS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.MulliganError)]
TEST_FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def test_the_front_door_is_the_documented_list():
    """`mulligan` offers exactly the names that the README lists, and each can be imported."""
    listed = re.search(r"<!-- names -->(.*?)<!-- /names -->", README, re.DOTALL)
    assert listed is not None
    assert sorted(re.findall(r"`(\w+)`", listed[1])) == sorted(mulligan.__all__)
    for name in mulligan.__all__:
        assert getattr(mulligan, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        mulligan.Nonsense  # noqa: B018 - asking is the test


def test_every_exit_code_is_documented():
    """The README's table has one row per error class, with its code; no code is used twice or mistaken for a shell's."""
    table = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", README, re.MULTILINE)}
    assert table == {e.__name__: e.exit_code for e in ERRORS}
    assert len(set(table.values())) == len(table)
    assert all(100 <= code < 126 for code in table.values())


def test_every_command_is_documented():
    """Each command has a row in the README's table, in the order of the help, and no row is left over."""
    assert re.findall(r"^\| `mulligan (\w+)", README, re.MULTILINE) == sorted(COMMANDS, key=list(COMMANDS).index)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name):
    """`--help` of each command ends with an example that begins with the command itself, and lists --json."""
    command = command_line.get_command(click.Context(command_line), name)
    shown = command.get_help(click.Context(command, info_name=f"mulligan {name}"))
    assert re.search(rf"Examples?:\s+(.+\n)*\s*.*mulligan {name}", shown), shown
    assert "--json" in shown


def test_the_two_commands_are_documented():
    """The README has the line that shows Mulligan at work and the line that runs its tests, for people and for CI."""
    assert "pip install . && mulligan demo" in README.splitlines()
    assert "pip install '.[test]' && python -m pytest" in README.splitlines()


def test_nothing_is_left_to_fill_in():
    """No document has a place that was to be filled later."""
    for name in ("README.md", "CHANGELOG.md", "runtime/DESIGN.md", "tracer/PROTOCOL.md"):
        text = (ROOT / name).read_text()
        assert not re.search(r"<!-- [A-Z]{4,}|TODO|FIXME|XXX", text), name


def test_dependencies_are_those_that_are_used():
    """The declared dependencies are exactly the packages that the runtime imports."""
    used = set()
    for file in (ROOT / "runtime").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                used |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                used.add((node.module or "").partition(".")[0])
    ours = {"mulligan", "service"}  # the demo's project has modules of its own
    declared = {re.match(r"[\w-]+", d)[0] for d in PROJECT["project"]["dependencies"]}
    assert used - set(sys.stdlib_module_names) - ours == declared


@pytest.mark.parametrize("file", TEST_FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_every_test_states_its_rule(file):
    """Each test has a docstring: the rule it holds, for whoever sees it fail."""
    bare = [
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not bare
