"""Lineage: for every observation in a history, the action whose writing it saw.

Knows records and trees; pure. An observation belongs to the last action before the reader that set that very key: for an
absent path that is whoever removed it, for a listing every action by which one of its names came or went. What no action
set belongs to the base.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mulligan.errors import NotFoundError, UsageError
from mulligan.model.ids import ActionId, b64, is_utf8, parent, raw_path, shown
from mulligan.model.keys import DIR, ENT, ENV, MEM, MODE, NET, OUT, SEARCH, STORED, TELLING, Key, parse_key
from mulligan.model.outputs import check_out, writer_of
from mulligan.model.part import whole_of
from mulligan.model.tree import Tree, touched_kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mulligan.model.action import LaunchContext
    from mulligan.model.hint import Hint
    from mulligan.model.keys import KeyKind
    from mulligan.model.layer import Layer
    from mulligan.model.record import Record

    # whether a record, which saw that state, may have used the variable of this name
    ReadsVariable = Callable[[Record, str, Tree], bool]

Provenance = Literal["traced", "declared", "weak"]

BASE = "base"
SHOWN = 8  # keys named per pair of actions in text


class Reliance(NamedTuple):
    """`reader` relied on what `writer` (an action, or the base) had made of `key`.

    `confidence` is 1 for what was traced or declared. A weak one is only a hint: `token` is the rare word that stands in both.
    """

    writer: str
    reader: ActionId
    key: Key
    provenance: Provenance = "traced"
    confidence: float = 1.0
    token: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """What an action or a path came from: for a person (`lines`, guest bytes escaped) and for a program (`data`)."""

    lines: tuple[str, ...]
    data: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(self.lines)


def launched_with(_record: Record, _name: str, _saw: Tree) -> bool:
    """Whoever was launched with a variable may have used it, as far as can be told without looking."""
    return True


def reliances(
    records: Iterable[Record], bottom: Iterable[Layer] = (), reads: ReadsVariable = launched_with
) -> Iterator[Reliance]:
    """Every reliance of a history, in its order; of each path the most telling key by each writer.

    A folder that was only passed on the way counts when the reader relied on nothing else of that writer.
    """
    writers = _Writers(bottom, reads)
    for record in records:
        yield from writers.reliances(record)
        writers.advance(record)


class _Writers:
    """Who set each key last, at one point of a history."""

    def __init__(self, bottom: Iterable[Layer], reads: ReadsVariable) -> None:
        self._reads = reads
        self._tree = Tree()
        for layer in bottom:
            self._tree.apply(layer.manifest, layer.id)
        self._set: dict[str, dict[KeyKind, str]] = {}
        self._named: dict[str, dict[str, str]] = {}  # folder -> path of an entry -> who made or removed it last
        self._env: dict[str, str] = {}
        self._declared: dict[Key, list[str]] = {}  # keys of the world outside -> all who declared to write them

    def advance(self, record: Record) -> None:
        """Go past one action."""
        entries = record.layer.manifest.entries
        before = {path: self._kind(path) for path in record.layer.manifest.paths}
        for path in self._tree.apply(record.layer.manifest, record.layer.id):
            entry = entries.get(path)
            kinds = entry.sets() if entry is not None else touched_kinds(path, self._tree)
            if kinds:
                self._set.setdefault(path, {}).update(dict.fromkeys(kinds, record.id))
        for path, kind in before.items():
            if kind != self._kind(path):
                self._named.setdefault(parent(path), {})[path] = record.id
        if record.action.kind == "run":
            self._hand_on(record)
        for key in map(parse_key, record.footprint.declared_writes):
            self._declared.setdefault(key, []).append(record.id)

    def _kind(self, path: str) -> str | None:
        node = self._tree.get(path)
        return node.kind if node is not None else None

    def _hand_on(self, record: Record) -> None:
        before, after = record.launch.env, record.handoff.env
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                self._env[name] = record.id
        if record.launch.cwd != record.handoff.cwd:
            self._env["PWD"] = record.id
        if record.launch.umask != record.handoff.umask:
            self._env["=umask"] = record.id

    def of(self, key: Key) -> list[str]:
        """Who set the key: one writer, or for a listing all whose names it shows or lacks; `base` when nobody did.

        Whether a declared write replaced what was there or added to it is not known: a key outside has all its writers.
        """
        if key.kind == OUT:
            return [writer_of(key.name)]
        if key.kind in (NET, MEM):
            return self._declared.get(key) or [BASE]
        if key.kind == DIR:
            return sorted(set(self._named.get(key.name, {}).values())) or [BASE]
        key = whole_of(key)
        kind = MODE if key.kind == SEARCH else key.kind
        writer = self._set.get(key.name, {}).get(kind)
        return [writer if writer is not None else BASE]

    def reliances(self, record: Record) -> Iterator[Reliance]:
        """What this record relied on."""
        found: dict[tuple[str, str], Key] = {}
        direct = record.footprint.observed_paths()
        keys = record.footprint.observations()
        for key in sorted(keys, key=lambda key: TELLING.index(key.kind)):
            if key.name in direct:
                for writer in self.of(key):
                    found.setdefault((writer, key.name), key)
        related = {writer for writer, _ in found}
        for key in keys:
            if key.name not in direct and key.kind == ENT:
                for writer in self.of(key):
                    if writer not in related and writer != BASE:
                        found.setdefault((writer, key.name), key)
        for (writer, _), key in sorted(found.items()):
            yield Reliance(writer, record.id, key)
        yield from self._beside_files(record)

    def _beside_files(self, record: Record) -> Iterator[Reliance]:
        if record.action.kind == "run":
            for name in sorted({*record.launch.env, "PWD", "=umask"} - set(record.action.env)):
                if name in self._env and self.used(record, name):
                    declared = f"{ENV}:{name}" in record.footprint.declared_reads
                    yield Reliance(self._env[name], record.id, Key(ENV, name), "declared" if declared else "traced")
        for key in map(parse_key, record.footprint.declared_reads):
            if key.kind != ENV:
                yield from (Reliance(writer, record.id, key, "declared") for writer in self.of(key))

    def used(self, record: Record, name: str) -> bool:
        """Whether this record may have used this part of its launch context."""
        if name == "=umask":
            return record.footprint.uses_umask
        return name == "PWD" or f"{ENV}:{name}" in record.footprint.declared_reads or self._reads(record, name, self._tree)


def weak_reliances(strong: Iterable[Reliance], hints: Iterable[Hint]) -> list[Reliance]:
    """The hints as reliances, where nothing traced or declared joins the two actions already."""
    joined = {(one.writer, one.reader) for one in strong}
    return [
        Reliance(hint.source, hint.target, hint.key, "weak", hint.confidence, hint.token)
        for hint in hints
        if (hint.source, hint.target) not in joined
    ]


def explain(
    records: Sequence[Record],
    target: str,
    bottom: Iterable[Layer] = (),
    hints: Iterable[Hint] = (),
    reads: ReadsVariable = launched_with,
) -> Why:
    """What an action relied on and who relied on it; or who wrote a path or another key, and who relied on that.

    `reads` tells whether an action may have used a variable, given the state that it saw. Raises NotFoundError when the
    target is neither an action nor an absolute path.
    """
    if target.startswith(f"{ENV}:"):
        return _of_variable(records, target.removeprefix(f"{ENV}:"), bottom, reads)
    if target.startswith("/"):
        return _of_path(records, target.rstrip("/") or "/", bottom)
    with suppress(ValueError):
        if (key := parse_key(target)).kind in (OUT, NET, MEM):
            return _of_key(list(reliances(records, bottom, reads)), records, key, hints)
    for record in records:
        if record.id == target:
            return _of_action(list(reliances(records, bottom, reads)), records, record, hints)
    raise NotFoundError(
        f"why {target!r}: there is no such action in this history",
        remedy="give an action's id (`mulligan log`), a path, env:NAME, or a declared key",
    )


def _of_action(every: list[Reliance], records: Sequence[Record], record: Record, hints: Iterable[Hint]) -> Why:
    every += weak_reliances(every, hints)
    place = {one.id: number for number, one in enumerate(records)}
    mine = [one for one in every if one.reader == record.id]
    base = [one.key for one in mine if one.writer == BASE]
    inputs = [one for one in mine if one.writer != BASE]
    inputs.sort(key=lambda one: place.get(ActionId(one.writer), -1))
    readers = [one for one in every if one.writer == record.id]
    lines = [f"{record.id}  {printable(record.action.text)}"]
    lines += [f"  {_how(group)} {writer} by {_keys(group)}" for writer, group in _grouped(inputs, "writer")]
    lines += [f"  relied on the base by {len(base)} path{'s' if len(base) != 1 else ''}"] if base else []
    lines += [] if mine else ["  relied on nothing"]
    lines += [f"  {reader} {_how(group)} it by {_keys(group)}" for reader, group in _grouped(readers, "reader")]
    if not record.footprint.complete:
        lines.append(f"  its trace has a hole: {printable('; '.join(record.footprint.incomplete_because))}")
    data: dict[str, Any] = {
        "action": record.id,
        "relied_on": [{**_edge_data(one), "from": one.writer} for one in inputs],
        "base": [_key_data(key) for key in base],
        "relied_on_by": [{**_edge_data(one), "action": one.reader} for one in readers],
        "complete": record.footprint.complete,
    }
    return Why(tuple(lines), data)


def _grouped(every: Iterable[Reliance], by: Literal["writer", "reader"]) -> list[tuple[str, list[Reliance]]]:
    """The reliances by the action at their other end, strong ones before weak ones."""
    groups: dict[tuple[bool, str], list[Reliance]] = {}
    for one in every:
        groups.setdefault((one.provenance == "weak", getattr(one, by)), []).append(one)
    return [(action, group) for (_, action), group in sorted(groups.items(), key=lambda pair: pair[0][0])]


def _how(group: Sequence[Reliance]) -> str:
    return "may hang on" if group[0].provenance == "weak" else "relied on"


def _of_key(every: list[Reliance], records: Sequence[Record], key: Key, hints: Iterable[Hint]) -> Why:
    """Who wrote a key that is no path and no variable, and who relied on it; of an action's output, on any part of it."""
    if key.kind == OUT:
        _check_output(key)
    every += weak_reliances(every, hints)
    steps: list[dict[str, Any]] = []
    for record in records:
        steps += [
            {"action": record.id, "what": f"{_how([one])} it", **_edge_data(one), "from": one.writer}
            for one in every
            if one.reader == record.id and _is_part(one.key, key)
        ]
        if key.kind == OUT and _puts_out(record, key):
            steps.append({"action": record.id, "what": "put it out"})
        elif str(key) in record.footprint.declared_writes:
            steps.append({"action": record.id, "what": "declared to write it"})
    if not steps:
        raise NotFoundError(f"why {str(key)!r}: no action of this history declared it")
    lines = [printable(str(key))]
    for step in steps:
        by = f" as of {step['from']}, {printable(step['key'])}{_mark(step)}" if "from" in step else ""
        lines.append(f"  {step['action']} {step['what']}{by}")
    return Why(tuple(lines), {"key": shown(str(key)), "steps": steps})


