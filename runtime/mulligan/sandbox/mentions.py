"""Mentions: whether a file holds the name of a variable, so that whoever read it may have used the variable.

Knows the bytes of files, a chunk at a time. A text mentions a name that stands in it as a whole word. In a binary the bytes
alone count, whatever stands beside them: linkers let a string be the tail of a longer one, Go and Rust put strings next to each
other without a NUL, and in Python's .pyc the byte before is a length and the one after the next object's type. Only a few
programs of the host that everything runs through (the C library, its loader, the shells) are held to whole words; a test asks
them for the names they are known to use.

A name may be put together at run time. Its parts up to an underscore, and from one on, count as well where they stand alone
(`DB_$kind`, `"%s_proxy"`, `startswith("PIP_")`). What is compressed is searched as it unpacks, up to a size; what can't be
unpacked here counts as mentioning every name.
"""

from __future__ import annotations

import bz2
import lzma
import os
import re
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, Final

from mulligan.model.listings import ignores_case, lists_variables

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK: Final = 4 << 20
MOST_UNPACKED: Final = 64 << 20
MOST_SCRIPT: Final = 2 << 20  # of a text, which is looked at as a script: what follows in a longer one is data
_WORD: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_SEALED: Final = (
    b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"7z\xbc\xaf\x27\x1c", b"LZIP", b"\x1f\x9d", b"\x5d\x00\x00", b"hsqs",
    b"\xff\xfe", b"\xfe\xff",  # UTF-16: no name stands in it byte by byte
)  # fmt: skip
_PACKED_PROGRAM: Final = re.compile(rb"UPX!|MEI\x0c\x0b\x0a\x0b\x0e")
_ENVIRON: Final = re.compile(rb"(?<![A-Za-z0-9])_*environ(?![A-Za-z0-9_])|syscall\.Environ")
_ELF: Final = b"\x7fELF"
# Programs whose names of variables are known, and stand in them as whole words.
_KNOWN: Final = re.compile(r"(?:ld-linux[^/]*|ld-musl[^/]*|lib(?:c|m|dl|rt|pthread|tinfo))[.-][^/]*so[^/]*|bash|dash")


class Names:
    """What to look for when a variable of this name may be used."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.raw = name.encode("utf-8", "surrogateescape")
        cuts = [at for at, char in enumerate(name) if char == "_" and 0 < at < len(name) - 1]
        self.heads = [self.raw[: at + 1] for at in cuts]
        self.tails = [self.raw[at:] for at in cuts]
        self.packed = [self.raw, *(part for head in self.heads for part in (head + b"\0", head + b"%", _counted(head)))]
        self.packed += [b"%s" + tail for tail in self.tails]
        self.longest = max(map(len, self.packed)) + 2

    def in_text(self, text: bytes, *, any_case: bool = False) -> bool:
        """Whether a text mentions it."""
        if any_case:
            text = text.lower()
            return has_word(text, self.raw.lower()) or any(has_word(text, head.lower()) for head in self.heads)
        parts = (self.raw, *self.heads, *self.tails)
        return any(has_word(text, part) for part in parts) or any(b"%s" + tail in text for tail in self.tails)

    def in_binary(self, data: bytes, *, known: bool, any_case: bool) -> bool:
        """Whether a part of a binary may mention it."""
        if known:
            return has_word(data, self.raw)
        return any(part in data for part in self.packed) or (any_case and self.raw.lower() in data)


def has_word(text: bytes, word: bytes) -> bool:
    """Whether the word stands in the text as no part of a longer identifier. What lies beyond the ends is no letter."""
    at = text.find(word)
    while at != -1:
        end = at + len(word)
        if (at == 0 or text[at - 1] not in _WORD) and (end == len(text) or text[end] not in _WORD):
            return True
        at = text.find(word, at + 1)
    return False


def mentions(file: IO[bytes], path: str, names: Names, *, of_host: bool) -> bool:
    """Whether the file that lies at the guest path `path` may mention a variable. `of_host`: it is one of the base's own."""
    first = file.read(CHUNK)
    if first.startswith(_SEALED):
        return True
    unpacked = _unpacked(file, first)
    if unpacked is not None:
        return _any_part(unpacked, path, names, known=False)
    if first.startswith(b"#!") and b"\0" in first:
        return True  # a script that unpacks what stands behind it, as gzexe(1) makes them
    known = of_host and _KNOWN.fullmatch(path.rpartition("/")[2]) is not None
    return _any_part(_chunks(file, first), path, names, known=known)


