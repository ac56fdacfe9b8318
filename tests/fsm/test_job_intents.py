"""Scaling, dispatching, launching and evaluating jobs: decided on the state at the command's position in the log."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.fsm.basis import expectation
from yurt.fsm.eval_triggers import Mint, requested_evaluation
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs import status
from yurt.structs.cluster import SchedulerConfiguration
from yurt.structs.commands import (
    ApplyPlan,
    DeregisterJob,
    DispatchJob,
    EvaluateJob,
    Expectation,
    LaunchPeriodicJob,
    RegisterJob,
    ScaleJob,
    SetDeploymentStatus,
    SetSchedulerConfiguration,
    UpsertEvaluations,
)
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import ParameterizedJobConfig, PeriodicConfig, ScalingEvent
from yurt.structs.plan import DeploymentUpdate, Plan
from yurt.structs.rules import FORCED_LAUNCH_RULES
from yurt.structs.task import ScalingPolicy
from yurt.testing import factories
from yurt.testing.replica import Replica

KEY = ("default", "web")
AT = UnixNano(factories.NOW + seconds(60))


def asked(job_id: str = "web", trigger: str = status.TRIGGER_SCALING) -> Evaluation:
    return requested_evaluation(("default", job_id), trigger, Mint(AT, factories.new_id))


def scale(count: int | None, **changes: Any) -> ScaleJob:
    event = ScalingEvent(count=count, time=AT)
    command = ScaleJob(namespace="default", job_id="web", group="web", event=event, evaluation=asked())
    return replace(command, **changes)


def dispatch(child_id: str, **changes: Any) -> DispatchJob:
    command = DispatchJob(
        namespace="default", job_id="batch", child_id=child_id, evaluation=asked(child_id), idempotency_token="once"
    )
    return replace(command, **changes)


def launch(at: UnixNano, **changes: Any) -> LaunchPeriodicJob:
    command = LaunchPeriodicJob(namespace="default", job_id="cron", launched_at=at, evaluation=asked("cron"))
    return replace(command, **changes)


@pytest.fixture
def two_groups(replica: Replica) -> Replica:
    """A job with the groups `web` and `cache`, one allocation each."""
    replica.apply(RegisterJob(job=factories.job(task_groups=(factories.group(), factories.group("cache")))))
    return replica


def counts(replica: Replica) -> dict[str, int]:
    return {group.name: group.count for group in replica.state.jobs[KEY].task_groups}


def test_scales_of_two_groups_keep_each_other(two_groups: Replica) -> None:
    two_groups.apply(scale(3), scale(4, group="cache"))
    assert counts(two_groups) == {"web": 3, "cache": 4}
    assert two_groups.state.jobs[KEY].version == 2


def test_a_scale_after_a_stop_leaves_the_job_stopped(two_groups: Replica) -> None:
    two_groups.apply(DeregisterJob(namespace="default", job_id="web"), scale(3))
    assert two_groups.state.jobs[KEY].stop


def test_a_scale_after_a_purge_is_refused(two_groups: Replica) -> None:
    two_groups.apply(DeregisterJob(namespace="default", job_id="web", purge=True))
    assert two_groups.reject(scale(3)).kind == "not_found"


def test_a_scale_commits_with_its_evaluation_and_event(two_groups: Replica) -> None:
    command = scale(3)
    two_groups.apply(command)
    assert command.evaluation is not None
    evaluation = two_groups.state.evals[command.evaluation.id]
    assert (evaluation.type, evaluation.priority) == ("service", 50)
    assert evaluation.job_modify_index == two_groups.state.jobs[KEY].job_modify_index
    (event,) = two_groups.state.scaling_events[KEY].scaling_events["web"]
    assert (event.count, event.previous_count, event.eval_id) == (3, 1, evaluation.id)


def test_an_event_without_a_count_changes_no_job(two_groups: Replica) -> None:
    before = two_groups.state.jobs[KEY]
    two_groups.apply(scale(None, evaluation=None))
    assert two_groups.state.jobs[KEY] is before
    assert len(two_groups.state.scaling_events[KEY].scaling_events["web"]) == 1


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"group": "db"}, "invalid", "does not exist in job"),
        ({"event": ScalingEvent(count=-1)}, "invalid", "can't be negative: -1"),
        ({"event": ScalingEvent(count=9)}, "invalid", "greater than scaling policy maximum: 9 > 5"),
        ({"event": ScalingEvent(count=0)}, "invalid", "less than scaling policy minimum: 0 < 1"),
        ({"count_max": 2}, "invalid", "greater than configured job_max_count: 3 > 2"),
        ({"enforce_index": 7}, "conflict", "job exists with conflicting job modify index: 1"),
        ({"enforce_index": 0}, "conflict", "job already exists"),
    ],
)
def test_a_scale_is_refused_with_its_reason(replica: Replica, changes: dict[str, Any], kind: str, text: str) -> None:
    group = factories.group(scaling=ScalingPolicy(min=1, max=5))
    replica.apply(RegisterJob(job=factories.job(task_groups=(group,))))
    rejected = replica.reject(scale(3, **changes))
    assert rejected.kind == kind
    assert text in rejected.message


def test_a_scale_waits_for_the_deployment_that_is_active_then(two_groups: Replica) -> None:
    deployment = factories.deployment(two_groups.state.jobs[KEY])
    two_groups.apply(ApplyPlan(plan=Plan(eval_id="e", namespace="default", job_id="web", deployment=deployment)))
    assert "blocked due to active deployment" in two_groups.reject(scale(3)).message
    failed = DeploymentUpdate(deployment_id=deployment.id, status="failed")
    two_groups.apply(SetDeploymentStatus(update=failed), scale(3))
    assert counts(two_groups)["web"] == 3


def test_one_token_dispatches_one_child(replica: Replica) -> None:
    parent = factories.job("batch", type="batch", parameterized_job=ParameterizedJobConfig())
    replica.apply(RegisterJob(job=parent), dispatch("batch/dispatch-1"), dispatch("batch/dispatch-2"))
    assert {job.id for job in replica.state.jobs.values()} == {"batch", "batch/dispatch-1"}
    assert [one.job_id for one in replica.state.evals.values()] == ["batch/dispatch-1"]


def test_other_tokens_and_no_token_dispatch_others(replica: Replica) -> None:
    parent = factories.job("batch", type="batch", parameterized_job=ParameterizedJobConfig())
    replica.apply(
        RegisterJob(job=parent),
        dispatch("batch/dispatch-1"),
        dispatch("batch/dispatch-2", idempotency_token="twice"),
        dispatch("batch/dispatch-3", idempotency_token=""),
        dispatch("batch/dispatch-4", idempotency_token="", priority=70),
    )
    children = sorted(replica.state.jobs.where("parent", parent.key), key=lambda job: job.id)
    assert [(job.id[-1], job.priority) for job in children] == [("1", 50), ("2", 50), ("3", 50), ("4", 70)]


def test_a_parent_that_was_stopped_or_purged_dispatches_nothing(replica: Replica) -> None:
    parent = factories.job("batch", type="batch", parameterized_job=ParameterizedJobConfig())
    replica.apply(RegisterJob(job=parent), DeregisterJob(namespace="default", job_id="batch"))
    assert "is stopped" in replica.reject(dispatch("batch/dispatch-1")).message
    replica.apply(DeregisterJob(namespace="default", job_id="batch", purge=True))
    assert replica.reject(dispatch("batch/dispatch-1")).kind == "not_found"


@pytest.fixture
def cron(replica: Replica) -> Replica:
    """A periodic job, registered at index 1."""
    periodic = PeriodicConfig(spec="@daily", prohibit_overlap=False, enabled=True)
    replica.apply(RegisterJob(job=factories.job("cron", type="batch", periodic=periodic)))
    return replica


def test_one_time_of_a_schedule_launches_once(cron: Replica) -> None:
    cron.apply(launch(AT, specification_index=1), launch(AT, specification_index=1))
    assert len(cron.state.jobs.where("parent", ("default", "cron"))) == 1
    assert cron.state.periodic_launches[("default", "cron")].launch == AT


@pytest.mark.parametrize(
    "change",
    [
        DeregisterJob(namespace="default", job_id="cron"),
        RegisterJob(job=factories.job("cron", type="batch", periodic=PeriodicConfig(spec="@hourly"))),
    ],
)
def test_a_schedule_that_changed_launches_nothing_more(cron: Replica, change: Any) -> None:
    cron.apply(change)
    assert cron.reject(launch(AT, specification_index=1)).kind == "conflict"


@pytest.mark.parametrize(
    ("rules", "specification_index", "count"),
    [(FORCED_LAUNCH_RULES, 1, 1), (FORCED_LAUNCH_RULES, 0, 2), (FORCED_LAUNCH_RULES - 1, 0, 1)],
)
def test_launches_that_may_not_overlap_are_left_out_unless_forced(
    rules: int, specification_index: int, count: int
) -> None:
    replica = Replica(rules_version=rules)
    periodic = PeriodicConfig(spec="@daily", prohibit_overlap=True, enabled=True)
    replica.apply(RegisterJob(job=factories.job("cron", type="batch", periodic=periodic)))
    later = UnixNano(AT + seconds(60))

    replica.apply(launch(AT), launch(later, specification_index=specification_index))

    assert len(replica.state.jobs.where("parent", ("default", "cron"))) == count


def test_disabled_registration_denies_what_users_ask(cron: Replica) -> None:
    disabled = SchedulerConfiguration(reject_job_registration=True)
    parent = factories.job("batch", type="batch", parameterized_job=ParameterizedJobConfig())
    cron.apply(RegisterJob(job=parent), RegisterJob(job=factories.job()))
    cron.apply(SetSchedulerConfiguration(configuration=disabled))
    for command in (scale(3), dispatch("batch/dispatch-1"), launch(AT)):
        assert cron.reject(command).kind == "denied"
    cron.apply(launch(AT, specification_index=1))


def test_parents_of_others_are_not_evaluated(cron: Replica) -> None:
    evaluate = EvaluateJob(namespace="default", job_id="cron", evaluation=asked("cron"))
    assert cron.reject(evaluate).message == "can't evaluate periodic job"
    assert cron.reject(replace(evaluate, job_id="none")).kind == "not_found"


def test_a_command_is_stale_when_a_row_that_it_is_based_on_has_changed(replica: Replica) -> None:
    first = RegisterJob(job=factories.job(), based_on=(expectation(replica.state, "jobs", KEY),))
    replica.apply(first)
    rejected = replica.reject(replace(first, job=factories.job(priority=60)))
    assert rejected.kind == "stale"
    assert "jobs default/web changed at index 1" in rejected.message
    assert replica.state.jobs[KEY].priority == 50


def test_the_status_of_a_job_is_no_change_of_its_specification(replica: Replica) -> None:
    replica.apply(RegisterJob(job=factories.job(), evaluation=asked()))
    seen = expectation(replica.state, "jobs", KEY)
    ended = replace(replica.state.evals.where("job", KEY)[0], status=status.EVAL_COMPLETE)
    replica.apply(UpsertEvaluations(evaluations=(ended,)))
    assert replica.state.jobs[KEY].status == status.JOB_DEAD
    replica.apply(RegisterJob(job=factories.job(priority=60), based_on=(seen,)))


def test_a_command_based_on_an_unknown_table_is_invalid(replica: Replica) -> None:
    strange = RegisterJob(job=factories.job(), based_on=(Expectation(table="cookies", key="x", index=1),))
    assert replica.reject(strange).kind == "invalid"
