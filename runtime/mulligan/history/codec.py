"""Codec: the stored form of records, manifests and settings, each blob beginning with its version.

Knows the model. Gives pairs of `encode_`/`decode_` functions. Knows nothing of the database.

A blob is one byte of version, then zlib over MessagePack. Text that came from a guest may hold lone surrogates (paths,
arguments and variables that are not UTF-8), which MessagePack's strings refuse; so such text is stored as its exact
bytes. A set of paths is one byte string, each path closed by a NUL, which no path can hold: it is decoded by one split,
and that is what makes a chain of a thousand records load quickly.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from mulligan.errors import StoreError
from mulligan.model.action import USUAL_UMASK, Action, ActionKind, LaunchContext, Outcome
from mulligan.model.events import Connect
from mulligan.model.footprint import Footprint, Principal
from mulligan.model.ids import ActionId, raw_path
from mulligan.model.layer import Entry, Manifest, NodeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION: Final = 1
_FAST: Final = 1  # zlib's level: the blobs are small and repetitive, so more effort gains little

_T = TypeVar("_T")


class _Launch(msgspec.Struct, array_like=True, frozen=True):
    env: dict[bytes, bytes]
    cwd: bytes
    umask: int = USUAL_UMASK


class _Action(msgspec.Struct, array_like=True, frozen=True):
    id: str
    kind: ActionKind
    argv: list[bytes]
    shell: bytes | None
    cwd: bytes | None
    env: dict[bytes, bytes]
    stdin: bytes
    timeout_s: float | None
    labels: list[bytes]
    reads: list[bytes]
    writes: list[bytes]
    patch_path: bytes | None


class _Outcome(msgspec.Struct, array_like=True, frozen=True):
    """An outcome without its streams, which lie in a table of their own."""

    exit_code: int | None
    signal: str | None
    stdout_truncated: bool
    stderr_truncated: bool
    timed_out: bool
    oom_killed: bool
    started_ns: int
    ended_ns: int
    duration_ms: float
    user_ms: float
    system_ms: float
    max_rss_kib: int
    killed_at_end: list[bytes]


class _Footprint(msgspec.Struct, array_like=True, frozen=True):
    """Sets of paths are NUL-closed byte strings, in the order of `_PATH_SETS`."""

    paths: list[bytes]
    connected: list[tuple[Literal["connect", "bind", "send"], str, bytes, int, int]]
    launch_env: dict[bytes, bytes]
    launch_cwd: bytes
    declared_reads: list[bytes]
    declared_writes: list[bytes]
    principal: Principal
    incomplete_because: list[bytes]
    words: bytes = b""
    lists_env: list[bytes] = msgspec.field(default_factory=lambda: [b"it was recorded by an older version"])
    uses_umask: bool = True


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    """One path of a manifest; `flags` has a bit per field of `_FLAGS`."""

    kind: NodeKind
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    flags: int
    rdev: int
    target: bytes
    xattrs: list[tuple[bytes, bytes]]
    links: bytes


class _Manifest(msgspec.Struct, array_like=True, frozen=True):
    paths: bytes
    entries: list[_Entry]
    removed: bytes


class RecordBody(msgspec.Struct, array_like=True, frozen=True):
    """What of a record is neither a column, a stream nor its layer."""

    action: _Action
    launch: _Launch
    handoff: _Launch
    outcome: _Outcome
    footprint: _Footprint


_PATH_SETS: Final = (
    "saw", "stats", "probed", "missed", "listed", "linked", "xattrs", "overwrote", "executed", "wrote", "removed",
)  # fmt: skip
_FLAGS: Final = ("opaque", "made", "inherit_content", "inherit_mode", "inherit_mtime", "inherit_xattrs")
_FLAG_SETS: Final = [
    {name: bool(flags >> bit & 1) for bit, name in enumerate(_FLAGS)} for flags in range(1 << len(_FLAGS))
]  # by the number in `_Entry.flags`: made once, since a manifest may have many thousand entries


def encode_body(action: Action, launch: LaunchContext, handoff: LaunchContext, outcome: Outcome, footprint: Footprint) -> bytes:
    """The stored form of a record, without its streams and its layer."""
    return _pack(
        RecordBody(
            _stored_action(action),
            _stored_launch(launch),
            _stored_launch(handoff),
            _stored_outcome(outcome),
            _stored_footprint(footprint),
        )
    )


def decode_body(blob: bytes, stdout: bytes, stderr: bytes) -> tuple[Action, LaunchContext, LaunchContext, Outcome, Footprint]:
    """Action, launch, handoff, outcome and footprint of a stored record, given its streams."""
    body = _unpack(blob, RecordBody)
    return (
        _action(body.action),
        _launch(body.launch),
        _launch(body.handoff),
        _outcome(body.outcome, stdout, stderr),
        _footprint(body.footprint),
    )


def encode_manifest(manifest: Manifest) -> bytes:
    """The stored form of a manifest."""
    paths = sorted(manifest.entries)
    entries = [_stored_entry(manifest.entries[path]) for path in paths]
    return _pack(_Manifest(_joined(paths), entries, _joined(sorted(manifest.removed))))


def decode_manifest(blob: bytes) -> Manifest:
    """The manifest that `encode_manifest` stored."""
    stored = _unpack(blob, _Manifest)
    entries = dict(zip(_split(stored.paths), map(_entry, stored.entries), strict=True))
    return Manifest(entries, frozenset(_split(stored.removed)))


def encode_launch(launch: LaunchContext) -> bytes:
    """The stored form of a launch context."""
    return _pack(_stored_launch(launch))


def decode_launch(blob: bytes) -> LaunchContext:
    """The launch context that `encode_launch` stored."""
    return _launch(_unpack(blob, _Launch))


def encode_settings(settings: Mapping[str, Any]) -> bytes:
    """The stored form of a JSON-able mapping, such as a base or a session's configuration; text in it may be any path."""
    return _pack(_raw_text(dict(settings)))


