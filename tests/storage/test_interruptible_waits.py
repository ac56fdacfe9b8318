"""Waits that something else ends."""

from __future__ import annotations

import asyncio

import pytest
from yurt.storage.etcd.interruptible_waits import Interrupt, Interrupted


async def forever() -> None:
    await asyncio.Event().wait()


async def test_it_may_be_raised_twice_while_a_wait_ends() -> None:
    interrupt = Interrupt()

    async def cleaning() -> None:
        try:
            await forever()
        finally:
            interrupt.raise_()
            await asyncio.sleep(0)
            interrupt.raise_()

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ended(interrupt, cleaning()))
        await asyncio.sleep(0)
        interrupt.raise_()
        await asyncio.sleep(0)
        interrupt.raise_()
    assert waiting.done()
    await ended(interrupt, forever())


async def test_waits_are_interrupted_in_the_order_in_which_they_began() -> None:
    interrupt, interrupted = Interrupt(), list[int]()

    async def wait(number: int) -> None:
        await ended(interrupt, forever())
        interrupted.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(wait(number))
            await asyncio.sleep(0)
        interrupt.raise_()
    assert interrupted == list(range(200))


async def ended(interrupt: Interrupt, wait: object) -> None:
    with pytest.raises(Interrupted):
        await interrupt.guard(wait)  # type: ignore[arg-type]


async def test_a_timeout_of_the_wait_itself_stays_one() -> None:
    async def late() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await Interrupt().guard(late())


async def test_a_wait_does_not_begin_after_the_interrupt() -> None:
    interrupt, begun = Interrupt(), list[bool]()

    async def begin() -> None:
        begun.append(True)

    interrupt.raise_()
    await ended(interrupt, begin())
    assert begun == []


async def test_the_owner_of_a_task_cancels_it_during_an_interrupt() -> None:
    interrupt = Interrupt()
    waiting = asyncio.ensure_future(interrupt.guard(forever()))
    await asyncio.sleep(0)
    interrupt.raise_()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("is_caught", [False, True], ids=["the wait has ended", "the wait ends normally"])
async def test_an_interrupt_leaves_no_cancellation_behind(is_caught: bool) -> None:
    interrupt, task = Interrupt(), asyncio.current_task()

    async def wait() -> int:
        if is_caught:
            asyncio.get_running_loop().call_soon(interrupt.raise_)
            with pytest.raises(asyncio.CancelledError):
                await forever()
        else:
            interrupt.raise_()
        return 3

    assert await interrupt.guard(wait()) == 3
    await asyncio.sleep(0)
    assert task is not None
    assert task.cancelling() == 0
