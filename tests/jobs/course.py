"""Course of a job: recorded in a session, corrected there by its fixes one after the other, and run as corrected on a twin.

Knows sessions and jobs. Comparing the two is for whoever asks for it.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from mulligan import Drop, Patch, Replace, Session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mulligan import Plan, Policy, Record, Report
    from mulligan.model.change import Change

    from . import Fix, Job


class Slot(NamedTuple):
    """One place of the history as it should be: an action's id, and the text that runs there. A patch has the plain write."""

    id: str
    text: str
    patch: bool = False


class Course:
    """One job on its way."""

    def __init__(self, session: Session, slots: Sequence[Slot] = ()) -> None:
        self.session = session
        self.slots = list(slots)
        self._others = 0

    @classmethod
    def begin(cls, job: Job, folder: Path) -> Course:
        """The job's files in a new session, nothing run yet."""
        project = folder / "project"
        project.mkdir(parents=True)
        job.make(project)
        return cls(Session.create("job", imports={str(project): "/workspace"}, home=folder / "store"))

    def close(self) -> None:
        """Close the session."""
        self.session.close()

    def record(self, job: Job) -> None:
        """Run all actions of the job."""
        self.slots = [Slot(self.session.run(text).id, text) for text in job.actions]

    def plan(self, fix: Fix, policy: Policy | None = None) -> Plan:
        """The plan of a fix."""
        changes = changes_of(fix)
        return self.session.plan(*changes) if policy is None else self.session.plan(*changes, policy=policy)

    def apply(self, fix: Fix, plan: Plan) -> Report:
        """Carry the plan of a fix out; the slots are those of the corrected history then."""
        report = self.session.apply(plan, keep_going=True)
        assert report.applied, report
        self.slots = corrected(fix, self.slots)
        ids = [record.id for record in self.session.log()]
        self.slots = [slot._replace(id=ids[number]) for number, slot in enumerate(self.slots)]
        return report

    def copy(self) -> Course:
        """Another course that has come as far as this one."""
        self._others += 1
        return Course(self.session.branch(f"{self.session.name}-{self._others}"), self.slots)

    def twin(self) -> Session:
        """Another session that stands where this one began."""
        self._others += 1
        twin = self.session.branch(f"{self.session.name}-{self._others}")
        twin._store.journal.move(twin.name, twin.head, 0)
        return twin

    def run_whole(self, twin: Session) -> list[Record]:
        """Run the corrected history on a twin from its start."""
        return [twin.run(slot.text, cwd="/workspace" if slot.patch else None) for slot in self.slots]


def changes_of(fix: Fix) -> list[Change]:
    """What a repair is told."""
    changes: list[Change] = [Replace(f"a{number}", text) for number, text in fix.replaced.items()]
    changes += [Drop(f"a{number}") for number in fix.dropped]
    if fix.patch is not None:
        path, value, at = fix.patch
        changes.append(Patch(path, value, at=f"a{at}"))
    return changes


def corrected(fix: Fix, slots: Sequence[Slot]) -> list[Slot]:
    """The slots with the fix, the patch's own id left open."""
    out: list[Slot] = []
    for slot in slots:
        number = int(slot.id[1:])
        if number not in fix.dropped:
            out.append(slot._replace(text=fix.replaced.get(number, slot.text)))
        if fix.patch is not None and number == fix.patch[2]:
            path, value, _ = fix.patch
            out.append(Slot("", f"printf %s {shlex.quote(value.decode())} > {path}", patch=True))
    return out
