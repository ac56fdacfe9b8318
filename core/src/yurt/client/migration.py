"""The data of an allocation on its way to another node: `alloc/data` and each task's `local`, as one tar stream.

The stream comes from another machine, so it is held for hostile: only names in those folders are taken, devices and
pipes are left out, links are made last, so that nothing is ever written through one, and the whole has a limit.
Owners and modes are kept, save setuid and setgid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from yurt.client.alloc_dir import alloc_path, component
from yurt.sdk.errors import Invalid

P = ParamSpec("P")
T = TypeVar("T")

PIECE_BYTES = 256 * 1024
BROKEN = (tarfile.TarError, OSError, EOFError, ValueError)
MODE_BITS = 0o777


def folders_of(tasks: Iterable[str]) -> tuple[str, ...]:
    """What moves, relative to the allocation's directory."""
    return ("alloc/data", *(f"{component(task)}/local" for task in tasks))


async def to_its_end(function: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
    """A call in a thread that uses a descriptor: who is cancelled waits for it, so that none is closed under it."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **given))  # noqa: TID251 - awaited in any case
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        work.exception()
        raise


async def pack(root: str, alloc_id: str, tasks: Iterable[str]) -> AsyncGenerator[bytes]:
    """The data of an allocation that has ended, in pieces."""
    base, folders = alloc_path(root, alloc_id), folders_of(tasks)
    reader, writer = os.pipe()
    packing = asyncio.ensure_future(asyncio.to_thread(_pack, base, folders, writer))  # noqa: TID251 - awaited below
    try:
        while piece := await to_its_end(os.read, reader, PIECE_BYTES):
            yield piece
        await packing
    finally:
        os.close(reader)
        with contextlib.suppress(BrokenPipeError):
            await packing


def _pack(base: Path, folders: Iterable[str], writer: int) -> None:
    with os.fdopen(writer, "wb") as file, tarfile.open(fileobj=file, mode="w|") as tar:
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                tar.add(base / folder, arcname=folder, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return member if member.isfile() or member.isdir() or member.issym() or member.islnk() else None


async def unpack(pieces: AsyncIterator[bytes], root: str, alloc_id: str, *, tasks: Iterable[str], limit: int) -> None:
    """Write the data below the directory of a new allocation; raises Invalid for what may not be, or is too much."""
    base, folders = alloc_path(root, alloc_id), folders_of(tasks)
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


def _write_all(writer: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(writer, view) :]


def _unpack(base: Path, folders: tuple[str, ...], reader: int, limit: int) -> None:
    with os.fdopen(reader, "rb") as file:
        try:
            with tarfile.open(fileobj=file, mode="r|") as tar:
                links = list(_extracted(tar, base, folders, limit))
            for link in links:
                _make_link(base, link)
        except BROKEN as error:
            raise Invalid(f"the data cannot be unpacked: {error or type(error).__name__}") from None
        _drain(file)


def _drain(file: IO[bytes]) -> None:
    """Read the padding behind the archive, so that its sender meets no broken pipe."""
    while file.read(PIECE_BYTES):
        pass


def _extracted(tar: tarfile.TarFile, base: Path, folders: tuple[str, ...], limit: int) -> Iterator[tarfile.TarInfo]:
    """Write folders and files; gives the symbolic links, which are for later."""
    total = 0
    for member in tar:
        member.name = member.name.strip("/")
        if not _is_below(member.name, folders):
            raise Invalid(f"the data names {member.name[:80]!r}, which lies outside of the allocation's data")
        total += member.size
        if total > limit:
            raise Invalid(f"the data takes more than {limit} bytes (ephemeral_disk.size)")
        if member.issym():
            yield member
            continue
        if member.islnk() and not _is_below(member.linkname.strip("/"), folders):
            raise Invalid(f"the data links to {member.linkname[:80]!r}, outside of the allocation's data")
        if not (member.isfile() or member.isdir() or member.islnk()):
            continue
        member.mode &= MODE_BITS
        tar.extract(member, base, numeric_owner=True, filter="fully_trusted")


def _is_below(name: str, folders: tuple[str, ...]) -> bool:
    parts = name.split("/")
    return not {"..", ".", ""}.intersection(parts) and any(
        name == folder or name.startswith(f"{folder}/") for folder in folders
    )


def _make_link(base: Path, link: tarfile.TarInfo) -> None:
    parent = base / os.path.dirname(link.name)
    if os.path.realpath(parent) != os.path.join(os.path.realpath(base), os.path.dirname(link.name)):
        raise Invalid(f"the data puts {link.name[:80]!r} behind a link")
    os.symlink(link.linkname, base / link.name)
    with contextlib.suppress(PermissionError):
        os.lchown(base / link.name, link.uid, link.gid)
