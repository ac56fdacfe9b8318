"""Jobs with times, played to the queue's gate, the scheduler and the log commands: when each job starts."""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple

from yurt import scheduler
from yurt.fsm import apply
from yurt.sdk.value import Duration, UnixNano, replace, seconds
from yurt.server.queueing.gate import QueueGate
from yurt.state import Snapshot
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.commands import (
    AllocUpdate,
    AnyCommand,
    ApplyPlan,
    RegisterJob,
    RegisterNode,
    UpdateAllocsFromClient,
    UpsertEvaluations,
    UpsertNamespaces,
    UpsertNodePools,
)
from yurt.structs.evaluation import Evaluation
from yurt.structs.node import Node, NodeDevice, NodeDeviceResource
from yurt.structs.queueing.batch_queue import BatchQueue, FairShareQueue
from yurt.structs.resources import RequestedDevice, Resources
from yurt.testing import factories

TENANTS: Final = ("vision", "speech", "robots")
POOL: Final = "gpu"
BEGIN: Final = int(factories.NOW)
HOUR: Final = seconds(3600)


class Job(NamedTuple):
    """A submission of a job with one allocation; times in nanoseconds."""

    id: int
    submit: int
    duration: int
    limit: int
    gpus: int
    tenant: str = "vision"


def job(number: int, minutes: int, hours: int, gpus: int) -> Job:
    """A job that is submitted after some minutes and runs as long as it declares."""
    return Job(number, BEGIN + minutes * seconds(60), hours * HOUR, hours * HOUR, gpus)


class PlayedQueue:
    """The leader's parts that decide, over the state that commands make."""

    def __init__(self, gpus: int) -> None:
        self.state = Snapshot.empty()
        self.gate = QueueGate("global")
        self.starts: dict[int, int] = {}
        self._ends: list[tuple[int, int, str]] = []
        self._seed = 0
        cards = tuple(NodeDevice(id=f"gpu-{number:03}", healthy=True) for number in range(gpus))
        kind = NodeDeviceResource(vendor="nvidia", type="gpu", name="h100", instances=cards)
        made = factories.node(factories.number_id(1, kind=1))
        resources = replace(made.node_resources, devices=(kind,))
        node: Node = replace(made, node_pool=POOL, node_resources=resources)
        queue = BatchQueue(fair_share=FairShareQueue(half_life=Duration(24 * HOUR)))
        self._apply(UpsertNamespaces(namespaces=tuple(Namespace(name=name) for name in TENANTS)))
        self._apply(UpsertNodePools(pools=(NodePool(name=POOL, batch_queue=queue),), now=UnixNano(BEGIN)))
        self._apply(RegisterNode(node=node))

    def run(self, jobs: list[Job]) -> dict[int, int]:
        """Play the jobs; the time of each start."""
        at = 0
        while at < len(jobs) or self._ends:
            times = [jobs[at].submit] if at < len(jobs) else []
            times += [self._ends[0][0]] if self._ends else []
            now = min(times)
            while self._ends and self._ends[0][0] <= now:
                self._end(heapq.heappop(self._ends)[2], now)
            while at < len(jobs) and jobs[at].submit <= now:
                self._arrive(jobs[at])
                at += 1
            self._decide({job.id: job for job in jobs}, now)
        return self.starts

    def _apply(self, command: AnyCommand) -> None:
        step = apply(self.state, command, index=self.state.index + 1)
        self.state = step.state
        self.gate.follow(step.changes)

    def _arrive(self, job: Job) -> None:
        made = factories.job(str(job.id), type="batch", namespace=job.tenant, node_pool=POOL)
        asked = Resources(cpu=1, memory_mb=1, devices=(RequestedDevice(name="nvidia/gpu", count=job.gpus),))
        task = replace(made.task_groups[0].tasks[0], resources=asked)
        group = replace(made.task_groups[0], tasks=(task,), count=1, max_run_duration=Duration(job.limit))
        self._apply(RegisterJob(job=replace(made, task_groups=(group,), submit_time=UnixNano(job.submit))))
        stored = self.state.jobs[job.tenant, str(job.id)]
        evaluation = Evaluation(
            id=f"eval-{job.id}", namespace=job.tenant, job_id=stored.id, type="batch", triggered_by="job-register",
            status="pending", create_time=UnixNano(job.submit), job_modify_index=stored.job_modify_index,
        )  # fmt: skip
        self._apply(UpsertEvaluations(evaluations=(evaluation,)))
        found = self.state.evals[evaluation.id]
        assert self.gate.takes(self.state, found)

    def _end(self, alloc_id: str, now: int) -> None:
        row = self.state.allocs[alloc_id]
        update = AllocUpdate(id=row.id, node_id=row.node_id, client_status="complete")
        self._apply(UpdateAllocsFromClient(updates=(update,), now=UnixNano(now)))

    def _decide(self, jobs: dict[int, Job], now: int) -> None:
        while released := self.gate.look(self.state, now):
            for evaluation in released:
                self._seed += 1
                plan = scheduler.attempt(self.state, evaluation, now=UnixNano(now), seed=self._seed).plan
                self.gate.forget(evaluation)
                self._apply(ApplyPlan(plan=plan))
                (alloc,) = self.state.allocs.each_where("job", (evaluation.namespace, evaluation.job_id))
                job = jobs[int(evaluation.job_id)]
                self.starts[job.id] = now
                heapq.heappush(self._ends, (now + job.duration, job.id, alloc.id))


def test_a_long_job_gets_the_cards_of_a_node_that_a_reservation_leaves_free() -> None:
    """Of eight cards six are taken for an hour, then four by the reservation: one for ten hours is in no one's way."""
    jobs = [job(0, 0, 1, 6), job(1, 5, 2, 4), job(2, 6, 10, 1)]
    starts = PlayedQueue(8).run(jobs)

    assert starts[2] == jobs[2].submit
    assert starts[1] == jobs[0].submit + jobs[0].duration


def test_long_jobs_together_leave_a_reservation_its_cards() -> None:
    """Five cards are promised of eight: of two long jobs with two cards each, only one may begin before."""
    jobs = [job(0, 0, 1, 4), job(1, 5, 2, 5), job(2, 6, 10, 2), job(3, 7, 10, 2)]
    starts = PlayedQueue(8).run(jobs)

    assert starts[2] == jobs[2].submit
    assert starts[1] == jobs[0].submit + jobs[0].duration
    assert starts[3] > starts[1]
