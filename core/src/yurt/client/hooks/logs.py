"""The logs hook: sets the rotation of a task's log files in the driver's request."""

from __future__ import annotations

from yurt.client.tasks.client_task import ClientTask
from yurt.sdk.driver import LogRotation
from yurt.sdk.hooks import Additions, TaskHookOf

MIB = 1024 * 1024


class LogsHook(TaskHookOf[ClientTask]):
    """Reads the task's `logs` block."""

    name = "logs"

    async def prepare(self, task: ClientTask) -> Additions:
        """Return the number and size of log files, or disable them."""
        logs = task.spec.task.log_config
        rotation = LogRotation(max_files=logs.max_files, max_bytes=logs.max_file_size_mb * MIB, disabled=logs.disabled)
        return Additions(logs=rotation)
