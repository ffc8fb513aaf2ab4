"""The programs of B2 and B8, and the project that they work on. Everything is generated: no download, the same everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY_FILES = 5_000
STORM_FILES = 32_768
PACKAGE_SOURCES = 30


@dataclass(frozen=True, slots=True)
class Work:
    """One program of the table. `bar` is for traced over untraced."""

    name: str
    argv: tuple[str, ...]
    bar: float
    needs: tuple[str, ...] = ()
    reprozip: bool = True  # not of the longest: it takes half a minute for one


def shell(text: str) -> tuple[str, ...]:
    """Shell text as argv."""
    return ("/bin/sh", "-c", text)


PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else os.path.realpath(sys.executable)
BUILD = "tar xf /workspace/package.tar && cd package && ./configure > /dev/null && make {} > /dev/null"

COMPILE, START, STEADY = 1.35, 1.5, 1.03

WORKS = (
    Work("5 x gcc -O2", shell("for i in 1 2 3 4 5; do gcc -O2 -o hello$i hello.c || exit; done"), COMPILE, ("gcc",)),
    Work(
        "5 x python3 -c 'import json, asyncio, http.client, decimal'",
        shell(f"for i in 1 2 3 4 5; do {PYTHON} -c 'import json,asyncio,http.client,decimal' || exit; done"),
        START,
    ),
    Work("find /usr -name '*.h'", shell("find /usr -name '*.h' > /dev/null 2>&1 || true"), START, ("find",)),
    Work(f"git status, {REPOSITORY_FILES} files", ("git", "-C", "repository", "status"), START, ("git",)),
    Work("git log, 50 commits", ("git", "-C", "repository", "log", "--stat"), START, ("git",)),
    Work("unpack, configure, make", shell(BUILD.format("")), COMPILE, ("gcc", "make", "tar"), reprozip=False),
    Work("unpack, configure, make -j2", shell(BUILD.format("-j2")), COMPILE, ("gcc", "make", "tar"), reprozip=False),
    Work("a CPU-bound loop", shell("i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done"), STEADY),
    Work("two CPU-bound threads", (PYTHON, "hash.py"), STEADY),
)
STORM = Work(
    f"{STORM_FILES} files opened by a shell loop", ("bash", "-c", "for f in storm/*; do read -r x < $f; done"), 2.0, ("bash",)
)

HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'
HASH = """\
import hashlib
import threading

data = bytes(1 << 20)


def work() -> None:
    for _ in range(300):
        hashlib.sha256(data).digest()


threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
CONFIGURE = """\
#!/bin/sh
# Tries what a configure script tries: headers, functions, sizes, tools; each by a small program.
set -e
rm -f config.h
try() {
    printf '%s\\n' "$2" > conftest.c
    if gcc -c conftest.c -o conftest.o 2> conftest.log; then echo "#define $1 1" >> config.h; fi
    rm -f conftest.c conftest.o conftest.log
}
for tool in cc gcc ar ranlib install awk sed grep perl; do
    command -v $tool > /dev/null && echo "#define HAVE_TOOL_$tool 1" >> config.h
done
for header in stdio stdlib string unistd fcntl errno signal time locale math wchar nosuch; do
    try HAVE_${header}_H "#include <$header.h>"
done
for function in printf malloc strdup nanosleep; do
    try HAVE_$function "char $function(); int main(void) { return $function(); }"
done
sed "s/@CC@/gcc/" Makefile.in > Makefile
"""
MAKEFILE = """\
CC = @CC@
OBJECTS = {objects}
program: $(OBJECTS)
\t$(CC) -o $@ $(OBJECTS)
%.o: %.c config.h package.h
\t$(CC) -O2 -c -o $@ $<
"""
HEAD = """\
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "config.h"
#include "package.h"
"""
# One of a source file's functions; a file has as many as make it as long as a usual one, some 300 lines.
FUNCTION = """\
struct list_{name} {{
    struct list_{name} *next;
    unsigned weight;
    char text[{size}];
}};

static struct list_{name} *sort_{name}(struct list_{name} *head)
{{
    struct list_{name} *sorted = NULL;
    while (head) {{
        struct list_{name} *next = head->next, **at = &sorted;
        while (*at && (*at)->weight < head->weight)
            at = &(*at)->next;
        head->next = *at;
        *at = head;
        head = next;
    }}
    return sorted;
}}

int {name}(const char *text)
{{
    struct list_{name} *head = NULL, *item;
    int sum = 0;
    for (const char *at = text; *at; at++) {{
        if (!(item = calloc(1, sizeof *item)))
            return -errno;
        switch (*at) {{
        case '0' ... '9': item->weight = (unsigned)(*at - '0') * {size}u; break;
        case 'a' ... 'z': item->weight = (unsigned)*at ^ {size}u; break;
        case '/': snprintf(item->text, sizeof item->text, "%s", at); break;
        default: item->weight = (unsigned)strlen(at) % {size}u;
        }}
        item->next = head;
        head = item;
    }}
    for (head = sort_{name}(head); head; head = item) {{
        item = head->next;
        sum = sum * 31 + (int)head->weight + head->text[0];
        free(head);
    }}
    return sum;
}}

"""
FUNCTIONS = 6


def make_project(folder: Path, *, storm: bool, repository: bool) -> Path:
    """The files that the works need; the many small ones only where they are wanted."""
    folder.mkdir()
    (folder / "hello.c").write_text(HELLO)
    (folder / "hash.py").write_text(HASH)
    _make_package(folder)
    (folder / "storm").mkdir()
    for number in range(STORM_FILES if storm else 0):
        (folder / "storm" / f"f{number:05}").write_text("line\n")
    if repository and shutil.which("git"):
        _make_repository(folder / "repository")
    return folder


def _make_package(folder: Path) -> None:
    package = folder / "package"
    package.mkdir()
    names = [f"part_{number}" for number in range(PACKAGE_SOURCES)]
    parts = [f"{name}_{number}" for name in names for number in range(FUNCTIONS)]
    for name in names:
        text = "".join(FUNCTION.format(name=part, size=64 + len(part)) for part in parts if part.startswith(f"{name}_"))
        (package / f"{name}.c").write_text(HEAD + text)
    (package / "package.h").write_text("".join(f"int {part}(const char *text);\n" for part in parts))
    calls = "".join(f"    {part}(argv[0]);\n" for part in parts)
    (package / "main.c").write_text(
        f'#include "package.h"\nint main(int argc, char **argv)\n{{\n{calls}    return argc - 1;\n}}\n'
    )
    (package / "Makefile.in").write_text(MAKEFILE.format(objects=" ".join(f"{name}.o" for name in [*names, "main"])))
    (package / "configure").write_text(CONFIGURE)
    (package / "configure").chmod(0o755)
    with tarfile.open(folder / "package.tar", "w") as tar:
        tar.add(package, "package")
    shutil.rmtree(package)


def _make_repository(folder: Path) -> None:
    folder.mkdir()
    for number in range(REPOSITORY_FILES):
        file = folder / f"d{number % 50:02}" / f"f{number:04}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{number}\n")
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")

    def git(*argv: str) -> None:
        subprocess.run(["git", *identity, *argv], cwd=folder, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    for number in range(49):
        (folder / "d00" / "f0000.txt").write_text(f"change {number}\n")
        git("commit", "-qam", f"change {number}")
    git("gc", "-q")
