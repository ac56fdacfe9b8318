"""Registration, versions, stop, purge, stability and status of jobs."""

from __future__ import annotations

import pytest
from yurt.sdk.value import UnixNano, replace
from yurt.state import Tables
from yurt.structs import status
from yurt.structs.cluster import Namespace
from yurt.structs.commands import (
    DeleteEvaluations,
    DeleteJobs,
    DeregisterJob,
    RecordPeriodicLaunch,
    RecordScalingEvent,
    RegisterJob,
    SetJobStability,
    SetJobVersionTag,
    UpsertEvaluations,
    UpsertNamespaces,
)
from yurt.structs.job import Job, JobSubmission, JobVersionTag, PeriodicConfig, ScalingEvent
from yurt.testing import factories
from yurt.testing.replica import Replica

KEY = ("default", "web")


def with_count(count: int, **changes: object) -> Job:
    return factories.job(task_groups=(factories.group(count=count),), **changes)


def register(replica: Replica, job: Job, **changes: object) -> Job:
    replica.apply(RegisterJob(job=job, evaluation=factories.evaluation(job), **changes))
    return replica.state.jobs[job.key]


def versions(replica: Replica) -> list[int]:
    return sorted(version for *_, version in replica.state.job_versions.keys_where("job", KEY))


def test_a_new_job_is_version_0_and_commits_with_its_evaluation(replica: Replica) -> None:
    job = register(replica, factories.job(version=9, modify_index=77, stable=True, status="dead"))
    assert (job.version, job.create_index, job.modify_index, job.job_modify_index) == (0, 1, 1, 1)
    assert not job.stable
    assert job.status == status.JOB_PENDING
    assert [one.create_index for one in replica.state.evals.where("job", KEY)] == [1]
    assert set(replica.state.job_summaries[KEY].summary) == {"web"}


@pytest.mark.parametrize(
    "ignored",
    [
        {"status": "running"}, {"status_description": "x"}, {"stable": True}, {"version": 4}, {"create_index": 8},
        {"modify_index": 8}, {"job_modify_index": 8}, {"submit_time": UnixNano(1)},
        {"version_tag": JobVersionTag(name="golden")},
    ],
)  # fmt: skip
def test_the_same_specification_makes_no_version_but_an_evaluation(
    replica: Replica, ignored: dict[str, object]
) -> None:
    first = register(replica, factories.job())
    again = register(replica, factories.job(**ignored))
    assert again is first
    assert len(replica.state.evals.where("job", KEY)) == 2


def test_a_changed_specification_makes_the_next_version(replica: Replica) -> None:
    register(replica, with_count(1), submission=JobSubmission(source="one"))
    job = register(replica, with_count(2), submission=JobSubmission(source="two"))
    assert (job.version, job.create_index, job.job_modify_index) == (1, 1, 2)
    assert replica.state.job_submissions[(*KEY, 0)].source == "one"
    assert replica.state.job_submissions[(*KEY, 1)].source == "two"
    assert replica.state.version(*KEY, 0) is not None


def test_six_untagged_versions_are_kept(replica: Replica) -> None:
    for count in range(1, 10):
        register(replica, with_count(count), submission=JobSubmission(source=str(count)))
    assert versions(replica) == [3, 4, 5, 6, 7, 8]
    assert replica.state.job_submissions.get((*KEY, 2)) is None


def test_the_newest_stable_version_survives_in_place_of_the_next_one(replica: Replica) -> None:
    register(replica, with_count(1))
    replica.apply(SetJobStability(namespace="default", job_id="web", version=0, stable=True))
    for count in range(2, 10):
        register(replica, with_count(count))
    assert versions(replica) == [0, 4, 5, 6, 7, 8]


def tag(name: str, version: int, **changes: object) -> SetJobVersionTag:
    command = SetJobVersionTag(namespace="default", job_id="web", name=name, version=version, tag=JobVersionTag())
    return replace(command, **changes)


def test_a_tagged_version_does_not_count(replica: Replica) -> None:
    register(replica, with_count(1))
    replica.apply(tag("golden", 0))
    for count in range(2, 10):
        register(replica, with_count(count))
    assert versions(replica) == [0, 3, 4, 5, 6, 7, 8]
    assert replica.state.jobs[KEY].version_tag is None


def test_a_tag_names_one_version_until_it_is_taken_away(replica: Replica) -> None:
    register(replica, with_count(1))
    register(replica, with_count(2))
    replica.apply(tag("golden", 0), tag("golden", 0))
    assert replica.reject(tag("golden", 1)).kind == "conflict"
    assert replica.reject(tag("silver", 9)).kind == "not_found"
    assert replica.reject(tag("silver", 0, tag=None)).kind == "not_found"
    replica.apply(tag("golden", 0, tag=None), tag("golden", 1))
    assert replica.state.jobs[KEY].version_tag == JobVersionTag(name="golden")
    first = replica.state.version(*KEY, 0)
    assert first is not None
    assert first.version_tag is None


def test_twenty_scaling_events_are_kept_newest_first(replica: Replica) -> None:
    register(replica, factories.job())
    for count in range(25):
        event = ScalingEvent(count=count)
        replica.apply(RecordScalingEvent(namespace="default", job_id="web", group="web", event=event))
    events = replica.state.scaling_events[KEY].scaling_events["web"]
    assert [event.count for event in events] == list(range(24, 4, -1))
    assert events[0].create_index == replica.state.index
    odd = RecordScalingEvent(namespace="default", job_id="web", group="odd", event=ScalingEvent())
    assert replica.reject(odd).kind == "not_found"


