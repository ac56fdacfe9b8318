"""Limits beside the nodes: what allocations may take together, whatever room the nodes have.

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
    """What is left of one limit, while a plan is made."""

    @property
    def name(self) -> str:
        """The quota's name, equal names being one quota; what waits for it is tried again when some of it is freed."""
        ...

    def lacking(self, usage: Usage) -> Sequence[str]:
        """How one more allocation would exceed it: "memory exhausted (512 needed, 300 left)"; nothing when it fits."""
        ...

    def take(self, usage: Usage, sign: int = 1) -> None:
        """An allocation is placed, or with `sign` -1 given back."""
        ...


LimitsOf = Callable[[Snapshot, Job], Sequence[Limit]]


def no_limits(snapshot: Snapshot, job: Job) -> Sequence[Limit]:
    """Every job may take what it finds."""
    return ()


def limits_now(limits: LimitsOf, snapshot: Snapshot, job: Job) -> Sequence[Limit]:
    """The limits of a job, less what the plans ahead of the state take of them."""
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
    """The first limit that one more allocation would exceed, and how."""
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
    """Checks the placements of one attempt against the limits of its job; `current` is what is left of them."""

    def __init__(self, make: Callable[[], Sequence[Limit]]) -> None:
        self._make = make
        self.current: Sequence[Limit] = make()
        self.reached = ""
        """The name of the limit that refused a placement last; empty for none."""

    def restart(self) -> None:
        """Nothing is placed any more."""
        self.current = self._make()

    def refuses(self, usage: Usage, given_back: Usage | None = None) -> tuple[str, ...]:
        """How one more usage would exceed a limit once another one is given back; nothing when it fits."""
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
        """Count a placement, or with `sign` -1 what it replaces."""
        take(self.current, usage, sign)
