"""The set-up as data: the operations and their bytes."""

from __future__ import annotations

import pytest

from mulligan.errors import UsageError
from mulligan.model.action import LaunchContext
from mulligan.model.ids import LayerId
from mulligan.sandbox.base import Base
from mulligan.sandbox.ids import IdMap
from mulligan.sandbox.limits import Limits
from mulligan.sandbox.mounts import build_command, build_mounts, build_spec

ROOT = Base("host", LayerId("base-1"), (("/usr/x", "/usr/x"), ("/usr", "/usr")), ids=IdMap(0, 0, 0, 100_000, 65_536))  # type: ignore[arg-type]


def test_the_set_up_begins_with_the_version_and_ends_with_end() -> None:
    """Operations are NUL-terminated fields, in the order in which they are to be done."""
    ops = build_mounts(ROOT, ["/top", "/low"], "/upper", "/work") + build_command(
        ROOT, Limits(), ["sh", ""], LaunchContext({"A": "1"}, "/w", 7)
    )
    spec = build_spec(ops)
    fields = spec.decode().split("\0")
    assert fields[:6] == ["version", "1", "idmap", "0", "100000", "65536"]
    assert fields[-6:] == ["walk", "1", "trace", "1", "end", ""]
    assert spec.index(b"lower\0/top") < spec.index(b"lower\0/low") < spec.index(b"upper\0/upper\0/work\0")
    assert spec.index(b"ro-bind\0/usr\0/usr\0") < spec.index(b"ro-bind\0/usr/x\0/usr/x\0")
    assert b"cwd\0/w\0umask\x0007\0" in spec
    assert b"arg\0sh\0arg\0\0env\0A=1\0" in spec


def test_arguments_keep_their_bytes() -> None:
    """Arguments that are not UTF-8 reach the program as they are; a NUL can't be passed, and is said."""
    assert b"arg\0a\xff\nb\0" in build_spec(build_command(ROOT, Limits(), ["a\udcff\nb"], LaunchContext()))
    with pytest.raises(UsageError, match="NUL"):
        build_spec(build_command(ROOT, Limits(), ["a\0b"], LaunchContext()))


def test_limits_never_exceed_what_this_process_may_have() -> None:
    """A limit above the own hard limit would be refused, so it is lowered to it."""
    named = dict(Limits(nofile=1 << 40, core=0).rlimits())
    assert int(named["nofile"]) <= 1 << 40
    assert named["core"] == "0"
    assert int(named["nproc"]) <= 1 << 15, "a fork bomb must not take the machine's last process id"
    assert "as" not in named
