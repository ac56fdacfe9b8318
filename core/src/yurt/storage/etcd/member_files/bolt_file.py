"""Reads the applied index from an etcd member's database, `snap/db`, while etcd does not run.

The file is bbolt's: pages of one size, the first two of which are meta pages. A meta page has a checksum and names the
root of a B+ tree; the newer one with a good checksum counts, since a crash may tear the other one. The tree maps the
names of buckets to their own trees, small ones stored in place. etcd keeps `consistent_index` in the bucket `meta`: the
raft index of the last entry that the database holds. Pages other than the meta pages have no checksum.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final, NamedTuple

MAGIC: Final = 0xED0CDAED
VERSION: Final = 2
PAGE_SIZES: Final = tuple(1 << shift for shift in range(9, 17))
BRANCH_FLAG, LEAF_FLAG = 0x01, 0x02
DEPTH_MAX: Final = 64
META_BUCKET, INDEX_KEY = b"meta", b"consistent_index"
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
_page = struct.Struct("<QHHI")
"""Fields of a page header: page id, flags, number of elements, number of overflow pages."""
_meta = struct.Struct("<IIIIQQQQQQ")
"""Fields of a meta page: magic, version, page size, flags, root page, root sequence, free list page, page count,
transaction, checksum."""
_leaf, _branch, _bucket = struct.Struct("<IIII"), struct.Struct("<IIQ"), struct.Struct("<QQ")
_index = struct.Struct(">Q")


class Meta(NamedTuple):
    """The content of a meta page; `page_count` is the number of pages in use, from the beginning of the file."""

    page_size: int
    root: int
    page_count: int
    transaction: int


def applied_index(path: Path) -> int:
    """The raft index up to which the database has applied the log; 0 in a new one.

    Raises ValueError when the file is damaged where it says so, OSError when it cannot be read.
    """
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise ValueError("it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _applied_index(data)
            except (struct.error, IndexError) as error:
                raise ValueError("a page of it points past its end") from error


def _applied_index(data: mmap.mmap) -> int:
    meta = _newest_meta(data)
    if len(data) < meta.page_count * meta.page_size:
        raise ValueError(f"it has {len(data)} bytes, and its first page speaks of {meta.page_count * meta.page_size}")
    bucket = _lookup(data, meta, meta.root * meta.page_size, META_BUCKET)
    if bucket is None:
        return 0
    start, size = bucket
    root, _ = _bucket.unpack_from(data, start)
    place = root * meta.page_size if root else start + _bucket.size
    found = _lookup(data, meta, place, INDEX_KEY)
    if found is None:
        return 0
    start, size = found
    if size != _index.size:
        raise ValueError(f"its {INDEX_KEY.decode()} has {size} bytes, not {_index.size}")
    (index,) = _index.unpack_from(data, start)
    return int(index)


def _newest_meta(data: mmap.mmap) -> Meta:
    """The newest intact meta page; the position of the second one depends on the file's page size."""
    first = _meta_at(data, 0)
    sizes = PAGE_SIZES if first is None else (first.page_size,)
    second = next(
        (meta for size in sizes if (meta := _meta_at(data, size)) is not None and meta.page_size == size), None
    )
    found = [meta for meta in (first, second) if meta is not None]
    if not found:
        raise ValueError("neither of its first two pages is intact")
    return max(found, key=lambda meta: meta.transaction)


def _meta_at(data: mmap.mmap, place: int) -> Meta | None:
    start = place + _page.size
    if len(data) < start + _meta.size:
        return None
    magic, version, page_size, _, root, _, _, page_count, transaction, checksum = _meta.unpack_from(data, start)
    is_bolt = (magic, version) == (MAGIC, VERSION) and page_size in PAGE_SIZES
    if not is_bolt or checksum != _fnv1a(data[start : start + _meta.size - 8]):
        return None
    return Meta(page_size=page_size, root=root, page_count=page_count, transaction=transaction)


def _lookup(data: mmap.mmap, meta: Meta, place: int, key: bytes) -> tuple[int, int] | None:
    """The position and size of the value of a key in the tree whose root page is at `place`."""
    for _ in range(DEPTH_MAX):
        _, flags, count, _ = _page.unpack_from(data, place)
        if flags & LEAF_FLAG:
            return _in_leaf(data, place + _page.size, count, key)
        if not flags & BRANCH_FLAG or not count:
            raise ValueError(f"the page at byte {place} is not what it must be")
        place = _child(data, place + _page.size, count, key) * meta.page_size
    raise ValueError("its pages point at each other in a circle")


def _in_leaf(data: mmap.mmap, start: int, count: int, key: bytes) -> tuple[int, int] | None:
    for element in range(start, start + count * _leaf.size, _leaf.size):
        _, position, key_size, value_size = _leaf.unpack_from(data, element)
        begin = element + position
        if data[begin : begin + key_size] == key:
            return begin + key_size, value_size
    return None


def _child(data: mmap.mmap, start: int, count: int, key: bytes) -> int:
    """The page below a branch page that may hold a key: that of the last element not above the key."""
    chosen = 0
    for number in range(count):
        element = start + number * _branch.size
        position, key_size, page = _branch.unpack_from(data, element)
        begin = element + position
        if number and data[begin : begin + key_size] > key:
            break
        chosen = page
    return int(chosen)


def _fnv1a(data: bytes) -> int:
    """The 64-bit FNV-1a hash, the checksum of meta pages."""
    value = FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return value
