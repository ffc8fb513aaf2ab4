"""The table of system calls, and what is generated from it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mulligan.model import _generated_kinds

if TYPE_CHECKING:
    from collections.abc import Callable

TRACER = Path(__file__).parents[2] / "tracer"
HEADERS = [Path("/usr/include", folder, "asm/unistd_64.h") for folder in ("x86_64-linux-gnu", ".")]


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


def test_every_call_of_the_header_is_known(table: dict[str, Any], lacking_here: Callable[[str], None]) -> None:
    """A number that the installed kernel headers give to a call is in the table, under the same name."""
    headers = [path for path in HEADERS if path.exists()]
    if not headers:
        lacking_here("the kernel's headers are not installed")
    given = dict(re.findall(r"^#define __NR_(\w+) (\d+)$", headers[0].read_text(encoding="ascii"), re.MULTILINE))
    assert len(given) > 300
    known = {name: row[table["arch"]] for name, row in table["calls"].items()}
    assert {name: int(number) for name, number in given.items() if known.get(name) != int(number)} == {}


def test_every_call_of_linux_6_18_is_known(table: dict[str, Any]) -> None:
    """The table has each number up to Linux 6.18, and no other: what comes later is unknown, and makes a trace incomplete."""
    numbers = {row[table["arch"]] for row in table["calls"].values()}
    assert numbers == {*range(337), *range(424, 470)}


# The kernel's own declarations: a name that an argument holds, or two.
PATHS = """
    access acct chdir chmod chown chroot creat execve getxattr lchown lgetxattr link listxattr llistxattr lremovexattr lsetxattr lstat
    mkdir mknod mount open pivot_root readlink removexattr rename rmdir setxattr stat statfs swapoff swapon symlink truncate umount2
    unlink uselib utime utimes execveat faccessat faccessat2 fanotify_mark fchmodat fchmodat2 fchownat file_getattr file_setattr
    fspick futimesat getxattrat inotify_add_watch linkat listxattrat mkdirat mknodat mount_setattr move_mount name_to_handle_at
    newfstatat open_tree open_tree_attr openat openat2 quotactl readlinkat removexattrat renameat renameat2 setxattrat statx
    symlinkat unlinkat utimensat
"""


def test_every_call_that_takes_a_name_is_decoded_or_refused(table: dict[str, Any]) -> None:
    """No call that looks at a path is let through unseen, and one with two paths has both of them read."""
    rows = {name: table["calls"][name] for name in PATHS.split()}
    assert [name for name, row in rows.items() if "decode" not in row and row.get("action") == "allow"] == []
    decoded = {name: row for name, row in rows.items() if "decode" in row}
    assert [name for name, row in decoded.items() if "path" not in row] == []
    at = [name for name in decoded if name.endswith(("at", "at2", "statx", "_getattr"))]
    assert [name for name in at if name not in {"creat", "lstat", "stat"} and "dirfd" not in decoded[name]] == []
    two = [name for name in decoded if name.startswith(("rename", "link")) and name != "linkat"] + ["linkat"]
    assert [name for name in two if "path2" not in decoded[name]] == []


def test_every_call_is_decided_once(table: dict[str, Any]) -> None:
    """A call is allowed, refused, tested or decoded; numbers are not used twice."""
    calls = table["calls"]
    for name, row in calls.items():
        assert ("action" in row) + ("decode" in row or "test" in row) == 1, name
    numbers = [row[table["arch"]] for row in calls.values() if table["arch"] in row]
    assert len(numbers) == len(set(numbers))
