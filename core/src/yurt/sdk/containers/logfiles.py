"""The rotated log files of one task, `<logs_dir>/<task>.<stream>.N`, and the record of the collected output.

The next collector of a task's output truncates the files to the recorded length and requests the output after it from
the engine. An agent that dies between the two writes thus neither loses nor repeats a line.

The log folder is writable by the task, whose root could put links there: files are opened beneath a descriptor of the
folder and never through a link, and anything but a plain file with one name is replaced.
"""

from __future__ import annotations

import json
import os
import stat

import msgspec

from yurt.sdk.driver import LogRotation

STREAM_NAMES = ("stdout", "stderr")
POSITION_BYTES = 512
OVERLAP_NS = 100_000_000
FILE_MODE = 0o644
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Position(msgspec.Struct):
    """The position up to which output was read and written; a file is identified by its number and its length.

    `clock_ns` is the wall clock less the monotonic clock, by which the next collector sees that the clock was set back.
    """

    reached: dict[str, tuple[int, int]] = {}
    files: dict[str, tuple[int, int]] = {}
    clock_ns: int = 0

    @property
    def since(self) -> int:
        """The time from which to request output again; 0 is the beginning."""
        times = [at for at, _ in self.reached.values() if at]
        return max(0, min(times) - OVERLAP_NS) if times else 0


def open_plain(folder: int, name: str) -> int:
    """Open a log file for appending; replaces a link, a FIFO or any other non-regular file."""
    try:
        found = os.open(name, FLAGS | os.O_CREAT, FILE_MODE, dir_fd=folder)
    except OSError:
        os.unlink(name, dir_fd=folder)
        return os.open(name, FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=folder)
    status = os.fstat(found)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return found
    os.close(found)
    os.unlink(name, dir_fd=folder)
    return os.open(name, FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=folder)


class LogFiles:
    """The rotated files of a task."""

    def __init__(self, folder: str, task_name: str, rotation: LogRotation) -> None:
        self.task_name = task_name
        self.rotation = rotation
        self.folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.open_files: dict[str, int] = {}
        self.places: dict[str, tuple[int, int]] = {}

    def _name(self, stream: str, index: int) -> str:
        return f"{self.task_name}.{stream}.{index}"

    def _indexes(self, stream: str) -> list[int]:
        """The numbers of the existing files."""
        prefix = f"{self.task_name}.{stream}."
        suffixes = [name.removeprefix(prefix) for name in os.listdir(self.folder) if name.startswith(prefix)]
        return sorted(int(suffix) for suffix in suffixes if suffix.isascii() and suffix.isdigit())

    def open(self, places: dict[str, tuple[int, int]]) -> None:
        """Continue at a position and truncate what lies behind it; without one, at the end of the last file."""
        for stream in STREAM_NAMES:
            indexes = self._indexes(stream)
            index, size = places.get(stream) or (indexes[-1] if indexes else 0, -1)
            for later in indexes:
                if later > index:
                    os.unlink(self._name(stream, later), dir_fd=self.folder)
            found = open_plain(self.folder, self._name(stream, index))
            present = os.fstat(found).st_size
            if 0 <= size < present:
                os.ftruncate(found, size)
                present = size
            self.open_files[stream] = found
            self.places[stream] = (index, present)

    def write(self, stream: str, data: bytes) -> None:
        """Append; a file never exceeds its limit, and lines stay whole where possible."""
        rest = memoryview(data)
        while rest:
            index, size = self.places[stream]
            take = fitting(rest, self.rotation.max_bytes - size, is_empty=size == 0)
            if take == 0:
                self._rotate(stream)
                continue
            written = os.write(self.open_files[stream], rest[:take])
            self.places[stream] = (index, size + written)
            rest = rest[written:]

    def _rotate(self, stream: str) -> None:
        """Start the next file and remove the oldest ones above the limit."""
        index = self.places[stream][0] + 1
        os.close(self.open_files[stream])
        self.open_files[stream] = open_plain(self.folder, self._name(stream, index))
        os.ftruncate(self.open_files[stream], 0)
        self.places[stream] = (index, 0)
        for old in self._indexes(stream):
            if old <= index - self.rotation.max_files:
                os.unlink(self._name(stream, old), dir_fd=self.folder)

    def close(self) -> None:
        """Close every file."""
        for each in (*self.open_files.values(), self.folder):
            os.close(each)
        self.open_files.clear()


def fitting(data: memoryview, free_bytes: int, *, is_empty: bool) -> int:
    """The number of bytes for the current file: all, whole lines, or a part of a line that fits into no file."""
    if len(data) <= free_bytes:
        return len(data)
    if free_bytes > 0:
        line_end = bytes(data[:free_bytes]).rfind(b"\n") + 1
        if line_end or is_empty:
            return line_end or free_bytes
    return 0 if not is_empty else min(len(data), 1)


class PositionFile:
    """The file with a reader's position, rewritten in place."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def load(self) -> Position:
        """The recorded position; a new one when the record is missing or incomplete."""
        text = os.pread(self.file, POSITION_BYTES, 0).rstrip(b"\0 ")
        try:
            return msgspec.json.decode(text, type=Position) if text else Position()
        except msgspec.DecodeError:
            return Position()

    def store(self, position: Position) -> None:
        """Record a position."""
        os.pwrite(self.file, json.dumps(msgspec.to_builtins(position)).encode().ljust(POSITION_BYTES), 0)

    def close(self) -> None:
        """Close the file; it remains for the next reader."""
        os.close(self.file)
