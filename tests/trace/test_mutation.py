"""The world is changed where an action did not look, and the action does the same again: nothing that it read was missed.

Each program runs once on a state. Then every object of that state is changed as far as the footprint does not forbid it
(content, mode, time, attributes, kind, existence, new names in folders that were not listed), and it runs again: its output and
its layer must be the same. `MULLIGAN_EXAMPLES` is the number of random programs.
"""

from __future__ import annotations

import difflib
import os
import random
import shutil
import stat
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mulligan.model.action import Action, LaunchContext
from mulligan.model.fold import fold_footprint
from mulligan.model.ids import ActionId, join, parent
from mulligan.model.keys import DAT, DIR, ENT, LINKS, MODE, MTIME, SEARCH, XATTR, Key
from mulligan.model.tree import Tree
from mulligan.sandbox.hostbase import build_host_base
from mulligan.sandbox.imports import import_folder
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mulligan.model.action import Outcome
    from mulligan.model.footprint import Footprint
    from mulligan.model.keys import KeyKind
    from mulligan.model.layer import Layer
    from mulligan.sandbox.base import Base

ROUNDS = int(os.environ.get("MULLIGAN_EXAMPLES", "100"))
WORKSPACE = "/workspace"
EPOCH_NS = 1_600_000_000 * 10**9
NAMES = ("a", "b", "c", "d")
DEEP = "/workspace/1/2/3/4/5/6/7/8"  # where anycalls works


# -------------------------------------------------------------------------------------------------- worlds


@dataclass(frozen=True)
class Thing:
    """An object of a world. `same_as`: another name of the same file."""

    kind: str
    mode: int = 0o644
    data: bytes = b""
    target: str = ""
    mtime_ns: int = EPOCH_NS
    xattrs: dict[str, bytes] = field(default_factory=dict)
    same_as: str = ""


World = dict[str, Thing]  # by absolute guest path; parents are in it, too, and come first


def write(world: World, top: Path, *, at: str = WORKSPACE) -> None:
    """Make a world on the host: the guest's folder `at` is `top`."""
    for path, thing in sorted(world.items()):
        place = top / path[len(at) :].lstrip("/")
        if thing.kind == "dir":
            place.mkdir(exist_ok=True)
        elif thing.kind == "link":
            place.symlink_to(thing.target)
        elif thing.same_as:
            place.hardlink_to(top / thing.same_as[len(at) :].lstrip("/"))
        else:
            place.write_bytes(thing.data)
        if thing.kind != "link":
            for name, value in thing.xattrs.items():
                os.setxattr(place, name, value)
    for path, thing in sorted(world.items(), reverse=True):  # folders last: what is made in them changes their time
        place = top / path[len(at) :].lstrip("/")
        if thing.kind != "link":
            place.chmod(thing.mode)
        os.utime(place, ns=(EPOCH_NS, thing.mtime_ns), follow_symlinks=False)


def scan(top: Path, *, at: str = WORKSPACE) -> World:
    """The world that lies in a folder of the host."""
    world: World = {}
    seen: dict[int, str] = {}
    for place in [top, *sorted(top.rglob("*"))]:
        status = place.lstat()
        path = at if place == top else join(at, str(place.relative_to(top)))
        kind = "dir" if stat.S_ISDIR(status.st_mode) else "link" if stat.S_ISLNK(status.st_mode) else "file"
        thing = Thing(kind, stat.S_IMODE(status.st_mode), mtime_ns=status.st_mtime_ns)
        if kind == "link":
            thing = replace(thing, target=os.readlink(place))
        elif kind == "file":
            thing = replace(thing, data=place.read_bytes(), same_as=seen.get(status.st_ino, ""))
            seen.setdefault(status.st_ino, path)
        world[path] = thing
    return world


