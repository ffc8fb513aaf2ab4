"""Folding events: what is an observation, what is an action's own, and what a layer means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.model import events as ev
from mulligan.model.action import LaunchContext
from mulligan.model.events import MetaWhat, RawEntry
from mulligan.model.fold import HANDOFF_PROGRAM, check_writes, fold_footprint, fold_manifest, handoff, own_writes
from mulligan.model.keys import DAT, DIR, ENT, LINKS, MODE, MTIME, SEARCH, XATTR, Key
from mulligan.model.layer import Manifest
from mulligan.model.own import OwnWrites

PLACES = st.sampled_from(["/w", "/w/a", "/w/a/b", "/w/a/b/c", "/w/x", "/v", "/v/y"])


def fold(*events, raw=None, rootless=False):
    """The footprint; without `raw`, of a layer that holds all that the events say was written."""
    if raw is None:
        raw = [entry(path) for path, found in own_writes(events).items() if not found.gone]
    return fold_footprint(events, fold_manifest(events, raw), LaunchContext(), rootless=rootless)


def entry(path, kind="file", **more):
    values = {"mode": 0o644, "uid": 0, "gid": 0, "size": 3, "mtime_ns": 7, "nlink": 1, "ino": hash(path)} | more
    return RawEntry(path, kind, **values)


def test_each_kind_of_look_has_its_set():
    """Every observation of an old object is kept under its own kind."""
    got = fold(
        ev.Read("/w/a"), ev.Stat("/w/b", own_cwd=False), ev.Probe("/w/c"), ev.Missed("/w/d"), ev.Link("/w/e"), ev.List("/w/f"),
        ev.XattrRead("/w/g"),
    )  # fmt: skip
    assert (got.saw, got.stats, got.probed, got.missed) == ({"/w/a"}, {"/w/b"}, {"/w/c"}, {"/w/d"})
    assert (got.linked, got.listed, got.xattrs) == ({"/w/e"}, {"/w/f"}, {"/w/g"})


@given(
    changes=st.lists(
        st.one_of(
            st.builds(ev.Create, PLACES), st.builds(ev.Remove, PLACES), st.builds(ev.Rename, PLACES, PLACES, st.booleans()),
            st.builds(ev.Write, PLACES, st.booleans()), st.builds(ev.Hardlink, PLACES, PLACES),
        ),
        max_size=6,
    ),
    asked=st.lists(PLACES, min_size=1, max_size=4),
)  # fmt: skip
def test_what_is_untouched_is_what_it_was(changes, asked):
    """A name that counts as untouched, asked at any time, stands for what it was before the action."""
    own = OwnWrites()
    for change in (*changes, None):
        for path in asked:
            if own.is_untouched(path):
                assert own.where(path) == (None, path)
                assert own.at(path) is None
        if change is not None:
            own.apply(change)
    touched = {path for path, _ in own.items()}
    for path in asked:
        above = {path[:at] for at in range(1, len(path)) if path[at] == "/"} | {"/", path}
        assert own.is_untouched(path) is not bool(above & touched)


@pytest.mark.parametrize("path", ["/proc/self/maps", "/dev/null", "/sys", "/.mulligan/handoff", "/dev/shm/x"])
def test_views_of_the_kernel_are_no_state(path):
    """What lies under /proc, /dev and /sys, and our own helper folder, is in no set."""
    got = fold(ev.Read(path), ev.Missed(path), ev.Create(path), ev.Exec(1, path, (), (), "/", 0), raw=[entry(path)])
    assert got.observations() == frozenset()
    assert got.wrote == frozenset()


def test_a_name_that_only_begins_like_a_kernel_view_is_state():
    """/devices is not below /dev."""
    assert fold(ev.Read("/devices")).saw == {"/devices"}


def test_the_own_working_folder_is_not_looked_at_for_its_mtime():
    """A shell that compares $PWD with `.` relies on the folder being there, not on its mtime."""
    got = fold(ev.Stat("/w", own_cwd=True))
    assert (got.probed, got.stats) == ({"/w"}, frozenset())


def test_a_created_file_was_absent_before_and_is_internal_afterwards():
    """CREATE observes absence; whatever is seen of the file later is the action's own."""
    got = fold(ev.Create("/w/n"), ev.Read("/w/n"), ev.Stat("/w/n", own_cwd=False), ev.Remove("/w/n"), ev.Missed("/w/n"))
    assert got.observations() == {Key(ENT, "/w/n"), Key(ENT, "/w"), Key(SEARCH, "/w"), Key(ENT, "/"), Key(SEARCH, "/")}


