"""The jobs that wait in the queue of their node pool, derived from the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from yurt.queue.amounts import NOTHING, Amounts
from yurt.queue.charge import PRICE_ONE, allocated_amounts, is_gpu, price_of, priced, tenant_of
from yurt.queue.run_times import SAME_JOB, Kind
from yurt.queue.turns import STRETCH_ONE, TurnRules, boost_time, turn_of
from yurt.queue.waiting_job import JobKey, Waiting
from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.capacity.pool_capacity import PendingAllocs
from yurt.scheduler.feasibility.device_trials import trial_runs_for
from yurt.sdk.value import Duration, UnixNano
from yurt.state import Snapshot
from yurt.state.namespace_usage import MILLI
from yurt.state.usage import is_using
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import is_ready, is_server_terminal
from yurt.structs.queueing.batch_queue import TENANT_METADATA, BatchQueue
from yurt.structs.queueing.requeue import is_replacement_deferred

QUEUED_TRIGGERS: Final = frozenset(
    {
        status.TRIGGER_JOB_REGISTER,
        status.TRIGGER_PERIODIC,
        status.TRIGGER_SCALING,
        status.TRIGGER_QUEUED_ALLOCS,
        status.TRIGGER_PREEMPTION,
    }
)
"""Triggers of evaluations that queue; others (a lost node, a stop) go to the scheduler at once, since they add no
work."""


class QueueEntry(NamedTuple):
    """A job in a queue, with the evaluation that waits."""

    job: Job
    evaluation: Evaluation
    waiting: Waiting
    demands: tuple[PendingAllocs, ...]


class QueuedJobs(NamedTuple):
    """The facts that the gate passes about a pool's jobs."""

    entries: Mapping[JobKey, QueueEntry]
    ready: Collection[JobKey]
    """Jobs that the scheduler has not tried since capacity changed for them."""
    in_flight: Sequence[QueueEntry]
    shapes: Mapping[object, Sequence[PendingAllocs]] | None = None
    """The distinct requests of the jobs; None: there are too many to consider."""


def queue_of(state: Snapshot, pool: str) -> BatchQueue | None:
    """The queue of a node pool."""
    row = state.node_pools.get(pool)
    return None if row is None else row.batch_queue


def metadata_key(queue: BatchQueue) -> str:
    """The key of the job meta that names tenants; empty when namespaces are the tenants."""
    if queue.fair_share is not None:
        return queue.fair_share.metadata_key
    dynamic = queue.dynamic_priority
    return dynamic.metadata_key if dynamic is not None and dynamic.tenant_type == TENANT_METADATA else ""


def queued_job(state: Snapshot, evaluation: Evaluation) -> tuple[Job, BatchQueue] | None:
    """The job and the queue of an evaluation that waits in one."""
    if evaluation.type != status.JOB_BATCH or evaluation.triggered_by not in QUEUED_TRIGGERS:
        return None
    job = state.jobs.get((evaluation.namespace, evaluation.job_id))
    if job is None or job.stop or job.is_template:
        return None
    queue = queue_of(state, job.node_pool)
    return None if queue is None else (job, queue)


def entry_of(state: Snapshot, evaluation: Evaluation) -> QueueEntry | None:
    """The entry of an evaluation; None when it waits in no queue."""
    queued = queued_job(state, evaluation)
    if queued is None:
        return None
    job, queue = queued
    demands = tuple(_demands(state, job, evaluation))
    total = NOTHING
    prices = queue.fair_share.prices if queue.fair_share is not None else {}
    for one in demands:
        total = total.plus(priced(one.ask.least_amounts, prices), one.number)
    since, limit = UnixNano(job.submit_time or evaluation.create_time), run_limit(job, queue)
    rules = turn_rules(queue)
    waiting = Waiting(
        key=job.key,
        tenant=tenant_of(job, metadata_key(queue)),
        priority=job.priority,
        create_index=job.job_modify_index,
        since=since,
        asked=total,
        limit=limit,
        turn=turn_of(since, limit, cards_of(job), rules),
        boost_at=boost_time(since, rules),
    )
    return QueueEntry(job, evaluation, waiting, demands)


def turn_rules(queue: BatchQueue) -> TurnRules:
    """The rules for computing turns; only `fair_share` uses them."""
    fair = queue.fair_share
    if fair is None:
        return TurnRules()
    return TurnRules(stretch=round(fair.stretch * STRETCH_ONE), reach=fair.reach, boost_after=fair.boost_after)


def cards_of(job: Job) -> int:
    """The number of cards requested by a job, or of its allocations if larger: its work is that times its limit."""
    return max(1, sum(group.count * max(1, _cards(group)) for group in job.task_groups))


def _cards(group: TaskGroup) -> int:
    """Whole cards of one allocation."""
    return sum(device.count for task in group.tasks for device in task.resources.devices if not device.share)


def was_boosted(alloc: Allocation, queue: BatchQueue) -> bool:
    """Whether an allocation's job was boosted when it was placed, derived from its arrival and start."""
    if alloc.job is None or queue.fair_share is None:
        return False
    return 0 < boost_time(alloc.job.submit_time, turn_rules(queue)) <= alloc.create_time


