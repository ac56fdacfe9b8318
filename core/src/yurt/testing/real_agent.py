"""A client with a real driver over a folder: stop it, and start another one over the same folder."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from yurt.client.client import Client, Surroundings
from yurt.client.config import ClientConfig
from yurt.client.servers.node_token import identified
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import AgentPaths, Driver, PluginContext
from yurt.sdk.value import replace
from yurt.storage.client_db import ClientDatabase
from yurt.structs.alloc import Allocation
from yurt.structs.status import JOB_BATCH
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeServerPort

ALLOC_ID = str(uuid.uuid4())
"""Unique to this process: control groups have this name, and tests run in several processes at once."""
READY_LIMIT_S = 60.0

MakeDriver = Callable[[PluginContext], Driver]


def shell_alloc(
    node_id: str, script: str, *, driver: str = "raw_exec", alloc_id: str = ALLOC_ID, **task_changes: Any
) -> Allocation:
    """A batch allocation that runs a shell script."""
    task = factories.task(driver=driver, config={"command": "sh", "args": ["-c", script]}, **task_changes)
    job = factories.job(type=JOB_BATCH, task_groups=(factories.group(tasks=(task,), update=None, migrate=None),))
    alloc = placed(node_id, job=job)
    assert alloc.job is not None
    group = replace(alloc.job.task_groups[0], tasks=(task,))
    return replace(alloc, id=alloc_id, job=replace(alloc.job, task_groups=(group,)))


@asynccontextmanager
async def agent_client(
    root: Path, server: FakeServerPort, make_driver: MakeDriver, **config: Any
) -> AsyncIterator[Client]:
    """Run a client with its own state directory during the block; its tasks keep running afterwards."""
    (root / "client").mkdir(parents=True, exist_ok=True)
    paths = AgentPaths(state_dir=str(root / "plugins"), run_dir=str(root / "run"))
    driver = make_driver(PluginContext(options={"driver.raw_exec.enable": "1"}, paths=paths))
    database = ClientDatabase(root / "client" / "client.db")
    env = RealEnv()
    identity = await identified(database, env)
    client = Client(
        ClientConfig(state_dir=str(root / "state"), alloc_dir=str(root / "alloc"), dev=True, **config),
        env,
        Surroundings(identity=identity, server=server, database=database, drivers={driver.name: driver}),
    )
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(client.run(ready=ready))
        try:
            async with asyncio.timeout(READY_LIMIT_S):
                await ready.wait()
            yield client
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            await driver.close()
            await database.close()


async def server_that_knows(root: Path) -> FakeServerPort:
    """A server that lists the allocations in the state of a killed agent's folder."""
    (root / "client").mkdir(parents=True, exist_ok=True)
    database = ClientDatabase(root / "client" / "client.db")
    records, seen_index = await database.allocs(), await database.seen_index()
    await database.close()
    server = FakeServerPort()
    server.index += seen_index
    for record in records:
        assert record.alloc is not None, record.error
        server.put_alloc(record.alloc)
    return server
