"""A plan made from the index equals the plan made by walking over every record: step for step, reason for reason."""

from __future__ import annotations

import os
import random
import zlib
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from segments import indexed
from test_pure_model import BASE, histories, repairs
from world import World

from mulligan.errors import UsageError
from mulligan.model.action import Action, LaunchContext, Outcome
from mulligan.model.change import Drop, Patch, Replace, Rerun
from mulligan.model.footprint import OBSERVED, Footprint
from mulligan.model.ids import ActionId, LayerId, RecordId
from mulligan.model.layer import Entry, Layer, Manifest
from mulligan.model.policy import Policy
from mulligan.model.record import Record
from mulligan.model.tree import Tree
from mulligan.repair.origins import Origins
from mulligan.repair.planner import build_plan
from mulligan.repair.sparse import build_sparse_plan

EXAMPLES = int(os.environ.get("MULLIGAN_EXAMPLES", "300"))
EVERY = list(HealthCheck)


def both(records, bottom, changes, *, size, covered=1.0, merge_after=1 << 60, **options):
    """The plan by the whole walk, the sparse one, and the places that the latter read; errors as their text."""
    history, index = indexed(records, size, covered, merge_after)
    history.read.clear()
    plans = []
    for build, what in ((build_plan, (records,)), (build_sparse_plan, (history, index))):
        try:
            plans.append(build(*what, bottom, changes, **options))
        except UsageError as error:
            plans.append(str(error))
    return (*plans, history.read)


