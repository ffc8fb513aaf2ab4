"""Trees on disk: removal and copying of what hostile guests make."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mulligan.errors import DiskFullError
from mulligan.sandbox import trees

if TYPE_CHECKING:
    from pathlib import Path


def test_removal_copes_with_depth_modes_and_names(tmp_path: Path) -> None:
    """A tree of 1,500 levels with folders of mode 000 and strange names is removed, with nothing left beside it."""
    root = os.open(tmp_path, trees.FOLDER)
    os.mkdir("top", dir_fd=root)
    fd = os.open("top", trees.FOLDER, dir_fd=root)
    for level in range(1500):
        os.mkdir("x" * 60, dir_fd=fd)
        deeper = os.open("x" * 60, trees.FOLDER, dir_fd=fd)
        os.close(os.open(b"f\xff\n", os.O_CREAT | os.O_WRONLY, 0, dir_fd=deeper))
        os.symlink("/etc/passwd", "link", dir_fd=deeper)
        if level % 7 == 0:
            os.chmod(fd, 0)
        os.close(fd)
        fd = deeper
    os.close(fd)
    trees.remove_tree(root, "top")
    os.close(root)
    assert list(tmp_path.iterdir()) == []


def test_removal_never_follows_a_symlink(tmp_path: Path) -> None:
    """A symlink to a folder is removed, what it leads to stays."""
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "file").write_text("x")
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "link").symlink_to(tmp_path / "keep")
    root = os.open(tmp_path, trees.FOLDER)
    trees.remove_tree(root, "top")
    trees.remove_tree(root, "not there")
    os.close(root)
    assert [path.name for path in tmp_path.rglob("*")] == ["keep", "file"]


@pytest.mark.parametrize("holes", [False, True])
def test_copies_have_the_same_bytes_and_keep_holes(tmp_path: Path, *, holes: bool) -> None:
    """A copied file equals its source, and a hole takes no space in the copy."""
    with (tmp_path / "source").open("wb") as file:
        file.write(b"begin")
        if holes:
            file.seek(64 << 20)
        file.write(os.urandom(3_000_000))
        if holes:
            file.truncate(128 << 20)
    with (tmp_path / "source").open("rb") as source, (tmp_path / "copy").open("w+b") as copy:
        trees.copy_bytes(source.fileno(), copy.fileno())
        assert trees.same_content(source.fileno(), copy.fileno())
    assert (tmp_path / "copy").stat().st_blocks * 512 < 8 << 20


def test_files_that_differ_in_one_byte_are_told_apart(tmp_path: Path) -> None:
    """Equal sizes are not equal contents."""
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    (tmp_path / "b").write_bytes(b"x" * 2_999_999 + b"y")
    with (tmp_path / "a").open("rb") as one, (tmp_path / "b").open("rb") as other:
        assert not trees.same_content(one.fileno(), other.fileno())


def test_opening_below_refuses_a_symlinked_parent(tmp_path: Path) -> None:
    """A symlink planted in the middle of a path ends the walk."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_text("x")
    (tmp_path / "link").symlink_to("real")
    root = os.open(tmp_path, trees.FOLDER)
    with pytest.raises(NotADirectoryError):
        trees.open_below(root, ("link", "f"), trees.READING)
    with pytest.raises(OSError, match=r"symbolic link|Not a directory"):
        trees.open_below(root, ("link",), trees.FOLDER)
    os.close(root)


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """ENOSPC becomes a DiskFullError that names what there was no space for."""
    assert tmp_path.is_dir()
    with pytest.raises(DiskFullError, match="write the thing: No space left"), trees.space_for("write the thing"):
        raise OSError(28, "No space left on device")


def test_what_is_closed_to_its_owner_is_read_all_the_same(tmp_path: Path) -> None:
    """A folder and a file of mode 000 in a layer are opened, and have mode 000 again afterwards; in others' trees not."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"x")
    for path in (tmp_path / "d" / "f", tmp_path / "d"):
        path.chmod(0)
    root = os.open(tmp_path, trees.FOLDER)
    with trees.opened(root, ("d", "f"), trees.READING, ours=True) as fd:
        assert os.read(fd, 9) == b"x"
    os.close(root)
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0
    (tmp_path / "d").chmod(0o700)
    assert (tmp_path / "d" / "f").stat().st_mode & 0o777 == 0
