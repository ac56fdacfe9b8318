"""The server's gate, scheduler and log commands in virtual time: they start jobs when the simulator of `bench queue`
does, keep the promised start of the head, and leave no capacity idle that a waiting job may use."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from itertools import islice
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt import scheduler
from yurt.fsm import apply
from yurt.queue.backfill import BackfillRules
from yurt.sdk.value import Duration, UnixNano, replace
from yurt.server.queueing.gate import QueueGate
from yurt.server.queueing.reservations import Promise
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
from yurt.structs.node import NodeDevice, NodeDeviceResource
from yurt.structs.queueing.batch_queue import BatchQueue, DynamicPriorityQueue, FairShareQueue, FifoQueue
from yurt.structs.resources import RequestedDevice, Resources
from yurt.testing import factories
from yurt.testing.nightly import cases

from bench.queue.engine import Simulation
from bench.queue.policies import EASY, HALF_LIFE, FairShare, Fifo
from bench.queue.trace import SECOND, Job

TENANTS = ("vision", "speech", "robots")
POOL = "gpu"
NIGHTLY = 2_000
"""The cases of each property in a nightly run."""
BEGIN = int(factories.NOW)
FAIR = BatchQueue(fair_share=FairShareQueue(half_life=Duration(HALF_LIFE)))
FIFO = BatchQueue(fifo=FifoQueue())
DYNAMIC = BatchQueue(
    dynamic_priority=DynamicPriorityQueue(fairshare_weight=50, age_weight=10, max_age=Duration(3600 * SECOND))
)


def jobs_of(seed: int, number: int, gpus: int) -> list[Job]:
    """Jobs whose limits are between 1.05 and 6 times their run time."""
    draw, at, found = random.Random(seed), BEGIN, []
    for each in range(number):
        at += round(draw.expovariate(1 / 900)) * SECOND + SECOND
        duration = round(draw.choice((60, 600, 3600, 4 * 3600)) * draw.uniform(0.5, 1.5)) * SECOND
        limit = round(duration / SECOND * draw.uniform(1.05, 6)) * SECOND
        size = draw.choice((1, 1, 1, 2, 4, gpus))
        found.append(Job(each, at, duration, limit, size, draw.choice(TENANTS[: draw.choice((1, 2, 3))])))
    return found


class Running(NamedTuple):
    """A job that runs: its latest end and its node."""

    job: Job
    latest_end: int
    node: str


class Pool:
    """The leader's parts that decide, over the state that commands make."""

    def __init__(self, queue: BatchQueue, jobs: list[Job], *, gpus: int, nodes: int = 1, seed: int = 0) -> None:
        """`gpus` by node. With a seed, the gate decides again at random times before all released jobs are placed, and
        while the broker still has those that are."""
        self.state = Snapshot.empty()
        self.gate = QueueGate("global")
        self.gpus = gpus
        self.starts: dict[int, int] = {}
        self.waiting: dict[int, Job] = {}
        self.running: dict[int, Running] = {}
        self.promised: dict[int, int] = {}
        """The first promise of each job, made while no released job waits for its allocation."""
        self.promised_as_head: dict[int, int] = {}
        """The first that it got as the first job that does not fit."""
        self.bounds: dict[int, int] = {}
        """The latest start of each job, whatever nodes those before it take, at its first promise."""
        self.put_off: list[str] = []
        """Promises that became later although the jobs before them still wait."""
        self.idle: list[str] = []
        """Jobs that waited although they might have run."""
        self._jobs = {job.id: job for job in jobs}
        self._ends: list[tuple[int, int, str]] = []
        self._attempts = 0
        self._acknowledged_late: deque[Evaluation] = deque()
        """Evaluations whose plan is applied; the broker has them still."""
        self._unplaced: list[Evaluation] = []
        """Evaluations that found no capacity on any single node; they are tried again when something ends."""
        self._draw = random.Random(seed) if seed else None
        self._last: tuple[Promise, ...] = ()
        self._apply(UpsertNamespaces(namespaces=tuple(Namespace(name=name) for name in TENANTS)))
        self._apply(UpsertNodePools(pools=(NodePool(name=POOL, batch_queue=queue),), now=UnixNano(BEGIN)))
        for number in range(nodes):
            self._add_node(number)

    def play(self) -> Pool:
        """Run all jobs."""
        arrivals = deque(self._jobs.values())
        while arrivals or self._ends:
            now = min([end for end, *_ in self._ends[:1]] + [job.submit for job in islice(arrivals, 1)])
            while self._ends and self._ends[0][0] <= now:
                self._end(*heapq.heappop(self._ends))
            while arrivals and arrivals[0].submit <= now:
                self.arrive(arrivals.popleft())
            self.decide(now)
        return self

    def free(self, at: int | None = None) -> dict[str, int]:
        """The free GPUs of each node, now or by limits at a time."""
        found = dict.fromkeys(self.state.nodes.keys(), self.gpus)
        for one in self.running.values():
            found[one.node] -= one.job.gpus * (at is None or one.latest_end > at)
        return found

    def _add_node(self, number: int) -> None:
        cards = tuple(NodeDevice(id=f"gpu-{card:03}", healthy=True) for card in range(self.gpus))
        kind = NodeDeviceResource(vendor="nvidia", type="gpu", name="h100", instances=cards)
        made = factories.node(factories.number_id(number + 1, kind=1))
        resources = replace(made.node_resources, devices=(kind,))
        self._apply(RegisterNode(node=replace(made, node_pool=POOL, node_resources=resources)))

    def _apply(self, command: AnyCommand) -> None:
        step = apply(self.state, command, index=self.state.index + 1)
        self.state = step.state
        self.gate.follow(step.changes)

    def arrive(self, job: Job) -> None:
        """Register a job; its evaluation waits at the gate."""
        self.waiting[job.id] = job
        made = factories.job(str(job.id), type="batch", namespace=job.tenant, node_pool=POOL)
        asked = Resources(cpu=1, memory_mb=1, devices=(RequestedDevice(name="nvidia/gpu", count=job.gpus),))
        task = replace(made.task_groups[0].tasks[0], resources=asked)
        group = replace(made.task_groups[0], tasks=(task,), count=1, max_run_duration=Duration(job.limit))
        self._apply(RegisterJob(job=replace(made, task_groups=(group,), submit_time=UnixNano(job.submit))))
        stored = self.state.jobs[job.tenant, str(job.id)]
        evaluation = Evaluation(
            id=f"eval-{job.id}",
            namespace=job.tenant,
            job_id=stored.id,
            type="batch",
            triggered_by="job-register",
            status="pending",
            create_time=UnixNano(job.submit),
            job_modify_index=stored.job_modify_index,
        )
        self._apply(UpsertEvaluations(evaluations=(evaluation,)))
        assert self.gate.takes(self.state, self.state.evals[evaluation.id])

    def _end(self, now: int, job_id: int, alloc_id: str) -> None:
        del self.running[job_id]
        row = self.state.allocs[alloc_id]
        update = AllocUpdate(id=row.id, node_id=row.node_id, client_status="complete")
        self._apply(UpdateAllocsFromClient(updates=(update,), now=UnixNano(now)))
        for evaluation in self._unplaced:
            assert self.gate.takes(self.state, evaluation)
        self._unplaced.clear()

    def decide(self, now: int) -> None:
        """Let the gate decide and place what it releases, until nothing more starts."""
        released: deque[Evaluation] = deque()
        while True:
            is_settled = not released
            if self._acknowledged_late and (is_settled or self._coin()):
                self.gate.forget(self._acknowledged_late.popleft())
                continue
            if is_settled or self._coin():
                found = self.gate.look(self.state, now)
                released.extend(found)
                if is_settled and not found:
                    break
            if released:
                self._place(released.popleft(), now)
        self._note_promises(self.gate.promises.get(POOL, ()))
        self._note_idle(now)

    def _coin(self) -> bool:
        return self._draw is not None and self._draw.random() < 0.5

    def _place(self, evaluation: Evaluation, now: int) -> None:
        self._attempts += 1
        plan = scheduler.attempt(self.state, evaluation, now=UnixNano(now), seed=self._attempts).plan
        self._apply(ApplyPlan(plan=plan))
        rows = tuple(self.state.allocs.each_where("job", (evaluation.namespace, evaluation.job_id)))
        if not rows:
            self.gate.done(evaluation.id)
            self.gate.note_blocked(self.state, evaluation)
            self._unplaced.append(evaluation)
            return
        if self._draw is None or self._coin():
            self.gate.forget(evaluation)
        else:
            self._acknowledged_late.append(evaluation)
        (alloc,) = rows
        job = self.waiting.pop(int(evaluation.job_id))
        self.starts[job.id] = now
        self.running[job.id] = Running(job, now + job.limit, alloc.node_id)
        heapq.heappush(self._ends, (now + job.duration, job.id, alloc.id))

    def _note_promises(self, promises: tuple[Promise, ...]) -> None:
        for before, promise in zip(self._last, promises, strict=False):
            if before.key != promise.key:
                break
            if promise.start > before.start:
                self.put_off.append(f"job {promise.key[1]} from {before.start} to {promise.start}")
        self._last = promises
        self._note_bounds(promises)
        for position, promise in enumerate(promises):
            if promise.start and not position:
                self.promised_as_head.setdefault(int(promise.key[1]), promise.start)
            if promise.start:
                self.promised.setdefault(int(promise.key[1]), promise.start)

    def _note_bounds(self, promises: tuple[Promise, ...]) -> None:
        ended = 0
        for promise in itertools.takewhile(lambda one: one.start, promises):
            bound = max(promise.start, ended)
            self.bounds.setdefault(int(promise.key[1]), bound)
            ended = max(ended, bound + self._jobs[int(promise.key[1])].limit)

    def _note_idle(self, now: int) -> None:
        """Note jobs that fit and delay none of those that do not fit."""
        free = max(self.free().values())
        heads = [job for job in self.waiting.values() if job.gpus > free]
        self.idle += [
            f"{job} at {now}"
            for job in self.waiting.values()
            if job.gpus <= free and not any(self._delays(job, head, now) for head in heads)
        ]

    def _delays(self, job: Job, head: Job, now: int) -> bool:
        """Whether a job might delay the earliest start of one that does not fit, on whatever node it runs."""
        times = sorted(one.latest_end for one in self.running.values())
        start = next(at for at in times if max(self.free(at).values()) >= head.gpus)
        rows = [free for free in self.free(start).values() if free >= head.gpus]
        return now + job.limit > start and min(rows) < head.gpus + job.gpus


