"""Laying manifests over each other: what a state is, key by key."""

from __future__ import annotations

import pytest

from mulligan.model.ids import LayerId
from mulligan.model.keys import DAT, DIR, ENT, LINKS, MODE, MTIME, SEARCH, XATTR, Key
from mulligan.model.layer import Entry, Manifest
from mulligan.model.tree import Tree

COPIED = Entry("dir", mode=0o700, made=False, inherit_mode=True, inherit_mtime=True, inherit_xattrs=True)


def lay(tree, name, entries=None, removed=()):
    return tree.apply(Manifest(entries or {}, frozenset(removed)), LayerId(name))


@pytest.fixture
def tree():
    made = Tree()
    lay(
        made, "l1", {"/w": Entry("dir", 0o755), "/w/d": Entry("dir", 0o755), "/w/d/x": Entry("file", 0o640, size=4, mtime_ns=9)}
    )
    return made


def test_the_values_of_a_file(tree):
    """Each kind of key has its value; of what is absent every value is None."""
    assert tree.value(Key(ENT, "/w/d/x")) == ("file", "", 0)
    assert tree.value(Key(DAT, "/w/d/x")) == ("l1", "/w/d/x")
    assert tree.value(Key(MODE, "/w/d/x")) == (0o640, 0, 0)
    assert tree.value(Key(MTIME, "/w/d/x")) == (4, 9)
    assert tree.value(Key(XATTR, "/w/d/x")) == ()
    assert tree.value(Key(DIR, "/w/d")) == {("x", "file")}
    assert all(tree.value(Key(kind, "/w/no")) is None for kind in (ENT, DAT, MODE, MTIME, XATTR, LINKS, DIR, SEARCH))


def test_a_removed_folder_takes_all_below_it(tree):
    """A removal touches every descendant."""
    assert lay(tree, "l2", removed=["/w/d"]) == {"/w/d", "/w/d/x"}
    assert "/w/d/x" not in tree
    assert tree.children("/w") == []


def test_an_opaque_folder_hides_what_was_below(tree):
    """A folder removed and made again begins empty (row 11)."""
    touched = lay(tree, "l2", {"/w/d": Entry("dir", opaque=True), "/w/d/y": Entry("file")})
    assert {"/w/d", "/w/d/x", "/w/d/y"} == touched
    assert tree.children("/w/d") == ["y"]


def test_a_copied_up_folder_merges_and_inherits(tree):
    """A parent that came along keeps the mode and the entries of the one below (rows 9 and 10)."""
    lay(tree, "l2", {"/w/d": COPIED, "/w/d/y": Entry("file")})
    assert tree.value(Key(MODE, "/w/d")) == (0o755, 0, 0)
    assert tree.children("/w/d") == ["x", "y"]


@pytest.mark.parametrize("kind", ["file", "link", "fifo"])
def test_a_file_in_place_of_a_folder_ends_the_folder(tree, kind):
    """Another kind at a path ends whatever was below it (row 14)."""
    lay(tree, "l2", {"/w/d": Entry(kind)})
    assert [path for path, _ in tree.walk("/w")] == ["/w", "/w/d"]


def test_a_metadata_delta_keeps_the_provider(tree):
    """Where only the mode was meant, content, size and time stay those of below."""
    lay(tree, "l2", {"/w/d/x": Entry("file", 0o600, size=1, made=False, inherit_content=True, inherit_mtime=True)})
    assert tree.value(Key(DAT, "/w/d/x")) == ("l1", "/w/d/x")
    assert tree.value(Key(MTIME, "/w/d/x")) == (4, 9)
    assert tree.value(Key(MODE, "/w/d/x")) == (0o600, 0, 0)


def test_an_overwrite_touches_the_names_that_shared_the_file(tree):
    """Boundaries between layers part hard links: a name that is written anew leaves its group (row 17)."""
    lay(tree, "l2", {"/w/f": Entry("file", links=("/w/g",)), "/w/g": Entry("file", links=("/w/f",))})
    assert tree.value(Key(LINKS, "/w/f")) == ({"/w/f", "/w/g"}, 2)
    assert lay(tree, "l3", {"/w/f": Entry("file")}) == {"/w/f", "/w/g"}
    assert tree.value(Key(LINKS, "/w/g")) == ({"/w/g"}, 2)


def test_folders_that_no_layer_made_are_implied():
    """A file deep in nowhere has its folders."""
    tree = Tree()
    assert lay(tree, "l1", {"/a/b/c": Entry("file")}) == {"/a", "/a/b", "/a/b/c"}
    assert tree.children("/a") == ["b"]


def test_a_copy_is_independent(tree):
    """Neither twin sees what is laid on the other."""
    twin = tree.copy()
    lay(tree, "l2", {"/w/d/y": Entry("file")})
    lay(twin, "l3", {"/w/d/z": Entry("file")}, removed=["/w/d/x"])
    assert tree.children("/w/d") == ["x", "y"]
    assert twin.children("/w/d") == ["z"]


def test_a_walk_is_deep_and_sorted():
    """Parents come first, names in order, and no depth is too much."""
    tree = Tree()
    deep = "/" + "/".join(["d"] * 3000)
    lay(tree, "l1", {deep: Entry("dir"), "/b": Entry("file"), "/a": Entry("file")})
    paths = [path for path, _ in tree.walk()]
    assert paths[:3] == ["/", "/a", "/b"]
    assert paths[-1] == deep


def test_what_root_needs_to_pass(tree):
    """Root passes any folder and reads any file; running one takes an x bit of anybody."""
    key, folder = Key(SEARCH, "/w/d/x"), Key(SEARCH, "/w/d")
    before = tree.value(key), tree.value(folder)
    lay(tree, "l2", {"/w/d/x": Entry("file", 0o600), "/w/d": Entry("dir", 0)})
    assert (tree.value(key), tree.value(folder)) == before
    lay(tree, "l3", {"/w/d/x": Entry("file", 0o601)})
    assert tree.value(key) != before[0]


def test_what_an_ordinary_user_needs_to_pass(tree):
    """An owner is let in by the owner's bits; one who changes ids, by any of them."""
    key = Key(SEARCH, "/w/d")
    before = {who: tree.value(key, who) for who in ("owner", "any")}
    lay(tree, "l2", {"/w/d": Entry("dir", 0o700, made=False)})
    assert tree.value(key, "owner") == before["owner"]
    assert tree.value(key, "any") != before["any"]
    lay(tree, "l3", {"/w/d": Entry("dir", 0o500, made=False)})
    assert tree.value(key, "owner") != before["owner"]


def test_a_set_group_id_folder_is_an_input_of_what_is_made_in_it(tree):
    """It gives its group to new files, for root as well."""
    before = tree.value(Key(SEARCH, "/w/d"))
    lay(tree, "l2", {"/w/d": Entry("dir", 0o2755, gid=7, made=False)})
    assert tree.value(Key(SEARCH, "/w/d")) != before


def test_keys_of_no_path_have_no_value_in_a_tree(tree):
    """An environment variable is not asked of the file tree."""
    with pytest.raises(ValueError, match="not a key of the file tree"):
        tree.value(Key("env", "/w"))
