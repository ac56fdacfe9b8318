"""A real server over a log in memory, with the HTTP application on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from aiohttp.test_utils import TestClient, TestServer

from yurt.access.authority import Authority
from yurt.audit.settings import AuditSettings
from yurt.audit.trail import AuditTrail
from yurt.client.client import Client
from yurt.http.agent_info import AgentInfo
from yurt.http.app import add_audit, make_app
from yurt.http.call import AUTHORITY
from yurt.http.cluster import CLUSTER, Cluster
from yurt.http.forwarding.regions import REGIONS, RegionApis
from yurt.runtime.env import RealEnv
from yurt.server.config import ServerConfig
from yurt.server.server import Server
from yurt.storage.log import CommandLog
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import RegisterNode, SetNodeStatus
from yurt.structs.node import DriverInfo, Node, NodeCpuResources, NodeDiskResources, NodeMemoryResources, NodeResources

NODE_ID = "11111111-2222-4333-8444-555555555555"
UNKNOWN_ID = "99999999-2222-4333-8444-555555555555"
START_LIMIT_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The status, headers and body of an answer."""

    status: int
    text: str
    headers: Any

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)

    @property
    def index(self) -> int:
        """X-Nomad-Index."""
        return int(self.headers["X-Nomad-Index"])


class Api:
    """Sends requests to the application."""

    def __init__(self, client: TestClient[Any, Any], server: Server) -> None:
        self.client = client
        self.server = server

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> HttpAnswer:
        """Send one request; a body that is not bytes is encoded as JSON."""
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        data = None if raw is None else io.BytesIO(raw)
        async with self.client.request(method, path, data=data, allow_redirects=False, **options) as response:
            return HttpAnswer(response.status, await response.text(errors="replace"), response.headers)

    async def get(self, path: str, **options: Any) -> HttpAnswer:
        """Send a GET."""
        return await self.call("GET", path, **options)

    async def put(self, path: str, body: Any = None) -> HttpAnswer:
        """Send a PUT."""
        return await self.call("PUT", path, body)

    async def register(self, job_id: str = "web", **changes: Any) -> HttpAnswer:
        """Register a small job."""
        return await self.put("/v1/jobs", {"Job": job_document(job_id, **changes)})

    async def wait_until(self, path: str, predicate: Any) -> Any:
        """Poll until `predicate` accepts the JSON, for at most 10 s."""
        async with asyncio.timeout(START_LIMIT_S):
            while not predicate(found := (await self.get(path)).json):  # noqa: ASYNC110 - the change is behind HTTP
                await asyncio.sleep(0.01)
        return found


def job_document(job_id: str = "web", **changes: Any) -> dict[str, Any]:
    """A complete small job in the shape of the API."""
    task = {"Name": "main", "Driver": "mock_driver", "Config": {"run_for": "1h"}}
    group = {"Name": "group", "Count": 1, "Tasks": [task]}
    return {"ID": job_id, "Name": job_id, "Type": "batch", "Datacenters": ["*"], "TaskGroups": [group]} | changes


def ready_node() -> Node:
    """A node with capacity for a few tasks."""
    return Node(
        id=NODE_ID, secret_id="a secret", name="worker", http_addr="127.0.0.1:4646", computed_class="v1:1",
        attributes={
            "kernel.name": "linux", "driver.mock_driver": "1", "nomad.version": "2.0.0", "os.name": "debian",
            "nomad.service_discovery": "true", "os.signals": "SIGHUP,SIGINT,SIGKILL,SIGTERM,SIGUSR1",
        },
        drivers={"mock_driver": DriverInfo(detected=True, healthy=True)},
        node_resources=NodeResources(
            cpu=NodeCpuResources(cpu_shares=4000, total_cpu_cores=4), memory=NodeMemoryResources(memory_mb=8192),
            disk=NodeDiskResources(disk_mb=100_000),
        ),
    )  # fmt: skip


@contextlib.asynccontextmanager
async def serving(
    *,
    cluster: Cluster | None = None,
    regions: RegionApis | None = None,
    facts: Mapping[str, Any] | None = None,
    log: CommandLog | None = None,
    client: Client | None = None,
    authority: Authority | None = None,
    **settings: Any,
) -> AsyncIterator[Api]:
    """The application over a leading server without nodes; settings, servers and regions can be replaced.

    `facts`: fields of its `AgentInfo`. `client`: the one in the same agent.
    `authority`: who decides about requests, in the place of the server's own. `settings` may name an `audit` log
    besides.
    """
    audit: AuditSettings | None = settings.pop("audit", None)
    server = Server(ServerConfig(name="test", **settings), env=RealEnv(), log=log or MemoryLog())
    ready = asyncio.Event()
    plugins = ({"name": "raw_exec", "status": "ok"},)
    agent = AgentInfo(version="0.1.0", name="test", dev=True, plugins=plugins, **(facts or {}))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run(ready=ready))
        async with asyncio.timeout(START_LIMIT_S):
            await ready.wait()
        trail = None if audit is None else AuditTrail(audit, server.replica.env, server.metrics)
        if trail is not None:
            trail.open()
            group.create_task(trail.run())
        app = make_app(server.http, client, agent)
        if trail is not None:
            add_audit(app, trail)
        if authority is not None:
            app[AUTHORITY] = authority
        if cluster is not None:
            app[CLUSTER] = cluster
        if regions is not None:
            app[REGIONS] = regions
        async with TestClient(TestServer(app), timeout=aiohttp.ClientTimeout(30)) as requests:
            yield Api(requests, server)
        if trail is not None:
            trail.stop()
        await server.stop()
        running.cancel()


async def add_ready_node(api: Api) -> None:
    """Register a ready node without a client behind it."""
    await api.server.replica.propose(RegisterNode(node=ready_node()))
    await api.server.replica.propose(SetNodeStatus(node_id=NODE_ID, status="ready", updated_at=1))
