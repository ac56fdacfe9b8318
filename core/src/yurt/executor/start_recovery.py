"""Recovers a start from its shim's record, when the agent was killed before it had the handle."""

from __future__ import annotations

import signal

from yurt.executor import cgroups, process_identity
from yurt.executor.polling import until
from yurt.executor.spec import ProcessHandle
from yurt.executor.start_files import StartFiles
from yurt.sdk.errors import RecoverableError

SHIM_LIMIT_S = 30.0


async def outcome(starts: StartFiles, handle: ProcessHandle) -> ProcessHandle | None:
    """Wait for the shim's record of the started task; None when the start failed or the shim was killed."""

    def is_decided() -> bool:
        found = starts.read(handle.task_id)
        is_working = process_identity.is_alive(handle.shim_pid, handle.shim_start_time)
        return found is None or found.pid > 0 or not is_working

    if not await until(is_decided, SHIM_LIMIT_S):
        process_identity.send_signal(handle.shim_pid, handle.shim_start_time, signal.SIGTERM)
        raise RecoverableError(f"the shim of task {handle.task_id} (pid {handle.shim_pid}) starts it no more")
    found = starts.read(handle.task_id)
    if found is not None and not found.pid:
        process_identity.kill_all(process_identity.by_pid(cgroups.processes(handle.cgroups)))
        cgroups.remove(handle.cgroups)
    return found