def random_world(chance: random.Random, base: str) -> World:
    """A few names, three folders deep."""
    world = {folder: Thing("dir", 0o755) for folder in (*_parents(base), base)}
    todo = [(base, 3)]
    while todo:
        folder, left = todo.pop()
        for name in NAMES:
            path = join(folder, name)
            kind = chance.choice(("", "file", "file", "dir", "dir", "link"))
            if kind == "dir" and left > 0:
                world[path] = Thing("dir", chance.choice((0o755, 0o700, 0o777)))
                todo.append((path, left - 1))
            elif kind == "link":
                world[path] = Thing("link", target=chance.choice(("a", "b", "../a", "../b/c", "nothing", f"{base}/d")))
            elif kind == "file":
                files = sorted(at for at, thing in world.items() if thing.kind == "file" and not thing.same_as)
                if files and chance.random() < 0.2:
                    first = chance.choice(files)
                    world[path] = replace(world[first], same_as=first)
                else:
                    data = chance.choice((b"", b"one\n", b"two\nlines\n", b"#!/bin/true\n", b"#!a\n"))
                    world[path] = Thing("file", chance.choice((0o644, 0o755, 0o600)), data)
    # A hard link is written after its first name.
    return {
        path: thing if not thing.same_as or thing.same_as < path else replace(thing, same_as="")
        for path, thing in world.items()
    }


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")[2:]
    for count in range(len(parts)):
        yield "/".join((WORKSPACE, *parts[:count]))


# -------------------------------------------------------------------------------------------------- mutation


class Mutation:
    """Changes a world as far as a footprint does not forbid it. `boldness`: how readily existence and kind are changed."""

    def __init__(self, footprint: Footprint, chance: random.Random, boldness: float) -> None:
        self._seen = footprint.observations()
        self._everybody = footprint.principal != "root"
        self._chance = chance
        self._boldness = boldness
        self._groups: dict[str, list[str]] = {}  # path -> all names of its file, when it has several

    def free(self, path: str, *kinds: KeyKind) -> bool:
        """Whether none of these keys was observed, at any name of the object."""
        return not any(Key(kind, name) in self._seen for kind in kinds for name in self._groups.get(path, (path,)))

    def change(self, world: World) -> World:
        """Another world that must look the same to the program."""
        changed: World = {}
        for path, thing in world.items():
            if thing.same_as:
                names = self._groups.setdefault(thing.same_as, [thing.same_as])
                names.append(path)
                self._groups[path] = names
        for path, thing in sorted(world.items()):
            if path != WORKSPACE and changed.get(parent(path), Thing("")).kind != "dir":
                continue
            if path != WORKSPACE and self._may_go(path) and self._chance.random() < self._boldness:
                self._replace(path, changed)
            else:
                changed[path] = self._touch(path, thing)
        for folder in [path for path, thing in changed.items() if thing.kind == "dir"]:
            if self.free(folder, DIR):
                self._add(folder, changed)
        return changed

    def _may_go(self, path: str) -> bool:
        inside = (name for name in self._groups if name == path or name.startswith(f"{path}/"))
        return (
            Key(ENT, path) not in self._seen and self.free(parent(path), DIR) and all(self.free(name, LINKS) for name in inside)
        )

    def _replace(self, path: str, changed: World) -> None:
        """Something else in this place, or nothing."""
        match self._chance.randrange(4):
            case 0:
                changed[path] = Thing("dir", 0o700)
            case 1:
                changed[path] = Thing("link", target="/workspace")
            case 2:
                changed[path] = Thing("file", 0o755, b"#!/bin/false\n")
            case _:
                pass

    def _touch(self, path: str, thing: Thing) -> Thing:
        if thing.kind == "link":
            return replace(thing, target=thing.target + "x") if self.free(path, ENT) else thing
        mode, data, mtime_ns, xattrs = thing.mode, thing.data, thing.mtime_ns, dict(thing.xattrs)
        if self.free(path, MODE) and not (self._everybody and not self.free(path, SEARCH)):
            mode ^= 0o055 if thing.kind == "dir" else 0o111
        if self.free(path, MTIME):
            mtime_ns += 86_400 * 10**9
        if thing.kind == "file" and self.free(path, DAT):
            data = data + b" and more" if self.free(path, MTIME) else bytes(byte ^ 1 for byte in data)
        if self.free(path, XATTR):
            xattrs["user.changed"] = b"1"
        same_as = "" if self.free(path, LINKS) else thing.same_as
        return replace(thing, mode=mode, data=data, mtime_ns=mtime_ns, xattrs=xattrs, same_as=same_as)

    def _add(self, folder: str, changed: World) -> None:
        for name in (*NAMES, "new"):
            path = join(folder, name)
            if path not in changed and self._may_go(path) and self._chance.random() < self._boldness:
                self._replace(path, changed)


