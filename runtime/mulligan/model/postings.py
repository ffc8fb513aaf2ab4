"""Postings: under which paths a record is found again, and as what: who observed a path, and who wrote it in which way.

Knows footprints, manifests and keys; pure. A record that is not found under a path, by the bits that `observers` and `writers`
give for the kinds of key that differ there, can neither notice that they differ nor change it. What is found too much costs a
look at a record; nothing is ever decided by it alone.

The ways of writing are told apart because a folder is in the layer of everybody who wrote below it. Whoever looks for the
origin of a folder's mode must not have to pass all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Final, NamedTuple

from mulligan.model.footprint import OBSERVED
from mulligan.model.ids import folders_above
from mulligan.model.keys import ENT, ENV, MEM, MODE, MTIME, NET, OUT, SEARCH, XATTR, parse_key
from mulligan.model.part import whole_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from mulligan.model.action import LaunchContext
    from mulligan.model.footprint import Footprint
    from mulligan.model.keys import KeyKind
    from mulligan.model.layer import Entry, Manifest
    from mulligan.model.record import Record

_OBSERVING: Final = {name: 1 << bit for bit, name in enumerate(OBSERVED)}
READ: Final = (1 << len(OBSERVED)) - 1  # observed in any way
LISTED: Final = _OBSERVING["listed"]
DECLARED: Final = 1 << 9  # a key of the path is declared as read
PASSED: Final = 1 << 10  # something below the folder was observed
REMOVED: Final = 1 << 11
FILE: Final = 1 << 12  # anything but a folder, of which nothing is inherited
FILE_PART: Final = 1 << 13
FOLDER: Final = 1 << 14  # a folder that is not opaque, of which nothing is inherited
OPAQUE: Final = 1 << 15
FOLDER_PART: Final = 1 << 16
FOLDER_TIME: Final = 1 << 17  # nothing but its mtime is set: something was made or removed in it
FOLDER_COPY: Final = 1 << 18  # nothing is set: it is in the layer for what lies below it
BELOW: Final = 1 << 19  # only removals lie below it
FLAG: Final = 1 << 20

WRITTEN: Final = REMOVED | FILE | FILE_PART | FOLDER | OPAQUE | FOLDER_PART | FOLDER_TIME | FOLDER_COPY
WRITTEN_BELOW: Final = WRITTEN | BELOW
RESETS: Final = REMOVED | FILE | FOLDER  # what was there before means nothing afterwards
SHUTS: Final = REMOVED | FILE | FILE_PART | OPAQUE  # nothing of what lay below stays
PARTS: Final = FILE_PART | OPAQUE | FOLDER_PART
CREATES: Final = FOLDER_TIME | FOLDER_COPY  # sets nothing that a later one would not set again, unless nothing was there

# Names that no path has, for what is not found by a path.
INCOMPLETE: Final = "incomplete"
TOLD: Final = "told"  # declares to read a key that is no path's

NOT_RUN: Final = 0


class Facts(NamedTuple):
    """What the index keeps of a record: its number, its action's name, what it was launched with and handed on, its postings.

    Launch contexts are told by a number each, equal for equal ones; NOT_RUN for both says that nothing was run.
    """

    record: int
    name: str
    launch: int
    handoff: int
    postings: Mapping[str, int]


def facts_of(record: Record) -> Facts:
    """What the index keeps of a record."""
    launch = handoff = NOT_RUN
    if record.action.kind == "run":
        launch = launch_number(record.launch)
        handoff = launch if record.handoff == record.launch else launch_number(record.handoff)
    return Facts(record.record_id, record.id, launch, handoff, postings(record.footprint, record.layer.manifest))


def launch_number(launch: LaunchContext) -> int:
    """The number of a launch context: 64 bits of a hash, and never NOT_RUN."""
    values = (getattr(launch, field.name) for field in fields(launch))
    text = ascii([sorted(value.items()) if isinstance(value, Mapping) else value for value in values])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") | 1


def postings(footprint: Footprint, manifest: Manifest) -> dict[str, int]:
    """The paths under which a record is found, with the bits of how."""
    found: dict[str, int] = {}
    for name, bit in _OBSERVING.items():
        for path in getattr(footprint, name):
            found[path] = found.get(path, 0) | bit
    _add(found, folders_above(found), PASSED)
    entries = manifest.entries
    for path, entry in entries.items():
        found[path] = found.get(path, 0) | _way(entry)
    _add(found, manifest.removed, REMOVED)
    implied = folders_above(entries) - entries.keys()
    _add(found, implied, FOLDER_COPY)
    _add(found, folders_above(manifest.removed) - entries.keys() - implied, BELOW)
    for text in footprint.declared_reads:
        key = parse_key(text)
        if key.kind in (ENV, NET, OUT, MEM):
            found[TOLD] = FLAG
        else:
            _add(found, (whole_of(key).name,), DECLARED)
    if not footprint.complete:
        found[INCOMPLETE] = FLAG
    return found


def observers(kinds: Collection[KeyKind]) -> int:
    """The bits of those who may notice that a path differs in these kinds of key."""
    search = may_search(kinds)
    bits = DECLARED | (PASSED if search else 0)
    for name, observed in OBSERVED.items():
        if any(kind in kinds or (search and kind == SEARCH) for kind in observed):
            bits |= _OBSERVING[name]
    return bits


def writers(kinds: Collection[KeyKind]) -> int:
    """The bits of those whose layer may change in what a path differs, when it differs in these kinds of key."""
    bits = WRITTEN
    if ENT not in kinds:
        bits &= ~FOLDER_COPY
        if MTIME not in kinds:
            bits &= ~FOLDER_TIME
    return bits


def may_search(kinds: Collection[KeyKind]) -> bool:
    """Whether a folder that differs in these kinds may be one that another may pass."""
    return ENT in kinds or MODE in kinds or XATTR in kinds


def _way(entry: Entry) -> int:
    inherits = entry.inherit_mode or entry.inherit_mtime or entry.inherit_xattrs
    if entry.kind != "dir":
        return FILE if entry.made or not (inherits or entry.inherit_content) else FILE_PART
    if entry.opaque:
        return OPAQUE
    if entry.made or not inherits:
        return FOLDER
    if entry.inherit_mode and entry.inherit_xattrs:
        return FOLDER_COPY if entry.inherit_mtime else FOLDER_TIME
    return FOLDER_PART


def _add(found: dict[str, int], paths: Collection[str], bits: int) -> None:
    for path in paths:
        found[path] = found.get(path, 0) | bits
