"""Capacity reserved for the first waiting jobs that do not fit: when they start at the latest, and what may pass them.

The reservations are made in the order of the queue on one timeline of free capacity: running allocations give back
theirs at their ends, and each reserved job takes its own at its start and gives it back at its limit. Each gets what
those before it leave, and starts no earlier than they do; so time only moves forward from one reservation to the next.

What may pass is asked for each reserved start: a job that runs past it must leave the reserved capacity on every node
where the reserved job was planned, since the scheduler chooses the node.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
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


class _Reservation(NamedTuple):
    """The pool at the start of a reserved job, without what it takes, and the rows where it takes it."""

    entry: QueueEntry
    planned: tuple[PlannedAllocs, ...]
    start: int
    is_sure: bool
    free_capacity: PoolCapacity

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(at for one in self.planned for at, _ in one.rows))


class _Timeline:
    """The free capacity of a pool at a time that moves from one end to the next."""

    def __init__(self, free_capacity: PoolCapacity, now: int, ends: list[End]) -> None:
        """`ends` are sorted by time."""
        self.free_capacity, self.now = free_capacity, now
        self._ends = ends

    def copy(self) -> _Timeline:
        """A copy that moves on its own."""
        return _Timeline(self.free_capacity.copy(), self.now, list(self._ends))

    def take(self, planned: Sequence[PlannedAllocs], *, end: int) -> None:
        """Take capacity where it was planned, until an end (0: for ever) unless that is over."""
        if end and end <= self.now:
            return
        for one in planned:
            self.free_capacity.take_planned(one)
        self.give_back(planned, end)

    def give_back(self, planned: Sequence[PlannedAllocs], end: int) -> None:
        """Give back, at its end (0: never), what was taken."""
        for one in planned if end else ():
            insort(self._ends, (end, one), key=itemgetter(0))

    def move_to(self, time: int) -> None:
        """Move to a time, unless it is over."""
        self.now = max(self.now, time)
        passed = 0
        while passed < len(self._ends) and self._ends[passed][0] <= self.now:
            passed += 1
        if passed:
            self.free_capacity.release([one for _, one in self._ends[:passed]])
            del self._ends[:passed]

    def plan(self, demands: Sequence[PendingAllocs]) -> tuple[PlannedAllocs, ...]:
        """Move to the first time at which some of these allocations fit, and take capacity for them; empty if there is
        none."""
        if not self.free_capacity.has_capacity(demands):
            count = self.free_capacity.first_release(demands, [one for _, one in self._ends])
            if count < 0:
                return ()
            start = self._ends[count - 1][0]
            del self._ends[:count]
            self.move_to(start)
        planned = tuple(self.free_capacity.plan(demands))
        assert planned, (demands, "it fits after these releases")
        return planned


class Reservations:
    """The reservations of one decision."""

    def __init__(self, view: PoolView, now: int, released: Sequence[ReleasedJob]) -> None:
        """`released`: jobs that are in flight when the decision begins."""
        self.promises: list[Promise] = []
        self._view, self._now = view, now
        self._released = list(released)
        self._kept: list[_Reservation] = []
        self._timeline: _Timeline | None = None
        """By limits, at the start of the last reservation; None: to be made from the state."""
        self._is_closed = False

    def note_release(self, job: ReleasedJob) -> None:
        """Count a job of this decision as running."""
        self._released.append(job)
        if self._timeline is not None:
            self._run(self._timeline, job, is_sure=True)

    def permits(self, entry: QueueEntry) -> bool:
        """Whether a job may start before waiting ones: it ends in time, or leaves their capacity wherever it runs."""
        if self._is_closed:
            return False
        end = self._now + entry.waiting.limit if entry.waiting.limit else 0
        late = [kept for kept in self._kept if not end or end > kept.start]
        if not all(kept.free_capacity.spares(kept.rows, entry.demands) for kept in late):
            return False
        for kept in late:
            kept.free_capacity.use_on(kept.rows, entry.demands)
        return True

    def add(self, entry: QueueEntry) -> None:
        """Reserve capacity for a job that does not fit, while there are fewer reservations than configured.

        Where limits do not say when it fits, the run times of the past do; others that end before may pass it, until
        it has waited for as long as a boost takes. Then nothing does.
        """
        most = max(1, self._view.queue.reservations)
        if len(self.promises) >= most:
            return
        found = None if self._is_closed else self._reserved(entry, is_last=len(self.promises) + 1 == most)
        self.promises.append(
            Promise(entry.waiting.key, 0 if found is None else found.start, found is not None and found.is_sure)
        )
        fair = self._view.queue.fair_share
        patience = fair.boost_after if fair is not None and fair.boost_after else PATIENCE
        is_patient = self._now - entry.waiting.since < patience
        if found is None or not (found.is_sure or is_patient):
            self._is_closed = True
            return
        self._kept.append(found)

    def _reserved(self, entry: QueueEntry, *, is_last: bool) -> _Reservation | None:
        """The reservation of the next job: by limits, else by run times of the past."""
        if all(kept.is_sure for kept in self._kept):
            found = self._on(self._known_timeline(entry, is_sure=True), entry, is_sure=True, is_last=is_last)
            if found is not None or not self._has_unlimited():
                return found
        self._timeline = None
        return self._on(self._known_timeline(entry, is_sure=False), entry, is_sure=False, is_last=is_last)

    def _on(
        self,
        at: tuple[_Timeline, tuple[PlannedAllocs, ...] | None],
        entry: QueueEntry,
        *,
        is_sure: bool,
        is_last: bool,
    ) -> _Reservation | None:
        """The reservation on a timeline, with what is planned there already; the timeline moves to its start."""
        timeline, planned = at
        planned = timeline.plan(entry.demands) if planned is None else planned
        if not planned:
            return None
        timeline.move_to(self._now)
        timeline.give_back(planned, self._end(entry, timeline.now, is_sure=is_sure))
        if is_last or not is_sure:
            self._timeline, free_capacity = None, timeline.free_capacity
        else:
            self._timeline, free_capacity = timeline, timeline.free_capacity.copy()
        return _Reservation(entry, planned, timeline.now, is_sure, free_capacity)

    def _known_timeline(
        self, entry: QueueEntry, *, is_sure: bool
    ) -> tuple[_Timeline, tuple[PlannedAllocs, ...] | None]:
        """The timeline by limits, or with expected ends. While nothing else is planned, it is kept with the job's
        start until the pool changes: most decisions find the same first job."""
        if self._timeline is not None:
            return self._timeline, None
        if self._released or self._kept:
            return self._made_timeline(is_sure=is_sure), None
        key = ("reserved", is_sure, *((one.ask.signature, one.number, one.least) for one in entry.demands))

        def make() -> tuple[_Timeline, tuple[PlannedAllocs, ...]]:
            timeline = self._made_timeline(is_sure=is_sure)
            return timeline, timeline.plan(entry.demands)

        timeline, planned = self._view.remembered(key, make)
        return timeline.copy(), planned

    def _made_timeline(self, *, is_sure: bool) -> _Timeline:
        """The timeline from the state, at the start of the last reservation."""
        view = self._view
        ends: list[End] = []
        ends.extend(view.ends(RELEASES_MAX) if is_sure else view.expected_ends(self._now, RELEASES_MAX))
        timeline = _Timeline(view.free_capacity(), self._now, ends)
        for job in self._released:
            self._run(timeline, job, is_sure=is_sure)
        for kept in self._kept:
            timeline.move_to(kept.start)
            timeline.take(kept.planned, end=self._end(kept.entry, kept.start, is_sure=is_sure))
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
        entries = [*(job.entry for job in self._released), *(kept.entry for kept in self._kept)]
        return self._view.has_unlimited or not all(entry.waiting.limit for entry in entries)
