"""Locks: what keeps two processes from running one session at once, and gc from taking a layer that is being made.

Knows flock(2). Gives `Locks`. Knows nothing of the database.

Two kinds of file under `<store>/locks`: one per session, held exclusively while it runs an action or a repair; and one
for the store, held shared by whoever makes layers and exclusively by gc. Without the second, gc could see a sealed layer
whose record is not yet committed, and take it for an orphan. The kernel drops a lock when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

_STORE = ".store"  # no session's name begins with a dot
_OPENING = ".opening"


class Locks:
    """The locks under one folder; re-entrant within a thread of this object."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[tuple[int, str], int] = {}

    @contextmanager
    def session(self, name: str, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Hold the session alone; `on_wait` is called once if another holds it and this call has to wait."""
        with self._hold(_STORE, fcntl.LOCK_SH, on_wait), self._hold(name, fcntl.LOCK_EX, on_wait):
            yield

    @contextmanager
    def sharing(self, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Keep gc away while layers are made that no session names yet."""
        with self._hold(_STORE, fcntl.LOCK_SH, on_wait):
            yield

    @contextmanager
    def exclusive(self, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Hold the whole store: nobody runs an action, repairs or makes a layer meanwhile."""
        with self._hold(_STORE, fcntl.LOCK_EX, on_wait):
            yield

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Hold the right to open the database."""
        with self._hold(_OPENING, fcntl.LOCK_EX, None):
            yield

    def forget(self, name: str) -> None:
        """Remove a session's lock file; the caller holds the lock. Waiters notice and lock the new file."""
        (self._folder / name).unlink(missing_ok=True)

    def tidy(self, names: Collection[str]) -> None:
        """Remove the lock files that a killed process left of sessions that are not there. The caller holds the store alone."""
        for name in os.listdir(self._folder):
            if name not in names and not name.startswith("."):
                self.forget(name)

    @contextmanager
    def _hold(self, name: str, how: int, on_wait: Callable[[], None] | None) -> Iterator[None]:
        me = (threading.get_ident(), name)
        if me in self._held:
            assert how == self._held[me], (name, "shared and exclusive may not be nested")
            yield
            return
        fd = self._lock(name, how, on_wait)
        self._held[me] = how
        try:
            yield
        finally:
            del self._held[me]
            os.close(fd)  # drops the lock: no other descriptor refers to this open file

    def _lock(self, name: str, how: int, on_wait: Callable[[], None] | None) -> int:
        path = self._folder / name
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                try:
                    fcntl.flock(fd, how | fcntl.LOCK_NB)
                except BlockingIOError:
                    if on_wait is not None:
                        on_wait()
                        on_wait = None
                    fcntl.flock(fd, how)
                if _is_still(fd, path):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # the session was removed while this call waited


def _is_still(fd: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
