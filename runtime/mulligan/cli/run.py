"""The commands that make history: `new` and `run`."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mulligan.cli.options import (
    DEFAULT_SESSION,
    Caller,
    example,
    folder_pair,
    json_option,
    pairs,
    pass_caller,
    session_option,
)
from mulligan.cli.progress import Progress, say_waiting
from mulligan.errors import AlreadyExistsError, NotFoundError, UsageError

if TYPE_CHECKING:
    from mulligan.model.record import Record
    from mulligan.session import Session


@click.command(
    "new", epilog=example("mulligan new invoices --import ./project:/workspace --env TZ=UTC"), short_help="Make a session."
)
@click.argument("name")
@click.option(
    "--base", default="host", show_default=True, metavar="host|DIR", help="This machine's system folders, or a root folder."
)
@click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="DIR[:GUEST]",
    help="Copy a host folder into the session, at /workspace unless GUEST is given. Repeatable.",
)
@click.option("--env", multiple=True, metavar="K=V", help="Set a variable for every action. Repeatable.")
@click.option("--engine", type=click.Choice(["native"]), default="native", show_default=True, help="What runs actions.")
@click.option("--net", type=click.Choice(["none"]), default="none", show_default=True, help="What actions can reach.")
@json_option
@pass_caller
def new_command(  # noqa: PLR0917 - one parameter per option, as click passes them
    caller: Caller,
    name: str,
    base: str,
    imports: tuple[str, ...],
    env: tuple[str, ...],
    engine: str,
    net: str,
    as_json: bool,
) -> None:
    """Make the session NAME over a base, with folders of the host copied into it.

    The host's folders are never changed: `mulligan commit` writes results back when you want them.
    """
    from mulligan.session import Session  # noqa: PLC0415 - not needed for --help

    folders: dict[str, str] = {}
    for one in imports:
        host, guest = folder_pair(one)
        if host in folders:
            raise UsageError(f"--import names the folder {host!r} twice")
        folders[host] = guest
    what = f"importing {', '.join(folders)}" if folders else "preparing the base"
    with (
        Progress(f"session {name}: {what}") as progress,
        Session.create(
            name,
            base=base,
            imports=folders,
            env=pairs(env, "--env"),
            home=caller.home,
            environ=caller.environ,
            progress=progress.tell,
        ) as session,
    ):
        _tell_new(session, folders, engine, net, as_json=as_json)


def _tell_new(session: Session, folders: dict[str, str], engine: str, net: str, *, as_json: bool) -> None:
    from mulligan.cli.jsonview import Json, print_json, put  # noqa: PLC0415 - not needed for --help
    from mulligan.cli.render import echo, escape  # noqa: PLC0415

    if not as_json:
        echo(f"session {escape(session.name)} is ready")
        for host, guest in folders.items():
            echo(f"  {escape(host)} was copied to {escape(guest)}")
        return
    copied = []
    for host, guest in folders.items():
        row: Json = {}
        put(row, "host", host)
        put(row, "guest", guest)
        copied.append(row)
    print_json({"session": session.name, "imports": copied, "engine": engine, "net": net})


@click.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    epilog="\b\nExamples:\n  mulligan run -c 'python3 clean.py > out.csv'\n  mulligan run -s job --timeout 60 -- make -j2",
)
@session_option
@click.option("--cwd", metavar="DIR", help="Working directory; else the one the last action left, at first /workspace.")
@click.option("--env", multiple=True, metavar="K=V", help="Set a variable for this action. Repeatable.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Kill the action and all its processes after this time.")
@click.option("--label", "labels", multiple=True, metavar="L", help="A word to find the action by. Repeatable.")
@click.option(
    "--reads",
    multiple=True,
    metavar="KEY",
    help="Declare an input no trace shows, as KIND:NAME (out:a1.status). Repeatable.",
)
@click.option("--writes", multiple=True, metavar="KEY", help="Declare an output, as KIND:NAME. Repeatable.")
@click.option("-n", "--no-stdin", is_flag=True, help="Give the action an empty stdin instead of this command's.")
@click.option("-c", "shell", metavar="TEXT", help="Shell text; its exports and working directory pass on to the next.")
@json_option
@click.argument("argv", nargs=-1, metavar="[-- ARGV...]")
@pass_caller
def run_command(  # noqa: PLR0917 - one parameter per option, as click passes them
    caller: Caller,
    session: str | None,
    cwd: str | None,
    env: tuple[str, ...],
    timeout: float | None,
    labels: tuple[str, ...],
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    no_stdin: bool,
    shell: str | None,
    as_json: bool,
    argv: tuple[str, ...],
) -> int:
    """Run one action in the session's sandbox and record it: shell text with -c, else ARGV.

    Its output and exit status are passed on as they are (128 + number for a signal). What is piped in becomes its stdin.
    The session "default" is made on first use, with the current folder copied to /workspace.
    """
    from mulligan.cli.jsonview import run_json  # noqa: PLC0415 - not needed for --help

    if (shell is None) == (not argv):
        raise UsageError("say what to run: either -c TEXT or -- ARGV..., not both", remedy="see `mulligan run --help`")
    if timeout is not None and not timeout > 0:
        raise UsageError(f"--timeout {timeout:g} is not a time to wait; give seconds above 0")
    variables = pairs(env, "--env")
    stdout, stderr = Passing(error=False), Passing(error=True)
    stdin = b"" if no_stdin else _stdin()
    with _open_or_begin(caller, session) as opened:
        record = opened.run(
            list(argv) if shell is None else shell,
            cwd=cwd,
            env=variables,
            stdin=stdin,
            timeout=timeout,
            labels=labels,
            reads=reads,
            writes=writes,
            on_wait=lambda: say_waiting(opened.name),
            on_stdout=None if as_json else stdout,
            on_stderr=None if as_json else stderr,
        )
        if as_json:
            caller.print_json(run_json(record, opened.name))
        else:
            stdout.finish(record.outcome.stdout)
            stderr.finish(record.outcome.stderr)
            _tell_run(record)
    return record.outcome.shell_status


class Passing:
    """Passes an action's output on as it comes, byte by byte. A reader that has left must not disturb the action."""

    def __init__(self, *, error: bool) -> None:
        self._error = error
        self._gone = False
        self._passed = 0

    def __call__(self, data: bytes) -> None:
        """Pass some bytes on."""
        from mulligan.cli.render import write_exactly  # noqa: PLC0415 - not needed for --help

        self._passed += len(data)
        if self._gone:
            return
        try:
            write_exactly(data, error=self._error)
        except OSError as error:
            self._gone = True
            self._say_gone(error)

    def _say_gone(self, error: OSError) -> None:
        name = "stderr" if self._error else "stdout"
        why = "nobody reads it any more" if isinstance(error, BrokenPipeError) else error.strerror
        with suppress(OSError):  # it may be stderr itself that is gone
            sys.stderr.write(f"mulligan: {name}: {why}; the action runs on and is recorded (Ctrl-C ends it)\n")
            sys.stderr.flush()

    def finish(self, recorded: bytes) -> None:
        """Pass on what was recorded beyond what came while the action ran: why a program could not be started."""
        if len(recorded) > self._passed:
            self(recorded[self._passed :])


