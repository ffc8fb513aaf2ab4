"""Listings: whether a text may use a variable whose name stands nowhere in it: by listing all, or by computing a name.

Knows scripts by their names and first lines; pure. `lists_variables` answers yes in doubt, and has to be asked only of what may
be a script: of data, of compiled languages' sources and of manuals it says no, since nobody runs those.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_LITERAL: Final = rb"""\s*["'][^"'$%{}]*["']\s*[\]),]"""  # a whole argument or index that is a plain string

_SHELL: Final = re.compile(
    rb"""
      (?:^|[;&|({`]|\b(?:then|do|else|time|command|builtin)\s)\s*
          (?:set|export|readonly|declare|typeset|local|env|printenv)[ \t]*(?:$|[;&|)}`<>\#])        # alone, they list
    | \b(?:export|readonly|declare|typeset|local)\s+-[a-zA-Z]*[pxng]                                # with flags, too
    | (?<![\w-])(?:export|readonly|declare|typeset|local|unset|read)\s+(?:-\w+\s+)*\w*["']?[$`]               # a computed name
    | \b(?:eval|compgen|typeset|envsubst|nameref)\b | \$\{! | \$\{\( | \bprintf\s+-v\b
    | (?:\btest|\[)\s+-v\s+["']?\$
    | \|\s*(?:/\S*/)?(?:ba|da|k|z|a)?sh\b | (?:\bsource|(?:^|[;&|]\s*)\.)\s+(?:<\(|/dev/|/proc/|-) | \bbase64\b
    | \benviron\b
    """,
    re.VERBOSE | re.MULTILINE,
)
_PYTHON: Final = re.compile(
    rb"\benvironb?\b(?!\s*(?:\[|\.\s*(?:get|pop|setdefault)\s*\()" + _LITERAL + rb")"
    rb"|\bgetenvb?\b(?!\s*\(" + _LITERAL + rb")|\bexpandvars\b"
)
_PERL: Final = re.compile(rb"[%@](?:main)?(?:::)?ENV\b|\$(?:main::|::)?ENV\s*\{(?!\s*[\"']?\w+[\"']?\s*\})")
_NODE: Final = re.compile(
    rb"\benv\b[^\n]*\bfrom\s*[\"'](?:node:)?process|\bprocess\s*\[|require\([\"'](?:node:)?process"
    rb"|\bprocess\s*\??\.\s*env\b(?!\s*(?:\??\.\s*[A-Za-z_$]|(?:\?\.)?\[" + _LITERAL + rb"))"
)
_RUBY: Final = re.compile(
    rb"""\bENV\b(?!\s*(?:\[|\.(?:fetch|key\?|include\?|has_key\?)\s*\(?)\s*["'][^"'\#]*["']\s*[\]),\s])"""
)
_AWK: Final = re.compile(rb"\bENVIRON\b(?!\s*\[\s*\"\w+\"\s*\])")
_PHP: Final = re.compile(rb"\$_(?:ENV|SERVER)\b(?!\s*\[" + _LITERAL + rb")|\bphpinfo\b|\bgetenv\s*\((?!" + _LITERAL + rb")")
_MAKE: Final = re.compile(rb"\.VARIABLES\b|\$[({](?:value|origin|flavor|eval)\b|\$[({]call\s+\$|\$[({]\$|\$[({][\w]*\$[({]")
_OTHER: Final = re.compile(
    rb"\benviron\b|\bgetenv\b(?!\s*\(?" + _LITERAL + rb")|\bgetAll?Env|\bEnv(?:ironment)?\s*\(\s*\)", re.IGNORECASE
)

_JQ: Final = re.compile(rb"\benv\b|\$ENV\b(?!\s*\.\s*\w)")
_TCL: Final = re.compile(rb"\benv\s*\(\s*[\$\[]|\b(?:array|parray)\b[^\n;]*\benv\b")

_EVERY: Final = (_SHELL, _PYTHON, _PERL, _NODE, _AWK)  # of which an argument of a program may be one
_BY_SUFFIX: Final[dict[str, tuple[re.Pattern[bytes], ...]]] = {
    **dict.fromkeys(("sh", "bash", "zsh", "ksh", "dash", "bats", "env"), (_SHELL,)),
    **dict.fromkeys(("py", "pyw", "pth", "ipynb"), (_PYTHON,)),
    **dict.fromkeys(("pl", "pm", "t"), (_PERL,)),
    **dict.fromkeys(("js", "mjs", "cjs", "ts", "mts", "cts", "jsx", "tsx"), (_NODE,)),
    **dict.fromkeys(("rb", "gemspec", "rake"), (_RUBY,)),
    **dict.fromkeys(("awk", "gawk"), (_AWK,)),
    "php": (_PHP,),
    **dict.fromkeys(("mk", "mak", "make"), (_MAKE, _SHELL)),
    "jq": (_JQ,),
    **dict.fromkeys(("tcl", "exp", "tk"), (_TCL,)),
    **dict.fromkeys(("lua", "r", "jl", "ex", "exs", "clj", "lisp", "el", "scm", "hs", "cmake"), (_OTHER,)),
}  # fmt: skip
_BY_PROGRAM: Final = (
    (re.compile(rb"python|pypy"), (_PYTHON,)),
    (re.compile(rb"perl"), (_PERL,)),
    (re.compile(rb"node|deno|bun|tsx"), (_NODE,)),
    (re.compile(rb"ruby|rake"), (_RUBY,)),
    (re.compile(rb"awk"), (_AWK,)),
    (re.compile(rb"php"), (_PHP,)),
    (re.compile(rb"tclsh|wish|expect"), (_TCL,)),
    (re.compile(rb"make"), (_MAKE, _SHELL)),
    (re.compile(rb"sh\b|bats"), (_SHELL,)),
)
_NO_SCRIPT: Final = frozenset(
    (
        "c", "h", "cc", "cpp", "cxx", "hh", "hpp", "hxx", "inl", "s", "asm", "go", "rs", "java",
        "kt", "swift", "d", "zig", "f", "f90", "o", "a", "so", "pyi", "md", "rst", "txt", "html",
        "htm", "css", "svg", "xml", "json", "yaml", "yml", "toml", "csv", "tsv", "ini", "cfg", "lock", "log",
        "tex", "bib", "po", "pot", "map", "diff", "patch",
    )
)  # fmt: skip
_LIKE_CASES: Final = frozenset(("py", "pyc", "pyw", "ipynb"))
_WORD: Final = re.compile(rb"[\w./:=,@+~-]*")
_COMMANDS: Final = frozenset(
    (b"set", b"export", b"readonly", b"declare", b"typeset", b"local", b"eval", b"compgen", b"nameref")
)
_BOXES: Final = frozenset(("busybox", "toybox", "coreutils"))
_TELLING: Final = frozenset(("env", "printenv"))
_QUERIES: Final = frozenset(("jq", "gojq", "jaq", "yq"))
# Their programs can't be looked into, or they keep the whole environment for later.
_MANAGED: Final = frozenset(("java", "dotnet", "mono", "mono-sgen", "beam.smp", "pwsh", "at", "batch", "tmux", "screen"))


def lists_variables(text: bytes, name: str) -> bool:
    """Whether a script of this file name may list variables, or use one whose name it computes."""
    return any(pattern.search(text) for pattern in _patterns(text, name))


def text_lists_variables(text: bytes) -> bool:
    """The same of a shell text, of standard input, or of an argument, which may be a program in many a language."""
    return any(pattern.search(text) for pattern in _EVERY)


def ignores_case(name: str) -> bool:
    """Whether programs of this kind are wont to read a variable by another spelling (pydantic: `db_host` for DB_HOST)."""
    return _suffix(name) in _LIKE_CASES


def program_lists(path: str, argv: Sequence[bytes]) -> str:
    """Why a program that was started with these arguments may have seen all variables; empty when it was not so."""
    names = [path, *(word.decode("utf-8", "replace") for word in argv[:2])]
    program, called = (_base(name) for name in (names * 2)[:2])
    rest = list(argv[1:])
    if program in _BOXES or called in _BOXES:
        if called in _BOXES:
            called, rest = (_base(names[2]), rest[1:]) if rest else ("", [])
        program = called
    if program in _MANAGED:
        return f"{program} ran"
    for one in (program, called):
        if one in _TELLING and not _goes_on(rest, by_name=one == "printenv"):
            return f"{one} ran"
    if program in _QUERIES and any(_JQ.search(word) for word in argv[1:]):
        return f"{program} may list them"
    for word in argv[1:]:
        if not (_WORD.fullmatch(word) and _is_harmless(word)) and text_lists_variables(word):
            return f"an argument of {called or program} may list them"
    return ""


def _is_harmless(word: bytes) -> bool:
    """Whether one word is no program that lists variables: there may be very many, such as names of files."""
    return b"env" not in word and b"ENV" not in word and word not in _COMMANDS


def _goes_on(words: list[bytes], *, by_name: bool) -> bool:
    """Whether env(1) starts a program, or printenv(1) is asked for certain names: then it lists nothing."""
    plain = [word for word in words if not word.startswith(b"-")]
    return bool(plain) if by_name else any(b"=" not in word for word in plain) or any(w.startswith(b"-S") for w in words)


def _patterns(text: bytes, name: str) -> tuple[re.Pattern[bytes], ...]:
    found = _BY_SUFFIX.get(_suffix(name))
    if found is not None:
        return found
    if text.startswith(b"#!"):
        line = text[: text.find(b"\n")] if b"\n" in text[:256] else text[:256]
        for program, patterns in _BY_PROGRAM:
            if program.search(line):
                return patterns
        return (_OTHER, _SHELL)
    if "makefile" in _base(name).lower():
        return (_MAKE, _SHELL)
    return () if _suffix(name) in _NO_SCRIPT else (_SHELL, _OTHER)


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _suffix(path: str) -> str:
    stem, dot, suffix = _base(path).rpartition(".")
    return suffix.lower() if dot and stem else ""
