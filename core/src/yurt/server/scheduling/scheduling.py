"""Scheduling on this server, as leader or follower: its workers, and replays of their attempts.

An operator may change the number of workers and their queues while they work. `WorkerSettings` says how many there are
to be; it begins with the agent's configuration and lives as long as the server. `run_pool` keeps that many: for the
leader's own queues during a term, for the leader's elsewhere while this server follows. A worker that is one too many
leaves between two batches, so no evaluation waits for its nack timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from yurt.broker.rejections import Rejections
from yurt.runtime.metrics import Metrics
from yurt.runtime.supervise import keep_running, supervised
from yurt.sdk.errors import Invalid
from yurt.sdk.value import seconds
from yurt.server.config import ServerConfig
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.server.scheduling.plan_applier import PlanApplier
from yurt.server.scheduling.replay import History, Replays
from yurt.server.scheduling.work_sources import FarWork, LeaderWork, Work
from yurt.server.scheduling.worker import Worker
from yurt.storage.log import CommandLog
from yurt.structs import status

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import Limit, LimitsOf
    from yurt.state import Snapshot
    from yurt.structs.job import Job

WORKER_RETRY_S: Final = 1.0


WORKERS_MAX: Final = 64
"""More workers of one process only take each other's turns; Nomad has one for each core."""
SCHEDULERS: Final = (*status.JOB_TYPES, status.JOB_CORE)


def checked_schedulers(names: tuple[str, ...]) -> tuple[str, ...]:
    """The schedulers of these names, each once; raises Invalid."""
    if problems := _problems(names):
        raise Invalid("; ".join(problems))
    return tuple(name for name in SCHEDULERS if name in names)


def _problems(names: tuple[str, ...]) -> list[str]:
    if not names:
        return [f"enabled_schedulers must name at least one of {', '.join(SCHEDULERS)}"]
    return [
        f'"{name[:64]}" is not a scheduler: use {", ".join(SCHEDULERS)}' for name in names if name not in SCHEDULERS
    ]


class WorkerSettings:
    """The number of workers of a server, and the types of jobs that they schedule."""

    def __init__(self, count: int, schedulers: tuple[str, ...] = SCHEDULERS) -> None:
        self._count = max(0, count)
        self._schedulers = schedulers
        self._version = 0
        self._changed = asyncio.Event()

    @property
    def version(self) -> int:
        """How often both were changed."""
        return self._version

    @property
    def count(self) -> int:
        """The desired number of workers."""
        return self._count

    @property
    def schedulers(self) -> tuple[str, ...]:
        """The job types that they schedule, `_core` included, in the order of `SCHEDULERS`."""
        return self._schedulers

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of the broker from which they take evaluations."""
        return tuple(name for name in self._schedulers if name in status.JOB_TYPES)

    def change(self, count: int, schedulers: tuple[str, ...]) -> None:
        """Set both; raises Invalid with all mistakes."""
        problems = _problems(schedulers)
        if not 0 <= count <= WORKERS_MAX:
            problems.append(f"num_schedulers must be from 0 to {WORKERS_MAX}, not {count}")
        if problems:
            raise Invalid("; ".join(problems))
        self._count = count
        self._schedulers = checked_schedulers(schedulers)
        self._version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_changed(self, version: int) -> None:
        """Wait until both were changed since they had this version."""
        while self._version == version:
            await self._changed.wait()


class PooledWorker:
    """One running worker: its task, and the lock that it holds while it processes evaluations."""

    def __init__(self, serving: asyncio.Lock, task: asyncio.Task[None]) -> None:
        self._serving = serving
        self._task = task

    async def leave(self) -> None:
        """End the worker once it has answered for the evaluations that it has."""
        async with self._serving:
            self._task.cancel()
        await asyncio.wait({self._task})


StartWorker = Callable[[], tuple[asyncio.Lock, Callable[[], Coroutine[Any, Any, None]]]]
"""Creates a worker: the lock that it holds while it processes, and its loop."""


async def run_pool(settings: WorkerSettings, start: StartWorker, *, name: str) -> None:
    """Keep the desired number of workers running until cancelled."""
    workers: list[PooledWorker] = []
    queues = settings.queues
    async with asyncio.TaskGroup() as group:
        while True:
            # Both may change while a worker leaves: this code uses the values that were read together.
            version, count, requested = settings.version, settings.count, settings.queues
            while len(workers) < count:
                serving, run = start()
                task = supervised(group, f"{name} {len(workers)}", run())
                workers.append(PooledWorker(serving, task))
            # A worker that waits in other queues than it should is replaced, for it would not hear of the change.
            size = count if queues == requested else 0
            for surplus in workers[size:]:
                await surplus.leave()
            del workers[size:]
            queues = requested
            if len(workers) == count:
                await settings.wait_changed(version)


class Scheduling:
    """Creates workers, for the leader's queues here or on another server, and the queues of a term."""

    def __init__(
        self, replica: Replica, leader: CurrentLeader, command_log: CommandLog, *, config: ServerConfig,
        metrics: Metrics, limits: LimitsOf | None,
    ) -> None:  # fmt: skip
        self.config = config
        self.metrics = metrics
        self.limits: Mapping[str, LimitsOf] = {"limits": _QuotasOnDemand(config.region) if limits is None else limits}
        """The limits that the scheduler and the plan applier apply in addition to the state."""
        self.workers = WorkerSettings(config.num_schedulers, config.enabled_schedulers or SCHEDULERS)
        """The number of workers, and the job types that they schedule."""
        self.history = History()
        self.replays = Replays(replica, command_log, history=self.history, limits=self.limits)
        self._replica = replica
        self._leader = leader

    def worker(self, work: Work) -> Worker:
        """A worker on this server's state."""
        return Worker(work, self._replica, metrics=self.metrics, limits=self.limits)

    async def run_afar(self) -> None:
        """Process evaluations delegated by the leader while this server follows; until cancelled."""
        await run_pool(self.workers, self._start_afar, name="scheduler worker for the leader")

    def _start_afar(self) -> tuple[asyncio.Lock, Callable[[], Coroutine[Any, Any, None]]]:
        env, leader = self._replica.env, self._leader
        queues = self.workers.queues
        worker = self.worker(FarWork(leader.peer, lambda: self._replica.state, env=env, queues=queues))

        async def work() -> None:
            await worker.run_afar(leader.wait_following)

        async def run() -> None:
            await keep_running("a worker for the leader", work, pause=lambda: env.sleep(WORKER_RETRY_S))

        return worker.serving, run


