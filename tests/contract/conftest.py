"""What the contract tests share: sessions to attack, and running the tests once more as an ordinary user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mulligan
from mulligan import Record, Session

ORDINARY = 1234  # any id without a privilege

Guests = Callable[..., dict[str, str]]


@pytest.fixture
def session(home: Path) -> Iterator[Session]:
    """A fresh session over the host base."""
    with Session.create("s", home=home) as made:
        yield made


@pytest.fixture
def guests(guest: Callable[[str], Path], tmp_path: Path) -> Guests:
    """Compile guests by their names; gives what to import, so that they lie in /guests."""

    def built(*names: str) -> dict[str, str]:
        folder = tmp_path / "guests"
        folder.mkdir()
        for name in names:
            (folder / name).write_bytes(guest(name).read_bytes())
            (folder / name).chmod(0o755)
        return {str(folder): "/guests"}

    return built


@pytest.fixture(scope="session")
def out() -> Callable[[Record], str]:
    """The stdout of a record whose action must have succeeded."""

    def told(record: Record) -> str:
        assert record.outcome.ok, (record.outcome.exit_code, record.outcome.signal, record.outcome.stderr[-2000:])
        return record.outcome.stdout.decode(errors="surrogateescape")

    return told


@pytest.fixture
def passes_for_an_ordinary_user(sandboxes: object, lacking_here: Callable[[str], None]) -> Iterator[Callable[[Path], None]]:
    """Run tests in a process of an ordinary user; all must pass there."""
    assert sandboxes
    with tempfile.TemporaryDirectory(prefix="mulligan-user-") as folder:  # pytest's own folders are closed to others
        home = Path(folder)
        os.chown(home, ORDINARY, ORDINARY)

        def run(tests: Path) -> None:
            python = _python_for_everybody(home)
            if python is None:
                lacking_here("no Python of this version can be run by an ordinary user")
                return
            base = str(home / "pytest")
            command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", base, str(tests)]
            done = subprocess.run(command, **_as_user(home), check=False)
            said = done.stdout.decode(errors="replace")
            assert done.returncode == 0, said[-6000:]
            passed = re.search(r"^(?:=+ )?(\d+) passed", said, re.MULTILINE)
            assert passed is not None, said[-6000:]
            assert int(passed[1]) >= len(list(tests.glob("test_*.py"))), "hardly any test ran"

        yield run


def _as_user(home: Path) -> dict[str, object]:
    packages = {str(Path(module.__file__).parent.parent) for module in (mulligan, pytest) if module.__file__}
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(sorted(packages)),
        "MULLIGAN_MUST_WORK": os.environ.get("MULLIGAN_MUST_WORK", ""),
    }
    who = {"user": ORDINARY, "group": ORDINARY, "extra_groups": []}
    return {"env": env, "cwd": Path(__file__).parents[2], "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **who}


def _python_for_everybody(home: Path) -> str | None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            done = subprocess.run(
                [python, "-c", "import mulligan.sandbox.native, pytest, hypothesis"], **_as_user(home), check=False
            )
        except OSError:
            continue
        if done.returncode == 0:
            return python
    return None