def end_by_limit(alloc: Allocation, queue: BatchQueue) -> int:
    """The time at which an allocation ends at the latest; 0 without a limit."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    limit = 0 if group is None or alloc.job is None else group.max_run_duration or run_limit(alloc.job, queue)
    return alloc.create_time + limit if limit else 0


def kinds_of(job: Job) -> tuple[Kind, ...]:
    """With whose run times a job's are compared, from the narrowest: those of the same job (or launched by the same
    one) with as many cards, of the job, of the namespace with as many cards, of the namespace, of all."""
    name, cards = job.parent_id or job.id, cards_of(job)
    return (
        (SAME_JOB, job.namespace, name, cards),
        (SAME_JOB, job.namespace, name),
        ("size", job.namespace, cards),
        ("namespace", job.namespace),
        ("all",),
    )


def entries(state: Snapshot, pool: str) -> list[QueueEntry]:
    """All jobs that wait in a queue, each once, unordered."""
    by_key: dict[JobKey, QueueEntry] = {}
    for name in (status.EVAL_BLOCKED, status.EVAL_PENDING):
        for evaluation in state.evals.where("status", name):
            job = state.jobs.get((evaluation.namespace, evaluation.job_id))
            if job is None or job.node_pool != pool:
                continue
            entry = entry_of(state, evaluation)
            if entry is not None and entry.demands:
                by_key[entry.waiting.key] = entry
    return list(by_key.values())


def run_limit(job: Job, queue: BatchQueue) -> Duration:
    """The run time limit of a job's allocations; 0: unlimited."""
    limits = [group.max_run_duration or queue.default_run_duration for group in job.task_groups if group.count]
    return max(limits) if limits and all(limits) else Duration(0)


def capacity_of(state: Snapshot, pool: str, queue: BatchQueue) -> Amounts:
    """The capacity of a pool's ready nodes; computed once while nodes do not change."""
    memo = state.columns.nodes.memo
    prices = () if queue.fair_share is None else tuple(sorted(queue.fair_share.prices.items()))
    key = ("capacity of a queue", pool, prices)
    amounts: Amounts | None = memo.get(key)
    if amounts is None:
        amounts = memo[key] = _capacity(state, pool, queue)
    return amounts


def _capacity(state: Snapshot, pool: str, queue: BatchQueue) -> Amounts:
    prices = queue.fair_share.prices if queue.fair_share is not None else {}
    gpu = cpu = memory = 0
    for node in state.nodes.values():
        if node.node_pool != pool or not is_ready(node):
            continue
        cpu += node.node_resources.cpu.cpu_shares
        memory += node.node_resources.memory.memory_mb
        for kind in node.node_resources.devices:
            name = f"{kind.vendor}/{kind.type}/{kind.name}"
            healthy = sum(1 for instance in kind.instances if instance.healthy)
            gpu += healthy * MILLI * price_of(name, prices) if is_gpu(name) else 0
    return Amounts(gpu, cpu, memory)


def allocs_of_pool(state: Snapshot, pool: str) -> Iterator[Allocation]:
    """The allocations of a pool's nodes that use resources."""
    for node in state.nodes.values():
        if node.node_pool == pool:
            yield from (alloc for alloc in state.allocs.each_where("node", node.id) if is_using(alloc))


def usage_by_tenant(state: Snapshot, pool: str, queue: BatchQueue) -> dict[tuple[str, ...], Amounts]:
    """The present usage of each tenant's batch jobs."""
    key = metadata_key(queue)
    sums: dict[tuple[str, ...], Amounts] = {}
    for alloc in allocs_of_pool(state, pool):
        if alloc.job is not None and alloc.job.type == status.JOB_BATCH:
            tenant = tenant_of(alloc.job, key)
            sums[tenant] = sums.get(tenant, NOTHING).plus(allocated_amounts(alloc, {}))
    return sums


def price_parts() -> int:
    """The number of `Amounts.gpu` units in a GPU of price 1."""
    return MILLI * PRICE_ONE


def _demands(state: Snapshot, job: Job, evaluation: Evaluation) -> Iterator[PendingAllocs]:
    """The allocations of each group that are neither there nor done."""
    present: Counter[str] = Counter()
    for alloc in state.allocs_of_job(job.namespace, job.id):
        # A preempted allocation ends as complete if its tasks end in time, and yet its work is not done.
        is_done = alloc.client_status == status.CLIENT_COMPLETE and alloc.desired_status != status.DESIRED_EVICT
        is_there = is_using(alloc) and not is_server_terminal(alloc)
        if is_done or is_there or is_replacement_deferred(alloc, evaluation):
            present[alloc.task_group] += 1
    for group in job.task_groups:
        missing = group.count - present[group.name]
        if missing > 0:
            ask = GroupAsk(group, with_memory_max=False, trial_runs=trial_runs_for(state, group))
            yield PendingAllocs(ask, missing, max(1, group.least - present[group.name]))