class _QuotasOnDemand:
    """The quotas of this region as limits, imported with the first namespace that names one."""

    def __init__(self, region: str) -> None:
        self.region = region
        self._quotas: LimitsOf | None = None

    def __call__(self, snapshot: Snapshot, job: Job) -> Sequence[Limit]:
        """The limits of a job."""
        namespace = snapshot.namespaces.get(job.namespace)
        if namespace is None or not namespace.quota:
            return ()
        if self._quotas is None:
            from yurt.scheduler.capacity.quotas import QuotaLimits

            self._quotas = QuotaLimits(self.region)
        return self._quotas(snapshot, job)


class LeaderScheduling:
    """The queues, the plan applier and the workers of one term."""

    def __init__(self, scheduling: Scheduling, replica: Replica) -> None:
        config, env, writer = scheduling.config, replica.env, replica.writer
        rejections = None
        if config.rejections.enabled:
            window = seconds(config.rejections.window_s)
            rejections = Rejections(threshold=config.rejections.threshold, window=window)
        queue = self.queue = EvalQueue(
            env=env,
            writer=writer,
            current=lambda: replica.state,
            turns=replica.turns,
            metrics=scheduling.metrics,
            **scheduling.limits,
        )
        self.applier = PlanApplier(
            replica=replica,
            metrics=scheduling.metrics,
            limits=scheduling.limits,
            history=scheduling.history if config.dev else None,
            rejections=rejections,
            on_dropped=lambda plan, index: queue.note_dropped(plan, index=index),
        )
        self.work = LeaderWork(
            env=env, queue=self.queue, applier=self.applier, writer=writer, workers=scheduling.workers
        )
        self._env, self._writer = env, writer
        self._scheduling = scheduling

    async def run_workers(self) -> None:
        """Process evaluations of these queues until cancelled."""
        await run_pool(self._scheduling.workers, self._start_worker, name="scheduler worker")

    def _start_worker(self) -> tuple[asyncio.Lock, Callable[[], Coroutine[Any, Any, None]]]:
        worker, env, writer = self._scheduling.worker(self.work), self._env, self._writer

        async def run() -> None:
            await keep_running(
                "a scheduler worker",
                worker.run,
                pause=lambda: env.sleep(WORKER_RETRY_S),
                is_logged=lambda: writer.is_open,
            )

        return worker.serving, run
