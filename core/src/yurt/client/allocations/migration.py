"""Migration of sticky data to another node: `alloc/data` and each task's `local` as one tar stream.

The stream comes from another machine, so it is unpacked like an untrusted archive (`yurt.client.archives.tree`): only
names in those folders are accepted, devices and pipes are left out, links are made last, so that nothing is ever
written through one, and the total size is limited. A link may lead anywhere, because a task may create any link. Owners
and modes are kept, except setuid and setgid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import stat
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, ParamSpec, TypeVar

from yurt.client.files.alloc_dir import alloc_path, component
from yurt.client.files.safe_files import Owners
from yurt.sdk.errors import Invalid, YurtError

if TYPE_CHECKING:
    from yurt.client.archives.tree import TreeWriter

P = ParamSpec("P")
T = TypeVar("T")

PIECE_BYTES = 256 * 1024

log = logging.getLogger(__name__)


def folders_of(tasks: Iterable[str]) -> tuple[str, ...]:
    """The migrated folders, relative to the allocation's directory."""
    return ("alloc/data", *(f"{component(task)}/local" for task in tasks))


async def to_its_end(function: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
    """Run a call in a thread to its end even when cancelled, because the caller then closes a descriptor it uses."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **given))  # noqa: TID251 - awaited in any case
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        work.exception()
        raise


async def pack(root: str, alloc_id: str, tasks: Iterable[str], *, owners: Owners = None) -> AsyncGenerator[bytes]:
    """The data of an ended allocation in pieces; files with several hard links are packed only for these owners."""
    base, folders = alloc_path(root, alloc_id), folders_of(tasks)
    reader, writer = os.pipe()
    packing = asyncio.ensure_future(asyncio.to_thread(_pack, base, folders, writer, owners))  # noqa: TID251 - awaited below
    try:
        while piece := await to_its_end(os.read, reader, PIECE_BYTES):
            yield piece
        await packing
    finally:
        os.close(reader)
        with contextlib.suppress(BrokenPipeError):
            await packing


def _pack(base: Path, folders: Iterable[str], writer: int, owners: Owners) -> None:
    def moving(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return member if _is_plain(member) and not _is_of_host(base / member.name, owners) else None

    with os.fdopen(writer, "wb") as file, tarfile.open(fileobj=file, mode="w|") as tar:
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                tar.add(base / folder, arcname=folder, filter=moving)


def _is_plain(member: tarfile.TarInfo) -> bool:
    return member.isfile() or member.isdir() or member.issym() or member.islnk()


def _is_of_host(path: Path, owners: Owners) -> bool:
    """Whether a file may be a hard link to a file of the host, which must not reach another node."""
    found = path.lstat()
    if owners is None or not stat.S_ISREG(found.st_mode) or found.st_nlink == 1 or found.st_uid in owners:
        return False
    log.warning("migration leaves out a hard-linked file of another user: path=%s uid=%d", path, found.st_uid)
    return True


async def unpack(pieces: AsyncIterator[bytes], root: str, alloc_id: str, *, tasks: Iterable[str], limit: int) -> None:
    """Write the data below the directory of a new allocation; raises Invalid for a forbidden entry or too much data.

    All or nothing: where the stream fails or is refused, the folders are empty, because a task could not tell a file
    that is cut off from a whole one.
    """
    base, folders = alloc_path(root, alloc_id), folders_of(tasks)
    try:
        await _unpack_pieces(pieces, base, folders, limit)
    except YurtError:
        await to_its_end(_empty, base, folders)
        raise


async def _unpack_pieces(pieces: AsyncIterator[bytes], base: Path, folders: tuple[str, ...], limit: int) -> None:
    reader, writer = os.pipe()
    unpacking = asyncio.ensure_future(  # noqa: TID251 - awaited below
        asyncio.to_thread(_unpack, base, folders, reader, limit)
    )
    try:
        with contextlib.suppress(BrokenPipeError):
            async for piece in pieces:
                await to_its_end(_write_all, writer, piece)
    except BaseException:
        os.close(writer)
        with contextlib.suppress(Invalid):  # what ended the stream is the reason, not that it is too short
            await unpacking
        raise
    os.close(writer)
    await unpacking


def _empty(base: Path, folders: Iterable[str]) -> None:
    """Remove what lies in the folders, which belong to nobody else yet; links are removed and not followed."""
    for folder in folders:
        path = base / folder
        is_folder = path.is_dir() and not path.is_symlink()
        for each in path.iterdir() if is_folder else (path,):
            _remove(each)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write_all(writer: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(writer, view) :]


class _Limit:
    """Bounds the bytes of the data."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._total = 0

    def add(self, size: int) -> None:
        """Count more bytes."""
        self._total += size
        if self._total > self._limit:
            raise Invalid(f"the data takes more than {self._limit} bytes (ephemeral_disk.size)")

    def add_folder(self) -> None:
        """Ignore folders: they take no bytes of the limit."""


def _unpack(base: Path, folders: tuple[str, ...], reader: int, limit: int) -> None:
    from yurt.client.archives.tree import FOLDER_FLAGS, TreeWriter

    with os.fdopen(reader, "rb") as file:
        top = os.open(base, FOLDER_FLAGS)
        try:
            _write(file, TreeWriter(top, budget := _Limit(limit), takes_any_link=True), folders, budget)
        except OSError as error:
            raise Invalid(f"the data cannot be unpacked: {error}") from None
        finally:
            os.close(top)
        _drain(file)


def _drain(file: IO[bytes]) -> None:
    """Read the padding after the archive, so that the sender's pipe does not break."""
    while file.read(PIECE_BYTES):
        pass


def _write(file: IO[bytes], writer: TreeWriter, folders: tuple[str, ...], budget: _Limit) -> None:
    """Write folders and files, then the links."""
    from yurt.client.archives import tar
    from yurt.client.archives.tree import Attributes

    reader = tar.TarReader(file)
    for entry in reader.entries():
        name = entry.name.strip("/")
        if not _is_below(name, folders):
            raise Invalid(f"the data names {name[:80]!r}, which lies outside of the allocation's data")
        budget.add(entry.size)
        owner = (entry.uid, entry.gid)
        attributes = Attributes(entry.mode, entry.mtime, owner)
        if entry.kind == tar.FILE:
            writer.file(name, reader.data(), attributes)
        elif entry.kind == tar.FOLDER:
            writer.folder(name, attributes)
        elif entry.kind == tar.LINK:
            writer.link(name, entry.target, owner)
        elif entry.kind == tar.HARD_LINK:
            writer.hard_link(name, entry.target)
    writer.finish()


def _is_below(name: str, folders: tuple[str, ...]) -> bool:
    parts = name.split("/")
    return not {"..", ".", ""}.intersection(parts) and any(
        name == folder or name.startswith(f"{folder}/") for folder in folders
    )
