"""Footprint: what an action relied on and what it did, folded from the tracer's events and the sealed layer.

Knows events, keys and manifests; pure. What the action had written itself before it looked is not an observation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mulligan.model.events import Connect

Principal = Literal["root", "owner", "any"]


@dataclass(frozen=True, slots=True)
class Footprint:
    """Sets of absolute guest paths, by what was observed of them, always in the state *before* the action.

    saw: content. stats: all metadata. probed: existence, kind, mode. missed: absent. listed: names in a folder.
    linked: symlink targets. xattrs: extended attributes. overwrote: existing files written to (their link group and mode
    matter). executed: programs. wrote/removed: from the layer. connected: peers. principal: whose permissions applied.
    """

    saw: frozenset[str] = frozenset()
    stats: frozenset[str] = frozenset()
    probed: frozenset[str] = frozenset()
    missed: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    linked: frozenset[str] = frozenset()
    xattrs: frozenset[str] = frozenset()
    overwrote: frozenset[str] = frozenset()
    executed: frozenset[str] = frozenset()
    wrote: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    connected: tuple[Connect, ...] = ()
    launch_env: Mapping[str, str] = field(default_factory=dict)
    launch_cwd: str = "/workspace"
    declared_reads: tuple[str, ...] = ()
    declared_writes: tuple[str, ...] = ()
    principal: Principal = "root"
    incomplete_because: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the tracer could model all that the action did."""
        return not self.incomplete_because
