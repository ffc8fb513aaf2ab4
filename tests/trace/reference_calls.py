"""The reference tracer's knowledge of system calls, from their manual pages: what each observes, and what it does if it succeeds.

Knows a task's registers and memory at the entry of a call. Gives facts as tracer/PROTOCOL.md names them. A call that says
something is a generator: it runs to its `yield` at the entry and is sent the result at the exit.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ptrace.binding.func import ptrace_getregs
from ptrace.syscall.names import SYSCALL_NAMES
from reference_walk import ABSENT, AT_FDCWD, NAMELESS, NOWHERE, OBJECT, Found, Walk, base_of, object_at

if TYPE_CHECKING:
    from collections.abc import Generator

    Model = Generator[None, int, None]

# Calls that are newer than python-ptrace.
NAMES: Final = {
    **SYSCALL_NAMES,
    437: "openat2", 439: "faccessat2", 452: "fchmodat2",
    463: "setxattrat", 464: "getxattrat", 465: "listxattrat", 466: "removexattrat",
}  # fmt: skip

AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = 0x100, 0x200, 0x400, 0x1000
RESOLVE_IN_ROOT: Final = 0x10
RENAME_EXCHANGE: Final = 2
STATX_REVEALING: Final = 0x4 | 0x40 | 0x200 | 0x400  # links, mtime, size, blocks
UTIME_OMIT: Final = (1 << 30) - 2
MODE, OWNER, TIMES, XATTR = 1, 2, 4, 8

# Calls by what they observe: the numbers of the arguments that are directory, path and flags, and whether a link in the
# last place is followed when no flag says otherwise.
LOOKS: Final = {
    "stat": ("STAT", None, 0, None, True), "lstat": ("STAT", None, 0, None, False),
    "newfstatat": ("STAT", 0, 1, 3, True), "statx": ("STAT", 0, 1, 2, True),
    "name_to_handle_at": ("STAT", 0, 1, 4, False),
    "access": ("PROBE", None, 0, None, True), "faccessat": ("PROBE", 0, 1, None, True),
    "faccessat2": ("PROBE", 0, 1, 3, True),
    "chdir": ("PROBE", None, 0, None, True), "statfs": ("PROBE", None, 0, None, True),
    "inotify_add_watch": ("PROBE", None, 1, None, True),
    "readlink": ("LINK", None, 0, None, False), "readlinkat": ("LINK", 0, 1, None, False),
    "getxattr": ("XATTR_READ", None, 0, None, True), "listxattr": ("XATTR_READ", None, 0, None, True),
    "lgetxattr": ("XATTR_READ", None, 0, None, False), "llistxattr": ("XATTR_READ", None, 0, None, False),
    "getxattrat": ("XATTR_READ", 0, 1, 2, True), "listxattrat": ("XATTR_READ", 0, 1, 2, True),
}  # fmt: skip
LOOKS_BY_FD: Final = {"fstat": "STAT", "fchdir": "PROBE", "fgetxattr": "XATTR_READ", "flistxattr": "XATTR_READ"}
ATTRIBUTES: Final = {
    "chmod": (MODE, None, 0, None, True), "fchmodat": (MODE, 0, 1, None, True), "fchmodat2": (MODE, 0, 1, 3, True),
    "chown": (OWNER, None, 0, None, True), "lchown": (OWNER, None, 0, None, False), "fchownat": (OWNER, 0, 1, 4, True),
    "utime": (TIMES, None, 0, None, True), "utimes": (TIMES, None, 0, None, True),
    "futimesat": (TIMES, 0, 1, None, True), "utimensat": (TIMES, 0, 1, 3, True),
    "setxattr": (XATTR, None, 0, None, True), "lsetxattr": (XATTR, None, 0, None, False),
    "removexattr": (XATTR, None, 0, None, True), "lremovexattr": (XATTR, None, 0, None, False),
    "setxattrat": (XATTR, 0, 1, 2, True), "removexattrat": (XATTR, 0, 1, 2, True),
}  # fmt: skip
ATTRIBUTES_BY_FD: Final = {"fchmod": MODE, "fchown": OWNER, "fsetxattr": XATTR, "fremovexattr": XATTR}
MAKES: Final = {
    "mkdir": ("MKDIR", None, 0), "mkdirat": ("MKDIR", 0, 1),
    "symlink": ("SYMLINK", None, 1), "symlinkat": ("SYMLINK", 1, 2),
    "mknod": ("MKNOD", None, 0), "mknodat": ("MKNOD", 0, 1),
}  # fmt: skip
REMOVES: Final = {"unlink": (None, 0), "rmdir": (None, 0), "unlinkat": (0, 1)}
RENAMES: Final = {"rename": (None, 0, None, 1), "renameat": (0, 1, 2, 3), "renameat2": (0, 1, 2, 3)}
LINKS: Final = {"link": (None, 0, None, 1), "linkat": (0, 1, 2, 3)}
OPENS: Final = {"open": (None, 0, 1), "openat": (0, 1, 2), "creat": (None, 0, None), "openat2": (0, 1, None)}
CREDENTIALS: Final = frozenset(
    ("setuid", "setgid", "setreuid", "setregid", "setgroups", "setresuid", "setresgid", "setfsuid", "setfsgid", "capset")
)


class Call:
    """One system call of one task at its entry, and the reading of its arguments."""

    def __init__(self, facts: Facts, tid: int) -> None:
        registers = ptrace_getregs(tid)
        self.tid = tid
        self.name = NAMES.get(registers.orig_rax, "")
        self.args = [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9]
        self._facts = facts

    def memory(self, address: int, size: int) -> bytes:
        """Up to `size` bytes of the guest's memory; fewer where it ends."""
        out = bytearray()
        try:
            with open(f"/proc/{self.tid}/mem", "rb", buffering=0) as memory:
                while len(out) < size:
                    chunk = os.pread(
                        memory.fileno(), min(size - len(out), 4096 - (address + len(out)) % 4096), address + len(out)
                    )
                    if not chunk:
                        break
                    out += chunk
        except (OSError, OverflowError):
            pass
        return bytes(out)

    def text(self, address: int) -> str | None:
        """A string in the guest's memory; None when it can't be read or is longer than a path may be."""
        raw = b""
        for size in (256, 4096):
            raw, nul, _ = self.memory(address, size).partition(b"\0")
            if nul:
                return os.fsdecode(raw)
        return None

    def strings(self, address: int) -> list[str]:
        """A list of strings that ends with a null pointer."""
        out: list[str] = []
        while address:
            pointer = int.from_bytes(self.memory(address, 8), "little")
            text = self.text(pointer) if pointer else None
            if text is None:
                break
            out.append(text)
            address += 8
        return out

    def fd(self, argument: int | None) -> int:
        """A descriptor, which is a signed int of 32 bits; no argument means the working directory."""
        if argument is None:
            return AT_FDCWD
        given: int = struct.unpack("i", struct.pack("I", self.args[argument] & 0xFFFFFFFF))[0]
        return given

    def by_fd(self, argument: int) -> Found:
        """The object of a descriptor."""
        return object_at(f"/proc/{self.tid}/fd/{self.fd(argument)}")

    def walk(self, folder: int | None, path: int, *, follow: bool, in_root: bool = False) -> Found:
        """Look a path argument up."""
        text = self.text(self.args[path])
        return NOWHERE if not text else self.walk_text(self.fd(folder), text, follow=follow, in_root=in_root)

    def walk_text(self, folder: int, text: str, *, follow: bool, in_root: bool = False) -> Found:
        """Look a path up from a descriptor's folder."""
        if text.startswith("/") and not in_root:
            return Walk(self.tid, self._facts.say).go("/", text, follow=follow)
        base = base_of(self.tid, folder)
        if base.what != OBJECT:
            return base
        if not base.folder:
            self._facts.saw("PROBE", base)
            return NOWHERE
        return Walk(self.tid, self._facts.say, top=base.path.rstrip("/") if in_root else "").go(base.path, text, follow=follow)

    def walk_flags(self, folder: int | None, path: int, flags: int | None, *, follow: bool) -> Found:
        """Look up what a call of the *at family names: by path, or with an empty one by descriptor."""
        given = 0 if flags is None else self.args[flags]
        text = self.text(self.args[path]) if self.args[path] else None
        if folder is not None and not text:
            empty = bool(given & AT_EMPTY_PATH) or (text == "" and self.name == "readlinkat")
            if empty or (self.args[path] == 0 and self.name == "utimensat"):
                return base_of(self.tid, self.fd(folder))
        follow = (follow or bool(given & AT_SYMLINK_FOLLOW)) and not given & AT_SYMLINK_NOFOLLOW
        return self.walk(folder, path, follow=follow)


