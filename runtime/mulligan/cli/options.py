"""What every command shares: who calls (store, session, terminal), and the options -s and --json.

Knows the environment's names and click. Opens sessions; must not know what commands do with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mulligan.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mulligan.session import Session

DEFAULT_SESSION = "default"

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass
class Caller:
    """Who called: `home` is the store's folder (None: the default one), `session` the one that was chosen by the environment.

    `owes_json` says that one JSON value is still to come on stdout: a failure is then told there, too. --json sets it
    while options are read and the answer clears it, so this one is not frozen.
    """

    environ: Mapping[str, str]
    home: Path | None
    session: str | None
    user_home: Path | None
    owes_json: bool = False

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Caller:
        """The caller that this environment describes."""
        home, user_home = environ.get("MULLIGAN_HOME"), environ.get("HOME")
        return cls(
            environ=environ,
            home=Path(home).expanduser().absolute() if home else None,
            session=environ.get("MULLIGAN_SESSION") or None,
            user_home=Path(user_home) if user_home else None,
        )

    def print_json(self, value: object) -> None:
        """Print the one JSON value of this command."""
        from mulligan.cli.jsonview import print_json  # noqa: PLC0415 - only with --json

        print_json(value)
        self.owes_json = False

    def open(self, name: str | None) -> Session:
        """The session of this name, else of $MULLIGAN_SESSION, else the default one. NotFoundError if there is none."""
        from mulligan.session import Session  # noqa: PLC0415 - not needed for --help

        chosen = name or self.session
        if chosen:
            return Session.open(chosen, home=self.home)
        try:
            return Session.open(DEFAULT_SESSION, home=self.home)
        except NotFoundError as error:
            remedy = "; ".join(filter(None, (error.remedy, "name one with -s or $MULLIGAN_SESSION")))
            raise NotFoundError(error.message, remedy=remedy) from error


pass_caller = click.make_pass_decorator(Caller)


def session_option(command: F) -> F:
    """Add -s / --session, passed as `session`."""
    return click.option(
        "-s",
        "--session",
        metavar="NAME",
        default=None,
        help='The session; else $MULLIGAN_SESSION, else "default".',
    )(command)


def json_option(command: F) -> F:
    """Add --json, passed as `as_json`, and noted on the caller."""

    def note(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
        ctx.ensure_object(Caller).owes_json = value
        return value

    return click.option("--json", "as_json", is_flag=True, is_eager=True, callback=note, help="Print JSON instead of text.")(
        command
    )


def example(text: str) -> str:
    """The epilog of a command's help."""
    return f"\b\nExample:\n  {text}"


def pairs(values: tuple[str, ...], option: str) -> dict[str, str]:
    """The mapping that NAME=VALUE arguments give."""
    out = {}
    for one in values:
        name, sep, value = one.partition("=")
        if not sep or not name or "\0" in one:
            raise UsageError(f"{option} {one!r} is not of the form NAME=VALUE")
        out[name] = value
    return out


def folder_pair(text: str) -> tuple[str, str]:
    """Host folder and guest folder of `DIR[:/guest]`; a host folder with `:/` in its own name wins."""
    head, sep, tail = text.rpartition(":/")
    if sep and head and not Path(text).is_dir():
        return head, f"/{tail}"
    return text, "/workspace"
