"""A server and its nodes on one thread under a virtual clock: what an update may take away at a time (invariant D5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from yurt.sdk.value import replace
from yurt.server.config import ServerConfig
from yurt.server.server import Server
from yurt.storage.memory import MemoryLog
from yurt.structs.predicates import is_terminal
from yurt.testing.cluster_models.models import SimulatedCluster, is_healthy
from yurt.testing.fakes import FakeEnv


@asynccontextmanager
async def cluster(seed: int) -> AsyncIterator[SimulatedCluster]:
    """A leading server with its nodes ready."""
    env = FakeEnv(seed)
    server = Server(ServerConfig(name="sim"), env=env, log=MemoryLog())
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run(ready=ready))
        async with asyncio.timeout(60):
            await ready.wait()
        made = SimulatedCluster(lambda: server, lambda: server, env, seed)
        for node in made.nodes:
            await node.join()
        try:
            yield made
        finally:
            await server.stop()


async def test_a_version_that_breaks_takes_no_more_than_max_parallel_of_one_that_works() -> None:
    async with cluster(1) as made:
        good = replace(made.some_job("one"), task_groups=(replace(made.some_job("one").task_groups[0], count=4),))
        await made.lead().resources.jobs.register(good)
        while sum(is_healthy(a) for a in made.state.allocs.values()) < 4:
            await made.step(faults=False)
        await made.lead().resources.jobs.register(replace(good, meta={"breaks": "yes"}))

        fewest = 4
        for _ in range(30):
            await made.step(faults=False)
            live = [a for a in made.state.allocs_of_job("default", "one") if not is_terminal(a)]
            fewest = min(fewest, sum(1 for a in live if a.job is not None and a.job.version == 0))

    assert fewest == 3
