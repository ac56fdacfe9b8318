"""One file of the audit log: appends whole lines, rotates the file by size or age, keeps the newest ones.

Everything here blocks, and there is one call at a time: a short write to an open file takes some microseconds, all else
belongs into a thread. A write is whole or it is undone: where the disk is full in the middle of a line, the file is
truncated to its earlier size. Lines are in the page cache when a write returns: they survive the end of the process,
not a loss of power (docs/reference/audit-log.md).
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import re
import stat
from pathlib import Path
from typing import Final

from yurt.api.times import parse_rfc3339
from yurt.audit.settings import AuditSinkSettings
from yurt.sdk.value import NANOSECONDS

log = logging.getLogger(__name__)

STAMP: Final = r"\d{8}T\d{6}\.\d{9}Z"
"""The time in the name of an older file: `audit-20260102T030405.000000006Z.log`."""
FIRST_LINE_BYTES: Final = 4_096
_CREATED: Final = re.compile(rb'"(?:created_at|@timestamp)": ?"([^"]{1,40})"|\A(\d{4}-[0-9T:.-]{1,30}Z) ')


class AuditFile:
    """A file that grows by whole lines."""

    def __init__(self, settings: AuditSinkSettings) -> None:
        self.settings = settings
        self._path = Path(settings.path)
        self._fd = -1
        self._size = 0
        self._created_ns = 0
        self._is_torn = False
        """The end of the file is a part of a line that could not be cut off."""
        self._has_reported_rotation = False

    def open(self, now_ns: int) -> None:
        """Open the file, or make it with its folder; raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(self._path, flags, self.settings.mode)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(f"{self._path} is not a regular file")
            if stat.S_IMODE(found.st_mode) != self.settings.mode:
                os.fchmod(fd, self.settings.mode)
            created_ns = _creation_ns(self._path) if found.st_size else now_ns
            is_torn = bool(found.st_size) and not _ends_in_line(self._path, found.st_size)
        except OSError:
            os.close(fd)
            raise
        self.close()
        self._fd, self._size, self._created_ns, self._is_torn = fd, found.st_size, created_ns, is_torn

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def is_ready(self, more: int, now_ns: int) -> bool:
        """Whether `write` would only append: the file is open, whole and still there, and needs no rotation."""
        try:
            return not (self._is_gone() or self._is_torn or self._is_due(more, now_ns))
        except OSError:
            return False  # `write` reports it.

    def write(self, lines: bytes, now_ns: int) -> None:
        """Append lines, each with its line break; raises OSError, and then none of them is written."""
        if self._is_gone():
            self.open(now_ns)  # The file was removed: further lines in it would be lost.
        if self._is_due(len(lines), now_ns):
            self._rotate(now_ns)
        if self._is_torn:
            lines = b"\n" + lines
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._fd, memoryview(lines)[written:])
        except OSError:
            self._take_back(written)
            raise
        self._size += written
        self._is_torn = False

    def _is_gone(self) -> bool:
        return self._fd < 0 or os.fstat(self._fd).st_nlink == 0

    def _take_back(self, written: int) -> None:
        if not written:
            return
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._size += written
            self._is_torn = True

    def _is_due(self, more: int, now_ns: int) -> bool:
        if not self._size:
            return False
        settings = self.settings
        is_full = bool(settings.rotate_bytes) and self._size + more > settings.rotate_bytes
        is_old = bool(settings.rotate_s) and now_ns - self._created_ns >= settings.rotate_s * NANOSECONDS
        return is_full or is_old

    def _rotate(self, now_ns: int) -> None:
        """Rename the file and begin a new one; on failure the present file is continued."""
        try:
            os.rename(self._path, self._name_of_older(now_ns))
            self.open(now_ns)
            self._remove_oldest()
        except OSError as error:
            if not self._has_reported_rotation:
                self._has_reported_rotation = True  # first: the message itself may be written to this file
                log.error("log file cannot be rotated: log=%s path=%s error=%s", self.settings.kind, self._path, error)
        else:
            self._has_reported_rotation = False

    def _name_of_older(self, now_ns: int) -> Path:
        at_ns = now_ns
        while True:
            seconds, rest = divmod(at_ns, NANOSECONDS)
            stamp = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
            name = f"{self._path.stem}-{stamp:%Y%m%dT%H%M%S}.{rest:09d}Z{self._path.suffix}"
            if not (found := self._path.with_name(name)).exists():
                return found
            at_ns += 1

    def _remove_oldest(self) -> None:
        most = self.settings.rotate_max_files
        if not most:
            return
        pattern = re.compile(rf"{re.escape(self._path.stem)}-{STAMP}{re.escape(self._path.suffix)}")
        older = sorted(each for each in self._path.parent.iterdir() if pattern.fullmatch(each.name))
        for each in older[: max(0, len(older) - max(0, most))]:
            with contextlib.suppress(FileNotFoundError):
                each.unlink()


def _creation_ns(path: Path) -> int:
    """The creation time of a file in nanoseconds: that of its first line, else of its last change."""
    with path.open("rb") as file:
        found = _CREATED.search(file.read(FIRST_LINE_BYTES))
    with contextlib.suppress(ValueError):
        if found is not None:
            return parse_rfc3339((found[1] or found[2]).decode("ascii", "replace"))
    return path.stat().st_mtime_ns


def _ends_in_line(path: Path, size: int) -> bool:
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"
