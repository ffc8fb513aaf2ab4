"""What a guest may leave behind, however odd, is state like any other: sealed, found again, repaired, committed, removed."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan import Patch, Record, Replace, Session, UsageError, upkeep
from mulligan.sandbox.layer import LayerStore
from mulligan.sandbox.trees import remove_tree

Told = Callable[[Record], str]
AS_ROOT = os.geteuid() == 0


def layers_of(home: Path) -> set[str]:
    """What lies in the folder of layers, but for the shared skeletons."""
    return {name for name in os.listdir(home / "layers") if not name.startswith("base-")}


def everything_goes(session: Session) -> None:
    """A session that is removed leaves nothing in the folder of layers, whatever its guests made."""
    home = session.home
    session.close()
    upkeep.remove("s", home)
    upkeep.gc(home)
    assert layers_of(home) == set()


# ---------------------------------------------------------------------------------------------- shapes of trees

_DEEP = """
import os, sys
depth, closed = int(sys.argv[1]), sys.argv[2] == "closed"
for n in range(depth):
    os.mkdir("d" * 8)
    os.chdir("d" * 8)
open("bottom", "w").close()
for n in range(depth):
    os.chdir("..")
    if closed:
        os.chmod("d" * 8, 0)
"""


@pytest.mark.parametrize(("depth", "how"), [(2000, "open"), (600, "closed")])
def test_a_tree_deeper_than_a_path_can_be_long(session: Session, out: Told, depth: int, how: str) -> None:
    """Folders a few thousand levels down, open or closed to their owner, are sealed, made again by a repair, and removed."""
    session.run("echo one > first")
    record = session.run(["python3", "-c", _DEEP, str(depth), how])
    assert record.outcome.ok, record.outcome
    assert sum(path.startswith("/workspace/dddddddd") for path in record.footprint.wrote) == depth + 1
    assert max(map(len, record.footprint.wrote)) == len("/workspace") + 9 * depth + len("/bottom")
    assert session.run("rm -rf first; ls").outcome.stdout == b"dddddddd\n"
    session.rollback("a2")
    assert out(session.run("stat -c %a dddddddd")) == ("0\n" if how == "closed" else "755\n")
    everything_goes(session)


def test_a_folder_with_many_names(session: Session, out: Told) -> None:
    """Ten thousand files in one folder are one action's ordinary work."""
    record = session.run(
        ["python3", "-c", "import os\nos.mkdir('many')\nfor n in range(10000): open(f'many/{n}', 'w').close()"]
    )
    assert len(record.footprint.wrote) >= 10001
    assert len(session.files.list("/workspace/many")) == 10000
    assert out(session.run("ls many | wc -l; rm -r many; ls")) == "10000\n"
    everything_goes(session)


def test_a_sparse_file_stays_sparse(session: Session, out: Told) -> None:
    """Ten gigabytes of nothing take no room: not when they are sealed, copied up, or made again by a repair."""
    session.run("echo one > first")
    session.run("truncate -s 10G big; cat first > second")
    session.run("printf x | dd of=big bs=1 seek=5G conv=notrunc status=none; chmod 600 big")
    session.repair(Replace("a1", "echo other > first"))
    assert session.files.stat("/workspace/big").size == 10 << 30
    assert out(session.run("du -k big | cut -f1; stat -c %s big")).split()[1] == str(10 << 30)
    layers = LayerStore(session.home / "layers")
    assert sum(layers.disk_bytes(name) for name in layers_of(session.home)) < 20 << 20


# ---------------------------------------------------------------------------------------------- places and modes


def test_a_working_folder_that_is_removed_is_not_handed_on(session: Session) -> None:
    """The next action starts in what is left above it; the session is never stuck in a place that is gone."""
    assert session.run("mkdir -p a/b; cd a/b; rmdir ../b").handoff.cwd == "/workspace/a"
    assert session.run("pwd").outcome.stdout == b"/workspace/a\n"
    session.run("mkdir -p c/d; cd c/d")
    assert session.run(["rm", "-r", "/workspace/a"]).handoff.cwd == "/workspace"
    session.run("mkdir 'x (deleted)'; cd 'x (deleted)'")
    assert session.run("pwd").outcome.stdout == b"/workspace/x (deleted)\n"


