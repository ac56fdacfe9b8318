"""The folders of an agent: `server`, `client`, `alloc`, `plugins` and the run folder, with one owner and one format
version.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from yurt.sdk.errors import Invalid
from yurt.storage.data_dir import LOCK_NAME
from yurt.storage.data_dir import DataDir as OwnedFolder

TEMPORARY = "yurt-dev-"
"""How the names of temporary data directories begin."""


class AgentDataDir:
    """An opened data directory. `is_temporary` ones (dev mode) are removed when it is closed."""

    def __init__(self, root: Path, *, is_temporary: bool, owned: OwnedFolder) -> None:
        self.root = root
        self.is_temporary = is_temporary
        self._owned = owned

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
        """Sockets and other files that are of no use after the agent's end."""
        return self.root / "run"

    def remove_if_temporary(self) -> None:
        """Remove a temporary directory with its content, which takes as long as its files are many. Blocks."""
        if self.is_temporary:
            shutil.rmtree(self.root, ignore_errors=True)

    def close(self) -> None:
        """Unlock the directory; a temporary one is removed with its content."""
        self.remove_if_temporary()
        self._owned.close()


def open_data_dir(path: str) -> AgentDataDir:
    """Make or take over a data directory, or make a temporary one for "". Raises Invalid or Conflict with the fix."""
    is_temporary = not path
    if is_temporary:
        remove_left_behind(Path(tempfile.gettempdir()))
    root = Path(tempfile.mkdtemp(prefix=TEMPORARY)) if is_temporary else Path(path)
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o711)
        if is_temporary:
            root.chmod(0o711)
        owned = OwnedFolder(root)
        for name, mode in (("server", 0o700), ("client", 0o700), ("alloc", 0o711), ("plugins", 0o700), ("run", 0o700)):
            (root / name).mkdir(exist_ok=True, mode=mode)
    except PermissionError:
        raise Invalid(
            f"The data directory {root} is not writable by user id {os.geteuid()}. "
            f"Run the agent as its owner, `chown` it, or choose another with -data-dir."
        ) from None
    except NotADirectoryError:
        raise Invalid(f"{root} is not a directory; choose another place with -data-dir.") from None
    except FileExistsError as error:
        raise Invalid(f"{error.filename} is not a directory; choose another -data-dir.") from None
    except OSError as error:
        raise Invalid(
            f"The data directory {root} cannot be used: {error.strerror}. Choose another with -data-dir."
        ) from None
    return AgentDataDir(root, is_temporary=is_temporary, owned=owned)


def remove_left_behind(folder: Path, mounts_file: str = "/proc/self/mountinfo") -> None:
    """Remove temporary data directories of this user whose agents are dead; locked ones stay.

    What holds a mount stays too: behind it may lie files that are not Yurt's.
    """
    mounted = _mount_points(mounts_file)
    for root in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            is_own = not root.is_symlink() and root.stat().st_uid == os.geteuid()
            if is_own and not any(point.is_relative_to(root.resolve()) for point in mounted):
                _remove_unless_locked(root)


def _remove_unless_locked(root: Path) -> None:
    """Remove the folder with its lock in hand; one without a written lock may be an agent that just begins.

    That agent would not get its lock while we have it, and give up: so we look first, and take only a written one.
    """
    lock = os.open(root / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.pread(lock, 1, 0):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(root, ignore_errors=True)
    finally:
        os.close(lock)


def _mount_points(mounts_file: str) -> list[Path]:
    try:
        lines = Path(mounts_file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [Path(line.split()[4].replace("\\040", " ")) for line in lines if len(line.split()) > 4]
