"""Phantoms: files that were copied up because they were opened for writing, and then not written.

Knows the raw upper directory, the run's facts and the stack below. A phantom would hide, in a repaired history, what lies
below it (REPAIR.md's row 8), so it is removed before the layer is sealed. One that was written, if with the very same
bytes, has a new mtime: that was meant, and stays.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mulligan.errors import UsageError
from mulligan.model.fold import own_writes
from mulligan.model.ids import BASE_LAYER, parent
from mulligan.sandbox.trees import FOLDER, PASSING, READING, opened, same_content, split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mulligan.model.events import Event, RawEntry
    from mulligan.model.layer import Entry
    from mulligan.sandbox.stack import Seen, Stack


def drop_phantoms(
    upper: Path, events: Sequence[Event], entries: Sequence[RawEntry], stack: Stack, during: range | None = None
) -> list[RawEntry]:
    """Remove the files that were opened for writing and not written, with the parents copied up only for them.

    Gives the entries that stay. What was written anew with equal bytes has a new mtime, is meant, and stays. A file with a
    time of `during`, the nanoseconds of the run, was written in it, which saves a look at the stack: a phantom has the time of
    the file below. (Where somebody dated that one into the future, the copy stays, and with it the read that it stands for.)
    """
    by_path = {entry.path: entry for entry in entries}
    suspects = [
        path
        for path, found in own_writes(events).items()
        if found.written and not found.truncated and not found.moved and not found.meta and found.origin == path
    ]
    old = [by_path[path] for path in suspects if path in by_path and not (during and by_path[path].mtime_ns in during)]
    phantoms = [entry.path for entry in old if _is_phantom(upper, entry, stack)]
    if not phantoms:
        return list(entries)
    gone = set(phantoms)
    left: dict[str, int] = {}
    for path in by_path:
        if path != "/":
            left[parent(path)] = left.get(parent(path), 0) + 1
    top = os.open(upper, FOLDER)
    try:
        for path in phantoms:
            _unlink_quietly(top, path, by_path)
            folder = parent(path)
            left[folder] -= 1
            while folder != "/" and not left[folder] and _is_bare_copy(by_path[folder], stack):
                _unlink_quietly(top, folder, by_path)
                gone.add(folder)
                folder = parent(folder)
                left[folder] -= 1
    finally:
        os.close(top)
    return [entry for entry in entries if entry.path not in gone]


def _unlink_quietly(top: int, path: str, by_path: Mapping[str, RawEntry]) -> None:
    """Remove a file or an empty folder, and give its parent its mtime back."""
    parts = split(path)
    with opened(top, parts[:-1], PASSING) as folder:
        if by_path[path].kind == "dir":
            os.rmdir(parts[-1], dir_fd=folder)
        else:
            os.unlink(parts[-1], dir_fd=folder)
        above = by_path.get(parent(path))
        if above is not None:
            os.utime(".", ns=(above.mtime_ns, above.mtime_ns), dir_fd=folder)


def _is_phantom(upper: Path, entry: RawEntry, stack: Stack) -> bool:
    if entry.kind != "file" or entry.nlink != 1:
        return False
    below = _find(stack, entry.path)
    if below is None or below.provider == BASE_LAYER or below.entry.kind != "file" or not _same_metadata(entry, below.entry):
        return False
    parts = split(entry.path)
    with (
        opened(-1, (str(upper),)) as top,
        opened(top, parts[:-1], PASSING) as folder,
        opened(folder, parts[-1:], READING, ours=True) as here,
        stack.store.opened(below.provider, entry.path) as there,  # of the layer: even its owner may not be let to read it
    ):
        return same_content(here, there)


def _find(stack: Stack, path: str) -> Seen | None:
    """What lies below; nothing where a folder was closed to its owner, who opened it in this very run: no phantom then."""
    try:
        return stack.find(path)
    except UsageError:
        return None


def _is_bare_copy(entry: RawEntry, stack: Stack) -> bool:
    """Whether a folder of the upper directory says nothing that the folder below does not say."""
    below = _find(stack, entry.path)
    return below is not None and below.entry.kind == "dir" and not entry.opaque and _same_metadata(entry, below.entry)


def _same_metadata(entry: RawEntry, below: Entry) -> bool:
    size = entry.kind == "dir" or entry.size == below.size
    return size and (entry.mtime_ns, entry.mode, entry.uid, entry.gid, tuple(sorted(entry.xattrs))) == (
        below.mtime_ns,
        below.mode,
        below.uid,
        below.gid,
        tuple(sorted(below.xattrs)),
    )
