"""Records of starts on disk, so that an agent killed during a start leaves no orphaned process.

    <task>.asked-<token>    written before the request is sent: the planned handle of the task
    <task>.start            the same file, renamed by the shim that took the request, which adds its own numbers and,
                            once the task runs, those of the task

The rename decides. The next agent after a killed one removes all `.asked` files: a request that waits in a pipe can
then never be carried out, and the task may be started again. A request that was taken before has a `.start` file, which
soon names a process or loses its shim. The files are not synced, because tasks do not survive a crash of the machine.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from yurt.executor import process_identity
from yurt.executor.process_context import remove_file
from yurt.executor.spec import ProcessHandle, file_name
from yurt.sdk.value import UnixNano, replace

REQUESTED = ".asked-"
STARTED = ".start"


def is_alive(handle: ProcessHandle, boot_id: str) -> bool:
    """Whether the main process or the shim of a task lives; `boot_id` is that of the machine now."""
    both = ((handle.pid, handle.start_time), (handle.shim_pid, handle.shim_start_time))
    return handle.boot_id == boot_id and any(process_identity.is_alive(*each) for each in both)


class StartFiles:
    """The start files of one executor."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, task_id: str) -> str:
        """The file in which a task's shim records what it has started."""
        return f"{self._folder}/{file_name(task_id)}{STARTED}"

    def ask(self, planned: ProcessHandle, token: str) -> str:
        """Record the request of a task: create the file that its shim must take; returns its path."""
        request = self._folder / f"{file_name(planned.task_id)}{REQUESTED}{token}"
        request.write_bytes(msgspec.json.encode(planned) + b"\n")
        return str(request)

    def withdraw(self, task_id: str) -> None:
        """Withdraw a request that no shim has taken yet."""
        prefix = file_name(task_id) + REQUESTED
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                if name.startswith(prefix):
                    remove_file(str(self._folder / name))

    def read(self, task_id: str) -> ProcessHandle | None:
        """A shim's record: None when no shim took the request; without pids until they exist."""
        return self._read(Path(self.path(task_id)))

    def all(self) -> tuple[ProcessHandle, ...]:
        """The records of all tasks."""
        found = (self._read(path) for path in sorted(self._folder.glob(f"*{STARTED}")))
        return tuple(handle for handle in found if handle is not None)

    def _read(self, path: Path) -> ProcessHandle | None:
        try:
            planned, *numbers = path.read_bytes().splitlines()
            handle = msgspec.json.decode(planned, type=ProcessHandle)
        except (FileNotFoundError, ValueError, msgspec.DecodeError):
            return None
        if numbers:
            shim, shim_start = map(int, numbers[0].split())
            handle = replace(handle, shim_pid=shim, shim_start_time=shim_start or process_identity.start_time(shim))
        if len(numbers) > 1:
            _, pid, start, at, *_ = map(int, numbers[1].split())
            start = start or process_identity.start_time(pid)
            handle = replace(handle, pid=pid, start_time=start, started_at=UnixNano(at))
        return handle

    def remove(self, task_id: str) -> None:
        """Forget a task."""
        remove_file(self.path(task_id))
