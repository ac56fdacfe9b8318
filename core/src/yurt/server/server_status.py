"""Status of a server: the leader that this server follows, the state's index, and metrics.

It holds no row of the state: rows are seen through a view that is bound to the caller (`yurt.server.views`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from yurt.broker import QueueCount
from yurt.runtime.metrics import Gauge, Metrics, full_name
from yurt.server.leadership.roles import Roles
from yurt.server.leadership.term import Term
from yurt.server.log.cluster_identity import cluster_id_of
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.server.log.server_log import ServerLog
from yurt.server.queueing.shared_reports import QueueReports
from yurt.server.usage_sums import UsageSums, UsageTotal
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.evaluation import Evaluation

BLOCKED_JOBS_MAX: Final = 100
"""Blocked jobs with gauges of their own: those with the largest requests."""

if TYPE_CHECKING:
    from yurt.queue.accuracy import Forecast, Summary
    from yurt.queue.waiting_job import JobKey


class ServerFacts:
    """The status of one server, computed on demand."""

    __slots__ = (
        "_leader", "_loader", "_metrics", "_replica", "_roles", "_snapshotter", "_started_at", "_usage_sums",
        "queue_reports",
    )  # fmt: skip

    def __init__(
        self,
        replica: Replica,
        leader: CurrentLeader,
        *,
        roles: Roles,
        log: ServerLog,
        metrics: Metrics,
        usage_sums: UsageSums,
    ) -> None:
        self._replica = replica
        self._leader = leader
        self._roles = roles
        self._loader = log.loader
        self._metrics = metrics
        self._snapshotter = log.snapshotter
        self._usage_sums = usage_sums
        self._started_at = replica.env.now()
        self.queue_reports = QueueReports(replica.env)

    @property
    def is_leader(self) -> bool:
        """Whether this server leads and its duties run."""
        return self._leader.is_local

    @property
    def leader_name(self) -> str:
        """The name of the leader that this server follows; "" for none."""
        return self._leader.name

    @property
    def last_contact_s(self) -> float:
        """Seconds since the leader was last heard; 0 on the leader."""
        return self._leader.last_contact_s

    @property
    def term_number(self) -> int:
        """The number of the newest term that this server has seen; 0: none yet."""
        return self._leader.leadership.epoch

    @property
    def index(self) -> int:
        """The index of the newest state."""
        return self._replica.state.index

    @property
    def cluster_id(self) -> str:
        """The ID of the cluster, as far as this server has applied the log; "" before it has one."""
        return cluster_id_of(self._replica.state)

    @property
    def is_restored(self) -> bool:
        """Whether the state was restored from the log."""
        return self._loader.is_restored

    @property
    def started_at(self) -> int:
        """The start time of this server, unix ns."""
        return self._started_at

    @property
    def outstanding_evals(self) -> int:
        """Evaluations dequeued from this server's broker and not acknowledged; 0 for a follower."""
        term = self._roles.term
        return 0 if term is None else term.queue.broker.stats().outstanding

    def queue_accuracy(self, pool: str) -> Summary | None:
        """How good the forecasts of a pool's queue were; None for a follower, and before the first start."""
        forecasts = None if self._roles.term is None else self._roles.term.queue.pools.forecasts
        return None if forecasts is None else forecasts.summary(pool)

    def corrected(self, pool: str, key: JobKey, forecast: Forecast) -> Forecast:
        """A forecast, corrected by what became of earlier ones; as it is for a follower."""
        forecasts = None if self._roles.term is None else self._roles.term.queue.pools.forecasts
        return forecast if forecasts is None else forecasts.corrected(pool, key, forecast)

    def gauges(self) -> list[Gauge]:
        """Present gauges of this server."""
        index = float(self.index)
        gauges = [
            _gauge("state.index", index),
            _gauge("server.is_leader", float(self.is_leader)),
            _gauge("server.last_contact_ms", round(self._leader.last_contact_s * 1000.0, 1)),
            _gauge("raft.appliedIndex", index),
            _gauge("raft.lastIndex", float(self._replica.writer.last_index)),
            _gauge("raft.leader.lastContact", round(self._leader.last_contact_s * 1000.0, 1)),
            Gauge("nomad.state.snapshotIndex", float(self._snapshotter.index)),
        ]
        return gauges if self._roles.term is None else gauges + term_gauges(self._roles.term)

    async def usage_gauges(self) -> list[Gauge]:
        """What ended allocations used of GPUs over all days that are kept: by namespace, lost work also by reason."""
        totals = await self._usage_sums.totals()
        return [gauge for namespace, total in sorted(totals.items()) for gauge in _usage_gauges(namespace, total)]

    def blocked_gauges(self) -> Callable[[], Iterable[Gauge]]:
        """What sums up the evaluations that are blocked now. Call it in a thread: there may be a hundred thousand."""
        term = self._roles.term
        return tuple if term is None else partial(_blocked, term.queue.blocked.all(), self._replica.state)

    @property
    def metrics(self) -> Metrics:
        """Counters and timings since the start."""
        return self._metrics


