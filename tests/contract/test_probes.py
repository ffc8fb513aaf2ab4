"""The probes of a sandbox (rows 1 to 12), each as a test: what a hostile program tries, and what becomes of it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan import NotFoundError, Record, Replace, Session, UsageError
from mulligan.errors import MulliganError
from mulligan.model.action import Action, LaunchContext
from mulligan.model.ids import ActionId
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
_LISTING = (
    "find /workspace -type d -printf '%P %y\\n' -o -printf '%P %y %s\\n' | sort; getfattr -R -d -m - . 2> /dev/null; true"
)


def test_7_whiteouts_and_redirects_can_not_be_forged(session: Session, out: Told) -> None:
    """Overlay attributes, `.wh.` names and 0:0 devices of a guest are refused or plain data: nothing vanishes or moves."""
    assert out(session.run("mkdir d; echo lower > d/lower; mkdir x")).strip() == ""
    assert out(session.run(["python3", "-c", _FORGERY])).strip() == "20"
    listed = out(session.run(_LISTING))
    assert "d/lower f 6" in listed
    assert {".wh.a f 0", ".wh..wh..opq f 0", "d/.wh.b f 0", "a f 0", "d/b f 0", "d/sub d"} <= set(listed.splitlines())
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
