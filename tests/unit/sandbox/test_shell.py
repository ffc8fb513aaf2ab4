"""Shell text behind its EXIT trap behaves as in a plain `sh -c`: outside of a sandbox the trap merely fails in silence.

What is loaded into bash in its place is tested in tests/contract/test_shell.py.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mulligan.sandbox.shell import build_shell, can_be_loaded

TEXTS = [
    "exit 3", "false", "true", "", "# comment", "set -e; false; echo no", "set -eu; true", "kill -TERM $$", "kill -KILL $$",
    'echo "$@" $# $0; (exit 4)', "exec true", "exec sh -c 'exit 5'", "set -u; echo $nope", "return 3", "no-such-program",
    "f() { return 6; }; f", "cat", "set -x; true; false", "\n# two\nno-such-program\nexit 7", "cd /; (exit 9)",
    "trap 'echo bye' EXIT; exit 2", "cat <<E\nhi $LINENO\nE", "set -e\nfalse", "export A=1; cd /tmp; exit 1", "if", "((", "echo 'it''s'",
    "trap 'echo term; exit 8' TERM; kill -TERM $$", "(sleep 0; exit 3) & wait $!", "echo out; echo err >&2", "exit 255",
]  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("text", TEXTS)
def test_status_and_output_are_those_of_the_plain_shell(shell: str, text: str) -> None:
    """Exit status, signal, stdout, stderr and stdin are the same with the wrapper as without it."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"there is no {shell}")
    plain, wrapped = (
        subprocess.run(argv, input=b"in\n", capture_output=True, check=False)
        for argv in ([path, "-c", text, "mulligan"], build_shell(path, text, loaded=False))
    )
    assert (wrapped.returncode, wrapped.stdout, wrapped.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_no_variable_is_left_behind(shell: str) -> None:
    """The environment of what the text runs is that of the plain shell."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"there is no {shell}")
    plain, wrapped = (
        subprocess.run(argv, env={"A": "1"}, capture_output=True, check=True).stdout
        for argv in ([path, "-c", "/usr/bin/env; exit", "mulligan"], build_shell(path, "/usr/bin/env; exit", loaded=False))
    )
    assert wrapped == plain


def test_which_shells_can_be_loaded_into() -> None:
    """Only a dynamically linked program with the symbols of bash; a text and a damaged program are none."""
    path = shutil.which("bash")
    if path is None:
        pytest.skip("there is no bash")
    program = Path(path).read_bytes()
    assert can_be_loaded(program)
    assert not can_be_loaded(program.replace(b"temporary_env", b"temporary_vne"))
    assert not can_be_loaded(program[:40])
    assert not can_be_loaded(b"#!/bin/sh\n")
    assert not can_be_loaded(b"\x7fELF\x02\x01" + bytes(200) + program[-100_000:])