def test_all_below_an_own_folder_is_internal():
    """In a folder that the action made, nothing old can be found or missed."""
    got = fold(ev.Mkdir("/w/n"), ev.Missed("/w/n/x"), ev.Create("/w/n/x"), ev.List("/w/n"), ev.Read("/w/n/x"))
    assert got.missed == {"/w/n"}
    assert not got.saw | got.listed


def test_after_a_removal_the_absence_is_internal():
    """Who removes a file and then finds it missing has learnt nothing of the state before."""
    got = fold(ev.Probe("/w/a"), ev.Remove("/w/a"), ev.Missed("/w/a"), ev.Create("/w/a"), ev.Read("/w/a"))
    assert (got.probed, got.missed, got.saw) == ({"/w/a"}, frozenset(), frozenset())


def test_truncation_is_blind_in_content_only():
    """`> x` relies on x being there, its mode, attributes and link group, not on its content, and reads its own content later."""
    got = fold(ev.Write("/w/a", truncated=True), ev.Read("/w/a"))
    keys = {key for key in got.observations() if key.name == "/w/a"}
    assert keys == {Key(ENT, "/w/a"), Key(MODE, "/w/a"), Key(LINKS, "/w/a"), Key(XATTR, "/w/a")}


def test_a_write_without_truncation_reads():
    """An append carries the old content along (REPAIR.md row 6)."""
    assert fold(ev.Write("/w/a", truncated=False)).saw == {"/w/a"}


def test_a_read_before_the_write_counts():
    """What was read before it was overwritten was old."""
    assert fold(ev.Read("/w/a"), ev.Write("/w/a", truncated=True), ev.Read("/w/a")).saw == {"/w/a"}


def test_after_a_rename_the_old_object_is_known_by_its_old_path():
    """A renamed file is seen at its new name, and was at its old one before the action."""
    got = fold(ev.Rename("/w/a", "/w/b", exchange=False), ev.XattrRead("/w/b"), ev.Missed("/w/a"))
    assert got.saw == got.stats == got.xattrs == {"/w/a"}
    assert not got.missed


def test_a_rename_takes_along_what_lies_below():
    """What the action knew below a renamed folder is known below its new name."""
    got = fold(
        ev.Mkdir("/w/n"), ev.Create("/w/n/x"), ev.Rename("/w/d", "/w/n/d", exchange=False),
        ev.Rename("/w/n", "/w/m", exchange=False), ev.Read("/w/m/x"), ev.Read("/w/m/d/old"), ev.Missed("/w/n"),
    )  # fmt: skip
    assert got.saw - {"/w/d"} == {"/w/d/old"}
    assert got.missed == {"/w/n"}


def test_an_exchange_swaps_the_two():
    """After RENAME_EXCHANGE each name shows the other's old object."""
    got = fold(ev.Create("/w/n"), ev.Rename("/w/n", "/w/a", exchange=True), ev.Read("/w/a"), ev.Read("/w/n"))
    assert got.saw == {"/w/a"}


def test_two_names_that_the_action_linked_are_one_file():
    """A write through one own link is seen through the other."""
    got = fold(ev.Hardlink("/w/a", "/w/n"), ev.Write("/w/n", truncated=True), ev.Read("/w/a"))
    assert got.saw == {"/w/a"}  # by the link itself, which copies the file
    again = fold(ev.Create("/w/m"), ev.Hardlink("/w/m", "/w/n"), ev.Remove("/w/m"), ev.Read("/w/n"))
    assert not again.saw


