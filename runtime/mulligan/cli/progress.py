"""Saying on stderr that something takes a while: a moving line on a terminal, plain lines elsewhere.

Silent for the first second, so quick work stays quiet. Knows the terminal; must not know what the work is.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Self

from mulligan.cli.render import escape

if TYPE_CHECKING:
    from types import TracebackType

    from rich.status import Status

QUIET_S = 1.0


def say_waiting(what: str) -> None:
    """Say that another process holds what we need."""
    sys.stderr.write(f"mulligan: waiting for another process that uses {escape(what)} …\n")
    sys.stderr.flush()


class Progress:
    """While entered, tells after a second what goes on. `tell` says what is being done now."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lock = threading.Lock()
        self._late = False
        self._done = False
        self._status: Status | None = None
        self._timer = threading.Timer(QUIET_S, self._begin)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._timer.cancel()
        with self._lock:
            self._done = True
            if self._status is not None:
                self._status.stop()

    def tell(self, text: str) -> None:
        """Say what is being done now; shown at once if the work is already known to be long."""
        with self._lock:
            self._text = text
            if self._late and not self._done:
                self._show()

    def _begin(self) -> None:
        with self._lock:
            if not self._done:
                self._late = True
                self._show()

    def _show(self) -> None:
        line = escape(self._text)
        if not sys.stderr.isatty():
            sys.stderr.write(f"mulligan: {line} …\n")
            sys.stderr.flush()
            return
        from rich.console import Console  # noqa: PLC0415 - only for work that takes long
        from rich.text import Text  # noqa: PLC0415

        if self._status is None:
            self._status = Console(stderr=True).status(Text(line))
            self._status.start()
        else:
            self._status.update(Text(line))
