"""The use of GPUs by allocations, jobs and namespaces: from allocations, and from the sums of collected ones.

A job's account covers the allocations that the state still holds. A namespace's covers the sums by day as well, which
stay for more than a year.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from yurt.access import Access
from yurt.queue.account import AllocAccount, account_of, added, with_account
from yurt.sdk.value import NANOSECONDS
from yurt.server.views.rows import NamespacedRow
from yurt.server.views.scheduling import AllocationRows
from yurt.state.store import Snapshot
from yurt.state.watch import WatchKey
from yurt.structs.accounting.usage_day import UsageDay, UsageDayKey
from yurt.structs.alloc import Allocation, has_devices
from yurt.structs.predicates import is_client_terminal

JobKey = tuple[str, str]
DAY_NS: Final = 24 * 3600 * NANOSECONDS


class UsageDayRows(NamespacedRow[UsageDayKey, UsageDay]):
    """Sums of namespaces by day."""

    __slots__ = ()
    name = "usage_days"

    def sums(self, namespace: str = "*", day: int = 0) -> dict[str, UsageDay]:
        """The sums of each namespace from a day on."""
        by_namespace: dict[str, UsageDay] = {}
        for row in self.of_namespace(namespace):
            if row.day >= day:
                earlier = by_namespace.get(row.namespace)
                by_namespace[row.namespace] = row if earlier is None else added(earlier, row)
        return by_namespace


class UsageReport(NamedTuple):
    """Sums by namespace, of what still runs, and by job."""

    namespaces: dict[str, UsageDay]
    """Of allocations that ended on one of the days, and of those that run."""
    running: dict[str, UsageDay]
    """The part of allocations that have not ended."""
    jobs: dict[JobKey, UsageDay]
    """Of allocations that the state still holds."""


class Accounts:
    """The accounts that a caller may see."""

    __slots__ = ("_access", "_state")

    def __init__(self, state: Snapshot, access: Access) -> None:
        self._state = state
        self._access = access

    @staticmethod
    def watched() -> tuple[WatchKey, ...]:
        """The watch keys of a blocking query."""
        return (("allocs",), ("usage_days",))

    @property
    def index(self) -> int:
        """When something changed last from which accounts follow."""
        return max(self._state.allocs.index, self._state.usage_days.index)

    def of_alloc(self, alloc: Allocation, now: int) -> AllocAccount | None:
        """The account of an allocation; None for one without GPUs."""
        return account_of(alloc, self._state.evals.get(alloc.eval_id), self._prices(alloc), now=now)

    def of_job(self, key: JobKey, now: int) -> UsageDay | None:
        """The sums of a job's allocations; None when none of them had GPUs."""
        accounts = list(self._accounts(self._rows().where("job", key), now))
        return _sum(key[0], accounts) if accounts else None

    def report(self, namespace: str, day: int, now: int) -> UsageReport:
        """The sums of a namespace, or of all that are visible (`*`), from a day on; walks over all allocations."""
        namespaces = UsageDayRows(self._state, self._access).sums(namespace, day)
        running: dict[str, UsageDay] = {}
        jobs: dict[JobKey, UsageDay] = {}
        for alloc, account in self._accounts(self._rows().of_namespace(namespace), now):
            is_over = is_client_terminal(alloc)
            if is_over and alloc.modify_time // DAY_NS < day:
                continue
            job = _account_key(alloc)
            jobs[job] = with_account(jobs.get(job) or UsageDay(namespace=job[0], day=day), alloc, account)
            if not is_over:
                before = running.get(alloc.namespace) or UsageDay(namespace=alloc.namespace, day=day)
                running[alloc.namespace] = with_account(before, alloc, account)
        for name, row in running.items():
            ended = namespaces.get(name)
            namespaces[name] = row if ended is None else added(ended, row)
        return UsageReport(namespaces, running, jobs)

    def _rows(self) -> AllocationRows:
        return AllocationRows(self._state, self._access)

    def _accounts(self, allocs: Iterable[Allocation], now: int) -> Iterator[tuple[Allocation, AllocAccount]]:
        for alloc in allocs:
            account = self.of_alloc(alloc, now) if alloc.accounting is not None or has_devices(alloc) else None
            if account is not None:
                yield alloc, account

    def _prices(self, alloc: Allocation) -> Mapping[str, float]:
        pool = self._state.node_pools.get(alloc.job.node_pool) if alloc.job is not None else None
        queue = None if pool is None or pool.batch_queue is None else pool.batch_queue.fair_share
        return {} if queue is None else queue.prices


def _account_key(alloc: Allocation) -> JobKey:
    """The job that an allocation counts for: of a dispatched or periodic one its parent."""
    parent = alloc.job.parent_id if alloc.job is not None else ""
    return alloc.namespace, parent or alloc.job_id


def with_one(alloc: Allocation, account: AllocAccount) -> UsageDay:
    """The sums of one allocation."""
    return _sum(alloc.namespace, [(alloc, account)])


def _sum(namespace: str, accounts: Iterable[tuple[Allocation, AllocAccount]]) -> UsageDay:
    total = UsageDay(namespace=namespace, day=0)
    for alloc, account in accounts:
        total = with_account(total, alloc, account)
    return total
