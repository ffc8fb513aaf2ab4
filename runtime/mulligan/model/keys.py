"""Keys: the typed addresses of pieces of state, after which observations and changes are compared.

Knows paths. Kinds begin with the glossary's word: `ent` existence and kind (for a symlink, its target too), `dat`
content, `meta.mode` (mode, uid, gid), `meta.search` (may this action's principal pass or change this folder), `meta.mtime`
(size and mtime), `meta.links` (hard-link group), `meta.xattr`, `dir` a listing, and `env`, `net`, `out`, `mem`.

Deliberately in no key: ctime, inode and device numbers, atime, the order of a listing, a folder's size and link count
(all differ between two serial runs of one history).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

KeyKind = Literal[
    "ent", "dat", "meta.mode", "meta.search", "meta.mtime", "meta.links", "meta.xattr", "dir", "env", "net", "out", "mem"
]

ENT: Final = "ent"
DAT: Final = "dat"
MODE: Final = "meta.mode"
SEARCH: Final = "meta.search"
MTIME: Final = "meta.mtime"
LINKS: Final = "meta.links"
XATTR: Final = "meta.xattr"
DIR: Final = "dir"
ENV: Final = "env"
NET: Final = "net"
OUT: Final = "out"
MEM: Final = "mem"

# What a layer sets of a path; `meta.search` follows from the mode, `dir` from the entries' existence and kind.
STORED: Final[frozenset[KeyKind]] = frozenset((ENT, DAT, MODE, MTIME, LINKS, XATTR))
# The most telling key of a path comes first: it is the one to show when several differ.
TELLING: Final[tuple[KeyKind, ...]] = (DAT, ENT, DIR, MODE, SEARCH, XATTR, LINKS, MTIME)

PATH_KINDS: Final[tuple[KeyKind, ...]] = (ENT, DAT, MODE, SEARCH, MTIME, LINKS, XATTR)


class Key(NamedTuple):
    """One address: `Key("dat", "/workspace/a")`, `Key("env", "DB_HOST")`."""

    kind: KeyKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_key(text: str) -> Key:
    """The key that `kind:name` writes. Raises ValueError with the kinds that exist."""
    kind, sep, name = text.partition(":")
    known: tuple[KeyKind, ...] = (*PATH_KINDS, DIR, ENV, NET, OUT, MEM)
    for one in known:
        if sep and name and kind == one:
            return Key(one, name)
    raise ValueError(f"key {text!r} is not of the form KIND:NAME with KIND one of {', '.join(known)}")
