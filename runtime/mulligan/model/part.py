"""Part: a piece of a file that an action declares to read instead of all of it.

Knows keys; pure. It is written `dat:PATH#NAME:SPEC`, where NAME says how the piece is cut out (see repair/refiners.py):
`dat:/workspace/shop.db#table:orders`. What stands behind the last `#` is a part when it has this form, and else belongs to
the path.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from mulligan.model.keys import DAT, Key, parse_key

if TYPE_CHECKING:
    from collections.abc import Iterable

COMPANIONS: Final = ("-wal", "-journal")  # endings of the files that belong to a database beside it
LARGEST_REFINED: Final = 64 * 1024 * 1024  # bytes of a file and its companions; a larger one always differs
_PART = re.compile(r"(.+)#([a-z][a-z0-9_-]*):([^#]*)", re.DOTALL)


class FilePart(NamedTuple):
    """One piece of one file."""

    path: str
    refiner: str
    spec: str

    def __str__(self) -> str:
        return f"{DAT}:{self.path}#{self.refiner}:{self.spec}"


def split_part(key: Key) -> FilePart | None:
    """The part that a key names; None when it names a whole file, or is no file's."""
    found = _PART.fullmatch(key.name) if key.kind == DAT else None
    return FilePart(*found.groups()) if found is not None else None


def whole_of(key: Key) -> Key:
    """The key of the whole file that a part is of; any other key as it is."""
    part = split_part(key)
    return key if part is None else Key(DAT, part.path)


def parts_of(declared: Iterable[str]) -> dict[str, list[FilePart]]:
    """The parts among declared keys, by path; without those of files that are declared as a whole, too."""
    keys = [parse_key(text) for text in declared]
    whole = {key.name for key in keys if key.kind == DAT and split_part(key) is None}
    parts: dict[str, list[FilePart]] = {}
    for part in filter(None, map(split_part, keys)):
        if part.path not in whole:
            parts.setdefault(part.path, []).append(part)
    return parts
