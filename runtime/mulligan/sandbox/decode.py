"""Decoding the tracer's event stream (tracer/PROTOCOL.md § EVENT_FD). Knows the wire form and the model's events.

Takes all bytes that the tracer wrote and gives the facts in order, the raw entries, and whether the stream was whole.
A stream that is cut off or out of order is the tracer's fault and a TracerError: the action then has no outcome.
It is on the way of every action, so each frame is decoded in one go and each event costs one dictionary look-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from mulligan.errors import TracerError
from mulligan.model import events as ev
from mulligan.model.events import Event, MetaWhat, RawEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROTOCOL_VERSION: Final = 1
_HELLO, _PATH, _BLOB, _ENTRY, _END = 0, 1, 2, 50, 60

_unpack = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True)
class Facts:
    """All that came over the event stream of one action."""

    events: list[Event]
    entries: list[RawEntry]
    stops: tuple[int, int]  # seccomp stops, exit stops


def decode_events(stream: bytes | bytearray) -> Facts:
    """The facts of a whole stream. Raises TracerError when it has no END or does not follow the protocol."""
    try:
        return _Decoder().take(stream)
    except TracerError:
        raise
    except (msgspec.DecodeError, LookupError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        message = f"the tracer's event stream does not follow its protocol: {type(error).__name__}: {error}"
        raise TracerError(message, remedy="the action was discarded; please report this") from error


class _Decoder:
    def __init__(self) -> None:
        self.paths: dict[int, str] = {}
        self.blobs: dict[int, bytes] = {}
        self.events: list[Event] = []
        self.entries: list[RawEntry] = []
        self.split_blobs: dict[int, tuple[bytes, ...]] = {}

    def take(self, stream: bytes | bytearray) -> Facts:
        table = self._table()
        paths, keep = self.paths, self.events.append
        begun, stops = False, None
        for frame in _frames(stream):
            for event in _unpack(frame):
                kind = event[0]
                make = table.get(kind)
                if make is not None:
                    keep(make(event))
                elif kind == _PATH:
                    paths[event[1]] = event[2].decode("utf-8", "surrogateescape")
                elif kind == _BLOB:
                    self.blobs[event[1]] = event[2]
                elif kind == _ENTRY:
                    self.entries.append(self._entry(event))
                elif kind == _HELLO:
                    _check_hello(event)
                    begun = True
                elif kind == _END:
                    stops = (event[1], event[2])
                else:
                    raise TracerError(f"the tracer sent an event of unknown kind {kind!r}")
        if not begun or stops is None:
            raise TracerError("the tracer's event stream was cut off", remedy="the action was discarded; try it again")
        return Facts(self.events, self.entries, stops)

    def _table(self) -> dict[int, Callable[[Any], Event]]:
        paths = self.paths
        return {
            10: lambda e: ev.Read(paths[e[1]]),
            11: lambda e: ev.Stat(paths[e[1]], (e[2] & 1) == 1),
            12: lambda e: ev.Probe(paths[e[1]]),
            13: lambda e: ev.Missed(paths[e[1]]),
            14: lambda e: ev.Link(paths[e[1]]),
            15: lambda e: ev.List(paths[e[1]]),
            16: lambda e: ev.XattrRead(paths[e[1]]),
            20: lambda e: ev.Create(paths[e[1]]),
            21: lambda e: ev.Write(paths[e[1]], (e[2] & 1) == 1),
            22: lambda e: ev.Mkdir(paths[e[1]]),
            23: lambda e: ev.Remove(paths[e[1]]),
            24: lambda e: ev.Rename(paths[e[1]], paths[e[2]], (e[3] & 1) == 1),
            25: lambda e: ev.Hardlink(paths[e[1]], paths[e[2]]),
            26: lambda e: ev.Symlink(paths[e[1]]),
            27: lambda e: ev.Mknod(paths[e[1]]),
            28: lambda e: ev.Meta(paths[e[1]], MetaWhat(e[2])),
            30: lambda e: ev.Exec(
                e[1], paths[e[2]], self._blob(e[3]), self._blob(e[4]), paths[e[5]], e[6], e[7] if e[7] <= _MASK else None
            ),
            31: lambda e: ev.Connect(_OPS[e[1]], e[2], _text(e[3]), e[4], e[5]),
            32: lambda e: ev.Credentials(e[1]),
            34: lambda _: ev.Umask(),
            33: lambda e: ev.Killed(e[1], _text(e[2])),
            40: lambda e: ev.Incomplete(e[1], _text(e[2])),
        }

    def _blob(self, number: int) -> tuple[bytes, ...]:
        found = self.split_blobs.get(number)
        if found is None:
            raw = self.blobs[number]
            found = tuple(raw.removesuffix(b"\0").split(b"\0")) if raw else ()
            self.split_blobs[number] = found
        return found

    def _entry(self, event: list[Any]) -> RawEntry:
        _, path, kind, mode, uid, gid, size, mtime_ns, nlink, ino, target, rdev, opaque, xattrs = event
        return RawEntry(
            path=self.paths[path],
            kind=cast("ev.EntryKind", kind),
            mode=mode,
            uid=uid,
            gid=gid,
            size=size,
            mtime_ns=mtime_ns,
            nlink=nlink,
            ino=ino,
            target=_text(target),
            rdev=rdev,
            opaque=bool(opaque),
            xattrs=tuple((bytes(_raw(name)), bytes(value)) for name, value in xattrs),
        )


_MASK: Final = 0o777
_OPS: Final[dict[int, Literal["connect", "bind", "send"]]] = {0: "connect", 1: "bind", 2: "send"}


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")


def _raw(value: bytes | str) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _frames(stream: bytes | bytearray) -> Iterator[memoryview]:
    view, at, end = memoryview(stream), 0, len(stream)
    while at < end:
        size = int.from_bytes(view[at : at + 4], "little")
        at += 4
        if at + size > end:
            raise TracerError("the tracer's event stream was cut off", remedy="the action was discarded; try it again")
        yield view[at : at + size]
        at += size


def _check_hello(event: list[Any]) -> None:
    if event[1] != PROTOCOL_VERSION:
        message = f"the tracer speaks protocol {event[1]}, this mulligan speaks {PROTOCOL_VERSION}"
        raise TracerError(message, remedy="build it again: reinstall Mulligan, or run `make -C tracer`")
