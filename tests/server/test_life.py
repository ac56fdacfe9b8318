"""The log says what becomes of jobs and deployments."""

from __future__ import annotations

from yurt.sdk.value import replace
from yurt.server.log.job_log_lines import lifecycle_lines
from yurt.state import Change
from yurt.structs.deployment import Deployment
from yurt.testing import factories


def lines(table: str, before: object, after: object) -> list[str]:
    return list(lifecycle_lines([Change(table, "key", before, after)]))


def test_jobs_that_come_change_and_go_are_told_once() -> None:
    job = factories.job(id="web", namespace="default")
    stopped = replace(job, stop=True, version=1)
    registered, gone = "job registered: job=web namespace=default version=0", "job stopped: job=web namespace=default"
    assert lines("jobs", None, job) == [registered]
    assert lines("jobs", job, replace(job, status="running")) == []
    assert lines("jobs", job, replace(job, version=3)) == [registered.replace("version=0", "version=3")]
    assert lines("jobs", job, stopped) == lines("jobs", job, None) == [gone]
    assert lines("jobs", stopped, replace(job, version=2)) == [registered.replace("version=0", "version=2")]
    assert lines("jobs", stopped, None) == []


def test_the_end_of_a_deployment_is_told_with_its_reason() -> None:
    begun = Deployment(id="d" * 36, job_id="web", job_version=2, status="running")
    failed = replace(begun, status="failed", status_description="Failed due to progress deadline")
    assert lines("deployments", None, begun) == []
    assert lines("deployments", begun, replace(begun, status="paused")) == []
    assert lines("deployments", begun, failed) == [
        "deployment ended: deployment=dddddddd job=web version=2 status=failed: Failed due to progress deadline"
    ]
    assert lines("deployments", failed, None) == []
