"""Folding by overlayfs' own judgement: what is mounted of folded layers shows what the layers themselves show.

Layers are made raw, as an overlay could have left them, and mounted by the kernel in a namespace of a forked process.
`MULLIGAN_EXAMPLES` is the number of random sequences.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mulligan.model.ids import LayerId
from mulligan.sandbox.hosts import HostFeatures
from mulligan.sandbox.layer import LayerStore

EXAMPLES = int(os.environ.get("MULLIGAN_EXAMPLES", "30"))
ROOT = os.geteuid() == 0
NS = 1_600_000_000 * 10**9
NAMES = "ab"
KINDS = ["dir", "dir", "opaque", "file", "file", "whiteout", "whiteout", "link", "fifo", "name"]
PATHS = list(NAMES) + [f"{a}/{b}" for a in NAMES for b in NAMES] + [f"a/{b}/{c}" for b in NAMES for c in NAMES]
_LIBC = ctypes.CDLL(None, use_errno=True)
_NEWNS, _NEWUSER, _PRIVATE, _REC = 0x20000, 0x10000000, 1 << 18, 1 << 14

Item = tuple[str, str, int]


def make(store: LayerStore, items: list[Item], seed: int) -> LayerId:
    """A raw layer of (path, kind, number); parents that nobody made are plain folders; what does not fit is left out."""
    layer = LayerId(f"layer{seed}-{os.urandom(4).hex()}")
    top = store.root / layer / "upper"
    top.mkdir(parents=True)
    dressed: list[tuple[Path, int]] = [(top, seed)]
    last: Path | None = None
    for path, kind, number in items:
        place = top / path
        above = [top / "/".join(path.split("/")[:n]) for n in range(1, path.count("/") + 1)]
        if os.path.lexists(place) or any(os.path.lexists(one) and not stat.S_ISDIR(one.lstat().st_mode) for one in above):
            continue
        if kind == "name" and last is None:
            continue
        for one in above:
            if not one.exists():
                one.mkdir()
                dressed.append((one, number))
        put(store, place, kind, number, last)
        if kind in ("file", "link", "fifo"):
            last = place
        if kind not in ("whiteout", "name"):
            dressed.append((place, number))
    for place, number in reversed(dressed):
        dress(store, place, number, seed)
    return layer


def put(store: LayerStore, place: Path, kind: str, number: int, last: Path | None) -> None:
    """One object of a raw layer."""
    if kind in ("dir", "opaque"):
        place.mkdir()
        if kind == "opaque":
            os.setxattr(place, store.opaque, b"y")
    elif kind == "file":
        place.write_bytes(b"%d" % number * (number % 5))
    elif kind == "whiteout":
        os.mknod(place, stat.S_IFCHR, 0)
    elif kind == "link":
        os.symlink(f"to-{number}", place)
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        assert last is not None
        os.link(last, place, follow_symlinks=False)


def dress(store: LayerStore, place: Path, number: int, seed: int) -> None:
    """Owner, mode, attributes and time of an object."""
    if ROOT:
        os.chown(place, store.ids.on_disk(number % 3), store.ids.on_disk(seed % 3), follow_symlinks=False)
    if not place.is_symlink():
        if not stat.S_ISFIFO(place.lstat().st_mode) and number % 3 == 0:
            os.setxattr(place, "user.told", b"%d" % number)
            if ROOT:
                os.setxattr(place, "user.overlay.opaque", b"y")  # the guest's own, of no meaning
        place.chmod((0o700, 0o755, 0o751, 0o1777, 0o2750)[number % 5])
    os.utime(place, ns=(NS, NS + number * 1_000_001 + seed), follow_symlinks=False)


def view(lowers: list[str], work: Path) -> Any:
    """All that a process sees of an overlay of these lowers, topmost first."""
    work.mkdir()
    for name in ("upper", "work", "at"):
        (work / name).mkdir(mode=0o755)
    os.utime(work / "upper", ns=(NS, NS))
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(ours)
            mount(lowers, work)
            with os.fdopen(theirs, "w") as out:
                json.dump(look(work / "at"), out)
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours) as told:
        text = told.read()
    assert os.waitpid(child, 0)[1] == 0, "the overlay could not be mounted or read"
    return json.loads(text)


def mount(lowers: list[str], work: Path) -> None:
    """Mount an overlay in namespaces of this process, with the options that a sandbox uses."""
    user, group = os.geteuid(), os.getegid()
    call(_LIBC.unshare, _NEWNS if ROOT else _NEWNS | _NEWUSER)
    if not ROOT:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    call(_LIBC.mount, b"none", b"/", None, _REC | _PRIVATE, None)
    options = f"lowerdir={':'.join(lowers)},upperdir={work}/upper,workdir={work}/work,index=off,metacopy=off,"
    options += "redirect_dir=nofollow,xino=off,nfs_export=off,volatile" + ("" if ROOT else ",userxattr")
    call(_LIBC.mount, b"overlay", os.fsencode(work / "at"), b"overlay", 0, options.encode())


def call(function: Any, *arguments: Any) -> None:
    """A C function that gives 0."""
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def look(top: Path) -> dict[str, Any]:
    """Every object, what names share an inode, and the names that a listing has and a lookup does not find."""
    objects: dict[str, Any] = {}
    inodes: dict[str, list[str]] = {}
    ghosts: list[str] = []
    waiting = [top]
    while waiting:
        at = waiting.pop()
        name = str(at.relative_to(top))
        try:
            what = at.lstat()
        except FileNotFoundError:
            ghosts.append(name)
            continue
        folder = stat.S_ISDIR(what.st_mode)
        row: list[Any] = [what.st_mode, what.st_uid, what.st_gid, what.st_mtime_ns, what.st_rdev]
        if folder:
            waiting += [at / one for one in sorted(os.listdir(at))]
        else:
            row += [what.st_nlink, what.st_size]
            inodes.setdefault(f"{what.st_dev}:{what.st_ino}", []).append(name)
        if stat.S_ISREG(what.st_mode):
            row += [hashlib.sha256(at.read_bytes()).hexdigest(), what.st_blocks if what.st_size > 1 << 20 else 0]
        if stat.S_ISLNK(what.st_mode):
            row.append(os.readlink(at))
        else:
            row += sorted([one, os.getxattr(at, one).hex()] for one in os.listxattr(at))
        objects[name] = row
    return {"objects": objects, "inodes": sorted(sorted(names) for names in inodes.values()), "ghosts": sorted(ghosts)}


def same(store: LayerStore, layers: list[LayerId], begin: int, end: int, middle: int, *, work: Path) -> None:
    """Folded from `begin` to `end`, at once and in two steps, the layers show what they show one by one."""
    fold = store.composites.fold
    once, twice, half = (LayerId(f"fold-{os.urandom(8).hex()}") for _ in range(3))
    fold(layers[begin:end], once)
    fold(layers[begin:middle], half)
    fold([half, *layers[middle:end]], twice)
    expected = view(store.composites.lowers(layers), work / "each")
    for name, folded in (("once", once), ("twice", twice)):
        got = view(store.composites.lowers([*layers[:begin], folded, *layers[end:]]), work / name)
        assert got["objects"] == expected["objects"], name
        assert got["inodes"] == expected["inodes"], name
        assert set(got["ghosts"]) <= set(expected["ghosts"]), name


@pytest.fixture
def store(sandboxes: HostFeatures, tmp_path: Path) -> LayerStore:
    """A store of layers."""
    return LayerStore(tmp_path / "layers")


@pytest.mark.usefixtures("sandboxes")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(KINDS), st.integers(0, 30)), max_size=9),
        min_size=3,
        max_size=6,
    ),
    st.data(),
)
def test_folded_layers_show_what_the_layers_show(programs: list[list[Item]], data: st.DataObject) -> None:
    """For random layers, on whatever lies below and above, a composite mounts to the very same tree."""
    begin = data.draw(st.integers(0, len(programs) - 2))
    end = data.draw(st.integers(begin + 2, len(programs)))
    middle = data.draw(st.integers(begin + 1, end - 1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        store = LayerStore(folder / "layers")
        layers = [make(store, items, seed) for seed, items in enumerate(programs)]
        same(store, layers, begin, end, middle, work=folder)


def test_a_whiteout_in_a_folder_of_the_composite_alone_is_in_no_listing(store: LayerStore, tmp_path: Path) -> None:
    """A mount lists the whiteouts of a folder that it need not merge; a composite leaves none to be seen."""
    layers = [
        make(store, [("b", "file", 1)], 0),
        make(store, [("a/a", "file", 1), ("a/b", "file", 2)], 1),
        make(store, [("a/a", "whiteout", 0)], 2),
    ]
    same(store, layers, 1, 3, 2, work=tmp_path)
    fold = LayerId("fold-here")
    store.composites.fold(layers[1:], fold)
    assert view(store.composites.lowers([layers[0], fold]), tmp_path / "w")["ghosts"] == []


def test_row_17_links_of_a_folded_layer_stay_apart_from_a_later_write(store: LayerStore, tmp_path: Path) -> None:
    """Two names f and g are one file; a2 writes f, which gives it an inode of its own; folded, g is unchanged and shows two links."""
    layers = [
        make(store, [("b", "dir", 1)], 0),
        make(store, [("b/f", "file", 3), ("b/g", "name", 3)], 1),
        make(store, [("b/f", "file", 4)], 2),
    ]
    same(store, layers, 1, 3, 2, work=tmp_path)
    fold = LayerId("fold-here")
    store.composites.fold(layers[1:], fold)
    upper = store.path(fold)
    assert (upper / "b/g").read_bytes() == b"333"
    assert (upper / "b/f").read_bytes() == b"4444"
    assert (upper / "b/g").stat().st_nlink == 2, "as stat(2) showed it before folding"


def test_row_37_attributes_and_holes_survive_folding(store: LayerStore, tmp_path: Path) -> None:
    """Capabilities, ACLs, set-id bits and holes of a folded layer are bit-equal."""
    layers = [make(store, [("b", "dir", 1)], 0), make(store, [("a/a", "file", 3), ("a/b", "file", 4)], 1)]
    layers.append(make(store, [("b/a", "file", 1)], 2))
    upper = store.path(layers[1]) / "a"
    with (upper / "a").open("r+b") as file:
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"here")
    acl = bytes.fromhex(
        "02000000" + "01000600ffffffff" + "02000400e7030000" + "04000400ffffffff" + "10000600ffffffff" + "20000000ffffffff"
    )
    if ROOT:
        acl = acl.replace(bytes.fromhex("e7030000"), (store.ids.on_disk(999)).to_bytes(4, "little"))
        os.setxattr(upper / "b", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
        os.setxattr(upper / "b", "system.posix_acl_access", acl)
    (upper / "a").chmod(0o6755)
    os.utime(upper / "a", ns=(NS, NS + 7))
    same(store, layers, 1, 3, 2, work=tmp_path)
    fold = LayerId("fold-here")
    store.composites.fold(layers[1:], fold)
    assert (store.path(fold) / "a/a").stat().st_blocks == (upper / "a").stat().st_blocks, "holes stay holes"


@pytest.mark.skipif(ROOT, reason="root passes everywhere")
def test_what_is_closed_to_its_owner_is_folded_all_the_same(store: LayerStore, tmp_path: Path) -> None:
    """Files and folders of mode 000 are copied as they are, and closed again afterwards."""
    layers = [make(store, [("b", "dir", 0)], 0), make(store, [("a/a", "file", 3), ("a/b/c", "file", 4)], 1)]
    layers.append(make(store, [("b/a", "file", 1)], 2))
    upper = store.path(layers[1])
    (upper / "a/a").chmod(0)
    (upper / "a/b").chmod(0)
    (upper / "a").chmod(0)
    fold = LayerId("fold-here")
    store.composites.fold(layers, fold)
    made = store.path(fold) / "a"
    assert stat.S_IMODE(made.stat().st_mode) == stat.S_IMODE((upper / "a").stat().st_mode) == 0
    made.chmod(0o700)
    assert stat.S_IMODE((made / "b").stat().st_mode) == 0
    assert stat.S_IMODE((made / "a").stat().st_mode) == 0
    for one in (made / "b", upper / "a", upper / "a/b"):
        one.chmod(0o700)
    shutil.rmtree(made)