def term_gauges(term: Term) -> list[Gauge]:
    """Gauges of the leader's parts."""
    broker, blocked = term.queue.broker.stats(), term.queue.blocked
    gate = term.queue.pools.gate
    gauges = [
        _gauge("broker.total_ready", broker.ready),
        _gauge("broker.total_unacked", broker.outstanding),
        _gauge("broker.total_pending", broker.pending),
        _gauge("broker.total_waiting", broker.delayed),
        _gauge("broker.total_cancelable", broker.cancelable),
        _gauge("blocked_evals.total_blocked", len(blocked)),
        _gauge("blocked_evals.total_escaped", blocked.escaped),
        _gauge("plan.queue_depth", len(term.applier)),
        _gauge("queue.waiting", 0 if gate is None else len(gate)),
        _gauge("queue.in_flight", 0 if gate is None else gate.in_flight),
        _gauge("heartbeat.active", len(term.heartbeats)),
    ]
    by_queue = term.queue.broker.by_queue()
    for kind in (*status.JOB_TYPES, status.JOB_CORE):
        count = by_queue.get(kind, QueueCount())
        gauges.append(_gauge(f"broker.{kind}_ready", count.ready))
        gauges.append(_gauge(f"broker.{kind}_unacked", count.outstanding))
    for node_id, score in term.applier.rejection_scores().items():
        gauges.append(_gauge("plan.rejection_tracker.node_score", score, node_id=node_id))
    return gauges


def _blocked(blocked: Sequence[Evaluation], state: Snapshot) -> Iterator[Gauge]:
    """The number of evaluations blocked on a quota, and the requests of the largest blocked jobs, as in Nomad."""
    yield _gauge("blocked_evals.total_quota_limit", sum(bool(each.quota_limit_reached) for each in blocked))
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for evaluation in blocked:
        key = evaluation.namespace, evaluation.job_id
        job, summary = state.jobs.get(key), state.job_summaries.get(key)
        if job is None or summary is None or evaluation.quota_limit_reached:
            continue
        cpu = memory = 0
        for group in job.task_groups:
            queued = summary.summary[group.name].queued if group.name in summary.summary else 0
            cpu += queued * sum(task.resources.cpu for task in group.tasks)
            memory += queued * sum(task.resources.memory_mb for task in group.tasks)
        sums_of_job = sums.get((job.namespace, job.id), (0, 0))
        sums[job.namespace, job.id] = (sums_of_job[0] + cpu, sums_of_job[1] + memory)
    for (namespace, job_id), (cpu, memory) in heapq.nlargest(BLOCKED_JOBS_MAX, sums.items(), key=lambda row: row[1]):
        yield _gauge("blocked_evals.job.cpu", cpu, job=job_id, namespace=namespace)
        yield _gauge("blocked_evals.job.memory", memory, job=job_id, namespace=namespace)


def _usage_gauges(namespace: str, total: UsageTotal) -> Iterator[Gauge]:
    yield _gauge("gpu_usage.seconds", total.card_ms / 1000, namespace=namespace)
    yield _gauge("gpu_usage.busy_seconds", total.busy_ms / 1000, namespace=namespace)
    yield _gauge("gpu_usage.idle_seconds", total.idle_ms / 1000, namespace=namespace)
    yield _gauge("gpu_usage.preemptions", total.preempted, namespace=namespace)
    yield _gauge("gpu_usage.queue_wait_seconds", total.wait_ms / 1000, namespace=namespace)
    for reason, lost in sorted(total.lost_ms.items()):
        yield _gauge("gpu_usage.lost_seconds", lost / 1000, namespace=namespace, reason=reason)


def _gauge(name: str, value: float, **labels: str) -> Gauge:
    return Gauge(full_name(name), float(value), labels)
