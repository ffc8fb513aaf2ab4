"""Decoding the tracer's stream: every event, its bytes, its faults, its speed."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import TracerError
from mulligan.model import events as ev
from mulligan.model.events import MetaWhat
from mulligan.sandbox.decode import decode_events

HELLO, END = [0, 1, "x86_64"], [60, 3, 2]


def frame(*events: object) -> bytes:
    """One frame of the wire."""
    body = msgspec.msgpack.encode(list(events))
    return len(body).to_bytes(4, "little") + body


def decode(*events: list[object]) -> list[ev.Event]:
    """The facts of a stream of these events."""
    return decode_events(frame(HELLO) + frame(*events) + frame(END)).events


def test_every_event_is_decoded() -> None:
    """Each kind of the protocol becomes its type of the model, in order."""
    paths: list[list[object]] = [[1, 0, b"/a"], [1, 1, b"/b"], [1, 2, b"/w"], [2, 0, b"sh\0-c\0\0x"], [2, 1, b"A=1\0B="]]
    wire: list[list[object]] = [
        [10, 0], [11, 0, 1], [12, 0], [13, 0], [14, 0], [15, 0], [16, 0], [20, 0], [21, 0, 1], [22, 0], [23, 0], [24, 0, 1, 1],
        [25, 0, 1], [26, 0], [27, 0], [28, 0, 5], [30, 7, 0, 0, 1, 2, 2, 0o1000], [31, 0, "inet", b"1.2.3.4", 80, 111], [32, 7], [34],
        [33, 9, b"sleep"], [40, "unmodelled", b"call"],
    ]  # fmt: skip
    assert decode(*paths, *wire) == [
        ev.Read("/a"), ev.Stat("/a", own_cwd=True), ev.Probe("/a"), ev.Missed("/a"), ev.Link("/a"), ev.List("/a"),
        ev.XattrRead("/a"), ev.Create("/a"), ev.Write("/a", truncated=True), ev.Mkdir("/a"), ev.Remove("/a"),
        ev.Rename("/a", "/b", exchange=True), ev.Hardlink("/a", "/b"), ev.Symlink("/a"), ev.Mknod("/a"),
        ev.Meta("/a", MetaWhat.MODE | MetaWhat.TIMES), ev.Exec(7, "/a", (b"sh", b"-c", b"", b"x"), (b"A=1", b"B="), "/w", 2),
        ev.Connect("connect", "inet", "1.2.3.4", 80, 111), ev.Credentials(7), ev.Umask(), ev.Killed(9, "sleep"),
        ev.Incomplete("unmodelled", "call"),
    ]  # fmt: skip


def test_paths_keep_their_bytes() -> None:
    """A path that is not UTF-8 gives its exact bytes back."""
    (event,) = decode([1, 5, b"/a\xff\n"], [10, 5])
    assert isinstance(event, ev.Read)
    assert event.path.encode("utf-8", "surrogateescape") == b"/a\xff\n"


def test_entries_and_stops_are_told() -> None:
    """The upper directory and the stops come along with the facts."""
    row: list[object] = [50, 1, "link", 0o777, 1, 2, 3, 4, 1, 9, b"to\xff", 0, False, [[b"user.x", b"\0"]]]
    facts = decode_events(frame(HELLO, [1, 1, b"/l"], row) + frame(END))
    assert facts.entries == [ev.RawEntry("/l", "link", 0o777, 1, 2, 3, 4, 1, 9, "to\udcff", 0, False, ((b"user.x", b"\0"),))]
    assert facts.stops == (3, 2)


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        frame(HELLO),
        frame(END),
        frame(HELLO, END)[:-1],
        frame(HELLO, [10, 99], END),
        frame(HELLO, [77], END),
        frame([0, 2, "x86_64"], END),
        frame(HELLO, [21], END),
        b"\x04\0\0\0abcd",
        b"\xff\xff\xff\xff",
    ],
)
def test_what_is_cut_off_or_out_of_order_is_a_tracer_error(stream: bytes) -> None:
    """No END, no HELLO, an unknown path or kind, another version, garbage: the action has no outcome."""
    with pytest.raises(TracerError):
        decode_events(stream)


def test_fifty_thousand_facts_take_a_fifth_of_a_second() -> None:
    """Decoding is on the way of every action."""
    stream = frame(HELLO, *([1, number, f"/some/path/{number}".encode()] for number in range(1000)))
    stream += b"".join(
        frame(*([10 + number % 4, number, 0][: 3 if number % 4 == 1 else 2] for number in range(1000))) for _ in range(50)
    )
    stream += frame(END)
    best = 9.0
    for _ in range(3):
        started = time.process_time()
        assert len(decode_events(stream).events) == 50_000
        best = min(best, time.process_time() - started)
    assert best < 0.2


WHOLE = frame(HELLO) + frame(
    [1, 0, b"/a"], [1, 1, b"/b"], [2, 0, b"sh\0-c"], [10, 0], [11, 1, 0], [24, 0, 1, 1], [28, 0, 5], [30, 7, 0, 0, 0, 1, 0, 0o22],
    [31, 1, "inet", b"1.2.3.4", 80, 0], [33, 9, b"x"], [40, "walk_failed", b"5"],
    [50, 1, "file", 0o644, 1, 2, 3, 4, 1, 9, b"", 0, False, [[b"user.x", b"\0"]]],
) + frame(END)  # fmt: skip


def told_or_refused(stream: bytes) -> int | None:
    """Facts of the model's own types, whose number is given, or a TracerError; nothing else."""
    try:
        facts = decode_events(stream)
    except TracerError:
        return None
    assert all(type(event).__module__ == ev.__name__ for event in facts.events)
    assert all(isinstance(entry.path, str) for entry in facts.entries)
    return len(facts.events)


