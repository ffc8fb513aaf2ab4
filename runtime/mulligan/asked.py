"""What a caller asks for: checked before anything runs, and put into the form in which it is recorded.

Knows keys, parts of files, paths and changes. Must not know sessions.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mulligan.errors import UsageError
from mulligan.model.change import Patch
from mulligan.model.keys import DIR, OUT, PATH_KINDS, parse_key
from mulligan.model.outputs import check_out
from mulligan.model.part import split_part
from mulligan.repair.refiners import check_part
from mulligan.states import absolute

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mulligan.model.change import Change


def check_texts(command: str | Sequence[str], env: Mapping[str, str]) -> None:
    """Refuse what no program can be given, before anything runs."""
    for name in env:
        if not name or "=" in name:
            raise UsageError(f"env {name!r}: no variable can have this name")
    given: list[object] = [command] if isinstance(command, str) else [*command]
    for text in (*given, *env, *env.values()):
        if not isinstance(text, str):
            raise UsageError(f"run with {text!r}: it is no text", remedy="give arguments and variables as str")
        if "\0" in text:
            raise UsageError(f"run with {text!r}: it holds a NUL byte, which no program can be given")


def check_lists(**lists: Sequence[str]) -> None:
    """Refuse a text where a list of texts is meant."""
    for name, words in lists.items():
        if isinstance(words, str):
            raise UsageError(f"{name} {words!r}: a list is wanted", remedy=f"give {name}=[{words!r}]")


def check_keys(keys: Iterable[str], *, written: bool = False) -> None:
    """Refuse a declared key that could not be read again when the action is repaired."""
    for text in keys:
        try:
            key = parse_key(text)
            if key.kind == OUT:
                check_out(key.name)
        except ValueError as error:
            raise UsageError(f"declare {text!r}: {error}") from error
        part = split_part(key)
        if part is not None and not written:
            check_part(part)
        if written and key.kind == OUT:
            raise UsageError(f"declare {text!r} as written: an action's output is its own, and needs no declaration")


def command_of(command: str | Sequence[str]) -> dict[str, Any]:
    """What of an Action the command is."""
    if isinstance(command, str):
        return {"shell": command}
    if not command:
        raise UsageError("run an empty command: there is nothing to run", remedy="give a program and its arguments")
    return {"argv": tuple(command)}


def placed_target(target: str) -> str:
    """What `why` is asked of: a variable's key, or the absolute path of a path or of a path's key."""
    with suppress(ValueError):
        key = parse_key(target)
        if key.kind not in (*PATH_KINDS, DIR):
            return target
        if key.name.startswith("/"):
            return key.name
    return absolute(target)


def placed(change: Change) -> Change:
    """The change with the path of a patch made absolute."""
    if isinstance(change, Patch) and not change.key.startswith("dat:"):
        return replace(change, key=absolute(change.key))
    return change
