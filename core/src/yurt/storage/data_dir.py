"""A folder on disk with a format version, used by one process at a time.

The lock is the kernel's: it goes with the process that holds it, however that ends. The version file is written
when the folder is made; a folder of another version is refused before anything in it is read.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from yurt.sdk.errors import Conflict, Unavailable

FORMAT = "yurt data 1"
LOCK_NAME = "lock"
FORMAT_NAME = "format"


class DataDir:
    """An open, locked folder; `close` unlocks it."""

    def __init__(self, path: Path, *, formats: tuple[str, ...] = (FORMAT,)) -> None:
        """Create the folder if missing and lock it; raises Conflict when another process has locked it.

        `formats` are those that can be read, the newest last. A folder gets the newest one when `has_format` is called,
        or at once where there is only one.
        """
        self.path = path
        self.found_format = ""
        self._formats = formats
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(f"the data folder {path} can not be used: {error.strerror}; check data_dir") from error
        try:
            self._take()
            self._check_format()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Unlock the folder; may be called again."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
            owner = f" (pid {holder})" if holder.isdigit() else ""
            raise Conflict(
                f"the data folder {self.path} is in use by another process{owner}; stop it or choose another data_dir"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def has_format(self) -> None:
        """Record that the folder has the newest format, after all its parts exist."""
        if self.found_format != self._formats[-1]:
            self.found_format = self._formats[-1]
            write_durably(self.path / FORMAT_NAME, f"{self.found_format}\n".encode())

    def _check_format(self) -> None:
        try:
            found = (self.path / FORMAT_NAME).read_text("utf-8", "replace").strip()
        except FileNotFoundError:
            if len(self._formats) == 1:
                self.has_format()
            return
        if found not in self._formats:
            raise Conflict(
                f'the data folder {self.path} has the format "{found[:40]}", this version reads "{self._formats[-1]}"; '
                "use the version that wrote it, or choose another data_dir"
            )
        self.found_format = found


def write_durably(path: Path, data: bytes) -> None:
    """Write a file atomically: temporary name, fsync, rename, fsync of the folder."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    put_in_place(temporary, path)


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a synced file to its final name and sync the folder."""
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder's directory entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