def _check_output(key: Key) -> None:
    try:
        check_out(key.name)
    except ValueError as error:
        raise UsageError(f"why {str(key)!r}: {error}") from error


def _puts_out(record: Record, key: Key) -> bool:
    """Whether an `out:` key is of this action; of a declared output, whether the action declared it."""
    name = key.name.partition(".outputs.")[2]
    return record.id == writer_of(key.name) and (not name or name in record.outputs)


def _is_part(key: Key, of: Key) -> bool:
    return key == of or (key.kind == of.kind == OUT and key.name.startswith(f"{of.name}."))


def _of_path(records: Sequence[Record], path: str, bottom: Iterable[Layer]) -> Why:
    rows: list[tuple[str, str, str, Reliance | None]] = []  # action, what it did, of whom, by what
    said: dict[str, list[Reliance]] = {}
    for one in reliances(records, bottom):
        if whole_of(one.key).name == path and one.key.kind in (*STORED, DIR, SEARCH):
            said.setdefault(one.reader, []).append(one)
    for record in records:
        for one in said.get(record.id, ()):
            missed = one.key.kind == ENT and path in record.footprint.missed
            rows.append((record.id, "found it missing" if missed else "relied on it", one.writer, one))
        entry = record.layer.manifest.entries.get(path)
        if path in record.layer.manifest.removed:
            rows.append((record.id, "removed it", "", None))
        elif entry is not None and entry.sets():
            rows.append((record.id, "made it" if entry.made else "changed it", "", None))
    lines = [printable(path)]
    for action, what, source, relied in rows:
        by = f" as of {source}, {_keys([relied])}" if relied is not None else ""
        lines.append(f"  {action} {what}{by}")
    if not rows:
        lines.append("  no action made it or relied on it")
    name = {"path": shown(path)} if is_utf8(path) else {"path": shown(path), "path_b64": b64(path)}
    steps = [{"action": a, "what": w, **({**_edge_data(k), "from": s} if k is not None else {})} for a, w, s, k in rows]
    return Why(tuple(lines), {**name, "steps": steps})


