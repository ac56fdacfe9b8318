"""Finds out from an etcd member's files whether it can go on after a kill as a member that has joined its cluster.

etcd listens, and has a raft log, before it has heard from the others. It finds them again after a restart only through
what it knows to be agreed: the entry that added it, or a snapshot, which was taken after that. The entries before that
one may name members that have moved or gone since.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from yurt.storage.etcd.member_files.check import segments
from yurt.storage.etcd.member_files.raft_log import ENTRY_TAG, LENGTH_BITS, SNAPSHOT_TAG, fields, read_segment

METADATA_TAG, STATE_TAG = b"\x08\x01", b"\x08\x03"
RECORD_DATA: Final = 3
OWN_ID, ENTRY_TYPE, ENTRY_INDEX, ENTRY_DATA, COMMIT, SNAPSHOT_INDEX = 1, 1, 3, 4, 3, 1
"""Field numbers of the data of the record types."""
CONFIG_CHANGE: Final = 1
CHANGE_TYPE, CHANGED_ID = 2, 3
"""Field numbers of a change of the members."""
REMOVAL: Final = 1
CHANGE_BYTES_MAX: Final = 64 * 1024
"""The maximum size, in bytes, of an entry that changes the members; longer ones are not decoded."""
_length = struct.Struct("<q")


class JoinProgress(NamedTuple):
    """How far a joining member has come."""

    is_member: bool
    """Its files tell that it is a member; they are on the disk then."""
    received: int
    """A number that changes with each entry and each part of a snapshot."""


def join_progress(data_dir: Path) -> JoinProgress:
    """The progress of the member below `data_dir`. Blocks; raises DamagedMember when a segment is missing."""
    member = data_dir / "data" / "member"
    ends = {path: read_segment(path).end for path in segments(member / "wal", data_dir)}
    own_id = commit = 0
    additions: list[int] = []  # where entries or a snapshot make this member one: it is added, and promoted later
    for tag, data in (record for path, end in ends.items() for record in _records(path, end)):
        if tag == METADATA_TAG:
            own_id = _number(data, OWN_ID)
        elif tag == STATE_TAG:
            commit = max(commit, _number(data, COMMIT))
        elif tag == SNAPSHOT_TAG and (index := _number(data, SNAPSHOT_INDEX)):
            additions, commit = [index], max(commit, index)
        elif tag == ENTRY_TAG:
            entry = dict(_safe_fields(data))
            if isinstance(place := entry.get(ENTRY_INDEX), int):
                additions = [each for each in additions if each < place]  # a later leader may have replaced the rest
                additions += [place] if _adds(entry, own_id) else []
    is_member = any(index <= commit for index in additions)
    if is_member:
        _sync(ends)
    return JoinProgress(is_member, sum(ends.values()) + _bytes_in(member / "snap"))


def _records(path: Path, end: int) -> Iterator[tuple[bytes, bytes]]:
    """The type and the data of the records before an offset of a segment; the data of long ones are left out."""
    if not end:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        place = 0
        while place < end:
            (length,) = _length.unpack_from(content, place)
            begin, size = place + _length.size, length & LENGTH_BITS
            record = content[begin : begin + size] if size <= CHANGE_BYTES_MAX else b""
            data = dict(_safe_fields(record)).get(RECORD_DATA, b"")
            if isinstance(data, bytes):
                yield record[: len(ENTRY_TAG)], data
            place = begin + size + (length >> 56 & 0x7 if length < 0 else 0)


def _adds(entry: Mapping[int, int | bytes], own_id: int) -> bool:
    """Whether an entry, by its fields, makes this member one of its cluster."""
    change = entry.get(ENTRY_DATA, b"")
    if entry.get(ENTRY_TYPE) != CONFIG_CHANGE or not isinstance(change, bytes):
        return False
    return bool(own_id) and _number(change, CHANGED_ID) == own_id and _number(change, CHANGE_TYPE) != REMOVAL


def _number(data: bytes, field: int) -> int:
    found = dict(_safe_fields(data)).get(field, 0)
    return found if isinstance(found, int) else 0


def _safe_fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """The fields of a protocol buffer; none of one that etcd is still writing."""
    try:
        return fields(data)
    except (IndexError, ValueError):
        return []


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _bytes_in(folder: Path) -> int:
    """The size of a folder's files, of which etcd may just rename or remove one."""
    try:
        return sum(each.stat().st_size for each in folder.glob("*"))
    except FileNotFoundError:
        return 0
