"""A manifest as a file in its layer's folder, for layers that sessions share without a journal (skeletons). Pure."""

from __future__ import annotations

import dataclasses

import msgspec

from mulligan.errors import StoreError
from mulligan.model.ids import guest_path, raw_path
from mulligan.model.layer import Entry, Manifest

_FORMAT = 1
_FIELDS = tuple(one.name for one in dataclasses.fields(Entry) if one.name not in ("target", "links", "xattrs"))


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest's bytes; the format's version comes first."""
    rows = [
        (
            raw_path(path),
            [getattr(entry, name) for name in _FIELDS],
            raw_path(entry.target),
            [raw_path(link) for link in entry.links],
            entry.xattrs,
        )
        for path, entry in manifest.entries.items()
    ]
    return msgspec.msgpack.encode([_FORMAT, _FIELDS, rows, [raw_path(path) for path in manifest.removed]])


def decode_manifest(data: bytes) -> Manifest:
    """The manifest that `encode_manifest` wrote. Raises StoreError for what it did not write."""
    try:
        version, fields, rows, removed = msgspec.msgpack.decode(data)
        if version != _FORMAT or tuple(fields) != _FIELDS:
            raise StoreError(f"a layer's manifest has format {version}, this mulligan reads {_FORMAT}")
        entries: dict[str, Entry] = {
            guest_path(path): Entry(
                **dict(zip(_FIELDS, values, strict=True)),
                target=guest_path(target),
                links=tuple(guest_path(link) for link in links),
                xattrs=tuple((bytes(key), bytes(value)) for key, value in xattrs),
            )
            for path, values, target, links, xattrs in rows
        }
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise StoreError(f"a layer's manifest is damaged: {error}") from error
    return Manifest(entries, frozenset(guest_path(path) for path in removed))