def _stdin() -> bytes:
    """What was piped in; nothing on a terminal, where waiting for it would look like hanging."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return b""
    with Progress("reading stdin for the action (-n gives it none)"):
        return sys.stdin.buffer.read()


def _open_or_begin(caller: Caller, name: str | None) -> Session:
    """The session asked for; the default one is made on first use."""
    from mulligan.cli.render import escape  # noqa: PLC0415
    from mulligan.session import Session  # noqa: PLC0415 - not needed for --help

    chosen = name or caller.session or DEFAULT_SESSION
    try:
        opened = Session.open(chosen, home=caller.home)
    except NotFoundError:
        if chosen != DEFAULT_SESSION:
            raise
    else:
        if not name and not caller.session:
            _tell_other_folder(opened)
        return opened
    here = Path.cwd()
    if here == Path("/") or (caller.user_home is not None and here.resolve() == caller.user_home.resolve()):
        raise UsageError(
            f'the session "default" would copy all of {here} on its first use',
            remedy="change to a project folder, or choose what to copy: mulligan new default --import DIR",
        )
    try:
        with Progress(f"session {DEFAULT_SESSION}: importing {here}"):
            imports = {str(here): "/workspace"}
            made = Session.create(DEFAULT_SESSION, imports=imports, home=caller.home, environ=caller.environ)
        sys.stderr.write(f"mulligan: session {DEFAULT_SESSION} is made; {escape(str(here))} was copied to /workspace\n")
        return made
    except AlreadyExistsError:  # another process was quicker
        return Session.open(DEFAULT_SESSION, home=caller.home)


def _tell_other_folder(opened: Session) -> None:
    """Say that the session nobody named holds another folder than the one this command was given in."""
    from mulligan.cli.render import escape  # noqa: PLC0415 - not needed for --help

    imported = [Path(folder) for folder in opened.imports]
    try:
        here = Path.cwd().resolve()
    except OSError:  # the folder this command was given in is gone
        return
    if imported and not any(here.is_relative_to(folder) for folder in imported):
        named = ", ".join(escape(str(folder)) for folder in imported)
        sys.stderr.write(f"mulligan: session {opened.name} holds a copy of {named}, not of this folder; name another with -s\n")


def _tell_run(record: Record) -> None:
    from mulligan.cli.render import escape  # noqa: PLC0415 - not needed for --help

    outcome = record.outcome
    notes = []
    if outcome.timed_out:
        notes.append("stopped at its time limit")
    if outcome.oom_killed:
        notes.append("killed for lack of memory")
    if outcome.stdout_truncated or outcome.stderr_truncated:
        notes.append("its output was cut at the size limit")
    if outcome.killed_at_end:
        notes.append(f"processes that outlived it were killed: {', '.join(map(escape, outcome.killed_at_end))}")
    for note in notes:
        sys.stderr.write(f"mulligan: {record.id}: {note}\n")
    sys.stderr.flush()
