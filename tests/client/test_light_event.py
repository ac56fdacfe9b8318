"""An event that is small while nobody waits."""

from __future__ import annotations

import asyncio
import sys

from yurt.client.timed_waits import LightEvent


def bytes_of(event: asyncio.Event) -> int:
    return sys.getsizeof(event) + sum(map(sys.getsizeof, (vars(event), *vars(event).values())))


async def test_all_who_wait_are_woken_also_when_it_is_cleared_at_once() -> None:
    event = LightEvent()
    waiting = [asyncio.create_task(event.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    event.set()
    event.clear()
    assert await asyncio.gather(*waiting) == [True] * 3 and not event.is_set()


async def test_who_gives_up_waiting_is_forgotten() -> None:
    event = LightEvent()
    waiting = [asyncio.create_task(event.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    event.set()
    assert await waiting[1] and await event.wait()


async def test_an_event_that_nobody_waits_for_takes_half_of_asyncios_own() -> None:
    event = LightEvent()
    waiting = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    event.set()
    await waiting
    assert bytes_of(event) <= bytes_of(asyncio.Event()) / 2