@pytest.mark.parametrize("placed_late", [0, 1, 2])
@pytest.mark.parametrize("seed", range(cases(6, 100)))
def test_fair_share_starts_the_jobs_of_a_trace_when_the_simulator_does(seed: int, placed_late: int) -> None:
    jobs = jobs_of(seed, 100, 8)
    simulated = Simulation(jobs, 8, FairShare(BackfillRules(reservations=1, depth=500))).run().starts
    assert sum(simulated[job.id] > job.submit for job in jobs) > 20
    assert Pool(FAIR, jobs, gpus=8, seed=placed_late).play().starts == simulated


@pytest.mark.parametrize("placed_late", [0, 1])
@pytest.mark.parametrize("seed", range(cases(4, 40)))
def test_fifo_starts_them_when_easy_backfill_does_also_with_jobs_in_flight(seed: int, placed_late: int) -> None:
    jobs = jobs_of(seed, 120, 8)
    simulated = Simulation(jobs, 8, Fifo("EASY", EASY)).run().starts
    assert Pool(FIFO, jobs, gpus=8, seed=placed_late).play().starts == simulated


@st.composite
def job_lists(draw: st.DrawFn, gpus: int, late_s: int = 0) -> list[Job]:
    """Jobs that end within their limits, or at most some time after them; most come while others wait."""
    at, found = BEGIN, []
    for number in range(draw(st.integers(4, 24))):
        at += draw(st.sampled_from((0, 1, 60, 900))) * SECOND
        limit = draw(st.sampled_from((60, 300, 1000, 3600, 9000)))
        duration = draw(st.integers(1, limit + late_s))
        size = draw(st.sampled_from((1, 1, 2, max(1, gpus - 1), gpus)))
        found.append(Job(number, at, duration * SECOND, limit * SECOND, size, draw(st.sampled_from(TENANTS))))
    return found


