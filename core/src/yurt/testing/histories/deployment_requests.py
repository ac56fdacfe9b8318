"""Requests on a deployment over HTTP, and the choice of the next one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from yurt.testing.histories.deployments import (
    FIRST,
    SECOND,
    WATCHED,
    DeploymentModel,
    Fail,
    FindAllocations,
    FindDeployment,
    JobBody,
    LatestDeployment,
    MarkStable,
    Pause,
    Promote,
    Purge,
    ReadService,
    RegisterService,
    SetHealth,
)  # fmt: skip
from yurt.testing.histories.history import Operation, Reply, Request
from yurt.testing.histories.job_requests import job_document
from yurt.testing.histories.kinds import PreparedRequest, job_records, put

HOUR_NS: Final = 3_600 * 10**9


class DeploymentKind:
    """A deployment without feasible nodes: only requests and newer versions of the job change it.

    The first version is marked stable, and a failure goes back to it.
    """

    name = "deployment"

    def __init__(self) -> None:
        self.model = DeploymentModel()

    def key(self, number: int) -> str:
        """A job id."""
        return f"service-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        if isinstance(request, RegisterService):
            update = {"MaxParallel": 1, "AutoRevert": True}
            document = job_document(key, (2,), {"mark": request.mark}, Type="service", Update=update)
            return put("/v1/jobs", {"Job": document})
        return _prepared(key, request)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        return _body_of(request, document)

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        answers, asked = _answers(past), _carried_out(past)
        if RegisterService(FIRST) not in asked:
            return RegisterService(FIRST)
        if MarkStable() not in asked:
            return MarkStable()
        if RegisterService(SECOND) not in asked:
            return RegisterService(SECOND)
        found = _found(answers)
        if found is None:
            return FindDeployment(max(each.index for each in answers))
        requests = (
            Pause(found.id, True), Pause(found.id, False), Fail(found.id), Promote(found.id), FindDeployment(),
            ReadService(), Purge(), RegisterService(mark),
        )  # fmt: skip
        return rng.choices(requests, _WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return FindDeployment(), ReadService()

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return job_records(key)


class CanaryKind:
    """A deployment with a running canary whose health is set by requests only."""

    name = "canary"

    def __init__(self, datacenter: str) -> None:
        self._datacenter = datacenter
        self.model = DeploymentModel(has_canary=True)

    def key(self, number: int) -> str:
        """A job id."""
        return f"canary-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        if isinstance(request, RegisterService):
            return put("/v1/jobs", {"Job": canary_document(key, request.mark, self._datacenter)})
        return _prepared(key, request)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        return _body_of(request, document)

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        answers, asked = _answers(past), _carried_out(past)
        latest = max((each.index for each in answers), default=0)
        if RegisterService(FIRST) not in asked:
            return RegisterService(FIRST)
        if not any(isinstance(each.body, int) and each.body > 0 for each in answers):
            return FindAllocations(latest)
        if RegisterService(SECOND) not in asked:
            return RegisterService(SECOND)
        found = _found(answers)
        if found is None or not found.canary:
            return FindDeployment(latest)
        requests = (
            Pause(found.id, True), Pause(found.id, False), Fail(found.id), Promote(found.id), FindDeployment(),
            ReadService(), Purge(), RegisterService(mark), SetHealth(found.id, found.canary, True),
            SetHealth(found.id, found.canary, False),
        )  # fmt: skip
        return rng.choices(requests, _CANARY_WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return FindDeployment(), ReadService()

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return job_records(key)


def canary_document(key: str, mark: str, datacenter: str) -> dict[str, Any]:
    """A service of one small allocation; a new mark replaces it by way of a canary."""
    task = {
        "Name": "main", "Driver": "mock_driver", "Config": {"run_for": "2h"}, "Env": {"MARK": mark},
        "Resources": {"CPU": 1, "MemoryMB": 10}, "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1},
    }  # fmt: skip
    group = {
        "Name": "web", "Count": 1, "Tasks": [task], "EphemeralDisk": {"SizeMB": 10},
        "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
        "Update": {"MaxParallel": 1, "Canary": 1, "HealthCheck": "manual", "ProgressDeadline": 2 * HOUR_NS},
    }  # fmt: skip
    return {
        "ID": key, "Name": key, "Type": "service", "Meta": {"mark": mark}, "Datacenters": [datacenter],
        "TaskGroups": [group],
    }  # fmt: skip


def _prepared(key: str, request: Any) -> PreparedRequest:
    at = f"/v1/deployment/{{}}/{getattr(request, 'id', '')}"
    match request:
        case MarkStable():
            return put(f"/v1/job/{key}/stable", {"JobID": key, "JobVersion": 0, "Stable": True})
        case FindDeployment(after=after):
            return PreparedRequest("GET", f"/v1/job/{key}/deployment{_waiting(after)}")
        case FindAllocations(after=after):
            return PreparedRequest("GET", f"/v1/job/{key}/allocations{_waiting(after)}")
        case Pause(id=found, pause=pause):
            return put(at.format("pause"), {"DeploymentID": found, "Pause": pause})
        case Fail():
            return put(at.format("fail"))
        case Purge():
            return PreparedRequest("DELETE", f"/v1/job/{key}?purge=true")
        case Promote(id=found):
            return put(at.format("promote"), {"DeploymentID": found, "All": True})
        case SetHealth(id=found, canary=canary, is_healthy=is_healthy):
            verdict = "HealthyAllocationIDs" if is_healthy else "UnhealthyAllocationIDs"
            return put(at.format("allocation-health"), {"DeploymentID": found, verdict: [canary]})
        case _:
            return PreparedRequest("GET", f"/v1/job/{key}")


def _waiting(after: int) -> str:
    return f"?index={after}&wait=500ms" if after else ""


def _body_of(request: Any, document: Any) -> Any:
    match request:
        case FindDeployment():
            return _shown(document) if document else None
        case FindAllocations():
            return len(document)
        case ReadService():
            return JobBody(document["Version"], document["Meta"]["mark"])
        case Fail():
            return document["RevertedJobVersion"]
        case _:
            return None


def _shown(document: Any) -> LatestDeployment:
    (group,) = document["TaskGroups"].values()
    return LatestDeployment(
        id=document["ID"],
        version=document["JobVersion"],
        status=document["Status"],
        promoted=group["Promoted"],
        canary=next(iter(group["PlacedCanaries"] or ()), ""),
        health=(group["HealthyAllocs"], group["UnhealthyAllocs"]),
    )


def _answers(past: Sequence[Operation]) -> list[Reply]:
    return [each.answer for each in past if each.answer is not None and not each.answer.is_refusal]


def _carried_out(past: Sequence[Operation]) -> set[Request]:
    return {each.request for each in past if each.answer is not None and not each.answer.is_refusal}


def _found(answers: Sequence[Reply]) -> LatestDeployment | None:
    """The deployment under test: the first one seen with its canary, else the first one seen."""
    bodies = [each.body for each in answers if isinstance(each.body, LatestDeployment) and each.body.version == WATCHED]
    return next((each for each in bodies if each.canary), bodies[0] if bodies else None)


_WEIGHTS: Final = (6, 5, 2, 1, 4, 4, 1, 1)
_CANARY_WEIGHTS: Final = (5, 4, 1, 5, 5, 3, 1, 1, 4, 1)
