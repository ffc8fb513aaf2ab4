"""Folding: from the tracer's ordered events and the raw upper directory to a manifest, a footprint and a hand-off.

Knows events, own writes, manifests, footprints; pure. When it is in doubt it says "observed": an action may then run again
without need, but is never kept wrongly.

What a mutation observes beyond the events that precede it. The layer holds a *copy* of an old object that was changed, so
every part of the old object that would be carried along must either be observed (then a difference makes the action run
again) or be marked as inherited (then it is taken from below wherever the layer stands). Inherited are: all of a parent
folder that was only copied up, the content of a file of which only metadata were set, and extended attributes that
nobody set. All else is observed: the old content by a write without truncation, by a rename and by a link; mode and
attributes by any write, since the kernel takes set-id bits and capabilities from a file that is written to.
"""

from __future__ import annotations

import errno as errnos
import re
from typing import TYPE_CHECKING, assert_never

from mulligan.model.action import USUAL_UMASK, LaunchContext
from mulligan.model.events import (
    Connect,
    Create,
    Credentials,
    Exec,
    Hardlink,
    Incomplete,
    Killed,
    Link,
    List,
    Meta,
    MetaWhat,
    Missed,
    Mkdir,
    Mknod,
    Probe,
    Read,
    Remove,
    Rename,
    Stat,
    Symlink,
    Umask,
    Write,
    XattrRead,
)  # fmt: skip
from mulligan.model.footprint import Footprint
from mulligan.model.ids import folders_above, guest_path, parent
from mulligan.model.layer import Entry, Manifest
from mulligan.model.listings import program_lists
from mulligan.model.own import OwnWrites, is_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mulligan.model.events import Event, RawEntry
    from mulligan.model.own import Mutation, Object

HANDOFF_PROGRAM = "/.mulligan/handoff"
MOST_WORDS = 20_000  # of the arguments of an action's programs; beyond, it counts as having used every variable
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_TELLS_ENV = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/(?:environ|mem)")
NEVER_HANDED_ON = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})  # the shell makes these afresh for each process


def fold_manifest(events: Iterable[Event], raw: Iterable[RawEntry]) -> Manifest:
    """The canonical delta of an upper directory: each path with what of it was meant and what came along by copy-up."""
    own = own_writes(events)
    raw = [entry for entry in raw if is_state(entry.path)]
    names: dict[int, list[str]] = {}
    for entry in raw:
        if entry.nlink > 1 and entry.kind not in ("dir", "whiteout"):
            names.setdefault(entry.ino, []).append(entry.path)
    entries = {}
    for entry in raw:
        if entry.kind != "whiteout" and not (entry.path == "/" and _is_untouched_root(own)):
            others = tuple(sorted(set(names.get(entry.ino, ())) - {entry.path})) if entry.nlink > 1 else ()
            entries[entry.path] = _entry(entry, own, others)
    return Manifest(entries, frozenset(entry.path for entry in raw if entry.kind == "whiteout"))


def _is_untouched_root(own: OwnWrites) -> bool:
    """The upper directory always has a root; it is part of the delta only when something was done to it."""
    return own.at("/") is None and "/" not in own.changed_folders


def _entry(raw: RawEntry, own: OwnWrites, links: tuple[str, ...]) -> Entry:
    assert raw.kind != "whiteout", raw
    found = own.at(raw.path)
    origin = own.where(raw.path).origin
    folder = raw.kind == "dir"
    made = raw.opaque or origin is None or (found is not None and found.moved)
    meta = found.meta if found is not None else MetaWhat(0)
    written = found is not None and found.written
    # A copied-up file that no event explains is taken as it lies; `fold_footprint` then makes it an observation.
    explained = folder or found is not None
    mtime_set = written or MetaWhat.TIMES in meta or (folder and raw.path in own.changed_folders)
    return Entry(
        kind=raw.kind,
        mode=raw.mode,
        uid=raw.uid,
        gid=raw.gid,
        size=raw.size,
        mtime_ns=raw.mtime_ns,
        target=raw.target,
        rdev=raw.rdev,
        xattrs=raw.xattrs,
        opaque=raw.opaque,
        made=made,
        inherit_content=not made and explained and not folder and not written,
        inherit_mode=not made and explained and not written and not meta & (MetaWhat.MODE | MetaWhat.OWNER),
        inherit_mtime=not made and explained and not mtime_set,
        # A change of the owner takes capabilities away, which are an attribute.
        inherit_xattrs=not made and explained and not written and not meta & (MetaWhat.XATTR | MetaWhat.OWNER),
        links=links,
    )


