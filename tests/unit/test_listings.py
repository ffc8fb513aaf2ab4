"""Which texts may use a variable whose name does not stand in them."""

from __future__ import annotations

import pytest

from mulligan.model.listings import ignores_case, lists_variables, program_lists, text_lists_variables

LISTING = {
    "a.sh": [
        "set", "a; set | sort", "x=$(set)", "if true; then set; fi", "export", "export -p", "declare -p", "declare -px A", "typeset -x",
        "compgen -e", "echo ${!x}", 'eval "$line"', 'export "$k=$v"', "export A_$k=1", 'read -r "$k"', 'printf -v "$k" 1', "echo a | sh",
        "cat x |bash", ". /dev/stdin", "source <(make_it)", '[ -v "$k" ]', "cat /proc/self/environ", "declare -n r=$k", 'unset "$k"',
    ],
    "a.py": ["os.environ.items()", "dict(os.environ)", "os.environ[name]", "os.getenv(name)", "os.environ['A' + x]", "os.environ[f'A{x}']", "os.environb"],
    "a.pl": ["print %ENV", "$ENV{$x}", '$ENV{"A_$x"}', "keys %main::ENV"],
    "a.js": ["console.log(process.env)", "process.env[name]", "const {A} = process.env", "import {env} from 'node:process'"],
    "a.rb": ["ENV.each", "ENV[name]", "ENV.to_h"],
    "a.awk": ["for (k in ENVIRON) print k", "ENVIRON[x]"],
    "a.php": ["$_ENV", "getenv()", "getenv($x)", "phpinfo();"],
    "Makefile": ["$(foreach v,$(.VARIABLES),$(v))", "$(value $(x))", "$($(x)_HOST)", "all:\n\tset"],
    "a.tcl": ["puts $env($x)", "foreach k [array names env] {}"], "a.jq": ["env | keys", "$ENV"],
    "conf": ["eval x", "set"],
}  # fmt: skip
PLAIN = {
    "a.sh": [
        "set -eu", "set -- a b", "export A=1", "export A", "declare -A map=()", "local x=$1", 'read -r x <<< "$y"', "printf '%s' x", "echo x | sha256sum",
        "unset A", '[ -n "$A" ]', "settle", "offset=1", 'pyenv-read "$X"', "source ./lib.sh", "env A=1 prog",
    ],
    "a.py": ["os.environ['A']", "os.environ.get('A', 1)", 'os.getenv("A")', "os.environ.setdefault('A', '1')", "x = set()"],
    "a.pl": ["$ENV{HOME}", "$ENV{'A'}", "eval { die }"],
    "a.js": ["process.env.A", "process.env['A']", "process.env?.A"],
    "a.rb": ["ENV['A']", "ENV.fetch('A', 1)"],
    "a.awk": ['ENVIRON["A"]'],
    "a.php": ["getenv('A')", "$_ENV['A']"],
    "a.tcl": ["puts $env(A)"], "a.jq": ["$ENV.A"],
    "Makefile": ["all: $(OBJS)\n\techo $(DB_HOST)"],
    "a.c": ["char *x = getenv(name); extern char **environ;"], "a.md": ["eval"], "a.csv": ["set"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in LISTING.items() for text in texts])
def test_what_lists_or_computes(name: str, text: str) -> None:
    """A script that lists variables, or puts a name together, may use any of them."""
    assert lists_variables(text.encode(), name)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in PLAIN.items() for text in texts])
def test_what_names_its_variables(name: str, text: str) -> None:
    """A script that only uses variables by their written names lists none; nor does what nobody runs."""
    assert not lists_variables(text.encode(), name)


def test_a_script_is_known_by_its_first_line() -> None:
    """Without a telling name the first line says which language it is."""
    assert lists_variables(b"#!/usr/bin/env python3\nprint(os.environ)", "tool")
    assert not lists_variables(b"#!/usr/bin/perl\neval { die };", "tool")
    assert lists_variables(b"#!/bin/sh\neval x", "tool")
    assert not lists_variables(b"#!/usr/bin/env python3\neval('1')", "tool")


def test_arguments_may_be_programs() -> None:
    """A text of no known language is held against the ways of several."""
    assert text_lists_variables(b"import os; print(os.environ)")
    assert text_lists_variables(b"BEGIN { for (k in ENVIRON) print k }")
    assert not text_lists_variables(b"{print $1}")


@pytest.mark.parametrize(
    "told",
    [
        "yes env", "yes env -i", "yes env A=1", "no env A=1 true", "no env -Sab", "yes printenv", "no printenv A", "yes printenv -0",
        "yes busybox env", "no busybox ls", "yes java -jar x.jar", "yes sh -c set", "no sh -c true", "no cat x", "yes jq -n env", "yes jq -n $ENV",
        "no jq -n $ENV.A", "no jq .a", "yes node -p process.env",
        "yes sh -c export", "no cat offset.env.sh", "no tar -x set.c",
    ],
)  # fmt: skip
def test_programs_that_list(told: str) -> None:
    """env(1) and printenv(1) list when they are given nothing else to do; some runtimes' programs can't be looked into."""
    answer, *argv = told.split()
    assert bool(program_lists(f"/usr/bin/{argv[0]}", [word.encode() for word in argv])) == (answer == "yes")


def test_one_program_under_many_names() -> None:
    """A multi-call program is known by the name that it was called by."""
    assert program_lists("/bin/busybox", [b"env"])
    assert program_lists("/usr/bin/coreutils", [b"printenv"])
    assert not program_lists("/bin/busybox", [b"ls"])


def test_languages_with_other_spellings() -> None:
    """Python's settings libraries read DB_HOST for a field db_host."""
    assert ignores_case("/w/settings.py")
    assert ignores_case("/w/__pycache__/settings.cpython-312.pyc")
    assert not ignores_case("/w/run.sh")
