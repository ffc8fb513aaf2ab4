"""The probes that a sandbox must withstand, each as a test: what a hostile program tries, and what becomes of it.

The last test runs all others in a child process as an ordinary user, when they run as root.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan import HostError, NotFoundError, Record, Replace, Session, UsageError, hostfolder, runner, upkeep
from mulligan.errors import DiskFullError, MulliganError
from mulligan.history.journal import Journal
from mulligan.model.action import Action, LaunchContext
from mulligan.model.events import Connect
from mulligan.model.ids import ActionId
from mulligan.sandbox import native, tracer
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.limits import Limits
from mulligan.sandbox.native import NativeSandbox
from mulligan.sandbox.tracer import TRACER

Guests = Callable[..., dict[str, str]]
Told = Callable[[Record], str]


def digest_of(folder: Path) -> str:
    """A digest of all that lies in a folder: names, kinds, modes, times and content."""
    told = hashlib.sha256()
    for at, folders, files in sorted(os.walk(folder)):
        for name in sorted((*folders, *files)):
            path = os.path.join(at, name)
            status = os.lstat(path)
            told.update(os.fsencode(path) + f"{status.st_mode} {status.st_size} {status.st_mtime_ns}".encode())
            if stat.S_ISREG(status.st_mode):
                told.update(Path(path).read_bytes())
    return told.hexdigest()


def layer_folder(session: Session, record: Record) -> Path:
    """Where a record's changes lie on the host."""
    return LayerStore(session.home / "layers").path(record.layer_id)


# ---------------------------------------------------------------------------------------------- 1, 2: what we leave open


def test_1_the_program_that_starts_an_action_can_not_be_overwritten(session: Session) -> None:
    """No way through /proc leads to a writable handle on the tracer, which is also the guest's init."""
    before = hashlib.sha256(TRACER.read_bytes()).digest()
    record = session.run(
        "for exe in /proc/self/exe /proc/1/exe /proc/$$/exe; do echo owned 2> /dev/null > $exe; cat $exe > /dev/null; done\n"
        "printf '#!/proc/self/exe\\n' > again; chmod +x again; ./again; ls -l /proc/1/exe; true"
    )
    assert hashlib.sha256(TRACER.read_bytes()).digest() == before
    assert b"/proc/1/exe: Permission denied" in record.outcome.stderr
    assert b"mulligan-tracer" not in record.outcome.stdout


def test_2_no_descriptor_of_ours_is_open_or_can_be_a_working_folder(session: Session, out: Told) -> None:
    """A working folder by a leaked descriptor is refused, since there is none: 0, 1 and 2 are all."""
    for number in range(3, 21):
        record = session.run(["pwd"], cwd=f"/proc/self/fd/{number}")
        assert (record.exit_code, record.outcome.stdout) == (126, b""), number
    assert out(session.run(["sh", "-c", "ls /proc/$$/fd"])).split() == ["0", "1", "2"]
    assert out(session.run(["python3", "-c", "import os; print(os.listdir('/proc/self/fd'))"])).count("'") == 8  # and its own


# ---------------------------------------------------------------------------------------------- 3, 4: mount points


@pytest.mark.parametrize("name", ["dev", "proc", "sys"])
def test_3_a_base_whose_mount_points_are_symlinks_is_refused(home: Path, tmp_path: Path, name: str) -> None:
    """Nothing is mounted through a symlink of a base, and the host stays as it was."""
    root = tmp_path / "rootfs"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "sh").write_bytes(b"")
    victim = tmp_path / "victim"
    victim.mkdir()
    (root / name).symlink_to(victim)
    with pytest.raises(UsageError, match=f"its /{name} is no folder"):
        Session.create("s", base=str(root), home=home)
    assert os.listdir(victim) == []


def test_3_devices_of_a_base_are_ours(home: Path, tmp_path: Path, guests: Guests, out: Told) -> None:
    """Whatever a base has at /dev/null or /dev/console, the guest gets a /dev of ours."""
    root = tmp_path / "rootfs"
    for folder in ("bin", "dev", "proc/sys"):
        (root / folder).mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("safe")
    for name in ("dev/null", "dev/console", "proc/sys/kernel"):
        (root / name).symlink_to(victim)
    source = next(iter(guests("fsops")))
    (root / "bin" / "sh").write_bytes((Path(source) / "fsops").read_bytes())
    (root / "bin" / "sh").chmod(0o755)
    with Session.create("s", base=str(root), home=home) as session:
        record = session.run(["/bin/sh"])
    assert record.exit_code != 126, record.outcome
    assert victim.read_text() == "safe"


