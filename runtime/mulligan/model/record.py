"""Record: one action's whole story. Never edited; a correction is a new Record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.model.outputs import parse_outputs

if TYPE_CHECKING:
    from mulligan.model.action import Action, LaunchContext, Outcome
    from mulligan.model.footprint import Footprint
    from mulligan.model.ids import ActionId, LayerId, RecordId
    from mulligan.model.layer import Layer


@dataclass(frozen=True, slots=True)
class Record:
    """Action + Outcome + Footprint + Layer, as appended to the journal.

    `launch` is what it was started with from the state, `handoff` what it hands on to the next action.
    `revision` counts the executions of this action's slot, from 1.
    """

    record_id: RecordId
    revision: int
    action: Action
    launch: LaunchContext
    handoff: LaunchContext
    outcome: Outcome
    footprint: Footprint
    layer: Layer

    @property
    def id(self) -> ActionId:
        """The id of the action's slot, stable through repairs."""
        return self.action.id

    @property
    def layer_id(self) -> LayerId:
        """The id of the layer this record leaves."""
        return self.layer.id

    @property
    def exit_code(self) -> int | None:
        """The exit code, None when a signal ended the command."""
        return self.outcome.exit_code

    @property
    def outputs(self) -> dict[str, str]:
        """What the action declared on its standard output by lines `::set-output name=NAME::VALUE`."""
        return parse_outputs(self.outcome.stdout)

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are not UTF-8 become U+FFFD (`outcome.stdout` has the bytes)."""
        return self.outcome.stdout.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text, decoded like `stdout`."""
        return self.outcome.stderr.decode("utf-8", "replace")
