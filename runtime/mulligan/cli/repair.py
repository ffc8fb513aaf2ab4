"""The command `repair`: changes as options, the plan or the report as text or JSON."""

from __future__ import annotations

import glob
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mulligan.cli.options import Caller, json_option, pass_caller, session_option
from mulligan.cli.progress import Progress, say_waiting
from mulligan.errors import HostError, NotFoundError, RepairFailedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mulligan.model.change import Change
    from mulligan.model.ids import ActionId
    from mulligan.model.plan import Plan, Reason, Report, Step, StepKind, Volatile
    from mulligan.model.policy import EnvReads, Granularity, Level
    from mulligan.model.record import Record

REASONS_SHOWN = 3
WHAT_WIDTH = 48
HINTS_SHOWN = 5
FAILURE_LINES = 10  # of a failed action's stderr

_SAYINGS = {
    "changed": "is changed itself",
    "read_changed": "saw another value of",
    "reads_rewritten": "saw what an action that runs again writes:",
    "incomplete": "its trace has a hole, so it may have seen anything",
    "launch": "is launched with another",
    "base_changed": "the host changed",
    "declared": "declared as input:",
    "level": "the level runs it again",
    "group": "runs again with its group",
    "hint": "may hang on the output of",
    "misfit": "its layer can't stand there:",
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
@click.option(
    "--at", metavar="ACTION", help="Let the patches stand right after this action, not after their paths' last writers."
)
@click.option(
    "--level",
    type=click.IntRange(0, 4),
    default=1,
    show_default=True,
    help="What else runs again: 0 nothing (unsound), 1 who saw a difference, 2 who may, 3 also by hints, 4 all after it.",
)
@click.option(
    "--granularity",
    type=click.Choice(["action", "group", "session"]),
    default="action",
    show_default=True,
    help="What runs again as one: an action, all actions with the same label group:NAME, or all.",
)
@click.option(
    "--equivalent",
    multiple=True,
    metavar="GLOB=REGEX",
    help="In files that GLOB names, what REGEX matches does not matter (also @uuid, @time, @hex, @number). Repeatable.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not show the plan and ask first, as is done on a terminal.")
@click.option(
    "--env-reads",
    type=click.Choice(["lazy", "launch"]),
    default="lazy",
    show_default=True,
    help="Who counts as having read a variable that differs: whoever may have used it, or all that were launched with it.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.option(
    "--jobs", type=click.IntRange(0, 256), default=0, metavar="N", help="Run up to N actions at once (default: one per CPU)."
)
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
    at: str | None,
    level: Level,
    granularity: Granularity,
    equivalent: tuple[str, ...],
    yes: bool,
    env_reads: EnvReads,
    dry_run: bool,
    jobs: int,
    keep_going: bool,
    as_json: bool,
) -> None:
    """Correct history: what depended on the wrong action runs again in its own place, everything else is kept.

    The result is the state that the whole corrected history would have given. If an action that had succeeded fails now,
    nothing is applied, unless --keep-going.
    """
    from mulligan.cli.jsonview import plan_json, report_json  # noqa: PLC0415 - not needed for --help
    from mulligan.model.equivalence import parse_equivalence  # noqa: PLC0415
    from mulligan.model.policy import Policy  # noqa: PLC0415

    changes = _changes(replace, drop, rerun, patch, at)
    if not changes:
        raise UsageError("say what to correct: --replace, --drop, --rerun or --patch", remedy="see `mulligan repair --help`")
    policy = Policy(level, granularity, env_reads, tuple(parse_equivalence(one) for one in equivalent), jobs)
    with caller.open(session) as opened:
        before = opened.log()
        plan = opened.plan(*changes, policy=policy)
        if dry_run and as_json:
            caller.print_json(plan_json(plan))
            return
        if dry_run:
            _tell_plan(plan, before, dict(replace), "dry run: {}; nothing was changed")
            return
        if not (yes or as_json or _is_agreed(plan, before, dict(replace))):
            return
        with Progress("repairing") as progress:
            report = opened.apply(
                plan,
                keep_going=keep_going,
                progress=telling(progress),
                on_wait=lambda: say_waiting(opened.name),
                extend=True,
            )
        if as_json:
            caller.print_json(report_json(report))
        else:
            _tell_report(report, before, opened.log(), dict(replace))
    if not report.applied:
        raise RepairFailedError(
            f"{_failed(report) or 'a replayed action failed'}, so the repair was not applied and nothing was changed",
            remedy="mend the change, or apply it all the same with --keep-going",
        )


