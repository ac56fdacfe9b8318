"""The drivers of a client by name; each can be replaced by newer code while its tasks run.

Operations on a driver's tasks (start, stop, signal) pass the driver's gate. An exchange closes the gate, waits for the
operations under way, and opens it when the new driver has recovered the tasks. Waiting for the end of a task is not
such an operation, because it may last for months: the wait is cancelled when the gate closes and begins again
afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping

from yurt.sdk.driver import Driver, ExitResult
from yurt.sdk.errors import Conflict, NotFound

QUIET_LIMIT_S = 30.0


class Gate:
    """Admits operations on one driver's tasks, or delays them during a replacement."""

    def __init__(self) -> None:
        self._passing = 0
        self._open = asyncio.Event()
        self._open.set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.closing = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether operations are admitted."""
        return self._open.is_set()

    async def wait_open(self) -> None:
        """Wait until operations are admitted."""
        await self._open.wait()

    @contextlib.asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Hold the gate open during an operation."""
        await self._open.wait()
        self._passing += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._passing -= 1
            if not self._passing:
                self._quiet.set()

    @contextlib.asynccontextmanager
    async def closed(self, what: str) -> AsyncIterator[None]:
        """Close the gate for the duration; raises Conflict when an operation does not end in time."""
        self._open.clear()
        try:
            async with asyncio.timeout(QUIET_LIMIT_S):
                await self._quiet.wait()
            self.closing.set()
            yield
        except TimeoutError:
            raise Conflict(
                f"{what}: a start or a stop of its tasks has not ended within {QUIET_LIMIT_S:g} s; try again later"
            ) from None
        finally:
            self.closing.clear()
            self._open.set()


class DriverTable(Mapping[str, Driver]):
    """Drivers by name, with their gates."""

    def __init__(self, drivers: Mapping[str, Driver]) -> None:
        self._drivers = dict(drivers)
        self._gates: dict[str, Gate] = {}

    def __getitem__(self, name: str) -> Driver:
        return self._drivers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._drivers)

    def __len__(self) -> int:
        return len(self._drivers)

    def gate(self, name: str) -> Gate:
        """The gate of a driver."""
        return self._gates.setdefault(name, Gate())

    def put(self, drivers: Mapping[str, Driver]) -> None:
        """Replace the drivers of these names."""
        self._drivers |= drivers


def passage(drivers: Mapping[str, Driver], name: str) -> contextlib.AbstractAsyncContextManager[None]:
    """Enter the gate of a driver, if the table has gates."""
    return drivers.gate(name).passage() if isinstance(drivers, DriverTable) else contextlib.nullcontext()


async def wait_end(drivers: Mapping[str, Driver], name: str, task_id: str) -> ExitResult:
    """Wait for the end of a task, over replacements of its driver."""
    if not isinstance(drivers, DriverTable):
        return await drivers[name].wait_task(task_id)
    while True:
        gate = drivers.gate(name)
        await gate.wait_open()
        if name not in drivers:
            raise NotFound(f"driver {name!r} is not on this node any more")
        ending = asyncio.ensure_future(drivers[name].wait_task(task_id))  # noqa: TID251 - awaited or cancelled below
        closing = asyncio.ensure_future(gate.closing.wait())  # noqa: TID251 - cancelled below
        try:
            await asyncio.wait({ending, closing}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and not closing.done():
                return ending.result()
        finally:
            closing.cancel()
            if not ending.done():
                ending.cancel()
            await asyncio.wait({ending, closing})
        if not ending.cancelled() and ending.exception() is None:
            return ending.result()