SHAPES = st.sampled_from([(8, 1), (4, 1), (4, 2), (2, 3)])
"""GPUs by node, and nodes."""


@settings(max_examples=cases(60, NIGHTLY), deadline=None)
@given(job_lists(4), st.sampled_from([FIFO, FAIR, DYNAMIC]), st.integers(1, 50))
def test_the_order_does_not_depend_on_when_released_jobs_are_placed(
    jobs: list[Job], queue: BatchQueue, seed: int
) -> None:
    assert Pool(queue, jobs, gpus=4, seed=seed).play().starts == Pool(queue, jobs, gpus=4).play().starts


@settings(max_examples=cases(40, NIGHTLY), deadline=None)
@given(st.data(), SHAPES, st.integers(0, 3))
def test_the_head_starts_no_later_than_its_first_promise(
    data: st.DataObject, shape: tuple[int, int], seed: int
) -> None:
    jobs = data.draw(job_lists(shape[0]))
    pool = Pool(FIFO, jobs, gpus=shape[0], nodes=shape[1], seed=seed).play()
    assert len(pool.starts) == len(jobs)
    assert {job: pool.starts[job] for job, by in pool.promised_as_head.items() if pool.starts[job] > by} == {}


@settings(max_examples=cases(60, NIGHTLY), deadline=None)
@given(job_lists(4), st.integers(2, 5), st.integers(0, 3))
def test_each_reserved_job_starts_no_later_than_its_first_promise(
    jobs: list[Job], reservations: int, seed: int
) -> None:
    pool = Pool(replace(FIFO, reservations=reservations), jobs, gpus=4, seed=seed).play()
    assert {job: pool.starts[job] for job, by in pool.promised.items() if pool.starts[job] > by} == {}


