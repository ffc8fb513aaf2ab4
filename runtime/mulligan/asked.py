"""What a caller asks for: checked before anything runs, and put into the form in which it is recorded.

Knows keys, parts of files, paths, policies and changes. Must not know sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from posixpath import normpath
from typing import TYPE_CHECKING, Any, Final

from mulligan.errors import UsageError
from mulligan.model.change import Change, Patch, Replace
from mulligan.model.ids import shown
from mulligan.model.keys import DIR, OUT, PATH_KINDS, parse_key
from mulligan.model.outputs import check_out
from mulligan.model.part import split_part, whole_of
from mulligan.model.policy import Equivalence
from mulligan.repair.refiners import check_part
from mulligan.states import absolute

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mulligan.model.policy import Policy
    from mulligan.model.record import Record

LONGEST_TIMEOUT_S = 366 * 24 * 3600

_POLICY_CHOICES: Final[Mapping[str, Sequence[object]]] = {
    "level": range(5),
    "granularity": ("action", "group", "session"),
    "env_reads": ("lazy", "launch"),
    "jobs": range(257),
}


class ActionFailedError(UsageError):
    """An action that was run with `check=True` did not exit with status 0. `record` has its whole story."""

    def __init__(self, record: Record) -> None:
        how = record.outcome.signal or f"exit code {record.exit_code}"
        super().__init__(f"action {record.id} ({shown(record.action.text)!r}) ended with {how}")
        self.record = record


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


def check_surroundings(cwd: object, stdin: object, timeout: object) -> None:
    """Refuse a folder, an input or a time to wait that an action can't be given."""
    if cwd is not None and (not isinstance(cwd, str) or "\0" in cwd):
        raise UsageError(f"cwd {cwd!r}: it is no folder of the state", remedy="give a path as str")
    if not isinstance(stdin, bytes):
        raise UsageError(f"stdin {type(stdin).__name__}: it is no bytes", remedy="give bytes, as by text.encode()")
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= LONGEST_TIMEOUT_S:
        raise UsageError(f"timeout {timeout!r}: it is no time to wait", remedy="give seconds above 0, at most a year of them")


def check_lists(**lists: Sequence[str]) -> None:
    """Refuse a text where a list of texts is meant, and what is no text in such a list."""
    for name, words in lists.items():
        if isinstance(words, str):
            raise UsageError(f"{name} {words!r}: a list is wanted", remedy=f"give {name}=[{words!r}]")
        given: Sequence[object] = words
        for word in given:
            if not isinstance(word, str) or "\0" in word:
                raise UsageError(f"{name} {word!r}: it is no text without NUL bytes")


def check_policy(policy: Policy) -> None:
    """Refuse a policy whose choices do not exist, which would be taken for some other one."""
    for name, choices in _POLICY_CHOICES.items():
        value = getattr(policy, name, None)
        if value not in choices or isinstance(value, bool):
            raise UsageError(f"policy {name}={value!r}: there is no such choice", remedy=_choices(choices))
    given: object = policy.equivalences
    for one in given if isinstance(given, (tuple, list)) else (given,):
        if not isinstance(one, Equivalence):
            raise UsageError(f"policy equivalences: {one!r} is no Equivalence", remedy="give a tuple of mulligan.Equivalence")


def _choices(choices: Sequence[object]) -> str:
    if isinstance(choices, range):
        return f"take a number from {choices[0]} to {choices[-1]}"
    return f"take one of {', '.join(map(str, choices))}"


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
        path = key.name if part is None else part.path
        if key.kind in {*PATH_KINDS, DIR} and (not path.startswith("/") or path != normpath(path)):
            raise UsageError(f"declare {text!r}: {path!r} is not an absolute path without . and ..")
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
    """What `why` is asked of: a key, or the absolute path of a path, of a path's key or of a part of a file."""
    with suppress(ValueError):
        key = whole_of(parse_key(target))
        if key.kind not in (*PATH_KINDS, DIR):
            return target
        if key.name.startswith("/"):
            return key.name
    return absolute(target)


def placed(change: Change) -> Change:
    """The change with the path of a patch made absolute. Refuses what is no change, and a command that no program can be."""
    given: object = change
    if not isinstance(given, Change):
        raise UsageError(f"repair by {given!r}: it is no change", remedy="give Replace, Drop, Rerun or Patch")
    if isinstance(change, Replace):
        texts: object = change.action
        if isinstance(texts, bytes) or not isinstance(texts, Sequence):
            raise UsageError(f"replace by {texts!r}: it is no command", remedy="give shell text or a list of arguments")
        check_texts(change.action, {})
    if isinstance(change, Patch):
        key_and_value: tuple[object, object] = (change.key, change.value)
        if not isinstance(key_and_value[0], str) or not isinstance(key_and_value[1], bytes):
            raise UsageError(f"patch {change.key!r}: its path is a str, its value is bytes")
    if isinstance(change, Patch) and not change.key.startswith("dat:"):
        return replace(change, key=absolute(change.key))
    return change
