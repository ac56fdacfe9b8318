"""The folder of one server: a lock, its snapshots, its cluster's id, and its record of the log.

Every method blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from yurt.sdk.errors import Conflict
from yurt.storage import snapshot_files
from yurt.storage.checksummed_file import read_checked, write_checked
from yurt.storage.data_dir import DataDir
from yurt.storage.etcd.commit_record import CommitRecord
from yurt.storage.etcd.key_layout import Format, LogMark

CLUSTER_FILE: Final = "cluster"
HISTORY_FILE: Final = "history"
"""A file with the id of the cluster, and the log's digest at the newest snapshot."""


class ServerFolder:
    """One server's folder; locked from `lock` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.witness = CommitRecord(path)
        self._snapshots = path / "snapshots"
        self._lock: DataDir | None = None

    def lock(self) -> None:
        """Lock the folder; raises Conflict when another process has locked it."""
        assert self._lock is None, "the log is open already"
        self._lock = DataDir(self.path)

    def close(self) -> None:
        """Unlock the folder; may be called again."""
        self.witness.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def newest_snapshot(self) -> int:
        """The index of the newest snapshot; 0 without one."""
        return snapshot_files.newest_index(self._snapshots)

    def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        """Store the state at an index."""
        snapshot_files.save(self._snapshots, index, chunks)

    def load_snapshot(self, up_to: int | None = None) -> tuple[int, Iterable[bytes]] | None:
        """The newest snapshot with a valid digest."""
        return snapshot_files.load(self._snapshots, up_to)

    def damaged_snapshots(self) -> list[Path]:
        """Snapshots with an invalid digest."""
        return snapshot_files.damaged(self._snapshots)

    def check_cluster(self, found: Format) -> None:
        """Raises Conflict when the folder belongs to another cluster; binds a new folder to this one."""
        if (self.path / "log.db").exists():
            raise Conflict(
                f"{self.path} holds the log of a single server, which the cluster would not have; save a snapshot "
                "with that server (operator snapshot save), start with an empty data_dir, and restore it"
            )
        path = self.path / CLUSTER_FILE
        try:
            cluster_of_folder = read_checked(path).decode("utf-8", "replace").strip() if path.exists() else ""
        except (OSError, ValueError) as error:
            raise Conflict(
                f"{path} is damaged: {error}; it says which cluster this folder belongs to. When that is the one that "
                f"etcd holds ({found.id}), remove the file"
            ) from error
        if not cluster_of_folder and path.exists():
            raise Conflict(f"{path} is empty; when this folder belongs to the cluster {found.id}, remove the file")
        if not cluster_of_folder:
            write_checked(path, found.id.encode())
        elif cluster_of_folder != found.id:
            raise Conflict(
                f"{self.path} belongs to another cluster ({cluster_of_folder[:40]}) than the one in etcd ({found.id}); "
                "choose another data_dir, or move this one away to join the cluster as a new server"
            )

    def write_history(self, mark: LogMark) -> None:
        """Store the log's digest at a snapshot, by which this server recognises the log at its next start."""
        write_checked(self.path / HISTORY_FILE, msgspec.json.encode(mark))

    def read_history(self) -> LogMark | None:
        """The stored history; None in a new folder. Raises Conflict when the file is damaged."""
        path = self.path / HISTORY_FILE
        try:
            return msgspec.json.decode(read_checked(path), type=LogMark)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise Conflict(f"{path} is damaged: {error}; move it away to go on without what it checks") from error