def test_a_chmod_does_not_read():
    """Only metadata were meant: the content is inherited, and not observed (row 7)."""
    events = (ev.Probe("/w/a"), ev.Meta("/w/a", MetaWhat.MODE))
    assert not fold(*events, raw=[entry("/w/a", mode=0o600)]).saw
    got = fold_manifest(events, [entry("/w/a", mode=0o600)]).entries["/w/a"]
    assert (got.made, got.inherit_content, got.inherit_mode, got.inherit_mtime) == (False, True, False, True)


def test_a_parent_that_was_copied_up_inherits_all():
    """A folder in the layer only for the sake of what is below it says nothing itself (row 9)."""
    manifest = fold_manifest([ev.Write("/w/d/x", truncated=True)], [entry("/w/d", "dir"), entry("/w/d/x")])
    assert manifest.entries["/w/d"].sets() == frozenset()
    assert manifest.entries["/w/d/x"].sets() == {DAT, MTIME, LINKS, MODE, XATTR}


def test_a_file_that_was_written_has_its_mode_and_attributes_from_the_write():
    """The kernel takes set-id bits and capabilities from a file that is written to: they are observed, not inherited."""
    manifest = fold_manifest([ev.Write("/w/x", truncated=True)], [entry("/w/x")])
    assert not manifest.entries["/w/x"].inherits()


def test_a_new_name_sets_the_mtime_of_its_folder():
    """Making or removing a name is meant to change the folder's mtime, and who looks at it then looks at its own."""
    events = (ev.Create("/w/d/n"), ev.Stat("/w/d", own_cwd=False))
    assert fold_manifest(events, [entry("/w/d", "dir"), entry("/w/d/n")]).entries["/w/d"].sets() == {MTIME}
    assert not fold(*events).stats


def test_a_made_object_inherits_nothing():
    """A created file, an opaque folder and a renamed file are the layer's own."""
    events = (ev.Create("/w/n"), ev.Remove("/w/d"), ev.Mkdir("/w/d"), ev.Rename("/w/a", "/w/b", exchange=False))
    entries = fold_manifest(events, [entry("/w/n"), entry("/w/d", "dir", opaque=True), entry("/w/b")]).entries
    assert all(one.made and not one.inherits() for one in entries.values())
    assert entries["/w/d"].opaque


def test_link_groups_are_told_by_their_other_names():
    """Names that share an inode in the layer are one file."""
    events = (ev.Create("/w/m"), ev.Hardlink("/w/m", "/w/n"))
    entries = fold_manifest(events, [entry("/w/m", nlink=2, ino=5), entry("/w/n", nlink=2, ino=5)]).entries
    assert (entries["/w/m"].links, entries["/w/n"].links) == (("/w/n",), ("/w/m",))


def test_a_copy_that_no_event_explains_is_an_observation():
    """A file that lies in the layer unexplained holds old content: it counts as read."""
    got = fold(raw=[entry("/w/a")])
    assert "/w/a" in got.saw & got.stats & got.xattrs


def test_a_write_that_the_layer_lacks_is_an_observation():
    """A new file that was left out, since it equals the one below, relies on its being equal."""
    got = fold_footprint([ev.Rename("/w/b", "/w/a", exchange=False)], Manifest(), LaunchContext())
    assert "/w/a" in got.saw & got.stats


def test_the_root_folder_is_no_delta_of_its_own():
    """Every upper directory has a root; it is in the manifest only when something was done to it."""
    assert "/" not in fold_manifest([], [entry("/", "dir")]).entries
    assert fold_manifest([ev.Create("/n")], [entry("/", "dir"), entry("/n")]).entries["/"].sets() == {MTIME}


def test_programs_that_ran_are_told_and_own_ones_are_not():
    """An old program is an input with its mode; one that the action built is its own."""
    got = fold(ev.Exec(1, "/usr/bin/cc", (), (), "/w", 0), ev.Create("/w/n"), ev.Exec(1, "/w/n", (), (), "/w", 0))
    assert got.executed == {"/usr/bin/cc"}
    assert Key(MODE, "/usr/bin/cc") in got.observations()