def own_writes(events: Iterable[Event]) -> OwnWrites:
    """What the action as a whole made of the names."""
    own = OwnWrites()
    for event in events:
        if isinstance(event, (Create, Write, Mkdir, Remove, Rename, Hardlink, Symlink, Mknod, Meta)) and _is_state(event):
            own.apply(event)
    return own


def _is_state(event: Mutation) -> bool:
    """Whether a mutation changes state. A rename to or from a kernel view fails with EXDEV, so one name decides."""
    return is_state(event.source if isinstance(event, (Rename, Hardlink)) else event.path)


def fold_footprint(
    events: Iterable[Event],
    manifest: Manifest,
    launch: LaunchContext,
    *,
    declared_reads: tuple[str, ...] = (),
    declared_writes: tuple[str, ...] = (),
    rootless: bool = False,
) -> Footprint:
    """What the action relied on, in terms of the state before it, and what it did. `manifest` is of its sealed layer."""
    seen = _Sight()
    for event in events:
        seen.take(event)
    for path, entry in manifest.entries.items():
        if entry.kind != "dir" and not entry.made and seen.own.at(path) is None:
            seen.carry_along(path)
    for path, found in seen.own.items():
        if path not in manifest.entries and not found.gone:
            seen.left_out(path, found)
    return Footprint(
        saw=frozenset(seen.saw),
        stats=frozenset(seen.stats),
        probed=frozenset(seen.probed),
        missed=frozenset(seen.missed),
        listed=frozenset(seen.listed),
        linked=frozenset(seen.linked),
        xattrs=frozenset(seen.xattrs),
        overwrote=frozenset(seen.overwrote),
        executed=frozenset(seen.executed),
        wrote=frozenset(path for path, entry in manifest.entries.items() if _is_meant(entry)),
        removed=manifest.removed,
        connected=tuple(dict.fromkeys(seen.connected)),
        launch_env=dict(launch.env),
        launch_cwd=launch.cwd,
        declared_reads=declared_reads,
        declared_writes=declared_writes,
        principal="any" if seen.credentials else "owner" if rootless else "root",
        words=frozenset(word.decode() for word in seen.words),
        lists_env=tuple(seen.lists_env),
        uses_umask=seen.umask,
        incomplete_because=tuple(dict.fromkeys(seen.incomplete)),
    )


def _is_meant(entry: Entry) -> bool:
    """Whether the layer has the path for its own sake, and not only as the parent of something."""
    return entry.made or not (entry.inherit_mode and entry.inherit_xattrs and (entry.kind == "dir" or entry.inherit_mtime))


