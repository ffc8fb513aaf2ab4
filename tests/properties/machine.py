"""The model machine: a small file system with the overlay's habits that runs programs and tells the facts a tracer would.

Knows events and raw entries, and nothing of folding or planning: it is the other side that those are held against. It is
independent of them on purpose: it knows what a program *really* saw (`Run.seen`, facts with their values), so that what a
repair must run again can be told without any footprint.

The overlay's habits: a lower object is copied up by its first change, which leaves its other hard links behind; a folder of a
lower layer is not renamed (EXDEV); a folder made where something lay is opaque; an untouched copy is a phantom and is dropped.
Time stands still within a slot, so equal things made in one slot are equal in their times as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mulligan.model import events as ev
from mulligan.model.events import MetaWhat, RawEntry
from mulligan.model.ids import join, parent

HOPS = 8
Op = tuple


class Failed(Exception):  # noqa: N818 - an errno of the machine, not an error of the test
    """A call of the program failed with this errno."""


@dataclass(eq=False)
class Inode:
    """One object. Never changed once its layer is sealed; identity is the object's identity."""

    kind: str
    data: bytes = b""
    mode: int = 0o644
    target: str = ""
    mtime: int = 0
    nlink: int = 1
    xattr: bytes = b""


State = dict[str, Inode]


@dataclass
class Sealed:
    """A layer as it lies on disk: raw entries, and the inodes they stand for."""

    raw: list[RawEntry]
    inodes: dict[str, Inode]


@dataclass
class Run:
    """What came of one program: what it printed, the tracer's facts, what it really saw, and its sealed layer."""

    transcript: list[object]
    events: list[ev.Event]
    seen: list[object]
    sealed: Sealed
    env: dict[str, str] = field(default_factory=dict)


def start() -> State:
    """The empty state."""
    return {"/": Inode("dir", mode=0o755)}


def run(program: list[Op], below: State, now: int, env: dict[str, str] | None = None) -> Run:
    """Run a program over a state, which is left as it is."""
    machine = _Machine(below, now, dict(env or {}))
    for op in program:
        machine.do(op)
    return Run(machine.transcript, machine.events, machine.seen, machine.seal(), machine.env)


def lay(state: State, sealed: Sealed) -> State:
    """The merged view of a layer over a state, by the rules of overlayfs."""
    out = dict(state)
    for raw in sorted(sealed.raw, key=lambda raw: raw.path):
        if raw.kind == "whiteout" or raw.kind != "dir" or raw.opaque or out.get(raw.path, _NONE).kind != "dir":
            for path in [p for p in out if p == raw.path or p.startswith(raw.path + "/")]:
                del out[path]
        if raw.kind != "whiteout":
            assert raw.path == "/" or out.get(parent(raw.path), _NONE).kind == "dir", f"{raw.path} has no folder to stand in"
            out[raw.path] = sealed.inodes[raw.path]
    return out


def shown(state: State) -> dict[str, tuple[object, ...]]:
    """All of a state that may be compared with another one: names, kinds, bytes, modes, targets, times, link groups."""
    groups: dict[int, list[str]] = {}
    for path, inode in state.items():
        groups.setdefault(id(inode), []).append(path)
    return {
        path: (i.kind, i.data, i.mode, i.target, i.mtime, i.xattr, tuple(sorted(groups[id(i)])) if i.kind != "dir" else ())
        for path, i in state.items()
    }


_NONE = Inode("none")


