"""Limits beside the nodes, on a running server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from yurt.sdk.value import replace
from yurt.server.log.log_writer import LogWriter
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.storage.memory import MemoryLog
from yurt.structs import commands as c
from yurt.structs.cluster import Namespace
from yurt.structs.commands import AllocUpdate
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import Plan
from yurt.structs.resources import Resources
from yurt.structs.rpc import UpdateAllocsRequest
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv
from yurt.testing.quotas import bound, quota
from yurt.testing.replica import Replica


def _job(name: str, count: int, **changes: Any) -> Job:
    task = factories.task(resources=Resources(cpu=10, memory_mb=300))
    return factories.job(name, task_groups=(factories.group(count=count, tasks=(task,), update=None),), **changes)


async def _bind(bench: Any) -> None:
    for command in bound():
        await bench.server.replica.propose(command)


async def test_a_server_with_limits_places_the_rest_when_an_allocation_ends(run_server: Any) -> None:
    async with run_server() as bench:
        await bench.add_node()
        await _bind(bench)
        await bench.server.resources.jobs.register(_job("one", 3))
        await bench.until(lambda: len(bench.live("one")) == 3)
        await bench.server.resources.jobs.register(_job("two", 1))
        await bench.until(lambda: ("queued-allocs", "blocked") in bench.evals("two"))
        first = next(e for e in bench.server.state.evals.where("job", ("default", "two")) if e.attempts)
        assert (await bench.server.scheduling.replays.replay(first.id)).is_identical
        await bench.server.resources.jobs.deregister("default", "one")
        await bench.report("complete", "one")
        await bench.until(lambda: len(bench.live("two")) == 1)


@pytest.mark.parametrize(
    "freed",
    [
        (c.UpsertQuotas(quotas=(quota(memory_mb=1300),)),),
        (c.UpsertNamespaces(namespaces=(Namespace(name="default"),)),),
        bound(spec=quota("large", memory_mb=1300)),
        (c.UpsertQuotas(quotas=(quota(region="elsewhere", memory_mb=1),)),),
    ],
    ids=["raised", "taken away", "another quota", "a limit of another region alone"],
)
async def test_what_waits_for_a_quota_is_placed_once_it_fits(run_server: Any, freed: tuple[c.AnyCommand, ...]) -> None:
    async with run_server() as bench:
        await bench.add_node()
        await _bind(bench)
        await bench.server.resources.jobs.register(_job("web", 4))
        await bench.until(lambda: ("queued-allocs", "blocked") in bench.evals("web"))
        assert len(bench.live("web")) == 3
        for command in freed:
            await bench.server.replica.propose(command)
        await bench.until(lambda: len(bench.live("web")) == 4)


async def test_the_allocations_of_a_purged_job_give_their_quota_back_when_they_end(run_server: Any) -> None:
    async with run_server() as bench:
        await bench.add_node()
        await _bind(bench)
        await bench.server.resources.jobs.register(_job("one", 3))
        await bench.until(lambda: len(bench.live("one")) == 3)
        await bench.server.resources.jobs.deregister("default", "one", purge=True)
        await bench.server.resources.jobs.register(_job("two", 1))
        await bench.until(lambda: ("queued-allocs", "blocked") in bench.evals("two"))
        await bench.until(lambda: not bench.live("one"))
        assert not bench.live("two"), "what is to stop counts until its client has ended it"
        for alloc in bench.server.state.allocs_of_job("default", "one"):
            ended = AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete")
            await bench.server.clients.calls.update_allocs(UpdateAllocsRequest(node_id=alloc.node_id, updates=(ended,)))
        await bench.until(lambda: len(bench.live("two")) == 1)


async def test_jobs_that_are_planned_together_stay_within_their_limit(run_server: Any) -> None:
    async with run_server() as bench:
        await bench.add_node()
        await _bind(bench)
        names = [f"job-{number}" for number in range(8)]
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(bench.server.resources.jobs.register(_job(name, 1)))
        await bench.until(lambda: sum(("queued-allocs", "blocked") in bench.evals(name) for name in names) == 5)
        await bench.until(lambda: sum(len(bench.live(name)) for name in names) == 3)


async def test_a_plan_tells_of_the_limit_that_a_registration_would_meet(run_server: Any) -> None:
    async with run_server() as bench:
        await bench.add_node()
        await _bind(bench)
        planned = await bench.server.resources.jobs.plan(_job("web", 4), diff=False)
        (failed,) = planned.failed_tg_allocs.values()
        assert failed.quota_exhausted == ("memory exhausted (300 MB needed, 100 of 1000 MB left)",)


def test_what_waits_for_a_quota_wakes_when_the_plan_that_took_it_is_rejected() -> None:
    log = LogWriter(MemoryLog(), on_applied=lambda *_: None, on_batch=lambda _: None, on_failed=lambda: None)
    state = Replica().apply(*bound())
    queue = EvalQueue(env=FakeEnv(), writer=log, current=lambda: state, turns=log.turns)
    waiting = Evaluation(
        id="e", job_id="two", type="service", status="blocked", quota_limit_reached="small", snapshot_index=5
    )
    assert not queue.blocked.block(waiting)
    for namespace, index in (("unknown", 9), ("default", 5)):
        queue.note_dropped(Plan(eval_id="p", namespace=namespace, job_id="one"), index=index)
        assert queue.blocked.holds("e"), "it waits for another quota, and its scheduler knew what came before"
    queue.note_dropped(Plan(eval_id="p", namespace="default", job_id="one"), index=6)
    assert not queue.blocked.holds("e") and queue.broker.ready == 1


@pytest.mark.parametrize("node_id", ["", "of node"])
def test_what_waits_for_a_node_wakes_when_the_plan_that_took_it_is_rejected(node_id: str) -> None:
    log = LogWriter(MemoryLog(), on_applied=lambda *_: None, on_batch=lambda _: None, on_failed=lambda: None)
    node, job = factories.node(), factories.job("one")
    state = Replica().apply(c.RegisterNode(node=node))
    queue = EvalQueue(env=FakeEnv(), writer=log, current=lambda: state, turns=log.turns)
    own_node = {"node_id": node.id, "type": "system"} if node_id else {"type": "service"}
    waiting = Evaluation(id="e", job_id="two", status="blocked", snapshot_index=5, **own_node)
    assert not queue.blocked.block(waiting)
    plan = Plan(eval_id="p", namespace="default", job_id="one", placements=(factories.placement(job, on=node),))
    queue.note_dropped(replace(plan, placements=()), index=9)
    assert queue.blocked.holds("e"), "nothing came back on its node"
    queue.note_dropped(plan, index=6)
    assert not queue.blocked.holds("e") and queue.broker.ready == 1
