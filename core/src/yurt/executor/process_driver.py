"""A whole task driver for tasks that are processes, made of the one thing in which such drivers differ.

`process_for` is the pure step from a task to its process; it raises DriverError when there is none. Everything else
that the protocol asks of a driver is the executor's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec

from yurt.executor.process_executor import ProcessExecutor
from yurt.executor.spec import ProcessHandle, ProcessSpec
from yurt.sdk.driver import (
    HEALTHY,
    Capabilities,
    ExecResult,
    ExitResult,
    Fingerprint,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.value import Duration

NO_ISOLATION = Capabilities(send_signals=True, exec=True, fs_isolation="none", network_modes=("host", "group"))


class ProcessDriver:
    """A driver whose tasks are processes that outlive the agent."""

    def __init__(
        self,
        name: str,
        *,
        task_config: type[msgspec.Struct],
        process_for: Callable[[TaskRequest], ProcessSpec],
        executor: ProcessExecutor,
        fingerprint: Fingerprint | None = None,
        capabilities: Capabilities = NO_ISOLATION,
    ) -> None:
        self.name = name
        self.task_config = task_config
        self.capabilities = capabilities
        self._process_for = process_for
        self._executor = executor
        self._fingerprint = fingerprint or Fingerprint(
            health=HEALTHY, description="Healthy", attributes={f"driver.{name}": "1"}
        )

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """What was found when the driver was made; that does not change while the agent runs."""
        yield self._fingerprint
        if self._fingerprint.health == HEALTHY:
            await self._executor.open()
        await self._executor.wait_closed()

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Start the process."""
        if self._fingerprint.health != HEALTHY:
            raise DriverError(f"{self._fingerprint.description}; {self._fingerprint.fix}")
        handle = await self._executor.start(self._process_for(request))
        return TaskHandle(
            driver=self.name,
            task_id=request.task_id,
            pid=handle.pid,
            started_at=handle.started_at,
            state=msgspec.to_builtins(handle),
        )

    async def recover_task(self, handle: TaskHandle) -> None:
        """Take up a task that an earlier agent started."""
        try:
            stored = msgspec.convert(handle.state, ProcessHandle)
        except msgspec.ValidationError as error:
            raise NotFound(f"task {handle.task_id} cannot be found again: its handle is damaged ({error})") from None
        await self._executor.recover(stored)

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end."""
        return await self._executor.wait(task_id)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Signal the task's main process."""
        await self._executor.signal(task_id, signal)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Signal the main process, then kill it and all that it started."""
        await self._executor.stop(task_id, signal_name=signal, timeout=timeout)

    async def destroy_task(self, task_id: str) -> None:
        """Kill what is left and forget it."""
        await self._executor.destroy(task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """Use of the main process and of all that it started."""
        return await self._executor.stats(task_id)

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command beside the task's own, in the same surroundings."""
        return await self._executor.exec(task_id, command, timeout=timeout)

    async def close(self) -> None:
        """Let the executor go; tasks go on, those of a dev agent end."""
        await self._executor.close()
