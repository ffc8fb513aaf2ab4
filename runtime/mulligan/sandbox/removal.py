"""Removing folders in the background: one thread per process, which the end of the process waits for.

Removing a folder waits for the disk (ext4 with `discard`: 2 ms for each), and each action leaves five of overlayfs' own.
What is not removed when the process is killed is an orphan, and the collector's business.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from queue import Queue
from typing import TYPE_CHECKING

from mulligan.sandbox.trees import FOLDER, remove_tree

if TYPE_CHECKING:
    from pathlib import Path


class _Remover:
    """The thread and its queue; made at the first removal, and again in a forked child."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.waiting: Queue[tuple[Path, str]] = Queue()
        threading.Thread(target=self._work, name="mulligan-removals", daemon=True).start()

    def _work(self) -> None:
        while True:
            folder, name = self.waiting.get()
            try:
                _remove(folder, name)
            finally:
                self.waiting.task_done()


_held: list[_Remover] = []
_lock = threading.Lock()


def remove_later(folder: Path, name: str) -> None:
    """Remove `name` from the folder soon, whatever it is."""
    with _lock:
        if not _held or _held[0].process != os.getpid():
            _held[:] = [_Remover()]
        _held[0].waiting.put((folder, name))


def settle() -> None:
    """Wait until all that was handed over is removed."""
    if _held and _held[0].process == os.getpid():
        _held[0].waiting.join()


def _remove(folder: Path, name: str) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(folder, FOLDER)
        try:
            remove_tree(fd, name)
        finally:
            os.close(fd)


atexit.register(settle)
