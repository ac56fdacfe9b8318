"""Scheduling on this server, as leader or follower: its workers, and replays of their attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from yurt.broker.rejections import Rejections
from yurt.runtime.metrics import Metrics
from yurt.runtime.supervise import keep_running
from yurt.sdk.value import seconds
from yurt.server.config import ServerConfig
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.server.scheduling.plan_applier import PlanApplier
from yurt.server.scheduling.replay import History, Replays
from yurt.server.scheduling.work_sources import BATCH, FarWork, LeaderWork, Work
from yurt.server.scheduling.worker import Worker
from yurt.storage.log import CommandLog

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import Limit, LimitsOf
    from yurt.state import Snapshot
    from yurt.structs.job import Job

WORKER_RETRY_S: Final = 1.0


class Scheduling:
    """Creates workers, for the leader's queues here or elsewhere, and the queues of a term."""

    def __init__(
        self, replica: Replica, leader: CurrentLeader, command_log: CommandLog, *, config: ServerConfig,
        metrics: Metrics, limits: LimitsOf | None,
    ) -> None:  # fmt: skip
        self.config = config
        self.metrics = metrics
        self.limits: Mapping[str, LimitsOf] = {"limits": _QuotasOnDemand(config.region) if limits is None else limits}
        """What the scheduler and the plan applier are given besides the state."""
        self.history = History()
        self.replays = Replays(replica, command_log, history=self.history, limits=self.limits)
        self._replica = replica
        self._leader = leader

    def worker(self, work: Work) -> Worker:
        """A worker on this server's state."""
        return Worker(work, self._replica, metrics=self.metrics, limits=self.limits)

    async def run_afar(self) -> None:
        """Process evaluations delegated by the leader while this server follows; until cancelled."""
        env = self._replica.env
        worker = self.worker(FarWork(self._leader.peer, lambda: self._replica.state, env=env))

        async def work() -> None:
            await worker.run_afar(self._leader.wait_following)

        await keep_running("a worker for the leader", work, pause=lambda: env.sleep(WORKER_RETRY_S))


class _QuotasOnDemand:
    """The quotas of this region as limits, imported with the first namespace that names one."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._quotas: LimitsOf | None = None

    def __call__(self, snapshot: Snapshot, job: Job) -> Sequence[Limit]:
        """The limits of a job."""
        namespace = snapshot.namespaces.get(job.namespace)
        if namespace is None or not namespace.quota:
            return ()
        if self._quotas is None:
            from yurt.scheduler.capacity.quotas import QuotaLimits

            self._quotas = QuotaLimits(self._region)
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
            env=env, writer=writer, current=lambda: replica.state, turns=replica.turns, metrics=scheduling.metrics
        )
        self.applier = PlanApplier(
            replica=replica,
            metrics=scheduling.metrics,
            limits=scheduling.limits,
            history=scheduling.history if config.dev else None,
            rejections=rejections,
            on_dropped=lambda plan, index: queue.retry_limit(plan.namespace, index=index),
        )
        count = max(0, config.num_schedulers)
        self.work = LeaderWork(env=env, queue=self.queue, applier=self.applier, writer=writer, spare=BATCH * count)
        self.workers = tuple(scheduling.worker(self.work) for _ in range(count))
