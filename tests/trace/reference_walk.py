"""The reference tracer's own way through names, after path_resolution(7): which object a path leads to, and what it passed.

Knows a task's id and the file system in which both stand (one root, one /proc). Shares nothing with the native walk: it asks
lstat(2) for one component after the other, remembers nothing, and is as slow as that.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_LINKS: Final = 40
AT_FDCWD: Final = -100

OBJECT, ABSENT, NAMELESS, NOTHING = "object", "absent", "nameless", "nothing"


class Found(NamedTuple):
    """Where a path leads: to an object, to a name that is free, to an object without a name, or nowhere."""

    what: str
    path: str = ""
    mode: int = 0

    @property
    def folder(self) -> bool:
        """Whether it is a folder that has a name."""
        return self.what == OBJECT and stat.S_ISDIR(self.mode)


NOWHERE: Final = Found(NOTHING)


def thread_group(tid: int) -> int:
    """The process that a task belongs to."""
    for line in Path(f"/proc/{tid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Tgid:"):
            return int(line.split()[1])
    raise ProcessLookupError(tid)


def object_at(link: str) -> Found:
    """What a link of /proc stands for, by the name that the kernel gives it, if that is the name of the object still."""
    try:
        text, status = os.readlink(link), os.stat(link)
    except OSError:
        return NOWHERE
    if text.startswith("/"):
        with suppress(OSError):
            named = os.lstat(text)
            if (named.st_dev, named.st_ino) == (status.st_dev, status.st_ino):
                return Found(OBJECT, text, status.st_mode)
    return Found(NAMELESS, "", status.st_mode)


def base_of(tid: int, fd: int) -> Found:
    """Where a relative path begins: a descriptor's folder, or the working directory."""
    return object_at(f"/proc/{tid}/cwd" if fd == AT_FDCWD else f"/proc/{tid}/fd/{fd}")


class Walk:
    """One lookup. `say(kind, path)` is told of every link passed and folder left, the first missing name, what is no folder."""

    def __init__(self, tid: int, say: Callable[[str, str], None], *, top: str = "") -> None:
        self._tid = tid
        self._say = say
        self._top = top  # "" is the root; `..` leads no higher
        self._links = 0

    def go(self, base: str, path: str, *, follow: bool) -> Found:
        """The object of a path from the folder `base` (absolute and physical)."""
        at = self._top if path.startswith("/") else base.rstrip("/")
        todo = path.split("/")
        while todo:
            name = todo.pop(0)
            if name in ("", "."):
                continue
            if name == "..":
                if at != self._top:
                    self._say("PROBE", at)  # it had to be a folder
                at = at if at == self._top else os.path.dirname(at).rstrip("/")
                continue
            last = not any(todo)
            through = bool(todo) or follow  # a slash after it forces it to be a folder
            found = self._look(at, name, last=last)
            if found.what != OBJECT:
                return found
            if stat.S_ISLNK(found.mode) and through:
                step = self._pass(at, found.path, todo, last=last)
                if isinstance(step, Found):
                    return step
                at = step
            elif stat.S_ISDIR(found.mode):
                at = found.path
            elif todo:
                self._say("PROBE", found.path)
                return NOWHERE
            else:
                return found
        return Found(OBJECT, at or "/", stat.S_IFDIR)

    def _look(self, at: str, name: str, *, last: bool) -> Found:
        path = f"{at}/{name}"
        if path == "/proc/self":
            path = f"/proc/{thread_group(self._tid)}"
        elif path == "/proc/thread-self":
            path = f"/proc/{thread_group(self._tid)}/task/{self._tid}"
        try:
            return Found(OBJECT, path, os.lstat(path).st_mode)
        except FileNotFoundError:
            self._say("MISSED", path)
            return Found(ABSENT, path) if last else NOWHERE
        except OSError:  # not a folder, not to be passed, or a name that is too long for it
            self._say("PROBE", at or "/")
            return NOWHERE

    def _pass(self, at: str, link: str, todo: list[str], *, last: bool) -> Found | str:
        """Follow a link: puts its target before what is to do and gives the new place, or the end of the walk."""
        self._links += 1
        if self._links > MOST_LINKS:
            return NOWHERE
        self._say("LINK", link)
        target = os.readlink(link)
        if link.startswith("/proc/") and link.count("/") > 2:  # a magic one: it leads to an object, not to a text
            found = object_at(link)
            if found.folder:
                return found.path.rstrip("/")
            if last and not todo:
                return found
            if found.what == OBJECT:
                self._say("PROBE", found.path)
            return NOWHERE
        todo[:0] = target.split("/")
        return self._top if target.startswith("/") else at
