"""Session: a named serial history of actions over one base, and all that can be done with it.

Knows the store, the sandbox and the repair engine, and ties them together; the rules are in those. Everything that
moves the head holds the session's lock and then moves it by compare-and-swap, so that several processes may use one
session at once, and what dies midway leaves the head where it was.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mulligan.asked import (
    ActionFailedError,
    check_keys,
    check_lists,
    check_policy,
    check_surroundings,
    check_texts,
    command_of,
    placed,
    placed_target,
)
from mulligan.commit import BEGUN, CommitReport, commit, find_befores
from mulligan.errors import ConflictError, MulliganError, NotFoundError, RepairFailedError
from mulligan.history.journal import NEW
from mulligan.history.lineage import Why, explain
from mulligan.history.store import SessionRow, Store, default_home
from mulligan.merge import Merge, MergeConflictError
from mulligan.model.action import Action, LaunchContext
from mulligan.model.equivalence import Equality
from mulligan.model.ids import ActionId, LayerId, check_host_path, shown
from mulligan.model.keys import OUT, parse_key
from mulligan.model.outputs import writer_of
from mulligan.model.plan import describe_failure
from mulligan.model.policy import DEFAULT_POLICY
from mulligan.model.tree import Tree
from mulligan.past import Past
from mulligan.repair.envreads import EnvReads
from mulligan.repair.hints import find_hints
from mulligan.repair.index import ChainIndex
from mulligan.repair.planner import build_plan
from mulligan.repair.pool import Pool
from mulligan.repair.refiners import same_part
from mulligan.repair.replay import Replay
from mulligan.repair.schedule import check_reach, may_extend, too_old
from mulligan.repair.sparse import build_sparse_plan, may_be_sparse
from mulligan.repair.walk import Pass
from mulligan.runner import Runner
from mulligan.sandbox.base import Base, decode_base, encode_base
from mulligan.sandbox.bases import build_base
from mulligan.sandbox.imports import import_folder
from mulligan.sandbox.layer import LayerStore
from mulligan.states import WORKSPACE, Files, absolute, build_tree, find_differences

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    import networkx as nx

    from mulligan.merge import MergeReport
    from mulligan.model.change import Change
    from mulligan.model.layer import Layer
    from mulligan.model.plan import Plan, Report
    from mulligan.model.policy import Policy
    from mulligan.model.record import Record
    from mulligan.model.tree import Node
    from mulligan.repair.replay import Progress
    from mulligan.runner import Output
    from mulligan.sandbox.stack import Stack
    from mulligan.states import Difference

LONG = 1000  # actions from which on a plan is made by the index instead of by reading every record

_ACTION_ID = re.compile(r"a\d+")


class Session:
    """One session. Make it with `create` or `open`; use it as a context manager, or `close` it."""

    def __init__(self, store: Store, name: str, cleanup: ExitStack) -> None:
        self._store = store
        self._cleanup = cleanup
        row = store.get(name)
        self.name = name
        self.base: Base = decode_base(row.base)
        self._bottom = row.bottom
        self._launch = row.launch
        self._layers = LayerStore(store.home / "layers")
        self._runner = Runner(self.base, self._layers)
        self._env_reads = EnvReads(self.base, self._layers)
        self.files = Files(lambda: self._stack_at(self.head))

    # -- opening and closing

    @classmethod
    def create(
        cls,
        name: str,
        *,
        base: str = "host",
        imports: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        home: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Self:
        """Make a session over a base: "host", or a folder that holds a root file system.

        `imports` maps host folders to the guest folders they are copied to. `env` is set for all its actions. `environ`
        is the environment whose PATH tells which programs the host base offers (default: this process's).
        Raises AlreadyExistsError, NotFoundError (base), UsageError (import that can't be read), HostError.
        """
        check_texts([], env or {})
        with ExitStack() as cleanup:
            store = cleanup.enter_context(Store.open(_store_folder(home)))
            store.refuse_taken(name)
            with store.sharing():
                layers = LayerStore(store.home / "layers")
                made, bottom = build_base(base, layers, environ if environ is not None else os.environ)
                for source, target in (imports or {}).items():
                    if progress:
                        progress(f"importing {shown(source)}")
                    bottom.append(import_folder(layers, source, target, made, below=build_tree(bottom)))
                cwd = WORKSPACE
                launch = LaunchContext({**made.env, **(env or {})}, cwd)
                origins = {os.path.realpath(s): t for s, t in (imports or {}).items()}
                store.create(name, base=encode_base(made), bottom=bottom, launch=launch, config={"imports": origins})
            return cls(store, name, cleanup.pop_all())

    @classmethod
    def open(cls, name: str, *, home: Path | str | None = None) -> Self:
        """Open a session by name. Raises NotFoundError, naming those that exist."""
        with ExitStack() as cleanup:
            store = cleanup.enter_context(Store.open(_store_folder(home)))
            return cls(store, name, cleanup.pop_all())

    def close(self) -> None:
        """Close the store; the session itself stays. Closing twice is harmless."""
        self._layers.settle()
        self._cleanup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def home(self) -> Path:
        """The folder of the store."""
        return self._store.home

    @property
    def imports(self) -> dict[str, str]:
        """The host folders that were copied in when the session was made, each with its guest folder."""
        return dict(self._row().config.get("imports", {}))

    @property
    def head(self) -> int:
        """The number of the state the session stands on; 0 before the first action."""
        return self._row().head

    @property
    def oldest_repairable(self) -> ActionId | None:
        """The oldest action that a repair can correct, None without one: not the first where gc kept to a budget."""
        return self._store.journal.first((row := self._row()).head, row.floor)

    def _row(self) -> SessionRow:
        return self._store.get(self.name)

    # -- running

    def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout: float | None = None,
        labels: Sequence[str] = (),
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        check: bool = False,
        on_stdout: Output | None = None,
        on_stderr: Output | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> Record:
        """Run one action on the head and append it to the history. Shell text when `command` is a str, argv otherwise.

        A relative `cwd` begins at /workspace. `timeout` in seconds. `on_stdout` and `on_stderr` get the output as it comes.
        `on_wait` is called once when another process is using the session. A failed action is a Record like any other;
        with `check` it raises ActionFailedError (after it was recorded). Raises HostError or TracerError when the action
        could not be run or traced: then nothing of it is kept.
        """
        check_texts(command, env or {})
        check_lists(labels=labels, reads=reads, writes=writes)
        check_keys(reads)
        check_keys(writes, written=True)
        check_surroundings(cwd, stdin, timeout)
        with self._store.locked(self.name, on_wait), self._runner.attempt() as attempt:
            head = self.head
            for key in map(parse_key, reads):
                if key.kind == OUT:
                    self._store.journal.record(self.name, writer_of(key.name))  # raises for an action that is not there
            last = self._store.journal.last(head)
            launch = last.handoff if last else self._launch
            action = Action(
                id=self._store.journal.next_action_id(self.name),
                cwd=None if cwd is None else absolute(cwd),
                env=dict(env or {}),
                stdin=stdin,
                timeout_s=timeout,
                labels=tuple(labels),
                reads=tuple(reads),
                writes=tuple(writes),
                **command_of(command),
            )
            record = self._runner.execute(action, launch, self._layer_ids(head), on_stdout=on_stdout, on_stderr=on_stderr)
            record = self._store.journal.append(self.name, head, record, self._runner.seen([record])).record
            attempt.keep()
        self._extend_index(record)
        if check and not record.outcome.ok:
            raise ActionFailedError(record)
        return record

    def _extend_index(self, record: Record) -> None:
        """Now and then, index what was recorded. The action is done and stored: that must not fail by it."""
        with suppress(MulliganError):
            if not self._store.journal.index.covers(record.record_id):
                self._store.journal.index.extend()

    # -- history

    def log(self) -> list[Record]:
        """The records of the present history, oldest first."""
        return list(self._store.journal.chain(self.head))

    def record(self, action: str) -> Record:
        """The record of one action of the present history. Raises NotFoundError."""
        return self._store.journal.record(self.name, action)

    def rollback(self, action: str, *, on_wait: Callable[[], None] | None = None) -> None:
        """Make the state right after `action` the head. Later actions leave the history; gc drops them."""
        with self._store.locked(self.name, on_wait):
            self._store.journal.move(self.name, self.head, self._state_after(action))

    def branch(self, name: str, at: str | None = None) -> Session:
        """A new session that shares the history up to `at` (default: all of it) and goes its own way from there."""
        with self._store.sharing():  # gc may not lay a floor between the two
            head = self.head if at is None else self._state_after(at)
            self._store.branch(self.name, name, head)
        return Session.open(name, home=self.home)

    def diff(self, a: str | None = None, b: str | None = None) -> list[Difference]:
        """What differs: `a` alone, what that action changed; `a` and `b`, from the state after a to that after b; none,
        from the session's start to its head.
        """
        past = self._past(self.head)
        for name in filter(None, (a, b)):
            self._store.journal.head_at(self.name, name)  # raises with the ids there are
        if a is None:
            return find_differences(build_tree(self._bottom_layers()), past.tree())
        old = past.before(a) if b is None else past.after(a)
        return find_differences(old, past.after(a if b is None else b))

    def read_node(self, node: Node, path: str) -> bytes:
        """The bytes of a file node of a Difference."""
        return self._layers.read(node.provider, path)

    def why(self, target: str) -> Why:
        """Where an action, a path or another key (`env:NAME`, `out:a1`, `mem:ID`) came from, and who relied on it.

        Each reliance has its witness key, and whether it was traced, declared, or is merely a hint (weak).

        Raises NotFoundError for what this history does not know.
        """
        records = self.log()
        if target not in {r.id for r in records} and not _ACTION_ID.fullmatch(target):
            target = placed_target(target)
        why = explain(records, target, self._bottom_layers(), find_hints(records), self._env_reads.reads)
        if not why.data.get("steps", True) and not self.files.exists(target):
            raise NotFoundError(f"why {target!r}: it does not exist in this state, and no action made it or relied on it")
        return why

    def graph(self) -> nx.MultiDiGraph:
        """Who relied on whom: a networkx graph whose edges carry the witness key, provenance and confidence."""
        from mulligan.history.graph import build_graph  # noqa: PLC0415 - networkx takes 0.2 s to import

        records = self.log()
        return build_graph(records, self._bottom_layers(), find_hints(records), self._env_reads.reads)

    # -- repair

    def plan(self, *changes: Change, policy: Policy = DEFAULT_POLICY) -> Plan:
        """What a repair by these changes would do, per action, with reasons. Touches nothing. `apply` follows its policy."""
        check_policy(policy)
        row, journal, asserted = self._row(), self._store.journal, [placed(change) for change in changes]
        past = self._past_of(row.head, asserted)
        options: dict[str, Any] = {
            **self._judging(past),
            "base_changed": self._base_changed(),
            "session": self.name,
            "head": row.head,
            "policy": policy,
        }
        plan = None
        if len(past.records) >= LONG and may_be_sparse(policy):
            journal.index.extend()
            plan = build_sparse_plan(past.records, ChainIndex(past.records, journal.index), past.bottom, asserted, **options)
        return plan or build_plan(past.records, past.bottom, asserted, **options)

    def apply(
        self,
        plan: Plan,
        *,
        keep_going: bool = False,
        progress: Progress | None = None,
        on_wait: Callable[[], None] | None = None,
        extend: bool = False,
    ) -> Report:
        """Carry a plan out: replay what must run again in its own slots, keep the rest, publish the new history.

        A replay that fails where it had succeeded (or a replacement that fails) stops the repair, and the head stays
        where it was, unless `keep_going`. Raises ConflictError when the head moved since the plan was made; with `extend`,
        when it did otherwise than by actions added at the end, which then are part of the repair.
        """
        with self._store.locked(self.name, on_wait):
            while True:
                plan = self._extended(plan) if extend else plan
                try:
                    return self._carry_out(plan, keep_going=keep_going, progress=progress)
                except ConflictError:
                    if not extend or self.head == plan.head:
                        raise

    def _extended(self, plan: Plan) -> Plan:
        """The plan for the present history, to which actions were added since it was made. Raises ConflictError."""
        if self.head == plan.head:
            return plan
        if not may_extend(plan.changes, self._store.journal.chain(plan.head), self.log()):
            self._store.expect_head(self.name, plan.head)
        return self.plan(*plan.changes, policy=plan.policy)

    def _carry_out(self, plan: Plan, *, keep_going: bool, progress: Progress | None) -> Report:
        with self._runner.attempt(Equality(plan.policy.equivalences)) as attempt:
            self._store.expect_head(self.name, plan.head)
            past = self._past_of(plan.head, plan.changes)
            replay = Replay(
                plan,
                past.records,
                past.bottom,
                self._runner,
                **self._judging(past),
                base_changed=self._base_changed(),
                next_id=lambda ahead: self._store.journal.next_action_id(self.name, ahead),
                pool=Pool(jobs) if (jobs := plan.policy.jobs or len(os.sched_getaffinity(0))) > 1 else None,
            )
            report, records = replay.run(keep_going=keep_going, progress=progress)
            if not report.applied:
                return report
            new = [r for r in records if r.record_id == NEW]
            done = self._store.journal.publish(self.name, plan.head, records, self._runner.seen(new), after=past.since)
            attempt.keep()
            return replace(report, head=done.head, records=tuple(r.record_id for r in done.records))

    def repair(self, *changes: Change, policy: Policy = DEFAULT_POLICY, keep_going: bool = False) -> Report:
        """Plan and apply in one call; actions added meanwhile are part of it. Raises RepairFailedError when a replay failed."""
        report = self.apply(self.plan(*changes, policy=policy), keep_going=keep_going, extend=True)
        if not report.applied:
            raise RepairFailedError(
                f"repair of session {self.name}: {describe_failure(report)}; the head did not move",
                remedy="mend the change, or repair with keep_going",
            )
        return report

    def _past_of(self, head: int, changes: Sequence[Change]) -> Past:
        """The past that these changes are to correct. Raises GivenUpError when they begin below the floor, as it is now."""
        past = self._past(head)
        given_up = {action for _, action in self._store.journal.states(past.since)} if past.since else ()
        check_reach(changes, given_up, past.records)
        return past

    def _judging(self, past: Past) -> dict[str, Any]:
        """What a walk from the start of this past asks of the world to judge what differs."""
        return {
            "first_launch": past.launch,
            "same_bytes": self._layers.same_bytes,
            "reads_variable": self._env_reads.reads,
            "content": self._layers.read,
            "same_part": same_part,
        }

    def _base_changed(self) -> frozenset[str]:
        return self._runner.changed_since(self._store.journal.versions(self.name).items())

    # -- merging

    def merge(
        self,
        branch: str,
        *,
        replay: bool = False,
        dry_run: bool = False,
        keep_going: bool = False,
        on_wait: Callable[[], None] | None = None,
    ) -> MergeReport:
        """Put what `branch` did since the two parted after what this session did, when their facts allow it.

        Raises MergeConflictError (with the report) when they do not; with `replay`, their actions that saw something else run
        again on top of ours instead, and RepairFailedError is raised when one fails that had succeeded, unless `keep_going`.
        `dry_run` only tells the conflicts. Either way a merge that is not applied changes nothing.
        """
        with self._store.locked(self.name, on_wait), self._runner.attempt() as attempt:
            ours, theirs = self._row(), self._store.get(branch)
            merge = Merge(self._store.journal, ours, theirs, walker=self._walk, same_bytes=self._layers.same_bytes)
            report = merge.report()
            if dry_run or not merge.theirs:
                return replace(report, applied=not dry_run, head=ours.head)
            if report.conflicts and not replay:
                raise MergeConflictError(report)
            report = merge.apply(report, self._runner, self._runner.seen, keep_going=keep_going)
            attempt.keep()
            return report

    def _walk(self, records: Sequence[Record]) -> Pass:
        past = self._past(self.head)
        return Pass(records, past.bottom, (), **self._judging(past))

    # -- results

    def commit(
        self,
        folder: str,
        *,
        guest: str = WORKSPACE,
        dry_run: bool = False,
        on_wait: Callable[[], None] | None = None,
    ) -> CommitReport:
        """Write the result below `guest` to a host folder, refusing (in the report) what changed there meanwhile."""
        with self._store.locked(self.name, on_wait):
            row = self._row()
            real = os.path.realpath(check_host_path(folder))
            after = self._past(row.head).tree()
            journal, begun = self._store.journal, BEGUN + real
            start = build_tree(self._bottom_layers()) if real in row.config.get("imports", {}) else Tree()
            report = commit(
                folder,
                guest,
                find_befores(real, journal.pins(self.name), lambda head: self._past(head).tree(), start),
                after,
                self._opened,
                begin=lambda: journal.pin(self.name, begun, row.head),
                dry_run=dry_run,
            )
            if report.applied:
                journal.pin(self.name, real, row.head, instead_of=begun)
            return report

    def _opened(self, path: str, node: Node) -> AbstractContextManager[int]:
        return self._layers.opened(node.provider, path)

    # -- states

    def _bottom_layers(self) -> list[Layer]:
        return [self._store.journal.layer(i) for i in self._bottom]

    def _layer_ids(self, head: int) -> tuple[LayerId, ...]:
        return (*self._bottom, *self._store.journal.layer_ids(head, self._row().floor))

    def _past(self, head: int) -> Past:
        """What can be rebuilt of the history that leads to `head`."""
        return Past.read(self._store.journal, head, self._bottom, self._launch, self._row().floor)

    def _state_after(self, action: str) -> int:
        """The head right after an action. Raises GivenUpError for one below the session's floor."""
        floor, journal = self._row().floor, self._store.journal
        state = journal.head_at(self.name, action)
        if floor is not None and not journal.passes(state, floor.node):
            raise too_old(action, self.oldest_repairable)
        return state

    def _stack_at(self, head: int) -> Stack:
        return self._runner.stack(self._layer_ids(head))

    def _tree_of(self, records: Sequence[Record]) -> Tree:
        return build_tree([*self._bottom_layers(), *(r.layer for r in records)])


def _store_folder(home: Path | str | None) -> Path:
    return Path(home) if home else default_home(os.environ)
