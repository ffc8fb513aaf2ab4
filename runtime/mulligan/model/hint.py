"""Hint: a weak edge between two actions, which no trace shows. Frozen; finding them is repair/'s business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mulligan.model.keys import OUT, Key

if TYPE_CHECKING:
    from mulligan.model.ids import ActionId

Place = Literal["command", "stdin", "env"]


@dataclass(frozen=True, slots=True)
class Hint:
    """What `source` put out holds a rare word, `token`, that stands in what `target` was given.

    `part` is where in the output: "stdout", "stderr" or "outputs.NAME". `confidence` lies between 0 and 1: how unlikely it is
    that the word stands there by chance.
    """

    source: ActionId
    target: ActionId
    part: str
    token: str
    place: Place
    confidence: float

    @property
    def key(self) -> Key:
        """The key that `target` could have declared."""
        return Key(OUT, f"{self.source}.{self.part}")
