"""The commands that look at history and move in it: log, show, why, graph, diff, cat, ls, rollback, branch."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING

import click

from mulligan.cli.options import Caller, example, json_option, pass_caller, session_option
from mulligan.cli.progress import say_waiting
from mulligan.model.ids import join, raw_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mulligan.model.record import Record
    from mulligan.model.tree import Node
    from mulligan.session import Session
    from mulligan.states import Difference

WORKSPACE = "/workspace"
OUTPUT_SHOWN = 4000  # bytes of stdout and stderr that `show` prints; --json has all of them
PATHS_SHOWN = 20
COMMAND_WIDTH = 72
LABELS_WIDTH = 40
SYSTEM = ("/usr/", "/etc/", "/bin", "/lib", "/sbin", "/opt/", "/proc/", "/dev/", "/sys/", "/root/", "/home/")


@click.command("log", epilog=example("mulligan log -s job"))
@session_option
@click.option("--label", help="Only actions with this label.")
@json_option
@pass_caller
def log_command(caller: Caller, session: str | None, label: str | None, as_json: bool) -> None:
    """List the session's actions in order: status, time, and how many paths each relied on and wrote."""
    from mulligan.cli.jsonview import log_json, print_json, reads_of  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import clip, echo, escape, milliseconds, table  # noqa: PLC0415

    with caller.open(session) as opened:
        history, oldest = opened.log(), opened.oldest_repairable
    ids = [r.id for r in history]
    repairable = set(ids[ids.index(oldest) :] if oldest in ids else [])
    records = [r for r in history if label is None or label in r.action.labels]
    if as_json:
        print_json([{**log_json(r), "repairable": r.id in repairable} for r in records])
        return
    if not records:
        echo(f"no action has the label {escape(label or '')}" if history else "no action yet; `mulligan run -c TEXT` makes one")
        return
    labelled = any(r.action.labels for r in records)
    rows = [
        (
            r.id,
            status_word(r),
            milliseconds(r.outcome.duration_ms),
            str(len(reads_of(r.footprint))) + ("" if r.footprint.complete else "?"),
            str(len(r.footprint.wrote | r.footprint.removed)),
            *([clip(escape(" ".join(r.action.labels)), LABELS_WIDTH)] if labelled else []),
            clip(escape(r.action.text), COMMAND_WIDTH),
        )
        for r in records
    ]
    table(("ACTION", "STATUS", "TIME", "READS", "WRITES", *(["LABELS"] if labelled else []), "WHAT"), rows)
    if len(repairable) < len(ids):
        rest = f"the oldest action that can be is {oldest}" if oldest else "no action can be"
        echo(f"{len(ids) - len(repairable)} of {len(ids)} can't be repaired or gone back to any more; {rest}")


def status_word(record: Record) -> str:
    """How an action ended, in a word."""
    if record.action.kind == "patch":
        return "patch"
    if record.outcome.timed_out:
        return "timeout"
    return "ok" if record.outcome.ok else record.outcome.signal or f"exit {record.exit_code}"


