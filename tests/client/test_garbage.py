"""The directory of an allocation goes when nothing of it is left that writes there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from yurt.client.client import Client
from yurt.structs.status import CLIENT_RUNNING, JOB_BATCH
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

Removal = Callable[[Client, str], Coroutine[Any, Any, None]]


class SlowDriver(FakeDriver):
    """Takes its time to free a task."""

    def __init__(self) -> None:
        super().__init__()
        self.may_destroy = asyncio.Event()

    async def destroy_task(self, task_id: str) -> None:
        """Forget it when that is allowed."""
        await self.may_destroy.wait()
        await super().destroy_task(task_id)


async def collect_one(client: Client, alloc_id: str) -> None:
    await client.calls.collect_garbage(alloc_id)


async def collect_all(client: Client, _: str) -> None:
    await client.calls.collect_garbage(None)


async def forget(client: Client, alloc_id: str) -> None:
    await client.alloc_service.removals.remove(alloc_id)


@pytest.mark.parametrize("remove", [collect_one, collect_all, forget])
async def test_a_directory_stays_until_the_driver_has_freed_the_task(
    run_client: Any, server: FakeServerPort, tmp_path: Path, remove: Removal
) -> None:
    driver = SlowDriver()
    async with run_client(with_driver=driver) as client:
        alloc = placed(client.node_id, job=factories.job(type=JOB_BATCH))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: client.allocs.live[alloc.id].is_over)

        async with asyncio.TaskGroup() as group:
            removal = group.create_task(remove(client, alloc.id))
            done, _ = await asyncio.wait([removal], timeout=0.2)
            was_there = (tmp_path / "alloc" / alloc.id).exists()
            driver.may_destroy.set()

        assert (done, was_there) == (set(), True)
        assert not (tmp_path / "alloc" / alloc.id).exists()
