"""Waits for newer states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from yurt.runtime.env import Env
from yurt.state import Snapshot
from yurt.state.watch import Watches, WatchKey


class StateWaiter:
    """Blocking queries and waits for an index."""

    def __init__(self, watches: Watches, current: Callable[[], Snapshot]) -> None:
        self._watches = watches
        self._current = current
        self._index_waiters: list[tuple[int, asyncio.Future[None]]] = []

    async def wait_past(
        self, keys: Iterable[WatchKey], index_of: Callable[[Snapshot], int], *, min_index: int, timeout_s: float
    ) -> Snapshot:
        """The state once `index_of` it exceeds `min_index`, or the present one at the time limit."""
        if index_of(self._current()) > min_index:
            return self._current()
        changed = asyncio.Event()
        cancel = self._watches.add(keys, changed.set)
        try:
            async with asyncio.timeout(timeout_s):
                while index_of(self._current()) <= min_index:
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            pass
        finally:
            cancel()
        return self._current()

    async def wait_index(self, index: int, *, timeout_s: float) -> bool:
        """True once the state has reached `index`; False at the time limit."""
        if self._current().index >= index:
            return True
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._index_waiters.append((index, reached))
        try:
            async with asyncio.timeout(timeout_s):
                await reached
        except TimeoutError:
            return False
        finally:
            self._index_waiters = [entry for entry in self._index_waiters if entry[1] is not reached]
        return True

    def reached(self, index: int) -> None:
        """Wake the waiters for `index` or less."""
        for target_index, future in self._index_waiters:
            if target_index <= index and not future.done():
                future.set_result(None)


async def wait_for(env: Env, event: asyncio.Event, delay_s: float | None) -> None:
    """Wait for the event, which is also set after `delay_s` on the environment's clock (None: never)."""
    if delay_s is None:
        await event.wait()
        return
    if delay_s <= 0:
        await env.sleep(0)
        event.set()
        return
    timer = env.call_later(delay_s, event.set)  # a task for each wait would cost several times as much
    try:
        await event.wait()
    finally:
        timer.cancel()
