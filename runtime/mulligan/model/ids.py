"""Distinct types for things that could be swapped by mistake.

Knows nothing else but the errors. `GuestPath` is a path as the action sees it, `HostPath` one on this machine; both are
`str` in which bytes that are not UTF-8 stand as lone surrogates (PEP 383), so `os.fsencode` gives the exact bytes back.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NewType

from mulligan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

ActionId = NewType("ActionId", str)  # "a3": one slot of a session's history; survives a repair
RecordId = NewType("RecordId", int)  # one execution of an action, as stored
LayerId = NewType("LayerId", str)
GuestPath = NewType("GuestPath", str)
HostPath = NewType("HostPath", str)

BASE_LAYER = LayerId("base")  # provider of what lies in the host's read-only folders


def guest_path(raw: bytes) -> GuestPath:
    """The path type of raw bytes from inside a sandbox (PEP 383 surrogates for what is not UTF-8)."""
    return GuestPath(raw.decode("utf-8", "surrogateescape"))


def raw_path(path: str) -> bytes:
    """The exact bytes of a path or any other text. Raises UsageError for a str that stands for no bytes (U+D800 alone)."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"{path!r}: it holds half a character, which stands for no bytes") from error


def check_host_path(path: str) -> str:
    """The path itself, when the kernel can be given it. Raises UsageError."""
    if b"\0" in raw_path(path):
        raise UsageError(f"{path!r}: it holds a NUL byte, which no path can")
    return path


def is_utf8(path: str) -> bool:
    """Whether the path is valid UTF-8, and so may stand in JSON as it is."""
    return not any("\udc80" <= c <= "\udcff" for c in path)


def shown(path: str) -> str:
    """The path for JSON and terminals: bytes that are not UTF-8 become U+FFFD."""
    return path if is_utf8(path) else raw_path(path).decode("utf-8", "replace")


def b64(path: str) -> str:
    """Base64 of the exact bytes, for the `…_b64` twin of a path in JSON."""
    return base64.b64encode(raw_path(path)).decode("ascii")


def parent(path: str) -> str:
    """The parent of an absolute normal path; the parent of "/" is "/"."""
    return path.rpartition("/")[0] or "/"


def join(folder: str, name: str) -> str:
    """The path of an entry of an absolute folder."""
    return f"/{name}" if folder == "/" else f"{folder}/{name}"


def prefixes(path: str) -> list[str]:
    """The proper prefixes of an absolute normal path below the root: /a/b/c gives [/a, /a/b]."""
    out, at = [], path.find("/", 1)
    while at != -1:
        out.append(path[:at])
        at = path.find("/", at + 1)
    return out


def folders_above(paths: Iterable[str]) -> set[str]:
    """Every folder on the way to these absolute normal paths, "/" included. Each is cut out once: paths may be deep."""
    found: set[str] = set()
    for path in paths:
        at = parent(path)
        while at not in found:
            found.add(at)
            at = parent(at)
    return found
