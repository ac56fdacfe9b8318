"""What file functions may read: one folder, nothing outside it, and no more than a job needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


MAX_FILE_BYTES = 4 * 1024 * 1024
"""A file function refuses a file larger than this."""


class FileAccessError(Exception):
    """The file cannot or may not be read; the text says why."""


class Files:
    """The folder that file functions see; with no folder every access is refused."""

    def __init__(self, base: Path | None) -> None:
        self.base = base

    def resolve(self, path: str) -> Path:
        """The real path of a name inside the folder. Raises FileAccessError."""
        if self.base is None:
            raise FileAccessError("filesystem function disabled")
        if "\0" in path:
            raise FileAccessError("a path must not contain NUL")
        base = self.base.resolve()
        resolved = (base / path).resolve()
        if resolved != base and base not in resolved.parents:
            raise FileAccessError(
                f"no file exists at {path} inside the job file's folder; files outside it may not be read"
            )
        return resolved

    def read(self, path: str) -> bytes:
        """The content of a file. Raises FileAccessError."""
        resolved = self.resolve(path)
        try:
            if not resolved.is_file():
                raise FileAccessError(
                    f"no file exists at {path}" if not resolved.exists() else f"{path} is not a regular file"
                )
            if resolved.stat().st_size > MAX_FILE_BYTES:
                raise FileAccessError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
            return resolved.read_bytes()
        except OSError as error:
            raise FileAccessError(f"failed to read {path}: {error.strerror}") from None
