"""Node pools with a queue: the order decides who is scheduled, and nobody is tried for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from yurt.runtime.turns import Turns
from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.capacity.pool_capacity import PendingAllocs, PoolCapacity
from yurt.sdk.errors import Conflict
from yurt.sdk.value import Duration, replace, seconds
from yurt.server.queueing.gate import QueueGate
from yurt.server.queueing.reservations import PATIENCE
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.storage.memory import MemoryLog
from yurt.structs.cluster import Namespace, NodePool, PreemptionConfig, SchedulerConfiguration
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    DeleteNodePools,
    RegisterJob,
    RegisterNode,
    SetSchedulerConfiguration,
    UpsertEvaluations,
    UpsertNamespaces,
    UpsertNodePools,
)
from yurt.structs.constraint import Constraint
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.plan import Plan
from yurt.structs.queueing.batch_queue import BatchQueue, DynamicPriorityQueue, FairShareQueue, FifoQueue
from yurt.structs.resources import Resources
from yurt.structs.rpc import UpdateAllocsRequest
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv
from yurt.testing.replica import Replica

POOL = "batch"
FAIR = BatchQueue(fair_share=FairShareQueue(half_life=seconds(3600)))
FIFO = BatchQueue(fifo=FifoQueue())
SLOT = 1000
"""MHz of one slot; a node has four."""


async def prepare(bench: Any, queue: BatchQueue | None, *, nodes: int = 1) -> list[Node]:
    """Two teams' namespaces, and a pool with nodes of four slots."""
    teams = (Namespace(name="team-a"), Namespace(name="team-b"))
    await bench.server.replica.propose(UpsertNamespaces(namespaces=teams))
    pool = NodePool(name=POOL, batch_queue=queue)
    await bench.server.replica.propose(UpsertNodePools(pools=(pool,), now=bench.env.now()))
    return [await bench.add_node(node_pool=POOL) for _ in range(nodes)]


def batch_job(id: str, *, team: str = "team-a", slots: int = 1, hours: float = 0, **changes: Any) -> Job:
    """A batch job of one allocation that takes some slots."""
    made = factories.job(id, type="batch", namespace=team, node_pool=POOL, **changes)
    task = replace(made.task_groups[0].tasks[0], resources=Resources(cpu=slots * SLOT, memory_mb=64))
    group = replace(made.task_groups[0], tasks=(task,), max_run_duration=Duration(seconds(hours * 3600)))
    return replace(made, task_groups=(group,))


def ready_nodes(bench: Any) -> list[Node]:
    """The nodes, all of which go on heartbeating."""
    return list(bench.server.state.nodes.values())


async def register(bench: Any, *jobs: Job) -> None:
    """Register jobs one after another, each with the time of its submission."""
    for job in jobs:
        await bench.pass_time(0.5, *ready_nodes(bench))
        await bench.server.resources.jobs.register(replace(job, submit_time=bench.env.now()))


def placed(bench: Any) -> list[str]:
    """The jobs that have an allocation, in the order of placement."""
    allocs = sorted(bench.server.state.allocs.values(), key=lambda alloc: (alloc.create_index, alloc.name))
    return [alloc.job_id for alloc in allocs]


async def end(bench: Any, *job_ids: str) -> None:
    """The client says that these jobs' allocations have completed."""
    for alloc in bench.server.state.allocs.values():
        if alloc.job_id in job_ids and alloc.client_status not in ("complete", "failed"):
            update = AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete")
            await bench.server.clients.calls.update_allocs(
                UpdateAllocsRequest(node_id=alloc.node_id, updates=(update,))
            )


async def until_placed(bench: Any, expected: Sequence[str]) -> None:
    """Wait for these placements, in this order."""
    await bench.until(lambda: len(placed(bench)) >= len(expected))
    assert placed(bench)[: len(expected)] == list(expected)


async def test_who_has_used_less_goes_first(bench: Any) -> None:
    await prepare(bench, FAIR)
    await register(bench, batch_job("full", slots=4))
    await until_placed(bench, ["full"])
    await bench.pass_time(40, *ready_nodes(bench))
    await register(bench, batch_job("a1"), batch_job("a2"), batch_job("b1", team="team-b"))
    await end(bench, "full")
    await bench.until(lambda: len(placed(bench)) == 4)
    rows = {row.tenant: row for row in bench.server.state.queue_usages.values()}
    assert set(rows) == {("team-a",), ("team-b",)}
    assert rows[("team-a",)].rates[1] == 2 * SLOT
    assert int(rows[("team-a",)].totals[1], 16) > 0


