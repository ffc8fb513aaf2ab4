"""Pages: the stored form of postings, sorted so that one path is found without decoding the others.

Knows bytes and numbers; pure. A path stands in it as 32 bits of checksum. Two paths of one checksum share their postings, so
somebody is looked at who need not be: once in four thousand million times the number of paths, and never to harm.

A page is a byte of version and zlib over four columns: the checksums in order, how many postings each has, and for every
posting the record (its distance from the segment's first) and the bits of how it is found.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from mulligan.errors import StoreError
from mulligan.model.ids import raw_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

VERSION: Final = 1
SUM_BITS: Final = 32
_FAST: Final = 1
_TARGET: Final = 1024  # postings in a page, about

# A posting while it is sorted: checksum, record and bits in one number.
_RECORD_SHIFT: Final = 32
_SUM_SHIFT: Final = _RECORD_SHIFT + 24
_MASK: Final = (1 << _RECORD_SHIFT) - 1
_RECORD_MASK: Final = (1 << (_SUM_SHIFT - _RECORD_SHIFT)) - 1


class Hits(NamedTuple):
    """The records of a segment that are found under one path: their distances from its first, ascending, and their bits."""

    records: Sequence[int]
    bits: Sequence[int]


NO_HITS: Final = Hits((), ())


def checksum(path: str) -> int:
    """The 32 bits that stand for a path."""
    return zlib.crc32(raw_path(path))


def packed(postings: Mapping[str, int], record: int) -> list[int]:
    """A record's postings as numbers, such that numbers sort by path and then by record."""
    if not postings:
        return []
    raw = raw_path("\0".join(postings)).split(b"\0")  # one call for all: no path holds a NUL
    high = record << _RECORD_SHIFT
    return [
        path_sum << _SUM_SHIFT | high | bits for path_sum, bits in zip(map(zlib.crc32, raw), postings.values(), strict=True)
    ]


def bucket_bits(count: int) -> int:
    """How many leading bits of the checksum tell the pages of a segment of that many postings apart."""
    return max(0, (count // _TARGET).bit_length())


def bucket(path_sum: int, bits: int) -> int:
    """The number of the page that a path is in."""
    return path_sum >> (SUM_BITS - bits)


def encode(ordered: Sequence[int], bits: int, buckets: range) -> Iterator[bytes]:
    """These pages of a segment, empty ones included, from all of their packed postings in order."""
    start = 0
    for number in buckets:
        end = bisect_left(ordered, (number + 1) << (SUM_BITS - bits + _SUM_SHIFT), start)
        yield _encoded(ordered[start:end])
        start = end
    assert start == len(ordered), (start, len(ordered), buckets)


def find(blob: bytes, path_sum: int) -> Hits:
    """What a page has of one path."""
    sums, counts, records, bits = _columns(blob)
    at = bisect_left(sums, path_sum)
    if at == len(sums) or sums[at] != path_sum:
        return NO_HITS
    start = sum(counts[:at])
    end = start + counts[at]
    return Hits(records[start:end], bits[start:end])


def decode(blob: bytes, by: int = 0) -> list[int]:
    """The packed postings of a page, in order, for a segment that begins `by` records earlier."""
    sums, counts, records, bits = _columns(blob)
    every = (path_sum << _SUM_SHIFT for path_sum, count in zip(sums, counts, strict=True) for _ in range(count))
    return [high | (record + by) << _RECORD_SHIFT | how for high, record, how in zip(every, records, bits, strict=True)]


def encode_numbers(numbers: Iterable[int]) -> bytes:
    """Numbers of 64 bits, of which many are the same."""
    return bytes((VERSION,)) + zlib.compress(_little(array("Q", numbers)).tobytes(), _FAST)


def decode_numbers(blob: bytes) -> Sequence[int]:
    """The numbers that `encode_numbers` stored."""
    return _column("Q", _plain(blob))


def encode_names(names: Iterable[str]) -> bytes:
    """Names of actions, which hold no line break."""
    return bytes((VERSION,)) + zlib.compress("\n".join(names).encode(), _FAST)


def decode_names(blob: bytes) -> list[str]:
    """The names that `encode_names` stored."""
    return _plain(blob).decode().split("\n")


def _encoded(ordered: Sequence[int]) -> bytes:
    sums, counts = array("I"), array("I")
    last = -1
    for posting in ordered:
        path_sum = posting >> _SUM_SHIFT
        if path_sum != last:
            sums.append(path_sum)
            counts.append(0)
            last = path_sum
        counts[-1] += 1
    records = array("I", [posting >> _RECORD_SHIFT & _RECORD_MASK for posting in ordered])
    bits = array("I", [posting & _MASK for posting in ordered])
    columns = [array("I", (len(sums), len(ordered))), sums, counts, records, bits]
    return bytes((VERSION,)) + zlib.compress(b"".join(_little(column).tobytes() for column in columns), _FAST)


def _columns(blob: bytes) -> tuple[array[int], array[int], array[int], array[int]]:
    whole = _column("I", _plain(blob))
    paths, count = whole[0], whole[1]
    at = 2 + 2 * paths
    return whole[2 : 2 + paths], whole[2 + paths : at], whole[at : at + count], whole[at + count :]


def _plain(blob: bytes) -> bytes:
    if blob[:1] != bytes((VERSION,)):
        found = f"format {blob[0]}" if blob else "no format"
        raise StoreError(f"read the store's index: a page has {found}, and this Mulligan reads format {VERSION}")
    try:
        return zlib.decompress(memoryview(blob)[1:])
    except zlib.error as error:
        raise StoreError(f"read the store's index: a page is damaged ({error})") from error


def _column(kind: str, data: bytes) -> array[int]:
    column: array[int] = array(kind)
    column.frombytes(data)
    return _little(column)


def _little(column: array[int]) -> array[int]:
    """The same numbers in the order of bytes that is stored."""
    if sys.byteorder == "big":
        column.byteswap()
    return column
