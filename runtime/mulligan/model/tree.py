"""Tree: one state of the world as explicit paths, built by laying manifests over each other.

Knows manifests and keys; pure. Gives the value of any path key in that state, so that two states can be compared. What lies
in the host's read-only folders is in no manifest and hence in no tree: it is the same in all states of a session.

The content of a file is named by its provider: the layer that holds its bytes, at the same path. Layers never change, so
equal providers mean equal bytes, and only where they differ somebody has to look.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, assert_never

from mulligan.model.ids import LayerId, join, parent
from mulligan.model.keys import LINKS, STORED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mulligan.model.footprint import Principal
    from mulligan.model.keys import Key, KeyKind
    from mulligan.model.layer import Entry, Manifest, NodeKind


class Group(NamedTuple):
    """The names that a layer gave one file. A name leaves the group when a later layer sets or removes it."""

    layer: LayerId
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Node:
    """What stands at a path. `provider` is the layer that holds the content (of a folder: that made it)."""

    kind: NodeKind
    provider: LayerId
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    size: int = 0
    mtime_ns: int = 0
    target: str = ""
    rdev: int = 0
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    group: Group | None = None


ACLS = b"system.posix_acl_"
DEFAULT_ACL = ACLS + b"default"
ROOT = Node("dir", LayerId(""))


class Tree:
    """A mutable view of one state. `copy` costs one shallow copy of the tables; nodes are shared."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {"/": ROOT}
        self._names: dict[str, set[str]] = {}  # folder -> names in it
        self._own: set[str] = set()  # folders whose set of names is not shared with a copy

    def copy(self) -> Tree:
        """An independent tree of the same state."""
        twin = Tree()
        twin._nodes = self._nodes.copy()
        twin._names = self._names.copy()
        self._own = set()
        return twin

    def get(self, path: str) -> Node | None:
        """What stands at the path, or None."""
        return self._nodes.get(path)

    def __contains__(self, path: object) -> bool:
        return path in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def paths(self) -> list[str]:
        """Every path of the state, sorted."""
        return sorted(self._nodes)

    def children(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(self._names.get(path, ()))

    def walk(self, path: str = "/") -> Iterator[tuple[str, Node]]:
        """The path itself and all below it, parents first and names in order; nothing when there is no such path."""
        todo = [path] if path in self._nodes else []
        while todo:
            at = todo.pop()
            yield at, self._nodes[at]
            todo += [join(at, name) for name in reversed(self.children(at))]

    def apply(self, manifest: Manifest, provider: LayerId) -> frozenset[str]:
        """Lay a manifest on top. Gives every path of which something may have changed, removed descendants included."""
        touched: set[str] = set()
        for path in manifest.removed:
            touched.add(path)
            self._remove(path, touched)
        for path, entry in sorted(manifest.entries.items()):
            touched.add(path)
            self._set(path, entry, provider, touched)
        return frozenset(touched)

    def place(self, path: str, node: Node | None) -> None:
        """Say outright what stands at a path, or that nothing does. Its folder must be there, and nothing below what goes."""
        if path != "/":
            names = self._editable(parent(path))
            (names.discard if node is None else names.add)(path.rpartition("/")[2])
        if node is None:
            self._nodes.pop(path, None)
            self._names.pop(path, None)
            self._own.discard(path)
        else:
            self._nodes[path] = node

    def value(self, key: Key, principal: Principal = "root") -> object:
        """The value of a path key in this state; two states agree in a key when its values are equal.

        For `dat` that is the provider of the bytes: unequal values may still be equal bytes.
        """
        node = self._nodes.get(key.name)
        return None if node is None else self._value(key, node, principal)

    def _value(self, key: Key, node: Node, principal: Principal) -> object:
        match key.kind:
            case "ent":
                return node.kind, node.target, node.rdev
            case "dat":
                return (node.provider, key.name) if node.kind == "file" else None
            case "meta.mode":
                return node.mode, node.uid, node.gid
            case "meta.search":
                return _search(node, principal)
            case "meta.mtime":
                return node.size if node.kind != "dir" else 0, node.mtime_ns
            case "meta.links":
                return self._links(node)
            case "meta.xattr":
                return node.xattrs
            case "dir":
                return self._listing(key.name)
            case "env" | "net" | "out" | "mem":
                raise ValueError(f"{key} is not a key of the file tree")
            case _:
                assert_never(key.kind)

    def _listing(self, folder: str) -> frozenset[tuple[str, str]]:
        return frozenset((name, self._nodes[join(folder, name)].kind) for name in self._names.get(folder, ()))

    def _links(self, node: Node) -> tuple[frozenset[str], int]:
        """The names that still share the file, and the link count that a stat shows (which no copy-up lowers)."""
        if node.group is None:
            return frozenset(), 1
        return frozenset(n for n in node.group.names if self._has(n, node.group)), len(node.group.names)

    def _has(self, path: str, group: Group) -> bool:
        node = self._nodes.get(path)
        return node is not None and node.group == group

    def _set(self, path: str, entry: Entry, provider: LayerId, touched: set[str]) -> None:
        below = self._nodes.get(path)
        if below is not None and (entry.opaque or (below.kind != entry.kind and "dir" in (below.kind, entry.kind))):
            self._remove(path, touched)
            if not entry.opaque or entry.made:
                below = None
        if path not in self._nodes and path != "/":
            self._enter(path, provider, touched)
        if below is not None and below.group is not None:
            touched.update(below.group.names)
        self._nodes[path] = _laid(entry, below, path, provider)

    def _enter(self, path: str, provider: LayerId, touched: set[str]) -> None:
        """Give the path a name in its folder, and make the folders above that no layer made."""
        while True:
            folder = parent(path)
            self._editable(folder).add(path.rpartition("/")[2])
            above = self._nodes.get(folder)
            if above is not None and above.kind == "dir":
                return
            if above is not None and above.group is not None:
                touched.update(above.group.names)
            self._nodes[folder] = Node("dir", provider)
            touched.add(folder)
            path = folder

    def _remove(self, path: str, touched: set[str]) -> None:
        if path not in self._nodes or path == "/":
            return
        self._editable(parent(path)).discard(path.rpartition("/")[2])
        todo = [path]
        while todo:
            at = todo.pop()
            touched.add(at)
            node = self._nodes.pop(at)
            if node.group is not None:
                touched.update(node.group.names)
            todo.extend(join(at, name) for name in self._names.pop(at, ()))
            self._own.discard(at)

    def _editable(self, folder: str) -> set[str]:
        names = self._names.get(folder)
        if names is None or folder not in self._own:
            names = set(names) if names is not None else set()
            self._names[folder] = names
            self._own.add(folder)
        return names


def touched_kinds(path: str, after: Tree) -> frozenset[KeyKind]:
    """The kinds of key that a layer changed of a path it has no entry for, but that `Tree.apply` says it touched.

    Either the path was removed, itself or with its folder, or another name of the same file left their group.
    """
    return frozenset((LINKS,)) if path in after else STORED


def _search(node: Node, principal: Principal) -> object:
    """What of an object's mode decides whether the principal may pass, read, change or run it.

    Root passes everywhere, but runs only what somebody may run. A set-group-id folder gives its group to what is made in it,
    and a folder with a default ACL its permissions.
    """
    group = node.gid if node.kind == "dir" and node.mode & 0o2000 else None
    default = tuple(value for name, value in node.xattrs if name == DEFAULT_ACL)
    if principal == "root":
        return node.kind, node.kind == "dir" or bool(node.mode & 0o111), group, default
    if principal == "owner":
        return node.kind, node.mode >> 6 & 7, node.uid, group, default
    return node.kind, node.mode, node.uid, node.gid, tuple(pair for pair in node.xattrs if pair[0].startswith(ACLS))


def _laid(entry: Entry, below: Node | None, path: str, provider: LayerId) -> Node:
    """The node that an entry makes of what lies below it."""
    node = Node(
        entry.kind,
        provider,
        entry.mode,
        entry.uid,
        entry.gid,
        entry.size,
        entry.mtime_ns,
        entry.target,
        entry.rdev,
        entry.xattrs,
        Group(provider, frozenset((path, *entry.links))) if entry.links else None,
    )
    if below is None or entry.made or below.kind != entry.kind:
        return node
    if entry.inherit_content:
        node = replace(node, provider=below.provider, size=below.size, target=below.target, rdev=below.rdev)
    if entry.inherit_mode:
        node = replace(node, mode=below.mode, uid=below.uid, gid=below.gid)
    if entry.inherit_mtime:
        node = replace(node, mtime_ns=below.mtime_ns)
    return replace(node, xattrs=below.xattrs) if entry.inherit_xattrs else node
