"""Shell text behind its EXIT trap behaves as in a plain `sh -c`: outside of a sandbox the trap merely fails in silence."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from mulligan.sandbox.shell import build_shell

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
        for argv in ([path, "-c", text, "mulligan"], build_shell(path, text))
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
        for argv in ([path, "-c", "/usr/bin/env; exit", "mulligan"], build_shell(path, "/usr/bin/env; exit"))
    )
    assert wrapped == plain
