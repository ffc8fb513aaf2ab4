"""The command that brings two branches together: `merge`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mulligan.cli.options import Caller, example, json_option, pass_caller, session_option
from mulligan.cli.progress import Progress, say_waiting
from mulligan.merge import SAID, MergeConflictError

if TYPE_CHECKING:
    from mulligan.merge import MergeReport


@click.command("merge", epilog=example("mulligan merge -s job try-2 --dry-run"))
@session_option
@click.argument("branch")
@click.option("--dry-run", is_flag=True, help="Tell the conflicts, and change nothing.")
@click.option("--replay", is_flag=True, help="Run those of the branch's actions again that saw what ours changed.")
@click.option("--keep-going", is_flag=True, help="With --replay: merge even if an action that had succeeded fails now.")
@json_option
@pass_caller
def merge_command(  # noqa: PLR0917 - one parameter per option, as click passes them
    caller: Caller, session: str | None, branch: str, dry_run: bool, replay: bool, keep_going: bool, as_json: bool
) -> None:
    """Put what BRANCH did since the two sessions parted after what this session did, without running anything again.

    That is done when neither side relied on what the other changed, and what both wrote is the same. Otherwise the conflicts
    are shown and nothing is changed; --replay runs the branch's conflicting actions again on top of ours.
    """
    with caller.open(session) as opened, Progress(f"merging {branch}"):
        try:
            report = opened.merge(
                branch, replay=replay, dry_run=dry_run, keep_going=keep_going, on_wait=lambda: say_waiting(opened.name)
            )
        except MergeConflictError as error:
            _tell(caller, error.report, as_json=as_json, dry_run=False)
            raise
    _tell(caller, report, as_json=as_json, dry_run=dry_run)


def _tell(caller: Caller, report: MergeReport, *, as_json: bool, dry_run: bool) -> None:
    from mulligan.cli.jsonview import merge_json  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import echo, escape, table  # noqa: PLC0415

    if as_json:
        caller.print_json(merge_json(report))
        return
    rows = [(one.key or one.note, one.ours or "-", one.theirs or "-", SAID[one.kind]) for one in report.conflicts]
    if rows and not report.applied:
        table(("KEY", "OURS", "THEIRS", "CONFLICT"), rows)
    since = f"since {report.common}" if report.common else "from the start"
    if not report.theirs:
        echo(f"{escape(report.branch)} has nothing that {escape(report.session)} has not")
    elif report.applied:
        moved = ", ".join(new if old == new else f"{old} as {new}" for old, new in report.theirs)
        ran = f"; run again: {', '.join(report.ran)}" if report.ran else "; nothing was run again"
        echo(f"merged {escape(report.branch)} {since}: {moved}{ran}")
    elif dry_run:
        counts = f"{len(report.ours)} of our actions and {len(report.theirs)} of theirs {since}"
        echo(f"dry run: {counts}, {len(rows)} conflict{'s' if len(rows) != 1 else ''}")
