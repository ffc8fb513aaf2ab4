"""A base from a folder that holds a root file system: it is copied into a layer, and nothing of the host is bound.

Knows what a root file system must have. A /proc, /dev or /sys that is a symlink is refused: the kernel's views would be
mounted wherever it leads (CVE-2025-31133 and kin).
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from mulligan.errors import NotFoundError, UsageError
from mulligan.model.ids import GuestPath, LayerId, prefixes, shown
from mulligan.model.layer import Entry
from mulligan.sandbox.base import UNSTATEFUL, WORKSPACE, Base
from mulligan.sandbox.hostbase import DEFAULT_PATH
from mulligan.sandbox.imports import TreeCopier
from mulligan.sandbox.trees import space_for
from mulligan.sandbox.writing import LayerWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mulligan.model.layer import Layer
    from mulligan.sandbox.layer import LayerStore

_MUST_BE_FOLDERS = ("/tmp", WORKSPACE, *UNSTATEFUL)  # noqa: S108 - the guest's own


def build_folder_base(store: LayerStore, folder: str, environ: Mapping[str, str]) -> tuple[Base, Layer]:
    """The base that a folder makes, with the layer it was copied into. Raises NotFoundError, UsageError."""
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFoundError(f"base {shown(folder)}: {error.strerror}", remedy="name a folder, or `host`") from error
    try:
        shell = _shell(top, folder)
        ids = store.ids
        base = Base("folder", LayerId(""), (), {}, _home(ids.uid), shell, ids, os.path.realpath(folder))
        with store.begin() as layer, LayerWriter(layer) as writer, space_for(f"copy the base {shown(folder)}"):
            copier = TreeCopier(writer, top, folder, base, skip=store.root.parent)
            copier.keep_owners = not ids.rootless
            copier.left_out = UNSTATEFUL
            copier.copy("/", merged=True)
            for path in (*_MUST_BE_FOLDERS, base.home):
                _ensure(writer, path, 0o1777 if path == "/tmp" else 0o755, base)  # noqa: S108
            writer.root(0o755, os.fstat(top).st_mtime_ns)
            made = layer.seal_manifest(writer.finish())
    finally:
        os.close(top)
    env = {"PATH": DEFAULT_PATH, "HOME": base.home, "USER": "root" if ids.uid == 0 else f"user{ids.uid}", "SHELL": shell}
    env |= {key: value for key, value in environ.items() if key in ("LANG", "TERM", "TZ") or key.startswith("LC_")}
    return Base("folder", made.id, (), env, base.home, shell, ids, base.source), made


def _home(uid: int) -> GuestPath:
    return GuestPath("/root" if uid == 0 else f"/home/user{uid}")


def _shell(top: int, folder: str) -> str:
    """The shell to run text with; checks on the way that the folder can be a root."""
    for name in UNSTATEFUL:
        try:
            if not stat.S_ISDIR(os.stat(name[1:], dir_fd=top, follow_symlinks=False).st_mode):
                raise UsageError(f"base {shown(folder)}: its {name} is no folder, so nothing can be mounted there")
        except FileNotFoundError:
            continue
    for path in ("bin/bash", "usr/bin/bash", "bin/sh", "usr/bin/sh"):
        try:
            os.stat(path, dir_fd=top, follow_symlinks=False)
        except OSError:
            continue
        return f"/{path}"
    raise UsageError(f"base {shown(folder)}: it has no /bin/sh, so it is no root file system", remedy="name a folder with one")


def _ensure(writer: LayerWriter, path: str, mode: int, base: Base) -> None:
    """A folder that every base has; the parents, too."""
    for at in (*prefixes(path), path):
        entry = writer.entries.get(at)
        if entry is None:
            writer.folder(at, Entry("dir", mode if at == path else 0o755, base.ids.uid, base.ids.gid))
        elif entry.kind == "link":
            return  # the base's own arrangement
        elif entry.kind != "dir":
            raise UsageError(f"base {shown(base.source)}: its {at} is no folder")
