"""The `mulligan` command: the list of its commands, and how every failure becomes one sentence and an exit status.

Knows the commands by name only: a command's module is imported when that command runs, so that `mulligan run` does not
pay for graphs and tables. Must not know how any command works.
"""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mulligan.cli.options import Caller
from mulligan.cli.render import echo, writing_out
from mulligan.errors import (
    DiskFullError,
    HostError,
    InternalError,
    InterruptedRunError,
    MulliganError,
    StoreError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

BROKEN_PIPE = 128 + signal.SIGPIPE  # what a shell gives for a program that the closed pipe had killed

# name -> (module, one line for the overview); the order is the order of the help.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo", "A real multi-step job, a wrong step, the repair, in under a minute."),
    "new": ("run", "Make a session."),
    "run": ("run", "Run one action in a session's sandbox and record it."),
    "log": ("history", "List the actions of a session."),
    "show": ("history", "Show all that is recorded of one action."),
    "why": ("history", "Say what an action, a path or a variable came from."),
    "graph": ("history", "Draw which action relied on which, and by which path."),
    "diff": ("history", "Show what an action changed, or how two states differ."),
    "cat": ("history", "Print a file of the session's current state."),
    "ls": ("history", "List a folder of the session's current state."),
    "rollback": ("history", "Go back to the state right after an action."),
    "branch": ("history", "Start another session from a state of this one."),
    "merge": ("merge", "Put what another branch did after what this session did."),
    "repair": ("repair", "Correct a wrong action and run again only what depended on it."),
    "commit": ("host", "Write the session's result to a folder of the host."),
    "ps": ("host", "List the sessions of the store."),
    "rm": ("host", "Remove a session."),
    "gc": ("host", "Free the space of layers that no session needs."),
    "doctor": ("host", "Say what this machine offers, and what to change where something is missing."),
}


class Commands(click.Group):
    """A group that imports a command's module only when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command of this name, imported now; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mulligan.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """The overview of commands, written without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import

        try:
            number = version("mulligan")
        except PackageNotFoundError:
            number = "(run from its source tree)"
        echo(f"mulligan {number}")
        ctx.exit(0)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExample:\n  mulligan new job --import ./project && mulligan run -s job -c 'make'",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version and leave."
)
@click.pass_context
def mulligan(ctx: click.Context) -> None:
    """Run actions in sandboxes that remember what they relied on, and repair history when one was wrong.

    The store of sessions is $MULLIGAN_HOME, or a folder of your own. -s defaults to $MULLIGAN_SESSION, then "default".
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run the command line and return its exit status; every failure is one sentence on stderr."""
    caller = Caller.of(os.environ if environ is None else environ)
    try:
        status: Any = mulligan.main(
            args=None if argv is None else list(argv), prog_name="mulligan", standalone_mode=False, obj=caller
        )
        with writing_out():
            sys.stdout.flush()
    except MulliganError as error:
        return _fail(error, caller)
    except click.UsageError as error:
        return _fail(UsageError(_one_line(error), remedy=_help_hint(error, sys.argv[1:] if argv is None else argv)), caller)
    except click.ClickException as error:
        return _fail(UsageError(error.format_message()), caller)
    except (KeyboardInterrupt, click.Abort):
        return _fail(InterruptedRunError("interrupted; nothing of the unfinished work was kept"), caller)
    except BrokenPipeError:
        _give_up_stdout()  # whoever read our output has left
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the one place where anything unforeseen becomes an exit status
        return _fail(_unforeseen(error, caller), caller)
    return status if isinstance(status, int) else 0


def _give_up_stdout() -> None:
    """Let what is still buffered go nowhere: the interpreter's own flush at exit would complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_standard_streams() -> None:
    """Open those of the three that the caller closed (`>&-`), so that no file of ours takes their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def entry() -> None:
    """The console script."""
    _open_standard_streams()
    _interrupt_on_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a locale without some letter must not end a command
    sys.exit(main())


def _interrupt_on_signals() -> None:
    """Make SIGTERM and SIGHUP end a command the way Ctrl-C does, so that nothing is left behind."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for one in (signal.SIGTERM, signal.SIGHUP):
        try:
            if signal.getsignal(one) is signal.SIG_DFL:  # under nohup SIGHUP is ignored, and stays so
                signal.signal(one, interrupt)
        except ValueError:  # not the main thread: somebody embeds us, signals are theirs
            return


def _of_the_host(error: OSError, caller: Caller) -> MulliganError | None:
    """What the host did to the folder the command was given in, or to the store behind our back; None for anything else."""
    from mulligan.history.store import default_home  # noqa: PLC0415 - on failure only

    try:
        os.getcwd()
    except FileNotFoundError:
        return UsageError("the current folder is gone", remedy="change to one that is there")
    home = caller.home or default_home(caller.environ)
    if not isinstance(error.filename, str) or not Path(error.filename).is_relative_to(home):
        return None
    what = f"use store {home}: {error.filename}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return StoreError(what, remedy="something removed it: restore the store from a copy, or set MULLIGAN_HOME")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return HostError(what, remedy="make the store writable for this user, or set MULLIGAN_HOME")
    return None


def _unforeseen(error: Exception, caller: Caller) -> MulliganError:
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        where = f" at {error.filename}" if error.filename else ""
        return DiskFullError(f"no space left{where}", remedy="free some space or set MULLIGAN_HOME to another disk")
    known = _of_the_host(error, caller) if isinstance(error, OSError) else None
    if known is not None:
        return known
    if os.environ.get("MULLIGAN_DEBUG"):
        import traceback  # noqa: PLC0415 - on failure only

        traceback.print_exception(error)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return InternalError(
        f"internal error: {what}", remedy="this is a bug in Mulligan; with MULLIGAN_DEBUG=1 set it prints where"
    )


def _one_line(error: click.UsageError) -> str:
    return " ".join(error.format_message().split()).rstrip(".")


def _help_hint(error: click.UsageError, argv: Sequence[str]) -> str:
    path = error.ctx.command_path if error.ctx is not None else "mulligan"
    if path == "mulligan" and argv and argv[0] in COMMANDS:  # click's parser does not say whose options it could not read
        path = f"mulligan {argv[0]}"
    return f"see `{path} --help`"


def _fail(error: MulliganError, caller: Caller) -> int:
    """Print the failure, as one sentence on stderr and, with --json, as an object on stdout; return its exit status."""
    from mulligan.cli.render import escape  # noqa: PLC0415 - on failure only

    with suppress(OSError):  # nobody is left to read it; the status still tells
        sys.stderr.write(f"mulligan: {escape(str(error))}\n")
        sys.stderr.flush()
    try:
        if caller.owes_json:
            told = {
                "error": {
                    "kind": type(error).__name__,
                    "message": escape(error.message),
                    "remedy": escape(error.remedy),
                    "exit_code": error.exit_code,
                }
            }
            print(json.dumps(told))
        sys.stdout.flush()
    except OSError:
        _give_up_stdout()
    return error.exit_code


if __name__ == "__main__":
    entry()
