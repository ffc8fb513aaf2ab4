"""Variables that differ: who counts as having read one. Every repair is compared with a full run of the corrected history."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from twins import act, repaired

from mulligan import Policy, Replace, Session
from mulligan.repair.envreads import EnvReads

if TYPE_CHECKING:
    from pathlib import Path

STAGE = act(
    r"""printf 'echo sourced $DB_HOST\n' > lib; printf '#!/bin/sh\necho child $DB_HOST\n' > child; chmod +x child
    printf 'import os\nprint(os.environ["DB_HOST"])\n' > p.py; printf 'host = ${DB_HOST}\n' > conf; echo data > data
    printf 'a:\n\t@echo $(DB_HOST)\n' > Makefile; gzip -k < lib > lib.gz; ln -s /usr/bin/env e"""
)
READERS = [
    "echo $DB_HOST", "./child", ". ./lib", "cat conf", "x=DB_HOST; echo ${!x}", "set", "x=HOST; printenv DB_$x", "export -p", "declare -p",
    "eval echo \\$DB_HOST", "cat /proc/self/environ", "echo $((DB_HOST + 1))", "x=DB_; printenv ${x}HOST", "zcat lib.gz > s; . ./s", "./e",
    "printf 'echo $DB_HOST' > s; . ./s", "cat > s; . ./s", "ENV=1 printenv | sort", "unset DB_HOST; echo ${DB_HOST:-none}",
]  # fmt: skip
OTHERS = [
    "cat data",
    "echo $DB_HOST_NAME",
    "echo $HOST",
    "true",
    "sort data | uniq -c | awk '{print $2}'",
    "ls -l /workspace/data; stat -c %a data",
]


@pytest.mark.parametrize("history", [READERS, ["true", *OTHERS]], ids=["readers", "others"])
def test_whoever_names_a_variable_reads_it(home: Path, history: list[str]) -> None:
    """An action reads a variable that stands in its text, in a script, a sourced or a compressed file, or that it lists; no other does."""
    acts = [act(text, stdin=b"echo $DB_HOST\n" if text.startswith("cat > s") else b"") for text in history]
    report = repaired(home, STAGE, [act("export DB_HOST=1"), *acts], {0: act("export DB_HOST=2")})
    expected = range(len(history)) if history is READERS else range(0)
    assert report.ran == ("a2", *(f"a{number + 3}" for number in expected))


@pytest.mark.parametrize(
    "argv",
    [["printenv", "DB_HOST"], ["env"], ["python3", "p.py"], ["make", "-s"], ["perl", "-e", "print $ENV{DB_HOST}"], ["awk", 'BEGIN{print ENVIRON["DB_HOST"]}']],
    ids=lambda argv: argv[0],
)  # fmt: skip
def test_programs_that_read_a_variable(home: Path, argv: list[str]) -> None:
    """A program reads a variable that stands in its arguments, its script or its rules."""
    if shutil.which(argv[0]) is None:
        pytest.skip(f"there is no {argv[0]}")
    report = repaired(home, STAGE, [act("export DB_HOST=1"), act(argv), act(["cat", "data"])], {0: act("export DB_HOST=2")})
    assert report.ran == ("a2", "a3")


PROGRAMS = r"""cat > c.c <<'E'
#include <stdio.h>
#include <stdlib.h>
int main(int n, char **v) { char b[99]; snprintf(b, 99, "%s_HOST", n > 1 ? v[1] : "XX"); puts(getenv(n > 1 ? b : "DB_HOST")); return 0; }
E
gcc -O2 -s -o c c.c; gcc -O2 -static -s -o static c.c; cat > e.c <<'E'
#include <stdio.h>
extern char **environ;
int main(void) { for (char **p = environ; *p; p++) if (**p == 'D') puts(*p); return 0; }
E
gcc -O2 -o e e.c; printf '#include <stdlib.h>\nconst char *f(void) { return getenv("DB_HOST"); }' > l.c
printf '#include <stdio.h>\nconst char *f(void);\nint main(void) { puts(f()); return 0; }\n' > m.c
gcc -shared -fPIC -o libl.so l.c; gcc -o m m.c -L. -ll -Wl,-rpath,/workspace
mkdir pkg z; printf 'import os\ndef f(): return os.environ["DB_HOST"]\n' > pkg/mod.py
printf 'import sys\nsys.path.insert(0, "pkg")\nimport mod\nprint(mod.f())\n' > use.py; python3 -m compileall -q -b pkg; rm pkg/mod.py
printf 'import os\nprint(os.environ["DB_HOST"])\n' > z/__main__.py; python3 -m zipapp -c z -o z.pyz
printf '#!/bin/sh\necho $DB_HOST\n' > gz; chmod +x gz; gzexe gz 2> /dev/null; git init -q g; git -C g config alias.x '!echo $DB_HOST'"""
WAYS = [
    "./c", "./static", "./c DB", "./e", "./m", "python3 use.py", "python3 z.pyz", "./gz", "git -C g x", "echo DB_HOST | xargs printenv",
    "find . -name c.c -exec sh -c 'echo $DB_HOST' \\;", "awk 'BEGIN { system(\"echo $DB_\" \"HOST\") }'", "read -r x < <(echo DB_HOST); printenv $x",
    "x=$(echo REJfSE9TVAo= | base64 -d); printenv $x",
]  # fmt: skip


def test_compiled_and_packed_programs_that_read_a_variable(home: Path) -> None:
    """A variable is found in a binary, in a library of it, in bytecode, in a packed program, and where its name is put together."""
    if shutil.which("gcc") is None or shutil.which("git") is None or shutil.which("gzexe") is None:
        pytest.skip("gcc, git and gzexe are needed")
    history = [act("export DB_HOST=1"), *map(act, WAYS)]
    report = repaired(home, act(PROGRAMS), history, {0: act("export DB_HOST=2")})
    assert report.ran == tuple(f"a{number + 2}" for number in range(len(history)))


@pytest.mark.parametrize(
    ("was", "now"), [("true", "export DB_HOST=2"), ("export DB_HOST=1", "true"), ("export DB_HOST=1", "export DB_HOST=")]
)
def test_a_variable_that_comes_or_goes(home: Path, was: str, now: str) -> None:
    """A variable that is newly exported, or no longer, is read by whoever names it, and handed on through all others."""
    history = [
        act(was),
        act("cat data"),
        act("echo ${DB_HOST-none}"),
        act("true"),
        act(["printenv", "-0", "DB_HOST"]),
        act(["env"]),
    ]
    report = repaired(home, STAGE, history, {0: act(now)})
    assert report.ran == ("a2", "a4", "a6", "a7")


@pytest.mark.parametrize(("mine", "other"), [("DB_HOST", "DB_HOST_NAME"), ("DB_HOST_NAME", "DB_HOST")])
def test_a_longer_name_is_another_variable(home: Path, mine: str, other: str) -> None:
    """A variable is not read by whoever names one whose name it begins, or that begins its name."""
    history = [act(f"export {mine}=1"), act(f"echo ${other}"), act(f"echo ${mine}")]
    assert repaired(home, STAGE, history, {0: act(f"export {mine}=2")}).ran == ("a2", "a4")


def test_an_exported_function_reads_for_whoever_may_call_it(home: Path) -> None:
    """What other variables hold is read with them: a function that is exported, or PS4, may use a variable."""
    stage = act("f() { echo f $DB_HOST; }; export -f f; export TWICE='$DB_HOST $DB_HOST'")
    history = [act("export DB_HOST=1"), act("f"), act("unset -f f; TWICE=; export TWICE"), act("true")]
    assert repaired(home, stage, history, {0: act("export DB_HOST=2")}).ran == ("a2", "a3", "a4")


def test_what_an_action_made_and_ran_is_looked_at(home: Path) -> None:
    """A script that an action unpacks and runs names variables for it, although the action's text does not."""
    stage = act("mkdir d; printf 'echo $DB_HOST\\n' > d/s; tar cf - d | xz > d.tar.xz; rm -r d")
    history = [act("export DB_HOST=1"), act("tar xf d.tar.xz && sh d/s"), act("ls d")]
    assert repaired(home, stage, history, {0: act("export DB_HOST=2")}).ran == ("a2", "a3")