@settings(max_examples=cases(60, NIGHTLY), deadline=None)
@given(job_lists(4), st.integers(2, 5), st.integers(2, 3))
def test_backfill_puts_off_none_of_the_reserved_jobs_on_several_nodes(
    jobs: list[Job], reservations: int, nodes: int
) -> None:
    """Jobs run to their limits: what ends early may bring a reserved job to another node than planned."""
    whole = [job._replace(duration=job.limit) for job in jobs]
    assert Pool(replace(FIFO, reservations=reservations), whole, gpus=4, nodes=nodes).play().put_off == []


def test_a_reserved_job_that_starts_early_on_another_node_puts_off_the_next_one_by_at_most_its_limit() -> None:
    """One node has 3 GPUs in use until hour 20, which end at hour 5; the other 2 for long and 2 until hour 10.

    The head, which was planned for the second node, takes 2 of the first. The last job fits and may not pass them.
    """
    rows = [(3, 20, 5), (2, 1000, 1000), (2, 10, 10), (2, 100, 100), (4, 1, 1), (1, 500, 1)]
    jobs = [
        Job(number, BEGIN + number * SECOND, ran * 3600 * SECOND, limit * 3600 * SECOND, gpus, TENANTS[0])
        for number, (gpus, limit, ran) in enumerate(rows)
    ]
    pool = Pool(replace(FIFO, reservations=2), jobs, gpus=4, nodes=2).play()
    head, second = jobs[3:5]
    hours = {job.id: round((pool.starts[job.id] - BEGIN) / SECOND / 3600) for job in (head, second)}
    promised = {job: round((at - BEGIN) / SECOND / 3600) for job, at in pool.promised.items()}
    assert (promised[head.id], promised[second.id]) == (10, 20)
    assert hours == {head.id: 5, second.id: 105}, "the second is put off although nothing behind it passed"
    assert pool.starts[second.id] <= pool.bounds[second.id] == pool.promised[head.id] + head.limit


