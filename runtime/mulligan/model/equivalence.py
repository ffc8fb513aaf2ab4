"""Equivalences: which contents count as equal although their bytes differ, because somebody said so.

Knows policies; pure. It is the user's assertion, and nothing checks it: of a file that `paths` names, whatever `pattern`
matches does not matter to anybody. Two contents are equal then when they are the same text around the same number of matches.
"""

from __future__ import annotations

import re
import warnings
from fnmatch import fnmatchcase
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from mulligan.errors import UsageError
from mulligan.model.policy import Equivalence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LARGEST: Final = 16 * 1024 * 1024  # bytes of a file in which a pattern is looked for; a larger one is compared exactly
MOST_LOOKED_AT: Final = 1024 * 1024  # bytes of a text in which the built-in patterns are looked for

_CLOCK = rb"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"

# What changes from run to run by its nature, in the order of how telling it is.
PATTERNS: Final[dict[str, bytes]] = {
    "uuid": rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
    "time": (
        rb"\d{4}-\d{2}-\d{2}(?:[T ]" + _CLOCK + rb")?(?:Z| ?[+-]\d{2}:?\d{2})?"
        rb"|(?:[A-Z][a-z]{2},? )?(?:" + _MONTH + rb" +\d{1,2}|\d{1,2} " + _MONTH + rb")(?: \d{4})? " + _CLOCK
        + rb"(?: [AP]M)?(?: [A-Z]{3,4}| [+-]\d{4})?(?: \d{4})?"
        rb"|\b" + _CLOCK + rb"\b|\b1\d{9}(?:\d{3,9}|\.\d+)?\b"
    ),
    "hex": rb"\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{8,}\b",
    "number": rb"\b\d+(?:\.\d+)?\b",
}  # fmt: skip


class Equality:
    """The equivalences of a policy. Raises UsageError for a pattern that is none, or matches the empty text."""

    def __init__(self, equivalences: Iterable[Equivalence]) -> None:
        self._all = [(one.paths, _compiled(one)) for one in equivalences]

    def __bool__(self) -> bool:
        return bool(self._all)

    def names(self, path: str) -> bool:
        """Whether any of them speaks of the path."""
        return any(fnmatchcase(path, paths) for paths, _ in self._all)

    def equal(self, path: str, a: bytes, b: bytes) -> bool:
        """Whether two contents of the path count as one. With several patterns for it, all matter at once."""
        patterns = [pattern for paths, pattern in self._all if fnmatchcase(path, paths)]
        if not patterns or max(len(a), len(b)) > LARGEST:
            return False
        return _between(patterns, a) == _between(patterns, b)


def looks_like(a: bytes, b: bytes) -> tuple[str, ...]:
    """By which built-in patterns two texts differ; empty when they differ in anything else, are no texts, or are large."""
    if max(len(a), len(b)) > MOST_LOOKED_AT or b"\0" in a or b"\0" in b or _between([_ANY], a) != _between([_ANY], b):
        return ()
    pairs = zip(_ANY.finditer(a), _ANY.finditer(b), strict=True)
    found = [(one.lastgroup, other.lastgroup) for one, other in pairs if one[0] != other[0]]
    return tuple(name for name in PATTERNS if any(name in pair for pair in found))


def parse_equivalence(text: str) -> Equivalence:
    """The equivalence that GLOB=REGEX writes, or GLOB=@NAME with the name of a built-in pattern. Raises UsageError."""
    paths, sep, pattern = text.partition("=")
    if not sep or not paths or not pattern:
        raise UsageError(f"equivalence {text!r} is not of the form GLOB=REGEX")
    if pattern.startswith("@"):
        if pattern[1:] not in PATTERNS:
            raise UsageError(
                f"equivalence {text!r}: there is no built-in pattern {pattern[1:]!r}",
                remedy=f"name one of {', '.join(PATTERNS)}, or write @ as \\@",
            )
        return Equivalence(paths, PATTERNS[pattern[1:]])
    one = Equivalence(paths, pattern.encode("utf-8", "surrogateescape"))
    _compiled(one)
    return one


def _compiled(one: Equivalence) -> re.Pattern[bytes]:
    given: tuple[object, object] = (one.paths, one.pattern)
    if not isinstance(given[0], str) or not isinstance(given[1], bytes):
        raise UsageError(f"equivalence {one!r}: paths is a str, pattern is bytes", remedy="write the pattern as rb'...'")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what re warns of, such as [[:digit:]], means another thing than it seems to
            pattern = re.compile(one.pattern)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise UsageError(f"equivalence for {one.paths!r}: {one.pattern!r} is no regular expression: {error}") from error
    if pattern.fullmatch(b"") is not None:
        raise UsageError(f"equivalence for {one.paths!r}: {one.pattern!r} matches the empty text, and so everywhere")
    return pattern


def _between(patterns: Sequence[re.Pattern[bytes]], data: bytes) -> list[bytes]:
    """The pieces of a content around the matches; of several patterns the one that matches first counts.

    They are not joined into one pattern, in which groups, names of groups and flags would be those of another one.
    """
    pieces, at = [], 0
    for start, end in _merged([pattern.finditer(data) for pattern in patterns]):
        if start >= at:
            pieces.append(data[at:start])
            at = end
    return [*pieces, data[at:]]


def _merged(found: Sequence[Iterator[re.Match[bytes]]]) -> Iterator[tuple[int, int]]:
    """Where the matches of several patterns begin and end, in the order of their beginnings."""
    return merge(*(map(re.Match.span, one) for one in found), key=itemgetter(0))


_ANY = re.compile(b"|".join(b"(?P<%s>%s)" % (name.encode(), pattern) for name, pattern in PATTERNS.items()))
