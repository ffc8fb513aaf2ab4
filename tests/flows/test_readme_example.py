"""The README's example is a transcript: typing it gives what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def transcript() -> list[tuple[str, list[str]]]:
    """The commands of the README's console block, each with the lines it shows."""
    block = re.search(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    steps: list[tuple[str, list[str]]] = []
    for line in block[1].splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line)
    return steps


def plain(line: str) -> str:
    """A line without what differs from run to run: column widths and times."""
    return re.sub(r"\d+\.\d+ s", "T s", " ".join(line.split()))


def test_readme_example(home: Path, tmp_path: Path) -> None:
    """Every command of the example prints exactly what the README shows."""
    program = tmp_path / "bin" / "mulligan"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mulligan "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "MULLIGAN_HOME": str(home), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    steps = transcript()
    script = "\n".join(f"echo '@@{n}'\n{command}" for n, (command, _) in enumerate(steps))
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = re.split(r"^@@\d+\n", done.stdout, flags=re.MULTILINE)[1:]
    for (command, expected), got in zip(steps, shown, strict=True):
        assert [plain(line) for line in got.splitlines()] == [plain(line) for line in expected], command