# -------------------------------------------------------------------------------------------------- running


@dataclass
class Result:
    """What a run gave, in a form to compare."""

    outcome: Outcome
    footprint: Footprint
    layer: dict[str, tuple[object, ...]]

    def comparable(self) -> tuple[object, ...]:
        """Output, end and layer."""
        outcome = self.outcome
        return outcome.exit_code, outcome.signal, outcome.stdout, outcome.stderr, self.layer

    def unlike(self, other: Result) -> Iterator[str]:
        """What the other gave that this did not, and the reverse, line by line."""
        for name in ("stdout", "stderr"):
            old, new = (getattr(run.outcome, name).decode(errors="replace").splitlines() for run in (self, other))
            yield from difflib.unified_diff(old, new, n=1, lineterm="")
        for path in sorted(self.layer.keys() | other.layer.keys()):
            if self.layer.get(path) != other.layer.get(path):
                yield f"{path}: {self.layer.get(path)} {other.layer.get(path)}"


@dataclass
class Lab:
    """Runs programs on worlds."""

    store: LayerStore
    base: Base
    skeleton: Layer
    programs: Layer
    folder: Path
    count: int = 0

    def tree(self, *layers: Layer) -> Tree:
        """The state that the layers make."""
        tree = Tree()
        for layer in layers:
            tree.apply(layer.manifest, layer.id)
        return tree

    def lay(self, world: World, at: str, *below: Layer) -> Layer:
        """A world as a layer."""
        self.count += 1
        top = self.folder / str(self.count)
        top.mkdir()
        write(world, top, at=at)
        layer = import_folder(self.store, str(top), at, self.base, self.tree(*below))
        shutil.rmtree(top)
        return layer

    def run(self, argv: Sequence[str], *worlds: World) -> Result:
        """Run a program on a world for /workspace, and perhaps one for /etc."""
        layers = [self.skeleton, self.programs]
        for world in worlds:
            layers.append(self.lay(world, min(world), *layers))
        stack = Stack(tuple(layer.id for layer in layers), self.base, self.store)
        launch = LaunchContext({**self.base.env, "LANG": "C.UTF-8", "TZ": "UTC"}, WORKSPACE)
        action = Action(ActionId("a1"), argv=tuple(argv), timeout_s=60)
        with self.store.begin() as opened:
            trace = NativeSandbox(self.base, self.store).run(action, launch, stack, opened)
            layer = opened.seal(trace, stack)
        footprint = fold_footprint(trace.events, layer.manifest, launch, rootless=self.base.rootless)
        assert footprint.complete, footprint.incomplete_because
        return Result(trace.outcome, footprint, dict(self._told(layer)))

    def _told(self, layer: Layer) -> Iterator[tuple[str, tuple[object, ...]]]:
        """A layer without what it takes from below, and without times."""
        for path in layer.manifest.removed:
            yield path, ("removed",)
        for path, entry in layer.manifest.entries.items():
            whole = entry.kind == "file" and not entry.inherit_content
            yield (
                path,
                (
                    entry.kind,
                    None if entry.inherit_mode else (entry.mode, entry.uid, entry.gid),
                    None if entry.inherit_xattrs else entry.xattrs,
                    (self.store.path(layer.id) / path.lstrip("/")).read_bytes() if whole else None,
                    (entry.target, entry.opaque, entry.made, entry.links),
                ),
            )


@pytest.fixture(scope="module")
def lab(shared_home: Path, tmp_path_factory: pytest.TempPathFactory, guest: Callable[[str], Path]) -> Lab:
    """A place to run programs in; the guests lie in /guests."""
    store = LayerStore(shared_home / "layers")
    base, skeleton = build_host_base(store, {"PATH": "/usr/local/bin:/usr/bin:/bin"})
    folder = tmp_path_factory.mktemp("programs")
    for name in ("anycalls", "fsops"):
        shutil.copy(guest(name), folder / name)
        (folder / name).chmod(0o755)
    tree = Tree()
    tree.apply(skeleton.manifest, skeleton.id)
    programs = import_folder(store, str(folder), "/guests", base, tree)
    return Lab(store, base, skeleton, programs, tmp_path_factory.mktemp("worlds"))


