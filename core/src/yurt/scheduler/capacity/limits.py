"""Limits beside the nodes: quotas on allocations that apply whatever the nodes' capacity.

A quota of a namespace, or licences, are such limits. The scheduler asks for the limits of a job once for an attempt,
and each of them before every placement; the plan applier asks again on the newest state. Limits are pure: they are made
from the state alone, and what plans take that are on their way into the log is counted here, by the names of the
limits. No limit is built in; whoever starts a server may give it some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from yurt.scheduler.capacity.in_flight import takers_of
from yurt.state.store import Snapshot
from yurt.state.usage import Usage
from yurt.structs.job import Job


class Limit(Protocol):
    """The rest of one limit during planning."""

    @property
    def name(self) -> str:
        """The quota's name, which identifies it; evaluations blocked on it retry when some of it is freed."""
        ...

    def lacking(self, usage: Usage) -> Sequence[str]:
        """How one more allocation would exceed it: "memory exhausted (512 needed, 300 left)"; empty when it fits."""
        ...

    def take(self, usage: Usage, sign: int = 1) -> None:
        """Count a placement, or with `sign` -1 remove it."""
        ...


LimitsOf = Callable[[Snapshot, Job], Sequence[Limit]]


def no_limits(snapshot: Snapshot, job: Job) -> Sequence[Limit]:
    """The default: no limits on any job."""
    return ()


def limits_now(limits: LimitsOf, snapshot: Snapshot, job: Job) -> Sequence[Limit]:
    """The limits of a job, reduced by plans in flight."""
    asked = tuple(limits(snapshot, job))
    for plan in snapshot.ahead if asked else ():
        other = snapshot.jobs.get((plan.namespace, plan.job_id))
        names = {limit.name for limit in limits(snapshot, other)} if other is not None else set()
        shared = [limit for limit in asked if limit.name in names]
        for usage, node_ids in takers_of(snapshot, plan) if shared else ():
            for _ in node_ids:
                take(shared, usage)
    return asked


def exceeded(limits: Iterable[Limit], usage: Usage) -> tuple[str, tuple[str, ...]] | None:
    """The first limit that one more allocation would exceed, and by which dimension."""
    for limit in limits:
        dimensions = tuple(limit.lacking(usage))
        if dimensions:
            return limit.name, dimensions
    return None


def take(limits: Iterable[Limit], usage: Usage, sign: int = 1) -> None:
    """Count an allocation against all limits."""
    for limit in limits:
        limit.take(usage, sign)


class LimitCheck:
    """Checks the placements of one attempt against its job's limits; `current` is what is left."""

    def __init__(self, make: Callable[[], Sequence[Limit]]) -> None:
        self._make = make
        self.current: Sequence[Limit] = make()
        self.reached = ""
        """The name of the limit that refused a placement last; empty for none."""

    def restart(self) -> None:
        """Start again without placements."""
        self.current = self._make()

    def refuses(self, usage: Usage, given_back: Usage | None = None) -> tuple[str, ...]:
        """How one more usage would exceed a limit after another one is freed; empty when it fits."""
        if given_back is not None:
            take(self.current, given_back, -1)
        found = exceeded(self.current, usage)
        if given_back is not None:
            take(self.current, given_back)
        if found is None:
            return ()
        self.reached = found[0]
        return found[1]

    def take(self, usage: Usage, sign: int = 1) -> None:
        """Count a placement, or with `sign` -1 the usage it replaces."""
        take(self.current, usage, sign)