def test_stability_changes_no_version_and_no_job_modify_index(replica: Replica) -> None:
    register(replica, factories.job())
    replica.apply(SetJobStability(namespace="default", job_id="web", version=0, stable=True))
    job = replica.state.jobs[KEY]
    assert (job.stable, job.version, job.modify_index, job.job_modify_index) == (True, 0, 2, 1)
    assert replica.state.version(*KEY, 0) is job


def test_stopping_is_a_new_version_and_keeps_the_job(replica: Replica) -> None:
    register(replica, factories.job())
    replica.apply(DeregisterJob(namespace="default", job_id="web", evaluation=factories.evaluation()))
    job = replica.state.jobs[KEY]
    assert (job.stop, job.version) == (True, 1)


def test_purging_leaves_nothing_but_evaluations(replica: Replica) -> None:
    register(replica, factories.job(), submission=JobSubmission(source="x"))
    replica.apply(RecordPeriodicLaunch(namespace="default", job_id="web", launched_at=factories.NOW))
    replica.apply(DeregisterJob(namespace="default", job_id="web", purge=True, evaluation=factories.evaluation()))
    for table in ("jobs", "job_versions", "job_summaries", "job_submissions", "periodic_launches"):
        assert len(replica.state.table(table)) == 0
    assert len(replica.state.evals) == 2


def test_a_job_that_comes_back_starts_over(replica: Replica) -> None:
    register(replica, with_count(2))
    replica.apply(DeregisterJob(namespace="default", job_id="web", purge=True))
    job = register(replica, factories.job())
    assert (job.version, job.create_index) == (0, 3)


def test_commands_on_unknown_jobs_are_rejected(replica: Replica) -> None:
    assert replica.reject(DeregisterJob(namespace="default", job_id="web")).kind == "not_found"
    stable = SetJobStability(namespace="default", job_id="web", version=0, stable=True)
    assert replica.reject(stable).kind == "not_found"


def test_a_job_needs_its_namespace_and_its_node_pool(replica: Replica) -> None:
    assert "namespace" in replica.reject(RegisterJob(job=factories.job(namespace="ops"))).message
    assert "node pool" in replica.reject(RegisterJob(job=factories.job(node_pool="gpu"))).message
    replica.apply(UpsertNamespaces(namespaces=(Namespace(name="ops"),)))
    replica.apply(RegisterJob(job=factories.job(namespace="ops")))


def test_status_goes_from_pending_to_dead_with_its_evaluation(replica: Replica) -> None:
    job = register(replica, factories.job())
    evaluation = replica.state.evals.where("job", KEY)[0]
    assert job.status == status.JOB_PENDING
    replica.apply(UpsertEvaluations(evaluations=(replace(evaluation, status=status.EVAL_COMPLETE),)))
    assert replica.state.jobs[KEY].status == status.JOB_DEAD
    replica.apply(DeleteEvaluations(eval_ids=(evaluation.id,)))
    assert replica.state.jobs[KEY].status == status.JOB_DEAD


def test_a_job_without_evaluations_is_pending(replica: Replica) -> None:
    replica.apply(RegisterJob(job=factories.job()))
    assert replica.state.jobs[KEY].status == status.JOB_PENDING


@pytest.mark.parametrize("changes", [{"type": "system"}, {"periodic": PeriodicConfig(spec="@daily")}])
def test_system_and_periodic_jobs_run_until_stopped(replica: Replica, changes: dict[str, object]) -> None:
    replica.apply(RegisterJob(job=factories.job(**changes)))
    assert replica.state.jobs[KEY].status == status.JOB_RUNNING
    replica.apply(DeregisterJob(namespace="default", job_id="web"))
    assert replica.state.jobs[KEY].status == status.JOB_DEAD


def test_a_parent_counts_its_children(replica: Replica) -> None:
    replica.apply(RegisterJob(job=factories.job(periodic=PeriodicConfig(spec="@daily"))))
    register(replica, factories.job("web/periodic-1", parent_id="web", type="batch"))
    children = replica.state.job_summaries[KEY].children
    assert children is not None
    assert (children.pending, children.running, children.dead) == (1, 0, 0)


def test_garbage_collection_spares_a_job_that_lives_again(replica: Replica) -> None:
    register(replica, factories.job())
    replica.apply(DeleteJobs(keys=(KEY,)))
    assert KEY in replica.state.jobs
    evaluation = replica.state.evals.where("job", KEY)[0]
    replica.apply(UpsertEvaluations(evaluations=(replace(evaluation, status=status.EVAL_COMPLETE),)))
    replica.apply(DeleteJobs(keys=(KEY, ("default", "gone"))))
    assert KEY not in replica.state.jobs


def test_a_version_that_is_missing_is_there_again_when_the_status_of_its_job_changes(replica: Replica) -> None:
    job = register(replica, factories.job())
    edit = replica.state.edit(replica.state.index + 1)
    edit.delete(Tables.job_versions, (*KEY, job.version))
    replica.state = edit.commit()
    (evaluation,) = replica.state.evals.values()

    replica.apply(UpsertEvaluations(evaluations=(replace(evaluation, status=status.EVAL_COMPLETE),)))

    job = replica.state.jobs[KEY]
    assert job.status == status.JOB_DEAD and replica.state.version(*KEY, job.version) == job
    assert versions(replica) == [job.version]
