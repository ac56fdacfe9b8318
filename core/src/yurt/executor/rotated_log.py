"""The rotated log files of one output stream, written by the task's shim.

It is part of the zygote's program and imports only modules that the zygote needs.
"""

from __future__ import annotations

import errno
import os

KIND_MASK, PLAIN_FILE = 0o170000, 0o100000


class RotatedLog:
    """One output stream in files `<base>.0`, `<base>.1` ...: the newest is written, the oldest removed.

    A new start of the same task continues the newest file. Files are split at the end of a line when there is one. When
    the disk is full, or the folder is removed, output is dropped: a log never stops a task.

    The task may write in the folder and in the one above: it may put links and pipes there, and replace the folder by a
    link. So the folder is opened once, without following a link, and used by its descriptor; a file is written only
    when it is a plain one with one name.

    Until something is written only the folder is open: what opening a file takes would stay in the memory of each shim.
    """

    def __init__(self, base: bytes, *, max_files: int, max_bytes: int) -> None:
        folder, _, self.name = base.rpartition(b"/")
        self.max_files = max(1, max_files)
        self.max_bytes = max(1, max_bytes)
        self.folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.fd = -1
        self.size = self.index = 0

    def open_newest(self) -> None:
        """Open the newest file or create the first; otherwise the first write does it."""
        self.index = max(self.indexes(), default=0)
        self.open()

    def indexes(self) -> list[int]:
        """Numbers of the existing files."""
        prefix = os.fsdecode(self.name) + "."
        tails = [entry[len(prefix) :] for entry in os.listdir(self.folder) if entry.startswith(prefix)]
        return [int(tail) for tail in tails if tail.isdigit()]

    def open(self) -> None:
        """Open the file of the present index for appending."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(self.name + b".%d" % self.index, flags, 0o644, dir_fd=self.folder)
        found = os.fstat(fd)
        if found.st_mode & KIND_MASK != PLAIN_FILE or found.st_nlink != 1:
            os.close(fd)
            raise OSError(errno.EMLINK, "the log file is not a plain file with one name")
        self.fd = fd
        self.size = found.st_size

    def rotate(self) -> None:
        """Start the next file and remove the oldest ones above the limit."""
        os.close(self.fd)
        self.fd = -1
        self.index += 1
        self.open()
        for old in self.indexes():
            if old <= self.index - self.max_files:
                os.unlink(self.name + b".%d" % old, dir_fd=self.folder)

    def close(self) -> None:
        """Close both descriptors."""
        for fd in (self.fd, self.folder):
            if fd >= 0:
                os.close(fd)
        self.fd = self.folder = -1

    def write(self, data: bytes) -> None:
        """Append, rotating as often as needed."""
        try:
            if self.fd < 0:
                self.open_newest()
            while data:
                if self.size >= self.max_bytes:
                    self.rotate()
                part = data[: cut(data, self.max_bytes - self.size, fresh=self.size == 0)]
                if part:
                    self.size += os.write(self.fd, part)
                    data = data[len(part) :]
                else:
                    self.rotate()
        except OSError:
            return


def cut(data: bytes, capacity: int, *, fresh: bool) -> int:
    """The number of bytes of `data` for `room`: all, else whole lines, else (in a new file) as many as fit."""
    if len(data) <= capacity:
        return len(data)
    line_end = data.rfind(b"\n", 0, capacity) + 1
    return line_end if line_end or not fresh else capacity
