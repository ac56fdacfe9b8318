"""Reads that wait, or work in a thread, decide by the rights of the right moment."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from yurt.access import needs
from yurt.access.needs import Capability
from yurt.acl.fixed_rights import FixedRights
from yurt.http import dispatcher, routes
from yurt.http.audit import AuditRecord
from yurt.http.call import CONTEXT, Call
from yurt.http.query import NO_OPTIONS
from yurt.http.routes import QUERY
from yurt.sdk.value import replace
from yurt.server.config import AclConfig
from yurt.structs.commands import DeleteACLTokens, RegisterNode, SetNodeStatus
from yurt.structs.network import NetworkResource
from yurt.testing.access import Callers, bootstrapped
from yurt.testing.http_api import job_document, ready_node

from tests.access.test_cost import Transport, own_connection
from tests.http.test_audit import auditing

READ = needs.namespace(Capability.READ_JOB)


async def test_a_read_that_waits_once_asks_for_its_rights_again() -> None:
    seen: list[bool] = []

    async with bootstrapped() as callers:
        made = await callers.token(Type="management")

        async def answers_at_once(call: Call) -> web.Response:
            assert call.access.sees_all
            return web.Response()

        async def waits_once(call: Call) -> web.Response:
            seen.append(call.access.sees_all)
            await callers.api.server.replica.propose(DeleteACLTokens(accessor_ids=(made["AccessorID"],)))
            seen.append(call.access.sees_all)
            return web.Response()

        app = callers.api.client.server.app

        async def ask(handler: Any) -> None:
            request = make_mocked_request(
                "GET",
                "/v1/jobs",
                headers={"X-Nomad-Token": made["SecretID"]},
                app=app,
                transport=Transport(),
                protocol=own_connection(),
            )
            read = dispatcher.Read(routes.get("/v1/jobs", handler, needs=READ, scope=QUERY), NO_OPTIONS)
            await dispatcher.answered(read, request, app[CONTEXT])

        await ask(answers_at_once)
        await ask(answers_at_once)
        await ask(waits_once)
    assert seen == [True, False]


async def test_a_right_that_ends_while_the_audit_line_is_written_opens_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = AuditRecord.begin
    path = "/v1/yurt/job/web/logs"
    async with auditing(tmp_path, acl=AclConfig(enabled=True)) as audited:
        answer = await audited.api.call("POST", "/v1/acl/bootstrap")
        audited.root = answer.json["SecretID"]
        made = await audited.api.call(
            "PUT", "/v1/acl/token", {"Type": "management", "Name": "m"}, headers={"X-Nomad-Token": audited.root}
        )

        async def slow(self: AuditRecord) -> None:
            await begin(self)
            await audited.api.server.replica.propose(DeleteACLTokens(accessor_ids=(made.json["AccessorID"],)))

        asked = {"token": made.json["SecretID"]}
        assert [await audited.call("GET", path, **asked) for _ in range(2)] == [404, 404]
        monkeypatch.setattr(AuditRecord, "begin", slow)
        assert await audited.call("GET", path, **asked) == 403


RULES = """
namespace "default" { policy = "write" }
node_pool "*" { policy = "write" }
node { policy = "read" }
"""


def asking_for_a_port(namespace: str) -> dict[str, Any]:
    made = job_document("web", Type="service", Namespace=namespace)
    group = made["TaskGroups"][0]
    group["Networks"] = [{"Mode": "host", "ReservedPorts": [{"Label": "p", "Value": 8080}]}]
    group["Tasks"][0] |= {"Driver": "mock_driver", "Resources": {"CPU": 100, "MemoryMB": 100}}
    return made


async def with_rows(callers: Callers) -> str:
    """Make a queue, a node, and a job of another namespace that holds a port of it; the secret of a caller."""
    assert (await callers.put("/v1/namespace/other", {"Name": "other"})).status == 200
    assert (await callers.put("/v1/node/pool/gpu", {"Name": "gpu", "BatchQueue": {"Type": "fifo"}})).status == 200
    waiting = {"Job": job_document("waits", Type="batch", NodePool="gpu")}
    assert (await callers.put("/v1/jobs", waiting)).status == 200
    node, replica = ready_node(), callers.api.server.replica
    networks = (NetworkResource(mode="host", device="eth0", ip="10.0.0.1"),)
    await replica.propose(
        RegisterNode(node=replace(node, node_resources=replace(node.node_resources, networks=networks)))
    )
    await replica.propose(SetNodeStatus(node_id=node.id, status="ready", updated_at=1))
    assert (await callers.put("/v1/jobs", {"Job": asking_for_a_port("other")})).status == 200
    for _ in range(100):
        placed = await callers.get("/v1/job/web/allocations?namespace=other&index=1&wait=100ms")
        if placed.json:
            break
    assert placed.json
    return await callers.secret_for(RULES)


async def test_work_in_a_thread_asks_no_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    """`AclAuthority` refuses questions of a second thread, and a refusal is an answer with the status 500."""
    asked: set[str] = set()
    allows = FixedRights.allows

    def noted(self: FixedRights, *arguments: Any) -> bool:
        if threading.current_thread() is not threading.main_thread():
            asked.add(current)
        return allows(self, *arguments)

    monkeypatch.setattr(FixedRights, "allows", noted)
    async with bootstrapped() as callers:
        secret = await with_rows(callers)
        for current in (
            "/v1/queue/jobs?node_pool=gpu&namespace=*",
            "/v1/yurt/job/web/accounting",
            "/v1/yurt/accounting?namespace=*",
            "/ui/plain/",
            "/ui/plain/jobs/waits",
        ):
            answer = await callers.get(current, token=secret)
            assert answer.status in (200, 404), answer.text
        current = "/v1/yurt/job/why-not"
        answer = await callers.put(current, {"Job": asking_for_a_port("default")}, token=secret)
    assert answer.status == 200 and "a job of another namespace has it" in answer.text
    assert asked >= {"/v1/queue/jobs?node_pool=gpu&namespace=*", "/ui/plain/", current}
