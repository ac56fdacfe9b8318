"""Waits for an event or a time, whichever comes first, on the clock of an `Env`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal, TypeVar

from yurt.runtime.env import Env

T = TypeVar("T")


class LightEvent(asyncio.Event):
    """An `asyncio.Event` that takes less memory: it has a list of waiters only while there are any.

    An empty list of asyncio's own takes 760 bytes. An allocation has a dozen events and keeps them when it has ended,
    until it is collected: they were half of what it takes.
    """

    _waiters: tuple[asyncio.Future[None], ...]  # type: ignore[assignment]

    def __init__(self) -> None:
        self._value = False
        self._waiters = ()

    def is_set(self) -> bool:
        """Whether it has been set since it was cleared last."""
        return self._value

    def set(self) -> None:
        """Wake all waiters."""
        self._value = True
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Make later waiters wait."""
        self._value = False

    async def wait(self) -> Literal[True]:
        """Wait until it is set; a woken waiter proceeds even when it is cleared at once."""
        if self._value:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = (*self._waiters, waiter)
        try:
            await waiter
        finally:
            self._waiters = tuple(each for each in self._waiters if each is not waiter)
        return True


async def value_unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None when the event comes first and cancels it."""
    working = asyncio.ensure_future(work)  # noqa: TID251 - awaited or cancelled below
    waiting = asyncio.ensure_future(event.wait())  # noqa: TID251 - cancelled below
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        waiting.cancel()
        await _give_up(working)


async def finish_unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work`, unless the event comes first and cancels it; whether it has finished."""
    working = asyncio.ensure_future(work)  # noqa: TID251 - awaited or cancelled below
    waiting = asyncio.ensure_future(event.wait())  # noqa: TID251 - cancelled below
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        await _give_up(working)
    return not working.cancelled() and working.result() is None


async def finish_within(env: Env, work: Coroutine[Any, Any, None], seconds: float) -> bool:
    """Do `work` to its end, at most `seconds`, then cancel it; whether it was done. Its failure is raised."""
    working = asyncio.ensure_future(work)  # noqa: TID251 - awaited or cancelled below
    sleeping = asyncio.ensure_future(env.sleep(seconds))  # noqa: TID251 - cancelled below
    try:
        await asyncio.wait({working, sleeping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeping.cancel()
        await _give_up(working)
    return not working.cancelled() and working.result() is None


async def _give_up(work: asyncio.Future[Any]) -> None:
    """Cancel unfinished work and wait for its end; a cancellation of the caller passes through.

    To await the work itself would mix up both: its end by our cancellation and that of the waiting.
    """
    if not work.done():
        work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # what it failed with on its way out is nobody's any more


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
