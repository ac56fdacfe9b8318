"""A driver whose code is imported when its engine is there, or with the first call about a task.

Most machines have no engine (a socket, a program) for some of the installed drivers. The plugin function of such a
driver makes a `DeferredDriver` from what the agent asks of every driver: its name, the struct of its tasks' options,
its capabilities, and a look at the machine that costs little. `make` imports the driver's own module and makes the
driver.

States: deferred -the engine is there, or any call other than `fingerprint` and `close`-> made. A made driver stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from importlib import import_module

import msgspec

from yurt.sdk.driver import (
    UNHEALTHY,
    Capabilities,
    ClearingDriver,
    Driver,
    ExecResult,
    ExitResult,
    Fingerprint,
    Leftover,
    NetworkDriver,
    ProgressDriver,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import DriverError, RecoverableError, YurtError
from yurt.sdk.exec import ExecSession, StreamsExec
from yurt.sdk.value import Duration

LOOK_EVERY_S = 3.0


class DeferredDriver:
    """A driver that is made when it is needed, with all that drivers may offer besides `Driver`."""

    def __init__(
        self,
        name: str,
        *,
        task_config: type[msgspec.Struct],
        capabilities: Capabilities,
        absence: Callable[[], Fingerprint | None],
        module: str,
        make: Callable[[], Driver],
    ) -> None:
        """`absence` is the fingerprint while there is no engine; None once there is one.

        `module` is imported in a thread before `make`, which runs in the event loop's thread.
        """
        self.name = name
        self.task_config = task_config
        self.capabilities = capabilities
        self._absence = absence
        self._module = module
        self._make = make
        self._driver: Driver | None = None
        self._is_closed = False
        self._changed = asyncio.Event()

    @property
    def is_made(self) -> bool:
        """Whether the driver was made."""
        return self._driver is not None

    async def _made(self) -> Driver:
        """The driver; its module is imported in a thread, because that takes 10 to 100 ms.

        Raises RecoverableError where the module cannot be imported or the driver not be made, as after an upgrade of
        its files, and DriverError once this is closed: nobody would close a driver that is made then.
        """
        try:
            if self._driver is None:
                await asyncio.to_thread(import_module, self._module)
            if self._is_closed:
                raise DriverError(f"the {self.name} driver is closed")
            if self._driver is None:
                self._driver = self._make()
                self._changed.set()
        except YurtError:
            raise
        except Exception as error:
            raise RecoverableError(f"the {self.name} driver cannot be loaded: {error}") from error
        return self._driver

    async def _problem(self) -> Fingerprint | None:
        """Why there is no driver yet; None once it is made."""
        if self._driver is None and (found := self._absence()) is not None:
            return found
        try:
            await self._made()
        except YurtError as error:
            return Fingerprint(health=UNHEALTHY, description=str(error))
        return None

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """The absence of the engine, until it is there or a task needs it; then the driver's fingerprints."""
        last: Fingerprint | None = None
        while (problem := await self._problem()) is not None and not self._is_closed:
            if problem != last:
                last = problem
                yield problem
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._changed.wait()
        if self._driver is not None and not self._is_closed:
            async for found in self._driver.fingerprint():
                yield found

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Start the task."""
        return await (await self._made()).start_task(request)

    async def recover_task(self, handle: TaskHandle) -> None:
        """Recover a task of an earlier agent."""
        await (await self._made()).recover_task(handle)

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end."""
        return await (await self._made()).wait_task(task_id)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Send a signal."""
        await (await self._made()).signal_task(task_id, signal)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Ask the task to end, and kill it after `timeout`."""
        await (await self._made()).stop_task(task_id, signal=signal, timeout=timeout)

    async def destroy_task(self, task_id: str) -> None:
        """Forget an ended task; kills a running one."""
        await (await self._made()).destroy_task(task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """Present resource usage."""
        return await (await self._made()).task_stats(task_id)

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command in the task's context."""
        return await (await self._made()).exec_task(task_id, command, timeout=timeout)

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> ExecSession:
        """Start an interactive command in the task's context."""
        driver = await self._made()
        if not isinstance(driver, StreamsExec):
            raise DriverError(f"the {self.name} driver runs no interactive commands")
        return await driver.exec_stream(task_id, command, tty=tty)

    async def progress(self, task_id: str) -> AsyncIterator[str]:
        """The progress of the task's start."""
        driver = await self._made()
        if isinstance(driver, ProgressDriver):
            async for text in driver.progress(task_id):
                yield text

    async def create_network(self, alloc_id: str, *, hostname: str = "") -> str:
        """Create or find the namespace of an allocation."""
        return await (await self._network_driver()).create_network(alloc_id, hostname=hostname)

    async def destroy_network(self, alloc_id: str) -> None:
        """Remove the namespace of an allocation."""
        await (await self._network_driver()).destroy_network(alloc_id)

    async def _network_driver(self) -> NetworkDriver:
        driver = await self._made()
        if not isinstance(driver, NetworkDriver):
            raise DriverError(f"the {self.name} driver creates no networks")
        return driver

    async def leftovers(self) -> tuple[Leftover, ...]:
        """What the agent with this `state_dir` left."""
        driver = await self._made()
        return await driver.leftovers() if isinstance(driver, ClearingDriver) else ()

    async def remove_leftover(self, leftover: Leftover) -> None:
        """Remove a leftover."""
        driver = await self._made()
        if isinstance(driver, ClearingDriver):
            await driver.remove_leftover(leftover)

    async def close(self) -> None:
        """Close the driver, if it was made."""
        self._is_closed = True
        self._changed.set()
        if self._driver is not None:
            await self._driver.close()