def test_3_a_guest_can_not_move_mount_points_away(session: Session, out: Told) -> None:
    """Neither they nor the folders above them can be renamed or removed, so that every action finds them again."""
    points = {target for _, target in session.base.binds} | {"/proc", "/dev", "/sys", "/tmp", "/workspace"}
    above = {f"/{point.split('/')[1]}" for point in points}
    program = (
        "import os, sys\nfor path in sys.argv[1:]:\n"
        "    for change in (lambda: os.rename(path, '/elsewhere'), lambda: os.rmdir(path), lambda: os.unlink(path)):\n"
        "        try: change()\n        except OSError: continue\n        print(path)\n"
    )
    moved = set(out(session.run(["python3", "-c", program, *sorted(points | above)], cwd="/")).split())
    assert moved <= {"/tmp", "/workspace", "/sys"}, "these are no mount points, and empty"
    assert session.run(["true"], cwd="/").exit_code == 0


def test_4_a_mount_point_that_is_swapped_during_the_start(session: Session, tmp_path: Path) -> None:
    """While somebody flips a mount point between a folder and a symlink, each start is refused or is what it should be."""
    victim = tmp_path / "victim"
    victim.mkdir()
    layers = LayerStore(session.home / "layers")
    sandbox, stack = NativeSandbox(session.base, layers), session._stack_at(session.head)
    over = threading.Event()

    def flip(upper: Path) -> None:
        real, link, at = upper / "real", upper / "link", upper / "proc"
        real.mkdir()
        link.symlink_to(victim)
        while not over.is_set():
            with contextlib.suppress(OSError):  # overlayfs is in the way at times
                real.rename(at)
                at.rename(real)
                link.rename(at)
                at.rename(link)

    action = Action(ActionId("a1"), argv=("sh", "-c", "stat -f -c %T /proc; touch /proc/x /dev/x"))
    for _ in range(30):
        with layers.begin() as opened:
            over.clear()
            thread = threading.Thread(target=flip, args=(opened.upper,))
            thread.start()
            try:
                told = sandbox.run(action, LaunchContext(session.base.env, "/"), stack, opened).outcome.stdout
            except MulliganError:
                told = b"proc\n"  # refused
            finally:
                over.set()
                thread.join()
            assert told == b"proc\n"
    layers.settle()
    assert os.listdir(victim) == []


# ---------------------------------------------------------------------------------------------- 5: reading and writing


def test_5_reading_the_state_never_leaves_it(session: Session, tmp_path: Path) -> None:
    """Symlinks, `..` and /proc resolve inside the state; a FIFO or a device is refused, and nothing ever blocks."""
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    session.run(
        f"ln -s {secret} absolute; ln -s ../../../../../..{secret} relative; ln -s /proc/self/root/etc/shadow proc\n"
        f"ln -s / top; mkfifo fifo; ln -s fifo to-fifo; ln -s /dev/zero zero; ln -s {tmp_path} folder; echo mine > file"
    )
    files, here = session.files, "/workspace"
    for path in ("absolute", "relative", "proc", "folder/secret", "zero", f"top{secret}", f"../../..{secret}", "nothing"):
        with pytest.raises(UsageError):
            files.read_bytes(f"{here}/{path}")
    for path in ("/proc/self/root/etc/shadow", f"/proc/{os.getpid()}/root{secret}", "/proc/1/environ", "/dev/zero"):
        with pytest.raises(UsageError):
            files.read_bytes(path)
    for path in ("fifo", "to-fifo"):
        with pytest.raises(UsageError, match="FIFO"):
            files.read_bytes(f"{here}/{path}")
    with pytest.raises(NotFoundError):
        files.list(f"{here}/folder")
    assert files.read(f"{here}/top/workspace/../workspace/file") == "mine\n"


