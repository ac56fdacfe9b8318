"""On-disk records of a plugin's tasks, written before the plugin is asked to start each.

An agent may be killed while a plugin starts a task, and then has no handle of it. The record names the task from the
request on; after the plugin's answer it also has the handle. It is deleted when the task is destroyed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from yurt.goplugin.log_collector_client import TaskLogs
from yurt.goplugin.process import write_private
from yurt.sdk.value import Value


class PluginTaskRecord(Value, rename=None):
    """A task's record: `handle` is the plugin's message; before its answer, only the request."""

    task_id: str
    handle: bytes
    is_answered: bool = False
    logs: TaskLogs | None = None


class TaskRecords:
    """The records of one plugin."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def _path(self, task_id: str) -> Path:
        return self._folder / f"{hashlib.blake2b(task_id.encode(), digest_size=16).hexdigest()}.task"

    def write(self, record: PluginTaskRecord) -> None:
        """Write a record, replacing an earlier one."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self._path(record.task_id), msgspec.msgpack.encode(record))

    def read(self, task_id: str) -> PluginTaskRecord | None:
        """The record of a task; none when it was never started, or is destroyed."""
        try:
            return msgspec.msgpack.decode(self._path(task_id).read_bytes(), type=PluginTaskRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def remove(self, task_id: str) -> None:
        """Delete a task's record."""
        self._path(task_id).unlink(missing_ok=True)