def check(lab: Lab, argv: Sequence[str], world: World, seed: int, *, etc: World | None = None) -> Result:
    """Run on the world and on two changed ones; everything must be the same. Gives the first run.

    With `etc` it is a real program, which may also look at names that it makes up at random.
    """
    more = () if etc is None else (etc,)
    first = lab.run(argv, world, *more)
    for boldness in (0.0, 0.7):
        mutation = Mutation(first.footprint, random.Random(seed), boldness)
        changed = mutation.change(world)
        others = () if etc is None else ({path: mutation._touch(path, thing) for path, thing in etc.items()},)
        assert changed != world
        again = lab.run(argv, changed, *others)
        assert again.comparable() == first.comparable(), "\n".join(first.unlike(again))
        seen = first.footprint.observations(), again.footprint.observations()
        assert seen[0] == seen[1] or etc is not None, sorted(seen[0] ^ seen[1])
    return first


# -------------------------------------------------------------------------------------------------- random programs


def random_operations(chance: random.Random) -> list[str]:
    """A program for fsops."""

    def path() -> str:
        return "/".join(chance.choice(NAMES) for _ in range(chance.choice((1, 1, 2, 2, 3))))

    words: list[str] = []
    for _ in range(chance.randrange(3, 14)):
        op = chance.choice("watcrumdhlsoSLRA?!D" + "SLRRA")
        words += [op, path()]
        if op in "wa":
            words.append(chance.choice(("new", "x", "")))
        elif op == "t":
            words.append(chance.choice("0039"))
        elif op == "h":
            words.append(chance.choice(("600", "755", "777")))
        elif op in "crls":
            words.append(path())
    return words


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_program(seed: int, lab: Lab) -> None:
    """What a random program did not look at is nothing to it."""
    chance = random.Random(seed)
    if seed % 2:
        world = random_world(chance, WORKSPACE)
        first = check(lab, ["/guests/fsops", *random_operations(chance)], world, seed)
    else:
        world = random_world(chance, DEEP)
        first = check(lab, ["/guests/anycalls", str(seed), str(chance.randrange(3, 60)), "gentle"], world, seed)
    assert first.outcome.exit_code == 0, first.outcome


# -------------------------------------------------------------------------------------------------- real programs

GIT = "GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x GIT_AUTHOR_DATE=@1600000000 GIT_COMMITTER_DATE=@1600000000"