@settings(max_examples=max(1, EXAMPLES // 3), deadline=None, suppress_health_check=EVERY)
@given(data=st.data(), history=histories)
def test_the_sparse_plan_is_the_plan(data, history):
    """On the model machine: whatever was done, repaired before and is changed now, for any size and reach of the index."""
    world = World(BASE)
    for program in history:
        world.append(program)
    for _ in range(2):
        if not world.slots:
            return
        changes, new = data.draw(repairs(world))
        size, covered = data.draw(st.sampled_from([1, 2, 3, 8])), data.draw(st.sampled_from([0.0, 0.5, 0.8, 1.0]))
        options = {
            "same_bytes": world.same_bytes,
            "first_launch": LaunchContext(),
            "base_changed": data.draw(st.sets(st.sampled_from(["/w/a", "/w/d/a", "/w/e"]), max_size=1)),
            "policy": Policy(level=data.draw(st.sampled_from([1, 2]))),
        }
        merge_after = data.draw(st.integers(1, 40))
        whole, sparse, _ = both(
            world.records, [world.bottom], changes, size=size, covered=covered, merge_after=merge_after, **options
        )
        assert str(whole) == str(sparse)
        assert whole == sparse
        world = world.repair(changes, new).world


# -- long histories, made up outright: also such as no tracer would report, in every combination

FOLDERS = ["/w", *(f"/w/d{n}" for n in range(4)), *(f"/w/d{n}/e{m}" for n in range(4) for m in range(2))]
FILES = [f"{folder}/f{n}" for folder in FOLDERS for n in range(5)]
LIBRARIES = [f"/usr/lib/{n}" for n in range(20)]
BOTTOM = Layer(
    LayerId("bottom"), Manifest({path: Entry("dir") for path in FOLDERS} | {path: Entry("file") for path in FILES[::3]})
)
LAUNCH = LaunchContext({"PATH": "/bin", "V": "0"}, "/w")


class Maker:
    """A history of records drawn at random. The same bytes are in every layer, unless `content` says that they differ."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.launch = LAUNCH
        self.records = []
        self.odd = self.random.random() < 0.7  # whether rare things happen in this history

    def rarely(self, chance):
        """Whether a rare thing happens now."""
        return self.odd and self.random.random() < chance

    def add(self):
        """Append a record."""
        number = len(self.records) + 1
        manifest = self.manifest()
        sets = {name: set(self.random.sample(LIBRARIES, 3)) for name in ("saw", "stats")}
        for _ in range(self.random.randint(0, 5)):
            sets.setdefault(self.random.choice(list(OBSERVED)), set()).add(
                self.random.choice(FILES if self.random.random() < 0.8 else FOLDERS)
            )
        declared = (
            [self.random.choice([f"out:a{self.random.randint(1, number)}", "mem:m", "dat:/w/f0", "dir:/w/d1", "env:V"])]
            if self.rarely(0.02)
            else []
        )
        handoff = (
            LaunchContext({**self.launch.env, "V": str(number)}, self.random.choice(["/w", "/w/d1"]))
            if self.rarely(0.01)
            else self.launch
        )
        kind = "patch" if self.rarely(0.02) else "run"
        self.records.append(
            Record(
                record_id=RecordId(number + 10 if not self.rarely(0.02) else 100_000 - number),
                revision=1,
                action=Action(ActionId(f"a{number}"), kind=kind, shell="do", patch_path="/w/f0" if kind == "patch" else None),
                launch=self.launch if not self.rarely(0.01) else LaunchContext({"PATH": "/bin"}, "/w"),
                handoff=handoff if kind == "run" else self.launch,
                outcome=Outcome(0, None),
                footprint=Footprint(
                    **{name: frozenset(paths) for name, paths in sets.items()},
                    declared_reads=tuple(declared),
                    declared_writes=("mem:m",) if self.rarely(0.02) else (),
                    incomplete_because=("unknown_syscall",) if self.rarely(0.02) else (),
                    principal=self.random.choice(["root", "root", "owner", "any"]) if self.odd else "root",
                ),
                layer=Layer(LayerId(f"layer-{number}"), manifest),
            )
        )
        self.launch = self.records[-1].handoff if kind == "run" else self.launch

    def manifest(self):
        """What one action wrote."""
        entries = {}
        for path in self.random.sample(FILES, self.random.choice([0, 1, 1, 2])):
            made = self.random.random() < 0.6
            part = not made and self.rarely(0.5)
            entries[path] = Entry(
                "file" if not self.rarely(0.1) else self.random.choice(["link", "dir"]), size=self.random.randint(0, 2), mode=self.random.choice([0o644, 0o600]), mtime_ns=len(self.records),
                made=made, inherit_content=part, inherit_mode=part and self.random.random() < 0.5, inherit_mtime=part, inherit_xattrs=part,
            )  # fmt: skip
            folder = path.rpartition("/")[0]
            if self.random.random() < 0.8:  # else it is in the layer for nothing but this, or not at all
                entries[folder] = Entry("dir", mtime_ns=len(self.records), made=False, inherit_mode=True, inherit_xattrs=True,
                                        inherit_mtime=self.random.random() < 0.3)  # fmt: skip
        if self.rarely(0.05):
            a, b = self.random.sample(FILES, 2)
            entries[a] = Entry("file", links=(b,), mtime_ns=len(self.records))
            entries[b] = Entry("file", links=(a,), mtime_ns=len(self.records))
        if self.rarely(0.05):
            path = self.random.choice(FOLDERS)
            entries[path] = Entry("dir", mode=self.random.choice([0o755, 0o700]), opaque=self.random.random() < 0.5,
                                  made=self.random.random() < 0.5, inherit_mtime=self.random.random() < 0.5)  # fmt: skip
        removed = set(self.random.sample(FILES, 1)) if self.random.random() < 0.1 else set()
        if self.rarely(0.03):
            removed.add(self.random.choice(FOLDERS[1:]))
        return Manifest(entries, frozenset(removed - entries.keys()))

    def changes(self):
        """One to three changes."""
        chosen = self.random.sample(self.records, self.random.choice([1, 1, 2, 3]))
        changes = []
        for record in chosen:
            kind = self.random.choice([Drop, Drop, Rerun, Replace, Patch])
            if kind is Patch:
                changes.append(
                    Patch(
                        self.random.choice(FILES),
                        self.random.choice([b"", b"1", b"long"]),
                        self.random.choice([None, record.id]),
                    )
                )
            elif kind is Drop or record.action.kind == "patch":
                changes.append(Drop(record.id))
            else:
                changes.append(Replace(record.id, "other") if kind is Replace else Rerun(record.id))
        return changes

    def same_bytes(self, layer, path, other, at):
        """Half of all layers hold the same bytes."""
        return layer == other or zlib.crc32(f"{layer}{path}".encode()) % 2 == zlib.crc32(f"{other}{at}".encode()) % 2


def reads_variable(record, name, recorded):
    """Half of the actions read a variable, by the versions of the files that they read."""
    nodes = [recorded.get(path) for path in sorted(record.footprint.saw)]
    seen = [node.provider for node in nodes if node is not None and node.kind == "file"]
    return zlib.crc32(f"{name}{seen}".encode()) % 2 == 0


# 21 and 34: actions that were launched with something else than the one before them handed on, beside what differs.
@pytest.mark.parametrize("seed", sorted({21, 34, *range(EXAMPLES // 40)}))
def test_the_sparse_plan_of_a_long_history_is_the_plan(seed):
    """Incomplete and declaring actions, launch contexts that differ, patches, groups, opaque and removed folders, earlier repairs."""
    maker = Maker(seed)
    for _ in range(maker.random.choice([20, 60, 120])):
        maker.add()
    for _ in range(3):
        changes = maker.changes()
        base_changed = {maker.random.choice([*LIBRARIES, *FILES])} if maker.rarely(0.2) else set()
        size, covered = maker.random.choice([4, 16, 64]), maker.random.choice([0.5, 0.9, 1.0])
        whole, sparse, _ = both(
            maker.records, [BOTTOM], changes, size=size, covered=covered, merge_after=maker.random.randint(1, 100),
            same_bytes=maker.same_bytes, first_launch=LAUNCH, base_changed=base_changed, policy=Policy(level=maker.random.choice([1, 2])),
            reads_variable=reads_variable,
        )  # fmt: skip
        assert str(whole) == str(sparse), changes
        assert whole == sparse


@pytest.mark.parametrize("seed", range(max(2, EXAMPLES // 20)))
def test_a_state_by_its_origins_is_the_state(seed):
    """What stands at any path at any place of a history, and below it, is what laying every layer over the bottom gives."""
    maker = Maker(seed)
    maker.odd = True
    for _ in range(60):
        maker.add()
    history, index = indexed(maker.records, size=8, covered=0.8)
    bottom = Tree()
    bottom.apply(BOTTOM.manifest, BOTTOM.id)
    origins = Origins(history, index, bottom)
    whole = bottom.copy()
    for place, record in enumerate(maker.records):
        paths, roots = set(maker.random.sample(FILES, 4)), set(maker.random.sample(FOLDERS, 1))
        known, right = origins.at(place, paths, roots)
        assert paths | roots <= right
        for path in right:
            node = whole.get(path)
            assert _same_node(known.get(path), node), (place, path)
            assert node is None or node.group is None or node.group.names <= right, (place, path)
        for root in roots:
            assert [path for path, _ in known.walk(root)] == [path for path, _ in whole.walk(root)], (place, root)
        whole.apply(record.layer.manifest, record.layer.id)


def _same_node(a, b):
    """Equal in all that keys tell. Who a folder is provided by is in none."""
    if a is None or b is None or a.kind != "dir":
        return a == b
    return replace(a, provider=b.provider, size=b.size) == b
