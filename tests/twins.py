"""Twins: one history that is repaired, and one that is run from the start as corrected; everything of the two is compared.

Compared are what each action said and how it ended, what it handed on, and the tree: names, kinds, bytes, modes, owners, link
counts, targets and extended attributes. Times are not: two runs of one history have other times.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mulligan import Drop, Replace, Session
from mulligan.model.keys import LINKS, Key
from mulligan.model.policy import DEFAULT_POLICY
from mulligan.states import build_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mulligan import Record, Report
    from mulligan.model.change import Change
    from mulligan.model.policy import Policy
    from mulligan.model.tree import Tree

COARSE_NS = 10_000_000  # the clock of files may be so much behind
NUDGES_NS = 1000  # by how much the times of a replay may reach over its slot, to be different or in order
UNTOLD = {"OLDPWD", "PWD", "SHLVL", "_"}


@dataclass(frozen=True)
class Act:
    """One action: what is run, and how."""

    command: str | Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)


def act(command: str | Sequence[str], **options: Any) -> Act:
    """One action with its options."""
    return Act(command, options)


def repaired(
    home: Path,
    start: Act,
    history: Sequence[Act],
    changes: Mapping[int, Act | None],
    *,
    project: Path | None = None,
    but: str = "^$",
    policy: Policy = DEFAULT_POLICY,
    then: Sequence[Act] = (),
) -> Report:
    """Run a history, repair it by the changes (by number from 0: another action, or None for none), and compare with its twin.

    The twin shares the `start`, and the `project`, which lies at /workspace. The report's ids are a1 for the start, a2 for the
    first action of the history. The bytes of the paths that match `but` are not compared. `then` is run on both at the end.
    """
    name = f"t{os.urandom(6).hex()}"
    with Session.create(name, home=home, imports={str(project): "/workspace"} if project else {}) as session:
        _run(session, start, check=True)
        with session.branch(f"{name}-twin") as twin:
            ids = [_run(session, one).id for one in history]
            corrected = [changes.get(number, one) for number, one in enumerate(history)]
            assertions: list[Change] = []
            for number, instead in changes.items():
                assertions.append(Drop(ids[number]) if instead is None else Replace(ids[number], instead.command))
            report = session.apply(session.plan(*assertions, policy=policy), keep_going=True)
            expected = [_run(twin, one) for one in corrected if one is not None]
            assert [said(record) for record in session.log()[1:]] == [said(record) for record in expected]
            assert tree_of(session, but) == tree_of(twin, but)
            for one in then:
                assert said(_run(session, one)) == said(_run(twin, one))
            return report


def _run(session: Session, one: Act, *, check: bool = False) -> Record:
    return session.run(one.command, check=check, **one.options)


def said(record: Record) -> tuple[object, ...]:
    """All that an action tells besides its layer."""
    outcome, left = record.outcome, record.handoff
    env = {name: value for name, value in left.env.items() if name not in UNTOLD}
    return record.action.text, outcome.stdout, outcome.stderr, outcome.exit_code, outcome.signal, left.cwd, left.umask, env


def state_of(session: Session, records: Sequence[Record]) -> Tree:
    """The state after these records, as their manifests tell it. What lies below all of them is put together only once."""
    bottom = tuple(session._bottom)
    if bottom not in _BOTTOMS:
        _BOTTOMS.clear()
        _BOTTOMS[bottom] = build_tree(session._bottom_layers())
    tree = _BOTTOMS[bottom].copy()
    for record in records:
        tree.apply(record.layer.manifest, record.layer.id)
    return tree


_BOTTOMS: dict[object, Tree] = {}


def tree_of(session: Session, but: str = "^$") -> dict[str, tuple[object, ...]]:
    """The state at the head, read from its layers on disk, below the folders that actions write to.

    Of the paths that match `but` the bytes are left out.
    """
    stack = session._stack_at(session.head)
    rows: dict[str, tuple[object, ...]] = {}
    tree = state_of(session, session.log())
    todo = ["/workspace", "/tmp", session.base.home]
    seen = stack.lstat("/")
    rows["/"] = (seen.mode, seen.uid, seen.gid, seen.xattrs)
    while todo:
        path = todo.pop()
        if session.base.bound(path) is not None:
            continue  # the host's
        entry, node = stack.lstat(path), tree.get(path)
        assert node is not None, f"{path} is in no manifest"
        links = entry_links(tree, path)
        rows[path] = (entry.kind, entry.mode, entry.uid, entry.gid, entry.target, entry.xattrs, links)
        assert (node.kind, node.mode, node.uid, node.gid, node.target) == (
            entry.kind, entry.mode, entry.uid, entry.gid, entry.target
        ), (path, node, entry)  # fmt: skip
        assert node.mtime_ns == entry.mtime_ns, (path, node, entry)
        assert tuple(sorted(node.xattrs)) == tuple(sorted(entry.xattrs)), (path, node, entry)
        if entry.kind == "dir":
            todo += [f"{path.rstrip('/')}/{name}" for name in stack.listdir(path)]
        elif entry.kind == "file" and entry.mode & 0o400 and not re.search(but, path):
            rows[path] += (stack.read(path),)
    here = "/workspace/"
    assert {path for path in tree.paths() if path.startswith(here)} == {path for path in rows if path.startswith(here)}
    return rows


def entry_links(tree: Tree, path: str) -> object:
    """The names that share the file, and its link count."""
    return tree.value(Key(LINKS, path))


def slots_of_times(session: Session, records: Sequence[Record]) -> dict[str, int | None]:
    """For each path below the workspace the number of the action in whose time it was last changed; None for another time."""
    ends = [record.outcome.ended_ns + NUDGES_NS for record in records]
    begin = min((record.outcome.started_ns for record in records), default=0) - COARSE_NS
    found: dict[str, int | None] = {}
    for path, node in state_of(session, records).walk("/workspace"):
        within = bisect_left(ends, node.mtime_ns)
        found[path] = within if begin <= node.mtime_ns and within < len(ends) else None
    return found
