"""What is installed: one static tracer, and a build that says in one sentence what it lacks."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import mulligan

ROOT = Path(__file__).parents[2]
TRACER = Path(mulligan.__path__[0]) / "_bin" / "mulligan-tracer"
PT_INTERP = 3  # elf(5): a dynamic executable names its loader in a segment of this type


@pytest.fixture
def hook():
    """The build hook as a module."""
    spec = importlib.util.spec_from_file_location("build_hook", ROOT / "tracer" / "build_hook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tracer_is_a_static_executable():
    """The tracer starts inside any root file system: it is executable and needs no loader and no library."""
    assert os.access(TRACER, os.X_OK)
    elf = TRACER.read_bytes()
    assert elf[:5] == b"\x7fELF\x02"
    offset, size, count = *struct.unpack_from("<Q", elf, 32), *struct.unpack_from("<HH", elf, 54)
    kinds = [struct.unpack_from("<I", elf, offset + size * n)[0] for n in range(count)]
    assert kinds
    assert PT_INTERP not in kinds


def test_the_wheel_is_for_this_platform_only():
    """A wheel with an executable in it must not be taken for one that runs everywhere."""
    try:
        installed = importlib.metadata.distribution("mulligan")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mulligan runs from its source tree, not from a wheel")
    wheel = installed.read_text("WHEEL")
    assert "Root-Is-Purelib: false" in wheel
    assert "Tag: py3-none-linux_x86_64" in wheel
    assert installed.version == mulligan.__version__


def path_with(folder: Path, *programs: str) -> dict[str, str]:
    """An environment whose PATH holds only these programs."""
    folder.mkdir()
    for program in programs:
        (folder / program).symlink_to(shutil.which(program))
    return {"PATH": str(folder)}


@pytest.mark.parametrize(
    ("programs", "sentence"),
    [
        ((), "Mulligan's tracer needs a C compiler: install it with `"),
        (("make",), "Mulligan's tracer needs a C compiler: install it with `"),
        (("gcc",), "Mulligan's tracer needs make: install it with `"),
    ],
)
def test_a_missing_tool_is_one_sentence(hook, tmp_path, programs, sentence):
    """Without a compiler or make the build ends with one sentence that names the package to install."""
    with pytest.raises(SystemExit) as left:
        hook.build_tracer(ROOT, path_with(tmp_path / "bin", *programs))
    message = str(left.value)
    assert message.startswith(sentence)
    assert "gcc" in message
    assert "\n" not in message


def test_a_compiler_without_its_library_is_one_sentence(hook, tmp_path):
    """A compiler that finds no C library to link with leads to the same advice."""
    (tmp_path / "tracer").mkdir()
    (tmp_path / "tracer" / "Makefile").write_text("all:\n\t@echo 'ld: cannot find -lc' >&2; exit 1\n")
    with pytest.raises(SystemExit, match="needs the C library to link with"):
        hook.build_tracer(tmp_path, os.environ)


def test_a_failed_build_shows_what_the_compiler_said(hook, tmp_path):
    """Any other failure shows make's output before the sentence."""
    (tmp_path / "tracer").mkdir()
    (tmp_path / "tracer" / "Makefile").write_text("all:\n\t@echo 'x.c:1: error: odd' >&2; exit 1\n")
    with pytest.raises(SystemExit, match=r"(?s)x.c:1: error: odd.*could not be built"):
        hook.build_tracer(tmp_path, os.environ)


def test_the_front_door_opens_fast():
    """`import mulligan` loads nothing but itself: names come on first use."""
    code = "import sys, mulligan; print([m for m in sys.modules if m.startswith('mulligan.')])"
    env = {**os.environ, "PYTHONPATH": str(Path(mulligan.__path__[0]).parent)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
