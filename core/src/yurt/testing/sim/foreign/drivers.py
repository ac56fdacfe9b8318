"""A third party's driver in the simulator: its own code on simulated processes, under faults (`yurt driver sim`).

The driver's package gives a `SimulatedDriver`: how to make the driver on a `Machine`, and the `config` block of a task
that runs for some seconds and ends with an exit code. The machine stands for the driver's engine: processes that
outlive the agent and end with the host, and notes that outlive both, as files do. Each agent that starts
makes a new driver. What goes wrong between the agent and the driver is added here: calls that take time, fail, or never
come back because the agent is gone.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from yurt.sdk.driver import (
    Driver,
    ExecResult,
    ExitResult,
    Fingerprint,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import DriverError, NotFound, RecoverableError
from yurt.sdk.value import Duration
from yurt.testing.sim.driver import KILLED, SimHost
from yurt.testing.sim.loop import Process

_REQUEST: contextvars.ContextVar[TaskRequest | None] = contextvars.ContextVar("request of a start", default=None)


class Machine:
    """The host as the driver's engine sees it: processes under keys that the driver chooses."""

    def __init__(self, host: SimHost, process: Process) -> None:
        self.notes: dict[str, Any] = host.notes
        """What the driver keeps on disk: it outlives the agent and the host's power."""
        self._host = host
        self._process = process

    async def spawn(self, key: str, *, run_s: float = 0.0, exit_code: int = 0) -> None:
        """Start a process that exits after some seconds (0: never); allowed within `start_task` only.

        Raises DriverError when a process of this key is there already.
        """
        await self._reach()
        request = _REQUEST.get()
        if request is None:
            raise DriverError("a process is started outside start_task")
        if key in self._host.runs:
            raise DriverError(f"there is a process {key} already")
        self._host.begin(request, key, run_s=run_s, exit_code=exit_code)

    async def has(self, key: str) -> bool:
        """Whether a process exists, running or exited, until it is removed."""
        await self._reach()
        return key in self._host.runs

    async def wait(self, key: str) -> ExitResult:
        """Wait for a process to exit; raises NotFound."""
        await self._reach()
        run = self._host.runs.get(key)
        if run is None:
            raise NotFound(f"no process {key}")
        await run.ended.wait()
        await self._reach()
        assert run.result is not None
        return run.result

    async def kill(self, key: str) -> None:
        """Kill a process; does nothing when it has exited or does not exist."""
        await self._reach()
        self._host.end(key, KILLED)

    async def remove(self, key: str) -> None:
        """Remove a process, killing it when it runs."""
        await self._reach()
        self._host.end(key, KILLED)
        self._host.runs.pop(key, None)

    async def _reach(self) -> None:
        """The delay on the way to the engine; calls of a dead agent do not arrive."""
        await asyncio.sleep(self._host.chance.uniform(0.0005, 0.005))
        if self._process.is_dead:
            await asyncio.Event().wait()


@dataclass(frozen=True)
class SimulatedDriver:
    """What a package provides to run its driver in the simulator."""

    name: str
    make: Callable[[Machine], Driver]
    config: Callable[[float, int], dict[str, Any]]
    """The `config` block of a task that runs for that many seconds (0: until it is stopped) and ends with that code."""


class FaultyDriver:
    """The driver as an agent loads it, with faults between the two."""

    def __init__(self, given: SimulatedDriver, host: SimHost, process: Process) -> None:
        self.name = given.name
        self._driver = given.make(Machine(host, process))
        self.capabilities = self._driver.capabilities
        self._host = host
        self._process = process

    @property
    def task_config(self) -> type[msgspec.Struct]:
        """The driver's configuration class."""
        return self._driver.task_config

    def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """The driver's fingerprints."""
        return self._driver.fingerprint()

    async def _pass(self, *, may_fail: bool = True) -> None:
        host = self._host
        await asyncio.sleep(host.chance.uniform(0.0005, 0.01))
        if self._process.is_dead:
            await asyncio.Event().wait()
        if may_fail and host.chance.random() < host.faults.call_fails:
            raise DriverError("the driver does not answer")

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Start the task after a delay, or fail."""
        host, chance = self._host, self._host.chance
        await self._pass(may_fail=False)
        if chance.random() < host.faults.start_slow:
            await asyncio.sleep(chance.uniform(0.5, 8.0))
        draw = chance.random()
        if draw < host.faults.start_fails:
            raise (RecoverableError if draw < host.faults.start_fails / 2 else DriverError)("the engine refuses")
        token = _REQUEST.set(request)
        try:
            return await self._driver.start_task(request)
        finally:
            _REQUEST.reset(token)

    async def recover_task(self, handle: TaskHandle) -> None:
        """As the driver does."""
        await self._pass()
        await self._driver.recover_task(handle)

    async def wait_task(self, task_id: str) -> ExitResult:
        """As the driver does."""
        return await self._driver.wait_task(task_id)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """As the driver does."""
        await self._pass()
        await self._driver.signal_task(task_id, signal)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """As the driver does."""
        await self._pass()
        await self._driver.stop_task(task_id, signal=signal, timeout=timeout)

    async def destroy_task(self, task_id: str) -> None:
        """As the driver does."""
        await self._pass(may_fail=False)
        await self._driver.destroy_task(task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """As the driver does."""
        return await self._driver.task_stats(task_id)

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """As the driver does."""
        await self._pass()
        return await self._driver.exec_task(task_id, command, timeout=timeout)

    async def close(self) -> None:
        """As the driver does."""
        await self._driver.close()
