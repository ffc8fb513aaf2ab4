"""The command `demo`: tells the worked example of `mulligan.demo`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from mulligan.cli.options import Caller, example, json_option, pass_caller
from mulligan.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mulligan.model.plan import Plan, Report
    from mulligan.model.record import Record


class Story:
    """Tells the demo on stdout as it happens; with --json it only remembers the report."""

    def __init__(self, *, quiet: bool) -> None:
        self.report: Report | None = None
        self._quiet = quiet

    def say(self, text: str) -> None:
        """Tell a line."""
        from mulligan.cli.render import block, echo  # noqa: PLC0415 - not needed for --help

        if not self._quiet:
            echo(block(text))

    def ran(self, title: str, record: Record) -> None:
        """Tell an action, its status, and the end of what it said when it failed."""
        from mulligan.cli.history import status_word  # noqa: PLC0415 - not needed for --help
        from mulligan.cli.render import milliseconds  # noqa: PLC0415

        self.say(f"{record.id}  {title:<32} {status_word(record):<7} {milliseconds(record.outcome.duration_ms):>7}")
        self.say(f"    $ {record.action.text}")
        if not record.outcome.ok:
            for line in record.stderr.strip().splitlines():
                self.say(f"    {line}")

    def planned(self, plan: Plan, records: Sequence[Record]) -> None:
        """Tell the plan."""
        from mulligan.cli.repair import steps_table, texts_of  # noqa: PLC0415 - not needed for --help

        if not self._quiet:
            steps_table(plan.steps, lambda step: step.kind.replace("_", " "), texts_of(records), what=False)

    def repaired(self, report: Report, before: Sequence[Record], after: Sequence[Record]) -> None:
        """Tell what was kept and what ran again."""
        from mulligan.cli.repair import outcome_word, steps_table, texts_of  # noqa: PLC0415 - not needed for --help

        self.report = report
        if not self._quiet:
            steps_table(report.plan.steps, lambda step: outcome_word(report, step, before, after), texts_of(after), what=False)


@click.command("demo", epilog=example("mulligan demo"))
@json_option
@pass_caller
def demo_command(caller: Caller, as_json: bool) -> None:
    """Show a real multi-step job with a wrong step in it, and its repair, in under a minute.

    Real programs (python3, git, SQLite, an HTTP service), real traces, nothing declared. The session stays, to look at.
    """
    from mulligan.demo import run_demo  # noqa: PLC0415 - not needed for --help

    story = Story(quiet=as_json)
    with Progress("running the demo") if as_json else nullcontext():  # told at length, the story is its own progress
        name = run_demo(caller.home, caller.environ, story)
    if as_json:
        from mulligan.cli.jsonview import print_json, report_json  # noqa: PLC0415

        assert story.report is not None
        print_json({"session": name, **report_json(story.report)})
        return
    story.say(f"\nThe session is kept as {name}. Look around:")
    for command in ("log", "why a5", "graph", "show a1", "diff a4", "cat config/config.yaml"):
        verb, _, rest = command.partition(" ")
        story.say(f"  mulligan {verb} -s {name} {rest}".rstrip())