@settings(max_examples=cases(40, NIGHTLY), deadline=None)
@given(st.data(), SHAPES, st.integers(2, 5), st.integers(0, 3))
def test_a_reserved_job_on_several_nodes_is_put_off_at_most_by_the_limits_of_those_before_it(
    data: st.DataObject, shape: tuple[int, int], reservations: int, seed: int
) -> None:
    jobs = data.draw(job_lists(shape[0]))
    queue = replace(FIFO, reservations=reservations)
    pool = Pool(queue, jobs, gpus=shape[0], nodes=shape[1], seed=seed).play()
    assert {job: pool.starts[job] for job, by in pool.bounds.items() if pool.starts[job] > by} == {}


@settings(max_examples=cases(60, NIGHTLY), deadline=None)
@given(job_lists(8), st.integers(1, 5), st.booleans())
def test_several_reserved_jobs_start_when_the_simulator_starts_them(
    jobs: list[Job], reservations: int, is_fair: bool
) -> None:
    rules = BackfillRules(reservations=reservations, depth=500)
    simulated = Simulation(jobs, 8, FairShare(rules) if is_fair else Fifo("backfill", rules)).run().starts
    queue = replace(FAIR if is_fair else FIFO, reservations=reservations)
    assert Pool(queue, jobs, gpus=8, seed=reservations).play().starts == simulated


@settings(max_examples=cases(40, NIGHTLY), deadline=None)
@given(st.data(), SHAPES, st.sampled_from([FIFO, FAIR]), st.integers(0, 3))
def test_no_job_waits_while_it_fits_and_delays_nobody(
    data: st.DataObject, shape: tuple[int, int], queue: BatchQueue, seed: int
) -> None:
    jobs = data.draw(job_lists(shape[0]))
    assert Pool(queue, jobs, gpus=shape[0], nodes=shape[1], seed=seed).play().idle == []


LATE_S: Final = 400


def test_what_is_late_to_end_lets_nothing_pass_the_head() -> None:
    """Two allocations are overdue, and the head needs the first of them only: the other still holds its card."""
    rows = [(0, 150, 100, 2), (0, 500, 110, 1), (50, 100, 1000, 3), (120, 50, 1000, 1)]
    jobs = [
        Job(number, BEGIN + at * SECOND, duration * SECOND, limit * SECOND, gpus, TENANTS[0])
        for number, (at, duration, limit, gpus) in enumerate(rows)
    ]
    starts = Pool(FIFO, jobs, gpus=4).play().starts
    assert [(starts[number] - BEGIN) // SECOND for number in range(4)] == [0, 0, 150, 250]
    assert Simulation(jobs, 4, Fifo("EASY", EASY)).run().starts == starts


@settings(max_examples=cases(60, NIGHTLY), deadline=None)
@given(st.data(), SHAPES, st.integers(1, 4), st.integers(0, 3))
def test_the_head_starts_no_later_than_promised_by_more_than_jobs_exceed_their_limits(
    data: st.DataObject, shape: tuple[int, int], reservations: int, seed: int
) -> None:
    jobs = data.draw(job_lists(shape[0], LATE_S))
    pool = Pool(replace(FIFO, reservations=reservations), jobs, gpus=shape[0], nodes=shape[1], seed=seed).play()
    late = {job: pool.starts[job] - by for job, by in pool.promised_as_head.items()}
    assert {job: by for job, by in late.items() if by > LATE_S * SECOND} == {}


@settings(max_examples=cases(60, NIGHTLY), deadline=None)
@given(job_lists(8, LATE_S), st.integers(1, 5), st.booleans())
def test_jobs_start_when_the_simulator_starts_them_also_while_others_exceed_their_limits(
    jobs: list[Job], reservations: int, is_fair: bool
) -> None:
    rules = BackfillRules(reservations=reservations, depth=500)
    simulated = Simulation(jobs, 8, FairShare(rules) if is_fair else Fifo("backfill", rules)).run().starts
    queue = replace(FAIR if is_fair else FIFO, reservations=reservations)
    assert Pool(queue, jobs, gpus=8, seed=reservations).play().starts == simulated
