"""The commit index: the last acknowledged index of a log, durable in a file in the log's folder.

A database that lost its end, or an entry that was damaged, looks like one that was never written. The commit index
tells the two apart: it is written after the log's own commit and before anybody is answered, so that whatever was
acknowledged lies at or below it. A log that ends below it has lost something; what lies above it was not acknowledged
to anybody and may be there or not.

The file has two slots in blocks of their own, written in turns: a write that is torn leaves the one before. Its size
never changes, and each write is one `pwrite` to a file opened for synchronous writes (O_DSYNC).
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
from pathlib import Path
from typing import Final

from yurt.sdk.errors import Conflict
from yurt.sdk.value import Value
from yurt.storage.data_dir import write_durably

log = logging.getLogger(__name__)

NAME: Final = "commit-index"
CHAIN_BYTES: Final = 16
SLOT_BYTES: Final = 4096
SLOTS: Final = 2
MAGIC: Final = b"yurtcmt1"
DIGEST_BYTES: Final = 16
_content = struct.Struct("<8sQQ16s")


class Mark(Value):
    """A position in the log: its index and the chain digest of the entry that ends there (b"": unknown)."""

    index: int = 0
    chain: bytes = b""


class CommitIndex:
    """The open file in a log's folder; used by one thread at a time."""

    def __init__(self, folder: Path, *, is_synced: bool = True) -> None:
        """Open a file that `load` has read or `create` has written.

        One that is not synced outlives the process and not the machine.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | (getattr(os, "O_DSYNC", os.O_SYNC) if is_synced else 0)
        self._descriptor = os.open(folder / NAME, flags)
        self._sequence = max((found[0] for found in _slots(folder / NAME) if found is not None), default=0)

    def write(self, mark: Mark) -> None:
        """Record an acknowledged position; durable on return, if synced. Raises OSError."""
        self._sequence += 1
        data = _encoded(self._sequence, mark)
        written = os.pwrite(self._descriptor, data, self._sequence % SLOTS * SLOT_BYTES)
        if written != len(data):
            raise OSError(f"{written} of {len(data)} bytes of the commit index were written")

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def create(folder: Path, mark: Mark) -> None:
    """Create the file, or replace it; durable on return."""
    first = _encoded(0, mark).ljust(SLOT_BYTES, b"\0")
    write_durably(folder / NAME, first + bytes(SLOT_BYTES * (SLOTS - 1)))


def load(folder: Path) -> Mark | None:
    """The acknowledged position; None without the file. Raises Conflict when no slot is intact."""
    path = folder / NAME
    if not path.exists():
        return None
    slots = _slots(path)
    whole = [found for found in slots if found is not None]
    if not whole:
        raise Conflict(f"the commit index {path} is damaged")
    if len(whole) < len(slots):
        log.warning("one of two slots of the commit index is damaged, the other one counts: path=%s", path)
    return max(whole, key=lambda slot: slot[0])[1]


def _encoded(sequence: int, mark: Mark) -> bytes:
    content = _content.pack(MAGIC, sequence, mark.index, mark.chain)
    return content + bytes([len(mark.chain)]) + _digest(content + bytes([len(mark.chain)]))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def _slots(path: Path) -> list[tuple[int, Mark] | None]:
    """The sequence number and mark of each written slot; None for a damaged slot."""
    data = path.read_bytes()
    size = _content.size + 1
    found: list[tuple[int, Mark] | None] = []
    for start in range(0, SLOTS * SLOT_BYTES, SLOT_BYTES):
        slot = data[start : start + SLOT_BYTES]
        if len(slot) == SLOT_BYTES and not any(slot):
            continue
        content, digest = slot[:size], slot[size : size + DIGEST_BYTES]
        if len(content) < size or digest != _digest(content):
            found.append(None)
            continue
        _, sequence, index, chain = _content.unpack(content[:-1])
        found.append((sequence, Mark(index=index, chain=chain[: content[-1]])))
    return found
