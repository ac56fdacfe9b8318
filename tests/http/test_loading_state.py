"""A server that still reads its log calls nothing unknown: what a node answers is refused until the state is loaded."""

from __future__ import annotations

import re
from typing import Any

import pytest
from yurt.http.resources import allocations
from yurt.http.route_table import ROUTES
from yurt.http.routes import NODE
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, Api, add_ready_node

LOADING = "this server still reads its state; try again in a moment"
QUERY = f"node_id={NODE_ID}&path=/x&task=t&type=stdout&command=%5B%22sh%22%5D"
BODIES = {"signal": {"Signal": "SIGHUP"}, "metadata": {"NodeID": NODE_ID, "Meta": {}}, "pause": {"Task": "t"}}
BY_NODE = [
    route
    for route in ROUTES
    if route.answered_by is NODE and not (route.path.startswith("/v1/client/fs") and "{id" not in route.path)
]
"""Without those below `fs` that name no allocation."""


@pytest.fixture
async def loading(api: Api) -> Api:
    """An agent whose server has read nothing yet."""
    api.server.log.loader.is_restored = False
    return api


@pytest.mark.parametrize("route", BY_NODE, ids=lambda route: f"{'/'.join(route.methods)} {route.path}")
async def test_what_a_node_answers_waits_for_the_state(loading: Api, route: Any) -> None:
    path = re.sub(r"{id[^}]*}", UNKNOWN_ID, route.path)
    body = next((body for ending, body in BODIES.items() if path.endswith(ending)), None)
    answer = await loading.call(route.methods[0], f"{path}?{QUERY}", body if route.methods[0] != "GET" else None)
    assert (answer.status, answer.text) == (500, LOADING)


class OwnClient:
    """The client of the agent itself, which knows its allocations before the server has read its state."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    async def restart_alloc(self, alloc_id: str, *, task: str, all_tasks: bool) -> None:
        self.done.append(("restart", task))

    async def signal_alloc(self, alloc_id: str, *, task: str, signal: str) -> None:
        self.done.append((signal, task))


@pytest.mark.parametrize("task", ["", "main"])
async def test_an_allocation_of_the_own_client_is_restarted_and_signalled_meanwhile(
    loading: Api, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnClient()
    monkeypatch.setattr(allocations, "node_of_alloc", lambda _, alloc_id: (alloc_id, own))
    path = f"/v1/client/allocation/{UNKNOWN_ID}"
    assert (await loading.put(f"{path}/restart", {"TaskName": task})).status == 200
    assert (await loading.put(f"{path}/signal", {"Task": task, "Signal": "SIGHUP"})).status == 200
    assert own.done == [("restart", task), ("SIGHUP", task)]


async def test_health_and_metrics_are_told_meanwhile(loading: Api) -> None:
    assert (await loading.get("/v1/agent/health?type=server")).status in (200, 500)
    assert (await loading.get("/v1/metrics")).status == 200
    assert (await loading.get("/v1/yurt/ui/config")).status == 200


async def test_afterwards_an_unknown_allocation_is_called_so(api: Api) -> None:
    await add_ready_node(api)
    answer = await api.put(f"/v1/client/allocation/{UNKNOWN_ID}/restart", {})
    assert (answer.status, answer.text) == (404, f'Unknown allocation "{UNKNOWN_ID}"')