class _Sight:
    """The observations so far, each told by the path that its object had before the action."""

    def __init__(self) -> None:
        self.own = OwnWrites()
        self.saw: set[str] = set()
        self.stats: set[str] = set()
        self.probed: set[str] = set()
        self.missed: set[str] = set()
        self.listed: set[str] = set()
        self.linked: set[str] = set()
        self.xattrs: set[str] = set()
        self.overwrote: set[str] = set()
        self.executed: set[str] = set()
        self.connected: list[Connect] = []
        self.incomplete: list[str] = []
        self.credentials = False
        self.words: set[bytes] = set()
        self.lists_env: dict[str, None] = {}
        self.umask = False
        self._told: set[tuple[bytes, ...]] = set()
        self._plain: dict[type, set[str]] = {
            Read: self.saw, Stat: self.stats, Probe: self.probed, Missed: self.missed,
            Link: self.linked, List: self.listed, XattrRead: self.xattrs,
        }  # fmt: skip

    def take(self, event: Event) -> None:
        # Nine of ten events are observations, most of them of what the action does not touch: these take a short way.
        if isinstance(event, (Read, Stat, Probe, Missed, Link, List, XattrRead)) and self._is_plain(event):
            if is_state(event.path):
                self._plain[type(event)].add(event.path)
            elif isinstance(event, Read):
                self._read_of_process(event.path)
            return
        match event:
            case Exec():
                self._exec(event)
            case Connect():
                self.connected.append(event)
            case Incomplete(reason, detail):
                self.incomplete.append(f"{reason}: {detail}" if detail else reason)
            case Credentials():
                self.credentials = True
            case Umask():
                self.umask = True
            case Killed():
                pass
            case Read() | Stat() | Probe() | Missed() | Link() | List() | XattrRead():
                if is_state(event.path):
                    self._observe(event)
            case Create() | Write() | Mkdir() | Remove() | Rename() | Hardlink() | Symlink() | Mknod() | Meta():
                if _is_state(event):
                    self._mutate(event)
                    self.own.apply(event)
            case _:
                assert_never(event)

    def _read_of_process(self, path: str) -> None:
        if _TELLS_ENV.fullmatch(path):
            self.lists_env[f"{path} was read"] = None
        elif path.startswith("/proc/") and path.endswith("/status"):
            self.umask = True

    def _is_plain(self, event: Read | Stat | Probe | Missed | Link | List | XattrRead) -> bool:
        """Whether what was seen is what was there before the action, and is told by the set of its kind."""
        if isinstance(event, Stat) and (event.own_cwd or event.path in self.own.changed_folders):
            return False
        return self.own.is_untouched(event.path)

    def _observe(self, event: Read | Stat | Probe | Missed | Link | List | XattrRead) -> None:
        path = event.path
        found, origin = self.own.where(path)
        if isinstance(event, Missed):
            if found is None and origin is not None:
                self.missed.add(origin)
            return
        if origin is None:
            if found is None or not found.gone:
                return
            origin = path  # seen although we thought it gone: two processes raced, so it may be the old object
        match event:
            case Read():
                if found is None or not found.truncated:
                    self.saw.add(origin)
            case Stat(_, own_cwd):
                own_mtime = path in self.own.changed_folders or (found is not None and found.written)
                (self.probed if own_cwd or own_mtime else self.stats).add(origin)
            case Probe():
                self.probed.add(origin)
            case Link():
                self.linked.add(origin)
            case List():
                self.listed.add(origin)
            case XattrRead():
                self.xattrs.add(origin)

    def _mutate(self, event: Mutation) -> None:
        """What the mutation itself observes, before it is applied (the tracer reports most of it already)."""
        match event:
            case Create(path) | Mkdir(path) | Symlink(path) | Mknod(path):
                self.umask = True
                found, origin = self.own.where(path)
                if found is None and origin is not None:
                    self.missed.add(origin)
            case Rename(source, target, exchange):
                if source == target:  # rename(2) then does nothing
                    return
                for path in (source, target) if exchange else (source,):
                    self._carry(path)
            case Hardlink(source, _):
                self._carry(source)
            case Write(path, truncated):
                found, origin = self.own.where(path)
                if origin is not None:
                    self.overwrote.add(origin)
                    self.xattrs.add(origin)
                    if not truncated and not (found is not None and found.truncated):
                        self.saw.add(origin)
            case Meta(path, what):
                origin = self.own.where(path).origin
                if origin is not None:
                    (self.xattrs if what == MetaWhat.XATTR else self.probed).add(origin)
                    if what & (MetaWhat.XATTR | MetaWhat.OWNER):
                        self.xattrs.add(origin)
            case Remove(path):
                origin = self.own.where(path).origin
                if origin is not None:
                    self.probed.add(origin)
            case _:
                assert_never(event)

    def _carry(self, path: str) -> None:
        """An object gets another name: the layer holds all of it there."""
        found, origin = self.own.where(path)
        if origin is None:
            return
        if found is not None and found.written:  # what its write left of the old object was observed by it
            self.xattrs.add(origin)
        else:
            self.carry_along(origin)

    def carry_along(self, path: str) -> None:
        """All of an old object stands in the layer as a copy: all of it is observed."""
        self.saw.add(path)
        self.stats.add(path)
        self.xattrs.add(path)

    def left_out(self, path: str, found: Object) -> None:
        """The layer lacks what was set here, since it equals what lies below: that it does so is then an observation."""
        if found.origin is None or found.moved or found.truncated:
            self.carry_along(path)
        elif MetaWhat.TIMES in found.meta:
            self.stats.add(path)

    def _exec(self, event: Exec) -> None:
        if event.path == HANDOFF_PROGRAM:
            return
        if (told := (event.path.encode("utf-8", "surrogateescape"), *event.argv)) not in self._told:
            self._told.add(told)
            self._arguments(event)
        if not is_state(event.path):
            return
        origin = self.own.where(event.path).origin
        if origin is None:
            return
        if event.errno == 0:
            self.executed.add(origin)
        elif event.errno not in (errnos.ENOENT, errnos.ENOTDIR):  # those two are told by MISSED and PROBE
            self.probed.add(origin)

    def _arguments(self, event: Exec) -> None:
        """What the program was told: variables whose names stand in it may be read, see repair/envreads.py."""
        because = program_lists(event.path, event.argv) if event.errno == 0 else ""
        for argument in event.argv:
            self.words.update(_WORD.findall(argument))
        if len(self.words) > MOST_WORDS:
            because, self.words = "too many arguments", set()
        if because:
            self.lists_env[because] = None


