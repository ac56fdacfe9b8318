"""A folder on disk that belongs to one process at a time and has a format version.

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
    """An open folder; `close` lets others in."""

    def __init__(self, path: Path) -> None:
        """Make the folder if it is not there and take it; raises Conflict when another process has it."""
        self.path = path
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
        """Let others in; calling it again does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
            told = f" (pid {holder})" if holder.isdigit() else ""
            raise Conflict(
                f"the data folder {self.path} is in use by another process{told}; stop it or choose another data_dir"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _check_format(self) -> None:
        path = self.path / FORMAT_NAME
        try:
            found = path.read_text("utf-8", "replace").strip()
        except FileNotFoundError:
            write_durably(path, f"{FORMAT}\n".encode())
            return
        if found != FORMAT:
            raise Conflict(
                f'the data folder {self.path} has the format "{found[:40]}", this version reads "{FORMAT}"; '
                "use the version that wrote it, or choose another data_dir"
            )


def write_durably(path: Path, data: bytes) -> None:
    """Write a file as a whole: temporary name, fsync, rename, fsync of the folder."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    put_in_place(temporary, path)


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a synced file to its name and sync the folder."""
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
