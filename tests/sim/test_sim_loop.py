"""The loop on virtual time: it never waits, its order is fixed, and processes can be paused and killed."""

from __future__ import annotations

import asyncio
import time

import pytest
from yurt.testing.sim.loop import PROCESS, TASKS_MIN, Process, SimLoop, Stuck, run_on


def test_hours_pass_without_a_wait_and_timers_fire_in_their_order() -> None:
    loop, fired = SimLoop(1), list[str]()

    async def main() -> float:
        loop.call_later(7200, fired.append, "late")
        loop.call_later(3600, fired.append, "first of two")
        loop.call_later(3600, fired.append, "second of two")
        loop.call_later(10, fired.append, "cancelled").cancel()
        await asyncio.sleep(7201)
        return loop.time()

    began = time.monotonic()
    assert run_on(loop, main()) >= 7201
    assert time.monotonic() - began < 60
    assert fired == ["first of two", "second of two", "late"]


def test_who_waits_for_nothing_is_told() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="no timer is set"):
        run_on(SimLoop(1), main())


def test_time_outs_expire_on_virtual_time() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(50):
                await asyncio.sleep(51)
        assert 50 <= asyncio.get_running_loop().time() < 51

    run_on(SimLoop(1), main())


def finished(seed: int) -> list[int]:
    """The order in which work in threads ends."""
    done = list[int]()

    async def work(number: int) -> None:
        await asyncio.to_thread(lambda: None)
        done.append(number)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(work(number))

    run_on(SimLoop(seed), main())
    return done


def test_work_in_threads_ends_in_an_order_that_the_seed_decides() -> None:
    assert finished(1) == finished(1)
    assert finished(1) != finished(2)
    assert sorted(finished(1)) == list(range(20))


def test_a_failure_in_a_thread_is_raised_to_who_waits() -> None:
    def fail() -> None:
        raise OSError("no space")

    async def main() -> None:
        with pytest.raises(OSError, match="no space"):
            await asyncio.to_thread(fail)

    run_on(SimLoop(1), main())


async def ticking(ticks: list[float]) -> None:
    while True:
        await asyncio.sleep(1)
        ticks.append(asyncio.get_running_loop().time())


def test_a_paused_process_stands_still_and_goes_on() -> None:
    loop, process, ticks = SimLoop(1), Process("a"), list[float]()

    async def main() -> None:
        loop.spawn(process, ticking(ticks), "ticking")
        await asyncio.sleep(2.5)
        loop.pause(process)
        await asyncio.sleep(10)
        assert len(ticks) == 2
        loop.resume(process)
        await asyncio.sleep(1.5)
        assert len(ticks) == 4 and ticks[2] >= 12.5

    run_on(loop, main())


def test_a_killed_process_ends_with_all_that_it_began() -> None:
    loop, process, ticks = SimLoop(1), Process("a"), list[float]()

    async def parent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ticking(ticks))
            assert PROCESS.get() is process

    async def main() -> None:
        loop.spawn(process, parent(), "parent")
        await asyncio.sleep(1.5)
        await loop.kill(process)
        assert process.is_dead and not process.tasks
        await asyncio.sleep(10)
        assert len(ticks) == 1

    run_on(loop, main())


def test_a_process_keeps_few_tasks_that_have_ended_and_all_that_have_not() -> None:
    loop, process, kept = SimLoop(1), Process("a"), list[int]()

    async def parent() -> None:
        waiting = [asyncio.ensure_future(asyncio.sleep(60)) for _ in range(5)]
        for _ in range(2000):
            await asyncio.create_task(asyncio.sleep(0))
            kept.append(len(process._tasks))
        assert process.tasks[1:] == tuple(waiting)
        await asyncio.gather(*waiting)

    async def main() -> None:
        await loop.spawn(process, parent(), "parent")

    run_on(loop, main())
    assert max(kept) <= TASKS_MIN + 1
    assert not process.tasks


def test_an_exception_at_which_nobody_looks_is_kept_unless_its_process_was_killed() -> None:
    loop = SimLoop(1)

    async def failing() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise OSError("no space")

    async def main() -> None:
        for is_killed in (False, True):
            process = Process("a")
            task = loop.spawn(process, failing(), "failing")
            await asyncio.sleep(1)
            if is_killed:
                del task
                await loop.kill(process)
            else:
                task.cancel()
                del task
                await asyncio.sleep(1)
                assert not process.tasks

    run_on(loop, main())
    assert len(loop.failures) == 1 and "no space" in loop.failures[0]


def test_what_nobody_handles_is_kept() -> None:
    loop = SimLoop(1)

    async def main() -> None:
        loop.call_later(1, lambda: 1 // 0)
        await asyncio.sleep(2)

    run_on(loop, main())
    assert len(loop.failures) == 1 and "ZeroDivisionError" in loop.failures[0]


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_failure_of_a_process_is_kept_unless_it_was_killed(is_killed: bool) -> None:
    loop, process = SimLoop(1), Process("a")

    async def agent() -> None:
        await asyncio.sleep(1)
        raise OSError("no space")

    async def main() -> None:
        loop.run_process(process, agent(), "agent a")
        if is_killed:
            await loop.kill(process)
        await asyncio.sleep(2)

    run_on(loop, main())
    assert [failure for failure in loop.failures if "no space" in failure] == loop.failures
    assert len(loop.failures) == (0 if is_killed else 1)
