"""Reads this agent's log file, after its rotated predecessors.

A predecessor is `<name>-<time>.<ending>` in the same folder (`yurt.audit.files`). Those that were last written to
before the requested time are left out. The file is opened before its predecessors are listed, so that a rotation in
between neither repeats nor loses lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from yurt.sdk.errors import Invalid

PIECE_BYTES: Final = 64 * 1024
QUIET_S: Final = 0.5
"""The interval at which a followed file is checked; a check without new lines gives an empty piece."""
NO_LOG_FILE: Final = (
    "this agent writes no log file: set log_file in its configuration; when systemd keeps its log, use service_name"
)


def log_path() -> Path | None:
    """The agent's log file; None when it writes none."""
    paths = (getattr(handler, "log_path", None) for handler in logging.getLogger().handlers)
    return next((path for path in paths if isinstance(path, Path)), None)


async def log_file_pieces(since_s: float, *, follow: bool) -> AsyncGenerator[bytes]:
    """The lines of the files, the oldest first; with `follow` until cancelled. Raises Invalid without a file."""
    path = log_path()
    if path is None:
        raise Invalid(NO_LOG_FILE)
    with _opened(path) as current:
        if current is None:
            raise Invalid(f"the log file {path} cannot be read")
        for older in await asyncio.to_thread(_older, path, os.fstat(current).st_ino, time.time() - since_s):
            async for piece in _file_pieces(older):
                yield piece
        async for piece in _pieces(current, stays=partial(_is_at, path, current) if follow else None):
            yield piece
    while follow:  # the file was rotated
        with _opened(path) as fd:
            async for piece in _pieces(fd, stays=partial(_is_at, path, fd)):
                yield piece
        await asyncio.sleep(QUIET_S)


async def _file_pieces(path: Path) -> AsyncGenerator[bytes]:
    """A file's content; empty when the file no longer exists."""
    with _opened(path) as fd:
        async for piece in _pieces(fd):
            yield piece


async def _pieces(fd: int | None, *, stays: Callable[[], bool] | None = None) -> AsyncGenerator[bytes]:
    """A file's content, followed by new lines as long as the file `stays` in its place."""
    is_last = stays is None
    while fd is not None:
        piece = await asyncio.to_thread(os.read, fd, PIECE_BYTES)
        if piece or not is_last:
            yield piece
        if piece:
            continue
        if is_last:
            return
        await asyncio.sleep(QUIET_S)
        is_last = stays is None or not await asyncio.to_thread(stays)  # lines written meanwhile are still read


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """The descriptor of a regular file; None where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield None
        return
    try:
        yield fd if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def _is_at(path: Path, fd: int | None) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return fd is not None and path.stat().st_ino == os.fstat(fd).st_ino
    except OSError:
        return False


def _older(path: Path, current_inode: int, since: float) -> list[Path]:
    """The predecessors that were written to since `since` (Unix seconds), oldest first."""
    found = []
    for each in path.parent.glob(f"{path.stem}-*{path.suffix}"):
        with contextlib.suppress(OSError):
            facts = each.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_mtime >= since and facts.st_ino != current_inode:
                found.append((facts.st_mtime_ns, each))
    return [each for _, each in sorted(found)]
