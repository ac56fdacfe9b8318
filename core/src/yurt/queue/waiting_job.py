"""A waiting job: all facts that determine its place in the queue."""

from __future__ import annotations

from typing import NamedTuple

from yurt.queue.amounts import NOTHING, Amounts
from yurt.sdk.value import Duration, UnixNano

JobKey = tuple[str, str]
"""(namespace, job id)."""
Path = tuple[str, ...]
"""A tenant: its account, and the user within it where the queue distinguishes users."""
BAND = 10
"""The number of priorities in a band: jobs of 50 to 59 share one; a higher band always precedes a lower one."""


class Waiting(NamedTuple):
    """A job that waits for its first or a further placement."""

    key: JobKey
    tenant: Path
    """The path of its leaf: ("vision", "alice")."""
    priority: int
    create_index: int
    """The index at which its evaluation was created: first come, first served among equals."""
    since: UnixNano
    asked: Amounts = NOTHING
    """The sum of all its waiting allocations."""
    limit: Duration = Duration(0)
    """Its run time limit in nanoseconds; 0 if it declares none."""
    turn: int = 0
    """The turn: the time since which it waits, plus the delay that `turns.turn_of` adds."""
    boost_at: int = 0
    """The time from which it precedes others regardless of its tenant's usage; 0: never."""

    @property
    def band(self) -> int:
        """The band of its priority."""
        return self.priority // BAND