async def test_a_freed_slot_goes_to_the_tenant_with_least_usage(bench: Any) -> None:
    await prepare(bench, FAIR)
    first = [batch_job(f"run-{number}") for number in range(4)]
    await register(bench, *first)
    await until_placed(bench, [job.id for job in first])
    await bench.pass_time(40, *ready_nodes(bench))
    await register(bench, batch_job("a1"), batch_job("a2"), batch_job("b1", team="team-b"))
    await end(bench, "run-0")
    await until_placed(bench, [*(job.id for job in first), "b1"])
    await end(bench, "run-1")
    await until_placed(bench, [*(job.id for job in first), "b1", "a1"])


async def test_one_freed_slot_makes_one_attempt(bench: Any) -> None:
    await prepare(bench, FIFO)
    await register(bench, *(batch_job(f"run-{number}") for number in range(4)))
    await until_placed(bench, [f"run-{number}" for number in range(4)])
    await register(bench, *(batch_job(f"wait-{number:02}") for number in range(40)))
    scheduled = bench.server.metrics.counters["worker.evaluations"]
    await end(bench, "run-2")
    await bench.until(lambda: "wait-00" in placed(bench))
    await bench.pass_time(2, *ready_nodes(bench))
    assert placed(bench)[-1] == "wait-00"
    assert bench.server.metrics.counters["worker.evaluations"] - scheduled <= 3


async def test_the_head_blocks_what_has_no_limit_and_lets_short_jobs_pass(bench: Any) -> None:
    await prepare(bench, FIFO)
    await register(bench, batch_job("run", slots=3, hours=2))
    await until_placed(bench, ["run"])
    await register(bench, batch_job("large", slots=4, hours=1), batch_job("endless"), batch_job("short", hours=1))
    await until_placed(bench, ["run", "short"])
    await bench.pass_time(5, *ready_nodes(bench))
    assert placed(bench) == ["run", "short"]
    await end(bench, "short", "run")
    await until_placed(bench, ["run", "short", "large"])


async def test_what_no_node_can_take_blocks_nobody(bench: Any) -> None:
    await prepare(bench, FIFO)
    nowhere = Constraint(l_target="${attr.kernel.name}", r_target="plan9", operand="=")
    await register(bench, batch_job("giant", slots=9), batch_job("nowhere", constraints=(nowhere,)), batch_job("fits"))
    await bench.until(lambda: "fits" in placed(bench))
    blocked = bench.server.state.evals.where("status", "blocked")
    await bench.until(
        lambda: {each.job_id for each in bench.server.state.evals.where("status", "blocked")} >= {"nowhere"}
    )
    assert placed(bench) == ["fits"], blocked


async def test_dynamic_priority_prefers_the_smaller_share(bench: Any) -> None:
    queue = DynamicPriorityQueue(fairshare_weight=50, cpu_weight=10, max_cpu=4000)
    await prepare(bench, BatchQueue(dynamic_priority=queue))
    first = [batch_job(f"run-{number}") for number in range(4)]
    await register(bench, *first)
    await until_placed(bench, [job.id for job in first])
    await register(bench, batch_job("a1"), batch_job("b1", team="team-b"))
    await end(bench, "run-0")
    await until_placed(bench, [*(job.id for job in first), "b1"])


async def test_a_stopped_job_leaves_the_queue(bench: Any) -> None:
    await prepare(bench, FIFO)
    await register(bench, batch_job("run", slots=4))
    await until_placed(bench, ["run"])
    await register(bench, batch_job("first", slots=4), batch_job("second", slots=4))
    await bench.server.resources.jobs.deregister("team-a", "first")
    await end(bench, "run")
    await until_placed(bench, ["run", "second"])


async def test_a_pool_that_loses_its_queue_lets_everybody_through(bench: Any) -> None:
    await prepare(bench, FIFO)
    await register(bench, batch_job("run", slots=3))
    await until_placed(bench, ["run"])
    await register(bench, batch_job("large", slots=4), batch_job("small"))
    await bench.pass_time(2, *ready_nodes(bench))
    assert placed(bench) == ["run"]
    await bench.server.replica.propose(UpsertNodePools(pools=(NodePool(name=POOL),)))
    await until_placed(bench, ["run", "small"])
    assert bench.server.term.queue.pools.gate is None
    await bench.server.replica.propose(UpsertNodePools(pools=(NodePool(name=POOL, batch_queue=FIFO),)))
    gate = bench.server.term.queue.pools.gate
    assert ("team-a", "large") in gate, "it is blocked, and has its place"


def evaluation_of(job: Job, number: int, **changes: Any) -> Evaluation:
    return Evaluation(
        id=f"e{number}", namespace=job.namespace, job_id=job.id, type="batch", triggered_by="job-register", **changes
    )


