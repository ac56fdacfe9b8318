"""Plays a trace of submissions over a cluster in virtual time: the real scheduler, the real queue, no clients.

The trace replaces the batch work of the state: its batch jobs, their allocations and the usage of its queues are left
out; services and system jobs keep their allocations, and the capacity is what these leave.

Time jumps from one event to the next: a submission, or the end of a job after its run time or at its limit. At each the
cluster settles as it would on a leader. A preempted job starts again from the beginning, as without checkpoints.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from yurt.queue.accuracy import Summary
from yurt.queue.played_trace import ServiceTally, TraceJob
from yurt.queue.waiting_job import JobKey
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano
from yurt.server.queueing.forecasts import Forecasts
from yurt.server.queueing.report import forecasts, places
from yurt.server.simulation.cluster_simulation import ClusterSimulation
from yurt.server.simulation.pool_units import NodeAmounts, PoolUnits, Split, pool_units
from yurt.state import Changes, Snapshot, Tables
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import Namespace
from yurt.structs.commands import AllocUpdate, RegisterJob, UpdateAllocsFromClient
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.policies import Gang
from yurt.structs.predicates import is_ready
from yurt.structs.resources import EphemeralDisk, RequestedDevice, Resources
from yurt.structs.task import Task

FORECAST_INTERVAL: Final = 30 * NANOSECONDS
"""The least time between forecasts, as on a leader."""
IDLE_WAKES_MAX: Final = 1_000
"""The number of delayed evaluations that are waited for when nothing runs and no submission follows."""
USER_KEY: Final = "user"
_BATCH: Final = (status.JOB_BATCH, status.JOB_SYSBATCH)


class Submission(NamedTuple):
    """A job of a trace; `job.size` counts it in the unit of the whole trace, amounts are the job's sum.

    A size of 0 is a job that asks for nothing of that unit: it takes CPU and memory only.
    """

    job: TraceJob
    gpus: int = 0
    cores: int = 0
    cpu: int = 0
    """MHz."""
    memory_mb: int = 0
    priority: int = 50
    user: str = ""
    device: str = "gpu"


class TracePlan(NamedTuple):
    """What is played, and where."""

    submissions: tuple[Submission, ...]
    """In the order of their submission."""
    unit: str
    """gpu, core or MHz: what sizes count."""
    pool: str
    region: str
    has_forecasts: bool = False
    """Whether the starts of waiting jobs are forecast, to measure the error."""


class TraceOutcome(NamedTuple):
    """What became of the submissions, by their id; times in unix nanoseconds of the virtual time."""

    starts: Mapping[int, int]
    """The first start of each job that started."""
    ends: Mapping[int, int]
    cut: int
    """Jobs that were ended at their limit."""
    unplaced: Mapping[int, str]
    """Why jobs that never started wait."""
    preemptions: int
    lost_s: float
    """Unit-seconds of preempted runs."""
    capacity: int
    """The units that jobs can have."""
    kept: int
    """The pool's other units, which services and system jobs keep."""
    rounded: int
    """Jobs whose size has no useful divisor, and whose allocations ask for a little more than the job."""
    first: int
    last: int
    tally: ServiceTally
    attempts: int
    """Evaluations that the scheduler processed."""
    accuracy: Summary | None


