"""Unpacking archives into a folder that nobody else can enter, with limits; blocking, in the child process.

An archive is hostile until shown otherwise: its entries may name places outside, link there, be devices, or unfold to
petabytes. tarfile's `data` filter refuses the first three; sizes and numbers are counted before anything is written.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Any, Final

from yurt.client.artifacts.fetching import ArtifactLimits
from yurt.sdk.errors import Invalid

CHUNK_BYTES: Final = 256 * 1024
STREAMS: Final[dict[str, Callable[[str], Any]]] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
TAR_MODES: Final[dict[str, Any]] = {"tar": "r:", "tar.gz": "r:gz", "tar.bz2": "r:bz2", "tar.xz": "r:xz"}
BROKEN: Final = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError,
    NotImplementedError, RuntimeError,
)  # fmt: skip


class Budget:
    """What an archive may still unfold to."""

    def __init__(self, limits: ArtifactLimits) -> None:
        self.limits = limits
        self.files = 0
        self.bytes = 0

    def take(self, size: int) -> None:
        """One more entry of a size; raises Invalid when it is too much."""
        self.files += 1
        self.add(size)
        if self.files > self.limits.file_count_max:
            raise Invalid(
                f"the archive holds more than {self.limits.file_count_max} files "
                "(client artifact.decompression_file_count_limit)"
            )

    def add(self, size: int) -> None:
        """More bytes."""
        self.bytes += size
        if self.bytes > self.limits.unpacked_bytes_max:
            raise Invalid(
                f"the archive unpacks to more than {self.limits.unpacked_bytes_max} bytes "
                "(client artifact.decompression_size_limit)"
            )


def unpack_tree(archive: str, kind: str, folder: str, limits: ArtifactLimits) -> None:
    """Unpack a tar or zip archive into a new folder."""
    os.mkdir(folder, 0o755)
    budget = Budget(limits)
    try:
        if kind == "zip":
            _unzip(archive, folder, budget)
        else:
            _untar(archive, TAR_MODES[kind], folder, budget)
    except BROKEN as error:
        raise Invalid(f"the {kind} archive cannot be unpacked: {error or type(error).__name__}") from None


def _untar(archive: str, mode: Any, folder: str, budget: Budget) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise Invalid("unpacking tar archives safely needs Python 3.11.4 or newer")
    with tarfile.open(archive, mode) as tar:
        for member in tar:
            budget.take(member.size)
            tar.extract(member, folder, filter="data")


def _unzip(archive: str, folder: str, budget: Budget) -> None:
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            budget.take(entry.file_size)
            _unzip_entry(opened, entry, folder)


def _unzip_entry(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: str) -> None:
    """Write one entry as a plain file or folder; a link becomes a file that holds its target."""
    parts = [part for part in entry.filename.split("/") if part not in ("", ".")]
    if entry.filename.startswith("/") or ".." in parts or any("\\" in part or "\0" in part for part in parts):
        raise Invalid(f"the archive holds {entry.filename[:80]!r}, which leads out of it")
    path = os.path.join(folder, *parts)
    if entry.is_dir() or not parts:
        os.makedirs(path, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    mode = stat.S_IMODE(entry.external_attr >> 16) & 0o755 | 0o600
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with opened.open(entry) as packed, os.fdopen(os.open(path, flags, mode), "wb") as file:
        shutil.copyfileobj(packed, file, CHUNK_BYTES)


def unpack_file(archive: str, kind: str, path: str, limits: ArtifactLimits) -> None:
    """Unpack a stream of one file."""
    budget = Budget(limits)
    try:
        with STREAMS[kind](archive) as packed, open(path, "xb") as file:
            _copy(packed, file, budget)
    except BROKEN as error:
        raise Invalid(f"the {kind} file cannot be unpacked: {error or type(error).__name__}") from None


def _copy(packed: IO[bytes], file: IO[bytes], budget: Budget) -> None:
    while data := packed.read(CHUNK_BYTES):
        budget.add(len(data))
        file.write(data)
