"""Own writes: what an action itself has made of the names so far, so that what it sees of its own is not an observation.

Knows events; pure. For each name it answers which object *of the state before the action* stands there now: the same
name's, another name's (after a rename or a link), or none, since the action made or removed it.

An external object is copied up by the overlay on its first change, which breaks its hard links to other lower names; so
two names share an object here only when this action linked them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mulligan.model.events import (
    Create,
    Hardlink,
    Meta,
    MetaWhat,
    Mkdir,
    Mknod,
    Remove,
    Rename,
    Symlink,
    Write,
)  # fmt: skip
from mulligan.model.ids import parent

if TYPE_CHECKING:
    from collections.abc import Iterator

Mutation = Create | Write | Mkdir | Remove | Rename | Hardlink | Symlink | Mknod | Meta

NOTHING_SET = MetaWhat(0)
NO_STATE = ("/proc", "/dev", "/sys", "/.mulligan")


def is_state(path: str) -> bool:
    """Whether the path belongs to the state: kernel views and our own helper folder do not."""
    return not path.startswith(NO_STATE) or not any(path == top or path.startswith(top + "/") for top in NO_STATE)


@dataclass(slots=True)
class Object:
    """What a name stands for. `origin`: its path before the action; None when the action made it (or `gone`)."""

    origin: str | None
    gone: bool = False
    truncated: bool = False
    written: bool = False
    moved: bool = False  # renamed or linked: it stands at a name that is not its own
    meta: MetaWhat = NOTHING_SET


class Where(NamedTuple):
    """The object at a name, if the action has touched it, and the path of what was there before the action, if anything."""

    object: Object | None
    origin: str | None


class OwnWrites:
    """The names as this action has changed them, event by event.

    `changed_folders`: folders whose list of names the action changed, so that their mtime is its own.
    """

    def __init__(self) -> None:
        self._objects: dict[str, Object] = {}
        self._below: dict[str, set[str]] = {}  # folder -> its entries that are, or lead to, a touched name
        self.changed_folders: set[str] = set()
        self._untouched: set[str] = set()  # folders of which that is known, until the next change

    def items(self) -> Iterator[tuple[str, Object]]:
        """Every touched name with its object."""
        return iter(self._objects.items())

    def at(self, path: str) -> Object | None:
        """The object at exactly this name, when the action has touched it."""
        return self._objects.get(path)

    def is_untouched(self, path: str) -> bool:
        """Whether neither the name nor a folder above it was touched: the common case, and to be told quickly."""
        if not self._objects:
            return True
        if path in self._objects:
            return False
        folder = parent(path)
        if folder in self._untouched:
            return True
        at = folder
        while at not in self._objects:
            if at == "/":
                self._untouched.add(folder)
                return True
            at = parent(at)
        return False

    def where(self, path: str) -> Where:
        """What stands at a name now, and where that was before the action."""
        found = self._objects.get(path)
        if found is not None:
            return Where(found, found.origin)
        folder = path
        while folder != "/":
            folder = parent(folder)
            found = self._objects.get(folder)
            if found is not None:
                if found.origin is None:
                    return Where(found if found.gone else None, None)
                return Where(None, found.origin + path[len(folder) :])
        return Where(None, path)

    def apply(self, event: Mutation) -> None:
        """Take note of one mutation that succeeded."""
        match event:
            case Create(path) | Mkdir(path) | Symlink(path) | Mknod(path):
                self._put(path, Object(None))
            case Remove(path):
                self._put(path, Object(None, gone=True))
            case Write(path, truncated):
                found = self._touch(path)
                found.written = True
                found.truncated |= truncated
            case Meta(path, what):
                found = self._touch(path)
                found.meta |= what
            case Hardlink(source, target):
                found = self._touch(source)
                found.moved = True
                self._put(target, found)
            case Rename(source, target, exchange):
                self._rename(source, target, exchange=exchange)

    def _touch(self, path: str) -> Object:
        found, origin = self.where(path)
        if found is None or found.gone:
            found = Object(path if found is not None else origin)
            self._insert(path, found)
        return found

    def _rename(self, source: str, target: str, *, exchange: bool) -> None:
        moved, other = self._touch(source), self._touch(target) if exchange else None
        if moved is self._objects.get(target):
            return  # two names of one file: rename(2) then does nothing
        moved.moved = True
        inside, back = self._take(source), self._take(target)
        self._put(target, moved)
        for rest, found in inside:
            self._insert(target + rest, found)
        if other is None:
            self._put(source, Object(None, gone=True))
            return
        other.moved = True
        self._put(source, other)
        for rest, found in back:
            self._insert(source + rest, found)

    def _put(self, path: str, found: Object) -> None:
        """A new object at a name: whatever was known below the name is past."""
        self._take(path)
        self._insert(path, found)
        self.changed_folders.add(parent(path))

    def _insert(self, path: str, found: Object) -> None:
        self._objects[path] = found
        self._untouched.clear()
        while path != "/":
            folder = parent(path)
            entries = self._below.setdefault(folder, set())
            if path in entries:
                return
            entries.add(path)
            path = folder

    def _take(self, path: str) -> list[tuple[str, Object]]:
        """Forget what was touched strictly below a name, and return it by its path relative to the name."""
        taken, todo = [], list(self._below.pop(path, ()))
        while todo:
            at = todo.pop()
            todo.extend(self._below.pop(at, ()))
            found = self._objects.pop(at, None)
            if found is not None:
                taken.append((at[len(path) :], found))
        return taken
