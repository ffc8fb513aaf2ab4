"""Histories to repair, made up at random: programs of file operations, shell texts around them, and changes to them.

Knows hypothesis' strategies and the operations of tests/guests/fsops.c. What is made up is plain data, so that a failing
example can be read: an action is a list of words or a shell text, perhaps with a folder, variables or input of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

GUEST = "/workspace/fsops"
Command = str | tuple[str, ...]

PATHS = [
    "t/a",
    "t/a",
    "t/b",
    "t/d",
    "t/d",
    "t/d/x",
    "t/d/y",
    "t/e",
    "t/e/x",
    "t/l",
    "t/d/l",
    "t/l/x",
    "/workspace/t/a",
    "/workspace/t/d",
    "x",
]

path = st.sampled_from(PATHS)
# A FIFO is made where only programs look that never wait for its other end: a shell that writes to one would wait for ever.
place = st.sampled_from([*PATHS, "t/p"])
word = st.sampled_from(["one", "two", "three33", ""])
mode = st.sampled_from(["600", "755", "711", "640", "500", "4755", "2775"])
target = st.sampled_from(["a", "d", "e/x", "../a", "/workspace/t/d", "l", "d/../b"])
file_op = st.one_of(
    st.tuples(st.sampled_from("waepMTj"), place, word),
    st.tuples(st.just("q"), path, word),
    st.tuples(st.just("f"), st.just("t/p")),
    st.tuples(st.sampled_from("crlxC"), path, path),
    st.tuples(st.sampled_from("umdovzSLRAWYGBVi"), place),
    st.tuples(st.sampled_from("uSSBGR"), place),
    st.tuples(st.just("t"), path, st.sampled_from(["0", "2", "9"])),
    st.tuples(st.sampled_from("hH"), path, mode),
    st.tuples(st.just("h"), st.just("/"), st.sampled_from(["755", "711"])),
    st.tuples(st.just("k"), path, st.sampled_from(["1", "5000"])),
    st.tuples(st.just("O"), path, st.sampled_from(["0", "7"])),
    st.tuples(st.just("X"), path, word),
    st.tuples(st.just("s"), target, path),
    st.tuples(st.just("g"), st.sampled_from(["t", "t/d", "t/l", "..", "/workspace"])),
    st.tuples(st.sampled_from("?!"), path),
)
program = st.lists(file_op, min_size=1, max_size=6).map(lambda ops: tuple(word for one in ops for word in one))


def quoted(ops: tuple[str, ...]) -> str:
    """The guest's command line in a shell text."""
    return " ".join([GUEST, *(f"'{word}'" for word in ops)])


short = st.lists(file_op, min_size=1, max_size=2).map(lambda ops: quoted(tuple(word for one in ops for word in one)))
name = st.sampled_from(["PART_ONE", "PART_ONE_B"])  # in no program: only whoever names them reads them
statement = st.one_of(
    short,
    st.builds("{} > {}".format, short, path),
    st.builds('echo "$({} | sort | tr a-m A-M)" >> {}'.format, short, path),
    st.builds("cat {} | sort".format, path),
    st.builds("[ {} {} ] && {}".format, st.sampled_from(["-e", "-d", "-s", "-L", "-x"]), path, short),
    st.builds("(cd {} && {})".format, path, short),
    st.builds("cp {} {}".format, path, path),
    st.builds("mv {} {}".format, path, path),
    st.builds("rm -r{} {}".format, st.sampled_from(["", "f"]), path),
    st.builds("mkdir -p {}/{}".format, path, st.sampled_from(["n", "x"])),
    st.builds("cd {}".format, st.sampled_from(["t", "t/d", "..", "/workspace", "t/l"])),
    st.builds("export V={}".format, word),
    st.builds("export {}={}".format, name, word),
    st.builds('[ "${}" ] && {}'.format, name, short),
    st.builds("unset {}".format, name),
    st.builds(f'{GUEST} w {{}} "$V"'.format, path),
    st.builds("{{ {}; }} > /dev/null 2>&1 & {}; wait".format, short, st.sampled_from(["true", "pwd", "echo $V"])),
    st.builds("cat > {}".format, path),
    st.sampled_from(["echo t/*", "unset V", "exit 3", "echo $V; pwd", "false", "sleep 9 & true", "read -r V; export V"]),
    st.sampled_from(["umask 077", "umask 022"]),
)
shell = st.lists(statement, min_size=1, max_size=4).map("; ".join)
command: st.SearchStrategy[Command] = st.one_of(program, program, shell)


@dataclass(frozen=True)
class Asked:
    """One action: what is run, and what is given to it alone."""

    command: Command
    options: Mapping[str, Any] = field(default_factory=dict)


OPTIONS: list[dict[str, Any]] = [
    {"stdin": b"given\n"}, {"cwd": "/workspace/t/d"}, {"cwd": "t"}, {"env": {"V": "own"}}, {"stdin": b"two\n", "cwd": "/workspace"},
]  # fmt: skip
asked = st.builds(Asked, command, st.one_of(*[st.just({})] * 4, st.sampled_from(OPTIONS)))


@dataclass(frozen=True)
class Edit:
    """One change of a history, by the number of the action. A patch stands after the action."""

    number: int
    kind: str
    instead: Command
    path: str
    value: str
    more: tuple[str, ...]

    def of(self, command: Command) -> Command:
        """What the action is replaced by: another one, or the same with one operation more."""
        if self.kind == "replace":
            return self.instead
        return f"{command}; {quoted(self.more)}" if isinstance(command, str) else (*command, *self.more)


KINDS = ["replace", "more", "more", "more", "drop", "rerun", "patch"]
patched = st.sampled_from(["/workspace/t/a", "/workspace/t/b", "/workspace/t/d/x", "/workspace/t/e/x"])
edit = st.builds(Edit, st.integers(0, 9), st.sampled_from(KINDS), command, patched, word, file_op)
edits = st.lists(edit, min_size=1, max_size=3, unique_by=lambda one: one.number)


@dataclass(frozen=True)
class Story:
    """A history with what becomes of it: perhaps rolled back and continued otherwise, then repaired once or more often, perhaps on a branch."""

    actions: tuple[Asked, ...]
    back_to: int  # roll back to this many actions before going on; as many as there are: not at all
    more: tuple[Asked, ...]
    repairs: tuple[tuple[Edit, ...], ...]
    branched: bool  # the repairs are made on a branch, and the session itself stays as it was


def _story(actions: list[Asked], back: int | None, more: list[Asked], repairs: list[list[Edit]], branch: int) -> Story:
    return Story(
        tuple(actions),
        len(actions) if back is None else 1 + back % len(actions),
        tuple(more) if back is not None else (),
        tuple(tuple(one) for one in repairs),
        branch == 0,
    )


story = st.builds(
    _story,
    st.one_of(st.lists(asked, min_size=2, max_size=5), st.lists(asked, min_size=2, max_size=9)),
    st.one_of(st.none(), st.none(), st.none(), st.integers(0, 8)),
    st.lists(asked, max_size=2),
    st.one_of(
        st.lists(edits, min_size=1, max_size=1),
        st.lists(edits, min_size=1, max_size=1),
        st.lists(edits, min_size=2, max_size=3),
    ),
    st.integers(0, 5),
)
