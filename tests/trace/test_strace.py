"""strace as an oracle: what it saw real programs do below /usr, the tracer has reported, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mulligan.model.action import Action, LaunchContext
from mulligan.model.events import Exec, Incomplete, List, Missed, Read, Stat
from mulligan.model.ids import ActionId
from mulligan.sandbox.hostbase import build_host_base
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from mulligan.sandbox.tracer import Trace

COMMANDS = (
    "ls -R /usr/share/doc/bash; cat /usr/lib/os-release /usr/share/nothing",
    "/usr/bin/python3 -c 'import json, subprocess; subprocess.run([\"true\"])'",
    "echo 'int main(void){return 0;}' > a.c; gcc -O1 a.c -o a && ./a",
    "find /usr/share/perl5 | head -50 | tar cf x.tar -T - 2>/dev/null; tar tf x.tar | wc -l",
)
CALL = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<args>.*)\) += (?P<result>.*)$")


def below_usr(path: str) -> str | None:
    """The physical form of a path, when it lies in what host and sandbox share."""
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return real if real.startswith("/usr/") else None


def joined(log: str) -> list[str]:
    """The log's calls, each in one line."""
    lines, begun = [], {}
    for line in log.splitlines():
        pid, _, rest = line.partition(" ")
        if rest.endswith("<unfinished ...>"):
            begun[pid] = line.removesuffix("<unfinished ...>").rstrip()
        elif "resumed>" in rest:
            lines.append(begun.pop(pid, "") + rest.partition("resumed>")[2])
        else:
            lines.append(line)
    return lines


def seen_by_strace(log: str) -> dict[str, set[str]]:
    """Paths below /usr that were opened, missed, listed and executed."""
    seen: dict[str, set[str]] = {"opened": set(), "missed": set(), "listed": set(), "executed": set()}
    for line in joined(log):
        call = CALL.match(line)
        if call is None:
            continue
        args, result = call["args"], call["result"]
        if call["name"] == "getdents64":
            found, kind = re.search(r"<(.*?)>", args), "listed"
        elif call["name"] == "openat" and not result.startswith("-"):
            found, kind = re.search(r"<(.*)>", result), "opened"
        elif "ENOENT" in result:
            found, kind = re.search(r'"(/.*?)"', args), "missed"
        elif call["name"] == "execve" and result.startswith("0"):
            found, kind = re.search(r'"(/.*?)"', args), "executed"
        else:
            continue
        if found is not None and (path := below_usr(found[1])) is not None:
            seen[kind].add(os.path.realpath(path) if kind == "executed" else path)
    return seen


@pytest.fixture(scope="module")
def sandboxed(shared_home: Path) -> Callable[[str], tuple[Trace, dict[str, str]]]:
    """Run shell text on the host's base; gives the trace and the environment it had."""
    store = LayerStore(shared_home / "layers")
    base, skeleton = build_host_base(store, {"PATH": "/usr/bin:/bin", "LANG": "C"})
    stack = Stack((skeleton.id,), base, store)

    def run(text: str) -> tuple[Trace, dict[str, str]]:
        action = Action(ActionId("a1"), argv=("/bin/sh", "-c", text))
        env = {**base.env, "PATH": "/usr/bin:/bin"}
        with store.begin() as opened:
            trace = NativeSandbox(base, store).run(action, LaunchContext(env, "/workspace"), stack, opened)
            opened.seal(trace, stack)
        return trace, env

    return run


@pytest.mark.parametrize("text", COMMANDS)
def test_contains_what_strace_saw(
    text: str,
    sandboxed: Callable[[str], tuple[Trace, dict[str, str]]],
    tmp_path: Path,
) -> None:
    """Every file opened, missed, listed or executed according to strace is a fact of the trace."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")  # a second opinion, not a part of mulligan
    trace, env = sandboxed(text)
    log = tmp_path / "log"
    command = ["strace", "-f", "-y", "-s", "4096", "-e", "trace=%file,getdents64", "-o", str(log), "/bin/sh", "-c", text]
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(command, cwd=work, env=env, capture_output=True, check=False, timeout=60)
    seen = seen_by_strace(log.read_text(encoding="utf-8", errors="surrogateescape"))
    facts: dict[type, set[str]] = {}
    for event in trace.events:
        facts.setdefault(type(event), set()).add(getattr(event, "path", ""))
    known = {path for kind in facts.values() for path in kind}
    missed = facts[Missed]
    assert len(seen["opened"]) > 1
    assert seen["opened"] - known == set()
    assert seen["listed"] - facts.get(List, set()) == set()
    assert seen["executed"] - facts[Read] == set()
    assert seen["executed"] - facts[Exec] == set()
    assert {path for path in seen["missed"] if not any(path == one or path.startswith(one + "/") for one in missed)} == set()
    assert Stat in facts
    assert Incomplete not in facts
