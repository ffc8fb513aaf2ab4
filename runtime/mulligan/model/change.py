"""Change: what somebody asserts about history. A closed union of four."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mulligan.model.ids import ActionId


@dataclass(frozen=True, slots=True)
class Replace:
    """This action should have been another one: `action` is shell text (str) or argv."""

    id: ActionId | str
    action: str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Drop:
    """This action should never have run."""

    id: ActionId | str


@dataclass(frozen=True, slots=True)
class Rerun:
    """This action must run again, although nothing it saw has changed (a flaky read, an outside change)."""

    id: ActionId | str


@dataclass(frozen=True, slots=True)
class Patch:
    """The value of a file was wrong where it was made: from right after its last writer on, it is `value`.

    `key` is an absolute guest path, or `dat:PATH`. `at` names the action after which the patch stands, when it is not
    the last writer.
    """

    key: str
    value: bytes
    at: ActionId | str | None = None


Change = Replace | Drop | Rerun | Patch