def test_5_a_commit_never_leaves_its_folder(session: Session, tmp_path: Path) -> None:
    """Symlinks on the host's side are conflicts, symlinks of the guest are written as links, special files are left out."""
    victim, target = tmp_path / "victim", tmp_path / "target"
    victim.mkdir()
    target.mkdir()
    (victim / "file").write_text("safe")
    (target / "out").symlink_to(victim)
    (target / "name").symlink_to(victim / "file")
    session.run(
        "mkdir out; echo x > out/file; echo x > name; mkfifo fifo; python3 -c \"import socket; socket.socket(1).bind('sock')\""
    )
    report = session.commit(str(target))
    assert not report.applied
    assert set(report.conflicts) >= {"name", "out/file"}
    assert set(report.skipped) == {"fifo", "sock"}
    session.run(f"rm -r out name fifo sock; ln -s {victim} way; ln -s {victim}/file to-file")
    assert session.commit(str(target)).applied
    assert (target / "way").is_symlink()
    session.run("rm way to-file; mkdir way; echo y > way/file; echo y > to-file")
    assert session.commit(str(target)).applied
    assert (target / "way" / "file").read_text() == "y\n"
    assert {path.name: path.read_text() for path in victim.iterdir()} == {"file": "safe"}


# ---------------------------------------------------------------------------------------------- 7, 8: layers

_FORGERY = """
import os
os.makedirs("d/sub", exist_ok=True)
for name in ("a", "d/b", ".wh.a", ".wh..wh..opq", "d/.wh.b"):
    open(name, "a").close()
refused = 0
for attribute in ("opaque", "whiteout", "redirect", "metacopy", "origin", "overlay.opaque"):
    for space in ("user", "trusted"):
        for path in ("a", "d", "d/sub"):
            try:
                os.setxattr(path, f"{space}.overlay.{attribute}", b"y")
            except OSError:
                refused += space == "trusted"
for device in (0, os.makedev(1, 3)):
    try:
        os.mknod("w", 0o020600, device)
    except OSError:
        refused += 1
print(refused)
"""
_LISTING = "find /workspace -printf '%P %y %s\\n' | sort; getfattr -R -d -m - . 2> /dev/null; true"


def test_7_whiteouts_and_redirects_can_not_be_forged(session: Session, out: Told) -> None:
    """Overlay attributes, `.wh.` names and 0:0 devices of a guest are refused or plain data: nothing vanishes or moves."""
    assert out(session.run("mkdir d; echo lower > d/lower; mkdir x")).strip() == ""
    assert out(session.run(["python3", "-c", _FORGERY])).strip() == "20"
    listed = out(session.run(_LISTING))
    assert "d/lower f 6" in listed
    assert {".wh.a f 0", ".wh..wh..opq f 0", "d/.wh.b f 0", "a f 0", "d/b f 0", "d/sub d 4096"} <= set(listed.splitlines())
    session.run("touch a d/b d/sub x; echo more >> a")  # copied up again, over the forged ones
    assert out(session.run(_LISTING)).replace("a f 5", "a f 0") == listed
    assert session.files.list("/workspace/d") == [".wh.b", "b", "lower", "sub"]
    session.repair(Replace("a1", "mkdir d; echo other > d/lower; mkdir x"))
    assert session.files.list("/workspace/d") == [".wh.b", "b", "lower", "sub"]
    assert session.files.read("/workspace/d/lower") == "other\n"


def test_8_set_id_and_file_capabilities_are_worth_nothing_outside(session: Session, out: Told) -> None:
    """A set-id file of a guest belongs to no privileged user of the host, lies behind a closed folder, and is nosuid inside."""
    program = (
        "import os\nopen('s', 'w').close()\nos.chmod('s', 0o6755)\n"
        "try: os.setxattr('s', 'security.capability', bytes.fromhex('0100000202000000000000000000000000000000'))\n"
        "except OSError as error: print(error.errno)"
    )
    record = session.run(["python3", "-c", program])
    assert out(record).strip() == str(errno.EPERM)
    status = (layer_folder(session, record) / "workspace" / "s").stat()
    assert status.st_uid != 0
    assert status.st_gid != 0
    assert stat.S_IMODE((session.home / "layers").stat().st_mode) == 0o700
    mounts = out(session.run(["cat", "/proc/self/mountinfo"])).splitlines()
    assert [line for line in mounts if "nosuid" not in line.split()[5].split(",")] == []


