"""A waiting job: all facts on which its place in the queue depends."""

from __future__ import annotations

from typing import NamedTuple

from yurt.queue.amounts import NOTHING, Amounts
from yurt.sdk.value import Duration, UnixNano

JobKey = tuple[str, str]
"""(namespace, job id)."""
Path = tuple[str, ...]
"""Of a tenant: its account, and the user within it where the queue tells users apart."""
BAND = 10
"""Jobs of one band of priorities, 50 to 59, share; a higher band always goes before a lower one."""


class Waiting(NamedTuple):
    """A job that waits for a first or another placement."""

    key: JobKey
    tenant: Path
    """The path of its leaf: ("vision", "alice")."""
    priority: int
    create_index: int
    """That of its evaluation's creation: first come, first served among equals."""
    since: UnixNano
    asked: Amounts = NOTHING
    """Of all its allocations that wait."""
    limit: Duration = Duration(0)
    """For how long it may run; 0 where nothing says so."""
    turn: int = 0
    """When its turn is: since when it waits, plus what `turns.turn_of` adds."""
    boost_at: int = 0
    """From when on it stands before others, whatever its tenant has used; 0: never."""

    @property
    def band(self) -> int:
        """The band of its priority."""
        return self.priority // BAND