def test_a_kept_action_passes_on_the_new_value(home: Path) -> None:
    """What a kept action is recorded to have been launched with, and hands on, is the corrected value."""
    with Session.create("s", home=home) as session:
        a, b = session.run("export DB_HOST=1 OTHER=3").id, session.run("export MORE=4").id
        report = session.repair(Replace(a, "export DB_HOST=2 OTHER=3"))
        assert report.kept == (b,)
        record = session.record(b)
        assert record.launch.env["DB_HOST"] == record.footprint.launch_env["DB_HOST"] == "2"
        assert {name: record.handoff.env[name] for name in ("DB_HOST", "OTHER", "MORE")} == {
            "DB_HOST": "2",
            "OTHER": "3",
            "MORE": "4",
        }
        assert session.run("echo $DB_HOST").stdout == "2\n"


def test_each_file_is_looked_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many actions read a file, and however often it is asked, it is looked at once for each name in one open session."""
    with Session.create("s", home=home) as session:
        a, *_ = (session.run(text).id for text in ("export DB_HOST=1", "true", "ls", "true", "ls"))
        looked: list[object] = []
        look = EnvReads._look
        monkeypatch.setattr(EnvReads, "_look", lambda self, *args: looked.append(args[:2]) or look(self, *args))
        for _ in range(2):
            assert session.plan(Replace(a, "export DB_HOST=2")).of("may_rerun") == []
        assert len(looked) > 2
        assert max(looked.count(one) for one in looked) <= 2  # whether it may list variables, and whether it has the name


def test_why_and_graph_know_who_used_a_variable(home: Path) -> None:
    """A variable joins whoever set it with whoever may have used it, not with all that were launched with it."""
    with Session.create("s", home=home) as session:
        a, b, c = (session.run(text).id for text in ("export DB_HOST=1", "true", "echo $DB_HOST"))
        assert session.why("env:DB_HOST").lines == (
            "env:DB_HOST",
            f"  {a} set it to 1",
            f"  {b} was launched with it, and did not use it, as of {a}",
            f"  {c} was launched with it as of {a}",
        )
        assert list(session.graph().edges(keys=True)) == [(a, c, "env:DB_HOST")]


def test_all_that_were_launched_with_it(home: Path) -> None:
    """With env_reads "launch" every action that was launched with the variable runs again; a plan says so with the same reason."""
    with Session.create("s", home=home) as session:
        a, b, c = (session.run(text).id for text in ("export DB_HOST=1", "true", "echo $DB_HOST"))
        change = Replace(a, "export DB_HOST=2")
        lazy, launch = session.plan(change), session.plan(change, policy=Policy(env_reads="launch"))
        assert [step.kind for step in lazy.steps] == ["must_rerun", "keep", "may_rerun"]
        assert [step.kind for step in launch.steps] == ["must_rerun", "may_rerun", "may_rerun"]
        assert [(reason.kind, reason.key, reason.source) for reason in lazy.steps[2].because] == [("launch", "env:DB_HOST", a)]
        assert session.apply(launch).ran == (a, b, c)


def test_a_declared_variable_is_read(home: Path) -> None:
    """An action that declares a variable as its input reads it, whatever stands in its files."""
    history = [act("export DB_HOST=1"), act("true", reads=["env:DB_HOST"]), act("true")]
    assert repaired(home, STAGE, history, {0: act("export DB_HOST=2")}).ran == ("a2", "a3")


def test_an_action_with_a_gap_reads_every_variable(home: Path) -> None:
    """An action whose trace is incomplete counts as having read each variable that differs."""
    stage = act("printf 'int main(void){return 0;}' > n.c")
    gap = "python3 -c 'import ctypes; ctypes.CDLL(None).syscall(9999)'"
    history = [act("export DB_HOST=1"), act(gap), act("true")]
    assert repaired(home, stage, history, {0: act("export DB_HOST=2")}).ran == ("a2", "a3")
