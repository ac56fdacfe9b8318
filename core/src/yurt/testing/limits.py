"""A quota of memory for the namespaces that name one, to try out whatever has to do with limits."""

from __future__ import annotations

from collections.abc import Sequence

from yurt.scheduler.capacity.limits import Limit
from yurt.state import Snapshot
from yurt.state.usage import Usage, is_using, usage_of
from yurt.structs.job import Job

QUOTA_MB = 1000


class MemoryQuota:
    """So much memory for all allocations of a namespace together."""

    def __init__(self, name: str, left: int) -> None:
        self.name = name
        self.left = left

    def lacking(self, usage: Usage) -> Sequence[str]:
        """Memory, when it is not enough."""
        return () if usage.memory <= self.left else (f"memory exhausted ({usage.memory} needed, {self.left} left)",)

    def take(self, usage: Usage, sign: int = 1) -> None:
        """Less is left."""
        self.left -= sign * usage.memory


def quotas(snapshot: Snapshot, job: Job) -> Sequence[Limit]:
    """The quota of the job's namespace."""
    namespace = snapshot.namespaces.get(job.namespace)
    if namespace is None or not namespace.quota:
        return ()
    taken = sum(usage_of(a).memory for a in snapshot.allocs.values() if a.namespace == job.namespace and is_using(a))
    return (MemoryQuota(namespace.quota, QUOTA_MB - taken),)
