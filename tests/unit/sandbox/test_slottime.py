"""Slot time: where the files of a replay get their times from."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mulligan.model.layer import Entry
from mulligan.sandbox.slottime import Window, plan_times

RAN = Window(10_000_000_000, 11_000_000_000)
SLOT = Window(1_000_000_000, 1_500_000_000)
OLD = Entry("file", size=1, mtime_ns=1_200_000_000)


def times(new: dict[str, Entry], old: dict[str, Entry], *same: str) -> dict[str, int]:
    """Plan with a content that is the recorded one for the paths in `same`."""
    return plan_times(new, old, RAN, SLOT, lambda path: path in same)


def test_the_old_version_takes_its_old_time() -> None:
    """Equal content and attributes: it is the recorded version."""
    new = replace(OLD, mtime_ns=10_500_000_000)
    assert times({"/f": new}, {"/f": OLD}, "/f") == {"/f": OLD.mtime_ns}


def test_a_changed_file_gets_another_time_within_the_slot() -> None:
    """Other content or another mode: a time of the slot, never the old version's own."""
    at_old = 10_400_000_000  # maps to exactly OLD's time
    for new, same in ((replace(OLD, mtime_ns=at_old), ()), (replace(OLD, mtime_ns=at_old, mode=0o600), ("/f",))):
        given_time = times({"/f": new}, {"/f": OLD}, *same)["/f"]
        assert SLOT.start <= given_time <= SLOT.end
        assert given_time != OLD.mtime_ns


def test_a_folder_in_both_takes_the_recorded_time() -> None:
    """A folder that both executions changed is as old as it was."""
    new = {"/d": Entry("dir", mtime_ns=10_500_000_000)}
    assert times(new, {"/d": Entry("dir", mtime_ns=SLOT.start + 7)}) == {"/d": SLOT.start + 7}


def test_a_recorded_time_is_taken_only_where_the_clock_gave_it() -> None:
    """What was only copied up, or set to a time on purpose, has no time of the slot to give to what is written now."""
    for before in (replace(OLD, mtime_ns=5), replace(OLD, inherit_mtime=True)):
        for kind in ("file", "dir"):
            new = {"/f": replace(OLD, kind=kind, mtime_ns=10_500_000_000)}
            assert SLOT.start < times(new, {"/f": replace(before, kind=kind)}, "/f")["/f"] != before.mtime_ns


def test_what_was_written_later_is_never_older_than_an_old_version() -> None:
    """A changed file that was written before an unchanged one stays before it, and after it when it was written after."""
    old = {"/a": replace(OLD, mtime_ns=1_100_000_000), "/b": replace(OLD, mtime_ns=1_101_000_000), "/c": OLD}
    new = {"/a": replace(OLD, mtime_ns=10_900_000_000), "/c": replace(OLD, mtime_ns=10_950_000_000)}
    new["/b"] = replace(OLD, size=2, mtime_ns=10_920_000_000)
    planned = times(new, old, "/a", "/c")
    assert (planned["/a"], planned["/c"]) == (1_100_000_000, OLD.mtime_ns)
    assert planned["/a"] < planned["/b"] < planned["/c"]


def test_old_versions_written_in_another_order_get_new_times() -> None:
    """Of two old versions that the replay wrote the other way round, one gives way, so that the later one is newer."""
    old = {"/a": replace(OLD, mtime_ns=1_100_000_000), "/b": replace(OLD, mtime_ns=1_300_000_000)}
    new = {"/a": replace(OLD, mtime_ns=10_900_000_000), "/b": replace(OLD, mtime_ns=10_100_000_000)}
    planned = times(new, old, "/a", "/b")
    assert planned["/b"] < planned["/a"]
    assert len(set(planned.items()) & {(path, entry.mtime_ns) for path, entry in old.items()}) == 1


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["same", "changed", "new"]), st.integers(0, 9)), max_size=12),
    st.sampled_from(["file", "dir"]),
)
def test_order_is_never_turned_round(rows: list[tuple[int, str, int]], kind: str) -> None:
    """Whatever was recorded: what was written strictly later is at least as new, and a changed file has a new time."""
    step = 50_000_000
    new = {
        f"/{n}": Entry("file" if n % 2 else kind, size=1, mtime_ns=RAN.start + at * step) for n, (at, _, _) in enumerate(rows)
    }
    old = {
        f"/{n}": replace(new[f"/{n}"], mtime_ns=SLOT.start + before * step)
        for n, (_, how, before) in enumerate(rows)
        if how != "new"
    }
    planned = times(new, old, *(f"/{n}" for n, (_, how, _) in enumerate(rows) if how == "same"))
    assert planned.keys() == new.keys()
    for (one, earlier), (other, later) in itertools.permutations(new.items(), 2):
        assert earlier.mtime_ns >= later.mtime_ns or planned[one] <= planned[other]
    for n, (_, how, _) in enumerate(rows):
        if how == "changed" and new[f"/{n}"].kind == "file":
            assert planned[f"/{n}"] != old[f"/{n}"].mtime_ns


def test_all_names_of_a_file_have_one_time() -> None:
    """Hard links are one object with one time, whatever stood at each of the names before."""
    new = {p: replace(OLD, mtime_ns=10_400_000_000, links=("/a", "/b")) for p in ("/a", "/b")}
    new = {path: replace(entry, links=tuple({"/a", "/b"} - {path})) for path, entry in new.items()}
    assert len(set(times(new, {"/b": OLD}).values())) == 1


def test_a_time_that_was_set_stays() -> None:
    """`touch -d` and `tar x` set times outside of the run: they are meant. So are inherited ones."""
    assert times({"/f": Entry("file", mtime_ns=5)}, {}) == {}
    assert times({"/f": Entry("file", mtime_ns=10_500_000_000, inherit_mtime=True)}, {}) == {}


@given(st.lists(st.integers(RAN.start, RAN.end), max_size=40), st.integers(0, 3_000_000_000))
def test_the_order_of_writing_is_kept(moments: list[int], length: int) -> None:
    """What was written later never gets an earlier time, whatever the two windows' lengths."""
    new = {f"/{number}": Entry("file", mtime_ns=at) for number, at in enumerate(moments)}
    slot = Window(SLOT.start, SLOT.start + length)
    planned = plan_times(new, {}, RAN, slot, lambda _: False)
    ordered = sorted(new, key=lambda path: new[path].mtime_ns)
    assert [planned[path] for path in ordered] == sorted(planned.values())
    assert all(planned[path] >= slot.start for path in new)
    for one, other in pairwise(ordered):
        assert (new[one].mtime_ns < new[other].mtime_ns) == (planned[one] < planned[other])
