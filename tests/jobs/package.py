"""Job: a C package of more than 50 files is unpacked, patched, configured, built, tested and packed, in 25 actions.

Its first patch is wrong: it "corrects" the polynomial of the CRC, so that checks fail. What a correction must run again is
written down per fix: `make` looks at the time of every source it knows, so each `make` of what was built from the file runs
again; what only reads what comes out of it is cut off where that is the same.
"""

from __future__ import annotations

import tarfile
from io import BytesIO
from typing import TYPE_CHECKING

from . import Fix, Job
from .sources import MODULES

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURE = """\
#!/bin/sh
# Finds out what this system has, and writes config.h and Makefile.
prefix=/usr/local flags=-O1
for option; do
    case $option in
    --prefix=*) prefix=${option#*=} ;;
    --enable-debug) flags="-O0 -DTALLY_DEBUG" ;;
    *) echo "configure: unknown option $option" >&2; exit 2 ;;
    esac
done
source=$(dirname "$0")
: > config.log
echo "/* Made by configure. */" > config.new
try() { # try NAME TEXT: whether TEXT compiles
    printf 'checking for %s... ' "$1"
    echo "$2" > conftest.c
    if cc -Werror -c conftest.c -o conftest.o 2>> config.log; then
        echo yes
        echo "#define HAVE_$1 1" >> config.new
    else
        echo no
    fi
    rm -f conftest.c conftest.o
}
for tool in cc ar awk sed; do
    printf 'checking for %s... ' $tool
    command -v $tool || { echo "configure: there is no $tool" >&2; exit 1; }
done
try STDINT_H '#include <stdint.h>'
try STRLCPY '#include <string.h>
void f(char *p) { strlcpy(p, p, 1); }'
try POPCOUNT 'int f(unsigned n) { return __builtin_popcount(n); }'
try NO_SUCH_H '#include <no/such.h>'
echo '#define CRC_POLYNOMIAL 0xedb88320u' >> config.new
mv config.new config.h
sed -e "s|@prefix@|$prefix|" -e "s|@flags@|$flags|" -e "s|@source@|$source|" "$source/Makefile.in" > Makefile
echo "configured for $prefix"
"""
MAKEFILE = """\
prefix = @prefix@
S = @source@
COMPILE = @mkdir -p $(@D) && cc @flags@ -Wall -I. -I$S/include -MMD -c -o $@ $< && echo "cc $<"
NAMES = {names}
OBJECTS = $(NAMES:%=src/%.o)
CHECKS = $(NAMES:%=tests/%.o) tests/main.o

all: libtally.a tally
libtally.a: $(OBJECTS)
\trm -f $@
\tar rcD $@ $(OBJECTS)
tally: src/tool.o libtally.a
\tcc -o $@ src/tool.o libtally.a
tests/run: $(CHECKS) libtally.a
\tcc -o $@ $(CHECKS) libtally.a
bench/bench: bench/bench.o libtally.a
\tcc -o $@ bench/bench.o libtally.a
src/%.o: $S/src/%.c config.h
\t$(COMPILE)
tests/%.o: $S/tests/%.c config.h
\t$(COMPILE)
bench/%.o: $S/bench/%.c config.h
\t$(COMPILE)
check: tests/run
\ttests/run
bench: bench/bench
\tbench/bench
docs: docs/reference.md
docs/reference.md: $(NAMES:%=$S/include/tally/%.h) $S/docs/intro.md
\tawk -f $S/docs/extract.awk $S/docs/intro.md $(NAMES:%=$S/include/tally/%.h) > $@
install: all docs
\tmkdir -p $(DESTDIR)$(prefix)/bin $(DESTDIR)$(prefix)/lib $(DESTDIR)$(prefix)/include/tally $(DESTDIR)$(prefix)/share/doc/tally
\tinstall -m 755 tally $(DESTDIR)$(prefix)/bin
\tinstall -m 644 libtally.a $(DESTDIR)$(prefix)/lib
\tinstall -m 644 $S/include/tally/*.h $(DESTDIR)$(prefix)/include/tally
\tinstall -m 644 docs/reference.md $(DESTDIR)$(prefix)/share/doc/tally
.PHONY: all check bench docs install
-include $(OBJECTS:.o=.d) $(CHECKS:.o=.d) src/tool.d bench/bench.d
"""
SOURCE = """\
/* {name}.c */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "config.h"
#include "tally/{name}.h"
{includes}
/* {says} */
{declares}
{{
\t{code}
}}
"""
HEADER = """\
#ifndef TALLY_{upper}_H
#define TALLY_{upper}_H

/** {says} */
{declares};

#endif
"""
CHECK = """\
/* The checks of {name}. */
#include <string.h>
#include "check.h"
#include "tally/{name}.h"

void check_{name}(void)
{{
{checks}}}
"""
CHECK_H = """\
#include <stdio.h>
extern int checks_done, checks_failed;
#define CHECK(what) (checks_done++, (what) ? (void)0 : (void)(checks_failed++, printf("failed: %s\\n", #what)))
"""
RUNNER = """\
#include "check.h"
int checks_done, checks_failed;
{declared}
int main(void)
{{
{called}\tprintf("%d checks, %d failed\\n", checks_done, checks_failed);
\treturn checks_failed != 0;
}}
"""
TOOL = """\
/* tally: the library's functions for the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tally/crc.h"
#include "tally/prime.h"
#include "tally/roman.h"
#include "tally/words.h"

int main(int argc, char **argv)
{
\tchar out[64];
\tfor (int i = 1; i + 1 < argc; i += 2) {
\t\tif (!strcmp(argv[i], "crc"))
\t\t\tprintf("%08x\\n", tally_crc(argv[i + 1]));
\t\telse if (!strcmp(argv[i], "prime"))
\t\t\tputs(tally_prime(strtoul(argv[i + 1], 0, 10)) ? "yes" : "no");
\t\telse if (!strcmp(argv[i], "roman"))
\t\t\tputs(tally_roman((unsigned)atoi(argv[i + 1]), out));
\t\telse if (!strcmp(argv[i], "words"))
\t\t\tprintf("%d\\n", tally_words(argv[i + 1]));
\t\telse
\t\t\treturn 2;
\t}
\treturn argc < 3;
}
"""
BENCH = """\
/* Does some of everything, and says what came of it. No times: they would differ. */
#include <stdio.h>
#include "tally/bits.h"
#include "tally/lcm.h"
#include "tally/prime.h"
#include "tally/steps.h"

int main(void)
{
\tunsigned long sum = 0;
\tfor (unsigned long n = 1; n < 20000; n++)
\t\tsum += (unsigned long)(tally_prime(n) + tally_bits(n) + tally_steps(n)) + tally_lcm(n, 360) % 7;
\tprintf("%lu\\n", sum);
\treturn 0;
}
"""
SUITE = """\
#!/bin/sh
# Tries the tool as a user would.
failed=0
expect() { # expect WHAT COMMAND...: what the command must print
    want=$1; shift
    got=$("$@") || true
    if [ "$got" = "$want" ]; then echo "ok: $*"; else echo "NOT OK: $*: $got, not $want"; failed=1; fi
}
expect cbf43926 ./tally crc 123456789
expect yes ./tally prime 97
expect no ./tally prime 91
expect MMXXIV ./tally roman 2024
expect 3 ./tally words 'one two three'
./tally nonsense x; [ $? = 2 ] && echo "ok: what is unknown is refused"
exit $failed
"""
EXTRACT = """\
FNR == NR { print; next }
/^\\/\\*\\* / { sub(/^\\/\\*\\* /, ""); sub(/ \\*\\/$/, ""); says = $0; next }
says { sub(/;$/, ""); print "- `" $0 "`: " says; says = "" }
"""

