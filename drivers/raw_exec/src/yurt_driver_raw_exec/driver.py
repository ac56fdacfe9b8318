"""The raw_exec driver: a command as a process of the host, with no isolation at all."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import msgspec
from yurt.sdk.driver import (
    HEALTHY,
    UNDETECTED,
    Capabilities,
    ExecResult,
    ExitResult,
    Fingerprint,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import DriverError
from yurt.sdk.executor import ProcessExecutor, ProcessHandle
from yurt.sdk.value import Duration

from yurt_driver_raw_exec.config import PluginConfig, TaskConfig, denied, process_spec

HANDLE_VERSION = 1
DISABLED = "the raw_exec driver is disabled: it runs commands with the rights of the agent"
ENABLE = 'set plugin "raw_exec" { config { enabled = true } } in the configuration of this client'


class RawExecDriver:
    """Runs commands through the executor, which keeps them alive without the agent."""

    name = "raw_exec"
    capabilities = Capabilities(
        send_signals=True, exec=True, fs_isolation="none", network_modes=("host", "group"), mounts=False
    )
    task_config = TaskConfig

    def __init__(self, config: PluginConfig, executor: ProcessExecutor) -> None:
        self._config = config
        self._executor = executor

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """Healthy when it is enabled; that never changes while the agent runs."""
        if self._config.enabled:
            yield Fingerprint(health=HEALTHY, description="Healthy", attributes={"driver.raw_exec": "1"})
            await self._executor.open()
        else:
            yield Fingerprint(health=UNDETECTED, description=DISABLED, fix=ENABLE)
        await self._executor.wait_closed()

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Start the command."""
        if not self._config.enabled:
            raise DriverError(f"{DISABLED}; {ENABLE}")
        spec = process_spec(request, self._config.denied_envvars)
        self._check_user(request.user)
        handle = await self._executor.start(spec)
        return TaskHandle(
            driver=self.name,
            task_id=request.task_id,
            version=HANDLE_VERSION,
            pid=handle.pid,
            started_at=handle.started_at,
            state=msgspec.to_builtins(handle),
        )

    def _check_user(self, user: str) -> None:
        """Refuse the ids that the agent's configuration denies."""
        ids = self._executor.ids_of_user(user)
        uid = denied([ids.uid], self._config.denied_uids)
        gid = denied([ids.gid, *ids.groups], self._config.denied_gids)
        if uid is not None or gid is not None:
            what = f"uid {uid} (denied_host_uids)" if uid is not None else f"gid {gid} (denied_host_gids)"
            who = f'user "{user}"' if user else f"the agent's own user (uid {os.geteuid()})"
            raise DriverError(f"raw_exec may not run tasks as {who}: this client denies {what}; set another `user`")

    async def recover_task(self, handle: TaskHandle) -> None:
        """Take up a task that an earlier agent started."""
        await self._executor.recover(msgspec.convert(handle.state, ProcessHandle))

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end."""
        return await self._executor.wait(task_id)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Signal the command's process."""
        await self._executor.signal(task_id, signal)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Signal the command, then kill it and all that it started."""
        await self._executor.stop(task_id, signal_name=signal, timeout=timeout)

    async def destroy_task(self, task_id: str) -> None:
        """Kill what is left and forget it."""
        await self._executor.destroy(task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """Use of the command and of all that it started."""
        return await self._executor.stats(task_id)

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command beside the task's own, in the same surroundings."""
        return await self._executor.exec(task_id, command, timeout=timeout)

    async def close(self) -> None:
        """Let the executor go; tasks go on, those of a dev agent end."""
        await self._executor.close()
