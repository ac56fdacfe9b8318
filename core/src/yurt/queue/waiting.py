"""What the queue knows of a job that waits: everything that its place depends on."""

from __future__ import annotations

from typing import NamedTuple

from yurt.queue.amounts import NOTHING, Amounts
from yurt.sdk.value import Duration, UnixNano

JobKey = tuple[str, str]
"""(namespace, job id)."""
BAND = 10
"""Jobs of one band of priorities, 50 to 59, share; a higher band always goes before a lower one."""


class Waiting(NamedTuple):
    """A job that waits for a first or another placement."""

    key: JobKey
    tenant: tuple[str, ...]
    """The path of its leaf in the tree of tenants: ("vision", "alice")."""
    priority: int
    create_index: int
    """That of its evaluation's creation: first come, first served among equals."""
    since: UnixNano
    asked: Amounts = NOTHING
    """Of all its allocations that wait."""
    limit: Duration = Duration(0)
    """For how long it may run; 0 where nothing says so."""

    stretch: int = 0
    """How many times its limit counts in its turn, see `turn`."""

    @property
    def turn(self) -> int:
        """Its place among the jobs of its tenant: when it came, plus `stretch` times its limit.

        Short jobs pass longer ones that came shortly before. A job is passed by such only as come within `stretch`
        times its own limit, so each turn comes; and who declares less than it needs is ended at that limit.
        """
        return self.since + self.stretch * self.limit

    @property
    def band(self) -> int:
        """The band of its priority."""
        return self.priority // BAND

    def cost(self, half_life: int) -> Amounts:
        """What its tenant is charged in advance: what it asks, for as long as it may run, a half-life at most."""
        held = min(self.limit, half_life) if self.limit > 0 else half_life
        return self.asked.times(held)
