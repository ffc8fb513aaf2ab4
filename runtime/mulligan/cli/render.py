r"""Text for people: tables, and the escaping of everything that came out of a guest.

A guest chooses file names, arguments, environment and output; all of it is hostile to a terminal. So every view escapes:
a character that does not print (controls, ANSI's ESC, newlines, direction marks) is shown as `\n`, `\x1b`, `\u202e`, and
bytes that are not UTF-8 as `\xff`. Knows nothing of sessions.
"""

from __future__ import annotations

import errno
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mulligan.errors import DiskFullError, HostError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SURROGATES = range(0xDC80, 0xDD00)  # bytes that are not UTF-8, by PEP 383


def escape(text: str | bytes, *, keep: str = "") -> str:
    """The text with everything unprintable escaped, on one line unless `keep` holds the newline."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code in _SURROGATES:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:  # noqa: PLR2004 - two hex digits
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 - four hex digits


def block(data: str | bytes) -> str:
    """Text of several lines: newlines and tabs stand, everything else that does not print is escaped."""
    return escape(data, keep="\n\t")


def clip(text: str, width: int) -> str:
    """The text, cut to a width with an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + "…"


@contextmanager
def writing_out() -> Iterator[None]:
    """While entered, stdout that can't be written to (a full disk behind a redirection) is told as that."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        kind = DiskFullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else HostError
        raise kind(f"write to stdout: {error.strerror}", remedy="send the output elsewhere") from error


def echo(text: str = "") -> None:
    """Print a line on stdout."""
    with writing_out():
        sys.stdout.write(text + "\n")


def write_exactly(data: bytes, *, error: bool = False) -> None:
    """Write bytes as they are to stdout, or stderr."""
    stream = sys.stderr if error else sys.stdout
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


def milliseconds(value: float) -> str:
    """A duration as people read it."""
    if value < 1000:  # noqa: PLR2004 - below a second
        return f"{value:.0f} ms"
    return f"{value / 1000:.1f} s"


def size(count: int) -> str:
    """A number of bytes as people read it."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:  # noqa: PLR2004 - next unit
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: drawn and fitted on a terminal, aligned columns of full width elsewhere. Cells are escaped here."""
    cells = [[escape(c) for c in row] for row in rows]
    if sys.stdout.isatty():
        _drawn(headers, cells)
        return
    widths = [max(len(r[i]) for r in [list(headers), *cells]) for i in range(len(headers))]
    for row in [list(headers), *cells]:
        echo("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def _drawn(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich import box  # noqa: PLC0415 - a tenth of a second that a pipe need not pay
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        drawn.add_column(header, overflow="fold")
    for row in cells:
        drawn.add_row(*(Text(c) for c in row))
    with writing_out():
        Console().print(drawn)
