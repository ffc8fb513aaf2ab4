"""Laying out the folder that the demo's session imports: the agent's memory, two databases, a git repository, tools.

Knows the demo's files, git and SQLite. Every part has a folder of its own, so that what one action writes is not in a
folder that another one looks at. Must not know sessions.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Sequence

GUEST = "/workspace"
PORT = 8080
TENANTS = ("acme", "globex", "initech")

# What the agent remembers, and how near each entry is to "the database's connection string". The test one is nearer.
MEMORIES = (
    ("database", "test", f"sqlite:{GUEST}/db/test.db", 0.93),
    ("database", "production", f"sqlite:{GUEST}/db/production.db", 0.91),
    ("style", "production", "answer briefly", 0.12),
)

_IDENTITY = "Deployment Demo"
_DATE = "2024-01-01T00:00:00Z"


def lay_project(folder: Path, path: str) -> None:
    """Fill an empty host folder with the project. `path` is the PATH on which git is found."""
    for name in ("memory", "db", "backups", "config", "repo", "run"):
        (folder / name).mkdir()
    scripts = Path(__file__).parent / "project"
    _copy_scripts(scripts / "tools", folder / "tools")
    _lay_memory(folder / "memory" / "agent.db")
    _lay_database(folder / "db" / "production.db", ("CREATE TABLE tenants (name TEXT)", "CREATE TABLE orders (id INTEGER)"))
    _lay_database(folder / "db" / "test.db", ("CREATE TABLE fixtures (name TEXT)",))
    with closing(sqlite3.connect(folder / "db" / "production.db")) as db, db:
        db.executemany("INSERT INTO tenants VALUES (?)", [(t,) for t in TENANTS])
    _lay_repository(folder, scripts / "service", path)


def _copy_scripts(source: Path, target: Path) -> None:
    target.mkdir()
    for script in sorted(source.glob("*.py")):
        shutil.copyfile(script, target / script.name)


def _lay_memory(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("CREATE TABLE memories (topic TEXT, tag TEXT, content TEXT, similarity REAL)")
        db.executemany("INSERT INTO memories VALUES (?, ?, ?, ?)", MEMORIES)


def _lay_database(file: Path, statements: Sequence[str]) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        for statement in statements:
            db.execute(statement)


def _lay_repository(folder: Path, source: Path, path: str) -> None:
    """A bare repository with the service's code, as a team's git server would have it."""
    work, bare = folder / "work", folder / "repo" / "app.git"
    _copy_scripts(source, work)
    for args in (
        ("-C", str(work), "init", "--quiet"),
        ("-C", str(work), "checkout", "--quiet", "-b", "main"),
        ("-C", str(work), "add", "."),
        ("-C", str(work), "commit", "--quiet", "-m", "The service and its restart script"),
        ("clone", "--quiet", "--bare", "--no-hardlinks", str(work), str(bare)),
        ("-C", str(bare), "remote", "remove", "origin"),
    ):
        _git(args, folder, path)
    shutil.rmtree(work)


def _git(args: Sequence[str], home: Path, path: str) -> None:
    """Run git untouched by anybody's configuration."""
    env = {
        "PATH": path,
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **{f"GIT_{who}_NAME": _IDENTITY for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "demo@example.invalid" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_DATE": _DATE for who in ("AUTHOR", "COMMITTER")},
    }
    program = shutil.which("git", path=path)
    if program is None:
        raise HostError("the demo fetches code with git, and there is no git on PATH", remedy="install the package git")
    done = subprocess.run([program, *args], env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = " ".join(done.stderr.split())
        raise HostError(f"git {' '.join(args[-2:])} failed while the demo's repository was made: {said}")