def test_7_no_place_carries_anything_on_that_is_not_recorded(session: Session, out: Told) -> None:
    """What a guest leaves below /sys or where the shell's last exec looks is gone with its action."""
    session.run("echo 1 > /sys/x; rmdir /sys; mkdir -p /.mulligan/d; echo kept > file; chmod 700 /sys; chmod 000 /.mulligan/d")
    session.run(
        "printf '#!/bin/sh\\necho used > /workspace/used\\n' > /.mulligan/handoff; chmod +x /.mulligan/handoff; cat file"
    )
    session.run(
        ["sh", "-c", "mkdir -p /.mulligan; echo '#!/bin/sh' > /.mulligan/handoff; chmod 755 /.mulligan/handoff; : > more"]
    )
    assert out(session.run("ls -A /sys /.mulligan; ls")).split() == ["/sys:", "file", "more"]
    assert session.files.list("/sys") == []


# ---------------------------------------------------------------------------------------------- 9, 10: time travel

_HOLDER = """
import mmap, os, sys
f = open("held", "r+b")
m = mmap.mmap(f.fileno(), 0)
os.mkdir("cwd"); os.chdir("cwd")
if os.fork() == 0:
    os.setsid()
    print("ready", flush=True)
    n = 0
    while True:
        n += 1
        m[0:8] = b"%08d" % (n % 10**8)
        f.seek(16); f.write(b"%d" % n); f.flush()
        open("more", "w").close()
os.read(0, 1)
"""


def test_9_nothing_that_was_held_changes_a_sealed_layer(session: Session, out: Told) -> None:
    """A process that holds a file, a mapping and a working folder is dead before its layer is sealed."""
    first = session.run("head -c 4096 /dev/zero > held")
    second = session.run(["python3", "-c", _HOLDER], stdin=b"x")
    assert second.outcome.killed_at_end or second.outcome.ok
    before = digest_of(layer_folder(session, first)), digest_of(layer_folder(session, second))
    session.run("echo later > held; rm -r cwd")
    session.rollback(first.id)
    assert out(session.run("wc -c < held; ls")).split() == ["4096", "held"]
    assert (digest_of(layer_folder(session, first)), digest_of(layer_folder(session, second))) == before


def test_10_a_daemon_of_an_action_that_was_rolled_back_writes_nothing_more(session: Session, out: Told) -> None:
    """It was killed at the end of its action, so nothing reappears."""
    first = session.run("echo kept > file")
    daemon = session.run("(setsid sh -c 'while :; do echo x >> file; echo y > new; done' &); until test -e new; do :; done")
    assert "sh" in daemon.outcome.killed_at_end
    size = session.files.stat("/workspace/file").size
    session.run("true")
    assert session.files.stat("/workspace/file").size == size
    session.rollback(first.id)
    assert out(session.run("cat *")) == "kept\n"


# ---------------------------------------------------------------------------------------------- 11, 12: excess


def run_limited(session: Session, limits: Limits, command: str, timeout_s: float) -> tuple[int | None, str | None, bytes]:
    """Run shell text on the session's base with limits of its own; how it ended, and its stderr."""
    layers = LayerStore(session.home / "layers")
    sandbox = NativeSandbox(session.base, layers, limits)
    with layers.begin() as opened:
        action = Action(ActionId("a1"), shell=command, timeout_s=timeout_s)
        trace = sandbox.run(action, LaunchContext(session.base.env, "/workspace"), session._stack_at(session.head), opened)
    layers.settle()
    return trace.outcome.exit_code, trace.outcome.signal, trace.outcome.stderr


def test_11_a_fork_bomb_meets_its_limit(session: Session, out: Told) -> None:
    """The process limit of the action is hit; the deadline ends all of it, and the next action runs as ever."""
    code, ended, stderr = run_limited(
        session, Limits(nproc=100), "bomb() { bomb | bomb & wait; }; bomb; while :; do bomb; done", 1.5
    )
    assert code is None or code != 0
    assert b"Resource temporarily unavailable" in stderr or ended == "SIGKILL"
    assert out(session.run("echo alive")) == "alive\n"
    assert dict(Limits().rlimits())["nproc"] != "unlimited"


def test_11_the_process_limit_is_one_action_s_own(session: Session) -> None:
    """A limit lower than what its user runs already still lets an action start some: it counts in its own namespace."""
    assert run_limited(session, Limits(nproc=10), "sleep 0 & sleep 0 & wait; echo x | cat", 20)[0] == 0


