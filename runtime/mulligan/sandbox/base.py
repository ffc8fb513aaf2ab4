"""Base: the read-only bottom of a session, as data.

Knows layers' ids and binds. A base is one sealed layer (for the host base a skeleton, for a folder a copy of it) and the
host's folders that are bound over it, read-only. Building one is `hostbase.py`'s and `folderbase.py`'s business.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from mulligan.errors import StoreError, UsageError
from mulligan.model.ids import GuestPath, HostPath, LayerId
from mulligan.sandbox.ids import IdMap

if TYPE_CHECKING:
    from collections.abc import Mapping

BASE_FORMAT = 1
WORKSPACE = GuestPath("/workspace")
UNSTATEFUL = ("/proc", "/dev", "/sys")  # mounted fresh for each action: no state, in no layer

BaseKind = Literal["host", "folder"]
_ROOT_HOME = GuestPath("/root")
_NO_ENV: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Base:
    """What every stack of a session stands on. `binds` are (host folder or file, where it is seen inside)."""

    kind: BaseKind
    skeleton: LayerId
    binds: tuple[tuple[HostPath, GuestPath], ...]
    env: Mapping[str, str] = field(default_factory=lambda: _NO_ENV)  # what every action is launched with
    home: GuestPath = _ROOT_HOME
    shell: str = "/bin/bash"  # for shell text: bash, or sh where there is no bash
    ids: IdMap = field(default_factory=IdMap.of_this_process)
    source: str = ""  # of a folder base: where it was copied from

    @property
    def rootless(self) -> bool:
        """Whether the guest is an ordinary user."""
        return self.ids.rootless

    def bound(self, path: str) -> tuple[str, str] | None:
        """The bind at or above a guest path, and the path on the host; None for what lies in layers."""
        best: tuple[str, str] | None = None
        for source, target in self.binds:
            if (path == target or path.startswith(f"{target}/")) and (best is None or len(target) > len(best[0])):
                best = target, source + path[len(target) :]
        return best


def encode_base(base: Base) -> dict[str, Any]:
    """The base as plain data, for the session's row; it begins with its format's version."""
    return {
        "format": BASE_FORMAT,
        "kind": base.kind,
        "skeleton": base.skeleton,
        "binds": [list(bind) for bind in base.binds],
        "env": dict(base.env),
        "home": base.home,
        "shell": base.shell,
        "ids": asdict(base.ids),
        "source": base.source,
    }


def decode_base(data: Mapping[str, Any]) -> Base:
    """The base that `encode_base` wrote down."""
    if data.get("format") != BASE_FORMAT:
        message = f"the session's base has format {data.get('format')}, this mulligan reads {BASE_FORMAT}"
        raise StoreError(message, remedy="make a new session with `mulligan new`")
    ids = IdMap(**data["ids"])
    if ids.rootless != IdMap.of_this_process().rootless:
        who, now = ("an ordinary user", "root") if ids.rootless else ("root", "an ordinary user")
        message = f"the session was made as {who} and can't be used as {now}: its files have other owners"
        raise UsageError(message, remedy="use it as the user who made it")
    return Base(
        kind=data["kind"],
        skeleton=LayerId(data["skeleton"]),
        binds=tuple((HostPath(source), GuestPath(target)) for source, target in data["binds"]),
        env=dict(data["env"]),
        home=GuestPath(data["home"]),
        shell=data["shell"],
        ids=ids,
        source=data["source"],
    )


def base_version(base: Base, path: str) -> tuple[int, int, int] | None:
    """(mtime_ns, size, inode) of what the host has at a guest path under a bind; None when it is absent.

    `path` is physical, as the tracer reports it. This is the version of a file of the host base: nothing is hashed.
    """
    found = base.bound(path)
    if found is None:
        return None
    try:
        status = os.lstat(found[1])
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
