"""Reads of variables, decided lazily: whether a recorded action may have used a variable that differs now.

Knows records, trees, and the files that an action read, as they lie in layers and on the host. Every action is launched with
every exported variable and uses few of them. A program that uses one without computing its name has the name in something
that it read: its arguments, its input, its script, its configuration, its binary or a library, and the store still has those
bytes. So a variable is an input of an action when its name stands in such a place, or when the action may have listed all
variables or put names together. In doubt it is an input: the action then runs again without need, and is never kept wrongly.

What a program writes, runs and removes again within one action can't be looked at any more; that it is made from what the
action read is relied on.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from mulligan.errors import MulliganError
from mulligan.model.ids import raw_path
from mulligan.model.listings import text_lists_variables
from mulligan.sandbox.mentions import Names, lists_all, mentions, opened_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mulligan.model.ids import LayerId
    from mulligan.model.record import Record
    from mulligan.model.tree import Tree
    from mulligan.sandbox.base import Base
    from mulligan.sandbox.layer import LayerStore

    Version = tuple[object, ...]

MOST_ANSWERS: Final = 500_000  # kept at once; some 100 MB
# Used by the tracer's own search, by the loader and by shells, which have some of them only as the tail of a longer name; and
# names that programs are known to look for by their beginning or their end.
ALWAYS_READ: Final = re.compile(
    r"PATH|HOME|IFS|ENV|PWD|OLDPWD|BASH_\w+|SHELLOPTS|BASHOPTS|UID|RANDOM|SECONDS|LINENO|EMACS|TZ|LANG|LANGUAGE|LC_\w+|LD_\w+"
    r"|PYTHON\w+|PIP_\w+|CARGO_\w+|GIT_CONFIG_\w+|TF_\w+|(?i:npm_config_\w+|\w+_proxy)"
)
_FUNCTION: Final = b"() {"  # how bash exports one
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Read by the loader and the C library in every program: names of libraries, characters and zones.
_DATA_OF_LIBC: Final = re.compile(
    r"/etc/ld\.so\.cache|/usr/(?:lib|share)/(?:locale|zoneinfo)/.*|.*/gconv/gconv-modules\.cache|/etc/passwd"
)


class EnvReads:
    """Answers for the actions of one session's layers and base, each file looked at once for each name."""

    def __init__(self, base: Base, layers: LayerStore) -> None:
        self._base = base
        self._layers = layers
        self._answers: dict[tuple[Version, str], bool] = {}  # "" for a name: whether it may list variables
        self._records: dict[tuple[object, ...], bool] = {}

    def reads(self, record: Record, name: str, recorded: Tree) -> bool:
        """Whether the action, which saw the state `recorded`, may have used the variable."""
        key = (record.layer.id, record.id, record.revision, record.outcome.started_ns, name)
        if key not in self._records:
            if len(self._records) >= MOST_ANSWERS:
                self._records.clear()
            self._records[key] = self._reads(record, name, recorded)
        return self._records[key]

    def _reads(self, record: Record, name: str, recorded: Tree) -> bool:
        footprint = record.footprint
        if not footprint.complete or footprint.lists_env or ALWAYS_READ.fullmatch(name) or not _PLAIN.fullmatch(name):
            return True
        names = Names(name)
        if names.in_text("\0".join(footprint.words).encode()) or self._told(record, names):
            return True
        return any(self._file_reads(version, path, names) for version, path in self._files(record, recorded))

    @staticmethod
    def _told(record: Record, names: Names) -> bool:
        """Whether what the action was given as text mentions the variable, or may list them."""
        action = record.action
        values = [raw_path(value) for value in {**record.launch.env, **action.env}.values()]
        if any(names.in_text(value) for value in values):  # PS4, MAKEFLAGS, an exported function: other variables may use it
            return True
        texts = [*map(raw_path, action.argv), raw_path(action.shell or ""), action.stdin, raw_path(action.cwd or "")]
        texts += [value for value in values if value.startswith(_FUNCTION)]
        return any(names.in_text(text) or text_lists_variables(text) for text in texts if text)

    def _files(self, record: Record, recorded: Tree) -> Iterator[tuple[Version | None, str]]:
        """The files that the action read, and those it wrote, which it may have read too, each with its version."""
        footprint = record.footprint
        for path in sorted(footprint.saw | footprint.executed):
            node = recorded.get(path)
            if node is None:
                yield self._host_version(path), path
            elif node.kind == "file" and not _DATA_OF_LIBC.fullmatch(path):
                yield (node.provider, path), path
        for path, entry in sorted(record.layer.manifest.entries.items()):
            if entry.kind == "file" and not entry.inherit_content:
                yield (record.layer.id, path), path

    def _host_version(self, path: str) -> Version | None:
        """A file of the host's own folders: by its path there, time, size and inode. None: there is no such file any more."""
        found = self._base.bound(path)
        if found is None:
            return None
        try:
            status = os.stat(found[1])
        except OSError:
            return None
        return "", found[1], status.st_mtime_ns, status.st_size, status.st_ino

    def _file_reads(self, version: Version | None, path: str, names: Names) -> bool:
        if version is None:
            return True
        if version[0] == "" and _DATA_OF_LIBC.fullmatch(path):
            return False
        return self._answer(version, path, None) or self._answer(version, path, names)

    def _answer(self, version: Version, path: str, names: Names | None) -> bool:
        key = (version, names.name if names is not None else "")
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            answer = self._answers[key] = self._look(version, path, names)
        return answer

    def _look(self, version: Version, path: str, names: Names | None) -> bool:
        of_host = version[0] == ""
        try:
            if of_host:
                with open(str(version[1]), "rb", buffering=0) as file:
                    return lists_all(file, path, of_host=True) if names is None else mentions(file, path, names, of_host=True)
            layer: LayerId = version[0]  # type: ignore[assignment]
            with self._layers.opened(layer, path) as fd, opened_file(fd) as file:
                return lists_all(file, path, of_host=False) if names is None else mentions(file, path, names, of_host=False)
        except (OSError, MulliganError):
            return True