def test_11_a_flood_of_output_is_cut_and_never_held_up(session: Session) -> None:
    """`yes` runs until its deadline, the runtime keeps the first bytes only, and says so."""
    record = session.run(["yes"], timeout=1)
    assert (record.outcome.timed_out, record.outcome.signal) == (True, "SIGKILL")
    assert (len(record.outcome.stdout), record.outcome.stdout_truncated) == (10 << 20, True)


def test_11_thousands_of_threads(session: Session, guests: Guests) -> None:
    """More threads than any program needs are traced like one."""
    program = (
        "import threading\ngo = threading.Event()\n"
        "all = [threading.Thread(target=go.wait, daemon=True) for _ in range(1500)]\n"
        "threading.stack_size(65536)\nfor one in all: one.start()\ngo.set()\nfor one in all: one.join()\nopen('done', 'w').close()"
    )
    record = session.run(["python3", "-c", program])
    assert record.outcome.ok, record.outcome
    assert record.footprint.complete
    assert "/workspace/done" in record.footprint.wrote


@pytest.mark.parametrize(
    "command",
    [
        "trap '' TERM INT HUP QUIT; while :; do sleep 60; done",
        "(setsid sh -c 'trap \"\" TERM; (sleep 60 &); sleep 60' &); sleep 60",
        "python3 -c \"import os\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  while True: pass\nos.wait(); os.pause() if hasattr(os, 'pause') else __import__('signal').pause()\"",
        "unshare -p -f sleep 60; sleep 60",
        "kill -STOP $$",
        "sleep 60 & kill -STOP $!; sleep 60",
        "mkfifo f; cat f",
    ],
)
def test_12_a_deadline_holds_against_everything(session: Session, command: str) -> None:
    """Whatever ignores signals, detaches, stops itself or blocks: the action is over at its deadline, and all of it is dead."""
    started = time.monotonic()
    record = session.run(command, timeout=0.4)
    assert record.outcome.timed_out
    assert time.monotonic() - started < 8


def test_12_a_grandchild_that_holds_stdout_holds_nothing_up(session: Session) -> None:
    """The action ends with its first process, not with whoever still has its streams."""
    started = time.monotonic()
    record = session.run("(sleep 60 &) ; (setsid sleep 60 &) ; echo done")
    assert record.outcome.stdout == b"done\n"
    assert time.monotonic() - started < 8


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


# ---------------------------------------------------------------------------------------------- 21, 22, 23: what is ours


def test_21_programs_that_the_guest_plants_are_never_ours(session: Session) -> None:
    """A PATH full of the guest's own sh, bash, env, timeout, tar and git changes nothing in what we do."""
    names = "sh bash env timeout tar git cat cp rm mv ln python3 mulligan-tracer unshare newuidmap newgidmap"
    session.run(
        f"mkdir bin; for n in {names}; do printf '#!/bin/sh\\necho $0 >> /workspace/used\\nexit 9\\n' > bin/$n; chmod +x bin/$n; done\n"
        "export PATH=/workspace/bin:$PATH SHELL=/workspace/bin/sh ENV=/workspace/bin/sh BASH_ENV= IFS=/"
    )
    assert session.run("echo plain").outcome.stdout == b"plain\n"
    assert session.run("while :; do :; done", timeout=0.3).outcome.timed_out
    session.repair(Replace("a2", "echo other > out"))
    assert session.files.read("/workspace/out") == "other\n"
    assert not session.files.exists("/workspace/used")
    assert session.run(["cat", "x"]).exit_code == 9, "the guest itself does get its own"


