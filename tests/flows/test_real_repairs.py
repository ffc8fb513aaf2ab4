"""Real programs in histories of several actions, one of them changed: the repaired result equals the full re-run, byte for byte.

Left out of the comparison are only bytes that hold a time of the clock: git's stat cache and Python's bytecode, which keeps its
source's mtime (rows 24 and 26 of the repair model).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from twins import act, repaired


class Work(NamedTuple):
    """The programs it takes, how it begins, what is done, and by which action of it is replaced (None: it is dropped)."""

    programs: str
    start: str
    history: list[str]
    changes: list[dict[int, str | None]]
    but: str = "^$"


MAIN = '#include <stdio.h>\\n#include "util.h"\\nint main(void) { printf("%d %d\\\\n", util(), N); return 0; }\\n'
GIT = (
    "export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x GIT_CONFIG_COUNT=1"
    " GIT_CONFIG_KEY_0=gc.auto GIT_CONFIG_VALUE_0=0"
    " GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'"
)
SQL = "/usr/bin/python3 -I -c \"import sqlite3; c = sqlite3.connect('x.db'); print(c.execute('{}').fetchall()); c.commit()\""

WORKS = {
    "python": Work(
        "/usr/bin/python3",
        "printf 'import util\\nprint(util.X)\\n' > main.py",
        [
            "echo 'X = 1' > util.py",
            "/usr/bin/python3 main.py",
            "echo 'X = util = 5' > other.py",
            "/usr/bin/python3 main.py > out; cat out",
            "/usr/bin/python3 -c 'import main, other; print(other.X)'",
            "mkdir pkg; touch pkg/__init__.py; mv other.py pkg; /usr/bin/python3 -c 'import pkg.other, sys; print(pkg.other.util)'",
        ],
        [{0: "echo 'X = 2' > util.py"}, {0: "echo 'X = 1' > util.py; touch util.py"}, {2: "echo 'X = util = 7' > other.py"}],
        r"\.pyc$",
    ),
    "make": Work(
        "gcc make",
        "printf 'prog: main.o util.o\\n\\tgcc -o $@ $^\\nmain.o util.o: util.h\\n' > Makefile; mkdir bak",
        [
            f"printf '{MAIN}' > main.c; printf '#define N 3\\nint util(void);\\n' > util.h",
            "printf '#include \"util.h\"\\nint util(void) { return N; }\\n' > util.c",
            "make -s && ./prog",
            "make; cp prog bak/first",
            "printf '#include \"util.h\"\\nint util(void) { return 7 * N; }\\n' > util.c",
            "make -s && ./prog > out; cat out",
            "touch util.h; make -n | wc -l",
        ],
        [
            {1: "printf '#include \"util.h\"\\nint util(void) { return N + 1; }\\n' > util.c"},
            {0: f"printf '{MAIN}' > main.c; printf '#define N 4\\nint util(void);\\n' > util.h"},
            {4: None},
            {3: "sleep 0.05; make; cp prog bak/second"},
        ],
    ),
    "git": Work(
        "git",
        "true",
        [
            GIT,
            "git init -q -b main repo && cd repo && echo one > a && mkdir d && echo two > d/b && git add . && git commit -qm first",
            "echo more >> a; git status --short; git add a",
            "git commit -qm second; git log --format='%H %s'",
            "git checkout -qb side HEAD~1 && echo side > d/c && git add . && git commit -qm side",
            "git checkout -q main && git merge -q -m merged side && git ls-files -s",
            "git diff --stat HEAD~1; git status --short; cat a d/*; git fsck --no-progress",
        ],
        [
            {2: "echo other >> a; git status --short; git add a"},
            {
                1: "git init -q -b main repo && cd repo && echo one > a && mkdir d && echo 222 > d/b && git add . && git commit -qm first"
            },
            {4: "git checkout -qb side HEAD~1 && echo edis > d/c && git add . && git commit -qm side"},
        ],
        r"/\.git/index$",
    ),
    "sqlite": Work(
        "/usr/bin/python3",
        "true",
        [
            SQL.format("create table t (a, b)"),
            SQL.format("insert into t values (1, 10), (2, 20)"),
            SQL.format("insert into t select a + 2, b * 2 from t"),
            "cp x.db saved.db; ls -1",
            SQL.format("update t set b = b + 1 where a > 2"),
            SQL.format("select sum(a), sum(b) from t"),
        ],
        [
            {1: SQL.format("insert into t values (1, 11), (2, 20)")},
            {4: None},
            {2: SQL.format("insert into t select a + 2, b * 3 from t")},
        ],
    ),
    "tar": Work(
        "tar gzip",
        "mkdir -p src/deep/er; seq 99 > src/n; echo x > src/deep/x; ln -s ../n src/deep/l; ln src/n src/deep/er/h; chmod 700 src/deep",
        [
            "echo 1 > src/version",
            "tar --sort=name --mtime=2020-01-01 --owner=0 --group=0 -czf src.tgz src",
            "mkdir out; tar -xzf src.tgz -C out; find out -printf '%P %y %m %n %l\\n' | sort",
            "rm -r src; mv out/src .; rmdir out; cat src/version",
            "for f in src/*; do [ -f $f ] && wc -c $f; done",
            "tar -tzf src.tgz | sort; cp -a src copy; rm -r copy/deep; ls -R copy",
        ],
        [
            {0: "echo 22 > src/version"},
            {0: "echo 1 > src/version; touch src/deep/new"},
            {0: "echo 1 > src/version; chmod 750 src/deep"},
        ],
    ),
    "shell": Work(
        "grep sed find sort xargs",
        "mkdir -p logs/a logs/b; for i in 1 2 3; do echo line $i ok > logs/a/$i.log; echo line $i bad > logs/b/$i.log; done",
        [
            "echo line 4 ok > logs/a/4.log",
            "grep -rl bad logs | sort > found; wc -l < found",
            "for f in logs/*/*.log; do sed -i 's/line/row/' $f; done; cat logs/a/1.log",
            "find logs -type f -newer found | wc -l; find logs -name '[2-4].log' -print0 | sort -z | xargs -0 cat > all",
            "while read -r what n how; do echo $how $n $what; done < all | sort | uniq -c > table; tail -1 table",
            "cp -r logs kept; rm -rf logs/b; mkdir logs/b; echo logs/*; ls kept/b; diff -r logs kept; true",
            "{ export N=$(wc -l < all); cd kept; } ; pwd; echo $N",
            "ls; echo $N > n",
        ],
        [
            {0: "echo line 4 bad > logs/b/4.log"},
            {0: "echo line 5 ok > logs/a/5.log; rm logs/b/2.log"},
            {1: None},
            {5: "cp -r logs kept; rm -rf logs/a; ls kept/b"},
        ],
    ),
}


@pytest.mark.parametrize(("name", "number"), [(name, n) for name, work in WORKS.items() for n in range(len(work.changes))])
@pytest.mark.timeout(120)
def test_real_repairs(name: str, number: int, home: Path) -> None:
    """After a repair all outputs, hand-offs and files are those of the corrected history run from its start."""
    work = WORKS[name]
    missing = [program for program in work.programs.split() if not shutil.which(program)]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")
    changes = {index: None if text is None else act(text) for index, text in work.changes[number].items()}
    report = repaired(home, act(work.start), [act(text) for text in work.history], changes, but=work.but)
    first = min(changes) + 2
    assert all(int(action[1:]) >= first for action in report.ran)
