"""The deployment: five actions, the failure, the repair, and the check that it went as it must.

An agent deploys an update. It takes the database's connection string from its memory (a1), backs the database up (a2),
fetches the code (a3), writes the config (a4) and restarts the service (a5). The memory answers with the *test* database,
so a5 fails. a1 is replaced; a2, a4 and a5 depended on it and run again, a3 did not and is kept.

Knows sessions. Tells what happens through a `Narrator`; must not know how that is shown.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mulligan.demo.project import GUEST, PORT, TENANTS, lay_project
from mulligan.errors import AlreadyExistsError, HostError, InternalError
from mulligan.model.change import Replace
from mulligan.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mulligan.model.plan import Plan, Report
    from mulligan.model.record import Record


class Narrator(Protocol):
    """Whoever tells the story: the command line."""

    def say(self, text: str) -> None:
        """Tell a line."""

    def ran(self, title: str, record: Record) -> None:
        """An action has run."""

    def planned(self, plan: Plan, records: Sequence[Record]) -> None:
        """This is what a repair would do."""

    def repaired(self, report: Report, before: Sequence[Record], after: Sequence[Record]) -> None:
        """This is what the repair did."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action of the job, and what it is for."""

    title: str
    text: str


def _recall(condition: str) -> str:
    return f'python3 tools/recall.py memory/agent.db "SELECT content FROM memories WHERE {condition}" > run/connection'


# The nearest entry of the topic: the one for tests.
WRONG = _recall("topic = 'database' ORDER BY similarity DESC LIMIT 1")
RIGHT = _recall("topic = 'database' AND tag = 'production' LIMIT 1")

STEPS = (
    Step("ask the memory for the database", WRONG),
    Step("back the database up", "python3 tools/backup.py run/connection backups/before.db"),
    Step("fetch the latest code", f"git clone --quiet file://{GUEST}/repo/app.git app"),
    Step("write the config", f'printf "port: {PORT}\\ndatabase: %s\\n" "$(cat run/connection)" > config/config.yaml'),
    Step("restart the service", f"python3 app/restart.py config/config.yaml {PORT}"),
)


def run_demo(home: Path | None, environ: Mapping[str, str], narrator: Narrator) -> str:
    """Run the whole story in a new session and return its name. InternalError if it ends otherwise."""
    path = environ.get("PATH", os.defpath)
    for program in ("git", "python3"):
        if shutil.which(program, path=path) is None:
            raise HostError(f"the demo needs {program}, and there is none on PATH", remedy=f"install the package {program}")
    with _begin(home, environ) as session:
        narrator.say("An agent deploys an update in five actions, each in its own sandbox, each traced.\n")
        records = [_run(session, step, narrator) for step in STEPS]
        last = records[-1]
        _must(all(r.outcome.ok for r in records[:-1]), "an action before the restart failed", records)
        _must(last.exit_code == 1 and "cannot connect" in last.stderr, "the restart did not fail as it must", records)
        _repair(session, records, narrator)
        return session.name


def _begin(home: Path | None, environ: Mapping[str, str]) -> Session:
    with tempfile.TemporaryDirectory(prefix="mulligan-demo-") as folder:
        lay_project(Path(folder), environ.get("PATH", os.defpath))
        for number in count(1):
            try:
                name = "demo" if number == 1 else f"demo-{number}"
                return Session.create(name, imports={folder: GUEST}, home=home, environ=environ)
            except AlreadyExistsError:
                continue
    raise AssertionError  # count() does not end


def _run(session: Session, step: Step, narrator: Narrator) -> Record:
    record = session.run(step.text)
    narrator.ran(step.title, record)
    return record


def _repair(session: Session, records: Sequence[Record], narrator: Narrator) -> None:
    first, second, third, fourth, fifth = (r.id for r in records)
    narrator.say("\nThe restart failed. Back from there, by what each action was seen to read:")
    for record in (records[4], records[3], records[0]):
        said = "; ".join(f"{', '.join(paths)} from {writer}" for writer, paths in _inputs(record, records).items())
        narrator.say(f"  {record.id} read {said or 'nothing that another action wrote'}")
    narrator.say(
        f"So it is {first}: its query took the entry nearest in meaning, which is the one for tests.\n"
        f"It is replaced by a query for the production entry.\n"
    )
    plan = session.plan(Replace(first, RIGHT))
    narrator.say("The plan (nothing has run yet):")
    narrator.planned(plan, records)
    report = session.apply(plan)
    repaired = session.log()
    narrator.say("\nThe repair:")
    narrator.repaired(report, records, repaired)
    last = repaired[-1]
    narrator.say(f"\n{last.id} says now: {last.stdout.strip()}")
    _must(report.applied, "the repair was not applied", repaired)
    _must(report.kept == (third,), f"kept {_names(report.kept)} instead of only {third}", repaired)
    wanted = (first, second, fourth, fifth)
    _must(report.ran == wanted, f"ran {_names(report.ran)} instead of {_names(wanted)}", repaired)
    healthy = last.exit_code == 0 and '"healthy"' in last.stdout and f'"tenants": {len(TENANTS)}' in last.stdout
    _must(healthy, "the service is not healthy after the repair", repaired)
    _must("tenants" in repaired[1].stdout, "the backup is not of the production database", repaired)


def _inputs(record: Record, records: Sequence[Record]) -> dict[str, list[str]]:
    """What a record read of what earlier ones wrote, by writer: the last one before it counts."""
    earlier = records[: records.index(record)]
    writers = {path: r.id for r in earlier for path in r.footprint.wrote}
    inputs: dict[str, list[str]] = {}
    for path in sorted(record.footprint.saw & writers.keys()):
        inputs.setdefault(writers[path], []).append(path.removeprefix(f"{GUEST}/"))
    return inputs


def _names(actions: Sequence[str]) -> str:
    return ", ".join(actions) or "nothing"


def _must(held: bool, otherwise: str, records: Sequence[Record]) -> None:  # noqa: FBT001 - reads as a sentence
    if held:
        return
    said = [f"{r.id} exit {r.exit_code}: {r.stderr.strip()}" for r in records if r.stderr.strip()]
    raise InternalError(f"the demo went wrong: {otherwise}", remedy="; ".join(said))
