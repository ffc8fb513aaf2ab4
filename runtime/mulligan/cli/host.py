"""The commands that face the host: `commit`, `ps`, `rm`, `gc`, `doctor`."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any

import click

from mulligan.cli.options import Caller, example, json_option, pass_caller, session_option
from mulligan.cli.progress import Progress, say_waiting
from mulligan.errors import ConflictError, HostError, MulliganError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mulligan.sandbox.hosts import Feature
    from mulligan.upkeep import GcReport, SessionInfo

CONFLICTS_NAMED = 3


@click.command("commit", epilog=example("mulligan commit -s job ./project --dry-run"))
@session_option
@click.argument("folder", metavar="DIR")
@click.option("--dry-run", is_flag=True, help="Say what would be written and removed, and change nothing.")
@json_option
@pass_caller
def commit_command(
    caller: Caller,
    session: str | None,
    folder: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write what the session changed under /workspace to the host folder DIR.

    What the session did not change is left as it is on the host. A file that both the session and somebody on the host
    changed since the import (or the last commit) is a conflict: then nothing at all is written.
    """
    from mulligan.cli.jsonview import Json, put_all  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import echo, escape  # noqa: PLC0415

    doing = f"comparing with {folder}" if dry_run else f"writing to {folder}"
    with caller.open(session) as opened, Progress(doing):
        report = opened.commit(folder, dry_run=dry_run, on_wait=lambda: say_waiting(opened.name))
    if as_json:
        out: Json = {}
        for name in ("written", "removed", "conflicts", "skipped"):
            put_all(out, name, getattr(report, name))
        caller.print_json({**out, "applied": report.applied})
    else:
        for mark, paths in (("+", report.written), ("-", report.removed), ("!", report.conflicts), ("?", report.skipped)):
            for path in paths:
                echo(f"{mark} {escape(path)}")
        done = "committed" if report.applied else "dry run" if dry_run else "nothing was written"
        would = "" if report.applied else " to be"
        echo(
            f"{done}: {len(report.written)}{would} written, {len(report.removed)}{would} removed,"
            f" {_count(len(report.conflicts), 'conflict')}"
        )
    if report.conflicts:
        named = ", ".join(report.conflicts[:CONFLICTS_NAMED])
        more = len(report.conflicts) - CONFLICTS_NAMED
        raise ConflictError(
            f"changed on the host since the import or the last commit: {named}{f' and {more} more' if more > 0 else ''}",
            remedy="commit to an empty folder and merge, or bring the host's files back to what was imported",
        )


@click.command("ps", epilog=example("mulligan ps --json"))
@json_option
@pass_caller
def ps_command(caller: Caller, as_json: bool) -> None:
    """List the sessions of the store: their actions, base and age."""
    from mulligan import upkeep as sessions  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.jsonview import print_json  # noqa: PLC0415
    from mulligan.cli.render import echo, table  # noqa: PLC0415

    rows = sessions.sessions(caller.home)
    if as_json:
        print_json([_row_json(r) for r in rows])
    elif rows:
        some = any(r.given_up for r in rows)
        cells = [
            (r.name, str(r.actions), *([r.oldest or "-"] if some else []), _base(r.base), _day(r.created_ns)) for r in rows
        ]
        table(("SESSION", "ACTIONS", *(["OLDEST REPAIRABLE"] if some else []), "BASE", "CREATED"), cells)
    else:
        echo("there is no session yet; `mulligan new NAME` makes one")


