"""Capacity reserved for the first waiting jobs that do not fit: when they start at the latest, and what may pass them.

The reservations are made in the order of the queue on one timeline of free capacity: running allocations give back
theirs at their ends, and each reserved job takes its own at its start and gives it back at its limit. Each gets what
those before it leave, and starts no earlier than they do; so time only moves forward from one reservation to the next.

An allocation whose limit is over may still run: its client kills late, or is out of contact. Such allocations are
expected to end in the order of their limits, at different times. So a reservation whose start is over begins now, with
those of their ends that it needs; the others still hold their capacity then.

What may pass is asked for each reserved start: a job that runs past it must leave the reserved capacity on every node
where the reserved job was planned, since the scheduler chooses the node.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from yurt.queue.waiting_job import JobKey
from yurt.scheduler.capacity.pool_capacity import PendingAllocs, PlannedAllocs, PoolCapacity
from yurt.sdk.value import seconds
from yurt.server.queueing.entries import QueueEntry
from yurt.server.queueing.pool_view import PoolView
from yurt.structs.alloc import Allocation

RELEASES_MAX: Final = 4_000
"""Running allocations whose ends are considered for reservations: those that end first."""
PATIENCE: Final = seconds(36 * 3600)
"""The time for which a job may be overtaken while its start is unknown because running jobs have no limit."""

End = tuple[int, Allocation | PlannedAllocs]
"""The time at which allocations give back their capacity."""


class Promise(NamedTuple):
    """A job for which capacity is reserved, and the time from which it has it; 0: unknown."""

    key: JobKey
    start: int
    is_sure: bool = True
    """It follows from limits; otherwise from run times of the past."""


class ReleasedJob(NamedTuple):
    """A job that is about to run: the state does not show yet what it takes."""

    entry: QueueEntry
    planned: tuple[PlannedAllocs, ...]
    """Where the free capacity was taken for it; the scheduler may choose other nodes."""


class _Timeline:
    """The free capacity of a pool at a time that moves from one end to the next."""

    def __init__(self, free_capacity: PoolCapacity, ends: list[End], position: int = 0) -> None:
        """`ends` are sorted by time."""
        self.free_capacity, self.position = free_capacity, position
        """The time of the last end that has passed, which may be over; 0 before the first."""
        self._ends = ends

    def copy(self) -> _Timeline:
        """A copy that moves on its own."""
        return _Timeline(self.free_capacity.copy(), list(self._ends), self.position)

    def take(self, planned: Sequence[PlannedAllocs], *, end: int) -> None:
        """Take capacity where it was planned, until an end (0: for ever) unless that has passed."""
        if end and end <= self.position:
            return
        for one in planned:
            self.free_capacity.take_planned(one)
        self.give_back(planned, end)

    def give_back(self, planned: Sequence[PlannedAllocs], end: int) -> None:
        """Give back, at its end (0: never), what was taken."""
        for one in planned if end else ():
            insort(self._ends, (end, one), key=itemgetter(0))

    def move_to(self, time: int) -> None:
        """Let all ends up to a time pass."""
        self.position = max(self.position, time)
        passed = 0
        while passed < len(self._ends) and self._ends[passed][0] <= self.position:
            passed += 1
        if passed:
            self.free_capacity.release([one for _, one in self._ends[:passed]])
            del self._ends[:passed]

    def plan(self, demands: Sequence[PendingAllocs]) -> tuple[PlannedAllocs, ...]:
        """Move to the first time at which some of these allocations fit, and take capacity for them; empty if there is
        none, and the timeline is of no use then."""
        if not self.free_capacity.has_capacity(demands):
            count = self.free_capacity.first_release(demands, [one for _, one in self._ends])
            if count < 0:
                return ()
            time = self._ends[count - 1][0]
            del self._ends[:count]
            self.move_to(time)
        planned = tuple(self.free_capacity.plan(demands))
        assert planned, (demands, "it fits after these releases")
        return planned


class _Plan(NamedTuple):
    """Where the next reserved job takes its capacity, and the timeline at its start; nothing changes either."""

    cause: Hashable
    """What it depends on, in addition to the state and the plans before it."""
    timeline: _Timeline
    planned: tuple[PlannedAllocs, ...]
    """Empty if it fits at no time."""
    is_sure: bool
    """By limits; otherwise by run times of the past."""


class _Reservation:
    """The pool's free capacity at the start of a reserved job, without the job's own, and the rows that it uses."""

    def __init__(self, entry: QueueEntry, plan: _Plan, start: int) -> None:
        self.entry, self.plan, self.start = entry, plan, start
        self._rows = tuple(dict.fromkeys(at for one in plan.planned for at, _ in one.rows))
        self._free_capacity = plan.timeline.free_capacity
        self._is_own = False

    def fits_on_each(self, demands: Sequence[PendingAllocs]) -> bool:
        """Whether all of these allocations fit in addition to the reserved job, on whichever of its rows they land."""
        return self._free_capacity.fits_on_each(self._rows, demands)

    def use(self, demands: Sequence[PendingAllocs]) -> None:
        """Count these allocations on each of its rows. Few decisions need the copy: the plan is kept for later ones."""
        if not self._is_own:
            self._free_capacity, self._is_own = self._free_capacity.copy(), True
        self._free_capacity.use_on(self._rows, demands)


class Reservations:
    """The reservations of one decision."""

    def __init__(self, view: PoolView, now: int, released: Sequence[ReleasedJob]) -> None:
        """`released`: jobs that are in flight when the decision begins."""
        self.promises: list[Promise] = []
        self._view, self._now = view, now
        self._released = list(released)
        self._reservations: list[_Reservation] = []
        self._counted = 0
        """The number of released jobs that the last plan counts with."""
        self._is_closed = False

    def note_release(self, job: ReleasedJob) -> None:
        """Count a job of this decision as running."""
        self._released.append(job)

    def permits(self, entry: QueueEntry) -> bool:
        """Whether a job may start before waiting ones: it ends in time, or leaves their capacity wherever it runs."""
        if self._is_closed:
            return False
        end = self._now + entry.waiting.limit if entry.waiting.limit else 0
        late = [reservation for reservation in self._reservations if not end or end > reservation.start]
        if not all(reservation.fits_on_each(entry.demands) for reservation in late):
            return False
        for reservation in late:
            reservation.use(entry.demands)
        return True

    def add(self, entry: QueueEntry) -> None:
        """Reserve capacity for a job that does not fit, while there are fewer reservations than configured.

        Where limits do not say when it fits, the run times of the past do; others that end before may pass it, until
        it has waited for as long as a boost takes. Then nothing does.
        """
        if len(self.promises) >= max(1, self._view.queue.reservations):
            return
        plan = self._planned(entry)
        start = max(self._now, plan.timeline.position) if plan.planned else 0
        is_sure = bool(plan.planned) and plan.is_sure
        self.promises.append(Promise(entry.waiting.key, start, is_sure))
        if plan.planned:
            self._reservations.append(_Reservation(entry, plan, start))
        elif self._reservations and self._view.has_more_ends(RELEASES_MAX):
            # Ends beyond those looked at may free enough: it goes without a reservation until it comes first.
            return
        fair = self._view.queue.fair_share
        patience = fair.boost_after if fair is not None and fair.boost_after else PATIENCE
        is_patient = self._now - entry.waiting.since < patience
        if not plan.planned or not (is_sure or is_patient):
            self._is_closed = True

    def _planned(self, entry: QueueEntry) -> _Plan:
        """The plan of the next reserved job. While nothing is released, plans are kept until the pool changes: most
        decisions reserve for the same first jobs."""
        if self._released:
            return self._made_plan(entry, cause=())
        plans: list[_Plan] = self._view.remembered("reserved", list)
        number = len(self.promises)
        ends: tuple[int, ...] = ()
        if self._reservations:
            last = self._reservations[-1]
            ends = tuple(self._end(last.entry, last.start, is_sure=is_sure) for is_sure in (True, False))
        cause = (ends, *((one.ask.signature, one.number, one.least) for one in entry.demands))
        if number >= len(plans) or plans[number].cause != cause:
            plans[number:] = [self._made_plan(entry, cause)]
        return plans[number]

    def _made_plan(self, entry: QueueEntry, cause: Hashable) -> _Plan:
        """The plan of the next reserved job: by limits, else by run times of the past."""
        is_sure = not self._reservations or self._reservations[-1].plan.is_sure
        timeline = self._next_timeline(is_sure=is_sure)
        planned = timeline.plan(entry.demands)
        if not planned and is_sure and self._has_unlimited():
            is_sure, timeline = False, self._made_timeline(is_sure=False)
            planned = timeline.plan(entry.demands)
        if planned:
            self._counted = len(self._released)
        return _Plan(cause, timeline, planned, is_sure)

    def _next_timeline(self, *, is_sure: bool) -> _Timeline:
        """A timeline at the start of the last reservation, with what was released since it was planned."""
        if not self._reservations:
            return self._made_timeline(is_sure=is_sure)
        last = self._reservations[-1]
        timeline = last.plan.timeline.copy()
        timeline.give_back(last.plan.planned, self._end(last.entry, last.start, is_sure=is_sure))
        for job in self._released[self._counted :]:
            self._run(timeline, job, is_sure=is_sure)
        return timeline

    def _made_timeline(self, *, is_sure: bool) -> _Timeline:
        """The timeline from the state, at the start of the last reservation."""
        view = self._view
        ends: list[End] = []
        ends.extend(view.ends(RELEASES_MAX) if is_sure else view.expected_ends(self._now, RELEASES_MAX))
        timeline = _Timeline(view.free_capacity(), ends)
        for job in self._released:
            self._run(timeline, job, is_sure=is_sure)
        for reservation in self._reservations:
            timeline.move_to(reservation.plan.timeline.position)
            timeline.take(
                reservation.plan.planned, end=self._end(reservation.entry, reservation.start, is_sure=is_sure)
            )
        return timeline

    def _run(self, timeline: _Timeline, job: ReleasedJob, *, is_sure: bool) -> None:
        """Take what a released job takes from now on."""
        for planned in job.planned:
            limit = planned.ask.group.max_run_duration
            end = self._now + limit if limit else self._end(job.entry, self._now, is_sure=is_sure)
            timeline.take((planned,), end=end)

    def _end(self, entry: QueueEntry, start: int, *, is_sure: bool) -> int:
        """The end of a job that starts then: by its limit (0: none), or as expected."""
        limit = entry.waiting.limit or (0 if is_sure else self._view.expected_run_time(entry.job))
        return start + limit if limit else 0

    def _has_unlimited(self) -> bool:
        entries = [*(job.entry for job in self._released), *(reservation.entry for reservation in self._reservations)]
        return self._view.has_unlimited or not all(entry.waiting.limit for entry in entries)
