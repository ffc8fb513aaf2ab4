"""Folding: several layers made into one folder on disk that stands for them, by overlayfs' own rules.

Knows raw upper directories and nothing of histories. The sources may have been made by a guest: they are read by descriptor,
without following a symlink, like every layer. Mounted in their place, on whatever lies below, the result shows the same.

The rules, from the topmost source down: who has a name first, decides. A whiteout hides what the sources below have and
stays, for there may be something below them all. Folders merge until one is opaque, or what lies below is no folder; then
the result is opaque. A folder's metadata are those of the topmost.

What a plain copy of the union would get wrong:

- *Link counts.* overlayfs shows those of the real inode. A file with two names, one of which a later layer hides, still
  shows two to stat(2), so the result keeps an inode's lost names in the folder `links` beside it, where nobody looks. For the
  same reason files are copied (reflinks where there are any) and never linked from their layer.
- *Whiteouts in a listing.* overlayfs leaves them out of a folder that is merged of several, and lists them in one that
  lies in a single lower (ovl_iterate, "is_real"). A folder that one layer made, and another one removed a name of, is single
  after folding. So all folders with whiteouts stand, empty, in the folder `under` too, which is mounted right below: an
  empty folder adds nothing, and makes two of one. In and below an opaque folder nothing is left to hide: whiteouts go.
- *Attributes.* All are copied but the overlay's own, whose names depend on privilege; a guest's attributes that merely
  look like those (`user.overlay.x` as root, a doubled prefix without) are the guest's.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mulligan.sandbox.trees import (
    FOLDER,
    MAKING,
    PASSING,
    READING,
    Parts,
    copy_bytes,
    descriptor_path,
    is_whiteout,
    open_below,
    opened,
    opened_up,
    searchable,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OBJECT_WEIGHT = 16 << 10  # copying an object costs about as much as copying so many bytes
_LINK_MARK = ".link-"


@dataclass(slots=True)
class Folded:
    """What was made: its weight (bytes, and so many for each object), and whether there is a folder `under`."""

    weight: int = 0
    under: bool = False


class _Found(NamedTuple):
    """A name of the union: where it is (a folder: all that merge, topmost first), and whether that hides what is below."""

    sources: list[int]
    status: os.stat_result
    closed: bool


class _Visit(NamedTuple):
    """A folder to be filled: its path, the sources that merge in it, and whether nothing can lie below it."""

    parts: Parts
    sources: list[int]
    sealed: bool


def fold(sources: Sequence[str], target: int, opaque: str) -> Folded:
    """Fold the upper directories `sources`, bottom first, into the open folder `target`, which has an empty `upper`.

    `opaque` is the attribute that marks an opaque folder.
    """
    tops = [os.open(path, PASSING) for path in reversed(sources)]
    try:
        with opened(target, ("upper",), PASSING) as upper:
            return _Fold(tops, target, upper, opaque).run()
    finally:
        for fd in tops:
            os.close(fd)


def weigh(path: str, most: int) -> int:
    """The weight of an upper directory; counting ends at `most`."""
    weight = 0
    waiting: list[Parts] = [()]
    with opened(-1, (path,)) as top:
        while waiting and weight < most:
            at = waiting.pop()
            with _reading(top, at) as fd, os.scandir(fd) as rows:
                for row in rows:
                    weight += OBJECT_WEIGHT
                    if row.is_dir(follow_symlinks=False):
                        waiting.append((*at, row.name))
                    elif row.is_file(follow_symlinks=False):
                        weight += row.stat(follow_symlinks=False).st_blocks * 512
                    if weight >= most:
                        break
    return weight


@contextlib.contextmanager
def _reading(top: int, parts: Parts) -> Iterator[int]:
    """An open folder of a layer whose names can be listed and looked at, be it closed to its owner."""
    with opened(top, parts, FOLDER, ours=True) as fd, searchable(fd):
        yield fd


class _Fold:
    """One folding. Sources are numbered from the topmost."""

    def __init__(self, tops: list[int], target: int, upper: int, opaque: str) -> None:
        self._tops = tops
        self._target = target
        self._upper = upper
        self._opaque = opaque
        self._own = opaque.removesuffix("opaque")
        self._inodes: dict[tuple[int, int, int], list[Parts]] = {}  # of files with several names: the names made so far
        self._counts: dict[tuple[int, int, int], int] = {}
        self._under: set[Parts] = set()
        self._made = Folded()

    def run(self) -> Folded:
        """Fill all folders from the root down, then dress them from the deepest up: filling one changes its times."""
        visits = [_Visit((), list(range(len(self._tops))), sealed=False)]
        done: list[_Visit] = []
        while visits:
            visit = visits.pop()
            done.append(visit)
            visits += self._fill(visit)
        self._keep_link_counts()
        for visit in reversed(done):
            self._dress(visit)
        self._make_under()
        return self._made

    # ------------------------------------------------------------------------------------------- one folder

    def _fill(self, visit: _Visit) -> list[_Visit]:
        """Make all that lies in a folder. Gives its own folders, which are empty so far."""
        below: list[_Visit] = []
        with contextlib.ExitStack() as held:
            folders = {n: held.enter_context(_reading(self._tops[n], visit.parts)) for n in visit.sources}
            here = held.enter_context(opened(self._upper, visit.parts, PASSING))
            for name, found in self._union(folders).items():
                parts = (*visit.parts, name)
                if stat.S_ISDIR(found.status.st_mode):
                    os.mkdir(name, 0o700, dir_fd=here)
                    if found.closed and not visit.sealed:
                        with opened(here, (name,), PASSING) as fd:
                            os.setxattr(descriptor_path(fd), self._opaque, b"y")
                    below.append(_Visit(parts, found.sources, visit.sealed or found.closed))
                elif is_whiteout(found.status):
                    if visit.sealed:
                        continue
                    os.mknod(name, stat.S_IFCHR, 0, dir_fd=here)
                    self._under.add(visit.parts)
                else:
                    self._object(folders[found.sources[0]], found, here, parts)
                self._made.weight += OBJECT_WEIGHT
        return below

    def _union(self, folders: dict[int, int]) -> dict[str, _Found]:
        union: dict[str, _Found] = {}
        for source, fd in folders.items():  # topmost first
            for name in os.listdir(fd):
                found = union.get(name)
                if found is not None and (found.closed or not stat.S_ISDIR(found.status.st_mode)):
                    continue
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                is_folder = stat.S_ISDIR(status.st_mode)
                if found is None:
                    union[name] = _Found([source], status, closed=is_folder and self._is_opaque(fd, name))
                elif is_folder:
                    union[name] = _Found([*found.sources, source], found.status, self._is_opaque(fd, name))
                else:
                    union[name] = found._replace(closed=True)
        return union

    def _is_opaque(self, folder: int, name: str) -> bool:
        with opened(folder, (name,), PASSING, ours=True) as fd:
            try:
                return os.getxattr(descriptor_path(fd), self._opaque) == b"y"
            except OSError:
                return False

    # ------------------------------------------------------------------------------------------- one object

    def _object(self, folder: int, found: _Found, here: int, parts: Parts) -> None:
        """A file, symlink, FIFO or socket, as the topmost source has it."""
        status, name = found.status, parts[-1]
        if status.st_nlink > 1:
            key = (found.sources[0], status.st_dev, status.st_ino)
            names = self._inodes.setdefault(key, [])
            names.append(parts)
            self._counts[key] = status.st_nlink
            if len(names) > 1:
                with opened(self._upper, names[0][:-1], PASSING) as first:
                    os.link(names[0][-1], name, src_dir_fd=first, dst_dir_fd=here, follow_symlinks=False)
                return
        if stat.S_ISREG(status.st_mode):
            self._file(folder, name, status, here)
            return
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=folder), name, dir_fd=here)
        else:
            os.mknod(name, stat.S_IFMT(status.st_mode) | 0o600, status.st_rdev, dir_fd=here)
        self._give(name, status, here)
        if not stat.S_ISLNK(status.st_mode):
            with _held(folder, name) as old, _held(here, name) as new:
                self._attributes(old, new)
            os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=here)
        os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=here, follow_symlinks=False)

    def _file(self, folder: int, name: str, status: os.stat_result, here: int) -> None:
        source = open_below(folder, (name,), READING, ours=True)
        try:
            made = os.open(name, MAKING, 0o600, dir_fd=here)
            try:
                copy_bytes(source, made)
                if os.geteuid() == 0:
                    os.fchown(made, status.st_uid, status.st_gid)
                self._attributes(source, made)
                os.fchmod(made, stat.S_IMODE(status.st_mode))
                os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
            finally:
                os.close(made)
        finally:
            os.close(source)
        self._made.weight += status.st_blocks * 512

    @staticmethod
    def _give(name: str, status: os.stat_result, here: int) -> None:
        if os.geteuid() == 0:  # without privilege every file is the user's own
            os.chown(name, status.st_uid, status.st_gid, dir_fd=here, follow_symlinks=False)

    def _attributes(self, source: int, target: int) -> None:
        for name in os.listxattr(descriptor_path(source)):
            if name.startswith(self._own) and not name.startswith(f"{self._own}overlay."):
                continue
            if name.startswith("security.") and name != "security.capability":
                continue  # the host's own marks, which no guest can set
            os.setxattr(descriptor_path(target), name, _attribute(descriptor_path(source), name))

    def _dress(self, visit: _Visit) -> None:
        """Give a folder the metadata that the topmost source's has."""
        with (
            opened(self._tops[visit.sources[0]], visit.parts, PASSING, ours=True) as source,
            opened(self._upper, visit.parts, PASSING) as made,
        ):
            status = os.fstat(source)
            self._give(".", status, made)
            self._attributes(source, made)
            os.chmod(descriptor_path(made), stat.S_IMODE(status.st_mode))
            os.utime(descriptor_path(made), ns=(status.st_atime_ns, status.st_mtime_ns))

    # ------------------------------------------------------------------------------------------- what lies beside

    def _keep_link_counts(self) -> None:
        lost = {key: self._counts[key] - len(names) for key, names in self._inodes.items()}
        if not any(lost.values()):
            return
        os.mkdir("links", 0o700, dir_fd=self._target)
        with opened(self._target, ("links",), PASSING) as links:
            for number, (key, names) in enumerate(self._inodes.items()):
                with opened(self._upper, names[0][:-1], PASSING, ours=True) as folder:
                    for more in range(lost[key]):
                        mark = f"{_LINK_MARK}{number}-{more}"
                        os.link(names[0][-1], mark, src_dir_fd=folder, dst_dir_fd=links, follow_symlinks=False)

    def _make_under(self) -> None:
        if not self._under:
            return
        self._made.under = True
        os.mkdir("under", 0o755, dir_fd=self._target)
        folders = {parts[:n] for parts in self._under for n in range(len(parts) + 1)}
        with opened(self._target, ("under",), PASSING) as top:
            os.chmod(descriptor_path(top), 0o755)  # noqa: S103 - whatever the umask
            for parts in sorted(folders - {()}, key=len):
                with opened(top, parts[:-1], PASSING) as folder:
                    os.mkdir(parts[-1], 0o755, dir_fd=folder)
                    os.chmod(parts[-1], 0o755, dir_fd=folder)  # noqa: S103


def _attribute(path: str, name: str) -> bytes:
    try:
        return os.getxattr(path, name)
    except PermissionError:  # of an object that its owner may not read
        with opened_up(path):
            return os.getxattr(path, name)


@contextlib.contextmanager
def _held(folder: int, name: str) -> Iterator[int]:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)
