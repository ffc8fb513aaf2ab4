"""The command `repair`: changes as options, the plan or the report as text or JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mulligan.cli.options import Caller, json_option, pass_caller, session_option
from mulligan.cli.progress import Progress
from mulligan.errors import HostError, NotFoundError, RepairFailedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mulligan.model.change import Change
    from mulligan.model.ids import ActionId
    from mulligan.model.plan import Plan, Reason, Report, Step, StepKind
    from mulligan.model.record import Record

REASONS_SHOWN = 3
WHAT_WIDTH = 48

_SAYINGS = {
    "changed": "is changed itself",
    "read_changed": "saw another value of",
    "reads_rewritten": "saw what an action that runs again writes:",
    "incomplete": "its trace has a hole, so it may have seen anything",
    "launch": "is launched with another",
    "base_changed": "the host changed",
    "declared": "declared as input:",
}


@click.command(
    "repair",
    epilog="\b\nExamples:\n"
    "  mulligan repair --replace a1 'python3 clean.py --strict > out.csv' --dry-run\n"
    "  mulligan repair --drop a2 --patch /workspace/config.yaml=fixed.yaml",
)
@session_option
@click.option(
    "--replace",
    type=(str, str),
    multiple=True,
    metavar="ACTION TEXT",
    help="The action should have been this shell text. Repeatable, as all changes are.",
)
@click.option("--drop", multiple=True, metavar="ACTION", help="The action should never have run.")
@click.option("--rerun", multiple=True, metavar="ACTION", help="The action must run again although nothing it saw changed.")
@click.option(
    "--patch",
    multiple=True,
    metavar="PATH=FILE",
    help="PATH should have had FILE's content from its last writer on (FILE - is stdin).",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.option("--keep-going", is_flag=True, help="Apply the repair even if an action that had succeeded fails now.")
@json_option
@pass_caller
def repair_command(  # noqa: PLR0917 - one parameter per option, as click passes them
    caller: Caller,
    session: str | None,
    replace: tuple[tuple[str, str], ...],
    drop: tuple[str, ...],
    rerun: tuple[str, ...],
    patch: tuple[str, ...],
    dry_run: bool,
    keep_going: bool,
    as_json: bool,
) -> None:
    """Correct history: what depended on the wrong action runs again in its own place, everything else is kept.

    The result is the state that the whole corrected history would have given. If an action that had succeeded fails now,
    nothing is applied, unless --keep-going.
    """
    from mulligan.cli.jsonview import plan_json, report_json  # noqa: PLC0415 - not needed for --help

    changes = _changes(replace, drop, rerun, patch)
    if not changes:
        raise UsageError("say what to correct: --replace, --drop, --rerun or --patch", remedy="see `mulligan repair --help`")
    with caller.open(session) as opened:
        before = opened.log()
        plan = opened.plan(*changes)
        if dry_run:
            if as_json:
                caller.print_json(plan_json(plan))
            else:
                _tell_plan(plan, before)
            return
        with Progress("repairing") as progress:
            report = opened.apply(plan, keep_going=keep_going, progress=telling(progress))
        if as_json:
            caller.print_json(report_json(report))
        else:
            _tell_report(report, before, opened.log())
    if not report.applied:
        raise RepairFailedError(
            f"{', '.join(report.failed) or 'a replayed action'} failed, so the repair was not applied",
            remedy="the session stands where it stood; --keep-going applies it all the same",
        )


def telling(progress: Progress) -> Callable[[ActionId, str, int, int], None]:
    """The callback of `Session.apply` that tells a Progress which action is at work."""

    def tell(action: ActionId, what: str, done: int, of: int) -> None:
        progress.tell(f"repairing: {action} {what.replace('_', ' ')} ({done} of {of})")

    return tell


def _changes(
    replace: Sequence[tuple[str, str]], drop: Sequence[str], rerun: Sequence[str], patch: Sequence[str]
) -> list[Change]:
    from mulligan.model.change import Drop, Patch, Replace, Rerun  # noqa: PLC0415 - not needed for --help

    out: list[Change] = [Replace(action, text) for action, text in replace]
    out += [Drop(action) for action in drop]
    out += [Rerun(action) for action in rerun]
    for one in patch:
        path, sep, file = one.rpartition("=") if not Path(one.partition("=")[2]).exists() else one.partition("=")
        if not sep or not path or not file:
            raise UsageError(f"--patch {one!r} is not of the form PATH=FILE")
        out.append(Patch(path, _content(file)))
    return out


def _content(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {file!r} to patch with") from error
    except IsADirectoryError as error:
        raise UsageError(f"{file!r} is a folder; a patch is one file's content") from error
    except OSError as error:
        raise HostError(f"cannot read {file!r}: {error.strerror}") from error


def say(reason: Reason) -> str:
    """One reason of a plan, for a person."""
    parts = [reason.note or _SAYINGS[reason.kind]]
    if reason.key:
        parts.append(reason.key)
    if reason.source:
        parts.append(f"(by {reason.source})")
    return " ".join(parts)


def say_all(reasons: Sequence[Reason], shown: int = REASONS_SHOWN) -> str:
    """The first reasons, and how many more there are."""
    said = "; ".join(say(r) for r in reasons[:shown])
    return f"{said} (+{len(reasons) - shown} more)" if len(reasons) > shown else said


def steps_table(steps: Iterable[Step], words: Callable[[Step], str], records: Sequence[Record], *, what: bool = True) -> None:
    """Print one row per action of a plan: what happens to it, why, and (with `what`) what it is."""
    from mulligan.cli.render import clip, table  # noqa: PLC0415 - not needed for --help

    texts = {r.id: r.action.text for r in records}
    rows = [
        (
            step.action,
            words(step),
            say_all(step.because) or "nothing it relied on changed",
            clip(texts.get(step.action, ""), WHAT_WIDTH),
        )
        for step in steps
    ]
    headers = ("ACTION", "STEP", "BECAUSE", "WHAT")
    table(headers if what else headers[:-1], rows if what else [row[:-1] for row in rows])


def _tell_plan(plan: Plan, records: Sequence[Record]) -> None:
    from mulligan.cli.render import echo  # noqa: PLC0415 - not needed for --help

    steps_table(plan.steps, lambda step: step.kind.replace("_", " "), records)
    counts = [f"{len(plan.of(kind))} {word}" for kind, word in _KINDS if plan.of(kind)]
    echo(f"dry run: {', '.join(counts)}; nothing was changed")


_KINDS: Sequence[tuple[StepKind, str]] = (
    ("must_rerun", "must run again"),
    ("may_rerun", "may run again"),
    ("drop", "dropped"),
    ("keep", "kept"),
)


def outcome_word(report: Report, step: Step, before: Sequence[Record], after: Sequence[Record]) -> str:
    """What a repair did with one action, in a word or two; how it ends now where it ended otherwise before."""
    from mulligan.cli.history import status_word  # noqa: PLC0415 - not needed for --help

    if step.action in report.dropped:
        return "dropped"
    if step.action in report.ran:
        was, now = ({r.id: status_word(r) for r in records}.get(step.action) for records in (before, after))
        if step.action in report.diverged and was and now and was != now:
            return f"ran: {was} -> {now}"
        return "ran: failed" if step.action in report.failed else "ran"
    return "kept (cut off)" if step.action in report.cut_off else "kept"


def _tell_report(report: Report, before: Sequence[Record], after: Sequence[Record]) -> None:
    from mulligan.cli.render import echo  # noqa: PLC0415 - not needed for --help

    steps_table(report.plan.steps, lambda step: outcome_word(report, step, before, after), after)
    done = "applied" if report.applied else "not applied"
    echo(
        f"repair {done}: {len(report.ran)} ran, {len(report.kept)} kept, {len(report.dropped)} dropped, {report.seconds:.2f} s"
    )
