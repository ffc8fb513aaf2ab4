#!/usr/bin/env python3
"""Makes the seccomp filter, the C index of calls and the Python event kinds from syscalls.toml.

Knows the table and classic BPF. Gives four files, which are committed so that a build needs no Python;
`--check` compares instead of writing. Knows nothing of what the decoders do.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ENUMS_FILE = HERE / "src" / "syscalls_generated.h"
INDEX_FILE = HERE / "src" / "call_index_generated.h"
FILTER_FILE = HERE / "src" / "filter_generated.h"
PYTHON_FILE = HERE.parent / "runtime" / "mulligan" / "model" / "_generated_kinds.py"

AUDIT_ARCH = {"x86_64": 0xC000003E}
X32_BIT = 0x40000000
ERRNO = {"EPERM": 1, "ENOSYS": 38, "EOPNOTSUPP": 95, "EAFNOSUPPORT": 97}

# seccomp(2) and bpf(4)
LD_ABS, RET, JA, JEQ, JGE, JSET = 0x20, 0x06, 0x05, 0x15, 0x35, 0x45
RET_ALLOW, RET_ERRNO, RET_TRACE, RET_NOTIFY = 0x7FFF0000, 0x00050000, 0x7FF00000, 0x7FC00000
OFFSET_NR, OFFSET_ARCH, OFFSET_ARGS = 0, 4, 16
LONGEST_JUMP = 255

# What these decoders tell is known before the call is made; and of an open with none of these flags.
TOLD_AT_ENTRY = frozenset({"look", "look_fd", "list"})
O_ACCMODE, O_CREAT, O_TRUNC, O_NOATIME, O_UNNAMED = 0o3, 0o100, 0o1000, 0o1000000, 0o20000000
NO_PLAIN_OPEN = O_ACCMODE | O_CREAT | O_TRUNC | O_NOATIME | O_UNNAMED
# In the sixth argument, which none of these calls has: this one is to be stopped, not notified (src/notify.h).
WANTS_STOP, LAST_ARGUMENT = 0x6D756C6C6967616E, 5

# What the tracer finds in SECCOMP_RET_DATA beside the decoder's number.
DATA_NEEDS_EXIT, DATA_UNKNOWN, DATA_FOREIGN = 0x100, 0x200, 0x400

# sched.h: every namespace flag, and the one that would hide a child from its tracer.
CLONE_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
CLONE_UNTRACED, CLONE_NEWTIME = 0x00800000, 0x80
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER = 1, 8
MAP_SHARED = 1  # and a bit of MAP_SHARED_VALIDATE
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 4, 24, 28
# socket(2): the families that a network namespace keeps apart and that a fact can name.
USUAL_FAMILIES = (0, 1, 2, 10, 16, 17)  # unspecified, unix, inet, inet6, netlink, packet
TIOCSTI, TIOCLINUX, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR = 0x5412, 0x541C, 0x40086602, 0x401C5820


class Insn(NamedTuple):
    """One struct sock_filter."""

    code: int
    jt: int
    jf: int
    k: int


Program = tuple[Insn, ...]


def ret(action: int) -> Program:
    """End with an action."""
    return (Insn(RET, 0, 0, action),)


def low_half(argument: int) -> Insn:
    """Load the low 32 bits of an argument (little-endian)."""
    return Insn(LD_ABS, 0, 0, OFFSET_ARGS + 8 * argument)


def refuse_flags(mask: int) -> Program:
    """EPERM when argument 0 has one of these bits, else allowed."""
    return (low_half(0), Insn(JSET, 0, 1, mask), *ret(RET_ERRNO | ERRNO["EPERM"]), *ret(RET_ALLOW))


def notify(traced: int) -> Program:
    """A notification in place of the stop `traced`, unless the stop was asked for."""
    return (
        low_half(LAST_ARGUMENT),
        Insn(JEQ, 0, 3, WANTS_STOP & 0xFFFFFFFF),
        Insn(LD_ABS, 0, 0, OFFSET_ARGS + 8 * LAST_ARGUMENT + 4),
        Insn(JEQ, 0, 1, WANTS_STOP >> 32),
        *ret(traced),
        *ret(RET_NOTIFY | (traced & 0xFFFF)),
    )


def notify_plain(flags: int, traced: int) -> Program:
    """The same for an open, whose flags are argument number `flags`."""
    return (low_half(flags), Insn(JSET, 0, 1, NO_PLAIN_OPEN), *ret(traced), *notify(traced))


def build_test(name: str, traced: int) -> Program:
    """The argument tests that syscalls.toml names: one case each, kept in one place so that they can be read as a table."""
    eperm = ret(RET_ERRNO | ERRNO["EPERM"])
    match name:
        case "clone_flags":
            return refuse_flags(CLONE_NAMESPACES | CLONE_UNTRACED)
        case "unshare_flags":
            return refuse_flags(CLONE_NAMESPACES | CLONE_NEWTIME)
        case "terminal_injection":
            # The command is 32 bits wide for the kernel too; the inode flags are metadata that no layer records.
            return (
                low_half(1),
                Insn(JEQ, 3, 0, TIOCSTI),
                Insn(JEQ, 2, 0, TIOCLINUX),
                Insn(JEQ, 2, 0, FS_IOC_SETFLAGS),
                Insn(JEQ, 1, 2, FS_IOC_FSSETXATTR),
                *eperm,
                *ret(RET_ERRNO | ERRNO["EOPNOTSUPP"]),
                *ret(RET_ALLOW),
            )
        case "process_options":
            # The tracer could not read /proc of a process that is not dumpable; it is told that it was done (errno 0).
            # The other two take capabilities away at the next exec, and with them what a privileged user is let do.
            return (
                low_half(0),
                Insn(JEQ, 4, 0, PR_SET_DUMPABLE),
                Insn(JEQ, 2, 0, PR_CAPBSET_DROP),
                Insn(JEQ, 1, 0, PR_SET_SECUREBITS),
                *ret(RET_ALLOW),
                *ret(traced),
                low_half(1),
                Insn(JEQ, 0, 1, 0),
                *ret(RET_ERRNO),
                *ret(RET_ALLOW),
            )
        case "usual_family":
            # vsock leads out of every network namespace; the others are for machines that a sandbox does not show.
            return (
                low_half(0),
                *(Insn(JEQ, len(USUAL_FAMILIES) - at, 0, family) for at, family in enumerate(USUAL_FAMILIES)),
                *ret(RET_ERRNO | ERRNO["EAFNOSUPPORT"]),
                *ret(RET_ALLOW),
            )
        case "no_listener":
            # A listener that answers CONTINUE would run calls without a stop.
            return (
                low_half(0),
                Insn(JEQ, 0, 3, SECCOMP_SET_MODE_FILTER),
                low_half(1),
                Insn(JSET, 0, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER),
                *eperm,
                *ret(RET_ALLOW),
            )
        case "shared_mapping":
            return (low_half(3), Insn(JSET, 0, 1, MAP_SHARED), *ret(traced), *ret(RET_ALLOW))
        case "has_address":
            return (
                low_half(4),
                Insn(JEQ, 0, 2, 0),
                Insn(LD_ABS, 0, 0, OFFSET_ARGS + 8 * 4 + 4),
                Insn(JEQ, 1, 0, 0),
                *ret(traced),
                *ret(RET_ALLOW),
            )
        case _:
            raise ValueError(name)


def decoders(calls: dict[str, dict[str, Any]]) -> list[str]:
    """Names of the decoders, in the order of their first use; number 0 is none."""
    return list(dict.fromkeys(row["decode"] for row in calls.values() if "decode" in row))


def build_leaf(row: dict[str, Any], numbers: dict[str, int]) -> Program:
    """What the filter does with one call."""
    if action := row.get("action"):
        return ret(RET_ALLOW if action == "allow" else RET_ERRNO | ERRNO[action])
    traced = 0
    if decoder := row.get("decode"):
        traced = RET_TRACE | numbers[decoder] | (DATA_NEEDS_EXIT if row.get("exit") else 0)
    if row.get("decode") in TOLD_AT_ENTRY:
        return notify(traced)
    if row.get("decode") == "open" and "flags" in row:
        return notify_plain(row["flags"], traced)
    return build_test(row["test"], traced) if "test" in row else ret(traced)


def build_tree(ranges: list[tuple[int, Program]]) -> Program:
    """A balanced search over (first number, program) ranges; the accumulator holds the number."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = build_tree(ranges[:middle]), build_tree(ranges[middle:])
    pivot = ranges[middle][0]
    if len(below) <= LONGEST_JUMP:
        return (Insn(JGE, len(below), 0, pivot), *below, *above)
    return (Insn(JGE, 0, 1, pivot), Insn(JA, 0, 0, len(below)), *below, *above)


