"""The probes of what is seen and which doors are closed (rows 13 to 20): no code runs unseen, nothing is reached."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan import HostError, Record, Session, runner
from mulligan.model.events import Connect
from mulligan.sandbox import tracer

Guests = Callable[..., dict[str, str]]
Told = Callable[[Record], str]


# ---------------------------------------------------------------------------------------------- 13, 14, 15: the tracer


@pytest.mark.parametrize(
    ("name", "complete"),
    [("refused_calls", True), ("vfork_exec", True), ("thread_exec", True), ("not_dumpable", True), ("foreign_call", False)],
)
def test_13_no_way_of_running_code_goes_unseen(home: Path, guests: Guests, name: str, complete: bool) -> None:  # noqa: FBT001
    """CLONE_UNTRACED, clone3, ptrace, vfork, exec from a thread, no dumping, other call tables: recorded, or refused and said."""
    with Session.create("s", home=home, imports=guests(name)) as session:
        record = session.run([f"/guests/{name}"])
        assert record.outcome.ok, record.outcome
        assert record.footprint.complete is complete, record.footprint.incomplete_because
        facts = [line.split() for line in record.outcome.stdout.decode().splitlines() if not line.startswith("!")]
        seen = record.footprint.observed_paths() | record.footprint.wrote | record.footprint.removed | record.footprint.executed
        assert {path for kind, path in facts if kind != "INCOMPLETE"} <= seen


def test_13_a_set_id_program_is_run_as_any_other_and_recorded(session: Session) -> None:
    """An exec of a set-id program changes no id, and what it reads is recorded."""
    session.run("cp /bin/cat own; chmod 6755 own; echo secret > file")
    record = session.run("./own file; id -u")
    assert record.outcome.stdout.split() == [b"secret", str(session.base.ids.uid).encode()]
    assert {"/workspace/own", "/workspace/file"} <= record.footprint.observed_paths()


def test_14_writes_through_other_descriptors_have_their_right_names(home: Path, guests: Guests) -> None:
    """Passed descriptors, mappings, openat2, O_TMPFILE, memfd and execveat: each write is recorded with the right path."""
    with Session.create("s", home=home, imports=guests("probe_descriptors")) as session:
        record = session.run(["/guests/probe_descriptors"])
        assert record.outcome.ok, record.outcome
        assert record.footprint.complete
        assert record.footprint.wrote == frozenset(record.outcome.stdout.decode().split())
        assert session.files.read("/workspace/passed") == "passed"
        assert session.files.read_bytes("/workspace/mapped").startswith(b"mapped\0")


def test_15_a_path_that_a_sibling_flips_is_recorded_as_it_was_used(home: Path, guests: Guests) -> None:
    """What was opened is what is recorded; a name that was changed elsewhere than it was read makes the action incomplete.

    That the facts equal the upper directory, or say that they can't, is checked after every action of every test.
    """
    with Session.create("s", home=home, imports=guests("argument_race", "probe_write_race")) as session:
        record = session.run(["/guests/argument_race"])
        assert record.outcome.ok, record.outcome
        assert {line.split()[1] for line in record.outcome.stdout.decode().splitlines()} <= record.footprint.wrote
        for _ in range(3):
            record = session.run(["/guests/probe_write_race"])
            assert record.outcome.ok, record.outcome
            assert record.footprint.wrote | record.footprint.removed <= {"/workspace/one", "/workspace/two"}


def test_15_a_write_that_no_fact_tells_of_makes_the_action_incomplete(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layer is the truth of what was written; where the facts say otherwise, they are not relied on."""
    assert session.run("echo x > file").footprint.complete
    monkeypatch.setattr(runner, "check_writes", lambda _events, _entries: ["'/f' is in the layer, and no event tells of it"])
    record = session.run("echo x > file")
    assert record.footprint.incomplete_because == ("unseen_write: '/f' is in the layer, and no event tells of it",)


# ---------------------------------------------------------------------------------------------- 16 to 20: doors

REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOENT, errno.EROFS, errno.ENODATA, errno.ENXIO, errno.ETXTBSY}


