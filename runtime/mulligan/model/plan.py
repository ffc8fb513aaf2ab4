"""Plan: per slot what a repair will do, and why. Report: what it did. Frozen; deciding is repair/'s business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from mulligan.model.policy import DEFAULT_POLICY, Policy

if TYPE_CHECKING:
    from mulligan.model.change import Change
    from mulligan.model.hint import Hint
    from mulligan.model.ids import ActionId, RecordId
    from mulligan.model.record import Record

StepKind = Literal["keep", "may_rerun", "must_rerun", "drop"]

ReasonKind = Literal[
    "changed",  # the change names this action itself
    "read_changed",  # an observation of it has another value now
    "reads_rewritten",  # it observed something an action that runs again wrote: another value, or the same (cut off)
    "incomplete",  # its trace has a hole, so it counts as reading everything
    "launch",  # the environment or working directory it starts with has changed
    "base_changed",  # a file of the host base changed since
    "declared",  # a declared input changed
    "level",  # the policy's level runs it again, whatever it saw
    "group",  # it runs again as one with another action
    "hint",  # its command holds a rare word that an action which runs again had put out
    "misfit",  # level 0 would keep it, but its layer can't stand on the corrected state
]


FORCING: Final[tuple[ReasonKind, ...]] = ("level", "hint", "group")


@dataclass(frozen=True, slots=True)
class Reason:
    """One witness: the key that differs and the action (or "base") it differs by. `note` for a person."""

    kind: ReasonKind
    key: str = ""
    source: str = ""  # action id, "base", or "" for the change itself
    note: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What the plan says of one slot of history. Reasons of a kept one: why a sound repair would not keep it (level 0)."""

    action: ActionId
    kind: StepKind
    because: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair of `session`, standing on `head`, would do. Touches nothing; `Session.apply` carries it out.

    `hints`: kept actions that may hang on one which runs again or is dropped, by a rare word; level 3 would run them again.
    """

    session: str
    head: int
    changes: tuple[Change, ...]
    steps: tuple[Step, ...]
    policy: Policy = DEFAULT_POLICY
    hints: tuple[Hint, ...] = ()

    @property
    def forced(self) -> dict[ActionId, Reason]:
        """The actions that run again whatever they saw, with the reason."""
        return {s.action: r for s in self.steps if s.kind == "must_rerun" for r in s.because if r.kind in FORCING}

    def of(self, kind: StepKind) -> list[ActionId]:
        """The ids of the actions with this step, in order of history."""
        return [s.action for s in self.steps if s.kind == kind]

    def __str__(self) -> str:
        rows = []
        for step in self.steps:
            why = "; ".join(_say(r) for r in step.because[:3])
            more = f" (+{len(step.because) - 3} more)" if len(step.because) > 3 else ""  # noqa: PLR2004
            rows.append(f"{step.action:<6} {step.kind:<10} {why}{more}".rstrip())
        rows += [
            f"hint: {h.target} may hang on {h.source}'s output by {h.token!a} (confidence {h.confidence:.2f})"
            for h in self.hints
        ]
        rows += [] if self.policy.sound else ["level 0 is UNSOUND: the state need not be what the corrected history gives"]
        return "\n".join(rows)


def _say(reason: Reason) -> str:
    parts = [reason.note or reason.kind.replace("_", " ")]
    if reason.key:
        parts.append(reason.key.encode("unicode_escape", "backslashreplace").decode("ascii"))
    if reason.source:
        parts.append(f"from {reason.source}")
    return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Volatile:
    """What an action gave another time otherwise: the key, and the built-in patterns by which alone the two values differ.

    `same_input`: it certainly is volatile, as nothing that it saw had changed; else it only looks so.
    """

    action: ActionId
    key: str
    looks: tuple[str, ...] = ()
    same_input: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """What a repair did. Lists are action ids in order of history; `plan` has the final step of each with its reasons.

    `cut_off`: may_rerun in the plan, yet kept, because what it observed came out the same. `diverged`: ran again with
    another exit code or signal than recorded. `failed`: ran again and failed where it had succeeded; `failures` are their
    records, which are in no history when the repair was not applied. `stale`: kept by level 0 although what they saw has
    another value now, so the state is not that of the corrected history; a later repair runs them again. `volatile`: what
    came out differently without a cause, so that its readers ran again for nothing. `in_vain`: replays that were begun before
    their turn, and thrown away because things came otherwise.
    """

    plan: Plan
    applied: bool
    ran: tuple[ActionId, ...] = ()
    kept: tuple[ActionId, ...] = ()
    dropped: tuple[ActionId, ...] = ()
    cut_off: tuple[ActionId, ...] = ()
    diverged: tuple[ActionId, ...] = ()
    failed: tuple[ActionId, ...] = ()
    failures: tuple[Record, ...] = ()
    stale: tuple[ActionId, ...] = ()
    volatile: tuple[Volatile, ...] = ()
    records: tuple[RecordId, ...] = ()
    effects: tuple[str, ...] = ()
    in_vain: int = 0
    head: int = 0
    seconds: float = 0.0


def describe_failure(report: Report) -> str:
    """Which replays failed, and how the first one ended, on one line."""
    if not report.failures:
        return "a replay failed"
    which = "" if len(report.failed) == 1 else ", the first"
    return f"{', '.join(report.failed)} failed on replay{which} {describe_end(report.failures[0])}"


def describe_end(record: Record) -> str:
    """How an action ended, with the last line of its stderr."""
    how = record.outcome.signal or f"exit code {record.exit_code}"
    last = next((line for line in reversed(record.stderr.splitlines()) if line.strip()), "")
    return f"with {how}" + (f" ({last.encode('unicode_escape', 'backslashreplace').decode('ascii')[:200]})" if last else "")