def replica_with(job: Job, *commands: Any, **of_node: Any) -> Replica:
    """A node in a pool with a queue, and a job for it."""
    found = Replica()
    found.apply(
        UpsertNamespaces(namespaces=(Namespace(name=job.namespace),)),
        UpsertNodePools(pools=(NodePool(name=POOL, batch_queue=FIFO),)),
        RegisterNode(node=factories.node(node_pool=POOL, **of_node)),
        RegisterJob(job=job),
        *commands,
    )
    return found


def test_a_job_leaves_with_the_last_of_its_evaluations() -> None:
    job = batch_job("twice")
    state, first, second = replica_with(job).state, evaluation_of(job, 1), evaluation_of(job, 2)
    gate = QueueGate()
    assert gate.takes(state, first)
    assert gate.takes(state, second)
    gate.forget(second)
    assert gate.look(state, 0) == [first]
    gate.forget(first)
    gate.done(first.id)
    assert (len(gate), gate.in_flight) == (0, 0)


def test_what_wants_nothing_new_does_not_wait() -> None:
    job = batch_job("empty")
    job = replace(job, task_groups=(replace(job.task_groups[0], count=0),))
    assert not QueueGate().takes(replica_with(job).state, evaluation_of(job, 1))


async def test_a_term_lets_through_what_waits_although_nothing_happens() -> None:
    """The news of what came before the term is looked at without a command, for the queues wait for that."""
    job, other = batch_job("waits"), factories.job("other")
    pending = evaluation_of(job, 1, status="pending")
    never = {"class_eligibility": {factories.node(node_pool=POOL).computed_class: False}}
    blocked = Evaluation(id="e0", job_id=other.id, type="service", status="blocked", snapshot_index=1, **never)
    state = replica_with(job, UpsertEvaluations(evaluations=(pending, blocked))).state
    queue = EvalQueue(env=FakeEnv(), writer=None, current=lambda: state, turns=Turns())
    queue.restore(state)
    assert queue.blocked.has_changes
    assert queue.broker.ready == 0
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(queue.run_unblocking()), group.create_task(queue.pools.run())]
        for _ in range(100):
            await asyncio.sleep(0)
        for loop in loops:
            loop.cancel()
    assert queue.broker.has_ready(("batch",))


def test_a_gang_beyond_the_limits_of_a_node_blocks_nobody() -> None:
    """As many as it needs at once are never on nodes that take fewer, so nothing is kept for it."""
    job = batch_job("gang")
    state = replica_with(job, node_max_allocs=2).state
    ask = GroupAsk(job.task_groups[0], with_memory_max=False)
    room = PoolCapacity(state, POOL)
    assert room.total_places(ask) == 2
    assert not room.has_capacity([PendingAllocs(ask, 3, 3)])


async def test_the_next_leader_keeps_the_order(run_server: Any) -> None:
    log, env = MemoryLog(), FakeEnv()
    async with run_server(log, env) as first:
        await prepare(first, FIFO)
        await register(first, batch_job("run", slots=4))
        await until_placed(first, ["run"])
        await register(first, *(batch_job(f"wait-{number}", slots=4) for number in range(3)))
    async with run_server(log, env) as second:
        for number, before in enumerate(("run", "wait-0", "wait-1")):
            await end(second, before)
            await until_placed(second, ["run", *(f"wait-{each}" for each in range(number + 1))])


async def test_a_pool_is_deleted_once_nobody_waits_for_it(bench: Any) -> None:
    await prepare(bench, FIFO, nodes=0)
    await register(bench, batch_job("waits"))
    with pytest.raises(Conflict):
        await bench.server.replica.propose(DeleteNodePools(names=(POOL,)))
    gate = bench.server.term.queue.pools.gate
    assert ("team-a", "waits") in gate
    await bench.server.resources.jobs.deregister("team-a", "waits", purge=True)
    await bench.until(lambda: len(gate) == 0)
    await bench.server.replica.propose(DeleteNodePools(names=(POOL,)))
    assert bench.server.term.queue.pools.gate is None


async def test_what_was_said_of_a_start_is_compared_with_it(bench: Any) -> None:
    await prepare(bench, FIFO)
    await register(bench, batch_job("run", slots=4, hours=1))
    await until_placed(bench, ["run"])
    await register(bench, batch_job("next", slots=4, hours=1), batch_job("gone", slots=4, hours=1))
    forecasts = bench.server.term.queue.pools.forecasts
    assert forecasts is not None
    await bench.pass_time(31, *ready_nodes(bench))
    await bench.until(lambda: len(forecasts.of(POOL)) == 2)
    await bench.server.resources.jobs.deregister("team-a", "gone")
    await bench.until(lambda: len(forecasts.of(POOL)) == 1)
    await end(bench, "run")
    await until_placed(bench, ["run", "next"])
    found = forecasts.summary(POOL)
    assert found is not None
    assert (found.starts, found.by_likely_percent, found.after_latest) == (1, 100, 0), "it ended before its limit"
    assert bench.server.roles.term is not None