class _Machine:
    def __init__(self, below: State, now: int, env: dict[str, str]) -> None:
        self.below, self.state, self.now, self.env = below, dict(below), now, env
        self.own: set[int] = set()  # ids of inodes of this layer
        self.made: set[int] = set()  # of those, the ones that are no copies
        self.keep: list[Inode] = []  # so that no id is used twice
        self.events: list[ev.Event] = []
        self.seen: list[object] = []
        self.transcript: list[object] = []

    def do(self, op: Op) -> None:
        name, *args = op
        try:
            got = getattr(self, f"op_{name}")(*args)
        except Failed as failed:
            got = str(failed)
        self.transcript.append((name, got))

    # -- facts, with the value seen

    def fact(self, event: ev.Event) -> None:
        self.events.append(event)
        path = getattr(event, "path", "")
        i = self.state.get(path, _NONE)
        match event:
            case ev.Read():
                value: object = (i.kind, i.data, i.target, bool(i.mode & 0o111))  # a program must be executable by somebody
            case ev.Stat():
                value = self.stat_of(i), self.group(path)
            case ev.Probe():
                value = (i.kind, i.mode, i.target)
            case ev.List():
                value = self.names(path)
            case ev.Link():
                value = i.target
            case ev.XattrRead():
                value = i.xattr
            case _:
                value = None
        self.seen.append((event, value))

    def group(self, path: str) -> tuple[object, ...]:
        """The hard-link group of a file: whoever looks at all metadata, or writes, relies on it."""
        i = self.state[path]
        return () if i.kind == "dir" else (i.nlink, *(p for p, other in sorted(self.state.items()) if other is i))

    def stat_of(self, i: Inode) -> tuple[object, ...]:
        return (i.kind, i.mode, i.mtime, *(() if i.kind == "dir" else (len(i.data), i.nlink)))

    def names(self, folder: str) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((p.rpartition("/")[2], i.kind) for p, i in self.state.items() if p != "/" and parent(p) == folder))

    # -- lookup

    def resolve(self, path: str, *, follow: bool = True, hops: int = 0) -> tuple[str, Inode | None]:
        """The physical path and what stands there; None when only the last component is missing."""
        if hops > HOPS:
            raise Failed("ELOOP")
        at, parts = "/", [part for part in path.split("/") if part]
        for n, part in enumerate(parts):
            at = parent(at) if part == ".." else join(at, part)
            inode, last = self.state.get(at), n == len(parts) - 1
            if inode is None:
                self.fact(ev.Missed(at))
                if last:
                    return at, None
                raise Failed("ENOENT")
            if inode.kind == "link" and (follow or not last):
                self.fact(ev.Link(at))
                rest = "/".join(parts[n + 1 :])
                target = inode.target if inode.target.startswith("/") else f"{parent(at)}/{inode.target}"
                return self.resolve(f"{target}/{rest}" if rest else target, follow=follow, hops=hops + 1)
            if inode.kind != "dir" and not last:
                self.fact(ev.Probe(at))
                raise Failed("ENOTDIR")
        return at, self.state[at]

    def existing(self, path: str, *, follow: bool = True) -> tuple[str, Inode]:
        at, inode = self.resolve(path, follow=follow)
        if inode is None:
            raise Failed("ENOENT")
        return at, inode

    def absent(self, path: str) -> str:
        at, inode = self.resolve(path, follow=False)
        if inode is not None:
            self.fact(ev.Probe(at))
            raise Failed("EEXIST")
        return at

    # -- changes

    def put(self, path: str, inode: Inode, *, made: bool = True) -> None:
        self.keep.append(inode)
        self.own.add(id(inode))
        if made:
            self.made.add(id(inode))
        self.state[path] = inode

    def copy_up(self, path: str) -> Inode:
        inode = self.state[path]
        if id(inode) not in self.own:
            inode = replace(inode, nlink=1)
            self.put(path, inode, made=False)
        return inode

    def touch_folder(self, path: str) -> None:
        self.copy_up(parent(path)).mtime = self.now

    def unname(self, path: str) -> None:
        inode = self.state.pop(path)
        if id(inode) in self.own:
            inode.nlink -= 1
        self.touch_folder(path)

    # -- the calls of a program

    def op_read(self, path: str) -> object:
        at, inode = self.existing(path)
        if inode.kind == "dir":
            self.fact(ev.Probe(at))
            raise Failed("EISDIR")
        self.fact(ev.Read(at))
        return inode.data

    def op_write(self, path: str, data: bytes) -> None:
        at, inode = self.resolve(path)
        if inode is None:
            self.put(at, Inode("file", data, mtime=self.now))
            self.touch_folder(at)
            self.fact(ev.Create(at))
            return
        self.fact(ev.Probe(at))
        if inode.kind == "dir":
            raise Failed("EISDIR")
        self.seen.append((self.group(at), inode.xattr))
        inode = self.copy_up(at)
        inode.data, inode.mtime = data, self.now
        self.fact(ev.Write(at, truncated=True))

    def op_append(self, path: str, data: bytes) -> None:
        at, inode = self.resolve(path)
        if inode is None:
            self.put(at, Inode("file", data, mtime=self.now))
            self.touch_folder(at)
            self.fact(ev.Create(at))
            return
        self.fact(ev.Probe(at))
        if inode.kind == "dir":
            raise Failed("EISDIR")
        self.fact(ev.Read(at))
        self.seen.append((self.group(at), inode.xattr))
        inode = self.copy_up(at)
        if data:
            inode.data, inode.mtime = inode.data + data, self.now
        self.fact(ev.Write(at, truncated=False))

    def op_truncate(self, path: str, size: int) -> None:
        at, inode = self.existing(path)
        self.fact(ev.Probe(at))
        if inode.kind == "dir":
            raise Failed("EISDIR")
        if size:
            self.fact(ev.Read(at))
        self.seen.append((self.group(at), inode.xattr))
        inode = self.copy_up(at)
        inode.data, inode.mtime = inode.data[:size].ljust(size, b"\0"), self.now
        self.fact(ev.Write(at, truncated=size == 0))

    def op_copy(self, source: str, target: str) -> None:
        self.op_write(target, self.op_read(source))

    def op_remove(self, path: str) -> None:
        at, inode = self.existing(path, follow=False)
        self.fact(ev.Probe(at))
        if inode.kind == "dir":
            raise Failed("EISDIR")
        self.unname(at)
        self.fact(ev.Remove(at))

    def op_mkdir(self, path: str) -> None:
        at = self.absent(path)
        self.put(at, Inode("dir", mode=0o755, mtime=self.now))
        self.touch_folder(at)
        self.fact(ev.Mkdir(at))

    def op_rmdir(self, path: str) -> None:
        at, inode = self.existing(path, follow=False)
        self.fact(ev.Probe(at))
        if inode.kind != "dir":
            raise Failed("ENOTDIR")
        self.fact(ev.List(at))
        if self.names(at):
            raise Failed("ENOTEMPTY")
        self.unname(at)
        self.fact(ev.Remove(at))

    def op_chmod(self, path: str, mode: int) -> None:
        at, _ = self.existing(path)
        self.fact(ev.Probe(at))
        self.copy_up(at).mode = mode
        self.fact(ev.Meta(at, MetaWhat.MODE))

    def op_utime(self, path: str) -> None:
        at, _ = self.existing(path)
        self.fact(ev.Probe(at))
        self.copy_up(at).mtime = self.now
        self.fact(ev.Meta(at, MetaWhat.TIMES))

    def op_setxattr(self, path: str, value: bytes) -> None:
        at, _ = self.existing(path)
        self.fact(ev.Probe(at))
        self.seen.append(self.state[at].xattr)  # all but the one that is set is carried along
        self.copy_up(at).xattr = value
        self.fact(ev.Meta(at, MetaWhat.XATTR))

    def op_getxattr(self, path: str) -> object:
        at, inode = self.existing(path)
        self.fact(ev.XattrRead(at))
        return inode.xattr

    def op_link(self, source: str, target: str) -> None:
        at, inode = self.existing(source, follow=False)
        if inode.kind == "dir":
            self.fact(ev.Probe(at))
            raise Failed("EPERM")
        self.fact(ev.Read(at))
        self.fact(ev.Stat(at, own_cwd=False))
        to = self.absent(target)
        self.seen.append(inode.xattr)  # carried along to the new name
        inode = self.copy_up(at)
        inode.nlink += 1
        self.state[to] = inode
        self.touch_folder(to)
        self.fact(ev.Hardlink(at, to))

    def op_symlink(self, target: str, path: str) -> None:
        at = self.absent(path)
        self.put(at, Inode("link", mode=0o777, target=target, mtime=self.now))
        self.touch_folder(at)
        self.fact(ev.Symlink(at))

    def op_rename(self, source: str, target: str) -> None:
        at, inode = self.existing(source, follow=False)
        if inode.kind == "dir":
            self.fact(ev.Probe(at))
        else:
            self.fact(ev.Read(at))
            self.fact(ev.Stat(at, own_cwd=False))
        to, other = self.resolve(target, follow=False)
        if other is not None:
            self.fact(ev.Probe(to))
            if other.kind == "dir":
                self.fact(ev.List(to))
        self.check_rename(at, inode, to, other)
        if to == at or (other is inode and id(inode) in self.own):  # two lower names of one file are two files for the overlay
            self.fact(ev.Rename(at, to, exchange=False))
            return
        self.seen.append(inode.xattr)  # carried along to the new name
        self.copy_up(at)
        if other is not None:
            self.unname(to)
        moved = {to + p[len(at) :]: i for p, i in self.state.items() if p == at or p.startswith(at + "/")}
        for path in [p for p in self.state if p == at or p.startswith(at + "/")]:
            del self.state[path]
        self.state.update(moved)
        self.touch_folder(at)
        self.touch_folder(to)
        self.fact(ev.Rename(at, to, exchange=False))

    def check_rename(self, at: str, inode: Inode, to: str, other: Inode | None) -> None:
        if inode.kind == "dir":
            if to.startswith(at + "/"):
                raise Failed("EINVAL")
            if other is not None and other.kind != "dir":
                raise Failed("ENOTDIR")
            if to != at and id(inode) not in self.made:
                raise Failed("EXDEV")
        elif other is not None and other.kind == "dir":
            raise Failed("EISDIR")
        if other is not None and to != at and other.kind == "dir" and self.names(to):
            raise Failed("ENOTEMPTY")

    def op_stat(self, path: str) -> object:
        at, inode = self.existing(path)
        self.fact(ev.Stat(at, own_cwd=False))
        return self.stat_of(inode)

    def op_exists(self, path: str) -> object:
        at, inode = self.existing(path)
        self.fact(ev.Probe(at))
        return inode.kind, inode.mode

    def op_list(self, path: str) -> object:
        at, inode = self.existing(path)
        self.fact(ev.Probe(at))
        if inode.kind != "dir":
            raise Failed("ENOTDIR")
        self.fact(ev.List(at))
        return self.names(at)

    def op_readlink(self, path: str) -> object:
        at, inode = self.existing(path, follow=False)
        self.fact(ev.Link(at) if inode.kind == "link" else ev.Probe(at))
        return inode.target

    def op_report(self, path: str) -> None:
        """Write down all that was seen so far: the file then depends on it."""
        self.op_write(path, repr(self.transcript).encode())

    def op_if(self, path: str, then: Op, otherwise: Op) -> None:
        """Do one thing when the path exists, and another when it does not."""
        try:
            self.op_exists(path)
        except Failed:
            self.do(otherwise)
        else:
            self.do(then)

    def op_export(self, name: str, value: str) -> None:
        self.env[name] = value

    def op_unset(self, name: str) -> None:
        self.env.pop(name, None)

    def op_getenv(self, name: str) -> object:
        self.seen.append(("env", name, self.env.get(name)))
        return self.env.get(name)

    # -- the layer

    def seal(self) -> Sealed:
        for path, inode in list(self.state.items()):
            before = self.below.get(path)
            if id(inode) in self.own and id(inode) not in self.made and before is not None and inode.nlink == 1:
                copy = replace(before, nlink=1)
                if before.kind != "dir" and vars(copy) == vars(inode):
                    self.state[path] = before  # a phantom
        changed = {p for p, i in self.state.items() if self.below.get(p) is not i}
        gone = {p for p in self.below if p not in self.state and self._shows_through(parent(p))}
        upper = set(changed)
        for path in changed | gone:
            at = path
            while at != "/":
                at = parent(at)
                upper.add(at)
        raw = [self._entry(path) for path in sorted(upper)]
        raw += [RawEntry(path, "whiteout", 0, 0, 0, 0, 0, 1, 0) for path in sorted(gone)]
        return Sealed(raw, {path: self.state[path] for path in upper})

    def _shows_through(self, folder: str) -> bool:
        inode = self.state.get(folder)
        return inode is not None and inode.kind == "dir" and id(inode) not in self.made and folder in self.below

    def _entry(self, path: str) -> RawEntry:
        i = self.state[path]
        opaque = i.kind == "dir" and id(i) in self.made and path in self.below
        xattrs = ((b"user.x", i.xattr),) if i.xattr else ()
        size = len(i.target) if i.kind == "link" else len(i.data)
        return RawEntry(path, i.kind, i.mode, 0, 0, size, i.mtime, i.nlink, id(i), i.target, 0, opaque, xattrs)
