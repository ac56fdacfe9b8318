"""Queue reports that requests share: a report of the same state is computed once, by the first request that asks.

A report of thousands of jobs costs tenths of a second of CPU, and pages of the web UI, `yurt queue` and monitors ask
for it again and again. It is shared while no table changed from which it follows: with all requests until it is
computed, then until `FRESH` after its beginning, since expected starts move with time. It holds the jobs of all
namespaces: who reads it filters it by the rights of the caller.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from yurt.runtime.env import Env
from yurt.sdk.value import NANOSECONDS
from yurt.state import Snapshot, Tables

if TYPE_CHECKING:
    from yurt.server.queueing.report import Place

SOURCES: Final = tuple(
    each.name
    for each in (
        Tables.evals, Tables.allocs, Tables.jobs, Tables.nodes, Tables.node_pools, Tables.queue_usages,
        Tables.namespaces, Tables.quotas, Tables.scheduler_configurations,
    )
)  # fmt: skip
"""The tables from which a report follows."""
FRESH: Final = 2 * NANOSECONDS
"""How long a report is shared while nothing changes."""
REPORTS_MAX: Final = 16
"""Reports that are kept: one for each pool and region."""

ReportKey = tuple[str, str]


class QueueReport(NamedTuple):
    """The places of a queue at a time."""

    at: int
    places: tuple[Place, ...]


class _Shared:
    """A report that is computed, or has been."""

    __slots__ = ("at", "done", "indexes", "report")

    def __init__(self, indexes: tuple[int, ...], at: int) -> None:
        self.indexes = indexes
        self.at = at
        self.done = asyncio.Event()
        self.report: QueueReport | None = None

    def holds(self, indexes: tuple[int, ...], now: int) -> bool:
        """Whether it is of this state, and still computed or not too old; a clock that stepped back makes it too old.

        A slow computation is joined at any age: parallel ones would make it slower still.
        """
        return self.indexes == indexes and (not self.done.is_set() or 0 <= now - self.at < FRESH)


class QueueReports:
    """The shared reports of one server; used on the event loop."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._shared: dict[ReportKey, _Shared] = {}

    def __len__(self) -> int:
        return len(self._shared)

    async def of(self, state: Snapshot, pool: str, *, region: str) -> QueueReport:
        """The places of a pool's queue in a state, computed in a thread by the first request that asks."""
        key, indexes = (pool, region), tuple(state.table(name).index for name in SOURCES)
        while True:
            now = self._env.now()
            shared = self._shared.get(key)
            if shared is None or not shared.holds(indexes, now):
                return await self._computed(key, _Shared(indexes, now), state)
            await shared.done.wait()
            if shared.report is not None:
                return shared.report
            # The request that computed it was cancelled or failed: this one tries itself.

    async def _computed(self, key: ReportKey, shared: _Shared, state: Snapshot) -> QueueReport:
        self._evict(shared.at)
        self._shared[key] = shared
        try:
            await self._env.in_thread(state.columns_maker())
            places = await self._env.in_thread(_places, state, key, shared.at)
            shared.report = QueueReport(shared.at, places)
            return shared.report
        finally:
            if shared.report is None and self._shared.get(key) is shared:
                del self._shared[key]
            shared.done.set()

    def _evict(self, now: int) -> None:
        """Drop what is too old to be shared, and the oldest beyond the limit."""
        current = [(key, each) for key, each in self._shared.items() if each.holds(each.indexes, now)]
        current.sort(key=lambda item: item[1].at)
        self._shared = dict(current[-(REPORTS_MAX - 1) :])


def _places(state: Snapshot, key: ReportKey, at: int) -> tuple[Place, ...]:
    from yurt.server.queueing.report import places

    pool, region = key
    return tuple(places(state, pool, at, region=region))
