"""Events: the facts that the tracer reports, in order, and the raw entries of the layer it leaves.

Knows ids. The wire form is in tracer/PROTOCOL.md; `Event` is the closed union, so that folding ends in `assert_never`.
All paths are absolute, physical (no symlink, no `..`) guest paths, as found at the moment of the system call.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Literal, NamedTuple


class Read(NamedTuple):
    """The content of a file was read or may have been: open for reading, exec, copy-up source."""

    path: str


class Stat(NamedTuple):
    """All of an object's metadata was seen; `own_cwd`: it was the caller's own working directory, as shells check $PWD."""

    path: str
    own_cwd: bool


class Probe(NamedTuple):
    """Existence, kind and mode were seen: access(2), chdir, O_PATH, the outcome of mkdir, O_EXCL, unlink …"""

    path: str


class Missed(NamedTuple):
    """The first component of a lookup that was not there."""

    path: str


class Link(NamedTuple):
    """A symlink was passed or read: its target is an input."""

    path: str


class List(NamedTuple):
    """A folder was listed, or found to be empty or not."""

    path: str


class XattrRead(NamedTuple):
    """Extended attributes or ACLs of the object were read."""

    path: str


class Create(NamedTuple):
    """A file came into being that was not there."""

    path: str


class Write(NamedTuple):
    """An existing file was opened for writing, or truncated; without `truncated` its old content shines through."""

    path: str
    truncated: bool


class Mkdir(NamedTuple):
    """A folder was made."""

    path: str


class Remove(NamedTuple):
    """A name was removed (unlink, rmdir)."""

    path: str


class Rename(NamedTuple):
    """A name, with all below it, moved; `exchange` swaps the two."""

    source: str
    target: str
    exchange: bool


class Hardlink(NamedTuple):
    """`target` became another name of `source`."""

    source: str
    target: str


class Symlink(NamedTuple):
    """A symlink was made."""

    path: str


class Mknod(NamedTuple):
    """A FIFO, a socket or a device was made."""

    path: str


class MetaWhat(IntFlag):
    """What of an object's metadata was set explicitly."""

    MODE = 1
    OWNER = 2
    TIMES = 4
    XATTR = 8


class Meta(NamedTuple):
    """Metadata was set: chmod, chown, utimensat, setxattr."""

    path: str
    what: MetaWhat


class Exec(NamedTuple):
    """A program was started (or, with `errno`, was not): full argv, environment and working directory."""

    tid: int
    path: str
    argv: tuple[bytes, ...]
    env: tuple[bytes, ...]
    cwd: str
    errno: int
    umask: int | None = None  # the caller's, told when the exec failed


class Connect(NamedTuple):
    """A peer was addressed (connect, sendto, sendmsg) or, with `op` "bind", an address was taken."""

    op: Literal["connect", "bind", "send"]
    family: str  # "inet", "inet6", "unix-abstract", "netlink", "packet", or the number
    address: str
    port: int
    errno: int


class Credentials(NamedTuple):
    """A process changed its user or group ids: permission checks may then have another result for it."""

    tid: int


class Umask(NamedTuple):
    """A process set the mask that it makes files with, and so learnt what it had been."""


class Killed(NamedTuple):
    """A process outlived the command and was killed at the boundary."""

    pid: int
    name: str


class Incomplete(NamedTuple):
    """The tracer could not model something; `reason` is from the closed list of tracer/PROTOCOL.md."""

    reason: str
    detail: str


Event = (
    Read | Stat | Probe | Missed | Link | List | XattrRead | Create | Write | Mkdir | Remove | Rename | Hardlink | Symlink
    | Mknod | Meta | Exec | Connect | Credentials | Umask | Killed | Incomplete
)  # fmt: skip

EntryKind = Literal["file", "dir", "link", "fifo", "sock", "char", "block", "whiteout"]


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One object of the upper directory as it lies on disk after the action (ids as inside the sandbox)."""

    path: str
    kind: EntryKind
    mode: int  # permission bits, 0o7777
    uid: int
    gid: int
    size: int
    mtime_ns: int
    nlink: int
    ino: int
    target: str = ""  # of a symlink
    rdev: int = 0
    opaque: bool = False
    xattrs: tuple[tuple[bytes, bytes], ...] = ()  # without the overlay's own