def test_what_its_owner_may_not_read_is_repaired_and_collected(session: Session, out: Told) -> None:
    """Mode 000 on everything: seal, repair, commit, patch and gc work all the same."""
    session.run("echo one > first; mkdir -p d/e; echo secret > d/e/f; chmod 000 d/e/f d/e d; chmod 000 first; chmod 644 first")
    session.run("cp first copy; mkdir -p k/l; cp first k/l/m; chmod 000 copy k/l/m k/l k")
    session.run("chmod 700 d; chmod 700 d/e; touch d/e/g; chmod 000 d/e d")
    session.repair(Replace("a1", "echo other > first; mkdir -p d/e; echo new > d/e/f; chmod 000 d/e/f d/e d"))
    session.repair(Patch("/workspace/first", b"patched\n"))
    told = out(session.run("chmod 700 d k; chmod 700 d/e k/l; chmod 600 d/e/f k/l/m copy; cat d/e/f k/l/m copy; ls d/e"))
    assert told == "new\npatched\npatched\nf\ng\n"
    session.rollback("a3")
    freed = upkeep.gc(session.home)
    assert freed.layers > 0
    everything_goes(session)


def test_the_disk_space_of_closed_folders_is_told(session: Session) -> None:
    """A collection counts what lies in folders that are closed to their owner, too."""
    session.run("true")
    session.run("mkdir d; head -c 3000000 /dev/zero | tr '\\0' x > d/f; chmod 000 d/f d")
    session.rollback("a1")
    assert upkeep.gc(session.home, dry_run=True).bytes > 3_000_000
    assert upkeep.gc(session.home).bytes > 3_000_000


def test_two_may_remove_the_same_at_once(tmp_path: Path) -> None:
    """A collection and the removal of what a failed action left get into each other's way, and neither fails."""
    for number in range(150):
        (tmp_path / "gone" / f"d{number}" / "e" / "f").mkdir(parents=True)
        (tmp_path / "gone" / f"d{number}" / "file").touch()
    failures: list[BaseException] = []

    def remove() -> None:
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            for name in ("gone", ".pull-gone", "gone", ".pull-gone"):
                remove_tree(folder, name)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)
        finally:
            os.close(folder)

    removers = [threading.Thread(target=remove) for _ in range(3)]
    for remover in removers:
        remover.start()
    for remover in removers:
        remover.join()
    assert failures == []
    assert os.listdir(tmp_path) == []


def test_attributes_and_special_files_are_state(session: Session, out: Told) -> None:
    """user.* attributes, whiteout-like names, FIFOs and sockets are kept from action to action and through a repair."""
    session.run("echo one > first")
    program = (
        "import os, socket\nopen('x', 'w').close(); os.setxattr('x', 'user.note', b'\\xff\\0z')\n"
        "os.mkdir('.wh..wh..opq'); open('.wh.first', 'w').close(); os.mkfifo('fifo', 0o600)\n"
        "socket.socket(socket.AF_UNIX).bind('sock'); os.symlink('loop', 'loop'); os.symlink(b'\\xff' * 3000, 'long')\n"
        "open('out', 'w').write(open('first').read())"
    )
    assert session.run(["python3", "-c", program]).outcome.ok
    session.run("chmod 640 x fifo sock; echo late > late")
    session.repair(Replace("a1", "echo other > first"))
    told = out(
        session.run("stat -c '%n %F %a' .wh* [a-z]* | sort; python3 -c \"import os; print(os.getxattr('x', 'user.note'))\"")
    )
    assert told.splitlines() == [
        ".wh..wh..opq directory 755",
        ".wh.first regular empty file 644",
        "fifo fifo 640",
        "first regular file 644",
        "late regular file 644",
        "long symbolic link 777",
        "loop symbolic link 777",
        "out regular file 644",
        "sock socket 640",
        "x regular empty file 640",
        "b'\\xff\\x00z'",
    ]
    assert session.files.read("/workspace/out") == "other\n"
    everything_goes(session)


def test_loops_of_symlinks_end(session: Session) -> None:
    """Chains and loops end with ELOOP for the guest and with a sentence for whoever reads from outside."""
    session.run("ln -s b a; ln -s a b; ln -s . here; for n in $(seq 50); do ln -s l$((n - 1)) l$n; done; echo x > l0")
    for path in ("a", "b/c", "l41", "l50", "/".join(["here"] * 41)):
        with pytest.raises(UsageError, match="symbolic links"):
            session.files.read_bytes(f"/workspace/{path}")
    assert session.files.read(f"/workspace/{'/'.join(['here'] * 30)}/l9") == "x\n"
    record = session.run("cat a; cat l50; cat l9; find -L . -maxdepth 3 > /dev/null")
    assert record.outcome.stdout == b"x\n"
    assert record.footprint.complete


