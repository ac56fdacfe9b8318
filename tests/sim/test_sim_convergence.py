"""What a settled cluster may leave undone: a version whose deployment failed, even when it was collected since."""

from __future__ import annotations

from yurt.state import Change, Snapshot
from yurt.structs import status
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job
from yurt.testing.sim.checks import Checks
from yurt.testing.sim.convergence import is_halted, version_of
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
        checks._check_changes(Snapshot.empty(), [Change("deployments", "d", None, deployment)])
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
