"""Unpacks archives with limits into a private folder; blocking, in the child process.

An archive is hostile until shown otherwise: its entries may name places outside, link there, be devices, or unfold to
petabytes. `yurt.client.archives` keeps everything inside; here sizes and numbers are counted before anything is
written.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import os
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Final

from yurt.client.archives import tar
from yurt.client.archives.tree import FOLDER_FLAGS, Attributes, TreeWriter, shown
from yurt.client.artifacts.fetch_request import ArtifactLimits
from yurt.sdk.errors import Invalid

CHUNK_BYTES: Final = 256 * 1024


def zstandard() -> Any:
    """The module for Zstandard, Python's own from 3.14 on. Its default bounds the window to 128 MiB.

    Call it once before a confined process needs it: the module's folder may be out of reach then.
    """
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def _broken() -> tuple[type[Exception], ...]:
    """`BROKEN`, and Zstandard's own error once its module is loaded."""
    loaded = sys.modules.get("compression.zstd") or sys.modules.get("backports.zstd")
    return BROKEN if loaded is None else (*BROKEN, loaded.ZstdError)


def _open_zstandard(path: str) -> Any:
    return zstandard().open(path)


def _open_plain(path: str) -> IO[bytes]:
    return open(path, "rb")


STREAMS: Final[dict[str, Callable[[str], Any]]] = {
    "gz": gzip.open, "bz2": bz2.open, "xz": lzma.open, "zst": _open_zstandard,
}  # fmt: skip
BROKEN: Final = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, ValueError, LookupError,
    NotImplementedError, RuntimeError,
)  # fmt: skip
"""Exceptions of the standard library for damaged, encrypted or unknown archives."""


class SizeBudget:
    """The remaining bytes and files that an archive may unpack to."""

    def __init__(self, limits: ArtifactLimits) -> None:
        self.limits = limits
        self.files = 0
        self.folders = 0
        self.bytes = 0

    def take(self, size: int) -> None:
        """Count one entry of a size; raises Invalid beyond the limits."""
        self.files += 1
        self.add(size)
        if self.files > self.limits.file_count_max:
            raise Invalid(
                f"the archive holds more than {self.limits.file_count_max} files "
                "(client artifact.decompression_file_count_limit)"
            )

    def add_folder(self) -> None:
        """Count one folder, explicit or implied by the name of an entry."""
        self.folders += 1
        if self.folders > self.limits.file_count_max:
            raise Invalid(
                f"the archive makes more than {self.limits.file_count_max} folders "
                "(client artifact.decompression_file_count_limit)"
            )

    def add(self, size: int) -> None:
        """Count more bytes."""
        self.bytes += size
        if self.bytes > self.limits.unpacked_bytes_max:
            raise Invalid(
                f"the archive unpacks to more than {self.limits.unpacked_bytes_max} bytes "
                "(client artifact.decompression_size_limit)"
            )


def unpack_tree(archive: str, kind: str, folder: str, limits: ArtifactLimits) -> None:
    """Unpack a tar or zip archive into a new folder."""
    os.mkdir(folder, 0o755)
    top = os.open(folder, FOLDER_FLAGS)
    budget = SizeBudget(limits)
    writer = TreeWriter(top, budget)
    try:
        if kind == "zip":
            _unzip(archive, writer, budget)
        else:
            _untar(archive, kind, writer, budget)
        writer.finish()
    except _broken() as error:
        raise Invalid(f"the {kind} archive cannot be unpacked: {error or type(error).__name__}") from None
    finally:
        os.close(top)


def _untar(archive: str, kind: str, writer: TreeWriter, budget: SizeBudget) -> None:
    opener = STREAMS.get(kind.removeprefix("tar."), _open_plain)
    with opener(archive) as stream:
        reader = tar.TarReader(stream)
        for entry in reader.entries():
            budget.take(entry.size)
            _write_entry(entry, reader, writer)


def _write_entry(entry: tar.TarEntry, reader: tar.TarReader, writer: TreeWriter) -> None:
    if entry.kind == tar.FILE:
        writer.file(entry.name, reader.data(), Attributes(_file_mode(entry.mode), entry.mtime))
    elif entry.kind == tar.FOLDER:
        writer.folder(entry.name)
    elif entry.kind == tar.LINK:
        writer.link(entry.name, entry.target)
    elif entry.kind == tar.HARD_LINK:
        writer.hard_link(entry.name, entry.target)
    else:
        raise Invalid(f"the archive holds {shown(entry.name)}, which is neither a file, a folder nor a link")


def _file_mode(mode: int) -> int:
    """The mode of an unpacked file: writable by its owner, executable by all when its owner may execute it."""
    permissions = mode & 0o755 | 0o600
    return permissions if mode & 0o100 else permissions & 0o644


def _unzip(archive: str, writer: TreeWriter, budget: SizeBudget) -> None:
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            budget.take(entry.file_size)
            _unzip_entry(opened, entry, writer)


def _unzip_entry(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, writer: TreeWriter) -> None:
    """Write one entry as a plain file or folder; a link becomes a file that holds its target."""
    name = entry.filename
    if name.startswith("/") or "\\" in name:
        raise Invalid(f"the archive holds {shown(name)}, which leads out of it")
    if name.endswith("/"):
        writer.folder(name)
        return
    with opened.open(entry) as packed:
        mode = stat.S_IMODE(entry.external_attr >> 16) & 0o755 | 0o600
        writer.file(name, _pieces(packed), Attributes(mode))


def _pieces(packed: IO[bytes]) -> Iterator[bytes]:
    while data := packed.read(CHUNK_BYTES):
        yield data


def unpack_file(archive: str, kind: str, path: str, limits: ArtifactLimits) -> None:
    """Unpack a stream of one file."""
    budget = SizeBudget(limits)
    try:
        with STREAMS[kind](archive) as packed, open(path, "xb") as file:
            _copy(packed, file, budget)
    except _broken() as error:
        raise Invalid(f"the {kind} file cannot be unpacked: {error or type(error).__name__}") from None


def _copy(packed: IO[bytes], file: IO[bytes], budget: SizeBudget) -> None:
    while data := packed.read(CHUNK_BYTES):
        budget.add(len(data))
        file.write(data)
