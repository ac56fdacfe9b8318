"""The model of a deployment against a real server: what ends it, and what must not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from yurt.testing.histories.checker import check
from yurt.testing.histories.clients import Clients, new_session
from yurt.testing.histories.deployment_requests import CanaryKind, DeploymentKind
from yurt.testing.histories.deployments import (
    FIRST,
    SECOND,
    DeploymentModel,
    Fail,
    FindDeployment,
    JobBody,
    LatestDeployment,
    MarkStable,
    Pause,
    Promote,
    Purge,
    ReadService,
    RegisterService,
    RolloutState,
    SetHealth,
)  # fmt: skip
from yurt.testing.histories.history import Operation, Reply, Request
from yurt.testing.histories.programs import RequestProgram, run_program
from yurt.testing.histories.report import report_on
from yurt.testing.http_api import Api, add_ready_node, serving

KIND = DeploymentKind()
KEY = KIND.key(1)


DRIVEN: Sequence[tuple[Request, Reply]] = (
    (RegisterService(FIRST), Reply(200, 5)),
    (MarkStable(), Reply(200, 6)),
    (RegisterService(SECOND), Reply(200, 7)),
    (FindDeployment(), Reply(200, 8, LatestDeployment("d", 1, "running"))),
)
TERMINAL = Reply(500, 0, "can't resume terminal deployment")
LEFT = (RegisterService("third"), Reply(200, 9))
LOST: dict[str, Sequence[tuple[Request, Reply]]] = {
    "a deployment ended though nobody asked for that": [(Pause("d", False), TERMINAL)],
    "a pause is undone": [
        (Pause("d", True), Reply(200, 9)), (FindDeployment(), Reply(200, 9, LatestDeployment("d", 1, "running"))),
    ],
    "a failure is undone": [
        (Fail("d"), Reply(200, 9, 0)), (FindDeployment(), Reply(200, 9, LatestDeployment("d", 1, "paused"))),
    ],
    "a failure is overwritten by a cancellation": [
        (Fail("d"), Reply(200, 9, 0)), LEFT, (FindDeployment(), Reply(200, 10, LatestDeployment("d", 1, "cancelled"))),
    ],
    "a cancelled deployment is resumed": [LEFT, (Pause("d", False), TERMINAL), (Pause("d", False), Reply(200, 10))],
    "a cancelled deployment is running": [
        LEFT, (Pause("d", False), TERMINAL), (FindDeployment(), Reply(200, 9, LatestDeployment("d", 1, "running"))),
    ],
    "a pause after a newer version is undone": [
        LEFT, (Pause("d", True), Reply(200, 10)),
        (FindDeployment(), Reply(200, 10, LatestDeployment("d", 1, "running"))),
    ],
    "a deployment without a job is paused": [(Purge(), Reply(200, 9)), (Pause("d", True), Reply(200, 10))],
    "a failure undoes a newer version": [
        LEFT, (Fail("d"), Reply(200, 10)), (ReadService(), Reply(200, 10, JobBody(3, FIRST))),
    ],
}  # fmt: skip


HEALTHY, UNHEALTHY = (SetHealth("d", "c", verdict) for verdict in (True, False))
NOT_HEALTHY = Reply(500, 0, 'Task group "web" has 0/1 healthy allocations')
LOST_CANARIES: dict[str, Sequence[tuple[Request, Reply]]] = {
    "a canary without health is promoted": [(Promote("d"), Reply(200, 9))],
    "an unhealthy canary is promoted": [
        (HEALTHY, Reply(200, 9)), (UNHEALTHY, Reply(200, 10)), (Promote("d"), Reply(200, 11)),
    ],
    "a verdict is lost": [(HEALTHY, Reply(200, 9)), (Promote("d"), NOT_HEALTHY)],
    "a canary is promoted twice": [
        (HEALTHY, Reply(200, 9)), (Promote("d"), Reply(200, 10)), (Promote("d"), Reply(200, 11)),
    ],
    "a promotion is undone": [
        (HEALTHY, Reply(200, 9)), (Promote("d"), Reply(200, 10)),
        (FindDeployment(), Reply(200, 10, LatestDeployment("d", 1, "running", health=(1, 0)))),
    ],
    "a deployment succeeds without a promotion": [
        (HEALTHY, Reply(200, 9)),
        (FindDeployment(), Reply(200, 10, LatestDeployment("d", 1, "successful", health=(1, 0)))),
    ],
    "a successful deployment fails": [
        (HEALTHY, Reply(200, 9)), (Promote("d"), Reply(200, 10)),
        (FindDeployment(), Reply(200, 11, LatestDeployment("d", 1, "successful", promoted=True, health=(1, 0)))),
        (Fail("d"), Reply(200, 12)),
    ],
    "a failed deployment succeeds": [
        (HEALTHY, Reply(200, 9)), (Promote("d"), Reply(200, 10)), (Fail("d"), Reply(200, 11)),
        (FindDeployment(), Reply(200, 12, LatestDeployment("d", 1, "successful", promoted=True, health=(1, 0)))),
    ],
}  # fmt: skip


def one_by_one(pairs: Sequence[tuple[Request, Reply]]) -> list[Operation]:
    return [
        Operation(at, at, KEY, request, invoked=at * 10, returned=at * 10 + 5, answer=answer)
        for at, (request, answer) in enumerate(pairs)
    ]


@pytest.fixture(name="api")
async def running_api() -> AsyncIterator[Api]:
    async with serving() as api:
        yield api


class Client:
    """Sends one request after another and keeps what was answered."""

    def __init__(self, api: Api) -> None:
        self._clients = Clients([str(api.client.make_url("")).rstrip("/")], [KIND], seed=1)
        self.past: list[Operation] = []

    async def send(self, *requests: Request) -> Operation:
        """The last answer."""
        async with new_session() as session:
            for request in requests:
                found = await self._clients.send(session, KIND, self._clients.plan(KEY, request, client=0))
                assert found is not None
                self.past.append(found)
        return self.past[-1]

    async def driven(self) -> str:
        """The deployment of the second version."""
        found = await self.send(RegisterService(FIRST), MarkStable(), RegisterService(SECOND))
        while not isinstance(found.answer.body, LatestDeployment) or found.answer.body.version != 1:
            found = await self.send(FindDeployment())
        return found.answer.body.id


async def test_a_registration_that_comes_late_ends_the_deployment(api: Api) -> None:
    client = Client(api)
    deployment = await client.driven()

    await client.send(RegisterService(FIRST))
    ended = await api.wait_until(f"/v1/deployment/{deployment}", lambda found: found["Status"] != "running")
    resumed = await client.send(Pause(deployment, False))

    assert ended["StatusDescription"] == "Cancelled due to newer version of job"
    assert resumed.answer.body == "can't resume terminal deployment"
    assert check(KIND.model, client.past).is_linearizable


async def test_a_purge_ends_the_deployment_and_its_failure_brings_nothing_back(api: Api) -> None:
    client = Client(api)
    deployment = await client.driven()

    await client.send(Purge(), RegisterService(FIRST), MarkStable(), RegisterService(SECOND))
    await client.send(Fail(deployment), ReadService())
    await api.wait_until(f"/v1/deployment/{deployment}", lambda found: found["Status"] != "running")
    await client.send(Pause(deployment, True), ReadService())

    assert check(KIND.model, client.past).is_linearizable


@pytest.mark.parametrize("name", LOST)
def test_a_lost_status_has_no_order_that_explains_it(name: str) -> None:
    assert check(KIND.model, one_by_one(DRIVEN)).is_linearizable

    assert not check(KIND.model, one_by_one([*DRIVEN, *LOST[name]])).is_linearizable


def test_what_a_newer_version_does_to_a_deployment_is_explained_before_and_after_its_cancellation() -> None:
    before = (Pause("d", True), Reply(200, 10)), (FindDeployment(), Reply(200, 10, LatestDeployment("d", 1, "paused")))
    after = (FindDeployment(), Reply(200, 11, LatestDeployment("d", 1, "cancelled"))), (Pause("d", False), TERMINAL)

    assert check(KIND.model, one_by_one([*DRIVEN, LEFT, *before, *after])).is_linearizable


class Broken(DeploymentModel):
    """Knows nothing of pauses."""

    def step(self, state: RolloutState, request: Any, answer: Reply | None) -> RolloutState | None:
        is_paused = isinstance(request, Pause) and answer is not None and answer.status == 200
        return None if is_paused else super().step(state, request, answer)


async def test_a_violation_comes_with_what_the_servers_recorded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = DeploymentKind()
    kind.model = Broken()
    monkeypatch.setattr("yurt.testing.histories.programs.all_kinds", lambda node_id: [kind])

    report = await run_program(RequestProgram(seed=1, operations=100), [str(api.client.make_url("")).rstrip("/")])

    assert len(report.unexplained) == len(report.violations) > 0
    key = report.unexplained[0].key
    assert f"/v1/job/{key}/deployments?all=true at agents 0" in str(report)
    assert '"StatusDescription": "Deployment is ' in report.evidence
    assert '"TriggeredBy": "job-register"' in report.evidence


@pytest.mark.parametrize("name", LOST_CANARIES)
def test_a_lost_promotion_or_verdict_has_no_order_that_explains_it(name: str) -> None:
    model = DeploymentModel(has_canary=True)
    assert check(model, one_by_one(DRIVEN)).is_linearizable

    assert not check(model, one_by_one([*DRIVEN, *LOST_CANARIES[name]])).is_linearizable


async def test_the_model_explains_canaries_under_concurrent_requests(api: Api) -> None:
    await add_ready_node(api)
    clients = Clients([str(api.client.make_url("")).rstrip("/")], [CanaryKind("*")], seed=3)

    await clients.run(600)

    report = report_on(clients.recorded)
    assert report.is_clean, str(report)
    assert clients.outcomes["canary Promote 200"] > 5
    assert clients.outcomes["canary SetHealth 200"] > 10
