"""What a client remembers of an allocation that has ended, until the servers forget it."""

from __future__ import annotations

from yurt.client.link_owners import TaskUser
from yurt.sdk.value import UnixNano, Value
from yurt.structs.rpc import AllocCheckStatus


class EndedAlloc(Value):
    """An allocation of which nothing runs any more; its directory may still be there.

    A runner with its tasks takes some ten kilobytes, a record a few hundred bytes, and batch jobs leave thousands of
    ended allocations behind.
    """

    id: str
    finished_at: UnixNano
    users: tuple[TaskUser, ...]
    """Its tasks."""
    checks: tuple[AllocCheckStatus, ...] = ()
    """What the checks of its services said last."""

    def check_statuses(self) -> tuple[AllocCheckStatus, ...]:
        """What the checks said last."""
        return self.checks
