"""Simulates a changed cluster: nodes lost or added, quotas changed, jobs submitted.

The changes are laid over a copy of the state. Then everything that they concern, and everything that waits, is
scheduled by the real scheduler on that state, jobs of queued pools in the order of their queue, until nothing more is
placed. What runs goes on running: time does not pass, so the answer is that of the next moment; when waiting jobs would
start say the forecasts of their queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from yurt.queue.waiting_job import JobKey
from yurt.scheduler.attempts import lay_over
from yurt.sdk.errors import Invalid
from yurt.sdk.value import UnixNano, replace
from yurt.server.queueing.report import forecasts
from yurt.server.simulation.cluster_simulation import PER_NODE_JOBS, SEED, ClusterSimulation
from yurt.state import Snapshot, Tables
from yurt.state.usage import is_using
from yurt.structs import status
from yurt.structs.cluster import NodePool
from yurt.structs.job import Job
from yurt.structs.predicates import is_server_terminal
from yurt.structs.quota import QuotaSpec
from yurt.structs.status import Trigger

NODES_MAX: Final = 10_000


class Scenario(NamedTuple):
    """The assumed changes."""

    lost: tuple[str, ...] = ()
    """Ids of nodes that are down."""
    added: tuple[tuple[str, int], ...] = ()
    """The number of additional nodes like this one."""
    jobs: tuple[Job, ...] = ()
    quotas: tuple[QuotaSpec, ...] = ()
    pools: tuple[NodePool, ...] = ()


class JobOutlook(NamedTuple):
    """A job before and after."""

    key: JobKey
    runs_before: int
    runs: int
    waits_before: int
    waits: int
    preempted: int
    """Allocations that others would preempt."""
    lost: int
    """Allocations on lost nodes."""
    is_submitted: bool
    reason: str
    """The reason why some of it waits."""
    expected_start: int
    """Unix nanoseconds; 0: unknown."""

    @property
    def is_worse(self) -> bool:
        """Whether it runs less than before, is interrupted, or was submitted and waits."""
        return bool(self.preempted or self.runs < self.runs_before or (self.is_submitted and self.waits))


def what_if(state: Snapshot, scenario: Scenario, *, now: UnixNano, region: str) -> list[JobOutlook]:
    """The jobs that would change, were submitted, or wait; raises Invalid for a node that does not exist."""
    simulation = _WhatIf(state, now=now, region=region)
    simulation.run(scenario)
    return simulation.outlook(state, scenario)


def changed_cluster(state: Snapshot, scenario: Scenario) -> Snapshot:
    """The state with the nodes, quotas and node pools of a scenario; raises Invalid for a node that does not exist."""
    edit = state.edit(state.index + 1)
    for node_id in scenario.lost:
        node = state.nodes.get(node_id)
        if node is None:
            raise Invalid(f'node "{node_id}" does not exist, so it cannot be lost')
        edit.put(Tables.nodes, node_id, replace(node, status=status.NODE_DOWN))
    number = 0
    for node_id, count in scenario.added:
        like = state.nodes.get(node_id)
        if like is None:
            raise Invalid(f'node "{node_id}" does not exist, so no more like it can be added')
        if not 0 < count <= NODES_MAX:
            raise Invalid(f"{count} nodes cannot be added; 1 to {NODES_MAX} can")
        for _ in range(count):
            number += 1
            made = replace(
                like,
                id=f"ffffffff-0000-4000-8000-{number:012x}",
                name=f"{like.name}-what-if-{number}",
                status=status.NODE_READY,
                scheduling_eligibility=status.ELIGIBLE,
                drain_strategy=None,
            )
            edit.put(Tables.nodes, made.id, made)
    for pool in scenario.pools:
        edit.put(Tables.node_pools, pool.name, replace(pool, modify_index=state.index + 1))
    for spec in scenario.quotas:
        edit.put(Tables.quotas, spec.name, replace(spec, modify_index=state.index + 1))
    return edit.commit()


class _WhatIf:
    """A simulation of the next moment, and what it changes."""

    def __init__(self, state: Snapshot, *, now: UnixNano, region: str) -> None:
        self._cluster = ClusterSimulation(state, now=now, region=region)
        self._lost: Counter[JobKey] = Counter()

    def run(self, scenario: Scenario) -> None:
        """Apply the changes, and schedule what they concern and what waits until nothing more is placed."""
        cluster = self._cluster
        concerned: dict[JobKey, Trigger] = dict.fromkeys(cluster.drop_waiting(), status.TRIGGER_QUEUED_ALLOCS)
        cluster.state = changed_cluster(cluster.state, scenario)
        for alloc in cluster.state.allocs.values():
            if alloc.node_id in scenario.lost and is_using(alloc) and not is_server_terminal(alloc):
                key = (alloc.namespace, alloc.job_id)
                self._lost[key] += 1
                concerned[key] = status.TRIGGER_NODE_UPDATE
        for job in scenario.jobs:
            cluster.state, _ = lay_over(cluster.state, job, now=cluster.now, seed=SEED)
            concerned[job.key] = status.TRIGGER_JOB_REGISTER
        for key, trigger in sorted(concerned.items()):
            cluster.evaluate(key, trigger)
        cluster.settle()

    def outlook(self, before: Snapshot, scenario: Scenario) -> list[JobOutlook]:
        """The jobs that differ, were submitted, or wait."""
        after = self._cluster.state
        # Of a job that is not scheduled, no evaluation stops what was on lost nodes.
        ran, runs = _running(before), _running(after, lost=frozenset(scenario.lost))
        preempted = Counter((alloc.namespace, alloc.job_id) for alloc in self._cluster.preempted)
        submitted = {job.key for job in scenario.jobs}
        starts = self._starts()
        outlooks: list[JobOutlook] = []
        for key, job in sorted(after.jobs.items()):
            waits = _missing(after, job)
            one = JobOutlook(
                key=key,
                runs_before=ran[key],
                runs=runs[key],
                waits_before=_missing(before, before.jobs[key]) if key in before.jobs else 0,
                waits=waits,
                preempted=preempted[key],
                lost=self._lost[key],
                is_submitted=key in submitted,
                reason=self._cluster.reasons.get(key, "") if waits else "",
                expected_start=starts.get(key, 0),
            )
            if waits or one.is_worse or one.lost or one.is_submitted or one.runs != one.runs_before:
                outlooks.append(one)
        return outlooks

    def _starts(self) -> Mapping[JobKey, int]:
        starts: dict[JobKey, int] = {}
        state, now = self._cluster.state, self._cluster.now
        for pool, row in sorted(state.node_pools.items()):
            if row.batch_queue is not None:
                starts |= {key: forecast.likely for key, forecast in forecasts(state, pool, now).items()}
        return starts


def _running(state: Snapshot, *, lost: Set[str] = frozenset()) -> Counter[JobKey]:
    """The allocations of each job that run, or are about to, and are not to stop nor on a lost node."""
    allocs: Iterable[JobKey] = (
        (alloc.namespace, alloc.job_id)
        for alloc in state.allocs.values()
        if is_using(alloc) and not is_server_terminal(alloc) and alloc.node_id not in lost
    )
    return Counter(allocs)


def _missing(state: Snapshot, job: Job) -> int:
    """The number of a job's missing allocations; 0 for jobs that run on every suitable node."""
    if job.stop or job.is_template or job.type in PER_NODE_JOBS:
        return 0
    present: Counter[str] = Counter()
    for alloc in state.allocs_of_job(job.namespace, job.id):
        is_done = job.type == status.JOB_BATCH and alloc.client_status == status.CLIENT_COMPLETE
        if is_done or (is_using(alloc) and not is_server_terminal(alloc)):
            present[alloc.task_group] += 1
    return sum(max(0, group.count - present[group.name]) for group in job.task_groups)
