"""Schedule: changes put to their places in a history, one slot after the other.

Knows records and changes; pure. Refuses what names no action, contradicts itself or cannot be meant, in one sentence each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mulligan.errors import GivenUpError, NotFoundError, UsageError
from mulligan.model.change import Drop, Patch, Replace, Rerun
from mulligan.model.ids import ActionId
from mulligan.model.keys import DAT, parse_key
from mulligan.model.own import is_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from mulligan.model.change import Change
    from mulligan.model.record import Record


class Readable(Protocol):
    """Records by their places."""

    def __getitem__(self, position: int, /) -> Record: ...


@dataclass(frozen=True, slots=True)
class Slot:
    """One place of the corrected history. `record` is None where a patch is inserted, `change` where none is asserted."""

    record: Record | None
    change: Change | None = None

    @property
    def name(self) -> str:
        """The action's id, or for an inserted patch, which has none yet, what it sets."""
        if self.record is not None:
            return self.record.id
        assert isinstance(self.change, Patch), self
        return f"patch of {patch_path(self.change)}"


def build_schedule(history: Sequence[Record], changes: Iterable[Change]) -> tuple[Slot, ...]:
    """Every slot of the history in order with the change that names it, and a slot for each patch.

    A patch stands right after the last action that set the file's content (or after `at`), or before all actions when
    the content is the base's. Raises NotFoundError for an unknown action, UsageError for what cannot be done.
    """
    backwards = range(len(history) - 1, -1, -1)
    named, patches = place_changes(history, [record.id for record in history], changes, lambda _: backwards)
    slots = [Slot(None, patch) for patch in patches.get(-1, ())]
    for index, record in enumerate(history):
        slots.append(Slot(record, named.get(index)))
        slots += [Slot(None, patch) for patch in patches.get(index, ())]
    return tuple(slots)


def too_old(name: str, oldest: str | None) -> GivenUpError:
    """The error for an action, or the state after it, whose layers were given up."""
    rest = "no action can be" if oldest is None else f"the oldest action that can be is {oldest}"
    return GivenUpError(
        f"{name} can't be repaired or gone back to any more: its layer was given up to stay within a disk budget", remedy=rest
    )


def check_reach(changes: Iterable[Change], given_up: Collection[ActionId], history: Sequence[Record]) -> None:
    """Raise GivenUpError for a change that begins at an action whose layer was given up, or before the first one left."""
    oldest = history[0].id if history else None
    for change in changes:
        if not isinstance(change, Patch):
            if change.id in given_up:
                raise too_old(change.id, oldest)
        elif change.at is None:
            if given_up and _last_writer(history, patch_path(change), range(len(history) - 1, -1, -1)) < 0:
                raise too_old(f"what set {patch_path(change)!r}", oldest)
        elif change.at in given_up:
            raise too_old(change.at, oldest)


def may_extend(changes: Iterable[Change], old: Sequence[Record], new: Sequence[Record]) -> bool:
    """Whether these changes mean the same of the new history: actions were only added, and none where a patch belongs."""
    if [record.record_id for record in old] != [record.record_id for record in new[: len(old)]]:
        return False
    paths = {patch_path(change) for change in changes if isinstance(change, Patch) and change.at is None}
    return not any(paths & record.layer.manifest.paths for record in new[len(old) :])


def place_changes(
    history: Readable, names: Sequence[ActionId], changes: Iterable[Change], written: Callable[[str], Iterable[int]]
) -> tuple[dict[int, Change], dict[int, list[Patch]]]:
    """Changes by the place of the history that they name, and patches by the place they stand after (-1: before all).

    `names` are those of the history's actions; `written` gives the places that may have written a path, the latest first.
    """
    at = {name: index for index, name in enumerate(names)}
    named: dict[int, Change] = {}
    patches: dict[int, list[Patch]] = {}
    for change in changes:
        if isinstance(change, Patch):
            path = patch_path(change)
            index = _index(at, change.at) if change.at is not None else _last_writer(history, path, written(path))
            _add_patch(change, patches.setdefault(index, []))
        else:
            index = _index(at, change.id)
            _check(history[index], change, named.get(index))
            named[index] = change
    return named, patches


def patch_path(patch: Patch) -> str:
    """The absolute path that a patch sets. Raises UsageError when its key names no file of the state."""
    path = patch.key
    if not path.startswith("/"):
        try:
            key = parse_key(path)
        except ValueError as error:
            raise UsageError(f"patch {path!r}: {error}", remedy="give an absolute path, or dat:PATH") from error
        if key.kind != DAT:
            raise UsageError(f"patch {path!r}: only the content of a file can be patched", remedy="give an absolute path")
        path = key.name
    parts = path.split("/")
    if parts[0] != "" or len(parts) < 2 or any(part in ("", ".", "..") for part in parts[1:]):  # noqa: PLR2004 - "/name"
        raise UsageError(f"patch {path!r}: this is no absolute path of a file, without '.', '..' and empty parts")
    if not is_state(path):
        raise UsageError(f"patch {path!r}: this is a view of the kernel and no part of the state")
    return path


def _index(at: dict[ActionId, int], name: str) -> int:
    index = at.get(ActionId(name))
    if index is None:
        known = f"its actions are {next(iter(at))} to {list(at)[-1]}" if at else "it has no action yet"
        raise NotFoundError(f"no action {name!r} in this history; {known}")
    return index


def _check(record: Record, change: Change, other: Change | None) -> None:
    if other is not None and other != change:
        raise UsageError(f"two changes contradict each other on action {record.id}", remedy="assert one of them")
    if record.action.kind == "patch" and not isinstance(change, Drop):
        raise UsageError(
            f"action {record.id} is a patch, which is not run", remedy="drop it, or patch the same path with another value"
        )
    if isinstance(change, Replace) and not change.action:
        raise UsageError(f"replace action {record.id} by nothing", remedy="give a command, or drop the action")
    assert isinstance(change, (Replace, Drop, Rerun)), change


def _add_patch(change: Patch, there: list[Patch]) -> None:
    path = patch_path(change)
    same = [other for other in there if patch_path(other) == path]
    if any(other.value != change.value for other in same):
        raise UsageError(f"two patches give {path!r} different values at the same point", remedy="assert one of them")
    if not same:
        there.append(change)


def _last_writer(history: Readable, path: str, written: Iterable[int]) -> int:
    """The index of the last action that set the content of the file; -1 when no action did."""
    for index in written:
        entry = history[index].layer.manifest.entries.get(path)
        if entry is not None and not entry.inherit_content:
            return index
    return -1