def test_a_program_that_could_not_run_was_probed():
    """EACCES depends on the program's mode."""
    assert fold(ev.Exec(1, "/w/a", (), (), "/w", 13)).probed == {"/w/a"}


def test_whose_permissions_applied():
    """Root passes everywhere; an ordinary user by the owner's bits; who changes ids, by any."""
    assert fold().principal == "root"
    assert fold(rootless=True).principal == "owner"
    assert fold(ev.Credentials(4), rootless=True).principal == "any"


def test_a_hole_in_the_trace_is_said():
    """What the tracer could not model stands in the footprint, once, with its reason."""
    hole = ev.Incomplete("unknown_syscall", "999")
    got = fold(hole, hole)
    assert (got.complete, got.incomplete_because) == (False, ("unknown_syscall: 999",))


def test_the_prefixes_of_every_path_are_observed():
    """A path relies on each folder on its way: that it is one, and may be passed."""
    keys = fold(ev.List("/a/b/c")).observations()
    for folder in ("/", "/a", "/a/b"):
        assert {Key(ENT, folder), Key(SEARCH, folder)} <= keys
    assert Key(DIR, "/a/b/c") in keys
    assert Key(DIR, "/a/b") not in keys


def test_metadata_observe_all_but_content():
    """A stat relies on mode, size, mtime and link group; xattrs are read by their own call."""
    kinds = {key.kind for key in fold(ev.Stat("/a", own_cwd=False)).observations() if key.name == "/a"}
    assert kinds == {ENT, MODE, MTIME, LINKS}
    assert Key(XATTR, "/a") in fold(ev.Meta("/a", MetaWhat.XATTR)).observations()


def test_a_handoff_is_the_last_environment_of_the_shell():
    """Exports and working folder pass on; what a shell makes afresh does not; bytes that are not UTF-8 stay exact."""
    first = ev.Exec(1, HANDOFF_PROGRAM, (), (b"A=0",), "/", 2)
    last = ev.Exec(1, HANDOFF_PROGRAM, (), (b"A=1=2", b"PWD=/w", b"SHLVL=2", b"_=x", b"OLDPWD=/", b"B=\xff", b"odd"), "/w/d", 2)
    assert handoff([first, last]) == LaunchContext({"A": "1=2", "B": "\udcff"}, "/w/d")
    assert handoff([]) is None


def test_writes_and_layer_that_agree():
    """A layer that holds just what was reported gives no complaint, with copied-up parents and a temporary file."""
    events = [
        ev.Create("/w/d/n"), ev.Probe("/w/a"), ev.Remove("/w/a"), ev.Create("/w/t"), ev.Remove("/w/t"), ev.Meta("/w/d/x", MetaWhat.MODE),
        ev.Exec(1, "/bin/sh", (), (), "/", 0),
    ]  # fmt: skip
    upper = [
        entry("/", "dir"),
        entry("/w", "dir"),
        entry("/w/d", "dir"),
        entry("/w/d/n"),
        entry("/w/a", "whiteout"),
        entry("/w/d/x"),
    ]
    assert check_writes(events, upper) == []


@pytest.mark.parametrize(
    ("events", "upper", "said"),
    [
        ([], [entry("/w/n")], "'/w/n' is in the layer"),
        ([], [entry("/w/a", "whiteout")], "'/w/a' is removed by the layer"),
        ([], [entry("/w/d", "dir")], "folder '/w/d' is in the layer"),
        ([ev.Create("/w/n")], [], "'/w/n' was reported as written"),
        ([ev.Create("/w/n")], [entry("/w/n", "whiteout")], "'/w/n' was reported as written"),
        ([ev.Write("/w/a", truncated=True)], [], "'/w/a' was reported as written"),
        ([ev.Probe("/w/a"), ev.Remove("/w/a")], [], "'/w/a' was reported as removed"),
    ],
)
def test_writes_and_layer_that_disagree(events, upper, said):
    """Whatever only one of the two tells is said, with its path."""
    assert any(said in line for line in check_writes(events, upper)), check_writes(events, upper)
