"""The least that a repair must run: those actions whose observations really have another value in the corrected history.

An oracle that knows nothing of plans: it holds the recorded history against the corrected one that was run whole, state by
state, key by key. Only in one thing the two cannot be compared as they are: every run has times of its own. So the time of a
file stands for the slot in which it was last changed, and for what it was changed to.

`NOT_EXACT` are the kinds of key for which the engine may run more than this oracle asks for, each with its reason.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from twins import COARSE_NS, NUDGES_NS, state_of

from mulligan.model.keys import DAT, MTIME, Key

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mulligan import Record, Session
    from mulligan.model.plan import Reason
    from mulligan.model.tree import Node, Tree

NOT_EXACT = {
    "meta.mtime": "the times of two paths of one slot have an order, which the engine keeps and the oracle does not know",
    "env": "a shell reads its variables without naming them",
    "incomplete": "an action with a hole in its trace counts as having seen everything",
}


class Clock:
    """Tells in which slot of a history a time lies."""

    def __init__(self, records: Sequence[Record], names: Sequence[str]) -> None:
        self._ends = [record.outcome.ended_ns + NUDGES_NS for record in records]
        self._begin = min((record.outcome.started_ns for record in records), default=0) - COARSE_NS
        self._names = names

    def slot(self, mtime_ns: int) -> str | int:
        """The slot's name; the time itself when it was set, or is older than the history."""
        within = bisect_left(self._ends, mtime_ns)
        return self._names[within] if self._begin <= mtime_ns and within < len(self._ends) else mtime_ns


def needed(
    session: Session, before: Sequence[Record], after: Sequence[Record], names: Sequence[str], named: Collection[str]
) -> set[str]:
    """The ids of the recorded actions that had to run again.

    `before` is the recorded history, `after` the corrected one run whole, with the slot's name of each; `named` were changed.
    """
    clocks = Clock(before, [record.id for record in before]), Clock(after, names)
    old, new = state_of(session, []), state_of(session, [])
    differs = _Differs(session, old, new, clocks)
    found, at = set(), 0
    for record in before:
        name = str(record.id)
        while at < len(after) and name in names[at:] and names[at] != name:  # patches
            new.apply(after[at].layer.manifest, after[at].layer.id)
            at += 1
        there = at < len(after) and names[at] == name
        if there and record.action.kind == "run":
            saw_else = name in named or _launched_otherwise(record, after[at])
            if saw_else or any(differs(key, record) for key in record.footprint.observations()):
                found.add(name)
        old.apply(record.layer.manifest, record.layer.id)
        if there:
            new.apply(after[at].layer.manifest, after[at].layer.id)
            at += 1
    return found


class _Differs:
    """Whether a key has another value in the one state than in the other."""

    def __init__(self, session: Session, old: Tree, new: Tree, clocks: tuple[Clock, Clock]) -> None:
        self._session, self._old, self._new, self._clocks = session, old, new, clocks

    def __call__(self, key: Key, record: Record) -> bool:
        a, b = self._old.get(key.name), self._new.get(key.name)
        if key.kind == DAT:
            return self._bytes_differ(key.name, a, b)
        if key.kind == MTIME:
            return self._times_differ(key.name, a, b)
        principal = record.footprint.principal
        return self._old.value(key, principal) != self._new.value(key, principal)

    def _bytes_differ(self, path: str, a: Node | None, b: Node | None) -> bool:
        if a is None or b is None or a.kind != "file" or b.kind != "file":
            return (a and a.kind) != (b and b.kind)
        if a.provider == b.provider:
            return False
        return a.size != b.size or not self._session._layers.same_bytes(a.provider, path, b.provider, path)

    def _times_differ(self, path: str, a: Node | None, b: Node | None) -> bool:
        if a is None or b is None:
            return a is not b
        if self._clocks[0].slot(a.mtime_ns) != self._clocks[1].slot(b.mtime_ns):
            return True
        if a.kind == "dir" or b.kind == "dir":
            return a.kind != b.kind
        return (a.kind, a.size, a.target) != (b.kind, b.size, b.target) or self._bytes_differ(path, a, b)


def _launched_otherwise(record: Record, other: Record) -> bool:
    """Whether the action began in another folder, with another umask that it used, or another value of what it names."""
    action, a, b = record.action, record.launch, other.launch
    if a.cwd != b.cwd and not (action.cwd or "").startswith("/"):
        return True
    if a.umask != b.umask and record.footprint.uses_umask:
        return True
    return any(
        _names(action.text, name) for name in {*a.env, *b.env} if a.env.get(name) != b.env.get(name) and name not in action.env
    )


def _names(text: str, variable: str) -> bool:
    return re.search(rf"\b{re.escape(variable)}\b", text) is not None


def kind_of(reasons: Sequence[Reason]) -> str:
    """What a needless run was for: the kind of its first key, or of its first reason."""
    return reasons[0].key.partition(":")[0] or reasons[0].kind


def told_of(reasons: Sequence[Reason]) -> str:
    """The same for the summary, where a variable has its name."""
    return reasons[0].key if kind_of(reasons) == "env" else kind_of(reasons)
