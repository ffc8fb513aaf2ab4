"""Decoding the tracer's stream: every event, its bytes, its faults, its speed."""

from __future__ import annotations

import time

import msgspec
import pytest

from mulligan.errors import TracerError
from mulligan.model import events as ev
from mulligan.model.events import MetaWhat
from mulligan.sandbox.decode import decode_events

HELLO, END = [0, 1, "x86_64"], [60, 3, 2]


def frame(*events: list[object]) -> bytes:
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
        [25, 0, 1], [26, 0], [27, 0], [28, 0, 5], [30, 7, 0, 0, 1, 2, 2], [31, 0, "inet", b"1.2.3.4", 80, 111], [32, 7],
        [33, 9, b"sleep"], [40, "unmodelled", b"call"],
    ]  # fmt: skip
    assert decode(*paths, *wire) == [
        ev.Read("/a"), ev.Stat("/a", own_cwd=True), ev.Probe("/a"), ev.Missed("/a"), ev.Link("/a"), ev.List("/a"),
        ev.XattrRead("/a"), ev.Create("/a"), ev.Write("/a", truncated=True), ev.Mkdir("/a"), ev.Remove("/a"),
        ev.Rename("/a", "/b", exchange=True), ev.Hardlink("/a", "/b"), ev.Symlink("/a"), ev.Mknod("/a"),
        ev.Meta("/a", MetaWhat.MODE | MetaWhat.TIMES), ev.Exec(7, "/a", (b"sh", b"-c", b"", b"x"), (b"A=1", b"B="), "/w", 2),
        ev.Connect("connect", "inet", "1.2.3.4", 80, 111), ev.Credentials(7), ev.Killed(9, "sleep"),
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
        started = time.perf_counter()
        assert len(decode_events(stream).events) == 50_000
        best = min(best, time.perf_counter() - started)
    assert best < 0.2
