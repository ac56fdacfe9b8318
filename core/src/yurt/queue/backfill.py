"""Decides which waiting jobs start now: in order, with reservations for those that do not fit and backfill behind them.

The jobs come in their order, boosted ones first. One that fits now, for as long as it may run, starts. Of those that do
not fit, the first few get a reservation: the earliest time at which running jobs have released enough, at the latest
by the limits that jobs declare. What comes behind starts only where it delays no reservation: it ends before, or the
capacity suffices for both. Reservations are taken in the order of the list, so fillers of a tenant cannot lower the
place of its own reserved job. Each has what those before it leave, and begins no earlier than they do. Otherwise a job
that ends early could bring the first one forward into the time of the second, and the second would start later than
promised; as it is, each promise holds until its job starts, whatever ends early.

A job is *boosted* from a time on that is fixed when it comes (`turns.boost_time`): the one whose time came first stands
before all others of its band, whatever its tenant has used, unless jobs that were boosted when they started hold the
boosted part of the pool already. That bounds each wait: with k such times before its own, a job starts within
`boost_after` and k + 1 times the longest limit, only higher bands and lost nodes put it off; and it bounds what
fairness loses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from yurt.queue.amounts import WHOLE, Amounts, dominant_share
from yurt.queue.profile import NEVER, Profile, Vector
from yurt.queue.waiting_job import Waiting


class BackfillRules(NamedTuple):
    """The limits of the search; times in nanoseconds."""

    reservations: int = 1
    """The number of jobs that do not fit and get a reservation: 1 is EASY backfill; with 0 the first such job blocks
    the rest."""
    depth: int = 500
    """The number of jobs that do not fit and are passed over before the search ends."""
    boost_part: float = 0.25
    """The part of the pool up to which jobs are boosted together; a single one may exceed it."""
    default_limit: int = 0
    """The run time of jobs that declare none; 0 means unlimited."""


class CapacityReservation(NamedTuple):
    """Capacity reserved for a job from a time on; NEVER if no release frees enough."""

    job: Waiting
    start: int


class BackfillSchedule(NamedTuple):
    """The jobs that start now, and the reservations of those that wait."""

    starts: tuple[Waiting, ...]
    reservations: tuple[CapacityReservation, ...]


def boosted(job: Waiting | None, rules: BackfillRules, *, now: int, part_in_use: float) -> Waiting | None:
    """The job to boost, the one whose boost began first, or None; `part_in_use`: the share of the pool that earlier
    boosts use."""
    return job if job is not None and 0 < job.boost_at <= now and part_in_use < rules.boost_part else None


def stays_boosted(
    order: Sequence[Waiting],
    boost_after: int,
    *,
    now: int,
    until: int,
    in_use: Amounts,
    capacity: Amounts,
) -> bool:
    """Whether the first job of an order is boosted, and surely stays so until a time.

    Another could take its boost only if its own began before; and jobs that start after their boost began may use up
    the boosted part of the pool, so all that might do so must fit into it with what uses it already (`in_use`). A job
    that is submitted from now on is boosted after `boost_after` at the earliest.
    """
    first = order[0]
    if not 0 < first.boost_at <= now or until > now + boost_after:
        return False
    for job in order[1:]:
        if 0 < job.boost_at <= first.boost_at:
            return False
        if 0 < job.boost_at <= until:
            in_use = in_use.plus(job.asked)
    return dominant_share(in_use, capacity) / WHOLE < BackfillRules().boost_part


def with_boosted(first: Waiting | None, order: Iterable[Waiting]) -> Iterator[Waiting]:
    """The order with the boosted job before all others of its band and of lower ones."""
    waiting = first
    for job in order:
        if waiting is not None and waiting.band >= job.band:
            yield waiting
            waiting = None
        if first is None or job.key != first.key:
            yield job


def decide(
    order: Iterable[Waiting],
    profile: Profile,
    rules: BackfillRules,
    *,
    vector: Callable[[Waiting], Vector],
    least: Vector | None = None,
) -> BackfillSchedule:
    """The jobs that start now and the reservations; changes the profile. `least` is the smallest request of any job:
    below it, the search ends."""
    starts: list[Waiting] = []
    reservations: list[CapacityReservation] = []
    passed, last_start = 0, 0
    for job in order:
        if least is not None and not _any_capacity(least, profile.free[0]):
            break
        required, limit = vector(job), job.limit or rules.default_limit or NEVER
        if profile.has_capacity(required, limit):
            profile.take(required, profile.times[0], limit)
            starts.append(job)
            continue
        passed += 1
        if len(reservations) < rules.reservations:
            # None starts before those ahead of it: so what comes early, or starts early, moves none to a later time.
            start = profile.earliest(required, limit, since=last_start)
            reservations.append(CapacityReservation(job, start))
            if start < NEVER:
                profile.take(required, start, limit)
                last_start = start
        if not rules.reservations or passed > rules.depth:
            break
    return BackfillSchedule(tuple(starts), tuple(reservations))


def _any_capacity(least: Vector, free: Vector) -> bool:
    return all(map(int.__le__, least, free))