def test_the_whole_stream_is_told() -> None:
    """What the tests below damage is a stream of eight facts and an entry, and each cut that is no frame's end is refused."""
    assert told_or_refused(WHOLE) == 8
    assert len(decode_events(WHOLE).entries) == 1
    assert [told_or_refused(WHOLE[:end]) for end in range(len(WHOLE))] == [None] * len(WHOLE)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=8) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=15) | st.dictionaries(st.text(max_size=4) | st.integers(0, 60), inner, max_size=3),
    max_leaves=20,
)


@given(frames=st.lists(VALUES, max_size=4))
def test_any_values_are_told_or_refused(frames: list[Any]) -> None:
    """Frames that hold any MessagePack values give facts or a TracerError, and never another exception; alone they are refused."""
    told_or_refused(frame(HELLO) + b"".join(frame(value) for value in frames) + frame(END))
    bodies = [msgspec.msgpack.encode(value) for value in frames]
    assert told_or_refused(b"".join(len(body).to_bytes(4, "little") + body for body in bodies)) is None, "there is no HELLO"


@given(
    kind=st.sampled_from([*range(4), *range(10, 17), *range(20, 29), *range(30, 34), 40, 50, 60]),
    rest=st.lists(VALUES, max_size=14),
)
def test_any_fields_are_told_or_refused(kind: int, rest: list[Any]) -> None:
    """An event of a known kind with any fields gives facts or a TracerError; one fact at most."""
    told = told_or_refused(frame(HELLO, [1, 0, b"/a"], [2, 0, b"a"]) + frame([kind, *rest], END))
    assert told in (None, 0, 1)
    assert told != 1 or kind in (*range(10, 17), *range(20, 29), *range(30, 34), 40), "only facts are told as facts"


@given(
    changes=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=5),
    cut=st.integers(0, 40),
)
def test_damaged_streams_are_told_or_refused(changes: list[tuple[int, int]], cut: int) -> None:
    """A whole stream of which bytes were changed gives facts or a TracerError, and no more facts than it had."""
    damaged = bytearray(WHOLE)
    for at, value in changes:
        damaged[at] = value
    for stream in (bytes(damaged), bytes(damaged[: len(damaged) - cut])):
        told = told_or_refused(stream)
        assert told is None or told <= len(WHOLE) // 2, "a fact takes more than two bytes"


@given(noise=st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    """Bytes of no meaning are a TracerError."""
    with pytest.raises(TracerError):
        decode_events(noise)


@pytest.mark.parametrize(
    "body", [b"\x91" * 100_000 + b"\xc0", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
)
def test_bombs_are_refused(body: bytes) -> None:
    """Values nested without end, and lengths beyond the frame, are a TracerError, and cost no memory."""
    with pytest.raises(TracerError):
        decode_events(frame(HELLO) + len(body).to_bytes(4, "little") + body + frame(END))
