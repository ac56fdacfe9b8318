"""Figures of a played trace: limits of run times, and hours in which nobody waits."""

from __future__ import annotations

from yurt.queue.played_trace import HOUR, ServiceTally, TraceJob, mean_slowdown, private_ends


def test_a_job_lasts_no_longer_than_its_limit_on_a_private_share_and_in_the_slowdown() -> None:
    jobs = [TraceJob(1, 0, 10 * HOUR, 2 * HOUR, 1, "a"), TraceJob(2, 0, HOUR, 0, 1, "a")]
    assert private_ends(jobs, 1) == {1: 2 * HOUR, 2: 3 * HOUR}
    assert mean_slowdown(jobs[:1], {1: 4 * HOUR}) == 2


def test_years_in_which_nobody_waits_cost_nothing() -> None:
    tally = ServiceTally(0)
    tally.advance(10**6 * HOUR, used=2, free=2, used_by_tenant={"a": 2}, waiting={"a": 0}, smallest=0)
    assert tally.busy_s == 2 * 10**6 * 3600
    assert len(tally._service) == 0
