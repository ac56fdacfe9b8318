"""Reservations and backfill: the head is never delayed, nobody starves, nothing that fits is left."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.queue.backfill import BackfillRules, BackfillSchedule, boosted, decide, with_boosted
from yurt.queue.profile import NEVER, Profile
from yurt.queue.waiting_job import Waiting

from tests.queue.strategies import HOUR, SECOND, job, jobs

GPUS = 16
runs = st.lists(st.tuples(st.integers(1, 48).map(lambda hours: hours * HOUR), st.integers(1, 6)), max_size=6)
EASY = BackfillRules(reservations=1)


def vector(one: Waiting) -> tuple[int, ...]:
    return (one.asked.gpu // 1000,)


def profile_of(running: list[tuple[int, int]], now: int = 0) -> tuple[Profile, int]:
    kept: list[tuple[int, int]] = []
    for end, gpus in running:
        if sum(held for _, held in kept) + gpus <= GPUS:
            kept.append((end, gpus))
    free = GPUS - sum(gpus for _, gpus in kept)
    return Profile(now, (free,), [(end, (gpus,)) for end, gpus in kept]), free


def decided(
    waiting: list[Waiting], running: list[tuple[int, int]], rules: BackfillRules = EASY
) -> tuple[BackfillSchedule, int]:
    profile, free = profile_of(running)
    return decide(waiting, profile, rules, vector=vector), free


@given(jobs(), runs, st.integers(1, 8))
def test_what_starts_fits(waiting: list[Waiting], running: list[tuple[int, int]], reservations: int) -> None:
    decision, free = decided(waiting, running, BackfillRules(reservations=reservations))
    assert sum(vector(one)[0] for one in decision.starts) <= free


@given(jobs(), runs, st.integers(1, 8))
def test_backfill_never_delays_a_reservation(
    waiting: list[Waiting], running: list[tuple[int, int]], reservations: int
) -> None:
    rules = BackfillRules(reservations=reservations)
    decision, _ = decided(waiting, running, rules)
    # With the starts running, for as long as they may, each reservation still has its room at its time.
    started = [(one.limit, vector(one)[0]) for one in decision.starts]
    profile, _ = profile_of([])
    profile = Profile(0, profile.free[0], [])
    for end, gpus in [*_kept(running), *started]:
        profile.take((gpus,), 0, end)
    for kept in decision.reservations:
        assert kept.start < NEVER
        assert profile.earliest(vector(kept.job), kept.job.limit) <= kept.start
        profile.take(vector(kept.job), kept.start, kept.job.limit)
    assert all(min(free) >= 0 for free in profile.free), "nothing is promised twice"


@given(jobs(), runs, st.integers(2, 8), st.integers(0, 5))
def test_what_ends_early_moves_no_reservation_to_a_later_time(
    waiting: list[Waiting], running: list[tuple[int, int]], reservations: int, ended: int
) -> None:
    rules = BackfillRules(reservations=reservations)
    kept = _kept(running)
    decision, _ = decided(waiting, kept, rules)
    started = {one.key for one in decision.starts}
    now_running = [*(each for at, each in enumerate(kept) if at != ended)]
    now_running += [(one.limit, vector(one)[0]) for one in decision.starts]
    later, _ = decided([one for one in waiting if one.key not in started], now_running, rules)
    starts = {one.key: 0 for one in later.starts} | {one.job.key: one.start for one in later.reservations}
    assert all(starts[one.job.key] <= one.start for one in decision.reservations)


def _kept(running: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for end, gpus in running:
        if sum(held for _, held in kept) + gpus <= GPUS:
            kept.append((end, gpus))
    return kept


@given(jobs(), runs)
def test_the_head_is_promised_what_it_would_have_alone(waiting: list[Waiting], running: list[tuple[int, int]]) -> None:
    decision, _ = decided(waiting, running)
    alone, _ = decided([decision.reservations[0].job], running) if decision.reservations else (decision, 0)
    if decision.reservations and not decision.starts:
        assert decision.reservations[0].start == alone.reservations[0].start


@given(jobs(), runs)
def test_no_job_is_left_that_fits_and_delays_nobody(waiting: list[Waiting], running: list[tuple[int, int]]) -> None:
    decision, free = decided(waiting, running, BackfillRules(reservations=0, depth=0))
    started = {one.key for one in decision.starts}
    left = free - sum(vector(one)[0] for one in decision.starts)
    first = next((one for one in waiting if one.key not in started), None)
    assert first is None or vector(first)[0] > left


def test_without_a_limit_nothing_passes_a_reservation() -> None:
    waiting = [job(1, gpus=16), job(2, gpus=1, hours=0), job(3, gpus=1, hours=1)]
    decision, _ = decided(waiting, [(2 * HOUR, 8)])
    assert [one.key[1] for one in decision.starts] == ["job-3"]
    assert decision.reservations[0].start == 2 * HOUR
    limited, _ = decided(waiting, [(2 * HOUR, 8)], BackfillRules(reservations=1, default_limit=HOUR))
    assert [one.key[1] for one in limited.starts] == ["job-2", "job-3"]


def test_a_job_is_boosted_from_its_time_on_while_boosted_jobs_hold_little() -> None:
    one, rules = job(0)._replace(boost_at=HOUR), BackfillRules()
    assert boosted(one, rules, now=2 * HOUR, part_in_use=0.2) == one
    assert boosted(one, rules, now=HOUR // 2, part_in_use=0) is None
    assert boosted(one, rules, now=2 * HOUR, part_in_use=0.25) is None
    assert boosted(one._replace(boost_at=0), rules, now=2 * HOUR, part_in_use=0) is None
    assert boosted(None, rules, now=2 * HOUR, part_in_use=0) is None
    waiting = [one, *(job(number) for number in range(1, 6))]
    order = list(with_boosted(one, sorted(waiting, key=lambda each: -each.create_index)))
    assert order[0] == one
    assert sorted(order) == sorted(waiting)


def test_a_boosted_job_does_not_pass_a_higher_band() -> None:
    old, urgent = job(1), job(2, priority=80)
    assert list(with_boosted(old, [urgent, old])) == [urgent, old]


@dataclass
class _World:
    """A pool in virtual time with endless rivals of one GPU."""

    rules: BackfillRules
    now: int = 0
    free: int = GPUS
    ends: list[tuple[int, int, int]] = field(default_factory=list)

    def start(self, one: Waiting, duration: int) -> None:
        gpus = vector(one)[0]
        self.free -= gpus
        heapq.heappush(self.ends, (self.now + duration, self.now + one.limit, gpus))

    def advance(self) -> None:
        self.now, _, gpus = heapq.heappop(self.ends)
        self.free += gpus

    def decide(self, order: list[Waiting]) -> BackfillSchedule:
        profile = Profile(self.now, (self.free,), [(limit, (gpus,)) for _, limit, gpus in self.ends])
        oldest = min((one for one in order if one.boost_at), key=lambda one: one.boost_at, default=None)
        first = boosted(oldest, self.rules, now=self.now, part_in_use=0)
        return decide(with_boosted(first, order), profile, self.rules, vector=vector)


@settings(max_examples=30)
@given(st.integers(2, 16), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_no_job_starves_however_many_rivals_come(gpus: int, hours: list[int]) -> None:
    """The bound: boosted, and then not more than twice the longest limit, for one boosted job."""
    boost_after = 12 * HOUR
    world, large = _World(BackfillRules(reservations=2)), job(0, gpus=gpus, hours=4, tenant=("speech", ""))
    large, number = large._replace(boost_at=large.since + boost_after), 1
    longest = max(*hours, 4) * HOUR
    while True:
        # Rivals that always stand before it by share.
        rivals = [job(number + i, hours=hours[i % len(hours)], since=world.now) for i in range(GPUS)]
        number += GPUS
        decision = world.decide([*rivals, large])
        for one in decision.starts:
            if one is large:
                assert world.now - large.since <= boost_after + 2 * longest
                return
            world.start(one, one.limit - SECOND)
        world.advance()
        assert world.now < 100 * HOUR, "it starves"
