"""Drivers on a simulated machine, for `yurt driver sim`: one that is right, and two first tries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
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
from yurt.sdk.value import Duration, UnixNano
from yurt.testing.sim.foreign.drivers import Machine, SimulatedDriver


class JobConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a job of the engine runs, and its exit code."""

    seconds: float = 0.0
    code: int = 0


class EngineDriver:
    """A driver of an engine that names jobs by the task's id."""

    name = "engine"
    task_config = JobConfig
    capabilities = Capabilities(finds_by_id=True)

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._closed = asyncio.Event()

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        yield Fingerprint(health=HEALTHY, attributes={"driver.engine.version": "1"})
        await self._closed.wait()

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        config: JobConfig = request.config
        await self.machine.spawn(request.task_id, run_s=config.seconds, exit_code=config.code)
        return TaskHandle(driver=self.name, task_id=request.task_id)

    async def recover_task(self, handle: TaskHandle) -> None:
        if not await self.machine.has(handle.task_id):
            raise NotFound(f"no task {handle.task_id}")

    async def wait_task(self, task_id: str) -> ExitResult:
        return await self.machine.wait(task_id)

    async def signal_task(self, task_id: str, signal: str) -> None:
        await self.recover_task(TaskHandle(driver=self.name, task_id=task_id))

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        await self.machine.kill(task_id)

    async def destroy_task(self, task_id: str) -> None:
        await self.machine.remove(task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        return TaskStats(at=UnixNano(0), rss_bytes=4096, pids=1)

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        raise DriverError("the engine runs no commands in jobs")

    async def close(self) -> None:
        self._closed.set()


class ForgetfulDriver(EngineDriver):
    """Finds only tasks that it has started itself: those of an earlier agent are gone for it."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._known: set[str] = set()

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        handle = await super().start_task(request)
        self._known.add(request.task_id)
        return handle

    async def recover_task(self, handle: TaskHandle) -> None:
        if handle.task_id not in self._known:
            raise NotFound(f"no task {handle.task_id}")


class LeakyDriver(EngineDriver):
    """Takes a task that was told to stop for one that has stopped."""

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        self.machine.notes[task_id] = "stopped"

    async def wait_task(self, task_id: str) -> ExitResult:
        waiting = asyncio.ensure_future(super().wait_task(task_id))
        while not waiting.done() and task_id not in self.machine.notes:
            await asyncio.wait({waiting}, timeout=0.5)
        if waiting.done():
            return await waiting
        waiting.cancel()
        return ExitResult(exit_code=130)

    async def destroy_task(self, task_id: str) -> None:
        return


def config(run_s: float, exit_code: int) -> dict[str, Any]:
    return {"seconds": run_s, "code": exit_code}


RIGHT = SimulatedDriver("engine", EngineDriver, config)
FORGETFUL = SimulatedDriver("engine", ForgetfulDriver, config)
LEAKY = SimulatedDriver("engine", LeakyDriver, config)
