"""Replaces drivers by newer code while their tasks run.

The steps: check that the new drivers are healthy; close the gates; close the old drivers, whose tasks continue; let the
new drivers recover every task. When a step fails, drivers made again from the previous code recover the tasks, and the
error is raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from yurt.client.drivers.driver_table import DriverTable
from yurt.sdk import core_partitions
from yurt.sdk.driver import HEALTHY, Driver, TaskHandle
from yurt.sdk.errors import Conflict, NotFound, YurtError

log = logging.getLogger(__name__)

FIRST_ANSWER_S = 15.0
TAKE_UP_S = 30.0

Drivers = Mapping[str, Driver]
Handles = Mapping[str, Sequence[TaskHandle]]


async def exchange(
    table: DriverTable, new: Drivers, *, handles: Callable[[], Handles], remake: Callable[[], Drivers]
) -> int:
    """Replace old drivers by new ones; returns the number of recovered tasks.

    `remake` creates the old drivers again. Raises Conflict with the reason; the old code then remains in use.
    """
    try:
        await check_health(table, new)
    except BaseException:
        await close_all(new)
        raise
    async with AsyncExitStack() as stack:
        try:
            for name in sorted(new):
                await stack.enter_async_context(table.gate(name).closed(f"driver {name} was not exchanged"))
        except BaseException:
            await close_all(new)
            raise
        running = handles()
        stack.enter_context(core_partitions.held())
        await close_all({name: table[name] for name in new if name in table})
        try:
            kept = await take_up(new, running, is_strict=True)
        except BaseException as error:
            await close_all(new)
            old = remake()
            await take_up(old, running, is_strict=False)
            table.put(old)
            raise Conflict(f"the new code cannot recover the running tasks; the old code remains: {error}") from error
        table.put(new)
        return kept


async def check_health(table: DriverTable, new: Drivers) -> None:
    """Raise Conflict when a new driver is unhealthy on this machine."""
    for name, driver in new.items():
        answers = driver.fingerprint()
        try:
            async with asyncio.timeout(FIRST_ANSWER_S):
                first = await anext(answers)
        except (TimeoutError, StopAsyncIteration):
            raise Conflict(f"the new driver {name} does not report its health; the old one remains in use") from None
        finally:
            with contextlib.suppress(AttributeError):
                await answers.aclose()  # type: ignore[attr-defined]
        if first.health != HEALTHY and name in table:
            raise Conflict(f"the new driver {name} is unhealthy ({first.description}); the old one remains in use")


async def take_up(drivers: Drivers, running: Handles, *, is_strict: bool) -> int:
    """Have drivers recover tasks; a missing task is an error only when `is_strict`."""
    kept = 0
    pairs = [(driver, handle) for name, driver in drivers.items() for handle in running.get(name, ())]
    for driver, handle in pairs:
        try:
            async with asyncio.timeout(TAKE_UP_S):
                await driver.recover_task(handle)
            kept += 1
        except (YurtError, TimeoutError) as error:
            if is_strict:
                raise
            if not isinstance(error, NotFound):
                log.exception("driver did not recover a task: driver=%s task=%s", driver.name, handle.task_id)
    return kept


async def close_all(drivers: Drivers) -> None:
    """Close drivers concurrently; errors are logged."""
    for name, outcome in zip(
        drivers, await asyncio.gather(*(each.close() for each in drivers.values()), return_exceptions=True), strict=True
    ):
        if isinstance(outcome, BaseException):
            log.error("closing a driver failed: driver=%s error=%s", name, outcome)
