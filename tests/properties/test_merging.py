"""Merged manifests: one that does to any state what several do one after the other. Pure.

`MULLIGAN_EXAMPLES` is the number of random sequences.
"""

from __future__ import annotations

import os
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.model.ids import LayerId, parent
from mulligan.model.layer import Entry, Manifest
from mulligan.model.merging import merge_manifests
from mulligan.model.tree import Node, Tree

EXAMPLES = int(os.environ.get("MULLIGAN_EXAMPLES", "300"))
FOLDED = LayerId("folded")
NAMES = "abc"
PATHS = [f"/{a}" for a in NAMES] + [f"/{a}/{b}" for a in NAMES for b in NAMES] + [f"/a/{b}/{c}" for b in NAMES for c in NAMES]


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any entry, be it made or inherited in part."""
    kind = draw(st.sampled_from(["file", "file", "dir", "dir", "dir", "link"]))
    number = draw(st.integers(0, 5))
    made = draw(st.booleans())
    flags = [not made and draw(st.booleans()) for _ in range(4)]
    return Entry(
        kind,
        mode=0o700 + number,
        uid=number,
        gid=number + 1,
        size=number if kind == "file" else 0,
        mtime_ns=number,
        target=f"to{number}" if kind == "link" else "",
        xattrs=((b"user.x", b"%d" % number),) if number % 2 else (),
        opaque=kind == "dir" and draw(st.integers(0, 4)) == 0,
        made=made,
        inherit_content=flags[0] and kind != "dir",
        inherit_mode=flags[1],
        inherit_mtime=flags[2],
        inherit_xattrs=flags[3],
    )


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """A manifest as sealing makes them: the folders above each name are in it, and nothing below a removed one is."""
    found: dict[str, Entry] = {}
    removed: set[str] = set()
    for path, entry in draw(st.lists(st.tuples(st.sampled_from(PATHS), st.none() | entries()), max_size=6)):
        above = [path]
        while above[0] != "/":
            above.insert(0, parent(above[0]))
        between = above[1:-1]
        if any(one in removed or (one in found and found[one].kind != "dir") for one in between):
            continue
        if path in found or path in removed:
            continue
        for one in between:
            found.setdefault(one, Entry("dir", made=False, inherit_mode=True, inherit_mtime=True, inherit_xattrs=True))
        if entry is None:
            removed.add(path)
        else:
            found[path] = entry
    return Manifest(_linked(draw, found), frozenset(removed))


def _linked(draw: st.DrawFn, found: dict[str, Entry]) -> dict[str, Entry]:
    """Perhaps two of the files made here are one."""
    files = sorted(path for path, entry in found.items() if entry.kind == "file" and entry.made)
    if len(files) >= 2 and draw(st.booleans()):
        one, other = files[:2]
        found[one] = replace(found[one], links=(other,))
        found[other] = replace(found[one], links=(one,))
    return found


def seen(tree: Tree, group: frozenset[LayerId]) -> dict[str, tuple[Node, object]]:
    """Every node of a tree, with its links; who of the group provides it is one and the same."""
    rows = {}
    for path in tree.paths():
        node = tree.get(path)
        assert node is not None
        provider = FOLDED if node.provider in group else node.provider
        rows[path] = (replace(node, provider=provider, group=None), tree._links(node))
    return rows


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(manifests(), max_size=3), st.lists(manifests(), min_size=1, max_size=5))
def test_the_merged_manifest_does_what_the_manifests_do_in_turn(below: list[Manifest], group: list[Manifest]) -> None:
    """Over any state, one application of the merged manifest gives the state that all of them give."""
    one, other = Tree(), Tree()
    for number, manifest in enumerate(below):
        for tree in (one, other):
            tree.apply(manifest, LayerId(f"below{number}"))
    layers = [LayerId(f"layer{number}") for number in range(len(group))]
    for manifest, layer in zip(group, layers, strict=True):
        one.apply(manifest, layer)
    other.apply(merge_manifests(group), FOLDED)
    assert seen(other, frozenset()) == seen(one, frozenset(layers))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(manifests(), max_size=3), st.lists(manifests(), min_size=2, max_size=5), st.data())
def test_merging_in_two_steps_is_merging_at_once(below: list[Manifest], group: list[Manifest], data: st.DataObject) -> None:
    """A floor that is moved up is merged of the old floor and the layers since: that says the same."""
    middle = data.draw(st.integers(1, len(group) - 1))
    one, other = Tree(), Tree()
    for number, manifest in enumerate(below):
        for tree in (one, other):
            tree.apply(manifest, LayerId(f"below{number}"))
    one.apply(merge_manifests(group), FOLDED)
    other.apply(merge_manifests([merge_manifests(group[:middle]), *group[middle:]]), FOLDED)
    assert seen(one, frozenset()) == seen(other, frozenset())
