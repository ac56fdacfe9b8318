"""The index of a list that never had a row: 0, and 1 for lists of access control.

Also where the rows are computed from other tables that have some.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from yurt.http.app import make_app
from yurt.http.call import CONTEXT
from yurt.sdk.value import replace
from yurt.server.config import AclConfig
from yurt.structs.commands import RegisterNode
from yurt.structs.node import CSIInfo
from yurt.testing.fakes import eventually
from yurt.testing.http_api import Api, add_ready_node, ready_node, serving

ROUTES = (Path(__file__).parent / "routes.txt").read_text().splitlines()
"""The declared routes (`test_routes`): a new one is asked here as well."""
ENDLESS = ("/v1/event/stream", "/v1/agent/monitor", "/v1/operator/snapshot", "/v1/yurt/watch", "/v1/client/", "/ui")
ANSWERS_OF_AGENT = ("/v1/agent/", "/v1/status/", "/v1/regions", "/v1/yurt/plugins")
"""Lists without an index: they show no state."""
NAMED = [line.split()[1] for line in ROUTES if line.startswith("GET ") and "{" not in line]
PATHS = [
    *(path for path in NAMED if not path.startswith((*ENDLESS, *ANSWERS_OF_AGENT))),
    "/v1/volumes?type=csi", "/v1/volumes?type=host", "/v1/job/web/services", "/v1/job/web/deployments",
]  # fmt: skip
NEVER_BLOCKING = ("/v1/operator/keyring/keys", "/v1/volumes")
"""Lists that answer at once, as Nomad's do; without a type there are no volumes."""
FILLED = {
    "/v1/acl/policies", "/v1/acl/tokens", "/v1/allocations", "/v1/evaluations", "/v1/jobs", "/v1/jobs/statuses",
    "/v1/namespaces", "/v1/node/pools", "/v1/nodes",
}  # fmt: skip
"""The lists with rows in the cluster of the test: a node, a batch job, the first token and a policy."""
BEGIN_AT_1 = {"/v1/acl/auth-methods", "/v1/acl/binding-rules", "/v1/acl/roles"}
"""Lists of access control, whose index is 1 without rows, as Nomad's."""


@pytest.mark.parametrize("path", PATHS)
async def test_a_list_without_a_row_ever_has_its_first_index(path: str) -> None:
    async with serving(acl=AclConfig(enabled=True)) as api:
        headers = await _fill(api)
        answer = await api.get(path, headers=headers)
        if answer.status != 200 or "application/json" not in answer.headers["Content-Type"] or answer.text == "null":
            return
        if not isinstance(answer.json, list):
            return
        begun = asyncio.get_running_loop().time()
        blocking = await api.get(f"{path}{'&' if '?' in path else '?'}index=1&wait=100ms", headers=headers)
        waited_s = asyncio.get_running_loop().time() - begun

    if path in FILLED:
        assert answer.json and answer.index > 0
    else:
        index = 1 if path in BEGIN_AT_1 else 0
        assert (answer.json, answer.index, blocking.index) == ([], index, index)
        assert waited_s > 0.09 or path in NEVER_BLOCKING
    assert {"X-Nomad-KnownLeader", "X-Nomad-LastContact"} <= answer.headers.keys()


async def _fill(api: Api) -> dict[str, str]:
    """A node, a job with an allocation, a token and a policy; the headers of the token."""
    await add_ready_node(api)
    headers = {"X-Nomad-Token": (await api.put("/v1/acl/bootstrap")).json["SecretID"]}
    job: dict[str, Any] = json.loads(json.dumps(JOB))
    for path, body in (("/v1/jobs", {"Job": job}), ("/v1/acl/policy/p", {"Name": "p", "Rules": ""})):
        assert (await api.call("PUT", path, body, headers=headers)).status == 200
    await eventually(lambda: bool(api.server.state.allocs))
    return headers


JOB = {
    "ID": "web", "Type": "batch", "Datacenters": ["*"],
    "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "main", "Driver": "mock_driver", "Config": {"run_for": "1h"}}]}],
}  # fmt: skip
POLICY = {"Max": 3, "Min": 1, "Enabled": True}


async def test_the_index_of_computed_rows_does_not_fall_when_the_last_one_goes() -> None:
    async with serving() as api:
        await add_ready_node(api)
        group = JOB["TaskGroups"][0] | {"Scaling": POLICY}  # type: ignore[index]
        await api.put("/v1/jobs", {"Job": JOB | {"TaskGroups": [group]}})
        first = await api.get("/v1/scaling/policies")
        waiting = asyncio.ensure_future(api.get(f"/v1/scaling/policies?index={first.index}&wait=20s"))
        await api.put("/v1/jobs", {"Job": JOB})
        woken = await waiting

    assert (len(first.json), woken.json) == (1, [])
    assert woken.index > first.index > 0


@pytest.mark.parametrize("path", ["/v1/scaling/policies", "/v1/plugins"])
async def test_a_watcher_learns_of_the_last_row_s_end_from_a_server_that_never_saw_it(path: str) -> None:
    async with serving() as api:
        await add_ready_node(api)
        group = JOB["TaskGroups"][0] | {"Scaling": POLICY}  # type: ignore[index]
        await api.put("/v1/jobs", {"Job": JOB | {"TaskGroups": [group]}})
        info = CSIInfo(plugin_id="disk", healthy=True, requires_topologies=False)
        await api.server.replica.propose(RegisterNode(node=replace(ready_node(), csi_node_plugins={"disk": info})))
        first = await api.get(path)
        await api.put("/v1/jobs", {"Job": JOB})
        await api.server.replica.propose(RegisterNode(node=ready_node()))
        app = make_app(api.server.http, None, api.client.app[CONTEXT].agent)
        async with TestClient(TestServer(app)) as client:
            restarted = Api(client, api.server)
            begun = asyncio.get_running_loop().time()
            early = await restarted.get(f"{path}?index=1&wait=100ms")
            waited_s = asyncio.get_running_loop().time() - begun
            beyond = await restarted.get(f"{path}?index=1000000&wait=1ms")
            ended = await restarted.get(f"{path}?index={first.index}&wait=5s")
            begun = asyncio.get_running_loop().time()
            again = await restarted.get(f"{path}?index={ended.index}&wait=100ms")
            waited_again_s = asyncio.get_running_loop().time() - begun

    assert (len(first.json), early.json, early.index, beyond.index) == (1, [], 0, 0)
    assert (ended.json, again.index) == ([], ended.index)
    assert ended.index > first.index > 1
    assert min(waited_s, waited_again_s) > 0.09


async def test_a_plugin_on_a_node_wakes_who_waits_for_plugins() -> None:
    async with serving() as api:
        await add_ready_node(api)
        waiting = asyncio.ensure_future(api.get("/v1/plugins?index=1&wait=20s"))
        await asyncio.sleep(0)
        info = CSIInfo(plugin_id="disk", healthy=True, requires_topologies=False)
        await api.server.replica.propose(RegisterNode(node=replace(ready_node(), csi_node_plugins={"disk": info})))
        woken = await waiting

    assert [row["ID"] for row in woken.json] == ["disk"]
    assert woken.index > 1