def test_16_19_20_every_door_is_closed(home: Path, guests: Guests) -> None:
    """Terminal injection, mounts, namespaces, kernel interfaces, siblings, init and the tracer behind it: all refused."""
    with Session.create("s", home=home, imports=guests("probe_escapes")) as session:
        record = session.run(["/guests/probe_escapes"])
    rows = [line.split() for line in record.outcome.stdout.decode().splitlines()]
    answers = {name: int(number) for name, number in rows}
    assert answers.pop("parent") == 0, "the guest's parent is its namespace's init, or nobody"
    assert record.outcome.ok, record.outcome
    assert {name: errno.errorcode[n] for name, n in answers.items() if n not in REFUSED} == {}
    assert {answers[name] for name in ("tiocsti", "tioclinux", "mount", "setns", "bpf", "ptrace_seize")} == {errno.EPERM}
    assert answers["controlling_terminal"] == errno.ENXIO
    assert len(answers) > 60


_NETWORK = """
import errno, socket
def attempt(family, kind, address, protocol=0):
    try:
        with socket.socket(family, kind, protocol) as s:
            s.settimeout(2)
            s.connect(address)
            s.send(b"x")
            return "open"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
four, six, unix = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX
stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
print(attempt(four, stream, ("192.0.2.1", 80)), attempt(four, datagram, ("192.0.2.1", 53)))
print(attempt(six, stream, ("2001:db8::1", 443)), attempt(four, stream, ("169.254.169.254", 80)))
print(attempt(four, socket.SOCK_RAW, ("192.0.2.1", 0), 1), attempt(four, stream, ("127.0.0.1", PORT)))
print(attempt(unix, stream, "\\0NAME"), attempt(unix, stream, "/var/run/docker.sock"))
print([name for _, name in socket.if_nameindex()])
"""


def test_17_18_no_network_is_reachable_and_no_socket_of_the_host(session: Session, out: Told) -> None:
    """TCP, UDP, IPv6, metadata addresses, raw IP, the host's loopback, abstract and Docker's sockets: blocked and recorded."""
    name = f"mulligan-probe-{os.getpid()}"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as abstract:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        abstract.bind(f"\0{name}")
        abstract.listen()
        program = _NETWORK.replace("PORT", str(tcp.getsockname()[1])).replace("NAME", name)
        record = session.run(["python3", "-c", program], env={"http_proxy": "", "no_proxy": "*"})
        for server in (tcp, abstract):
            server.setblocking(False)
            with pytest.raises(BlockingIOError):
                server.accept()
    *answers, interfaces = out(record).splitlines()
    assert interfaces == "['lo']"
    assert set(" ".join(answers).split()) <= {"ENETUNREACH", "ECONNREFUSED", "EPERM", "ENOENT", "EADDRNOTAVAIL"}
    peers = [event for event in record.footprint.connected if isinstance(event, Connect)]
    assert any("192.0.2.1" in peer.address for peer in peers), peers
    assert any(name in peer.address for peer in peers), peers
    assert all(peer.errno for peer in peers if peer.op == 0)


def test_20_a_flood_of_facts_arrives_whole(session: Session) -> None:
    """A guest can't make the tracer lose facts by producing more than a pipe holds."""
    program = "import os\nfor n in range(30000):\n try: os.stat('/tmp/%0100d' % n)\n except OSError: pass"
    record = session.run(["python3", "-c", program])
    assert record.outcome.ok
    assert {f"/tmp/{n:0100}" for n in range(30000)} <= record.footprint.missed


def test_20_more_facts_than_memory_is_meant_for_end_the_action(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that never stops producing facts is ended with a sentence, before the machine runs out of memory."""
    monkeypatch.setattr(tracer, "_MOST_FACTS", 1 << 20)
    program = "import os, itertools\nfor n in itertools.count():\n try: os.stat('/tmp/%0200d' % n)\n except OSError: pass"
    with pytest.raises(HostError, match=r"more than can be recorded.*smaller actions"):
        session.run(["python3", "-c", program])
    assert session.run("true").outcome.ok
