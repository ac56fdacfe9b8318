"""What follows from clients' reports."""

from __future__ import annotations

import pytest
from yurt.fsm.alloc_triggers import is_reschedulable, trigger_of
from yurt.sdk.value import replace, seconds
from yurt.structs.alloc import RescheduleEvent, RescheduleTracker
from yurt.structs.commands import AllocUpdate
from yurt.structs.policies import ReschedulePolicy
from yurt.testing import factories


def told(status: str) -> AllocUpdate:
    return AllocUpdate(id="a", node_id="n", client_status=status)


def test_a_failure_is_replaced_once() -> None:
    job = factories.job()
    alloc = factories.alloc(job, client_status="running")
    assert trigger_of(alloc, told("failed"), job, factories.NOW) == "alloc-failure"
    assert trigger_of(replace(alloc, client_status="failed"), told("failed"), job, factories.NOW) == ""
    assert trigger_of(replace(alloc, followup_eval_id="e"), told("failed"), job, factories.NOW) == ""


def test_an_unknown_allocation_that_reports_reconnects() -> None:
    job = factories.job()
    alloc = factories.alloc(job, client_status="unknown")
    assert trigger_of(alloc, told("running"), job, factories.NOW) == "reconnect"


def test_an_allocation_of_a_job_that_is_gone_is_stopped() -> None:
    alloc = factories.alloc(client_status="pending")
    assert trigger_of(alloc, told("running"), None, factories.NOW) == "job-deregister"
    assert trigger_of(alloc, told("complete"), None, factories.NOW) == ""


def test_a_success_needs_nobody() -> None:
    job = factories.job()
    assert trigger_of(factories.alloc(job), told("complete"), job, factories.NOW) == ""


@pytest.mark.parametrize(("age_s", "expected"), [(10, False), (7200, True)])
def test_only_recent_attempts_count(age_s: int, expected: bool) -> None:
    policy = ReschedulePolicy(attempts=1, interval=seconds(3600))
    job = factories.job(task_groups=(factories.group(reschedule_policy=policy),))
    event = RescheduleEvent(reschedule_time=factories.NOW - seconds(age_s))
    alloc = factories.alloc(job, reschedule_tracker=RescheduleTracker(events=(event,)))
    assert is_reschedulable(alloc, factories.NOW) is expected
