"""Where a variable's name counts as standing in a file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import marshal
import os
import re
import shutil
import subprocess
import zipfile
import zlib
from pathlib import Path

import pytest

from mulligan.repair.envreads import ALWAYS_READ
from mulligan.sandbox import mentions as module
from mulligan.sandbox.mentions import Names, lists_all, mentions


def found(data: bytes, path: str = "/w/x", name: str = "DB_HOST", *, of_host: bool = False) -> bool:
    """Whether a file of this content may mention the name."""
    return mentions(io.BytesIO(data), path, Names(name), of_host=of_host)


@pytest.mark.parametrize(
    "text", [b"DB_HOST", b"echo $DB_HOST\n", b"${DB_HOST:-x}", b"-DDB_HOST -D DB_HOST=1", b"DB_HOST_NAME DB_HOST"]
)
def test_a_whole_word_of_a_text(text: bytes) -> None:
    """A name counts where it stands as a word of its own."""
    assert found(text)


@pytest.mark.parametrize("text", [b"", b"db_host", b"DB_HOST_NAME", b"MY_DB_HOST", b"DB_HOST2", b"DBHOST", b"DB_NAME my_HOST"])
def test_no_part_of_a_longer_word(text: bytes) -> None:
    """A longer identifier is another name, and so is another case."""
    assert not found(text)
    assert not found(b"DB_HOST", name="DB_HOST_NAME")


@pytest.mark.parametrize("text", [b"echo DB_$x", b'"DB_" + x', b"${x}_HOST", b'getenv(sprintf("%s_HOST"))', b"f'DB_{x}'"])
def test_parts_of_a_name(text: bytes) -> None:
    """A name that is put together at an underscore has a part that stands alone."""
    assert found(text)


@pytest.mark.parametrize(
    "data", [b"\0LD_DB_HOST\0", b"\0aDB_HOSTz", b"\0DB_\0", b"\0DB_%s\0", b"\0%s_HOST\0", b"\0" + marshal.dumps("DB_")]
)
def test_anywhere_in_a_binary(data: bytes) -> None:
    """In a binary strings lie in each other and next to each other, so the bytes alone count."""
    assert found(data)
    assert not found(b"\0DB_NAME\0HOST\0")


def test_python_spells_otherwise() -> None:
    """A field db_host of a Python program may be the variable DB_HOST."""
    assert found(b"class S(BaseSettings):\n    db_host: str\n", "/w/s.py")
    assert found(b"\0\xfa\x07db_hostz", "/w/s.cpython-312.pyc")
    assert not found(b"db_hosts", "/w/s.py")


def _zipped(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", data)
    return out.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zlib.compress, _zipped], ids=lambda f: f.__name__)
def test_what_is_compressed_is_unpacked(pack) -> None:
    """A name in a compressed file counts, another name does not; two parts of gzip in a row are both seen."""
    assert found(pack(b"x" * 5000 + b" DB_HOST " + b"y" * 5000))
    assert not found(pack(b"x" * 5000 + b" DB_NAME " + b"y" * 5000))
    assert found(gzip.compress(b"none") + gzip.compress(b" DB_HOST "))


@pytest.mark.parametrize(
    "data",
    [
        b"\x28\xb5\x2f\xfd....",
        b"PK\x03\x04 broken",
        b"\x1f\x8b broken",
        "DB_X".encode("utf-16"),
        _zipped(gzip.compress(b"x")),
        b"#!/bin/sh\ntail -n +3 $0 | gzip -cd > t\n\x1f\x8b\0",
    ],
)
def test_what_cannot_be_unpacked_mentions_everything(data: bytes) -> None:
    """In doubt a file mentions every name."""
    assert found(data)


def test_too_much_to_unpack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that grows beyond all measure counts as mentioning every name."""
    monkeypatch.setattr(module, "MOST_UNPACKED", 1000)
    assert found(gzip.compress(b"x" * 2000))