class _TraceRun:
    """A submission while it is played."""

    __slots__ = ("allocs", "number", "since", "split", "submission", "units")

    def __init__(self, submission: Submission, split: Split) -> None:
        self.submission = submission
        self.split = split
        self.units = -(-submission.job.size // split.parts) * split.parts
        """What it takes: its size, or a little more."""
        self.allocs: dict[str, str] = {}
        """The allocations that run, with their nodes."""
        self.number = 0
        """Of its runs; those before the last one were preempted."""
        self.since = 0


def play_trace(state: Snapshot, plan: TracePlan, *, now: UnixNano) -> TraceOutcome:
    """Play a trace; its first submission is at `now`. Raises Invalid for a pool without nodes or without the unit."""
    return _TracePlay(state, plan, now=now).play()


class _PoolUse:
    """What the jobs of a trace use, and what waits, over time."""

    def __init__(self, capacity: int, now: int) -> None:
        self.capacity = capacity
        self.tally = ServiceTally(now)
        self._used: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()
        """Of the jobs that wait; 0 is a job without units, which no free unit helps."""

    def advance(self, now: int) -> None:
        """Count what was so until now."""
        used = sum(self._used.values())
        self.tally.advance(
            now,
            used=used,
            free=max(0, self.capacity - used),
            used_by_tenant=self._used,
            waiting=self._waiting,
            smallest=min((size for size, number in self._sizes.items() if size and number > 0), default=0),
        )

    def wait(self, job: TraceJob, number: int = 1) -> None:
        """Count a waiting job; -1 removes one."""
        self._waiting[job.tenant] += number if job.size else 0
        self._sizes[job.size] += number

    def hold(self, run: _TraceRun, number: int = 1) -> None:
        """Count the units of a running job; -1 removes one."""
        self._used[run.submission.job.tenant] += number * run.units

    @property
    def waits(self) -> bool:
        """Whether any job waits."""
        return any(self._sizes.values())


class _TraceForecasts:
    """The forecasts of waiting jobs and their errors: made as on a leader, while a job waits that has none."""

    def __init__(self, pool: str, region: str) -> None:
        self.has_new = False
        """Whether a job was submitted since the last forecast."""
        self._pool, self._region = pool, region
        self._forecasts = Forecasts()
        self._next = 0

    def follow(self, changes: Changes) -> None:
        """Note starts."""
        self._forecasts.follow(changes)

    def note(self, cluster: ClusterSimulation) -> None:
        """Forecast all starts, if it is time to."""
        if self.has_new and cluster.now >= self._next:
            self.has_new = False
            self._next = cluster.now + FORECAST_INTERVAL
            self._forecasts.note(self._pool, forecasts(cluster.state, self._pool, cluster.now, region=self._region))

    def summary(self) -> Summary | None:
        """The errors; None when no start was forecast."""
        return self._forecasts.summary(self._pool)


class _TracePlay:
    def __init__(self, state: Snapshot, plan: TracePlan, *, now: UnixNano) -> None:
        self._plan = plan
        nodes = [node for node in state.nodes.values() if node.node_pool == plan.pool and is_ready(node)]
        if not nodes:
            raise Invalid(f'the node pool "{plan.pool}" has no ready node')
        prepared = _without_batch_work(state, {one.job.tenant for one in plan.submissions})
        units = _units_for(plan, pool_units(prepared, nodes))
        self._jobs = _TraceJobs(plan, units, _driver(nodes), _free_prefix(prepared))
        self._use = _PoolUse(units.capacity(plan.unit), now)
        self._shift = now - plan.submissions[0].job.submit if plan.submissions else 0
        self._first = now
        self._runs: dict[JobKey, _TraceRun] = {}
        self._ends: list[tuple[int, int, JobKey, int]] = []
        self._evicted: list[Allocation] = []
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self._cut = self._preemptions = 0
        self._lost_s = 0.0
        self._forecasts = _TraceForecasts(plan.pool, plan.region) if plan.has_forecasts else None
        self._cluster = ClusterSimulation(prepared, now=now, region=plan.region, follow=self._follow)

    def play(self) -> TraceOutcome:
        """Play the whole trace."""
        coming = iter(self._plan.submissions)
        following = next(coming, None)
        idle = 0
        while times := self._next_times(following, idle):
            idle = 0 if following is not None or self._ends else idle + 1
            self._advance(max(self._cluster.now, min(times)))
            self._end_due()
            while following is not None and following.job.submit + self._shift <= self._cluster.now:
                self._submit(following)
                following = next(coming, None)
            self._settle()
            if self._forecasts is not None and self._use.waits:
                self._forecasts.note(self._cluster)
        return self._outcome()

    def _next_times(self, following: Submission | None, idle: int) -> list[int]:
        """The times of the next events; none once all is played.

        A delayed evaluation counts while a job waits: it may be what starts it. When nothing else comes any more, the
        number of these, `idle`, is bounded, since nothing says that they end.
        """
        times = [self._ends[0][0]] if self._ends else []
        times += [following.job.submit + self._shift] if following is not None else []
        wake = self._cluster.next_wake if self._use.waits and idle < IDLE_WAKES_MAX else 0
        return [*times, wake] if wake else times

    def _advance(self, now: int) -> None:
        self._use.advance(now)
        self._cluster.now = UnixNano(now)

    def _settle(self) -> None:
        """Schedule, end what was preempted, and schedule again with the capacity that this frees."""
        self._cluster.settle()
        while self._evicted:
            ended, self._evicted = self._evicted, []
            self._complete((alloc.id, alloc.node_id) for alloc in ended)
            self._cluster.settle()

    def _submit(self, submission: Submission) -> None:
        job, split = self._jobs.job_of(submission, self._cluster.now)
        self._runs[job.key] = _TraceRun(submission, split)
        self._use.wait(submission.job)
        if self._forecasts is not None:
            self._forecasts.has_new = True
        self._cluster.apply(RegisterJob(job=job))
        self._cluster.evaluate(job.key, status.TRIGGER_JOB_REGISTER)

    def _end_due(self) -> None:
        """End the jobs whose time has come, in one report."""
        ended: list[tuple[str, str]] = []
        while self._ends and self._ends[0][0] <= self._cluster.now:
            _, _, key, number = heapq.heappop(self._ends)
            run = self._runs[key]
            if run.number != number or not run.allocs:
                continue
            ended.extend(run.allocs.items())
            job = run.submission.job
            self._use.hold(run, -1)
            self.ends[job.id] = self._cluster.now - self._shift
            self._cut += 0 < job.limit < job.duration
            run.allocs = {}
        if ended:
            self._complete(ended)

    def _complete(self, allocs: Iterable[tuple[str, str]]) -> None:
        updates = tuple(
            AllocUpdate(id=alloc_id, node_id=node_id, client_status=status.CLIENT_COMPLETE)
            for alloc_id, node_id in allocs
        )
        self._cluster.apply(UpdateAllocsFromClient(updates=updates, now=self._cluster.now))

    def _follow(self, changes: Changes) -> None:
        if self._forecasts is not None:
            self._forecasts.follow(changes)
        for change in changes:
            if change.table != "allocs" or change.after is None:
                continue
            run = self._runs.get((change.after.namespace, change.after.job_id))
            if run is None:
                continue
            if change.before is None:
                self._placed(run, change.after)
            elif change.after.id in run.allocs and change.after.desired_status != status.DESIRED_RUN:
                self._preempted(run, change.after)

    def _placed(self, run: _TraceRun, alloc: Allocation) -> None:
        job = run.submission.job
        if not run.allocs:
            run.number += 1
            run.since = self._cluster.now
            self._use.wait(job, -1)
            self._use.hold(run)
            self.starts.setdefault(job.id, self._cluster.now - self._shift)
            heapq.heappush(
                self._ends, (self._cluster.now + job.lasts, job.id, (alloc.namespace, alloc.job_id), run.number)
            )
        run.allocs[alloc.id] = alloc.node_id

    def _preempted(self, run: _TraceRun, alloc: Allocation) -> None:
        job = run.submission.job
        del run.allocs[alloc.id]
        self._evicted.append(alloc)
        if not run.allocs:
            run.number += 1
            self._preemptions += 1
            self._lost_s += (self._cluster.now - run.since) / NANOSECONDS * run.units
            self._use.hold(run, -1)
            self._use.wait(job)

    def _unplaced(self) -> dict[int, str]:
        """Why jobs never started."""
        missing = {key: run for key, run in self._runs.items() if run.submission.job.id not in self.starts}
        queued: dict[JobKey, str] = {}
        if any(not self._cluster.reasons.get(key, "") for key in missing):
            rows = places(self._cluster.state, self._plan.pool, self._cluster.now, region=self._plan.region)
            queued = {row.entry.waiting.key: row.reason for row in rows}
        return {
            run.submission.job.id: self._too_large(run)
            or self._cluster.reasons.get(key, "")
            or queued.get(key, "")
            or "it waits in the queue"
            for key, run in missing.items()
        }

    def _too_large(self, run: _TraceRun) -> str:
        """Why no end of other jobs could start this one; empty where one could."""
        unit, size = self._plan.unit, run.units
        if size > self._use.capacity:
            return f"it asks for more {_plural(unit)} than the {self._use.capacity} that jobs can have"
        return run.split.problem

    def _outcome(self) -> TraceOutcome:
        unplaced = self._unplaced()
        return TraceOutcome(
            starts=self.starts,
            ends=self.ends,
            cut=self._cut,
            unplaced=unplaced,
            preemptions=self._preemptions,
            lost_s=self._lost_s,
            capacity=self._use.capacity,
            kept=self._jobs.units.reserved.of(self._plan.unit),
            rounded=sum(run.split.is_rounded for run in self._runs.values()),
            first=self._first,
            last=self._cluster.now,
            tally=self._use.tally,
            attempts=self._cluster.attempts,
            accuracy=None if self._forecasts is None else self._forecasts.summary(),
        )


def _units_for(plan: TracePlan, units: PoolUnits) -> PoolUnits:
    """The units of the pool; raises Invalid where jobs of the trace could have none."""
    if units.capacity(plan.unit):
        return units
    if units.reserved.of(plan.unit):
        keep = f'services and system jobs keep all {_plural(plan.unit)} of the pool "{plan.pool}"'
        raise Invalid(f"{keep}, which the trace asks for")
    raise Invalid(f'the nodes of the pool "{plan.pool}" have no {_plural(plan.unit)}, which the trace asks for')


def _plural(unit: str) -> str:
    return {"gpu": "GPUs", "core": "cores"}.get(unit, unit)


def _required(submission: Submission) -> NodeAmounts:
    """What a job asks for; who reserves cores asks for no MHz in addition."""
    cpu = 0 if submission.cores else submission.cpu
    return NodeAmounts(submission.gpus, submission.cores, cpu, submission.memory_mb)


def _free_prefix(state: Snapshot) -> str:
    """The beginning of the ids of played jobs, which no job of the state has."""
    ids = {job.id for job in state.jobs.values()}
    number = 1
    while True:
        prefix = "trace" if number == 1 else f"trace-{number}"
        if not any(each.startswith(f"{prefix}-") for each in ids):
            return prefix
        number += 1


def _driver(nodes: Sequence[Node]) -> str:
    """The driver that most nodes have, so that drivers exclude as few nodes as possible."""
    counts = Counter(name for node in nodes for name, driver in sorted(node.drivers.items()) if driver.healthy)
    if not counts:
        raise Invalid("no ready node has a healthy driver")
    return min(counts, key=lambda name: (-counts[name], name))


def _without_batch_work(state: Snapshot, namespaces: set[str]) -> Snapshot:
    """The state without its batch jobs, and with these namespaces."""
    edit = state.edit(state.index + 1)
    removed = {key for key, job in state.jobs.items() if job.type in _BATCH}
    for alloc in state.allocs.values():
        if (alloc.namespace, alloc.job_id) in removed or (alloc.job is not None and alloc.job.type in _BATCH):
            edit.delete(Tables.allocs, alloc.id)
    for evaluation in state.evals.values():
        if (evaluation.namespace, evaluation.job_id) in removed:
            edit.delete(Tables.evals, evaluation.id)
    for usage_key in list(state.queue_usages.keys()):
        edit.delete(Tables.queue_usages, usage_key)
    for key in removed:
        edit.delete(Tables.jobs, key)
    for name in sorted(namespaces):
        if name not in state.namespaces:
            edit.put(Tables.namespaces, name, Namespace(name=name))
    return edit.commit()


class _TraceJobs(NamedTuple):
    """Makes the jobs of a trace."""

    plan: TracePlan
    units: PoolUnits
    driver: str
    prefix: str
    """The beginning of their ids."""

    def job_of(self, submission: Submission, now: UnixNano) -> tuple[Job, Split]:
        """A batch job of equal allocations, a gang if no node could hold all of it."""
        traced, plan = submission.job, self.plan
        split = self.units.split(_required(submission), traced.size)
        count, name = split.parts, f"{self.prefix}-{traced.id}"
        cards, cores = -(-submission.gpus // count), -(-submission.cores // count)
        resources = Resources(
            cpu=0 if cores else -(-submission.cpu // count),
            cores=cores,
            memory_mb=-(-submission.memory_mb // count),
            devices=(RequestedDevice(name=submission.device, count=cards),) if cards else (),
        )
        group = TaskGroup(
            name="trace",
            count=count,
            tasks=(Task(name="trace", driver=self.driver, resources=resources),),
            max_run_duration=Duration(traced.limit),
            ephemeral_disk=EphemeralDisk(size_mb=0),
            gang=Gang(min=count) if count > 1 else None,
        )
        job = Job(
            region=plan.region,
            namespace=traced.tenant,
            id=name,
            name=name,
            type=status.JOB_BATCH,
            priority=submission.priority,
            node_pool=plan.pool,
            task_groups=(group,),
            meta={USER_KEY: submission.user} if submission.user else {},
            submit_time=now,
        )
        return job, split