CLEAN = "sed -i 's/CRC_POLYNOMIAL/{}/' src/crc.c"
WRONG, RIGHT = CLEAN.format("0x04c11db7u"), CLEAN.format("0xedb88320u")
REMARK = "sed -i -e 's/CRC_POLYNOMIAL/0xedb88320u/' -e 's/The CRC-32 of a text/The CRC-32 of a text, reflected/' src/crc.c"

ACTIONS = (
    "tar -xf tally-1.0.tar; cd tally-1.0",
    WRONG,
    "sed -i 's/int count = 0, inside/unsigned count = 0, inside/; s/return count/return (int)count/' src/words.c",
    "./configure --prefix=/usr",
    "make libtally.a",
    "make tally",
    "make check",
    "sh tests/suite.sh",
    "sed -i 's/%d%c/%d:%c/' src/runs.c; sed -i 's/3a1b/3:a1:b/' tests/runs.c",
    "make check",
    "make bench",
    "make docs; wc -l docs/reference.md",
    "make install DESTDIR=$PWD/stage",
    "find stage -printf '%P %y %m %s\\n' | sort > contents.txt; wc -l < contents.txt",
    "size -t libtally.a > size.txt; tail -1 size.txt",
    "nm -g --defined-only libtally.a | awk 'NF == 3 {print $3}' | sort > symbols.txt; cat symbols.txt",
    "cat include/tally/*.h | grep -o 'tally_[a-z]*' | sort > declared.txt; diff declared.txt symbols.txt && echo 'all are there'",
    "wc -l src/*.c include/tally/*.h tests/*.c | sort -n > lines.txt; tail -1 lines.txt",
    "grep -nE '.{150,}' src/*.c > long.txt; wc -l < long.txt",
    "{ echo 'Changes in 1.1:'; echo '- runs have a colon'; } > NEWS; cat NEWS",
    "mkdir -p debug && cd debug && ../configure --enable-debug > configure.out && make src/crc.o src/runs.o > make.out; cd ..; wc -l debug/make.out",
    "size src/crc.o src/runs.o debug/src/*.o > sizes.txt; cut -f 1-3,6 sizes.txt",
    "tar -cf tally-bin.tar --sort=name --mtime=@0 --owner=0 --group=0 stage; gzip -nf tally-bin.tar",
    "sha256sum tally libtally.a docs/reference.md tally-bin.tar.gz > SUMS; cat SUMS",
    "{ cat NEWS; echo; cut -c 1-12,65- SUMS; tail -1 lines.txt; } > RELEASE; cat RELEASE",
)


