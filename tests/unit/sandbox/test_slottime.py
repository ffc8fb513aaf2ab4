"""Slot time: where the files of a replay get their times from."""

from __future__ import annotations

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
    """A folder that both layers hold is as old as it was."""
    assert times({"/d": Entry("dir", mtime_ns=10_500_000_000)}, {"/d": Entry("dir", mtime_ns=7)}) == {"/d": 7}


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