class Facts:
    """What was said so far, each fact once, and the models of the calls."""

    def __init__(self) -> None:
        self.said: dict[str, None] = {}

    def say(self, kind: str, *what: object) -> None:
        """A fact."""
        self.said[json.dumps([kind, *what])] = None

    def saw(self, kind: str, found: Found) -> None:
        """An observation, if there is an object with a name."""
        if found.what == OBJECT:
            self.say(kind, found.path)

    def model(self, call: Call) -> Model | None:
        """What a call observes and does; None for one that says nothing."""
        name = call.name
        if name in LOOKS:
            return self._look(call)
        if name in LOOKS_BY_FD:
            return self._look_by_fd(call)
        for names, model in (
            (OPENS, self._open), (MAKES, self._make), (REMOVES, self._remove), (RENAMES, self._rename), (LINKS, self._link),
            (ATTRIBUTES, self._attribute), (ATTRIBUTES_BY_FD, self._attribute_by_fd), (CREDENTIALS, self._credentials), ({"umask"}, self._umask),
            ({"getdents", "getdents64"}, self._list), ({"truncate"}, self._truncate), ({"execve", "execveat"}, self._exec),
            ({"connect", "bind", "sendto", "sendmsg"}, self._address),
        ):  # fmt: skip
            if name in names:
                return model(call)
        return None

    # ------------------------------------------------------------------------------------------ looking

    def _look(self, call: Call) -> Model:
        kind, folder, path, flags, follow = LOOKS[call.name]
        found = call.walk_flags(folder, path, flags, follow=follow)
        if call.name == "statx" and not call.args[3] & STATX_REVEALING:
            kind = "PROBE"
        if kind == "LINK" and not stat.S_ISLNK(found.mode):
            kind = "PROBE"
        self.saw(kind, found)
        yield

    def _look_by_fd(self, call: Call) -> Model:
        self.saw(LOOKS_BY_FD[call.name], call.by_fd(0))
        yield

    def _list(self, call: Call) -> Model:
        found = call.by_fd(0)
        if found.folder:
            self.saw("LIST", found)
        yield

    # ------------------------------------------------------------------------------------------ opening

    def _open(self, call: Call) -> Model:
        folder, path, argument = OPENS[call.name]
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC if argument is None else call.args[argument]
        resolve = 0
        if call.name == "openat2":
            flags, _, resolve = struct.unpack("QQQ", call.memory(call.args[2], 24).ljust(24, b"\0"))
        exclusive = bool(flags & os.O_CREAT and flags & os.O_EXCL)
        before = call.walk(
            folder, path, follow=not flags & os.O_NOFOLLOW and not exclusive, in_root=bool(resolve & RESOLVE_IN_ROOT)
        )
        result = yield
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            self.saw("PROBE", before)
            return
        if result < 0:
            self.saw("PROBE", before)
            return
        opened = object_at(f"/proc/{call.tid}/fd/{result}")
        if opened.what != OBJECT:
            return
        writes = bool(flags & os.O_ACCMODE or flags & os.O_TRUNC)
        if flags & os.O_PATH or not stat.S_ISREG(opened.mode):
            self.saw("PROBE", opened)
        elif flags & os.O_CREAT and before.what == ABSENT:
            self.say("CREATE", opened.path)
        else:
            if writes:
                self.saw("PROBE", opened)
                self.say("WRITE", opened.path, bool(flags & os.O_TRUNC))
            if not flags & os.O_TRUNC:
                self.saw("READ", opened)

    # ------------------------------------------------------------------------------------------ names

    def _make(self, call: Call) -> Model:
        kind, folder, path = MAKES[call.name]
        found = call.walk(folder, path, follow=False)
        self.saw("PROBE", found)
        result = yield
        if result == 0:
            if kind == "MKNOD" and stat.S_ISREG(os.lstat(found.path).st_mode):
                kind = "CREATE"
            self.say(kind, found.path)

    def _remove(self, call: Call) -> Model:
        folder, path = REMOVES[call.name]
        found = call.walk(folder, path, follow=False)
        self.saw("PROBE", found)
        if found.folder and (call.name == "rmdir" or (call.name == "unlinkat" and call.args[2] & AT_REMOVEDIR)):
            self.saw("LIST", found)
        result = yield
        if result == 0:
            self.say("REMOVE", found.path)

    def _moving(self, found: Found) -> None:
        """An object that goes on under another name takes all that it is with it."""
        if found.folder:
            self.saw("PROBE", found)
            return
        if stat.S_ISREG(found.mode):
            self.saw("READ", found)
        if stat.S_ISLNK(found.mode):
            self.saw("LINK", found)
        self.saw("STAT", found)

    def _rename(self, call: Call) -> Model:
        folder, path, folder2, path2 = RENAMES[call.name]
        exchange = call.name == "renameat2" and bool(call.args[4] & RENAME_EXCHANGE)
        source = call.walk(folder, path, follow=False)
        target = call.walk(folder2, path2, follow=False)
        self._moving(source)
        if exchange:
            self._moving(target)
        self.saw("PROBE", target)
        if target.folder:
            self.saw("LIST", target)
        result = yield
        if result == 0:
            self.say("RENAME", source.path, target.path, exchange)

    def _link(self, call: Call) -> Model:
        folder, path, folder2, path2 = LINKS[call.name]
        source = call.walk_flags(folder, path, 4 if call.name == "linkat" else None, follow=False)
        target = call.walk(folder2, path2, follow=False)
        self._moving(source)
        self.saw("PROBE", target)
        result = yield
        if result == 0 and source.what == NAMELESS:
            self.say("CREATE", target.path)
        elif result == 0:
            self.say("HARDLINK", source.path, target.path)

    def _truncate(self, call: Call) -> Model:
        found = call.walk(None, 0, follow=True)
        self.saw("PROBE", found)
        result = yield
        if result == 0 and found.what == OBJECT:
            if call.args[1]:
                self.saw("READ", found)
            self.say("WRITE", found.path, not call.args[1])

    # ------------------------------------------------------------------------------------------ attributes

    def _attribute(self, call: Call) -> Model:
        what, folder, path, flags, follow = ATTRIBUTES[call.name]
        found = call.walk_flags(folder, path, flags, follow=follow)
        self.saw("PROBE", found)
        if call.name == "utimensat" and call.args[2]:
            modified = call.memory(call.args[2], 32)[24:]
            if int.from_bytes(modified, "little") == UTIME_OMIT:
                what = 0
        result = yield
        if result == 0 and found.what == OBJECT:
            self.say("META", found.path, what)
        elif what == XATTR:
            self.saw("XATTR_READ", found)
            self._copied_up(call, found, result)

    def _attribute_by_fd(self, call: Call) -> Model:
        found = call.by_fd(0)
        self.saw("PROBE", found)
        result = yield
        if result == 0 and found.what == OBJECT:
            self.say("META", found.path, ATTRIBUTES_BY_FD[call.name])
        elif ATTRIBUTES_BY_FD[call.name] == XATTR:
            self.saw("XATTR_READ", found)
            self._copied_up(call, found, result)

    def _copied_up(self, call: Call, found: Found, result: int) -> None:
        if result in (-errno.ENODATA, -errno.EEXIST) and "set" in call.name and found.what == OBJECT:
            self.say("META", found.path, 0)

    def _umask(self, _: Call) -> Model:
        self.say("UMASK")
        yield

    def _credentials(self, _: Call) -> Model:
        result = yield
        if result >= 0:
            self.say("CREDENTIALS")

    # ------------------------------------------------------------------------------------------ programs

    def _exec(self, call: Call) -> Model:
        folder, path = (0, 1) if call.name == "execveat" else (None, 0)
        program = call.walk_flags(folder, path, 4 if folder == 0 else None, follow=True)
        argv = call.strings(call.args[path + 1])
        cwd = os.readlink(f"/proc/{call.tid}/cwd")
        base = cwd if call.fd(folder) == AT_FDCWD else base_of(call.tid, call.fd(folder)).path
        written = os.path.join(base, call.text(call.args[path]) or "")
        self.saw("READ" if stat.S_ISREG(program.mode) else "PROBE", program)
        if program.what in (OBJECT, NAMELESS) and stat.S_ISREG(program.mode):
            self._interpreters(call, program.path or f"/proc/{call.tid}/fd/{call.fd(folder)}")
        result = yield
        self.say("EXEC", program.path if program.what == OBJECT else written, argv, cwd, max(0, -result))

    def _interpreters(self, call: Call, program: str) -> None:
        """What the kernel reads besides the program: the interpreter of a script and its own, an ELF file's loader."""
        for _ in range(6):
            head = Path(program).read_bytes()[:4096]
            script = head.startswith(b"#!")
            name = self._shebang(head) if script else self._loader(program, head)
            found = call.walk_text(AT_FDCWD, os.fsdecode(name), follow=True) if name else NOWHERE
            self.saw("READ" if stat.S_ISREG(found.mode) else "PROBE", found)
            if not script or found.what != OBJECT or not stat.S_ISREG(found.mode):
                return
            program = found.path

    @staticmethod
    def _shebang(head: bytes) -> bytes:
        words = head[2:256].split(b"\n")[0].split(b"\0")[0].strip(b" \t").replace(b"\t", b" ").split(b" ")
        return words[0]

    @staticmethod
    def _loader(program: str, head: bytes) -> bytes:
        if head[:5] != b"\x7fELF\x02":
            return b""
        whole = Path(program).read_bytes()
        start, (size, count) = struct.unpack_from("Q", head, 32)[0], struct.unpack_from("HH", head, 54)
        for i in range(count):
            kind, _, at, _, _, length = struct.unpack_from("IIQQQQ", whole, start + i * size)
            if kind == 3:  # PT_INTERP
                return whole[at : at + length].split(b"\0")[0]
        return b""

    # ------------------------------------------------------------------------------------------ peers

    def _address(self, call: Call) -> Model:
        where, size = (call.args[4], call.args[5]) if call.name == "sendto" else (call.args[1], call.args[2])
        if call.name == "sendmsg":
            where, size = struct.unpack("QI", call.memory(call.args[1], 12).ljust(12, b"\0"))
        raw = call.memory(where, size & 0xFFFFFFFF) if where and 2 <= size <= 128 else b""
        if raw[:2] == b"\1\0" and len(raw) > 110:  # longer than a struct sockaddr_un: EINVAL
            raw = b""
        family, rest = int.from_bytes(raw[:2], "little"), raw[2:]
        named = family == 1 and rest[:1] not in (b"", b"\0")
        found = NOWHERE
        if named:
            path = os.fsdecode(rest.partition(b"\0")[0])
            found = call.walk_text(AT_FDCWD, path, follow=call.name != "bind")
            self.saw("PROBE", found)
        result = yield
        if named and call.name == "bind" and result == 0:
            self.say("MKNOD", found.path)
        elif not named and raw:
            self._peer(call.name, family, rest, result)

    def _peer(self, name: str, family: int, rest: bytes, result: int) -> None:
        port = int.from_bytes(rest[:2], "big")
        op, error = ("send", 0) if name.startswith("send") else (name, max(0, -result))
        match family:
            case 1 if rest:
                self.say("CONNECT", op, "unix-abstract", os.fsdecode(rest[1:]), 0, error)
            case 2:
                self.say("CONNECT", op, "inet", str(ipaddress.IPv4Address(rest[2:6])), port, error)
            case 10:
                self.say("CONNECT", op, "inet6", str(ipaddress.IPv6Address(rest[6:22])), port, error)
            case 16:
                self.say("CONNECT", op, "netlink", "", int.from_bytes(rest[2:6], "little"), error)
            case _:
                pass