def _is_agreed(plan: Plan, before: Sequence[Record], new_texts: Mapping[str, str]) -> bool:
    """Whether a person who was shown the plan wants it; where nobody is there to be asked, it was wanted by the command."""
    from mulligan.cli.render import echo  # noqa: PLC0415 - not needed for --help

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    _tell_plan(plan, before, new_texts, "plan: {}")
    if click.confirm("apply?", default=False):
        return True
    echo("nothing was changed")
    return False


def telling(progress: Progress) -> Callable[[ActionId, str, int, int], None]:
    """The callback of `Session.apply` that tells a Progress which action is at work."""

    def tell(action: ActionId, what: str, done: int, of: int) -> None:
        progress.tell(f"repairing: {action} {what.replace('_', ' ')} ({done} of {of})")

    return tell


def _changes(
    replace: Sequence[tuple[str, str]], drop: Sequence[str], rerun: Sequence[str], patch: Sequence[str], at: str | None
) -> list[Change]:
    from mulligan.model.change import Drop, Patch, Replace, Rerun  # noqa: PLC0415 - not needed for --help

    out: list[Change] = [Replace(action, text) for action, text in replace]
    out += [Drop(action) for action in drop]
    out += [Rerun(action) for action in rerun]
    if at is not None and not patch:
        raise UsageError("--at says where a patch stands, and there is none", remedy="add --patch PATH=FILE")
    for one in patch:
        path, sep, file = one.rpartition("=") if not Path(one.partition("=")[2]).exists() else one.partition("=")
        if not sep or not path or not file:
            raise UsageError(f"--patch {one!r} is not of the form PATH=FILE")
        out.append(Patch(path, _content(file), at))
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


def say_all(reasons: Sequence[Reason], shown: int = REASONS_SHOWN) -> str:
    """The first reasons of a step for a person, those of one kind told together, and how many more there are."""
    told: dict[str, list[str]] = {}
    for reason in reasons[:shown]:
        witness = " ".join(filter(None, (reason.key, f"(by {reason.source})" if reason.source else "")))
        told.setdefault(reason.note or _SAYINGS[reason.kind], []).append(witness)
    said = "; ".join(f"{saying} {', '.join(filter(None, witnesses))}".rstrip() for saying, witnesses in told.items())
    return f"{said} (+{len(reasons) - shown} more)" if len(reasons) > shown else said


def steps_table(steps: Iterable[Step], words: Callable[[Step], str], texts: Mapping[str, str], *, what: bool = True) -> None:
    """Print one row per action of a plan: what happens to it, why, and (with `what`) what it is."""
    from mulligan.cli.render import clip, table  # noqa: PLC0415 - not needed for --help

    rows = [
        (
            step.action,
            words(step),
            *([clip(texts.get(step.action, ""), WHAT_WIDTH)] if what else []),
            say_all(step.because) or "nothing it relied on changed",  # last: it may be long, and a pipe gets full width
        )
        for step in steps
    ]
    table(("ACTION", "STEP", *(["WHAT"] if what else []), "BECAUSE"), rows)


def texts_of(records: Sequence[Record]) -> dict[str, str]:
    """What each action is, by its id."""
    return {r.id: r.action.text for r in records}


def _tell_plan(plan: Plan, records: Sequence[Record], new_texts: Mapping[str, str], summary: str) -> None:
    from mulligan.cli.render import echo  # noqa: PLC0415 - not needed for --help

    steps_table(plan.steps, _step_word, {**texts_of(records), **new_texts})
    counts = [f"{len(plan.of(kind))} {word}" for kind, word in _KINDS if plan.of(kind)]
    echo(summary.format(", ".join(counts)))
    _tell_hints(plan)
    _tell_unsound(plan, [s.action for s in plan.steps if s.kind == "keep" and s.because])


def _tell_volatile(report: Report) -> None:
    from mulligan.cli.render import echo, escape  # noqa: PLC0415 - not needed for --help

    for one in report.volatile[:HINTS_SHOWN]:
        looks = " or ".join(one.looks)
        how = f"differs only in what looks like {looks}"
        if one.same_input:
            how = "came out differently although nothing it saw had changed"
            how += f"; what differs looks like {looks}" if looks else ""
        echo(f"volatile: {escape(one.key)} of {one.action} {how}{_advice(one)}")
    if len(report.volatile) > HINTS_SHOWN:
        echo(f"{len(report.volatile) - HINTS_SHOWN} more that are volatile; --json has them all")


