"""Floors: from which state on a session's history can be rebuilt, once layers were given up for the sake of disk space.

Knows what a floor is, and which layers are held. A session's floor is a state of its history, and one layer stands for all
actions up to it. Their records stay, their own layers may go. Below its floor a session has no states; other sessions that
share the history have theirs, and so do the states that are pinned: a layer is held as long as somebody can come to it
without crossing a floor of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mulligan.model.ids import LayerId

HELD: Final = """
WITH RECURSIVE held (session, node) AS (
    SELECT id, head FROM sessions WHERE head IS NOT NULL
    UNION
    SELECT session, head FROM pins WHERE head IS NOT NULL
    UNION
    SELECT held.session, nodes.parent FROM held JOIN nodes ON nodes.id = held.node
    WHERE nodes.parent IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM floors WHERE floors.session = held.session AND floors.node = held.node)
)
SELECT records.layer FROM held JOIN nodes ON nodes.id = held.node JOIN records ON records.id = nodes.record
WHERE NOT EXISTS (SELECT 1 FROM floors WHERE floors.session = held.session AND floors.node = held.node)
UNION SELECT layer FROM session_layers
UNION SELECT layer FROM floors
"""


@dataclass(frozen=True, slots=True)
class Floor:
    """`node`: the head right after the last action whose layer was given up. `layer` stands for all up to there."""

    node: int
    layer: LayerId
