"""Running sums of what ended allocations used of GPUs, by namespace, for the metrics.

The state holds a row for each namespace and day, 400 days of each: adding all of them up at each scrape takes longer
the longer a cluster runs. So they are added up once, in a thread, when somebody asks first, and each change of a row
is added from then on. What changes while the thread works is added afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from yurt.sdk.value import Value, no_entries
from yurt.server.log.replica import Replica
from yurt.state import Changes, Snapshot
from yurt.structs.accounting.usage_day import UsageDay

TABLE: Final = "usage_days"


class UsageTotal(Value):
    """The sums of one namespace over all days that are kept; times in thousandths of seconds."""

    card_ms: int = 0
    busy_ms: int = 0
    idle_ms: int = 0
    preempted: int = 0
    wait_ms: int = 0
    lost_ms: Mapping[str, int] = no_entries()

    def plus(self, row: UsageDay, sign: int = 1) -> UsageTotal:
        """The sums with a row more, or with `sign` -1 without it."""
        lost = {reason: self.lost_ms.get(reason, 0) + sign * amount for reason, amount in row.lost_ms.items()}
        return UsageTotal(
            card_ms=self.card_ms + sign * row.card_ms,
            busy_ms=self.busy_ms + sign * row.busy_ms,
            idle_ms=self.idle_ms + sign * row.idle_ms,
            preempted=self.preempted + sign * row.preempted,
            wait_ms=self.wait_ms + sign * row.wait_ms,
            lost_ms={reason: amount for reason, amount in {**self.lost_ms, **lost}.items() if amount},
        )


class UsageSums:
    """The running sums of one server; all but the first sum happens on the event loop."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._totals: dict[str, UsageTotal] | None = None
        """None until somebody asks."""
        self._late: list[Changes] | None = None
        """What changed while the first sum is made."""
        self._summing = asyncio.Lock()

    @property
    def is_following(self) -> bool:
        """Whether changes are added, or collected for the first sum."""
        return self._totals is not None or self._late is not None

    def observe(self, changes: Changes) -> None:
        """Follow what the log applied."""
        if not self.is_following:
            return
        mine = tuple(change for change in changes if change.table == TABLE)
        if mine and self._totals is not None:
            _follow(self._totals, mine)
        elif mine and self._late is not None:
            self._late.append(mine)

    def reset(self) -> None:
        """Forget the sums: another state was loaded."""
        self._totals = self._late = None

    async def totals(self) -> Mapping[str, UsageTotal]:
        """The sums by namespace, as they are now."""
        async with self._summing:
            while self._totals is None:
                await self._sum()
            return dict(self._totals)

    async def _sum(self) -> None:
        """Add up all rows; without effect when another state is loaded meanwhile."""
        late = self._late = list[Changes]()
        try:
            totals = await self._replica.env.in_thread(first_sums, self._replica.state)
            if self._late is not late:
                return
            for changes in late:
                _follow(totals, changes)
            self._totals = totals
        finally:
            # Also after a cancelled scrape: else changes would be collected until somebody asks again.
            if self._late is late:
                self._late = None


def first_sums(state: Snapshot) -> dict[str, UsageTotal]:
    """The sums of all rows."""
    totals: dict[str, UsageTotal] = {}
    for row in state.usage_days.values():
        totals[row.namespace] = totals.get(row.namespace, UsageTotal()).plus(row)
    return totals


def _follow(totals: dict[str, UsageTotal], changes: Changes) -> None:
    for change in changes:
        for row, sign in _rows(change.before, change.after):
            total = totals.get(row.namespace, UsageTotal()).plus(row, sign)
            if total == UsageTotal():
                totals.pop(row.namespace, None)
            else:
                totals[row.namespace] = total


def _rows(before: UsageDay | None, after: UsageDay | None) -> Iterable[tuple[UsageDay, int]]:
    if before is not None:
        yield before, -1
    if after is not None:
        yield after, 1
