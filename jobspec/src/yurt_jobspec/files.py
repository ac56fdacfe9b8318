"""File access for the file functions: all files that the user can read, one folder, or none; with size limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


MAX_FILE_BYTES = 4 * 1024 * 1024
"""A file function refuses a file larger than this."""


class FileAccessError(Exception):
    """The file cannot or must not be read; the text gives the reason."""


class Files:
    """Resolves relative paths against a folder; without a folder every access is refused.

    `is_confined`: nothing outside of the folder is read. A command line reads for its own user, who may read them
    anyway, and passes False; a server reads for strangers and passes no folder.
    """

    def __init__(self, base: Path | None, *, is_confined: bool = True) -> None:
        self.base = base
        self.is_confined = is_confined

    def resolve(self, path: str) -> Path:
        """The real path of a name; a confined reader allows paths in its folder only. Raises FileAccessError."""
        if self.base is None:
            raise FileAccessError("filesystem function disabled")
        if "\0" in path:
            raise FileAccessError("a path must not contain NUL")
        base = self.base.resolve()
        resolved = (base / path).resolve()
        if not self.is_confined:
            return resolved
        if resolved != base and base not in resolved.parents:
            raise FileAccessError(
                f"no file exists at {path} inside the job file's folder; files outside it may not be read"
            )
        return resolved

    def read(self, path: str) -> bytes:
        """The content of a file; raises FileAccessError."""
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
