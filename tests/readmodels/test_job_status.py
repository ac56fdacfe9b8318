"""The word for what a job does: nothing that fails is called running, and nothing that runs is called failed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.readmodels.job_status import (
    COMPLETE,
    DEGRADED,
    DEPLOYING,
    FAILED,
    FAILING,
    RUNNING,
    SCALED_DOWN,
    SCHEDULED,
    STARTING,
    STATUSES,
    STOPPED,
    WAITING,
    Circumstances,
    Counts,
    job_status,
    sentence,
)

SERVICE, BATCH = Circumstances(), Circumstances(is_batch=True)
DEAD, DEAD_BATCH = Circumstances(is_dead=True), Circumstances(is_batch=True, is_dead=True)


@pytest.mark.parametrize(
    ("counts", "around", "status"),
    [
        (Counts(desired=3, running=3), SERVICE, RUNNING),
        (Counts(desired=3, running=3, failed=7, lost=1), SERVICE, RUNNING),
        (Counts(desired=3, running=2, starting=1, failed=1), SERVICE, STARTING),
        (Counts(desired=3, running=2, failed=1), SERVICE, DEGRADED),
        (Counts(desired=3, failed=3), SERVICE, FAILING),
        (Counts(desired=3, failed=3), DEAD, FAILED),
        (Counts(desired=3, lost=3), DEAD, FAILED),
        (Counts(desired=1, starting=1, restarting=1), SERVICE, FAILING),
        (Counts(desired=2, running=1, starting=1, restarting=1), SERVICE, DEGRADED),
        (Counts(desired=3, running=1, waiting=2), SERVICE, WAITING),
        (Counts(desired=3, waiting=3, failed=1), SERVICE, WAITING),
        (Counts(desired=3, running=2, unknown=1), SERVICE, DEGRADED),
        (Counts(desired=3, running=2, failed=9), Circumstances(deployment="active"), DEPLOYING),
        (Counts(desired=3, running=2, failed=9), Circumstances(deployment="active", unhealthy=1), DEGRADED),
        (Counts(desired=3, running=3), Circumstances(deployment="failed"), DEGRADED),
        (Counts(desired=0), SERVICE, SCALED_DOWN),
        (Counts(desired=3, running=3), Circumstances(is_stopped=True), STOPPED),
        (Counts(), Circumstances(is_template=True), SCHEDULED),
        (Counts(desired=2, complete=2), DEAD_BATCH, COMPLETE),
        (Counts(desired=2, complete=2, failed=5), DEAD_BATCH, COMPLETE),
        (Counts(desired=2, complete=1, running=1), BATCH, RUNNING),
        (Counts(desired=2, complete=1, failed=1), DEAD_BATCH, FAILED),
        (Counts(desired=2, complete=1, failed=1), BATCH, FAILING),
        (Counts(desired=2, starting=2), BATCH, STARTING),
    ],
)
def test_the_status_says_what_the_allocations_do(counts: Counts, around: Circumstances, status: str) -> None:
    assert job_status(counts, around) == status


NUMBER = st.integers(0, 3)
COUNTS = st.builds(Counts, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, st.just(0)) | st.builds(
    Counts, NUMBER, NUMBER, st.integers(1, 3), NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, st.just(1)
)
AROUND = st.builds(
    Circumstances, st.booleans(), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from(["", "active", "failed"]), NUMBER,
)  # fmt: skip


@given(COUNTS, AROUND)
def test_a_status_never_claims_what_is_not_so(counts: Counts, around: Circumstances) -> None:
    found = job_status(counts, around)
    assert found in STATUSES
    if found == RUNNING:
        done = counts.complete if around.is_batch else 0
        assert counts.running + done >= counts.desired and not counts.restarting and not counts.unknown
    if found in (FAILED, FAILING):
        assert not counts.running
    if found == COMPLETE:
        assert around.is_batch and not counts.running
    if found == WAITING:
        assert counts.waiting
    if not around.is_stopped and not around.is_template and counts.restarting:
        assert found in (FAILING, DEGRADED)


def test_a_sentence_has_the_numbers_that_matter() -> None:
    assert sentence(Counts(desired=3, running=1, waiting=2), WAITING) == "1 of 3 runs, 2 wait for capacity"
    assert sentence(Counts(desired=3, running=0, failed=1), FAILED) == "0 of 3 run, 1 has failed"
    assert sentence(Counts(desired=2, starting=2, restarting=1), FAILING) == "0 of 2 run, 1 starts, 1 restarts"
    assert sentence(Counts(desired=3, running=3, failed=9), RUNNING) == ""
