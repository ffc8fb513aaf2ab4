"""Graph: a history as a networkx graph of its actions, and its drawings.

Knows lineage; pure. An edge runs from the action that wrote to the one that relied on it and carries the witness key, with
its provenance (traced, declared, or weak: a hint) and confidence. What only the base provided is no edge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import networkx as nx

from mulligan.history.lineage import BASE, SHOWN, Why, explain, launched_with, printable, reliances, weak_reliances
from mulligan.model.ids import b64, is_utf8, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mulligan.history.lineage import ReadsVariable
    from mulligan.model.hint import Hint
    from mulligan.model.layer import Layer
    from mulligan.model.record import Record

__all__ = ["Why", "as_json", "build_graph", "dot", "explain", "mermaid", "text"]

LABEL = 60  # characters of an action's text in a drawing


def build_graph(
    records: Sequence[Record],
    bottom: Iterable[Layer] = (),
    hints: Iterable[Hint] = (),
    reads: ReadsVariable = launched_with,
) -> nx.MultiDiGraph:
    """The actions as nodes (`text`, `kind`, `exit_code`, `complete`), reliances as edges.

    An edge has its witness as its key, `provenance` ("traced", "declared" or "weak"), `confidence` and, if weak, `token`.
    """
    graph = nx.MultiDiGraph()
    for record in records:
        graph.add_node(
            record.id,
            text=record.action.text,
            kind=record.action.kind,
            exit_code=record.outcome.exit_code,
            complete=record.footprint.complete,
        )
    strong = list(reliances(records, bottom, reads))
    for one in (*strong, *weak_reliances(strong, hints)):
        if one.writer != BASE and one.writer in graph and not graph.has_edge(one.writer, one.reader, str(one.key)):
            told = {"provenance": one.provenance, "confidence": one.confidence, **({"token": one.token} if one.token else {})}
            graph.add_edge(one.writer, one.reader, key=str(one.key), **told)
    return graph


def text(graph: nx.MultiDiGraph) -> str:
    """One paragraph per action: its text, then each action it relied on (`<~`: may hang on) with the keys."""
    lines = []
    for action, data in graph.nodes(data=True):
        lines.append(f"{action}  {printable(data['text'])}")
        lines += [f"    {'<~' if weak else '<-'} {writer}  {_some(keys)}" for writer, keys, weak in _inputs(graph, action)]
    return "\n".join(lines)


def dot(graph: nx.MultiDiGraph) -> str:
    """The graph in Graphviz's language."""
    lines = ["digraph history {", "  rankdir=LR;", "  node [shape=box];"]
    for action, data in graph.nodes(data=True):
        lines.append(f"  {_quoted(action)} [label={_quoted(_label(action, data['text']))}];")
    for action in graph.nodes:
        for writer, keys, weak in _inputs(graph, action):
            style = ", style=dashed" if weak else ""
            lines.append(f"  {_quoted(writer)} -> {_quoted(action)} [label={_quoted(_some(keys, 1))}{style}];")
    return "\n".join([*lines, "}"])


def mermaid(graph: nx.MultiDiGraph) -> str:
    """The graph in Mermaid's language."""
    lines = ["flowchart LR"]
    for action, data in graph.nodes(data=True):
        lines.append(f'  {action}["{_entities(_label(action, data["text"]))}"]')
    for action in graph.nodes:
        for writer, keys, weak in _inputs(graph, action):
            lines.append(f'  {writer} {"-.->" if weak else "-->"}|"{_entities(_some(keys, 1))}"| {action}')
    return "\n".join(lines)


def as_json(graph: nx.MultiDiGraph) -> dict[str, Any]:
    """The graph as plain data: every edge with its key, provenance and confidence, a weak one with its token."""
    nodes = [{"action": action, **data, **_told("text", data["text"])} for action, data in graph.nodes(data=True)]
    edges = [
        {"from": writer, "to": reader, **_told("key", key), **data}
        for writer, reader, key, data in graph.edges(keys=True, data=True)
    ]
    return {"nodes": nodes, "edges": edges}


def _inputs(graph: nx.MultiDiGraph, action: str) -> Iterator[tuple[str, list[str], bool]]:
    """Each action that this one relied on, with the keys, and whether that is merely a hint: then with how sure it is."""
    found: dict[tuple[str, bool], list[str]] = {}
    for writer, _, key, data in graph.in_edges(action, keys=True, data=True):
        weak = data["provenance"] == "weak"
        found.setdefault((writer, weak), []).append(f"{key} ({data['token']}, {data['confidence']:.2f})" if weak else key)
    place = {other: number for number, other in enumerate(graph.nodes)}
    for (writer, weak), keys in sorted(found.items(), key=lambda one: (place[one[0][0]], one[0][1])):
        yield writer, keys, weak


def _some(keys: Sequence[str], most: int = SHOWN) -> str:
    more = f" (+{len(keys) - most} more)" if len(keys) > most else ""
    return ", ".join(printable(key) for key in keys[:most]) + more


def _label(action: str, said: str) -> str:
    said = printable(said)
    return f"{action}: {said if len(said) <= LABEL else said[: LABEL - 1] + '…'}"


def _quoted(label: str) -> str:
    escaped = label.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _entities(label: str) -> str:
    """Text in which Mermaid finds neither the end of a label nor markup."""
    return "".join(c if c.isalnum() or c in " -_./:,()+…=" else f"#{ord(c)};" for c in label)


def _told(name: str, value: str) -> dict[str, str]:
    return {name: value} if is_utf8(value) else {name: shown(value), f"{name}_b64": b64(value)}
