"""Waits for an event or a time, whichever comes first, on an `Env`'s clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, Final, Literal, TypeVar

from yurt.runtime.env import Env
from yurt.runtime.supervise import contained

GIVE_UP_LIMIT_S: Final = 10.0
"""The longest wait for the end of cancelled work: a package's code may suppress its cancellation."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class LightEvent(asyncio.Event):
    """An `asyncio.Event` that uses less memory: its list of waiters exists only while there are waiters.

    An empty list of asyncio's own takes 760 bytes. An allocation has a dozen events and keeps them when it has ended,
    until it is collected: they were half of what it takes.
    """

    _waiters: tuple[asyncio.Future[None], ...]  # type: ignore[assignment]

    def __init__(self) -> None:
        self._value = False
        self._waiters = ()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._value

    def set(self) -> None:
        """Wake all waiters."""
        self._value = True
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Unset the event, so that later waiters wait."""
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
    working = await _race(work, event.wait())
    return working.result() if working is not None else None


async def finish_unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` unless the event comes first and cancels it; returns whether it has finished."""
    working = await _race(work, event.wait())
    return working is not None and working.result() is None


async def finish_within(env: Env, work: Coroutine[Any, Any, None], seconds: float) -> bool:
    """Run `work` for at most `seconds`, then cancel it; returns whether it has finished. Raises its failure."""
    working = await _race(work, env.sleep(seconds))
    return working is not None and working.result() is None


async def value_within(env: Env, work: Coroutine[Any, Any, T], seconds: float) -> T | None:
    """The result of `work`; None when it takes longer than `seconds`, and is cancelled. Raises its failure."""
    working = await _race(work, env.sleep(seconds))
    return working.result() if working is not None else None


async def abandonable(work: Coroutine[Any, Any, None]) -> None:
    """Run a package's work; when the caller is cancelled, the work has `GIVE_UP_LIMIT_S` to end, then is abandoned."""
    await finish_unless(LightEvent(), work)


async def _race(work: Coroutine[Any, Any, T], other: Coroutine[Any, Any, object]) -> asyncio.Task[T] | None:
    """The finished task of `work`; None when the other one finishes first and cancels it."""
    working = asyncio.ensure_future(contained(work))  # noqa: TID251 - awaited or cancelled below
    working.add_done_callback(lambda _: work.close())  # cancelled before its first turn, it would never be awaited
    waiting = asyncio.ensure_future(other)  # noqa: TID251 - cancelled below
    is_first = False
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        is_first = working.done()
    finally:
        waiting.cancel()
        if not is_first:
            await _give_up(working)
    return working if is_first else None


async def _give_up(work: asyncio.Task[Any]) -> None:
    """Cancel unfinished work and wait for its end, within a bound; a cancellation of the caller passes through.

    To await the work itself would mix up both: its end by our cancellation and that of the waiting.
    """
    forget(work)
    done, _ = await asyncio.wait({work}, timeout=GIVE_UP_LIMIT_S)
    if not done:
        log.error("cancelled work goes on, nobody waits for it any longer: limit_s=%g work=%r", GIVE_UP_LIMIT_S, work)


def forget(work: asyncio.Future[Any]) -> None:
    """Cancel work whose outcome no longer matters."""
    work.add_done_callback(_seen)
    work.cancel()


def _seen(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()


async def wait_or_sleep(env: Env, event: asyncio.Event, seconds: float) -> bool:
    """Wait until `event` is set, for at most `seconds`; returns whether it is set."""
    if event.is_set() or seconds <= 0:
        return event.is_set()
    # One timer: two tasks for each wait would be a large part of what an idle client costs.
    with contextlib.suppress(TimeoutError):
        async with env.timeout(seconds):
            await event.wait()
    return event.is_set()
