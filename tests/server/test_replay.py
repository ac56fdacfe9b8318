"""Replays: what was scheduled is scheduled again from the log, with the same plan to the byte."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.errors import Conflict, NotFound
from yurt.sdk.value import replace
from yurt.storage.memory import MemoryLog
from yurt.storage.sqlite import SqliteLog
from yurt.structs.commands import UpsertEvaluations
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.quotas import bound


def _job(name: str, count: int = 1, memory_mb: int = 128) -> Any:
    task = factories.task(resources=Resources(cpu=100, memory_mb=memory_mb))
    return factories.job(id=name, name=name, task_groups=(factories.group(count=count, tasks=(task,)),))


async def _replayed(bench: Any, job_id: str) -> list[Any]:
    found = bench.server.state.evals.where("job", ("default", job_id))
    return [await bench.server.scheduling.replays.replay(each.id) for each in found if each.attempts]


async def test_a_placement_is_made_again_with_the_same_bytes_and_leaves_no_trace(bench: Any) -> None:
    for _ in range(5):
        await bench.add_node()
    await bench.server.resources.jobs.register(_job("web", 7))
    await bench.until(lambda: len(bench.live()) == 7)
    await bench.idle()
    index = bench.server.state.index
    (found,) = await _replayed(bench, "web")
    (attempt,) = found.attempts
    assert found.is_identical and attempt.placements == 7 and attempt.different == attempt.refused == 0
    assert attempt.stored >= 7 and attempt.accepted_digest == attempt.stored_digest
    assert bench.server.state.index == index


async def test_evaluations_of_one_batch_are_made_again_on_the_plans_of_those_before(bench: Any) -> None:
    for _ in range(3):
        await bench.add_node()
    names = [f"job{number}" for number in range(12)]
    await asyncio.gather(*(bench.server.resources.jobs.register(_job(name, 2, memory_mb=900)) for name in names))
    await bench.idle()
    found = [each for name in names for each in await _replayed(bench, name)]
    assert len(found) >= 12 and all(each.is_identical for each in found)
    assert any(attempt.laid_over for each in found for attempt in each.attempts)


async def test_an_evaluation_is_made_again_after_one_that_waits_for_a_quota_and_stores_nothing(bench: Any) -> None:
    await bench.add_node()
    for command in bound():
        await bench.server.replica.propose(command)
    for name, memory_mb in {"filler": 450, "large": 950, "first": 400, "second": 400, "third": 400}.items():
        job = factories.job(name, type="batch", priority=80 if name == "large" else 50)
        tasks = _job(name, memory_mb=memory_mb).task_groups[0].tasks
        ready = replace(job, task_groups=(replace(job.task_groups[0], tasks=tasks),))
        await bench.server.resources.jobs.register(ready)
        await bench.idle()
    await bench.report("complete", "first")
    await bench.until(lambda: len(bench.live("second") + bench.live("third")) == 1)
    await bench.idle()
    (waiting,) = (each for each in bench.server.state.evals.where("status", "blocked") if each.job_id == "large")
    placed, last = ("second", "third") if bench.live("second") else ("third", "second")
    await bench.report("complete", placed)
    await bench.until(lambda: bench.live(last))
    await bench.idle()
    assert bench.server.state.evals[waiting.id] == waiting
    assert all(each.is_identical for each in await _replayed(bench, last))


async def test_what_could_not_be_placed_has_the_same_reasons_again(bench: Any) -> None:
    await bench.add_node()
    await bench.server.resources.jobs.register(_job("web", 1, memory_mb=1_000_000))
    await bench.until(lambda: any(s == "blocked" for _, s in bench.evals()))
    (found,) = await _replayed(bench, "web")
    assert found.is_identical and found.is_outcome_identical and found.attempts[0].placements == 0


async def test_a_log_on_disk_replays_after_a_restart_and_from_a_snapshot(tmp_path: Path, run_server: Any) -> None:
    path = tmp_path / "log" / "log.db"
    async with run_server(log=SqliteLog(path)) as bench:
        for _ in range(4):
            await bench.add_node()
        await bench.server.resources.jobs.register(_job("old", 3))
        await bench.idle()
    async with run_server(log=SqliteLog(path)) as bench:
        await bench.server.resources.jobs.register(_job("new", 3))
        await bench.until(lambda: len(bench.live("new")) == 3)
        await bench.idle()
        (new,) = await _replayed(bench, "new")
        assert new.is_identical and new.base_index > 0
        (old,) = await _replayed(bench, "old")
        assert old.is_identical and old.base_index == 0


async def test_a_dev_agent_replays_from_the_states_that_it_keeps_and_says_from_where(run_server: Any) -> None:
    async with run_server(log=MemoryLog(keep=256), dev=True) as bench:
        await bench.add_node()
        await bench.server.resources.jobs.register(_job("first"))
        await bench.until(lambda: len(bench.live("first")) == 1)
        await bench.idle()
        first = next(iter(bench.server.state.evals.where("job", ("default", "first"))))
        for number in range(420):
            if number % 20 == 0:
                await bench.server.resources.jobs.register(_job("later", number // 20))
                await bench.idle()
            await bench.server.replica.propose(
                UpsertEvaluations(evaluations=(replace(first, id=f"x{number}", attempts=()),))
            )
        later = bench.server.state.evals.where("job", ("default", "later"))
        newest = await bench.server.scheduling.replays.replay(max(later, key=lambda each: each.create_index).id)
        assert newest.is_identical and newest.base_index > 100
        with pytest.raises(Conflict, match="is not kept any more: the state is kept from index"):
            await bench.server.scheduling.replays.replay(first.id)


async def test_an_unknown_evaluation_and_one_that_was_never_scheduled_say_so(bench: Any) -> None:
    with pytest.raises(NotFound):
        await bench.server.scheduling.replays.replay("nope")
    waiting = factories.number_id(9)
    evaluation = replace(factories.evaluation(), id=waiting, status="canceled")
    await bench.server.replica.propose(UpsertEvaluations(evaluations=(evaluation,)))
    with pytest.raises(Conflict, match="was not scheduled yet"):
        await bench.server.scheduling.replays.replay(waiting)
