"""Jobs of a queue within the guarantee of their quota: they come first, and may reclaim lent capacity.

Guarantees come before shares and bands of priority: what a quota is guaranteed, it is guaranteed against jobs of any
priority. Among themselves such jobs go by band, then by turn. The scheduler chooses the allocations to reclaim, and
reports when protected borrowers may give way; here only those are found that have a chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from yurt.queue.job_queue import JobQueue
from yurt.queue.waiting_job import JobKey, Waiting
from yurt.scheduler.capacity.guarantees import Guarantees
from yurt.server.queueing.entries import QueuedJobs, QueueEntry
from yurt.server.queueing.guarantee_ledger import GuaranteedLine, GuaranteeLedger
from yurt.server.queueing.pool_view import PoolView
from yurt.state.namespace_usage import NOTHING_USED, NamespaceUsage

LOOKS_MAX: Final = 32
"""The maximum number of jobs that one decision checks against guarantees; twice the number that the scheduler has at a
time."""
STEPS_MAX: Final = 512
"""Jobs that one decision passes for them, most of which wait for borrowers that are protected. Those behind keep their
place in the order of the queue, where they are tried as well."""
UNREADY_MAX: Final = 8
"""The number of first jobs, tried by the scheduler, for which capacity may be reserved."""


class GuaranteedJobs:
    """One decision's look at the guarantees of one pool's jobs."""

    def __init__(self, view: PoolView, ledger: GuaranteeLedger, line: GuaranteedLine | None, *, now: int) -> None:
        """`line`: the pool's waiting jobs below quotas with guarantees."""
        self._pool = view.pool
        self._ledger = ledger
        self._line = line
        tree, key = ledger.tree, ("", view.pool)
        self._guarantees: Guarantees | None = None
        if tree is not None:
            self._guarantees = Guarantees(view.state, tree, key, now=now, holdings=ledger.holdings)
        self._entitled: set[JobKey] = set()
        self._is_cut = False

    @property
    def is_possible(self) -> bool:
        """Whether anybody borrows while a job waits below a quota of whose guarantee something is left."""
        if self._line is None or not self._ledger.lenders(self._pool):
            return False
        return next(self._line.first(self._ledger), None) is not None

    def first(self, waiting: JobQueue, jobs: QueuedJobs) -> Iterator[Waiting]:
        """The waiting jobs that are within guarantees together, in their order; those in flight take theirs first."""
        if self._line is None:
            return
        for entry in jobs.in_flight:
            self._count(entry)
        seen, looks, tries = set[JobKey](), 0, 0
        for job in self._line.first(self._ledger):
            if job.key in seen or job.key not in waiting:
                continue
            seen.add(job.key)
            is_ready = job.key in jobs.ready
            if looks >= LOOKS_MAX or len(seen) > STEPS_MAX:
                self._is_cut = True
                return
            if not is_ready and tries >= UNREADY_MAX:
                continue
            looks, tries = looks + 1, tries + (not is_ready)
            if self._take(jobs.entries[job.key]):
                yield job

    def all_first(self, entries: Mapping[JobKey, QueueEntry]) -> list[Waiting]:
        """As `first`, without a bound: to show the order."""
        jobs = () if self._line is None else dict.fromkeys(job.key for job in self._line.first(self._ledger))
        return [entries[key].waiting for key in jobs if self._take(entries[key])]

    def quota_of(self, entry: QueueEntry) -> str:
        """The quota within whose guarantee a job is; "" for none."""
        return next(iter(self._quotas_of(entry)), "")

    def frees_capacity(self, entry: QueueEntry) -> bool:
        """Whether a job may fit once others have given back what they borrow: they borrow something."""
        if self._guarantees is None or not self._ledger.lenders(self._pool):
            return False
        if entry.waiting.key not in self._entitled and not (self._is_cut and self._quotas_of(entry)):
            return False
        guaranteed = self._guarantees.tree.guaranteed(entry.job.namespace)
        self._guarantees.look_as((entry.job.namespace, self._pool))
        return any(
            self._guarantees.entitled_against(guaranteed, namespace) for namespace in self._ledger.lenders(self._pool)
        )

    def _quotas_of(self, entry: QueueEntry) -> tuple[str, ...]:
        if self._guarantees is None:
            return ()
        self._guarantees.look_as((entry.job.namespace, self._pool))
        return self._guarantees.entitled(_least(entry, self._guarantees))

    def _take(self, entry: QueueEntry) -> bool:
        """Whether a job is within a guarantee in addition to those before it; if so, count it."""
        if not self._quotas_of(entry):
            return False
        self._entitled.add(entry.waiting.key)
        self._count(entry)
        return True

    def _count(self, entry: QueueEntry) -> None:
        assert self._guarantees is not None
        self._guarantees.look_as((entry.job.namespace, self._pool))
        self._guarantees.count(_all(entry, self._guarantees))


def _least(entry: QueueEntry, guarantees: Guarantees) -> NamespaceUsage:
    """What the job needs for its first group to make progress: one allocation, or the minimum of a gang."""
    return _sum((guarantees.amounts_of(one.ask), max(1, one.least)) for one in entry.demands[:1])


def _all(entry: QueueEntry, guarantees: Guarantees) -> NamespaceUsage:
    return _sum((guarantees.amounts_of(one.ask), one.number) for one in entry.demands)


def _sum(amounts: Iterable[tuple[NamespaceUsage, int]]) -> NamespaceUsage:
    total = NOTHING_USED
    for each, times in amounts:
        total = total.plus(each, times)
    return total
