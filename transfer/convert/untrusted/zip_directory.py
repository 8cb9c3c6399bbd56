"""The directory of a zip archive, read from the mapped file.

Python's zipfile reads as much as the archive announces, before anything can be checked, and lets
entries overlap or share a name.
PKWARE, ".ZIP File Format Specification" 6.3, sections 4.3.12 to 4.3.16 and 4.5.3.
"""

import itertools
import struct
import zlib
from dataclasses import dataclass

from transfer.convert.architectures import BackboneError
from transfer.convert.untrusted.budget import shorten

MAX_ENTRIES = 300_000
"""Most entries of an archive; torch writes one for each storage."""
MAX_DIRECTORY_BYTES = 2**26
FETCH_AGAIN = "fetch the file again and compare its size with the source"

_END = b"PK\x05\x06"
_END_64 = b"PK\x06\x06"
_LOCATOR_64 = b"PK\x06\x07"
_ENTRY = struct.Struct("<4s6H3L5H2L")
_IN_EXTRA = 0xFFFFFFFF
"""Value of a size or offset that stands in the extra field instead, in 64 bits."""


@dataclass(frozen=True)
class ZipEntry:
    """An entry that is stored without compression."""

    name: str
    header: int
    """Position of its local header in the file."""
    start: int
    """Position of its first byte in the file."""
    end: int
    """Position behind its last byte in the file."""
    size: int
    """Length in bytes, unpacked."""
    crc: int
    is_stored: bool
    """True if the bytes stand in the file as they are, neither compressed nor encrypted."""

    def content(self, data: memoryview) -> memoryview:
        """Return the bytes, after a comparison with the checksum."""
        if not self.is_stored:
            raise BackboneError(
                f"{shorten(self.name)} is compressed or encrypted, which torch.save never does"
            )
        content = data[self.start : self.end]
        if zlib.crc32(content) != self.crc:
            raise BackboneError(f"{shorten(self.name)} does not match its checksum; {FETCH_AGAIN}")
        return content


def read_directory(data: memoryview) -> dict[str, ZipEntry]:
    """Return the entries by name; BackboneError if they are damaged, too many, or overlap."""
    try:
        return _read_directory(data)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, BackboneError):
            raise
        raise _damaged(str(error)[:200]) from error


def _damaged(reason: str) -> BackboneError:
    return BackboneError(f"the zip file is cut off or damaged ({reason}); {FETCH_AGAIN}")


def _read_directory(data: memoryview) -> dict[str, ZipEntry]:
    num_entries, size, start = _find_directory(data)
    if size > MAX_DIRECTORY_BYTES or num_entries > MAX_ENTRIES:
        raise BackboneError(
            f"the zip file announces {num_entries:,} entries, more than any checkpoint holds"
        )
    if start + size > len(data):
        raise _damaged(f"its directory ends at byte {start + size} of {len(data)}")
    entries: dict[str, ZipEntry] = {}
    spans = [(start, start + size)]
    position = start
    for _ in range(num_entries):
        entry, position = _read_entry(data, position)
        if entry.name in entries:
            raise BackboneError(f"two entries of the zip file are called {shorten(entry.name)}")
        entries[entry.name] = entry
        spans.append((entry.header, entry.end))
    if position != start + size:
        raise _damaged(f"its directory has {position - start} bytes instead of {size}")
    spans.sort()
    for (_, end), (following, _) in itertools.pairwise(spans):
        if end > following:
            raise _damaged(
                f"its entries overlap: one ends at {end}, the next begins at {following}"
            )
    return entries


def _find_directory(data: memoryview) -> tuple[int, int, int]:
    """Return number of entries, length and position of the directory."""
    tail_start = max(0, len(data) - 65_557)  # 22 bytes and a comment of up to 65,535
    tail = bytes(data[tail_start:])
    place = tail.rfind(_END)
    if place < 0:
        raise _damaged(f"its directory is missing from its last {len(tail)} bytes")
    numbers = struct.unpack_from("<4H2LH", tail, place + 4)
    num_entries, size, start = numbers[3], numbers[4], numbers[5]
    locator = tail_start + place - 20
    if locator >= 0 and bytes(data[locator : locator + 4]) == _LOCATOR_64:
        (end_64,) = struct.unpack_from("<Q", data, locator + 8)
        if end_64 + 56 > len(data) or bytes(data[end_64 : end_64 + 4]) != _END_64:
            raise _damaged(f"its 64-bit directory is missing from byte {end_64}")
        num_entries, size, start = struct.unpack_from("<3Q", data, end_64 + 32)
    return num_entries, size, start


def _read_entry(data: memoryview, position: int) -> tuple[ZipEntry, int]:
    """Return an entry and the position of the next one in the directory."""
    fields = _ENTRY.unpack_from(data, position)
    signature, flags, method = fields[0], fields[3], fields[4]
    crc, packed, size, name_bytes, extra_bytes, comment_bytes = fields[7:13]
    header = fields[16]
    if signature != b"PK\x01\x02":
        raise _damaged(f"an entry of its directory is missing from byte {position}")
    position += _ENTRY.size
    name = bytes(data[position : position + name_bytes]).decode("utf-8")
    extra = bytes(data[position + name_bytes : position + name_bytes + extra_bytes])
    size, packed, header = _from_extra(extra, [size, packed, header])
    is_stored = method == 0 and not flags & 1
    if is_stored and packed != size:
        raise _damaged(f"{shorten(name)} has two sizes")
    # a local header of 30 bytes, the name and an extra field precede the numbers; the lengths of
    # the two may differ from those in the directory
    if header + 30 > len(data) or bytes(data[header : header + 4]) != b"PK\x03\x04":
        raise _damaged(f"{shorten(name)} lies elsewhere")
    start = header + 30 + sum(struct.unpack_from("<2H", data, header + 26))
    if start + packed > len(data):
        raise _damaged(f"{shorten(name)} reaches beyond the end of the file")
    entry = ZipEntry(name, header, start, start + packed, size, crc, is_stored)
    return entry, position + name_bytes + extra_bytes + comment_bytes


def _from_extra(extra: bytes, values: list[int]) -> list[int]:
    """Return the values, each that is marked so taken from the 64-bit extra field."""
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, place)
        if kind == 1:
            field = extra[place + 4 : place + 4 + length]
            for index, value in enumerate(values):
                if value == _IN_EXTRA:
                    (values[index],) = struct.unpack_from("<Q", field)
                    field = field[8:]
            break
        place += 4 + length
    return values
