"""What the files of an etcd member tell of its join; here made by hand, and by a real etcd in `tests/agent/cluster`."""

from __future__ import annotations

import struct
from pathlib import Path

from yurt.storage.etcd.member_files.joining import join_progress

METADATA, ENTRY, STATE, SNAPSHOT = 1, 2, 3, 5
OWN, OTHER = 7, 8
ADDED, REMOVED, LEARNS = 0, 1, 3


def number(field: int, value: int) -> bytes:
    """A field of a protocol buffer, for values of one byte."""
    return bytes([field << 3, value])


def content(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2, len(value)]) + value


def record(kind: int, data: bytes) -> bytes:
    message = number(1, kind) + content(3, data)
    return struct.pack("<q", len(message)) + message


def change(index: int, kind: int, member: int = OWN) -> bytes:
    """An entry that changes the members."""
    changes = number(2, kind) + number(3, member)
    return record(ENTRY, number(1, 1) + number(3, index) + content(4, changes))


def plain(index: int) -> bytes:
    return record(ENTRY, number(1, 0) + number(3, index) + content(4, b"value"))


def committed(index: int) -> bytes:
    return record(STATE, number(3, index))


def is_member(folder: Path, *records: bytes) -> bool:
    wal = folder / "data" / "member" / "wal"
    wal.mkdir(parents=True, exist_ok=True)
    (wal / "0000000000000000-0000000000000000.wal").write_bytes(
        record(METADATA, number(1, OWN)) + b"".join(records) + bytes(64)
    )
    return join_progress(folder).is_member


def test_a_member_is_one_once_the_entry_that_adds_it_is_committed(tmp_path: Path) -> None:
    for kind in (ADDED, LEARNS):
        assert not is_member(tmp_path, change(5, kind), committed(4))
        assert is_member(tmp_path, change(5, kind), committed(5))
    assert not is_member(tmp_path, change(5, ADDED, OTHER), committed(5))


def test_a_learner_stays_one_while_its_promotion_is_not_known_to_be_committed(tmp_path: Path) -> None:
    """The others may need it for their majority by then."""
    assert is_member(tmp_path, change(5, LEARNS), plain(6), committed(6), change(7, ADDED))


def test_an_addition_that_a_later_leader_has_replaced_does_not_count(tmp_path: Path) -> None:
    assert not is_member(tmp_path, plain(4), change(5, LEARNS), plain(5), plain(6), committed(6))
    assert is_member(tmp_path, plain(4), change(5, LEARNS), plain(5), change(6, LEARNS), committed(6))


def test_a_member_that_got_a_snapshot_is_one(tmp_path: Path) -> None:
    assert is_member(tmp_path, record(SNAPSHOT, number(1, 9)))
    assert is_member(tmp_path, record(SNAPSHOT, number(1, 9)), committed(9), change(10, ADDED))
    assert not is_member(tmp_path, record(SNAPSHOT, number(1, 0)))
