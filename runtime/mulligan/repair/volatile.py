"""Volatile: what came out of a replay differently although nothing it saw had changed, and what merely looks like that.

Knows records; pure. An action that writes the time, a random id or its pid into its result gives another one each time it runs;
its readers then run again, and theirs, and nothing of that is of use to anybody. A repair says so, instead of cascading
silently: certainly, when the action saw just what it had seen before; else when all that differs in a file looks like a time
or a uuid. What to do about it, an equivalence, is up to whoever knows whether it matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mulligan.model.change import Replace
from mulligan.model.equivalence import LARGEST, MOST_LOOKED_AT, Equality, looks_like
from mulligan.model.keys import DAT, ENT, MODE, OUT, XATTR, Key
from mulligan.model.outputs import differing_parts
from mulligan.model.plan import FORCING, Volatile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mulligan.model.change import Change
    from mulligan.model.ids import LayerId
    from mulligan.model.layer import Entry, Layer
    from mulligan.model.plan import Step
    from mulligan.model.record import Record
    from mulligan.repair.dirty import SameBytes

    Content = Callable[[LayerId, str], bytes]

READ_AT_MOST = 8 * MOST_LOOKED_AT  # bytes of one action's files, after which no more are looked into
CLOCK_OR_CHANCE = frozenset(("uuid", "time"))  # numbers and digests differ for another input, as they must
MOST_TOLD = 32  # paths of an action


class Files(NamedTuple):
    """What can be known of the files of layers."""

    same_bytes: SameBytes
    content: Content
    equality: Equality

    def differing(self, path: str, old: Layer, new: Layer, most: int) -> tuple[bytes, bytes] | None:
        """The two contents of a file if they differ, empty if they have more bytes; None when they are, or count as, equal."""
        largest = max(old.manifest.entries[path].size, new.manifest.entries[path].size)
        if self.same_bytes(old.id, path, new.id, path):
            return None
        if largest > (LARGEST if self.equality.names(path) else most):
            return b"", b""
        mine, other = self.content(old.id, path), self.content(new.id, path)
        return None if self.equality.equal(path, mine, other) else (mine, other)


def find_volatile(old: Record, new: Record, step: Step, change: Change | None, *, files: Files) -> list[Volatile]:
    """What of a replay is volatile, at most `MOST_TOLD` keys of it."""
    same_input = not isinstance(change, Replace) and all(r.kind in ("changed", *FORCING) for r in step.because)
    found: list[Volatile] = []
    for key, a, b in _differences(old.layer, new.layer, files, all_of_them=same_input):
        looks = looks_like(a, b)
        if same_input or (looks and CLOCK_OR_CHANCE.issuperset(looks)):
            found.append(Volatile(old.id, str(key), looks, same_input=same_input))
        if len(found) == MOST_TOLD:
            return found
    if same_input:
        streams = {".stdout": (old.outcome.stdout, new.outcome.stdout), ".stderr": (old.outcome.stderr, new.outcome.stderr)}
        for part in differing_parts(old, new, files.equality):
            if part in (*streams, ".status"):
                a, b = streams.get(part, (b"", b""))
                found.append(
                    Volatile(old.id, str(Key(OUT, old.id + part)), looks_like(a, b) if a != b else (), same_input=True)
                )
    return found


def _differences(old: Layer, new: Layer, files: Files, *, all_of_them: bool) -> Iterator[tuple[Key, bytes, bytes]]:
    """In what two layers differ, times left out, with the contents of a file that differs, while there are not too many."""
    before, after = old.manifest, new.manifest
    left = READ_AT_MOST
    for path in sorted(before.entries.keys() | after.entries.keys() | (before.removed ^ after.removed)):
        a, b = before.entries.get(path), after.entries.get(path)
        if a is None or b is None or (a.kind, a.target, a.rdev) != (b.kind, b.target, b.rdev):
            if a != b or (path in before.removed) != (path in after.removed):
                yield Key(ENT, path), b"", b""
            continue
        if (a.mode, a.uid, a.gid) != (b.mode, b.uid, b.gid):
            yield Key(MODE, path), b"", b""
        if a.xattrs != b.xattrs:
            yield Key(XATTR, path), b"", b""
        if left <= 0 and not all_of_them:
            return
        if _holds(a) and _holds(b):
            contents = files.differing(path, old, new, min(left, MOST_LOOKED_AT))
            if contents is not None:
                left -= min(a.size + b.size, MOST_LOOKED_AT)
                yield Key(DAT, path), *contents


def _holds(entry: Entry) -> bool:
    return entry.kind == "file" and not entry.inherit_content