def handed_on(record: Record) -> dict[str, str | None]:
    """What the action changed of the environment (None: unset it), working directory (PWD) and umask that the next one gets."""
    before, after = record.launch.env, record.handoff.env
    out = {name: after.get(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    out |= {"PWD": record.handoff.cwd} if record.handoff.cwd != record.launch.cwd else {}
    return {**out, "umask": f"{record.handoff.umask:04o}"} if record.handoff.umask != record.launch.umask else out


@click.command("show", epilog=example("mulligan show a3 --json"))
@session_option
@click.argument("action")
@click.option("--all", "everything", is_flag=True, help="Name every path, however many there are.")
@json_option
@pass_caller
def show_command(
    caller: Caller,
    session: str | None,
    action: str,
    everything: bool,
    as_json: bool,
) -> None:
    """Show all that is recorded of ACTION: what ran, what came back, what it relied on and what it changed."""
    from mulligan.cli.jsonview import print_json, show_json  # noqa: PLC0415 - not needed for --help

    with caller.open(session) as opened:
        record = opened.record(action)
    if as_json:
        print_json(show_json(record))
    else:
        _show(record, sys.maxsize if everything else PATHS_SHOWN)


def _show(record: Record, paths_shown: int) -> None:
    from mulligan.cli.jsonview import PATH_SETS  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import block, echo, escape, milliseconds  # noqa: PLC0415
    from mulligan.model.action import USUAL_UMASK  # noqa: PLC0415

    outcome, footprint = record.outcome, record.footprint
    head = [
        ("action", record.id + (f" (run {record.revision} times)" if record.revision > 1 else "")),
        ("what", record.action.text),
        ("labels", " ".join(record.action.labels)),
        ("cwd", footprint.launch_cwd),
        ("umask", f"{record.launch.umask:04o}" if record.launch.umask != USUAL_UMASK else ""),
        ("status", f"{status_word(record)} after {milliseconds(outcome.duration_ms)}, at most {outcome.max_rss_kib} KiB"),
        ("killed", " ".join(outcome.killed_at_end)),
        ("incomplete", "; ".join(footprint.incomplete_because)),
        ("layer", record.layer_id),
    ]
    for name, value in head:
        if value:
            echo(f"{name:<11}{escape(value)}")
    for name in PATH_SETS:
        paths = sorted(getattr(footprint, name), key=_telling)
        if paths:
            echo(f"{name} ({len(paths)})")
            for path in paths[:paths_shown]:
                echo(f"  {escape(path)}")
            if len(paths) > paths_shown:
                echo(f"  … {len(paths) - paths_shown} more; --all names them")
    for peer in footprint.connected:
        echo(f"{peer.op} {escape(peer.family)} {escape(peer.address)} port {peer.port}" + (" (failed)" if peer.errno else ""))
    if record.outputs:
        echo(f"outputs ({len(record.outputs)})")
        for name, output in sorted(record.outputs.items()):
            echo(f"  {escape(name)}={escape(output)}")
    variables: tuple[tuple[str, Mapping[str, str | None]], ...] = (
        ("env", {**footprint.launch_env}),
        ("handed on", handed_on(record)),
    )
    for name, values in variables:
        if values:
            echo(f"{name} ({len(values)})")
            for variable, now in sorted(values.items()):
                echo(f"  {escape(variable)} is unset" if now is None else f"  {escape(variable)}={escape(now)}")
    for name, data in (("stdout", outcome.stdout), ("stderr", outcome.stderr)):
        if data:
            cut = f" (first {OUTPUT_SHOWN} of {len(data)} bytes)" if len(data) > OUTPUT_SHOWN else ""
            echo(f"{name}{cut}")
            echo("".join(f"  {line}" for line in block(data[:OUTPUT_SHOWN]).splitlines(keepends=True)).rstrip("\n"))


def _telling(path: str) -> tuple[bool, str]:
    """Order of paths for a person: those of the work before the many of the system that every program reads."""
    return path.startswith(SYSTEM), path


@click.command("why", epilog="\b\nExamples:\n  mulligan why a4\n  mulligan why /workspace/out.csv\n  mulligan why env:ALPHA")
@session_option
@click.argument("target", metavar="ACTION|PATH|KEY")
@json_option
@pass_caller
def why_command(caller: Caller, session: str | None, target: str, as_json: bool) -> None:
    """Say which earlier actions an action relied on, and by which keys; or what made a path or another key what it is.

    A key is KIND:NAME, such as dat:/workspace/a (a file's content) or out:a1 (an action's output); the README lists the kinds.
    An action "may hang on" another one by a mere hint: a rare word of that one's output stands in what it was given.
    """
    from mulligan.cli.jsonview import print_json  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import echo, escape  # noqa: PLC0415

    with caller.open(session) as opened:
        why = opened.why(target)
    if as_json:
        print_json(why.data)
    else:
        for line in why.lines:
            echo(escape(line))


@click.command("graph", epilog=example("mulligan graph --format dot | dot -Tsvg > graph.svg"))
@session_option
@click.option("--format", "form", type=click.Choice(["text", "dot", "mermaid", "json"]), default="text", show_default=True)
@json_option
@pass_caller
def graph_command(caller: Caller, session: str | None, form: str, as_json: bool) -> None:
    """Draw the graph of the session's actions: which relied on what another one wrote, and (dashed) by which hints it may."""
    from mulligan.cli.jsonview import print_json  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import block, echo  # noqa: PLC0415
    from mulligan.history import graph as drawing  # noqa: PLC0415

    with caller.open(session) as opened:
        graph = opened.graph()
    if as_json or form == "json":
        print_json(drawing.as_json(graph))
        return
    draw = {"text": drawing.text, "dot": drawing.dot, "mermaid": drawing.mermaid}[form]
    echo(block(draw(graph)).rstrip("\n"))


@click.command("diff", epilog="\b\nExamples:\n  mulligan diff a3       what a3 changed\n  mulligan diff a1 a3    from a1 to a3")
@session_option
@click.argument("a", metavar="[A", required=False)
@click.argument("b", metavar="[B]]", required=False)
@json_option
@pass_caller
def diff_command(caller: Caller, session: str | None, a: str | None, b: str | None, as_json: bool) -> None:
    """Show what action A changed, or how the state after B differs from the state after A.

    Without A: what the whole session changed since its start.
    """
    from mulligan.cli.jsonview import Json, print_json, put, put_bytes  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import echo  # noqa: PLC0415

    with caller.open(session) as opened:
        rows = [(row, _side(opened, row, row.old), _side(opened, row, row.new)) for row in opened.diff(a, b)]
    if not as_json:
        for row, old, new in rows:
            for line in _diff_lines(row, old, new):
                echo(line)
        return
    out = []
    for row, old, new in rows:
        one: Json = {}
        put(one, "path", row.path)
        one["what"] = row.what
        for key, node, content in (("old", row.old, old), ("new", row.new, new)):
            put_bytes(one, key, content)
            one[f"{key}_kind"] = node.kind if node else None
            one[f"{key}_mode"] = node.mode if node else None
        out.append(one)
    print_json(out)


def _side(session: Session, row: Difference, node: Node | None) -> bytes | None:
    """What a path holds on one side of a difference: a file's bytes, a symlink's target, None for anything else."""
    if node is None or row.what == "mode":
        return None
    if node.kind == "link":
        return raw_path(node.target)
    return session.read_node(node, row.path) if node.kind == "file" else None


_MARKS = {"added": "A", "removed": "D", "changed": "M", "mode": "P"}


def _diff_lines(row: Difference, old: bytes | None, new: bytes | None) -> Iterator[str]:
    from mulligan.cli.render import escape  # noqa: PLC0415 - not needed for --help

    modes = f" (mode {row.old.mode:04o} -> {row.new.mode:04o})" if row.what == "mode" and row.old and row.new else ""
    yield f"{_MARKS[row.what]} {escape(row.path)}{modes}"
    if old is None and new is None:
        return
    if "link" in {node.kind for node in (row.old, row.new) if node}:
        yield "  " + " -> ".join("-" if side is None else escape(side) for side in (old, new))
        return
    sides = [b"" if side is None else side for side in (old, new)]
    if any(b"\0" in side for side in sides):
        yield f"  binary: {len(sides[0])} bytes before, {len(sides[1])} after"
        return
    before, after = ([escape(line, keep="\t") for line in _lines(side)] for side in sides)
    for line in list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]:  # without the two lines of file names
        yield f"  {line}"


def _lines(data: bytes) -> list[bytes]:
    """The lines of a file, without their ends; a last line that has none is followed by a line that says so."""
    *lines, last = data.split(b"\n")
    return [*lines, last, b"\\ no newline at the end"] if last else lines


@click.command("cat", epilog=example("mulligan cat out.csv > out.csv"))
@session_option
@click.argument("path")
@json_option
@pass_caller
def cat_command(caller: Caller, session: str | None, path: str, as_json: bool) -> None:
    """Print the file PATH of the session's current state (from /workspace, if it is relative).

    Its exact bytes go to a pipe or a file; on a terminal what does not print is escaped.
    """
    from mulligan.cli.jsonview import Json, print_json, put, put_bytes  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import block, write_exactly, writing_out  # noqa: PLC0415

    where = _absolute(path)
    with caller.open(session) as opened:
        data = opened.files.read_bytes(where)
    if as_json:
        out: Json = {}
        put(out, "path", where)
        put_bytes(out, "content", data)
        print_json(out)
    elif sys.stdout.isatty():
        with writing_out():
            sys.stdout.write(block(data))
    else:
        with writing_out():
            write_exactly(data)


@click.command("ls", epilog=example("mulligan ls -l /workspace"))
@session_option
@click.argument("path", default=WORKSPACE)
@click.option("-l", "--long", is_flag=True, help="Also kind, mode and size.")
@json_option
@pass_caller
def ls_command(
    caller: Caller,
    session: str | None,
    path: str,
    long: bool,
    as_json: bool,
) -> None:
    """List the folder PATH of the session's current state (from /workspace, if it is relative)."""
    from mulligan.cli.jsonview import Json, print_json, put  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import echo, escape, table  # noqa: PLC0415

    where = _absolute(path)
    with caller.open(session) as opened:
        files = opened.files
        found = [(name, files.stat(join(where, name))) for name in sorted(files.list(where))]
    if as_json:
        out = []
        for name, entry in found:
            one: Json = {}
            put(one, "name", name)
            one.update(kind=entry.kind, mode=entry.mode, size=entry.size)
            put(one, "target", entry.target or None)
            out.append(one)
        print_json(out)
    elif long:
        rows = [
            (
                e.kind,
                f"{e.mode:04o}",
                "-" if e.kind == "dir" else str(e.size),
                n + (f" -> {e.target}" if e.kind == "link" else ""),
            )
            for n, e in found
        ]
        table(("KIND", "MODE", "SIZE", "NAME"), rows)
    else:
        for name, entry in found:
            echo(escape(name) + ("/" if entry.kind == "dir" else ""))


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"{WORKSPACE}/{path}"


@click.command("rollback", epilog=example("mulligan rollback a3"))
@session_option
@click.argument("action")
@json_option
@pass_caller
def rollback_command(caller: Caller, session: str | None, action: str, as_json: bool) -> None:
    """Make the state right after ACTION the session's current one; later actions leave its history."""
    from mulligan.cli.jsonview import print_json  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import echo, escape  # noqa: PLC0415

    with caller.open(session) as opened:
        opened.rollback(action, on_wait=lambda: say_waiting(opened.name))
        name, head = opened.name, str(opened.head)
    if as_json:
        print_json({"session": name, "action": action, "head": head})
    else:
        echo(f"session {escape(name)} stands right after {escape(action)}")


@click.command("branch", epilog=example("mulligan branch try-2 --at a3"))
@session_option
@click.argument("name")
@click.option("--at", metavar="ACTION", help="Branch from the state right after this action, not from the current one.")
@json_option
@pass_caller
def branch_command(caller: Caller, session: str | None, name: str, at: str | None, as_json: bool) -> None:
    """Make the session NAME from a state of this one; the two share history and then go their own ways."""
    from mulligan.cli.jsonview import print_json  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import echo, escape  # noqa: PLC0415

    with caller.open(session) as opened, opened.branch(name, at=at) as made:
        source, new, head = opened.name, made.name, str(made.head)
    if as_json:
        print_json({"session": new, "from": source, "at": at, "head": head})
    else:
        place = f" right after {escape(at)}" if at else ""
        echo(f"session {escape(new)} is branched from {escape(source)}{place}")
