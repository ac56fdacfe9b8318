"""Small files whose last line is a digest of their content, which detects damage.

A file of an earlier version has no such line and is taken as it is; one whose last line was cut off whole is complete.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from yurt.storage.data_dir import write_durably

LABEL: Final = b"digest blake2b-128 "
DIGEST_BYTES: Final = 16


def checked(data: bytes) -> bytes:
    """The content with its digest appended; `data` is text without a line that begins like a digest line."""
    return data.rstrip(b"\n") + b"\n" + LABEL + _digest(data.rstrip(b"\n")) + b"\n"


def unchecked(data: bytes) -> bytes:
    """The content without its digest; raises ValueError if the digest does not match."""
    text, has_label, digest = data.rpartition(b"\n" + LABEL)
    if not has_label:
        if b"\0" in data:
            raise ValueError("it holds zero bytes")
        return data
    if digest != _digest(text) + b"\n":
        raise ValueError("its content does not fit its digest")
    return text


def write_checked(path: Path, data: bytes) -> None:
    """Write a file durably, with its digest."""
    write_durably(path, checked(data))


def read_checked(path: Path) -> bytes:
    """Read a file; raises ValueError when it is damaged, OSError when it cannot be read."""
    return unchecked(path.read_bytes())


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest().encode()
