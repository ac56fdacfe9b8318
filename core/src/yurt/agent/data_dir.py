"""The folders of an agent: `server`, `client`, `alloc`, `plugins` and the run folder, with one owner and one format version."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from yurt.sdk.errors import Conflict, Invalid

FORMAT_VERSION = 1
VERSION_FILE = "yurt-format"
LOCK_FILE = "yurt.lock"


class DataDir:
    """An opened data directory. `is_temporary` ones (dev mode) are removed when it is closed."""

    def __init__(self, root: Path, *, is_temporary: bool, lock: IO[str]) -> None:
        self.root = root
        self.is_temporary = is_temporary
        self._lock = lock

    @property
    def server(self) -> Path:
        """State of the server."""
        return self.root / "server"

    @property
    def client(self) -> Path:
        """State of the client."""
        return self.root / "client"

    @property
    def alloc(self) -> Path:
        """Directories of allocations."""
        return self.root / "alloc"

    @property
    def run(self) -> Path:
        """Sockets and what else does not outlive the agent's purpose."""
        return self.root / "run"

    def close(self) -> None:
        """Give the directory up; a temporary one is removed with all that it holds."""
        if self.is_temporary:
            shutil.rmtree(self.root, ignore_errors=True)
        self._lock.close()


def open_data_dir(path: str) -> DataDir:
    """Make or take over a data directory, or make a temporary one for "". Raises Invalid or Conflict with the fix."""
    is_temporary = not path
    root = Path(tempfile.mkdtemp(prefix="yurt-dev-")) if is_temporary else Path(path)
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o711)
        if is_temporary:
            root.chmod(0o711)
        for name, mode in (("server", 0o700), ("client", 0o700), ("alloc", 0o711), ("plugins", 0o700), ("run", 0o700)):
            (root / name).mkdir(exist_ok=True, mode=mode)
        lock = _lock(root)
        _check_version(root)
    except PermissionError:
        raise Invalid(
            f"The data directory {root} is not writable by user id {os.geteuid()}. "
            f"Run the agent as its owner, `chown` it, or choose another with -data-dir."
        ) from None
    except NotADirectoryError:
        raise Invalid(f"{root} is not a directory; choose another place with -data-dir.") from None
    except FileExistsError as error:
        raise Invalid(f"{error.filename} is in the way: it is not a directory. Choose another -data-dir.") from None
    except OSError as error:
        raise Invalid(f"The data directory {root} cannot be used: {error.strerror}. Choose another with -data-dir.") from None
    return DataDir(root, is_temporary=is_temporary, lock=lock)


def _lock(root: Path) -> IO[str]:
    lock = (root / LOCK_FILE).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        owner = lock.read(32).strip()
        lock.close()
        by = f" (process {owner})" if owner else ""
        raise Conflict(f"The data directory {root} is in use by another agent{by}. Stop it, or choose another with -data-dir.") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _check_version(root: Path) -> None:
    file = root / VERSION_FILE
    found = file.read_text().strip() if file.exists() else ""
    if not found:
        file.write_text(f"{FORMAT_VERSION}\n")
    elif found != str(FORMAT_VERSION):
        raise Conflict(
            f"The data directory {root} was written by another version of Yurt (format {found[:16]}, this one reads "
            f"{FORMAT_VERSION}). Use that version, or start afresh with another -data-dir."
        )
