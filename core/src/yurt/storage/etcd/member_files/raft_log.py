"""Finds the end of a segment of an etcd member's raft log, as etcd will find it.

A record consists of its length, a protocol buffer (type, checksum, data) and padding. Its checksum covers all records
of the segment up to it. etcd refuses a record with a wrong checksum, unless one of its sectors is all zeros: then it
considers the record torn by a crash.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final, NamedTuple

ENTRY_TAG, SNAPSHOT_TAG = b"\x08\x02", b"\x08\x05"
"""The first bytes (the type) of records that carry an index."""
CHECKSUM_FIELD, DATA_FIELD = 2, 3
ENTRY_INDEX, SNAPSHOT_INDEX = 3, 1
"""The field numbers of the index in the data of the two types."""
SECTOR_BYTES: Final = 512
"""The unit that a disk writes completely or not at all."""
LENGTH_BITS: Final = (1 << 56) - 1
FIXED64, FIXED32 = 1, 5
_length = struct.Struct("<q")


def _castagnoli() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901 - a shift register
        table.append(value)
    return tuple(table)


CASTAGNOLI: Final = _castagnoli()


class SegmentEnd(NamedTuple):
    """The end of a segment: its last raft indexes (0: none), and the offset behind its last record."""

    entry_index: int
    snapshot_index: int
    end: int
    is_torn: bool
    """Whether the last record is followed by an incomplete one instead of zeros."""

    @property
    def last_index(self) -> int:
        """The raft index up to which the log is complete, unless earlier segments reach higher."""
        return max(self.entry_index, self.snapshot_index)


def read_segment(path: Path) -> SegmentEnd:
    """The end of a segment, found by walking over its records; etcd itself checks their checksums."""
    if not path.stat().st_size:
        return SegmentEnd(entry_index=0, snapshot_index=0, end=0, is_torn=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _walk(data)


def _walk(data: mmap.mmap) -> SegmentEnd:
    """Decodes only the last record of each type: a segment has some hundred thousand."""
    place, header = 0, _length.size
    last, entry, snapshot = (0, 0), (0, 0), (0, 0)
    is_torn = False
    while place + header <= len(data):
        (length,) = _length.unpack_from(data, place)
        if not length:
            break
        begin, end = place + header, place + header + (length & LENGTH_BITS)
        following = end + (length >> 56 & 0x7 if length < 0 else 0)
        is_torn = following > len(data) or (
            _has_zero_sector(data, begin, following) and not _fits_checksum(data[slice(*last)], data[begin:end])
        )
        if is_torn:
            break
        last = (begin, end)
        if data[begin : begin + 2] == ENTRY_TAG:
            entry = last
        elif data[begin : begin + 2] == SNAPSHOT_TAG:
            snapshot = last
        place = following
    return SegmentEnd(
        entry_index=_index_of(data[slice(*entry)], ENTRY_INDEX),
        snapshot_index=_index_of(data[slice(*snapshot)], SNAPSHOT_INDEX),
        end=place,
        is_torn=is_torn,
    )


def _has_zero_sector(data: mmap.mmap, begin: int, end: int) -> bool:
    """Whether the part of a record in one of its sectors is all zeros, as a crash may leave it."""
    starts = (begin, *range(_next_sector(begin), end, SECTOR_BYTES))
    return any(data[start] == 0 and not any(data[start : min(_next_sector(start), end)]) for start in starts)


def _next_sector(place: int) -> int:
    return place - place % SECTOR_BYTES + SECTOR_BYTES


def _fits_checksum(before: bytes, record: bytes) -> bool:
    """Whether a record has the right checksum, which continues from that of the record `before`."""
    try:
        previous, own = dict(fields(before)), dict(fields(record))
    except (IndexError, ValueError):
        return False
    start, content = previous.get(CHECKSUM_FIELD, 0), own.get(DATA_FIELD, b"")
    if not isinstance(start, int) or not isinstance(content, bytes):
        return False
    return own.get(CHECKSUM_FIELD, 0) == crc32c(content, start)


def crc32c(data: bytes, start: int = 0) -> int:
    """The CRC-32 of `data` with Castagnoli's polynomial, continued from the checksum `start`."""
    value = start ^ 0xFFFFFFFF
    for byte in data:
        value = CASTAGNOLI[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _index_of(record: bytes, field: int) -> int:
    """The raft index in an encoded record; 0 if it is unreadable, which etcd will detect by the checksum."""
    try:
        content = dict(fields(record)).get(DATA_FIELD, b"")
        index = dict(fields(content)).get(field, 0) if isinstance(content, bytes) else 0
    except (IndexError, ValueError):
        return 0
    return index if isinstance(index, int) else 0


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """The fields of a protocol buffer as (number, value); raises IndexError or ValueError when it is none."""
    found: list[tuple[int, int | bytes]] = []
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        value: int | bytes
        match key & 0x7:
            case 0:
                value, place = _varint(data, place)
            case 2:
                size, place = _varint(data, place)
                value, place = data[place : place + size], place + size
            case wire if wire in (FIXED64, FIXED32):
                width = 8 if wire == FIXED64 else 4
                value, place = data[place : place + width], place + width
            case wire:
                raise ValueError(f"wire type {wire}")
        found.append((key >> 3, value))
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return value, place
