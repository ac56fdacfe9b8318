"""A server on a log in memory, with the clock under the test's control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from yurt.sdk.value import replace
from yurt.server.config import ServerConfig
from yurt.server.server import Server
from yurt.storage.log import CommandLog
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import AllocUpdate
from yurt.structs.node import Node
from yurt.structs.rpc import RegisterNodeRequest, UpdateAllocsRequest
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv, eventually


class Bench:
    """A running server and what the tests do with it."""

    def __init__(self, server: Server, env: FakeEnv) -> None:
        self.server = server
        self.env = env

    async def add_node(self, **changes: Any) -> Node:
        """A client that registered and became ready."""
        node = factories.node(status="initializing", **changes)
        await self.server.clients.calls.register_node(RegisterNodeRequest(node=node))
        await self.server.clients.calls.heartbeat(node.id, "ready")
        return self.server.state.nodes[node.id]

    async def report(self, status: str, job_id: str = "web", **changes: Any) -> None:
        """Clients say that all live allocations of a job have this status."""
        for alloc in self.live(job_id):
            update = AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status=status, **changes)
            await self.server.clients.calls.update_allocs(UpdateAllocsRequest(node_id=alloc.node_id, updates=(update,)))

    def live(self, job_id: str = "web") -> list[Any]:
        """Allocations of a job that neither side has ended."""
        found = self.server.state.allocs_of_job("default", job_id)
        return [
            alloc
            for alloc in found
            if alloc.desired_status == "run" and alloc.client_status not in ("complete", "failed", "lost")
        ]

    def evals(self, job_id: str = "web") -> list[tuple[str, str]]:
        """(trigger, status) of a job's evaluations, oldest first."""
        found = self.server.state.evals.where("job", ("default", job_id))
        return [(e.triggered_by, e.status) for e in sorted(found, key=lambda e: e.create_index)]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, with a bound."""
        await eventually(condition)

    async def pass_time(self, seconds: float, *nodes: Node) -> None:
        """Let time pass while these nodes go on heartbeating."""
        while seconds > 0:
            await self.env.advance(min(seconds, 8))
            seconds -= 8
            for node in nodes:
                await self.server.clients.calls.heartbeat(node.id, "ready")

    async def idle(self) -> None:
        """Wait until no evaluation is on its way."""
        await eventually(lambda: not self.server.state.evals.where("status", "pending"))


@asynccontextmanager
async def running(
    log: CommandLog | None = None, env: FakeEnv | None = None, *, limits: Any = None, **config: Any
) -> AsyncIterator[Bench]:
    """A server from start to a clean stop."""
    env = env or FakeEnv()
    server = Server(ServerConfig(name="s1", **config), env=env, log=log or MemoryLog(), limits=limits)
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(ready=ready))
        async with asyncio.timeout(60):
            await ready.wait()
        try:
            yield Bench(server, env)
        finally:
            await server.stop()


@pytest.fixture
def run_server() -> Any:
    """`running`, for tests that start servers themselves."""
    return running


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """One running server."""
    async with running() as made:
        yield made


@pytest.fixture
def with_count() -> Any:
    """A job like another, with another count."""
    return lambda job, count: replace(job, task_groups=(replace(job.task_groups[0], count=count),))