def make_package(folder: Path) -> int:
    """Write the package's archive into the folder; gives the number of its files."""
    files = package_files()
    with tarfile.open(folder / "tally-1.0.tar", "w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"tally-1.0/{name}")
            data = text.encode()
            info.size, info.mtime = len(data), 1_700_000_000
            info.mode = 0o755 if name == "configure" else 0o644
            tar.addfile(info, BytesIO(data))
    return len(files)


def package_files() -> dict[str, str]:
    """The package's files by their names."""
    files = {
        "configure": CONFIGURE,
        "Makefile.in": MAKEFILE.format(names=" ".join(MODULES)),
        "docs/intro.md": "# Tally\n\nSmall functions for numbers and texts.\n\n",
        "docs/extract.awk": EXTRACT,
        "src/tool.c": TOOL,
        "bench/bench.c": BENCH,
        "tests/check.h": CHECK_H,
        "tests/suite.sh": SUITE,
        "tests/main.c": RUNNER.format(
            declared="\n".join(f"void check_{name}(void);" for name in MODULES),
            called="".join(f"\tcheck_{name}();\n" for name in MODULES),
        ),
    }
    for name, module in MODULES.items():
        told = {**module._asdict(), "name": name, "upper": name.upper()}
        told["includes"] = "".join(f'#include "tally/{other}.h"\n' for other in module.includes.split())
        told["checks"] = "".join(f"\tCHECK({check});\n" for check in module.checks)
        files[f"src/{name}.c"] = SOURCE.format_map(told)
        files[f"include/tally/{name}.h"] = HEADER.format_map(told)
        files[f"tests/{name}.c"] = CHECK.format_map(told)
    return files


PACKAGE = Job(
    "C package",
    ("gcc", "make", "tar", "gzip", "awk", "nm", "size"),
    make_package,
    ACTIONS,
    (
        Fix(
            "the wrong patch is replaced",
            (2, 5, 6, 7, 8, 10, 11, 13, 14, 15, 16, 18, 19, 21, 22, 23, 24, 25),
            {2: RIGHT},
            cut_off=(12, 17),
        ),
        Fix(
            "only a remark in a source file",
            (2, 5, 6, 7, 10, 11, 13, 18, 19, 21),
            {2: REMARK},
            cut_off=(8, 12, 14, 15, 16, 17, 22, 23, 24, 25),
        ),
        Fix(
            "a later patch is replaced",
            (9, 10, 11, 13, 14, 15, 16, 18, 19, 21, 22, 23, 24, 25),
            {9: "sed -i 's/%d%c/%d-%c/' src/runs.c; sed -i 's/3a1b/3-a1-b/' tests/runs.c"},
            cut_off=(12, 17),
            compared=False,
        ),
        Fix("a report is dropped", (25,), dropped=(18,)),
    ),
)
