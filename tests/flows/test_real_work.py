"""Real programs pass unharmed: what they print and how they exit is the same inside a session as outside."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from mulligan import Session

if TYPE_CHECKING:
    from pathlib import Path

GIT = (
    "export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x"
    " GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z';"
)

WORK = {
    "git": (
        ["git"],
        GIT + "git init -q -b main repo && cd repo && echo one > a && git add a && git commit -qm first && echo two >> a"
        " && git commit -qam second && git log --format='%h %s' && git status --short && git diff HEAD~1 --stat",
    ),
    "venv": (
        ["python3"],
        "python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(6 * 7, sys.prefix != sys.base_prefix)'",
    ),
    "make": (
        ["gcc", "make"],
        ('mkdir src && cd src && for i in 1 2 3 4 5 6; do echo "int f$i(void) { return $i; }" > f$i.c; done'
        " && printf '#include <stdio.h>\\nint f1(void), f6(void);\\nint main(void) { printf(\"%%d\\\\n\", f1() + f6()); return 3; }\\n'"
        " > main.c && printf 'prog: main.o f1.o f2.o f3.o f4.o f5.o f6.o\\n\\t$(CC) -o $@ $^\\n' > Makefile"
        " && make -s -j2 && ./prog"),
    ),
    "sqlite3": (
        ["python3"],
        ("python3 -c \"import sqlite3; c = sqlite3.connect('x.db'); c.execute('pragma journal_mode=wal').fetchall();"
        " c.execute('create table t (a)'); c.executemany('insert into t values (?)', [(i,) for i in range(500)]); c.commit();"
        " print(c.execute('select sum(a), count(*) from t').fetchall())\""),
    ),
    "tar": (
        ["tar", "gzip"],
        ("mkdir -p d/e && seq 1000 > d/n && ln -s n d/l && ln d/n d/e/hard && chmod 640 d/n && tar czf d.tgz d && rm -r d"
        " && tar xzf d.tgz && find d -printf '%P %y %m %l %n\\n' | sort && gzip -k d/n; gunzip -c d/n.gz | md5sum"),
    ),
    "find": (["find"], "mkdir -p a/b c && touch a/1.txt a/b/2.txt c/3.md && find . -name '*.txt' -print0 | sort -z | xargs -0 -n1 echo got"),
    "threads": (
        ["python3"],
        ("python3 -c \"import threading, pathlib\ndef work(i):\n  for k in range(40): pathlib.Path(f'f{i}').open('a').write(str(k))\n"
        "ts = [threading.Thread(target=work, args=(i,)) for i in range(8)]\n[t.start() for t in ts]; [t.join() for t in ts]\n"
        "print(sorted((p.name, p.stat().st_size) for p in pathlib.Path('.').glob('f*')))\""),
    ),
    "substitution": (["bash"], "seq 5 > a; seq 3 8 > b; diff <(sort a) <(sort b); echo $?; cat /dev/fd/3 3< <(echo deep) | tee >(wc -c > n) > /dev/null; wc -l < a"),
    "pipeline": (["bash"], "set -o pipefail; yes | head -1000 | grep -c y; echo ${PIPESTATUS[@]}; exit 7"),
    "signal": (["bash"], "trap 'echo caught; exit 5' TERM; kill -TERM $$; echo not here"),
    "jobs": (["bash"], "(sleep 0.05; echo bg) & echo fg; wait; echo done"),
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
@pytest.mark.timeout(120)
def test_real_work(name: str, shared_home: Path, tmp_path: Path) -> None:
    """A program gives the same output and exit status in a session as outside, and the trace is complete."""
    programs, text = WORK[name]
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")
    with Session.create(f"w-{name}-{os.urandom(4).hex()}", home=shared_home) as session:
        inside = session.run(text)
        env = dict(inside.launch.env) | {"HOME": str(tmp_path)}
        work = tmp_path / "workspace"
        work.mkdir()
        outside = subprocess.run(["bash", "-c", text], cwd=work, env=env, capture_output=True, check=False)
        assert (inside.stdout, inside.exit_code) == (outside.stdout.decode(), outside.returncode), inside.stderr
        assert inside.stderr == outside.stderr.decode()
        assert inside.footprint.complete, inside.footprint.incomplete_because