def build_filter(calls: dict[str, dict[str, Any]], arch: str) -> Program:
    """The whole filter: architecture, then the number."""
    numbers = {name: index + 1 for index, name in enumerate(decoders(calls))}
    by_number = {row[arch]: build_leaf(row, numbers) for row in calls.values() if arch in row}
    unknown = ret(RET_TRACE | DATA_UNKNOWN)
    ranges: list[tuple[int, Program]] = []
    for number in range(max(by_number) + 2):
        leaf = by_number.get(number, unknown)
        if not ranges or ranges[-1][1] != leaf:
            ranges.append((number, leaf))
    foreign = ret(RET_TRACE | DATA_FOREIGN)
    return (
        Insn(LD_ABS, 0, 0, OFFSET_ARCH),
        Insn(JEQ, 1, 0, AUDIT_ARCH[arch]),
        *foreign,
        Insn(LD_ABS, 0, 0, OFFSET_NR),
        Insn(JEQ, 0, 1, 0xFFFFFFFF),  # a call that a tracer cancelled
        *ret(RET_ALLOW),
        Insn(JGE, 0, 1, X32_BIT),
        *foreign,
        *build_tree(ranges),
    )


def render_row(name: str, row: dict[str, Any], arch: str) -> str:
    """One element of the C index."""
    param = f"EV_{row['kind']}" if "kind" in row else f"META_{row['what']}" if "what" in row else "0"
    places = ", ".join(str(row.get(key, -1)) for key in ("dirfd", "path", "flags", "dirfd2", "path2"))
    decoder = f"DECODE_{row['decode'].upper()}" if "decode" in row else "DECODE_NONE"
    truth = [str(bool(row.get(key))).lower() for key in ("exit", "nofollow")]
    return f'[{row[arch]}] = {{"{name}", {decoder}, {truth[0]}, {truth[1]}, {places}, {param}}},'


