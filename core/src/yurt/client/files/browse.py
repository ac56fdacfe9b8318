"""Listings, entries and reads of an allocation's directory."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import stat
from collections.abc import AsyncGenerator

from yurt.client.files.safe_files import Owners, check_names, is_private, open_beneath, parts_of
from yurt.sdk.errors import Invalid, PermissionDenied
from yurt.structs.rpc import FileInfo

LIST_MAX = 10_000
SNIFF_BYTES = 512
CHUNK_BYTES = 64 * 1024


async def list_files(root: str, path: str, *, owners: Owners = None) -> tuple[FileInfo, ...]:
    """A directory, sorted by name; a file lists itself."""
    return await asyncio.to_thread(_list, root, path, owners)


async def stat_file(root: str, path: str, *, owners: Owners = None) -> FileInfo:
    """One file or directory."""
    return await asyncio.to_thread(_stat, root, path, owners)


async def read_file(root: str, path: str, *, offset: int, limit: int, owners: Owners = None) -> AsyncGenerator[bytes]:
    """The bytes from `offset`, at most `limit` (0: all)."""
    if offset < 0 or limit < 0:
        raise Invalid("offset and limit cannot be negative")
    descriptor = await asyncio.to_thread(open_file, root, path, owners)
    try:
        left = limit or None
        while left is None or left > 0:
            size = CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)
            data = await asyncio.to_thread(os.pread, descriptor, size, offset)
            if not data:
                return
            yield data
            offset += len(data)
            left = None if left is None else left - len(data)
    finally:
        os.close(descriptor)


def open_file(root: str, path: str, owners: Owners) -> int:
    """A descriptor of a plain file; blocking."""
    descriptor = open_beneath(root, path, owners=owners)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Invalid(f"{path!r} is a directory; name a file in it")
    return descriptor


def _stat(root: str, path: str, owners: Owners) -> FileInfo:
    descriptor = open_beneath(root, path, owners=owners)
    try:
        parts = parts_of(path)
        return _info(parts[-1] if parts else "/", os.fstat(descriptor), descriptor)
    finally:
        os.close(descriptor)


def _list(root: str, path: str, owners: Owners) -> tuple[FileInfo, ...]:
    descriptor = open_beneath(root, path, owners=owners)
    try:
        found = os.fstat(descriptor)
        parts = parts_of(path)
        if not stat.S_ISDIR(found.st_mode):
            return (_info(parts[-1], found, descriptor),)
        with os.scandir(descriptor) as entries:
            names = sorted(entry.name for entry, _ in zip(entries, range(LIST_MAX), strict=False))
        return tuple(info for name in names if (info := _entry(descriptor, (*parts, name), owners)) is not None)
    finally:
        os.close(descriptor)


def _entry(directory: int, parts: tuple[str, ...], owners: Owners) -> FileInfo | None:
    """An entry of a directory; None when it was removed meanwhile."""
    name = parts[-1]
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode) or is_private(parts):
            return _info(name, found, None)
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError:
        return _info(name, found, None)
    try:
        check_names(descriptor, owners, name)
        return _info(name, found, descriptor)
    except PermissionDenied:
        return _info(name, found, None)
    finally:
        os.close(descriptor)


def _info(name: str, found: os.stat_result, descriptor: int | None) -> FileInfo:
    is_dir = stat.S_ISDIR(found.st_mode)
    return FileInfo(
        name=name,
        is_dir=is_dir,
        size=found.st_size,
        file_mode=stat.filemode(found.st_mode),
        mod_time=found.st_mtime_ns,
        content_type="" if is_dir or not stat.S_ISREG(found.st_mode) else _content_type(name, descriptor),
    )


def _content_type(name: str, descriptor: int | None) -> str:
    guessed, _ = mimetypes.guess_type(name)
    if guessed:
        return guessed
    if descriptor is None:
        return "application/octet-stream"
    head = os.pread(descriptor, SNIFF_BYTES, 0)
    is_text = not any(byte < 32 and byte not in b"\t\n\r\f\x1b\b" for byte in head)
    return "text/plain; charset=utf-8" if is_text else "application/octet-stream"
