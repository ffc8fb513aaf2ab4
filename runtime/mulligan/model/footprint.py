"""Footprint: what an action relied on and what it did, folded from the tracer's events and the sealed layer.

Knows events, keys and manifests; pure. What the action had written itself before it looked is not an observation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from mulligan.model.ids import folders_above
from mulligan.model.keys import DAT, DIR, ENT, LINKS, MODE, MTIME, SEARCH, XATTR, Key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mulligan.model.events import Connect
    from mulligan.model.keys import KeyKind

Principal = Literal["root", "owner", "any"]

# What each set of a footprint stands for. A folder's mtime and an object's modes are inputs of whoever looked at all of
# its metadata; whoever only opened it depends on no more than being let in (`meta.search`).
OBSERVED: Final[dict[str, tuple[KeyKind, ...]]] = {
    "saw": (ENT, DAT, SEARCH),
    "stats": (ENT, MODE, MTIME, LINKS),
    "probed": (ENT, MODE),
    "missed": (ENT,),
    "listed": (ENT, DIR, SEARCH),
    "linked": (ENT,),
    "xattrs": (ENT, XATTR),
    "overwrote": (ENT, MODE, LINKS),
    "executed": (ENT, DAT, MODE),
}


@dataclass(frozen=True, slots=True)
class Footprint:
    """Sets of absolute guest paths, by what was observed of them, always in the state *before* the action.

    saw: content. stats: all metadata. probed: existence, kind, mode. missed: absent. listed: names in a folder.
    linked: symlink targets. xattrs: extended attributes. overwrote: existing files written to (their link group and mode
    matter). executed: programs. wrote/removed: from the layer. connected: peers. principal: whose permissions applied.
    words: names in the arguments of the programs that it started. lists_env: why it may have seen every variable.
    uses_umask: it made something, or asked for the mask to make it with.
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
    words: frozenset[str] = frozenset()
    lists_env: tuple[str, ...] = ()
    uses_umask: bool = False
    incomplete_because: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether the tracer could model all that the action did."""
        return not self.incomplete_because

    def sets(self) -> Iterator[tuple[frozenset[str], tuple[KeyKind, ...]]]:
        """Each set of observed paths with the kinds of key it stands for; the prefixes of the paths are not in it."""
        for name, kinds in OBSERVED.items():
            yield getattr(self, name), kinds

    def observed_paths(self) -> frozenset[str]:
        """Every path that was observed, without prefixes."""
        return frozenset().union(*(paths for paths, _ in self.sets()))

    def observations(self) -> frozenset[Key]:
        """Every key that was observed: of the paths themselves, and of each folder on the way to them."""
        keys = {Key(kind, path) for paths, kinds in self.sets() for path in paths for kind in kinds}
        above = folders_above(self.observed_paths())
        keys.update(Key(kind, folder) for folder in above for kind in (ENT, SEARCH))
        return frozenset(keys)
