"""Answers come between slices of long work: the writer's among themselves, and those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from yurt.runtime.turns import TURNS_BETWEEN, Turns
from yurt.server.log_writer import TURN_BYTES, LogWriter
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import RegisterJob
from yurt.structs.job import JobSubmission
from yurt.testing import factories

SLICES = 12


async def most_slices_in_an_answer(work: Awaitable[object], done: Callable[[], int]) -> int:
    """How many slices were done at most while something waited for its turns, one after another."""
    most, working = 0, asyncio.ensure_future(work)
    while not working.done():
        before = done()
        for _ in range(TURNS_BETWEEN):
            await asyncio.sleep(0)
        most = max(most, done() - before)
    await working
    return most


async def test_an_answer_waits_for_one_slice_of_all_who_share_the_turns() -> None:
    turns, slices = Turns(), 0

    async def run() -> None:
        nonlocal slices
        for _ in range(SLICES):
            await turns.next()
            slices += 1

    assert await most_slices_in_an_answer(asyncio.gather(run(), run(), run()), lambda: slices) == 1
    assert slices == 3 * SLICES


async def test_an_answer_waits_for_one_slice_of_what_the_writer_applies() -> None:
    writer = LogWriter(MemoryLog(), on_applied=lambda *_: None, on_batch=lambda _: None, on_failed=lambda: None)
    writer.open()
    large = JobSubmission(source="x" * TURN_BYTES)
    written = writer.enqueue([RegisterJob(job=factories.job(), submission=large)] * SLICES)
    run = asyncio.create_task(writer.run())
    assert await most_slices_in_an_answer(written, lambda: writer.state.index) == 1
    assert writer.state.index == SLICES
    run.cancel()


async def test_small_commands_are_applied_together() -> None:
    writer = LogWriter(MemoryLog(), on_applied=lambda *_: None, on_batch=lambda _: None, on_failed=lambda: None)
    writer.open()
    small = RegisterJob(job=factories.job())
    written = writer.enqueue([small] * SLICES)
    run = asyncio.create_task(writer.run())
    assert await most_slices_in_an_answer(written, lambda: writer.state.index) == SLICES
    run.cancel()