def _row_json(row: SessionInfo) -> dict[str, Any]:
    return {
        "session": row.name,
        "actions": row.actions,
        "oldest_repairable": row.oldest,
        "base": _base(row.base),
        "head": str(row.head),
        "created_ns": row.created_ns,
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _base(base: Mapping[str, Any]) -> str:
    return str(base.get("kind", ""))


def _day(created_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(created_ns / 1e9))


@click.command("rm", epilog=example("mulligan rm job && mulligan gc"))
@click.argument("name")
@json_option
@pass_caller
def rm_command(caller: Caller, name: str, as_json: bool) -> None:
    """Remove the session NAME with its history. Branches made from it stay. `mulligan gc` frees the space."""
    from mulligan import upkeep as sessions  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.jsonview import print_json  # noqa: PLC0415
    from mulligan.cli.render import echo, escape  # noqa: PLC0415

    sessions.remove(name, caller.home, lambda: say_waiting(name))
    if as_json:
        print_json({"removed": name})
    else:
        echo(f"session {escape(name)} is removed")


_KINDS = {
    "layers": "of actions that no session's history has",
    "composites": "composites that no session's history uses",
    "orphans": "left behind by processes that were ended",
    "given_up": "of the oldest actions, given up for the budget",
}


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class SizeType(click.ParamType):  # type: ignore[type-arg]
    """A size in bytes as a person writes it: 500M, 1.5G, 4096."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes."""
        found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
        if found is None:
            self.fail(f"{value!r} is no size; write one as 500M or 1.5G", param, ctx)
        return int(float(found[1]) * _UNITS[found[2].upper()])


@click.command("gc", epilog="\b\nExamples:\n  mulligan gc --dry-run\n  mulligan gc --budget 2G")
@click.option("--dry-run", is_flag=True, help="Say what would be freed, and free nothing.")
@click.option(
    "--budget",
    type=SizeType(),
    metavar="SIZE",
    help="Give up the layers of the oldest actions until the store fits (500M, 2G): they can't be repaired any more.",
)
@click.option("-s", "--session", metavar="NAME", help="With --budget: this session alone, and what it is made of.")
@json_option
@pass_caller
def gc_command(caller: Caller, dry_run: bool, budget: int | None, session: str | None, as_json: bool) -> None:
    """Free what no session reaches: rolled back history, removed sessions, what a killed process left behind."""
    from mulligan import upkeep as sessions  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.jsonview import print_json  # noqa: PLC0415

    if session is not None and budget is None:
        raise UsageError("-s names a session for --budget", remedy="leave it out, or say how large the session may be")
    with Progress("looking for layers that no session needs"):
        report = sessions.gc(caller.home, lambda: say_waiting("the store"), dry_run=dry_run, budget=budget, session=session)
    if as_json:
        print_json(_gc_json(report, applied=not dry_run))
        return
    _print_gc(report, "would free" if dry_run else "freed")
    if budget is not None and report.size is not None and report.size > budget and not dry_run:
        _print_over(report.size)


def _gc_json(report: GcReport, *, applied: bool) -> dict[str, Any]:
    return {
        "layers": report.layers,
        "records": report.records,
        "bytes": report.bytes,
        "kinds": {one.kind: {"count": one.count, "bytes": one.bytes} for one in report.freed},
        "given_up": dict(report.given_up),
        "oldest_repairable": dict(report.oldest),
        "size": report.size,
        "applied": applied,
    }


def _print_gc(report: GcReport, did: str) -> None:
    from mulligan.cli.render import echo, escape, size  # noqa: PLC0415 - not needed for --help

    freed = f"{_count(report.layers, 'layer')} and {_count(report.records, 'record')} of actions ({size(report.bytes)})"
    echo(f"{did} {freed}")
    for one in report.freed:
        if one.count:
            echo(f"  {one.count} {_KINDS[one.kind]} ({size(one.bytes)})")
    for name, count in report.given_up.items():
        echo(
            f"{escape(name)}: the layers of {_count(count, 'action')} {'would go' if did != 'freed' else 'went'} for the budget"
        )
    for name, oldest in report.oldest.items():
        echo(f"{escape(name)}: {_reach(oldest)}")


def _reach(oldest: str | None) -> str:
    return f"the oldest action that can be repaired is {oldest}" if oldest else "no action can be repaired any more"


def _print_over(left: int) -> None:
    from mulligan.cli.render import echo, size  # noqa: PLC0415 - not needed for --help

    echo(f"{size(left)} are left, which is more than the budget: the present states, their bases and the records need them")


@click.command("doctor", epilog=example("mulligan doctor"))
@json_option
@pass_caller
def doctor_command(caller: Caller, as_json: bool) -> None:
    """Try what the sandbox needs on this machine, and say what is missing, for what, and what to change."""
    from mulligan.history.store import default_home  # noqa: PLC0415 - not needed for --help
    from mulligan.sandbox.hosts import HostFeatures  # noqa: PLC0415 - not needed for --help

    home = caller.home or default_home(caller.environ)
    with Progress("trying the host's features"):
        store = _store_feature(home)
        found = HostFeatures.probe(home if store.ok else None, caller.environ)
    _tell_features(caller, [*found.features, store], as_json=as_json)


def _store_feature(home: Path) -> Feature:
    """Whether the store can be used, or made where it is to be."""
    from mulligan.history.store import Store  # noqa: PLC0415 - not needed for --help
    from mulligan.sandbox.hosts import Feature  # noqa: PLC0415 - not needed for --help

    ok, detail, remedy = True, str(home), ""
    if os.path.exists(home):  # Path.exists raises where a folder above is closed
        try:
            Store.open(home).close()
        except MulliganError as error:
            ok, detail, remedy = False, error.message, error.remedy
    else:
        above = next(folder for folder in home.absolute().parents if os.path.exists(folder))
        if not os.access(above, os.W_OK | os.X_OK):
            ok, detail = False, f"{home} cannot be made in {above}: no permission"
            remedy = "make that folder writable for this user, or set MULLIGAN_HOME"
    return Feature("store", ok, detail, "everything", remedy, required=True)


def _tell_features(caller: Caller, features: Sequence[Feature], *, as_json: bool) -> None:
    from mulligan.cli.render import echo, table  # noqa: PLC0415 - not needed for --help

    missing = [f for f in features if not f.ok and f.required]
    if as_json:
        fields = ("name", "ok", "required", "detail", "needed_for", "remedy")
        caller.print_json({"ready": not missing, "features": [{k: getattr(f, k) for k in fields} for f in features]})
    else:
        marks = {True: "yes", False: "no"}
        table(("", "FEATURE", "FOUND", "NEEDED FOR"), [(marks[f.ok], f.name, f.detail, f.needed_for) for f in features])
        for feature in features:
            if not feature.ok and feature.remedy:
                echo(f"{feature.name}: {feature.remedy}")
        if not missing:
            echo("this machine can run Mulligan")
    if missing:
        raise HostError(
            f"this machine cannot run Mulligan: {', '.join(f.name for f in missing)} missing", remedy=missing[0].remedy
        )