def _of_variable(records: Sequence[Record], name: str, bottom: Iterable[Layer], reads: ReadsVariable) -> Why:
    """Who set a variable, and to what; which actions were launched with it, and which of them may have used it."""
    steps: list[dict[str, str]] = []
    writer, writers = BASE, _Writers(bottom, reads)
    for record in records:
        used = record.action.kind == "run" and writers.used(record, name)
        writers.advance(record)
        if record.action.kind != "run":
            continue
        before, after = _value(record.launch, name), _value(record.handoff, name)
        if name in record.action.env:
            steps.append({"action": record.id, "what": "was given its own"})
        elif before is not None:
            what = "was launched with it" if used else "was launched with it, and did not use it,"
            steps.append({"action": record.id, "what": what, "from": writer})
        if before != after:
            writer = record.id
            steps.append(
                {"action": record.id, "what": "unset it"}
                if after is None
                else {"action": record.id, "what": "set it", "value": after}
            )
    if not steps:
        raise NotFoundError(f"why {ENV}:{name}: no action of this history had or set this variable")
    lines = [printable(f"{ENV}:{name}")]
    for step in steps:
        more = f" as of {step['from']}" if "from" in step else f" to {printable(step['value'])}" if "value" in step else ""
        lines.append(f"  {step['action']} {step['what']}{more}")
    told = [{key: shown(value) for key, value in step.items()} for step in steps]
    return Why(tuple(lines), {"variable": shown(name), "steps": told})


def _value(launch: LaunchContext, name: str) -> str | None:
    if name == "=umask":
        return f"{launch.umask:04o}"
    return launch.cwd if name == "PWD" else launch.env.get(name)


def _keys(every: Sequence[Reliance]) -> str:
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(printable(str(one.key)) + _mark(_edge_data(one)) for one in every[:SHOWN]) + more


def _mark(edge: Mapping[str, Any]) -> str:
    """What is to be said of an edge that was not traced."""
    if edge["provenance"] == "weak":
        return f" ({printable(edge['token'])!r} stands in both, confidence {edge['confidence']:.2f})"
    return " (declared)" if edge["provenance"] == "declared" else ""


def _edge_data(one: Reliance) -> dict[str, Any]:
    token = {"token": one.token} if one.token else {}
    return {**_key_data(one.key), "provenance": one.provenance, "confidence": one.confidence, **token}


def _key_data(key: Key) -> dict[str, str]:
    text = str(key)
    return {"key": text} if is_utf8(text) else {"key": shown(text), "key_b64": b64(text)}


def printable(text: str) -> str:
    """The text on one line, with everything escaped that a terminal would not just show."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    return ascii(char)[1:-1] if is_utf8(char) else f"\\x{raw_path(char)[0]:02x}"