def decode_settings(blob: bytes) -> dict[str, Any]:
    """The mapping that `encode_settings` stored."""
    settings: dict[str, Any] = _path_text(_unpack(blob, dict))
    return settings


def encode_stream(data: bytes) -> bytes:
    """The stored form of a standard output or error."""
    return bytes((VERSION,)) + zlib.compress(data, _FAST)


def decode_stream(blob: bytes) -> bytes:
    """The content that `encode_stream` stored."""
    try:
        return zlib.decompress(_checked(blob))
    except zlib.error as error:
        raise StoreError(f"read the store: a stored output is damaged ({error})") from error


def _pack(value: object) -> bytes:
    return bytes((VERSION,)) + zlib.compress(msgspec.msgpack.encode(value), _FAST)


def _unpack(blob: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(zlib.decompress(_checked(blob)), type=kind)
    except (zlib.error, msgspec.DecodeError) as error:
        raise StoreError(f"read the store: a stored {kind.__name__.strip('_').lower()} is damaged ({error})") from error


def _checked(blob: bytes) -> memoryview:
    if not blob or blob[0] != VERSION:
        found = f"format {blob[0]}" if blob else "no format"
        raise StoreError(
            f"read the store: a blob has {found}, and this Mulligan reads format {VERSION}",
            remedy="use the Mulligan that wrote it",
        )
    return memoryview(blob)[1:]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _raw_list(texts: Iterable[str]) -> list[bytes]:
    return [raw_path(t) for t in texts]


def _text_tuple(raws: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(map(_text, raws))


def _joined(paths: Iterable[str]) -> bytes:
    return raw_path("".join([path + "\0" for path in paths]))


def _split(joined: bytes) -> list[str]:
    paths = _text(joined).split("\0")
    paths.pop()  # what follows the last NUL: nothing
    return paths


def _raw_env(env: Mapping[str, str]) -> dict[bytes, bytes]:
    return {raw_path(name): raw_path(value) for name, value in env.items()}


def _text_env(env: Mapping[bytes, bytes]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in env.items()}


def _raw_text(value: Any) -> Any:
    match value:
        case str():
            return raw_path(value)
        case dict():
            return {raw_path(k): _raw_text(v) for k, v in value.items()}
        case list() | tuple():
            return [_raw_text(v) for v in value]
        case _:
            return value


def _path_text(value: Any) -> Any:
    match value:
        case bytes():
            return _text(value)
        case dict():
            return {_text(k): _path_text(v) for k, v in value.items()}
        case list():
            return [_path_text(v) for v in value]
        case _:
            return value


def _maybe_raw(text: str | None) -> bytes | None:
    return None if text is None else raw_path(text)


def _maybe_text(raw: bytes | None) -> str | None:
    return None if raw is None else _text(raw)


def _stored_launch(launch: LaunchContext) -> _Launch:
    return _Launch(_raw_env(launch.env), raw_path(launch.cwd), launch.umask)


def _launch(stored: _Launch) -> LaunchContext:
    return LaunchContext(_text_env(stored.env), _text(stored.cwd), stored.umask)


def _stored_action(action: Action) -> _Action:
    return _Action(
        id=action.id,
        kind=action.kind,
        argv=_raw_list(action.argv),
        shell=_maybe_raw(action.shell),
        cwd=_maybe_raw(action.cwd),
        env=_raw_env(action.env),
        stdin=action.stdin,
        timeout_s=action.timeout_s,
        labels=_raw_list(action.labels),
        reads=_raw_list(action.reads),
        writes=_raw_list(action.writes),
        patch_path=_maybe_raw(action.patch_path),
    )


def _action(stored: _Action) -> Action:
    return Action(
        id=ActionId(stored.id),
        kind=stored.kind,
        argv=_text_tuple(stored.argv),
        shell=_maybe_text(stored.shell),
        cwd=_maybe_text(stored.cwd),
        env=_text_env(stored.env),
        stdin=stored.stdin,
        timeout_s=stored.timeout_s,
        labels=_text_tuple(stored.labels),
        reads=_text_tuple(stored.reads),
        writes=_text_tuple(stored.writes),
        patch_path=_maybe_text(stored.patch_path),
    )


def _stored_outcome(outcome: Outcome) -> _Outcome:
    return _Outcome(
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        stdout_truncated=outcome.stdout_truncated,
        stderr_truncated=outcome.stderr_truncated,
        timed_out=outcome.timed_out,
        oom_killed=outcome.oom_killed,
        started_ns=outcome.started_ns,
        ended_ns=outcome.ended_ns,
        duration_ms=outcome.duration_ms,
        user_ms=outcome.user_ms,
        system_ms=outcome.system_ms,
        max_rss_kib=outcome.max_rss_kib,
        killed_at_end=_raw_list(outcome.killed_at_end),
    )


def _outcome(stored: _Outcome, stdout: bytes, stderr: bytes) -> Outcome:
    return Outcome(
        exit_code=stored.exit_code,
        signal=stored.signal,
        stdout=stdout,
        stderr=stderr,
        stdout_truncated=stored.stdout_truncated,
        stderr_truncated=stored.stderr_truncated,
        timed_out=stored.timed_out,
        oom_killed=stored.oom_killed,
        started_ns=stored.started_ns,
        ended_ns=stored.ended_ns,
        duration_ms=stored.duration_ms,
        user_ms=stored.user_ms,
        system_ms=stored.system_ms,
        max_rss_kib=stored.max_rss_kib,
        killed_at_end=_text_tuple(stored.killed_at_end),
    )


def _stored_footprint(footprint: Footprint) -> _Footprint:
    return _Footprint(
        paths=[_joined(sorted(getattr(footprint, name))) for name in _PATH_SETS],
        connected=[(c.op, c.family, raw_path(c.address), c.port, c.errno) for c in footprint.connected],
        launch_env=_raw_env(footprint.launch_env),
        launch_cwd=raw_path(footprint.launch_cwd),
        declared_reads=_raw_list(footprint.declared_reads),
        declared_writes=_raw_list(footprint.declared_writes),
        principal=footprint.principal,
        words=_joined(sorted(footprint.words)),
        lists_env=_raw_list(footprint.lists_env),
        uses_umask=footprint.uses_umask,
        incomplete_because=_raw_list(footprint.incomplete_because),
    )


def _footprint(stored: _Footprint) -> Footprint:
    sets: dict[str, Any] = {n: frozenset(_split(p)) for n, p in zip(_PATH_SETS, stored.paths, strict=True)}
    return Footprint(
        **sets,
        connected=tuple(
            Connect(op, family, _text(address), port, errno) for op, family, address, port, errno in stored.connected
        ),
        launch_env=_text_env(stored.launch_env),
        launch_cwd=_text(stored.launch_cwd),
        declared_reads=_text_tuple(stored.declared_reads),
        declared_writes=_text_tuple(stored.declared_writes),
        principal=stored.principal,
        words=frozenset(_split(stored.words)),
        lists_env=_text_tuple(stored.lists_env),
        uses_umask=stored.uses_umask,
        incomplete_because=_text_tuple(stored.incomplete_because),
    )


def _stored_entry(entry: Entry) -> _Entry:
    return _Entry(
        entry.kind,
        entry.mode,
        entry.uid,
        entry.gid,
        entry.size,
        entry.mtime_ns,
        sum(getattr(entry, name) << bit for bit, name in enumerate(_FLAGS)),
        entry.rdev,
        raw_path(entry.target),
        list(entry.xattrs),
        _joined(entry.links),
    )


def _entry(stored: _Entry) -> Entry:
    return Entry(
        kind=stored.kind,
        mode=stored.mode,
        uid=stored.uid,
        gid=stored.gid,
        size=stored.size,
        mtime_ns=stored.mtime_ns,
        target=_text(stored.target),
        rdev=stored.rdev,
        xattrs=tuple(stored.xattrs),
        **_FLAG_SETS[stored.flags],
        links=tuple(_split(stored.links)),
    )