# ---------------------------------------------------------------------------------------------- sizes and bytes


def test_a_hundred_megabytes_of_output(session: Session) -> None:
    """What is over the cap is drained and dropped: the command is not held up, and what is kept is exact."""
    record = session.run(["sh", "-c", "head -c 100000000 /dev/zero; echo done >&2"])
    assert record.outcome.ok
    assert record.outcome.stdout_truncated
    assert (len(record.outcome.stdout), record.outcome.stderr) == (10 << 20, b"done\n")


def test_an_environment_and_arguments_of_a_megabyte(session: Session, out: Told) -> None:
    """Long arguments and variables pass, are handed on and recorded; what the kernel refuses is said on stderr, with 126."""
    chunk = "y" * 100_000
    assert (
        out(session.run(["sh", "-c", 'echo "$#"; for last; do :; done; echo ${#last}', "sh", *[chunk] * 10])) == "10\n100000\n"
    )
    big = {f"BIG{n}": chunk for n in range(10)}
    assert out(session.run("export KEPT=$BIG0$BIG1; echo ${#BIG9}", env=big | {"BIG1": ""})) == "100000\n"
    assert out(session.run("echo ${#KEPT} ${#BIG9}")) == "100000 0\n"
    too_long = session.run(["true", "z" * 200_000])
    assert (too_long.exit_code, too_long.outcome.stderr) == (126, b"mulligan: true: Argument list too long\n")
    assert out(session.run("echo fine")) == "fine\n"


def test_variables_that_are_no_text_are_handed_on_as_they_are(session: Session, out: Told) -> None:
    """Invalid UTF-8, newlines and empty values pass from action to action."""
    session.run("export ODD=$'\\xff\\xfe\\n\\x1b[31m' EMPTY=")
    assert session.run(["env"]).outcome.stdout.count(b"ODD=\xff\xfe\n\x1b[31m\n") == 1
    assert out(session.run('echo "${EMPTY-unset}"')) == "\n"
    assert session.run('printf %s "$ARG"', env={"ARG": "\udc80\udcff"}).outcome.stdout == b"\x80\xff"


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_no_program_or_path_can_hold_is_refused(session: Session, tmp_path: Path, text: str) -> None:
    """A NUL, or half a character that stands for no bytes: one sentence wherever it is given, and nothing runs."""
    attempts: list[Callable[[], object]] = [
        lambda: session.run(f"echo {text}"),
        lambda: session.run(["echo", text]),
        lambda: session.run("true", env={"A": text}),
        lambda: session.run("true", cwd=f"/{text}"),
        lambda: session.files.read(f"/{text}"),
        lambda: session.commit(f"{tmp_path}/{text}"),
        lambda: Session.create("t", home=session.home, imports={f"{tmp_path}/{text}": "/workspace"}),
        lambda: Session.create("t", home=session.home, env={"A": text}).run("true"),
    ]
    for attempt in attempts:
        with pytest.raises(UsageError):
            attempt()
    assert session.log() == []


# ---------------------------------------------------------------------------------------------- from the host


def test_an_import_takes_what_is_there_and_follows_nothing(home: Path, tmp_path: Path, out: Told) -> None:
    """FIFOs come along, sockets are left out, links are links, odd names are names; overlay attributes are not believed."""
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    source = tmp_path / "source"
    source.mkdir()
    names = [b"\xff\n\x1b[31m", b".wh.x", b"x" * 255, b"-rf", b".wh..wh..opq"]
    for name in names:
        (source / os.fsdecode(name)).write_bytes(name)
    os.mkfifo(source / "fifo")
    (source / "link").symlink_to(secret)
    (source / "folder").symlink_to(tmp_path)
    (source / "loop").symlink_to("loop")
    (source / "set-id").write_text("")
    (source / "set-id").chmod(0o6755)
    (source / "dir").mkdir()
    (source / "dir" / "inner").write_text("inner")
    os.link(source / "dir" / "inner", source / "other-name")
    for attribute in ("user.overlay.opaque", "user.overlay.whiteout", "user.note"):
        os.setxattr(source / "dir", attribute, b"y")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "sock"))
        with Session.create("s", home=home, imports={str(source): "/workspace"}) as session:
            listed = session.files.list("/workspace")
            assert set(map(os.fsencode, listed)) == {
                *names, b"fifo", b"link", b"folder", b"loop", b"set-id", b"dir", b"other-name"
            }  # fmt: skip
            with pytest.raises(UsageError):
                session.files.read_bytes("/workspace/link")
            program = "import os; print(sorted(os.listxattr('dir')), os.listdir('dir'), os.stat('dir/inner').st_nlink)"
            assert out(session.run(["python3", "-c", program])) == "['user.note'] ['inner'] 2\n"
            assert out(session.run("cat dir/inner; test -e link || echo dangling")) == "innerdangling\n"
    assert secret.read_text() == "the host's"


