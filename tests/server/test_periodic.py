"""The dispatcher of periodic jobs, without a server around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import UnixNano
from yurt.server.log.log_writer import LogWriter
from yurt.server.resources import periodic as module
from yurt.server.resources.periodic import LINES_A_SLICE, PeriodicDispatcher
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import RegisterJob
from yurt.structs.job import Job, PeriodicConfig
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv, eventually

MINUTE_S = 60


def periodic_job(name: str, *specs: str) -> Job:
    periodic = PeriodicConfig(specs=specs, time_zone="UTC")
    return factories.job(id=name, name=name, type="batch", periodic=periodic, submit_time=FakeEnv().now())


@asynccontextmanager
async def running_writer(*jobs: Job) -> AsyncIterator[LogWriter]:
    writer = LogWriter(MemoryLog(), on_applied=lambda *_: None, on_batch=lambda _: None, on_failed=lambda: None)
    writer.open()
    run = asyncio.create_task(writer.run())
    await writer.enqueue([RegisterJob(job=job) for job in jobs])
    yield writer
    run.cancel()


async def test_a_term_begins_without_a_search_and_the_loop_searches_a_slice_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched = 0

    def counted(periodic: PeriodicConfig, after: UnixNano) -> UnixNano | None:
        nonlocal searched
        searched += len(periodic.specs)
        return original(periodic, after)

    original = module.next_launch
    monkeypatch.setattr(module, "next_launch", counted)
    jobs = [periodic_job(f"job-{number}", *["*/5 * * * *"] * LINES_A_SLICE) for number in range(10)]
    async with running_writer(*jobs) as writer:
        dispatcher = PeriodicDispatcher(env=FakeEnv(), writer=writer, launch=lambda job, at: asyncio.sleep(0))
        dispatcher.restore(writer.state)
        assert searched == 0
        run = asyncio.create_task(dispatcher.run())
        before = 0
        while searched < 10 * LINES_A_SLICE:
            await asyncio.sleep(0)
            assert searched - before <= LINES_A_SLICE
            before = searched
        run.cancel()


async def test_a_launch_that_fails_costs_no_other_due_one() -> None:
    env, launched = FakeEnv(), list[str]()

    async def launch(job: Job, at: UnixNano) -> None:
        launched.append(job.id)
        if len(launched) == 1:
            raise Unavailable("for a moment")

    async with running_writer(periodic_job("one", "* * * * *"), periodic_job("two", "* * * * *")) as writer:
        dispatcher = PeriodicDispatcher(env=env, writer=writer, launch=launch)
        dispatcher.restore(writer.state)
        runs = [asyncio.create_task(dispatcher.run())]
        await env.advance(MINUTE_S)
        await eventually(runs[0].done)
        assert isinstance(runs[0].exception(), Unavailable)
        runs.append(asyncio.create_task(dispatcher.run()))
        await eventually(lambda: len(launched) == 3)
        runs[1].cancel()
    assert sorted(launched[1:]) == ["one", "two"]
