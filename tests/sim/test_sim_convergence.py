"""What a settled cluster may leave undone: a version whose deployment failed, even when it was collected since. And
which gangs are placed in part."""

from __future__ import annotations

import pytest
from yurt.fsm import apply
from yurt.scheduler.capacity.limits import no_limits
from yurt.sdk.value import replace
from yurt.state import Change, Snapshot, Tables
from yurt.structs import status
from yurt.structs.commands import RegisterJob, RegisterNode, UpsertEvaluations
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job
from yurt.structs.policies import Gang
from yurt.structs.status import ClientStatus
from yurt.testing import factories
from yurt.testing.sim.change_checks import gangs_in_part
from yurt.testing.sim.checks import Checks
from yurt.testing.sim.convergence import is_halted, unfinished_jobs, version_of
from yurt.testing.sim.loop import SimLoop
from yurt.testing.sim.transcript import Transcript

WEB = Job(id="web", namespace="default", version=2, create_index=7)


def checks_after(*statuses: str) -> Checks:
    """Checks that saw deployments of WEB with these statuses, one after the other."""
    loop = SimLoop(1)
    checks = Checks(Transcript(loop))
    loop.close()
    for each in statuses:
        deployment = Deployment(id="d", job_id="web", job_version=2, job_create_index=7, status=each)
        checks._check_changes(Snapshot.empty(), Snapshot.empty(), [Change("deployments", "d", None, deployment)])
    return checks


def test_a_version_whose_failed_deployment_was_collected_places_nothing_more() -> None:
    assert version_of(WEB) in checks_after(status.DEPLOYMENT_FAILED).failed
    assert is_halted(Snapshot.empty(), WEB, has_failed=True)


def test_a_version_whose_deployment_did_not_fail_must_run() -> None:
    assert version_of(WEB) not in checks_after(status.DEPLOYMENT_SUCCESSFUL).failed
    assert not is_halted(Snapshot.empty(), WEB, has_failed=False)


def test_a_version_that_got_another_deployment_after_the_failed_one_must_run() -> None:
    again = (status.DEPLOYMENT_FAILED, status.DEPLOYMENT_RUNNING, status.DEPLOYMENT_SUCCESSFUL)
    assert version_of(WEB) not in checks_after(*again).failed


def test_the_deployment_of_an_earlier_version_does_not_hide_that_the_collected_one_failed() -> None:
    edit = Snapshot.empty().edit(8)
    earlier = Deployment(id="d", namespace="default", job_id="web", job_version=1, job_create_index=7)
    edit.put(Tables.deployments, "d", replace(earlier, status=status.DEPLOYMENT_CANCELLED))
    state = edit.commit()
    assert state.latest_deployment("default", "web") is not None
    assert is_halted(state, WEB, has_failed=True) and not is_halted(state, WEB, has_failed=False)


def added(version: Job, number: int) -> Change:
    alloc = factories.alloc(version, on=factories.node(factories.number_id(0, kind=1)), id=f"a{number}")
    return Change("allocs", alloc.id, None, alloc)


def with_allocs(changes: list[Change]) -> Snapshot:
    edit = Snapshot.empty().edit(9)
    for change in changes:
        edit.put(Tables.allocs, change.key, change.after)
    return edit.commit()


def test_a_gang_in_part_is_a_problem_and_a_replacement_of_the_version_before_it_is_none() -> None:
    plain = factories.job(task_groups=(factories.group(count=3),))
    gang = factories.job(task_groups=(factories.group(count=3, gang=Gang(min=2)),), version=1)
    one, two = [added(gang, 1)], [added(gang, 1), added(gang, 2)]
    empty = Snapshot.empty()
    assert gangs_in_part(empty, with_allocs(one), one).startswith("B6 1 of 2 members")
    assert gangs_in_part(empty, with_allocs(two), two) == ""
    before = [added(plain, 3)]
    assert gangs_in_part(empty, with_allocs(before), before) == ""


def test_a_member_that_a_drain_moves_while_others_are_missing_is_no_problem() -> None:
    gang = factories.job(task_groups=(factories.group(count=3, gang=Gang(min=2)),))
    old, new = added(gang, 1), added(gang, 2)
    assert old.after is not None
    stopped = Change("allocs", old.key, old.after, replace(old.after, desired_status=status.DESIRED_STOP))
    assert gangs_in_part(with_allocs([old]), with_allocs([stopped, new]), [stopped, new]) == ""


def test_a_job_that_nothing_evaluates_although_it_is_short_is_not_at_rest() -> None:
    node, job = factories.node(factories.number_id(0, kind=1)), factories.job()
    state = Snapshot.empty()
    for command in (RegisterNode(node=node), RegisterJob(job=job)):
        state = apply(state, command, index=state.index + 1).state
    text = "web: nothing evaluates it, and an evaluation would place 1, stop 0 and change 0"
    assert unfinished_jobs(state, factories.NOW, no_limits) == [text]
    evaluation = factories.evaluation(job)
    state = apply(state, UpsertEvaluations(evaluations=(evaluation,)), index=state.index + 1).state
    assert unfinished_jobs(state, factories.NOW, no_limits) == []


def test_a_job_whose_failed_deployment_was_collected_is_at_rest() -> None:
    state = Snapshot.empty()
    for command in (
        RegisterNode(node=factories.node(factories.number_id(0, kind=1))),
        RegisterJob(job=factories.job()),
    ):
        state = apply(state, command, index=state.index + 1).state
    (job,) = state.jobs.values()
    assert unfinished_jobs(state, factories.NOW, no_limits)
    assert unfinished_jobs(state, factories.NOW, no_limits, {version_of(job)}) == []


@pytest.mark.parametrize("client_status", [status.CLIENT_FAILED, status.CLIENT_COMPLETE])
def test_a_system_job_is_at_rest_although_an_allocation_has_failed(client_status: ClientStatus) -> None:
    node, job = factories.node(factories.number_id(0, kind=1)), factories.job(type=status.JOB_SYSTEM)
    state = Snapshot.empty()
    for command in (RegisterNode(node=node), RegisterJob(job=job)):
        state = apply(state, command, index=state.index + 1).state
    edit = state.edit(state.index + 1)
    edit.put(Tables.allocs, "a", factories.alloc(job, on=node, id="a", client_status=client_status))
    found = unfinished_jobs(edit.commit(), factories.NOW, no_limits)
    assert bool(found) is (client_status == status.CLIENT_COMPLETE)
