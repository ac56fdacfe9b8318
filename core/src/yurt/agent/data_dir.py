"""The folders of an agent: `server`, `client`, `alloc`, `plugins` and the run folder, with one owner and one format
version.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from yurt.sdk.errors import Invalid
from yurt.storage.data_dir import DataDir as OwnedFolder


class DataDir:
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
        """Sockets and what else does not outlive the agent's purpose."""
        return self.root / "run"

    def close(self) -> None:
        """Give the directory up; a temporary one is removed with all that it holds."""
        if self.is_temporary:
            shutil.rmtree(self.root, ignore_errors=True)
        self._owned.close()


def open_data_dir(path: str) -> DataDir:
    """Make or take over a data directory, or make a temporary one for "". Raises Invalid or Conflict with the fix."""
    is_temporary = not path
    root = Path(tempfile.mkdtemp(prefix="yurt-dev-")) if is_temporary else Path(path)
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
        raise Invalid(f"{error.filename} is in the way: it is not a directory. Choose another -data-dir.") from None
    except OSError as error:
        raise Invalid(
            f"The data directory {root} cannot be used: {error.strerror}. Choose another with -data-dir."
        ) from None
    return DataDir(root, is_temporary=is_temporary, owned=owned)