def test_a_binary_behind_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the first NUL byte is a binary, also when a text stands before it in a chunk of its own."""
    monkeypatch.setattr(module, "CHUNK", 16)
    assert found(b"# 16 bytes text\n" + b"\0\0\0\0aDB_HOSTz\0\0\0")
    assert not found(b"# 16 bytes text\n" + b"....aDB_HOSTz...")


def test_a_name_across_two_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that lies across a chunk's end is found."""
    monkeypatch.setattr(module, "CHUNK", 16)
    for shift in range(40):
        assert found(b" " * shift + b"DB_HOST" + b" " * 30)
        assert found(b"\0" * 20 + b"." * shift + b"DB_HOST")


LIBC = "LANGUAGE LC_ALL LANG TZ TZDIR TMPDIR LOCPATH NLSPATH HOSTALIASES LOCALDOMAIN RES_OPTIONS GCONV_PATH POSIXLY_CORRECT"
LOADER = "LD_LIBRARY_PATH LD_PRELOAD LD_BIND_NOW LD_DEBUG LD_AUDIT GLIBC_TUNABLES"
BASH = """BASH_ENV CDPATH COLUMNS FIGNORE FUNCNEST GLOBIGNORE HISTCONTROL HISTFILE HISTSIZE HISTIGNORE HISTTIMEFORMAT HOSTFILE IFS IGNOREEOF
    INPUTRC LINES MAIL MAILCHECK MAILPATH OPTERR OPTIND PATH POSIXLY_CORRECT PROMPT_COMMAND PROMPT_DIRTRIM PS4 TIMEFORMAT TMOUT TMPDIR
    EXECIGNORE COMP_WORDBREAKS COMPREPLY BASH_XTRACEFD BASH_COMPAT CHILD_MAX HOME LANG LC_COLLATE LC_NUMERIC HISTFILESIZE EMACS
    INSIDE_EMACS TERM SHELLOPTS BASHOPTS HOSTNAME OSTYPE MACHTYPE UID EUID PPID RANDOM SECONDS DIRSTACK PIPESTATUS GROUPS LINENO"""
DASH = "PATH IFS PS1 PS2 PS4 OPTIND MAIL MAILPATH HOME PWD OLDPWD ENV PPID CDPATH"


@pytest.mark.parametrize(
    ("program", "known"), [("bash", BASH), ("dash", DASH), ("libc.so.6", LIBC), ("ld-linux-x86-64.so.2", LOADER)]
)
def test_known_programs_hold_their_names_as_whole_words(program: str, known: str) -> None:
    """The few programs that are held to whole words have all names that they are documented to use as such, or they always count."""
    path = shutil.which(program) or _library(program)
    if path is None:
        pytest.skip(f"there is no {program}")
    data = Path(path).read_bytes()
    names = [name for name in known.split() if not ALWAYS_READ.fullmatch(name)]
    assert [name for name in names if not found(data, f"/usr/bin/{program}", name, of_host=True)] == []
    assert not found(data, f"/usr/bin/{program}", "DB_HOST", of_host=True)


def _library(name: str) -> str | None:
    if shutil.which("ldd") is None:
        return None
    told = subprocess.run(["ldd", shutil.which("bash") or "/bin/sh"], capture_output=True, text=True, check=False).stdout
    at = re.search(rf"(/\S*{re.escape(name)})", told)
    return at[1] if at is not None and os.path.exists(at[1]) else None


def test_programs_of_the_state_that_list() -> None:
    """A compiled program of the state that refers to the whole environment lists it; the host's own are known by name."""
    assert lists_all(io.BytesIO(b"\x7fELF\0\0environ\0"), "/w/a.out", of_host=False)
    assert lists_all(io.BytesIO(b"\x7fELF\0\0syscall.Environ\0"), "/w/a.out", of_host=False)
    assert not lists_all(io.BytesIO(b"\x7fELF\0\0getenv\0environment"), "/w/a.out", of_host=False)
    assert not lists_all(io.BytesIO(b"\x7fELF\0\0environ\0"), "/usr/bin/x", of_host=True)
    assert lists_all(io.BytesIO(b"eval x"), "/w/lib", of_host=False)
    assert lists_all(io.BytesIO(b"#!/bin/sh\neval x"), "/usr/bin/x", of_host=True)
    assert not lists_all(io.BytesIO(b"eval x"), "/usr/share/x", of_host=True)
