"""Snapshot files: `<index>.snapshot`, written under a temporary name and renamed when durable.

A file is a magic line, chunks each after its length (4 bytes, little endian), an end mark, and the digest of all
before it. A file whose digest does not fit is passed over: the one before it and the log still lead to the same
state. The newest two whole files are kept; a damaged one counts for nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from yurt.storage.data_dir import put_in_place, sync_folder

log = logging.getLogger(__name__)

MAGIC = b"yurt snapshot 1\n"
SUFFIX = ".snapshot"
FILES_MAX = 2
DIGEST_BYTES = 32
READ_BYTES = 1 << 20
END = 0xFFFFFFFF
"""The marker written in place of the next chunk's length."""

_length = struct.Struct("<I")
_whole: deque[tuple[str, int, int]] = deque(maxlen=8)
"""Files with a valid digest: path, size and time of the last change."""
_damaged: deque[tuple[str, int, int]] = deque(maxlen=8)
"""Files whose damage has been logged."""


def save(folder: Path, index: int, chunks: Iterable[bytes]) -> None:
    """Write the snapshot at `index` and delete all but the newest two; blocks."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    path = folder / f"{index:020d}{SUFFIX}"
    temporary = path.with_name(path.name + ".tmp")
    try:
        _write(temporary, chunks)
        put_in_place(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    retained = [each for each in _files(folder) if _has_valid_digest(each)][:FILES_MAX]
    for old in _files(folder):
        if old not in retained and (len(retained) == FILES_MAX or _index(old) < index):
            old.unlink()


def newest_index(folder: Path) -> int:
    """The index of the newest intact snapshot; 0 without one."""
    newest = newest_whole(folder)
    return 0 if newest is None else _index(newest)


def newest_whole(folder: Path) -> Path | None:
    """The newest file with a valid digest; removes incomplete files."""
    for stray in folder.glob("*.tmp"):
        stray.unlink()
    return next((path for path in _files(folder) if _has_valid_digest(path)), None)


def fallback_index(folder: Path) -> int:
    """The first index that the log must retain: that of the second newest intact snapshot; 0 without one.

    Both files are read again: one that was whole when it was written may not be so any more.
    """
    whole = [path for path in _files(folder) if _has_valid_digest(path, reads_again=True)]
    return _index(whole[FILES_MAX - 1]) if len(whole) >= FILES_MAX else 0


def damaged(folder: Path) -> list[Path]:
    """The files with an invalid digest; reads all of them."""
    return [path for path in _files(folder) if not _has_valid_digest(path, reads_again=True)]


def load(folder: Path, up_to: int | None = None) -> tuple[int, Iterator[bytes]] | None:
    """The newest intact snapshot (not above an index): its index, and its chunks, read on demand."""
    if up_to is None:
        newest = newest_whole(folder)
    else:
        newest = next((path for path in _files(folder) if _index(path) <= up_to and _has_valid_digest(path)), None)
    return None if newest is None else (_index(newest), _chunks(newest))


def _files(folder: Path) -> list[Path]:
    """The snapshot files, newest first."""
    names = (path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdigit())
    return sorted(names, key=_index, reverse=True)


def _index(path: Path) -> int:
    return int(path.stem)


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with path.open("wb", buffering=READ_BYTES) as file:
        for part in _parts(chunks):
            hasher.update(part)
            file.write(part)
        file.write(hasher.digest())
        file.flush()
        os.fsync(file.fileno())


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    yield MAGIC
    for chunk in chunks:
        yield _length.pack(len(chunk))
        yield chunk
    yield _length.pack(END)


def _has_valid_digest(path: Path, *, reads_again: bool = False) -> bool:
    """Whether the digest is valid; cached for unchanged files unless a fresh check is requested."""
    about = path.stat()
    seen = (str(path), about.st_size, about.st_mtime_ns)
    if seen in _whole and not reads_again:
        return True
    is_whole = _is_whole(path)
    if is_whole and seen not in _whole:
        _whole.append(seen)
    if not is_whole and seen in _whole:
        _whole.remove(seen)
    if not is_whole and seen not in _damaged:
        _damaged.append(seen)
        log.warning("snapshot damaged, an older one and the log are used: path=%s", path)
    return is_whole


def _is_whole(path: Path) -> bool:
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    left = path.stat().st_size - DIGEST_BYTES
    if left < len(MAGIC) + _length.size:
        return False
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return False
        hasher.update(MAGIC)
        left -= len(MAGIC)
        while left > 0 and (part := file.read(min(READ_BYTES, left))):
            hasher.update(part)
            left -= len(part)
        return left == 0 and file.read(DIGEST_BYTES) == hasher.digest()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=READ_BYTES) as file:
        file.seek(len(MAGIC))
        while (size := _length.unpack(file.read(_length.size))[0]) != END:
            yield file.read(size)