def test_an_import_that_can_not_be_whole_is_refused(home: Path, tmp_path: Path) -> None:
    """An unreadable file or folder is named, and neither a session nor a layer is left."""
    if AS_ROOT:
        pytest.skip("root may read everything")
    source = tmp_path / "source"
    (source / "sub" / "closed").mkdir(parents=True)
    (source / "sub" / "closed").chmod(0)
    with pytest.raises(UsageError, match="sub/closed"):
        Session.create("s", home=home, imports={str(source): "/workspace"})
    (source / "sub" / "closed").chmod(0o700)
    (source / "sub" / "file\n").write_text("x")
    (source / "sub" / "file\n").chmod(0)
    with pytest.raises(UsageError, match="sub/file"):
        Session.create("s", home=home, imports={str(source): "/workspace"})
    upkeep.gc(home)
    assert layers_of(home) == set()
    assert upkeep.sessions(home) == []


@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "/etc/passwd/x",
        "/.mulligan",
        "/bin/x",
        "/w\0",
        "/w\ud800",
        "/",
        "/proc/x",
        "/dev",
        "/sys/y",
        "/usr/local",
        "relative",
        "/workspace/../../etc/../proc",
    ],
)
def test_an_import_to_where_no_state_is_is_refused(home: Path, tmp_path: Path, target: str) -> None:
    """The root, files, the kernel's folders, ours and the host's read-only ones are no place to import to."""
    with pytest.raises(UsageError):
        Session.create("s", home=home, imports={str(tmp_path): target})
    assert upkeep.sessions(home) == []


def test_a_commit_puts_odd_names_and_links_where_they_belong(session: Session, tmp_path: Path) -> None:
    """Names of any bytes, absolute and dangling links, set-id bits and closed files: written into the folder, and only there."""
    target = tmp_path / "target"
    target.mkdir()
    program = (
        "import os\nfor n in (b'\\xff\\n', b'-rf', b'x' * 255): open(n, 'wb').write(n)\n"
        "os.symlink('/etc/shadow', 'absolute'); os.symlink('../../..', 'up'); os.mkdir('closed')\n"
        "open('closed/f', 'w').write('f'); open('set-id', 'w').close(); os.chmod('set-id', 0o6755)\n"
        "os.chmod('closed/f', 0); os.chmod('closed', 0)"
    )
    assert session.run(["python3", "-c", program]).outcome.ok
    assert session.commit(str(target)).applied
    assert {os.fsencode(name) for name in os.listdir(target)} == {
        b"\xff\n", b"-rf", b"x" * 255, b"absolute", b"up", b"closed", b"set-id"
    }  # fmt: skip
    assert os.readlink(target / "absolute") == "/etc/shadow"
    assert stat.S_IMODE((target / "set-id").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "closed").stat().st_mode) == 0
    (target / "closed").chmod(0o700)
    assert (target / "closed" / "f").stat().st_size == 1
    assert session.commit(str(target)).applied, "a second one has nothing to do"
    if AS_ROOT:  # an ordinary user can't compare what is closed to it, and is told so
        session.run("chmod 755 closed; chmod 644 closed/f")
        assert session.commit(str(target)).applied
        assert (target / "closed" / "f").read_text() == "f"


def test_a_commit_of_a_sparse_file_takes_neither_memory_nor_room(session: Session, tmp_path: Path) -> None:
    """Ten gigabytes of nothing are compared and written without being read, and are a sparse file on the host, too."""
    target = tmp_path / "target"
    target.mkdir()
    session.run("truncate -s 10G big; printf end >> big; echo x > small")
    assert session.commit(str(target)).applied
    status = (target / "big").stat()
    assert status.st_size == (10 << 30) + 3
    assert status.st_blocks * 512 < 1 << 20
    session.run("printf more >> big")
    assert session.commit(str(target)).written == ("big",)
    (target / "big").write_text("edited")
    session.run("printf most >> big")
    assert session.commit(str(target)).conflicts == ("big",)
