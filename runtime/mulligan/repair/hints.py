"""Hints: literal flow, told by a rare word of one action's output in what a later one was given.

Knows records; pure. An agent reads an id, a host name or a number from one action's output and types it into the next one's
command: no trace shows that. So each word that is rare by its form (six characters or more, with a digit, of mixed case or put
together with dots, dashes and the like), that exactly one earlier action put out, and that stood neither in what that action
or an earlier one was given nor in the environment, hints at that action. It is a guess, and never more: it may be chance, and a
flow by a common word is not seen.

One pass over the history, a set of words per action; of each stream only the beginning is looked at.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from mulligan.model.hint import Hint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mulligan.model.hint import Place
    from mulligan.model.ids import ActionId
    from mulligan.model.record import Record

LEAST, MOST = 6, 256  # characters of a word
LOOKED_AT: Final = 64 * 1024  # bytes of a stream
HALF: Final = 40.0  # bits of a word that give a confidence of one half
NO_DIGIT: Final = 0.7  # words are put together from words, and those are less rare than their letters

_RUN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_.:/@+~%-]{4,}[A-Za-z0-9_]")
_JOINT = re.compile(r"[:/@]")
_CLASSES = (
    (re.compile(r"[0-9]"), 10),
    (re.compile(r"[a-z]"), 26),
    (re.compile(r"[A-Z]"), 26),
    (re.compile(r"[^0-9A-Za-z]"), 6),
)
_RARE = re.compile(r"[0-9]|[a-z][A-Z]|[A-Z]{2}[a-z]|[^A-Za-z0-9]")


def find_hints(records: Sequence[Record], sources: Collection[ActionId] | None = None) -> list[Hint]:
    """The hints of a history, of each pair of actions the strongest one; with `sources`, only those at what these put out."""
    if sources is None:
        return list(_Flow(None).hints(records))
    words = {word for record in records if record.id in sources for part in _put_out(record).values() for word in part}
    if not words:
        return []
    met = {word for record in records for word in _given(record) if word in words}
    return [hint for hint in _Flow(met).hints(records) if hint.source in sources] if met else []


class _Flow:
    """Who put which word out, at one point of a history. `only`: the words that matter, if not all."""

    def __init__(self, only: Collection[str] | None) -> None:
        self._only = only
        self._needles = [word.encode() for word in only] if only is not None else []
        self._said: dict[str, tuple[ActionId, str] | None] = {}  # None: several did
        self._known: set[str] = set()  # words that stood in what an action was given before anybody put them out
        self._env: Mapping[str, str] = {}

    def hints(self, records: Iterable[Record]) -> Iterator[Hint]:
        for record in records:
            if record.action.kind == "run":
                given = _given(record)
                yield from self._hints(record.id, given)
                self._learn(record, given)
                self._hear(record, given)

    def _hints(self, target: ActionId, given: Mapping[str, Place]) -> Iterator[Hint]:
        best: dict[ActionId, Hint] = {}
        for word, place in given.items():
            found = self._said.get(word)
            if found is not None:
                hint = Hint(found[0], target, found[1], word, place, confidence(word))
                other = best.get(hint.source)
                if other is None or (hint.confidence, hint.token) > (other.confidence, other.token):
                    best[hint.source] = hint
        yield from best.values()

    def _learn(self, record: Record, given: Mapping[str, Place]) -> None:
        self._known.update(word for word in given if word not in self._said)
        if record.launch.env != self._env:
            self._env = record.launch.env
            for value in self._env.values():
                self._known.update(word for word in words_of(value) if word not in self._said)

    def _hear(self, record: Record, given: Mapping[str, Place]) -> None:
        outcome = record.outcome
        if self._only is not None and not any(w in outcome.stdout or w in outcome.stderr for w in self._needles):
            return
        for part, words in _put_out(record).items():
            for word in words:
                if word in given or word in self._known or (self._only is not None and word not in self._only):
                    continue
                before = self._said.setdefault(word, (record.id, part))
                if before is not None and before[0] != record.id:
                    self._said[word] = None


def words_of(text: str) -> set[str]:
    """The rare words of a text: each run of the characters that ids, names and paths are made of, and its longer pieces."""
    found = set()
    for run in _RUN.findall(text):
        for word in (run, *_JOINT.split(run)):
            if LEAST <= len(word) <= MOST and _RARE.search(word):
                found.add(word)
    return found


def confidence(word: str) -> float:
    """Between 0 and 1: the more bits the word's form has, the less likely it stands in two places by chance."""
    alphabet = sum(size for kind, size in _CLASSES if kind.search(word))
    bits = len(word) * math.log2(alphabet)
    if not any(c.isdigit() for c in word):
        bits *= NO_DIGIT
    return round(bits / (bits + HALF), 2)


def _given(record: Record) -> dict[str, Place]:
    """The rare words of what an action was given, each with its place."""
    action = record.action
    if action.kind != "run":
        return {}
    given: dict[str, Place] = {}
    for value in action.env.values():
        given.update(dict.fromkeys(words_of(value), "env"))
    given.update(dict.fromkeys(words_of(_text(action.stdin)), "stdin"))
    given.update(dict.fromkeys(words_of(action.shell if action.shell is not None else "\n".join(action.argv)), "command"))
    return given


def _put_out(record: Record) -> dict[str, set[str]]:
    """The rare words of what an action put out, by the part of its output; declared outputs first."""
    parts = {f"outputs.{name}": words_of(value) for name, value in record.outputs.items()}
    parts["stdout"] = words_of(_text(record.outcome.stdout))
    parts["stderr"] = words_of(_text(record.outcome.stderr))
    return parts


def _text(data: bytes) -> str:
    return data[:LOOKED_AT].decode("utf-8", "replace")