C_NOTICE = ["/* Generated by generate.py from syscalls.toml; not to be edited. */"]


def render_enums(table: dict[str, Any]) -> str:
    """The C names of events, bits and decoders."""
    arch, calls = table["arch"], table["calls"]
    lines = [
        *C_NOTICE,
        "#pragma once",
        "",
        f'#define TRACED_ARCH "{arch}"',
        f"#define TRACED_AUDIT_ARCH 0x{AUDIT_ARCH[arch]:x}u",
        f"#define FOREIGN_NUMBER_BIT 0x{X32_BIT:x}u",
        "",
        "enum {",
        *(f"        EV_{name} = {number}," for name, number in table["events"].items()),
        "};",
        "",
        "enum {",
        *(f"        META_{name} = {number}," for name, number in table["meta"].items()),
        "};",
        "",
        "enum {",
        f"        DATA_NEEDS_EXIT = 0x{DATA_NEEDS_EXIT:x},",
        f"        DATA_UNKNOWN = 0x{DATA_UNKNOWN:x},",
        f"        DATA_FOREIGN = 0x{DATA_FOREIGN:x},",
        "};",
        "",
        f"#define WANTS_STOP 0x{WANTS_STOP:x}u",
        "",
        "enum decoder {",
        "        DECODE_NONE,",
        *(f"        DECODE_{name.upper()}," for name in decoders(calls)),
        "        DECODER_COUNT,",
        "};",
    ]
    return "\n".join(lines).replace(" " * 8, "\t") + "\n"


def render_index(table: dict[str, Any]) -> str:
    """The rows of the C index of calls; to be included in an array of struct call_row."""
    arch = table["arch"]
    here = [(name, row) for name, row in table["calls"].items() if arch in row]
    here.sort(key=lambda item: item[1][arch])
    return "\n".join([*C_NOTICE, *(render_row(name, row, arch) for name, row in here)]) + "\n"


def render_filter(table: dict[str, Any]) -> str:
    """The instructions of the filter; to be included in an array of struct sock_filter."""
    program = build_filter(table["calls"], table["arch"])
    return "\n".join([*C_NOTICE, *(f"{{0x{i.code:02x}, {i.jt}, {i.jf}, 0x{i.k:08x}}}," for i in program)]) + "\n"


def render_python(table: dict[str, Any]) -> str:
    """The numbers of the events, for the Python side."""
    lines = [
        '"""Numbers of the events on the wire. Generated by tracer/generate.py from tracer/syscalls.toml; not to be edited."""',
        "",
        "from typing import Final",
        "",
        *(f"{name}: Final = {number}" for name, number in table["events"].items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write both files, or with --check say which one is stale."""
    table = tomllib.loads((HERE / "syscalls.toml").read_text(encoding="ascii"))
    stale = 0
    renderers = ((ENUMS_FILE, render_enums), (INDEX_FILE, render_index), (FILTER_FILE, render_filter))
    for path, render in (*renderers, (PYTHON_FILE, render_python)):
        text = render(table)
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="ascii")
        elif not path.exists() or path.read_text(encoding="ascii") != text:
            sys.stderr.write(f"{path}: stale, run tracer/generate.py\n")
            stale = 1
    return stale


if __name__ == "__main__":
    raise SystemExit(main())