def lists_all(file: IO[bytes], path: str, *, of_host: bool) -> bool:
    """Whether the file may be a program that uses variables without holding their names.

    Of the host's own files only scripts are judged; of its programs it is known which list variables.
    """
    first = file.read(CHUNK)
    if first.startswith(_ELF):
        return not of_host and any(_ENVIRON.search(part) or _PACKED_PROGRAM.search(part) for part in _chunks(file, first))
    if b"\0" in first:
        return not of_host and path.endswith(".pyc") and (b"environ" in first or b"getenv" in first)
    if of_host and not first.startswith(b"#!"):
        return False
    return lists_variables(first[:MOST_SCRIPT], path)


def _any_part(parts: Iterator[bytes], path: str, names: Names, *, known: bool) -> bool:
    before, any_case = b"", ignores_case(path)
    try:
        part = next(parts, b"")
        binary = False
        while part:
            binary = binary or b"\0" in part  # a text may have a binary behind it
            data = before + part if before else part
            if names.in_binary(data, known=known, any_case=any_case) if binary else names.in_text(data, any_case=any_case):
                return True
            before, part = part[-names.longest :], next(parts, b"")
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return True  # it can't be unpacked, or only with a password
    return False


def _chunks(file: IO[bytes], first: bytes) -> Iterator[bytes]:
    while first:
        yield first
        first = file.read(CHUNK)


def _unpacked(file: IO[bytes], first: bytes) -> Iterator[bytes] | None:
    """The content of a compressed file, piece by piece; None for what is not compressed in a way known here."""
    if first.startswith(b"\x1f\x8b"):
        return _inflated(file, first, zlib.MAX_WBITS | 16)
    if first.startswith((b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x78\x5e")):  # an object of git
        return _inflated(file, first, zlib.MAX_WBITS)
    if first.startswith(b"BZh"):
        file.seek(0)
        return _bounded(bz2.BZ2File(file))
    if first.startswith(b"\xfd7zXZ\0"):
        file.seek(0)
        return _bounded(lzma.LZMAFile(file))
    if first.startswith((b"PK\x03\x04", b"PK\x05\x06")) or (first.startswith(b"#!") and b"PK\x03\x04" in first):
        file.seek(0)
        return _members(file)
    return None


def _inflated(file: IO[bytes], first: bytes, bits: int) -> Iterator[bytes]:
    total, data, unpacker = 0, first, zlib.decompressobj(bits)
    while data:
        piece = unpacker.decompress(data, CHUNK)
        total += len(piece)
        _check(total)
        if piece:
            yield piece
        data = unpacker.unconsumed_tail
        if unpacker.eof:
            data = (unpacker.unused_data or file.read(CHUNK)).lstrip(b"\0")
            unpacker = zlib.decompressobj(bits)
        elif not data:
            data = file.read(CHUNK)
    yield unpacker.flush() or b"\0"


def _bounded(file: IO[bytes] | bz2.BZ2File | lzma.LZMAFile) -> Iterator[bytes]:
    total = 0
    while piece := file.read(CHUNK):
        total += len(piece)
        _check(total)
        yield piece


def _members(file: IO[bytes]) -> Iterator[bytes]:
    """The members of a zip file, a zip in it as it lies there: that one then counts as mentioning all."""
    total = 0
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            total += member.file_size
            _check(total)
            with archive.open(member) as inside:
                piece = inside.read(CHUNK)
                if piece.startswith((b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", *_SEALED)):
                    raise ValueError(member.filename)
                yield member.filename.encode("utf-8", "surrogateescape") + b"\0"
                yield from _chunks(inside, piece)


def _check(total: int) -> None:
    if total > MOST_UNPACKED:
        raise ValueError(total)


def _counted(part: bytes) -> bytes:
    """A string as Python's marshal writes it: its length, then its bytes."""
    return bytes((min(len(part), 255),)) + part


def opened_file(fd: int) -> IO[bytes]:
    """A file for scanning, of a descriptor that stays the caller's."""
    return os.fdopen(os.dup(fd), "rb", buffering=0)