# Name: the programs it takes, what is there before (shell text, run on the host in the workspace-to-be), and the action.
REAL = {
    "python": (
        ["python3"],
        (
            "mkdir -p lib/used lib/other; touch lib/used/__init__.py lib/other/__init__.py; echo 'from .b import x' > lib/used/a.py;"
            " echo 'x = 5' > lib/used/b.py; echo 'y = 1' > lib/used/c.py; echo 'z = 1' > lib/other/d.py; echo data > note"
        ),
        "PYTHONPATH=lib /usr/bin/python3 -B -c 'from used.a import x; print(x)'",
    ),
    "gcc": (
        ["gcc"],
        (
            "mkdir -p include/deep other; echo '#include \"deep/b.h\"' > include/a.h; echo 'int b(void);' > include/deep/b.h;"
            " echo 'int c;' > include/c.h; echo 'int d;' > other/a.h; printf '#include <stdio.h>\\n#include \"a.h\"\\nint b(void)"
            ' { return 1; }\\nint main(void) { return printf("%d\\\\n", b()) < 0; }\\n\' > main.c; echo broken > extra.c'
        ),
        "gcc -O1 -Iinclude -Iother main.c -o main && ./main",
    ),
    "git": (
        ["git"],
        f"git init -q -b main .; for i in 1 2 3 4 5 6; do mkdir -p d$i; echo $i > d$i/f; git add .; {GIT} git commit -qm n$i; done; echo x > new",
        "git --no-optional-locks log --format=%s -3; git --no-optional-locks show --stat HEAD~1 | tail -2; git cat-file -p HEAD~2:d1/f",
    ),
    "make": (
        ["make"],
        (
            "printf 'all: one.out\\n%%.out: %%.in part.mk\\n\\tcat $< > $@\\ninclude part.mk\\n' > Makefile; touch part.mk;"
            " echo 1 > one.in; echo 2 > two.in; mkdir sub; echo 3 > sub/three.in"
        ),
        "make -s && cat one.out",
    ),
    "tar": (
        ["tar"],
        "mkdir -p in/deep out; seq 9 > in/deep/n; ln -s n in/deep/l; ln in/deep/n in/hard; seq 5 > out/n; echo x > top",
        "tar --sort=name -cf a.tar in && tar tf a.tar && tar xf a.tar -C out in/deep/n && cat out/in/deep/n",
    ),
    "find": (
        ["find"],
        "mkdir -p a/b/c x/y; touch a/1.txt a/b/2.txt a/b/c/3.md x/y/4.txt",
        "find a -name '*.txt' | sort; find a -type d -newer a/1.txt | sort",
    ),
    "sh": (
        ["sh"],
        "mkdir -p d e; echo 1 > d/a.txt; echo 2 > d/b.txt; echo 3 > d/c.md; echo 4 > e/a.txt; ln -s d/a.txt link; echo '. ./e/a.txt' > rc",
        "for f in d/*.txt; do cat $f; done; [ -e missing ] || cat link; test -d e && echo yes > d/new.txt; ls d; (cd d; cat ../d/c.md)",
    ),
    "perl": (
        ["perl"],
        "mkdir -p lib/A other; echo 'package A::B; sub x { 7 } 1;' > lib/A/B.pm; echo 'broken' > lib/A/C.pm; echo 'x' > other/B.pm; seq 4 > in",
        'perl -Ilib -MA::B -e \'open my $f, "<", "in"; print A::B::x(), scalar(() = <$f>)\'',
    ),
    "node": (
        ["node"],
        (
            "mkdir -p node_modules/used node_modules/other lib; echo 'exports.x = 3' > node_modules/used/index.js; echo 'bad(' > node_modules/other/index.js;"
            " echo 'module.exports = require(\"used\").x + 1' > lib/a.js; echo 'bad(' > lib/b.js; echo '{}' > package.json"
        ),
        "node -e 'console.log(require(\"./lib/a.js\"))'",
    ),
    "sqlite": (
        ["python3"],
        'python3 -c \'import sqlite3; [sqlite3.connect(n).executescript("create table t (a); insert into t values (1), (2)") for n in ("x.db", "y.db")]\'; echo 1 > z.db',
        '/usr/bin/python3 -B -c \'import sqlite3; c = sqlite3.connect("x.db"); c.execute("insert into t values (3)"); c.commit(); print(c.execute("select sum(a) from t").fetchall())\'',
    ),
    "cp": (
        ["cp"],
        "mkdir -p from/a from/b to; seq 3 > from/a/1; ln -s 1 from/a/2; seq 4 > from/b/3; chmod 600 from/a/1; seq 5 > to/other",
        "cp -a from/a to/ && mv from/b/3 to/a/ && rm to/a/2 && chmod 640 to/a/1 && grep -rc . to/a | sort && sed -i s/3/x/ to/a/1 && wc -l < to/a/1",
    ),
}


def etc_world(skeleton: Layer, upper: Path) -> World:
    """The skeleton's files of /etc: what real programs read of it is no more than they look at."""
    world = {"/etc": Thing("dir", 0o755)}
    for path, entry in skeleton.manifest.entries.items():
        if path.startswith("/etc/") and entry.kind in ("dir", "file"):
            data = (upper / path.lstrip("/")).read_bytes() if entry.kind == "file" else b""
            world[path] = Thing(entry.kind, entry.mode, data, mtime_ns=entry.mtime_ns)
    return world


@pytest.mark.parametrize("name", REAL)
def test_real_program(name: str, lab: Lab, tmp_path: Path) -> None:
    """What a real program did not look at is nothing to it, in the workspace and in /etc."""
    programs, before, text = REAL[name]
    missing = [program for program in programs if shutil.which(program, path=lab.base.env["PATH"]) is None]
    if missing:
        pytest.skip(f"there is no {missing[0]}")
    host = tmp_path / "world"
    host.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    subprocess.run(["/bin/sh", "-ec", before], cwd=host, env=env, check=True, capture_output=True)
    etc = etc_world(lab.skeleton, lab.store.path(lab.skeleton.id))
    first = check(lab, ["/bin/sh", "-c", text], scan(host), 7, etc=etc)
    assert (first.outcome.exit_code, first.outcome.stderr) == (0, b"")
    assert first.outcome.stdout