def _advice(one: Volatile) -> str:
    """The option by which the difference would count as none. It may be pasted into a shell, and the path is a guest's."""
    path = one.key.partition(":")[2]
    if not one.looks or not path.startswith("/") or not path.isprintable() or "=" in path:
        return ""
    return f"; if that does not matter: --equivalent {shlex.quote(f'{glob.escape(path)}=@{one.looks[-1]}')}"


def _tell_hints(plan: Plan) -> None:
    from mulligan.cli.render import echo, escape  # noqa: PLC0415 - not needed for --help

    for hint in plan.hints[:HINTS_SHOWN]:
        echo(
            f"hint: {hint.target} may hang on {hint.source}'s output: its {hint.place} holds {escape(hint.token)!r}"
            f" (confidence {hint.confidence:.2f}); --level 3 would run it again"
        )
    if len(plan.hints) > HINTS_SHOWN:
        echo(f"{len(plan.hints) - HINTS_SHOWN} more hints; --json has them all")


def _step_word(step: Step) -> str:
    return "keep (stale)" if step.kind == "keep" and step.because else step.kind.replace("_", " ")


def _tell_unsound(plan: Plan, stale: Sequence[ActionId]) -> None:
    from mulligan.cli.render import echo  # noqa: PLC0415 - not needed for --help

    if not plan.policy.sound:
        kept = f": kept over a difference: {', '.join(stale)}" if stale else ""
        echo(f"level 0 is UNSOUND{kept}; the state need not be what the corrected history gives")


_KINDS: Sequence[tuple[StepKind, str]] = (
    ("must_rerun", "must run again"),
    ("may_rerun", "may run again"),
    ("drop", "dropped"),
    ("keep", "kept"),
)


def outcome_word(report: Report, step: Step, before: Sequence[Record], after: Sequence[Record]) -> str:
    """What a repair did with one action, in a word or two; how it ends now where that is news or a failure."""
    from mulligan.cli.history import status_word  # noqa: PLC0415 - not needed for --help

    if step.action in report.dropped:
        return "dropped"
    if step.action in report.ran:
        was, now = (
            {r.id: status_word(r) for r in records}.get(step.action) for records in (before, [*after, *report.failures])
        )
        if step.action in {*report.diverged, *report.failed} and was and now and was != now:
            return f"ran: {was} -> {now}"
        if now not in {None, "ok", "patch"}:
            return f"ran: {now} again"
        return "ran: failed" if step.action in report.failed else "ran"
    if step.action in report.stale:
        return "kept (stale)"
    return "kept (cut off)" if step.action in report.cut_off else "kept"


def _failed(report: Report) -> str:
    """Which actions failed, and how the first of them did that is known."""
    from mulligan.cli.history import status_word  # noqa: PLC0415 - not needed for --help

    ends = {r.id: f" ({status_word(r)})" for r in report.failures}
    named = ", ".join(f"{action}{ends.get(action, '')}" for action in report.failed)
    return f"{named} failed" if named else ""


def _tell_report(report: Report, before: Sequence[Record], after: Sequence[Record], new_texts: Mapping[str, str]) -> None:
    from mulligan.cli.render import block, echo  # noqa: PLC0415 - not needed for --help

    texts = {**texts_of(before), **new_texts, **(texts_of(after) if report.applied else {})}
    steps_table(report.plan.steps, lambda step: outcome_word(report, step, before, after), texts)
    for record in report.failures:  # what failed is in no history when the repair was not applied: this is where it is seen
        said = block(record.stderr).splitlines()[-FAILURE_LINES:]
        echo(f"{record.id} failed; the end of its stderr:" if said else f"{record.id} failed and said nothing on stderr")
        for line in said:
            echo(f"  {line}")
    _tell_volatile(report)
    _tell_hints(report.plan)
    _tell_unsound(report.plan, report.stale)
    done = "applied" if report.applied else "not applied"
    counts = [f"{len(report.ran)} ran", f"{len(report.kept)} kept", f"{len(report.dropped)} dropped"]
    if report.in_vain:
        counts.append(f"{report.in_vain} begun in vain")
    echo(f"repair {done}: {', '.join(counts)}, {report.seconds:.2f} s")
