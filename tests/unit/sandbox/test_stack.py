"""Reading a stack from the host's side: the union's rules, and no way out of the state."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mulligan.errors import NotFoundError, UsageError
from mulligan.sandbox.removal import settle

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Maker


def test_the_topmost_layer_that_has_a_name_decides(make: Maker) -> None:
    """A file of an upper layer hides that of a lower one; folders merge."""
    low = make.layer(("/d", None), ("/d/a", b"low"), ("/d/b", b"b"))
    high = make.layer(("/d", None), ("/d/a", b"high"), ("/d/c", b"c"))
    stack = make.stack(low, high)
    assert stack.read("/d/a") == b"high"
    assert stack.read("/d/b") == b"b"
    assert stack.listdir("/d") == ["a", "b", "c"]
    assert stack.see("/d/b").provider == low.id


def test_a_whiteout_removes_a_name(make: Maker) -> None:
    """A removed name is neither found nor listed, and a later layer may bring it back."""
    low = make.layer(("/a", b"1"), ("/b", b"2"))
    gone = make.layer(removed=("/a",))
    stack = make.stack(low, gone)
    assert not stack.exists("/a")
    assert stack.listdir("/") == ["b"]
    assert make.stack(low, gone, make.layer(("/a", b"3"))).read("/a") == b"3"


def test_an_opaque_folder_hides_what_lies_below(make: Maker) -> None:
    """A folder that was removed and made again shows only what is new in it."""
    low = make.layer(("/d", None), ("/d/old", b"x"))
    again = make.layer(("/d", None), ("/d/new", b"y"), opaque=("/d",))
    stack = make.stack(low, again)
    assert stack.listdir("/d") == ["new"]
    assert not stack.exists("/d/old")


def test_a_file_over_a_folder_ends_the_merge(make: Maker) -> None:
    """What lies below a name that is no folder any more is gone, and so it stays under a folder made later."""
    low = make.layer(("/d", None), ("/d/x", b"x"))
    file = make.layer(("/d", b"file"))
    again = make.layer(("/d", None))
    assert make.stack(low, file).read("/d") == b"file"
    assert make.stack(low, file, again).listdir("/d") == []


def test_symlinks_lead_nowhere_but_within_the_state(make: Maker) -> None:
    """Absolute targets, `..` and chains resolve in the state: /etc/shadow of the host is out of reach."""
    stack = make.stack(
        make.layer(
            ("/etc", None),
            ("/etc/shadow", b"inside"),
            ("/abs", "/etc/shadow"),
            ("/up", "../../../../etc/shadow"),
            ("/chain", "abs"),
            ("/dir", "etc"),
            ("/proc", "/proc/self/root/etc"),
        )
    )
    for path in ("/abs", "/up", "/chain", "/dir/shadow", "/etc/../etc/../../etc/shadow"):
        assert stack.read(path) == b"inside"
    assert stack.see("/dir/shadow").path == "/etc/shadow"
    assert stack.readlink("/abs") == "/etc/shadow"
    with pytest.raises(UsageError):
        stack.read("/proc/shadow")


def test_a_symlink_loop_is_an_error(make: Maker) -> None:
    """Forty symlinks are the limit, as in the kernel."""
    stack = make.stack(make.layer(("/a", "b"), ("/b", "a")))
    with pytest.raises(UsageError, match="symbolic links"):
        stack.read("/a")
    assert stack.lstat("/a").kind == "link"


def test_a_fifo_is_refused_without_opening_it(make: Maker) -> None:
    """Reading a FIFO would block for ever, so it is refused with its kind."""
    layer = make.layer(("/x", b""))
    os.mkfifo(make.store.path(layer.id) / "pipe")
    with pytest.raises(UsageError, match="FIFO"):
        make.stack(layer).read("/pipe")


def test_what_is_missing_is_named(make: Maker) -> None:
    """A missing path, and a path through a file, are NotFoundErrors that name what was asked for."""
    stack = make.stack(make.layer(("/f", b"")))
    for path in ("/nope", "/nope/deeper", "/f/below", "/f/"):
        with pytest.raises(NotFoundError, match=path):
            stack.read(path)
    with pytest.raises(UsageError):
        stack.read("relative")


def test_hostile_names_are_read_as_they_are(make: Maker) -> None:
    """Newlines, escapes, bytes that are not UTF-8 and long names are just names."""
    names = ["new\nline", "\x1b[31m", "bad\udcff", "n" * 255, "-rf", "a b"]
    stack = make.stack(make.layer(*((f"/{name}", name.encode("utf-8", "surrogateescape")) for name in names)))
    assert sorted(stack.listdir("/")) == sorted(names)
    for name in names:
        assert stack.read(f"/{name}") == name.encode("utf-8", "surrogateescape")


def test_a_path_deeper_than_path_max_is_reached(make: Maker) -> None:
    """A tree deeper than PATH_MAX is walked by descriptors."""
    layer = make.layer(("/top", None))
    fd = os.open(make.store.path(layer.id) / "top", os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 100, dir_fd=fd)
        deeper = os.open("d" * 100, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(os.open("end", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    assert make.stack(layer).read("/top" + ("/" + "d" * 100) * 60 + "/end") == b""


def test_binds_of_the_base_are_read_through(make: Maker, tmp_path: Path) -> None:
    """A bound folder of the host is read; a symlink in it is followed in the state, not on the host."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "f").write_bytes(b"host file")
    (host / "link").symlink_to("/inside")
    stack = make.stack(make.layer(("/usr", None), ("/inside", b"state")), binds=((str(host), "/usr"),))
    assert stack.read("/usr/f") == b"host file"
    assert stack.read("/usr/link") == b"state"
    assert stack.see("/usr/f").provider == "base"
    assert stack.listdir("/usr") == ["f", "link"]


def test_no_descriptor_is_left_open(make: Maker) -> None:
    """Neither a success nor a failure leaves a descriptor."""
    stack = make.stack(make.layer(("/d", None), ("/d/f", b"x"), ("/l", "d/f")), make.layer(("/d", None)))
    settle()  # removals in the background, of this test's or an earlier one's, hold descriptors of their own
    before = len(os.listdir("/proc/self/fd"))
    stack.read("/l")
    stack.listdir("/d")
    for path in ("/d/none", "/d/f/x", "/d"):
        with pytest.raises(UsageError):
            stack.read(path)
    assert len(os.listdir("/proc/self/fd")) == before
