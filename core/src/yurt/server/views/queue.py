"""The queues of node pools, as far as a caller may see their jobs."""

from __future__ import annotations

from typing import Final

from yurt.access import Access, Scope
from yurt.server.queueing.entries import price_parts
from yurt.server.queueing.report import Place, TenantUse, tenants
from yurt.server.queueing.shared_reports import QueueReport, QueueReports
from yurt.state.store import Snapshot
from yurt.state.watch import WatchKey

__all__ = ["Place", "PoolQueueRows", "TenantUse", "price_parts"]

_SOURCES: Final = ("evals", "allocs", "jobs", "nodes", "node_pools", "queue_usages")
"""The tables from which an answer follows; time changes it as well."""


class PoolQueueRows:
    """The queues."""

    __slots__ = ("_access", "_state")

    def __init__(self, state: Snapshot, access: Access) -> None:
        self._state = state
        self._access = access

    @staticmethod
    def watched() -> tuple[WatchKey, ...]:
        """The watch keys of a blocking query."""
        return tuple((name,) for name in _SOURCES)

    @property
    def index(self) -> int:
        """When something changed last from which the queues follow."""
        return max(self._state.table(name).index for name in _SOURCES)

    def type_of(self, pool: str) -> str:
        """The type of a pool's queue; `passthrough` for none."""
        row = self._state.node_pools.get(pool)
        return "passthrough" if row is None or row.batch_queue is None else row.batch_queue.type

    async def report(self, shared: QueueReports, pool: str, *, region: str = "") -> QueueReport:
        """The report of a pool's queue, of all namespaces: `visible` is what the caller may see of it.

        `region`: whose guarantees of quotas hold.
        """
        return await shared.of(self._state, pool, region=region)

    def visible(self, report: QueueReport) -> list[Place]:
        """The waiting jobs in their order, without those that the caller may not see; positions count all.

        Nor is a job named for whose end one of them waits.
        """
        return [
            self._shown(place)
            for place in report.places
            if self._access.allows(Scope(namespace=place.entry.job.namespace))
        ]

    def _shown(self, place: Place) -> Place:
        ending = place.waits_for
        if ending is None or self._access.allows(Scope(namespace=ending[0])):
            return place
        return place._replace(waits_for=None)

    def tenants(self, pool: str, now: int) -> list[TenantUse]:
        """The usage of a queue's tenants."""
        return tenants(self._state, pool, now)