def handoff(events: Iterable[Event], umask: int = USUAL_UMASK) -> LaunchContext | None:
    """What the shell handed on at its end: its exported variables, its working directory and its umask.

    None: it did not get there. `umask` is what it was launched with, for a tracer that could not read it.
    """
    last = None
    for event in events:
        if isinstance(event, Exec) and event.path == HANDOFF_PROGRAM:
            last = event
    if last is None:
        return None
    env = {}
    for item in last.env:
        name, sep, value = guest_path(item).partition("=")
        if sep and name and name not in NEVER_HANDED_ON:
            env[name] = value
    return LaunchContext(env, last.cwd, umask if last.umask is None else last.umask)


def check_writes(events: Iterable[Event], raw: Iterable[RawEntry]) -> list[str]:
    """What the write events and the upper directory disagree in, one sentence each; empty when they tell the same."""
    events = [event for event in events if not isinstance(event, Exec)]
    own = own_writes(events)
    upper = {entry.path: entry for entry in raw if is_state(entry.path)}
    existed = _ExistedBefore(events)
    said = _unreported(own, upper, existed)
    for path, found in own.items():
        entry = upper.get(path)
        if found.gone:
            if path in existed and (entry is None or entry.kind != "whiteout") and not _hidden(path, upper):
                said.append(f"{path!r} was reported as removed, and the layer does not remove it")
        elif (entry is None or entry.kind == "whiteout") and (
            found.origin is None or found.truncated or (found.moved and path not in existed)  # else it may equal the old
        ):
            said.append(f"{path!r} was reported as written, and the layer does not hold it")
    return said


def _unreported(own: OwnWrites, upper: dict[str, RawEntry], existed: _ExistedBefore) -> list[str]:
    touched = {path for path, _ in own.items()} | own.changed_folders
    leading = folders_above((*touched, *upper))
    said = []
    for path, entry in upper.items():
        found: Object | None = own.at(path)
        if entry.kind == "whiteout":
            if found is None or not found.gone:
                said.append(f"{path!r} is removed by the layer, and no event tells of it")
        elif entry.kind == "dir":
            # The kernel also copies up the folder of an O_TMPFILE, and that of a call that then fails.
            if path not in touched and path not in leading and (entry.opaque or path not in existed):
                said.append(f"folder {path!r} is in the layer, and no event tells of it")
        elif found is None or found.gone:
            said.append(f"{path!r} is in the layer, and no event tells of it")
    return said


class _ExistedBefore:
    """Names that the events show to have existed before the action. Worked out when the first one is asked for."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = events
        self._names: set[str] | None = None

    def __contains__(self, path: str) -> bool:
        if self._names is None:
            seen = _Sight()
            for event in self._events:
                seen.take(event)
            self._names = seen.saw | seen.stats | seen.probed | seen.listed | seen.linked | seen.xattrs | seen.overwrote
        return path in self._names


def _hidden(path: str, upper: dict[str, RawEntry]) -> bool:
    """Whether a parent folder was itself removed or replaced, which takes the name with it."""
    while path != "/":
        path = parent(path)
        entry = upper.get(path)
        if entry is not None and (entry.opaque or entry.kind != "dir"):
            return True
    return False
