"""Requests share the report of a queue: it is computed once for each state, kept for a short time, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.server.queueing import report
from yurt.server.queueing.shared_reports import FRESH, REPORTS_MAX, QueueReports
from yurt.state import Snapshot, Tables
from yurt.structs.cluster import NodePool
from yurt.structs.queueing.batch_queue import BatchQueue, FifoQueue
from yurt.testing import factories


class ThreadEnv:
    """A clock that is set, and threads that run when they are let."""

    def __init__(self) -> None:
        self.time = UnixNano(1000 * NANOSECONDS)
        self.gate = asyncio.Event()
        self.gate.set()

    def now(self) -> UnixNano:
        return self.time

    async def in_thread(self, function: Callable[..., Any], /, *args: Any) -> Any:
        await self.gate.wait()
        return function(*args)


def queued_state() -> Snapshot:
    edit = Snapshot.empty().edit(5)
    edit.put(Tables.node_pools, "gpu", NodePool(name="gpu", batch_queue=BatchQueue(fifo=FifoQueue())))
    job = replace(factories.job("waits", type="batch"), node_pool="gpu")
    evaluation = factories.evaluation(job)
    edit.put(Tables.jobs, job.key, job)
    edit.put(Tables.evals, evaluation.id, evaluation)
    return edit.commit()


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.env = ThreadEnv()
        self.reports = QueueReports(self.env)  # type: ignore[arg-type]
        self.computed = 0
        original = report.places

        def counted(*args: Any, **options: Any) -> Any:
            self.computed += 1
            return original(*args, **options)

        monkeypatch.setattr(report, "places", counted)

    async def ask(self, state: Snapshot, pool: str = "gpu", region: str = "global") -> list[str]:
        found = await self.reports.of(state, pool, region=region)
        return [place.entry.job.id for place in found.places]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


async def test_requests_at_once_and_soon_after_compute_once(bench: Bench) -> None:
    state = queued_state()
    found = await asyncio.gather(*(bench.ask(state) for _ in range(10)))
    bench.env.time = UnixNano(bench.env.time + FRESH - 1)
    found.append(await bench.ask(state))
    assert found == [["waits"]] * 11
    assert bench.computed == 1


async def test_a_slow_report_is_joined_however_long_it_takes(bench: Bench) -> None:
    state = queued_state()
    bench.env.gate.clear()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(bench.ask(state))
        await asyncio.sleep(0)
        bench.env.time = UnixNano(bench.env.time + 10 * FRESH)
        second = group.create_task(bench.ask(state))
        await asyncio.sleep(0)
        bench.env.gate.set()
    assert (first.result(), second.result(), bench.computed) == (["waits"], ["waits"], 1)


async def test_a_change_that_matters_and_time_compute_again(bench: Bench) -> None:
    state = queued_state()
    await bench.ask(state)
    edit = state.edit(6)
    edit.put(Tables.scaling_events, ("default", "web"), ())
    await bench.ask(edit.commit())
    assert bench.computed == 1, "scaling events say nothing about queues"
    edit = state.edit(7)
    edit.put(Tables.nodes, "n", factories.node())
    newer = edit.commit()
    await bench.ask(newer)
    assert bench.computed == 2
    bench.env.time = UnixNano(bench.env.time + FRESH)
    await bench.ask(newer)
    assert bench.computed == 3
    bench.env.time = UnixNano(bench.env.time - 1)
    await bench.ask(newer)
    assert bench.computed == 4, "the clock stepped back"


async def test_pools_and_regions_have_reports_of_their_own(bench: Bench) -> None:
    state = queued_state()
    assert [await bench.ask(state), await bench.ask(state, "other"), await bench.ask(state, region="eu")] == [
        ["waits"], [], ["waits"]
    ]  # fmt: skip
    assert bench.computed == 3


async def test_reports_are_bounded_and_dropped_when_stale(bench: Bench) -> None:
    state = queued_state()
    for number in range(3 * REPORTS_MAX):
        await bench.ask(state, f"pool-{number}")
    assert len(bench.reports) == REPORTS_MAX
    bench.env.time = UnixNano(bench.env.time + FRESH)
    await bench.ask(state)
    assert len(bench.reports) == 1


async def test_a_cancelled_request_lets_the_next_one_compute(bench: Bench) -> None:
    state = queued_state()
    bench.env.gate.clear()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(bench.ask(state))
        await asyncio.sleep(0)
        second = group.create_task(bench.ask(state))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        bench.env.gate.set()
    assert (second.result(), bench.computed) == (["waits"], 1)
