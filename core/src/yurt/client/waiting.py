"""Waiting for an event or for a time, whichever comes first, on the clock of an `Env`."""

from __future__ import annotations

import asyncio

from yurt.runtime.env import Env


async def wait_or_sleep(env: Env, event: asyncio.Event, seconds: float) -> bool:
    """Wait until `event` is set, at most `seconds`; whether it is set."""
    if event.is_set() or seconds <= 0:
        return event.is_set()
    async with asyncio.TaskGroup() as group:
        waiter = group.create_task(event.wait())
        sleeper = group.create_task(env.sleep(seconds))
        await asyncio.wait({waiter, sleeper}, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        sleeper.cancel()
    return event.is_set()