def test_22_the_environment_and_the_secrets_of_the_host_stay_there(
    home: Path, monkeypatch: pytest.MonkeyPatch, out: Told
) -> None:
    """No variable that was not asked for is in an action, a record, a layer or a log; /proc/1/environ is closed."""
    secret = f"secret-{os.urandom(8).hex()}"
    for name in ("AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "GITHUB_TOKEN", "LD_PRELOAD_NOT"):
        monkeypatch.setenv(name, secret)
    with Session.create("s", home=home) as session:
        told = out(session.run("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; ls -A ~/.ssh ~/.aws 2>/dev/null; true"))
        assert secret not in told
        assert session.run(["cat", "/proc/1/environ"]).exit_code == 1
        session.run("env > everything; echo $AWS_SECRET_ACCESS_KEY > key")
        assert session.files.read("/workspace/key") == "\n"
        record = session.log()[0]
        assert secret not in repr(record)
    found = [path for path in home.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert found == []


def test_23_names_and_output_are_bytes_and_views_escape_them(home: Path) -> None:
    """Newlines, terminal escapes, invalid UTF-8, names of 255 bytes and paths near 4096 round-trip; no view prints them raw."""
    evil = "n\n\x1b[31m\udcff\u202e"
    program = (
        "import os, sys\n"
        "names = [os.fsencode(sys.argv[1]), b'x' * 255, b'-rf', b'..a', b' ']\n"
        "for n in names: open(n, 'wb').write(n)\n"
        "os.mkdir(b'deep'); os.chdir(b'deep')\n"
        "size = len('/workspace/deep')\n"
        "while size + 251 < 4000: os.mkdir(b'd' * 250); os.chdir(b'd' * 250); size += 251\n"
        "last = b'e' * (4095 - size - 1 - 60)\nopen(last[:255], 'w').close()\n"
        "sys.stdout.buffer.write(names[0])"
    )
    with Session.create("s", home=home) as session:
        record = session.run(["python3", "-c", program, evil])
        assert record.outcome.stdout == os.fsencode(evil)
        assert {evil, "x" * 255, "-rf", "..a", " ", "deep"} == set(session.files.list("/workspace"))
        assert session.files.read_bytes(f"/workspace/{evil}") == os.fsencode(evil)
        longest = max(record.footprint.wrote, key=len)
        assert len(longest) > 3900
        assert session.files.exists(longest)
        assert f"/workspace/{evil}" in record.footprint.wrote
        again = session.run(["cat", evil])
        assert again.outcome.stdout == os.fsencode(evil)
    for arguments in (["log"], ["show", "a1"], ["diff", "a1"], ["ls", "/workspace"], ["why", "a2"], ["graph"]):
        command = [sys.executable, "-m", "mulligan", *arguments, *([] if "-s" in arguments else ["-s", "s"])]
        done = subprocess.run(command, env={**os.environ, "MULLIGAN_HOME": str(home)}, capture_output=True, check=False)
        assert done.returncode == 0, (arguments, done.stderr)
        printed = done.stdout.decode("utf-8")
        assert "\x1b" not in printed, arguments
        assert "\u202e" not in printed, arguments


# ---------------------------------------------------------------------------------------------- 24: death at any step

STEPS = ("mkdir", "rename", "fsync", "unlink", "rmdir", "open", "write", "chmod", "utime", "symlink", "link", "pidfd_open")
JOURNAL = ("append", "publish", "move", "pin")


class Countdown:
    """Kills this process at the given one of the calls that change something on disk or start something; else counts."""

    def __init__(self, deadly: int) -> None:
        self.deadly = deadly
        self.count = 0
        for name in STEPS:
            self.watch(os, name)
        for name in JOURNAL:
            self.watch(Journal, name)

    def watch(self, holder: object, name: str) -> None:
        """Count the calls of one function, before each and after each."""
        real = getattr(holder, name)

        def watched(*args: object, **kwargs: object) -> object:
            self.step()
            result = real(*args, **kwargs)
            if holder is Journal:
                self.step()
            return result

        setattr(holder, name, watched)

    def step(self) -> None:
        """One more."""
        self.count += 1
        if self.count == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)


def steps_of(work: Callable[[], object], deadly: int = 0) -> int | None:
    """Do the work in a child process that dies at a step; None if it died so, else how many steps there were."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            countdown = Countdown(deadly)
            work()
            status, count = 0, countdown.count
            countdown.deadly = 0
            os.write(writing, str(count).encode())
        except BaseException:  # noqa: BLE001 - told by the status; nothing of pytest may run in the child
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        said = told.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert os.waitstatus_to_exitcode(status) == 0
    return int(said)


def state_of(session: Session) -> tuple[tuple[str, ...], dict[str, str]]:
    """The commands of the history and the files that they left."""
    names = session.files.list("/workspace")
    return tuple(r.action.text for r in session.log()), {name: session.files.read(f"/workspace/{name}") for name in names}


OPERATIONS: dict[str, Callable[[Session], object]] = {
    "run": lambda session: session.run("echo more >> b; rm a; mkdir -p deep/er; echo x > new; rm -r deep"),
    "rollback": lambda session: session.rollback("a2"),
    "repair": lambda session: session.repair(Replace("a1", "echo other > a")),
}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_24_killed_at_any_step_the_session_is_as_before_or_as_after(home: Path, name: str) -> None:
    """Whatever step a run, a rollback or a repair dies at: one of the two states stands, and what it left is collected."""
    with Session.create("s", home=home) as session:
        for command in ("echo one > a", "cat a > b", "echo aside > c", "cat b > d"):
            session.run(command)
        before = state_of(session)
        with session.branch("done") as done:
            OPERATIONS[name](done)
            after = state_of(done)
        session.branch("counted").close()
    held = set(os.listdir(home / "layers"))

    def work(branch: str) -> Callable[[], object]:
        def in_child() -> None:
            with Session.open(branch, home=home) as session:
                OPERATIONS[name](session)

        return in_child

    steps = steps_of(work("counted"))
    assert steps is not None
    outcomes = set()
    for deadly in sorted({*range(1, steps + 1, max(1, steps // 12)), steps - 1, steps}):
        with Session.open("s", home=home) as session:
            session.branch(f"k{deadly}").close()
        survived = steps_of(work(f"k{deadly}"), deadly)
        with Session.open(f"k{deadly}", home=home) as session:
            now = state_of(session)
            assert now in (before, after), (deadly, survived)
            outcomes.add(now == after)
            if deadly % 3 == 0:
                session.run("echo still works > e")
    assert outcomes == {True, False}, "some deaths come before the turning point, some after"
    for session_row in upkeep.sessions(home):
        if session_row.name != "s":
            upkeep.remove(session_row.name, home)
    upkeep.gc(home)
    assert {entry for entry in os.listdir(home / "layers") if not entry.startswith("base-")} <= held


def test_24_killed_at_any_step_of_a_commit_every_file_is_old_or_new(home: Path, tmp_path: Path) -> None:
    """A commit that dies leaves no torn file, and the next commit completes it."""
    old = {f"f{n}": f"old {n}\n" for n in range(4)}
    new = {**{f"f{n}": f"new {n}\n" for n in range(3)}, "g": "made\n"}
    source = tmp_path / "source"
    source.mkdir()
    for file, text in old.items():
        (source / file).write_text(text)

    def started(number: int) -> Path:
        folder = tmp_path / f"target{number}"
        folder.mkdir()
        for file, text in old.items():
            (folder / file).write_text(text)
        with Session.create(f"s{number}", home=home, imports={str(folder): "/workspace"}) as session:
            session.run("for n in 0 1 2; do echo new $n > f$n; done; rm f3; echo made > g")
        return folder

    def work(number: int) -> Callable[[], object]:
        def in_child() -> None:
            with Session.open(f"s{number}", home=home) as session:
                assert session.commit(str(tmp_path / f"target{number}")).applied

        return in_child

    started(0)
    steps = steps_of(work(0))
    assert steps is not None
    for deadly in sorted({*range(1, steps + 1, max(1, steps // 12)), steps - 1, steps}):
        folder = started(deadly)
        steps_of(work(deadly), deadly)
        for path in folder.iterdir():
            if not path.name.startswith(".mulligan-"):  # written beside its place, not yet in it
                assert path.read_text() in (old.get(path.name), new.get(path.name)), (deadly, path)
        with Session.open(f"s{deadly}", home=home) as session:
            assert session.commit(str(folder)).applied, deadly
        there = {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith(".mulligan-")}
        assert there == new, deadly


# ---------------------------------------------------------------------------------------------- 25 to 27: the long run


def test_25_a_commit_meets_concurrent_edits_and_a_full_disk(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who edited meanwhile is told and not overwritten; a disk that fills midway leaves each file old or new, nothing else."""
    target = tmp_path / "target"
    target.mkdir()
    for name in ("a", "b", "c"):
        (target / name).write_text(f"old {name}\n")
    with Session.create("s", home=home, imports={str(target): "/workspace"}) as session:
        session.run("for n in a b c; do echo new $n > $n; done")
        (target / "b").write_text("edited\n")
        report = session.commit(str(target))
        assert (report.applied, report.conflicts) == (False, ("b",))
        assert [path.read_text() for path in sorted(target.iterdir())] == ["old a\n", "edited\n", "old c\n"]
        (target / "b").write_text("old b\n")
        real, calls = hostfolder._write_synced, []

        def full(*args: object) -> None:
            calls.append(args)
            if len(calls) == 2:
                (target / str(args[1])).write_text("torn")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(hostfolder, "_write_synced", full)
        with pytest.raises(DiskFullError):
            session.commit(str(target))
        assert {path.name: path.read_text() for path in target.iterdir()} == {"a": "new a\n", "b": "old b\n", "c": "old c\n"}
        monkeypatch.setattr(hostfolder, "_write_synced", real)
        assert session.commit(str(target)).applied
        assert [path.read_text() for path in sorted(target.iterdir())] == ["new a\n", "new b\n", "new c\n"]


def test_26_many_sessions_come_and_go_and_leave_nothing(home: Path) -> None:
    """Sessions made, used and removed in a loop: no descriptor, mount, process, layer or lock is left."""
    Session.create("first", home=home).close()
    open_before = len(os.listdir("/proc/self/fd"))
    for number in range(40):
        with Session.create(f"s{number}", home=home) as session:
            session.run("echo x > x")
        upkeep.remove(f"s{number}", home)
    upkeep.gc(home)
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert [name for name in os.listdir(home / "layers") if not name.startswith("base-")] == []
    assert {name for name in os.listdir(home / "locks") if not name.startswith(".")} <= {"first"}


def test_26_processes_that_share_a_store_never_see_each_other_s_state(home: Path) -> None:
    """Several processes, each with a session of its own and one in common: every action of everybody is there, once."""
    Session.create("common", home=home).close()
    program = (
        "import sys\nfrom pathlib import Path\nfrom mulligan import Session\nhome, me = Path(sys.argv[1]), sys.argv[2]\n"
        "with Session.create(me, home=home) as own, Session.open('common', home=home) as common:\n"
        "    for n in range(5):\n"
        "        own.run(f'echo {me} >> mine; cat * | sort -u > all')\n"
        "        common.run(f'echo {me} {n} >> log')\n"
        "    assert own.files.list('/workspace') == ['all', 'mine']\n"
        "    assert own.files.read('/workspace/all').split() == [me]\n"
    )
    racers = [subprocess.Popen([sys.executable, "-c", program, str(home), name], stderr=subprocess.PIPE) for name in "abc"]
    for racer in racers:
        _, stderr = racer.communicate(timeout=120)
        assert racer.returncode == 0, stderr.decode()
    with Session.open("common", home=home) as common:
        lines = common.files.read("/workspace/log").splitlines()
        assert sorted(lines) == sorted(f"{name} {n}" for name in "abc" for n in range(5))
        assert len(common.log()) == 15


def test_27_the_130th_action_is_as_the_first_and_the_last_possible_one_is_said(
    session: Session, monkeypatch: pytest.MonkeyPatch, out: Told
) -> None:
    """A long history changes nothing in what an action sees; past what the kernel can stack, one sentence says what to do."""
    first = session.run("echo 0 > n; ls; cat n")
    for number in range(1, 130):
        session.run(f"echo {number} > n{number}; echo {number} > n")
    last = session.run("cat n; ls | wc -l; find . -name 'n*' -newer n; cat n1 n64 n128")
    assert out(last) == "129\n130\n1\n64\n128\n"
    assert first.outcome.stdout == b"n\n0\n"
    assert last.footprint.complete
    monkeypatch.setattr(native, "MAX_LOWERS", len(session._stack_at(session.head).lower_dirs()))
    session.run("echo one more > m")
    with pytest.raises(HostError, match=r"layers.*commit the result"):
        session.run("echo too many")
    assert session.files.read("/workspace/m") == "one more\n"
    session.rollback("a20")
    assert session.run("cat n").outcome.stdout == b"19\n"


# ---------------------------------------------------------------------------------------------- as somebody else


@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="all of the above ran as an ordinary user")
def test_the_probes_fail_for_an_ordinary_user_too(passes_for_an_ordinary_user: Callable[[str], None]) -> None:
    """All of the above, in a process of an ordinary user."""
    passes_for_an_ordinary_user(__file__)
