"""A complete driver for tasks that are processes, parameterised by the differences between such drivers.

`process_for` is the pure step from a task to the executor's input (a process, or an isolated one); it raises
DriverError when the task's configuration does not allow it. The executor does all other work of a driver.

The fingerprint is either constant, or the result of a probe (a version, a program on PATH) that is repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from yurt.executor.spec import ProcessHandle
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
from yurt.sdk.exec import ExecSession
from yurt.sdk.value import Duration, replace

PROBE_INTERVAL_S = 30.0
NO_ISOLATION = Capabilities(send_signals=True, exec=True, fs_isolation="none", network_modes=("host", "group"))


Spec = TypeVar("Spec")
StartSpec_contra = TypeVar("StartSpec_contra", contravariant=True)
Probe = Callable[[], Awaitable[Fingerprint]]


class TaskExecutor(Protocol[StartSpec_contra]):
    """Starts, finds, watches and ends tasks: `ProcessExecutor` or `ContainerExecutor`."""

    async def open(self) -> None:
        """Initialise before the first task."""

    async def start(self, spec: StartSpec_contra) -> ProcessHandle:
        """Start a task."""
        ...

    async def recover(self, handle: ProcessHandle) -> None:
        """Recover a task of an earlier agent."""

    async def recover_by_id(self, task_id: str) -> None:
        """Recover a task of an earlier agent that stored only its id."""

    async def wait(self, task_id: str) -> ExitResult:
        """Wait for the end."""
        ...

    async def signal(self, task_id: str, name: str) -> None:
        """Signal the main process."""

    async def stop(self, task_id: str, *, signal_name: str, timeout: Duration) -> None:
        """Signal the main process, then kill the rest."""

    async def destroy(self, task_id: str) -> None:
        """Kill remaining processes and forget the task."""

    async def stats(self, task_id: str) -> TaskStats:
        """Present resource usage."""
        ...

    async def exec(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command alongside the task."""
        ...

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> ExecSession:
        """Start a command alongside the task."""
        ...

    async def close(self) -> None:
        """Stop watching."""

    async def wait_closed(self) -> None:
        """Wait until it is closed."""


class ProcessDriver(Generic[Spec]):
    """A driver whose tasks are processes that outlive the agent."""

    def __init__(
        self,
        name: str,
        *,
        task_config: type[msgspec.Struct],
        process_for: Callable[[TaskRequest], Spec],
        executor: TaskExecutor[Spec],
        fingerprint: Fingerprint | Probe | None = None,
        capabilities: Capabilities = NO_ISOLATION,
    ) -> None:
        self.name = name
        self.task_config = task_config
        self.capabilities = replace(capabilities, finds_by_id=True)
        self._process_for = process_for
        self._executor = executor
        healthy = Fingerprint(health=HEALTHY, description="Healthy", attributes={f"driver.{name}": "1"})
        self._probe = fingerprint if callable(fingerprint) else None
        self._fingerprint = healthy if callable(fingerprint) or fingerprint is None else fingerprint

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """The first fingerprint, then each change that the probe finds; constant without a probe."""
        found = self._fingerprint = await self._probe() if self._probe else self._fingerprint
        yield found
        if found.health == HEALTHY:
            await self._executor.open()
        while not await self._is_closed_within(PROBE_INTERVAL_S):
            found = await self._probe() if self._probe else self._fingerprint
            if found != self._fingerprint:
                self._fingerprint = found
                yield found

    async def _is_closed_within(self, wait_s: float) -> bool:
        """Wait until the executor is closed: without limit when the fingerprint is constant, else for a while."""
        if self._probe is None:
            await self._executor.wait_closed()
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._executor.wait_closed()
                return True
        return False

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
        """Recover a task that an earlier agent started, or was starting."""
        if handle.is_intent:
            await self._executor.recover_by_id(handle.task_id)
            return
        try:
            stored = msgspec.convert(handle.state, ProcessHandle)
        except msgspec.ValidationError as error:
            raise NotFound(f"task {handle.task_id} cannot be found again: its handle is damaged ({error})") from None
        if stored.cores is None:
            stored = replace(stored, cores=handle.reserved_cores)
        await self._executor.recover(stored)

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end."""
        return await self._executor.wait(task_id)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Signal the task's main process."""
        await self._executor.signal(task_id, signal)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Signal the task's main process, then kill all its processes."""
        await self._executor.stop(task_id, signal_name=signal, timeout=timeout)

    async def destroy_task(self, task_id: str) -> None:
        """Kill remaining processes and forget the task."""
        await self._executor.destroy(task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """Usage of the main process and all its descendants."""
        return await self._executor.stats(task_id)

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command alongside the task, in the same context."""
        return await self._executor.exec(task_id, command, timeout=timeout)

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> ExecSession:
        """Start an interactive command alongside the task, in the same context."""
        return await self._executor.exec_stream(task_id, command, tty=tty)

    async def close(self) -> None:
        """Close the executor; tasks continue, those of a dev agent end."""
        await self._executor.close()
