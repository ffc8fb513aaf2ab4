"""The contract of bases: over a folder's root file system, and with programs that live under a home folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mulligan.errors import NotFoundError, UsageError
from mulligan.model.action import Action, LaunchContext
from mulligan.model.ids import ActionId
from mulligan.model.layer import Entry
from mulligan.sandbox.bases import build_base
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.stack import Stack
from mulligan.sandbox.writing import LayerWriter

if TYPE_CHECKING:
    from mulligan.model.action import Outcome
    from mulligan.model.ids import LayerId
    from mulligan.sandbox.base import Base

OWN = {"uid": 0 if os.geteuid() == 0 else os.geteuid(), "gid": 0 if os.geteuid() == 0 else os.getegid()}


def run(store: LayerStore, base: Base, layers: list[LayerId], *argv: str) -> Outcome:
    """Run one program on a stack; its layer is thrown away."""
    with store.begin() as opened:
        action = Action(ActionId("a1"), argv=argv)
        stack = Stack(tuple(layers), base, store)
        return NativeSandbox(base, store).run(action, LaunchContext(base.env), stack, opened).outcome


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    """A folder with a root file system of one shell and its libraries."""
    root = tmp_path / "rootfs"
    shell = shutil.which("dash") or shutil.which("sh")
    assert shell is not None
    said = subprocess.run(["ldd", shell], capture_output=True, text=True, check=True).stdout
    libraries = [word for word in said.split() if word.startswith("/")]
    for source, target in [(shell, "/bin/sh"), *((library, library) for library in libraries)]:
        file = root / target[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(source), file)
        file.chmod(0o755)
    (root / "etc").mkdir()
    (root / "etc" / "name").write_text("from the folder\n")
    return root


def test_a_folder_is_a_base_of_its_own(home: Path, rootfs: Path) -> None:
    """Over a folder nothing of the host is there, and the folder itself is never written to."""
    store = LayerStore(home / "layers")
    base, (layer,) = build_base(str(rootfs), store, {"PATH": "/usr/bin", "TERM": "dumb"})
    outcome = run(store, base, [layer.id], "sh", "-c", "read x < /etc/name; echo $x; echo y > /etc/name; exit 3")
    assert (outcome.exit_code, outcome.stdout) == (3, b"from the folder\n")
    assert (rootfs / "etc" / "name").read_text() == "from the folder\n"
    assert Stack((layer.id,), base, store).listdir("/workspace") == []
    assert run(store, base, [layer.id], "ls").exit_code == 127
    store.settle()


@pytest.mark.parametrize("name", ["dev", "proc", "sys"])
def test_a_base_whose_kernel_folders_lead_elsewhere_is_refused(home: Path, rootfs: Path, name: str) -> None:
    """A /dev, /proc or /sys that is a symlink would be mounted over wherever it leads (CVE-2025-31133)."""
    (rootfs / name).symlink_to("/etc")
    with pytest.raises(UsageError, match=f"/{name} is no folder"):
        build_base(str(rootfs), LayerStore(home / "layers"), {})


def test_what_is_no_base_is_named(home: Path, tmp_path: Path) -> None:
    """Neither `host` nor a folder; a folder without a shell."""
    store = LayerStore(home / "layers")
    with pytest.raises(NotFoundError, match="nope"):
        build_base("nope", store, {})
    with pytest.raises(UsageError, match="/bin/sh"):
        build_base(str(tmp_path), store, {})


def test_an_interpreter_under_a_home_folder_runs(home: Path, tmp_path: Path) -> None:
    """A shim on PATH that execs an interpreter of a version manager works inside, and the rest of the home is not there."""
    user = tmp_path / "somebody"
    real = user / ".pyenv" / "versions" / "9.9" / "bin"
    real.mkdir(parents=True)
    (user / ".pyenv" / "libexec").mkdir()
    (user / ".pyenv" / "bin").mkdir()
    shims = user / ".pyenv" / "shims"
    shims.mkdir()
    (real / "lang").write_text('#!/bin/sh\nhere=${0%/*}\ncat "$here/../lib/greeting"\n')
    (real.parent / "lib").mkdir()
    (real.parent / "lib" / "greeting").write_text("hello from 9.9\n")
    (shims / "lang").write_text(f'#!/usr/bin/env sh\nexec "{real}/lang" "$@"\n')
    for program in (real / "lang", shims / "lang"):
        program.chmod(0o755)
    (user / "secret").write_text("x")
    store = LayerStore(home / "layers")
    base, (skeleton,) = build_base("host", store, {"PATH": f"{shims}:/usr/bin:/bin", "HOME": str(user)})
    assert run(store, base, [skeleton.id], "lang").stdout == b"hello from 9.9\n"
    assert run(store, base, [skeleton.id], "cat", str(user / "secret")).exit_code == 1
    store.settle()


def test_the_three_hundredth_layer_is_as_the_first(home: Path) -> None:
    """A long history mounts and reads as a short one does."""
    store = LayerStore(home / "layers")
    base, (skeleton,) = build_base("host", store, {"PATH": "/usr/bin:/bin"})
    layers = [skeleton.id]
    for number in range(300):
        with store.begin() as opened, LayerWriter(opened) as writer:
            writer.folder("/workspace", Entry("dir", 0o755, **OWN))
            for name in ("last", f"f{number}"):
                writer.file(f"/workspace/{name}", Entry("file", 0o644, **OWN), str(number).encode())
            layers.append(opened.seal_manifest(writer.finish()).id)
    outcome = run(store, base, layers, "sh", "-c", "ls | wc -l; cat last f0")
    assert outcome.stdout == b"301\n2990"
    assert Stack(tuple(layers), base, store).read("/workspace/f7") == b"7"
    store.settle()