def test_the_first_waits_for_what_has_no_limit_until_nothing_passes_it() -> None:
    """An estimate lets others pass, since no limit says when the first fits; its patience ends that."""
    first, second = batch_job("first", slots=4), batch_job("second", hours=0.1)
    replica = replica_with(batch_job("runs", slots=3))
    running = replica.state.jobs[("team-a", "runs")]
    (node,) = replica.state.nodes.values()
    placement = factories.placement(running, on=node)
    plan = Plan(eval_id="", namespace="team-a", job_id="runs", placements=(placement,), now=factories.NOW)
    replica.apply(ApplyPlan(plan=plan), RegisterJob(job=first), RegisterJob(job=second))
    gate = QueueGate()
    evaluations = [evaluation_of(job, number) for number, job in enumerate((first, second))]
    for evaluation in evaluations:
        assert gate.takes(replica.state, evaluation)
    assert gate.look(replica.state, factories.NOW + PATIENCE) == []
    assert not gate.promises[POOL][0].is_sure
    assert gate.look(replica.state, factories.NOW + PATIENCE - 1) == evaluations[1:]


async def test_other_pools_do_not_queue(bench: Any) -> None:
    await prepare(bench, None)
    await register(bench, batch_job("one"), batch_job("two"))
    await bench.until(lambda: sorted(placed(bench)) == ["one", "two"])
    assert len(bench.server.state.queue_usages) == 0


def test_a_new_view_begins_without_the_delays_of_the_former_one() -> None:
    """A queue that counts by other tenants deletes what the former ones used; a new leader knows of no delay either."""
    job = batch_job("waits")
    state, gate = replica_with(job).state, QueueGate()
    assert gate.takes(state, evaluation_of(job, 1))
    line = gate._pools[POOL].line
    line.delay({("team-a",): seconds(60)})
    assert gate.look(state, factories.NOW)
    assert dict(line.delays) == {("team-a",): 0}


def preempting_gate(*, running: Job, waiting: Job, is_allowed: bool = True) -> tuple[QueueGate, Replica, Evaluation]:
    """A gate for which one job waits while another runs on the only node."""
    replica = replica_with(running)
    (node,) = replica.state.nodes.values()
    placement = factories.placement(replica.state.jobs[running.key], on=node)
    plan = Plan(eval_id="", namespace="team-a", job_id=running.id, placements=(placement,), now=factories.NOW)
    preemption = PreemptionConfig(batch_scheduler_enabled=is_allowed)
    configuration = SchedulerConfiguration(preemption_config=preemption)
    replica.apply(
        ApplyPlan(plan=plan), RegisterJob(job=waiting), SetSchedulerConfiguration(configuration=configuration)
    )
    gate, evaluation = QueueGate(), evaluation_of(waiting, 1)
    assert gate.takes(replica.state, evaluation)
    return gate, replica, evaluation


@pytest.mark.parametrize(
    ("priority", "slots", "is_allowed", "goes"),
    [(60, 4, True, True), (59, 4, True, False), (60, 4, False, False), (60, 9, True, True)],
)
def test_a_job_that_may_preempt_goes_to_the_scheduler(priority: int, slots: int, is_allowed: bool, goes: bool) -> None:
    """Nine slots fit no node: the scheduler says so, whoever runs."""
    waiting = batch_job("urgent", slots=slots, priority=priority)
    gate, replica, evaluation = preempting_gate(
        running=batch_job("runs", slots=3, priority=50), waiting=waiting, is_allowed=is_allowed
    )
    assert gate.look(replica.state, factories.NOW) == ([evaluation] if goes else [])


async def test_a_back_off_is_over_before_a_job_is_queued_again(bench: Any) -> None:
    await prepare(bench, FAIR)
    job = batch_job("waits")
    await bench.server.replica.propose(RegisterJob(job=job))
    at = bench.env.now() + seconds(20)
    late = replace(evaluation_of(job, 1), triggered_by="preemption", wait_until=at)
    await bench.server.replica.propose(UpsertEvaluations(evaluations=(late,)))
    await bench.pass_time(15, *ready_nodes(bench))
    assert placed(bench) == []
    await bench.pass_time(6, *ready_nodes(bench))
    await until_placed(bench, ["waits"])
