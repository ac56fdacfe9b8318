"""An agent drains its node before it leaves, waits for what runs there, and ends the drain when it is back.

Without a drain it ends all tasks.
"""

from __future__ import annotations

import asyncio

import pytest
from yurt.client.allocations import shutdown_drain
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import ExitResult
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import seconds
from yurt.structs.node import DrainSpec
from yurt.structs.status import CLIENT_COMPLETE, JOB_BATCH, JOB_SYSTEM
from yurt.testing import factories
from yurt.testing.client_objects import placed, running
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually, settle

from .conftest import MakeClient

SPEC = DrainSpec(deadline=seconds(3600), ignore_system_jobs=True)


async def test_a_drain_is_over_when_all_but_system_jobs_have_ended(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client(shutdown_drain=SPEC) as client:
        alloc = placed(client.node_id, job=factories.job(type=JOB_BATCH))
        lasting = placed(client.node_id, job=factories.job(id="lasting", type=JOB_SYSTEM))
        await running(server, alloc)
        await running(server, lasting)
        drained = asyncio.ensure_future(client.drain(RealEnv()))
        await eventually(lambda: SPEC in server.drains)
        assert not drained.done()

        driver.finish(f"{alloc.id}/web/0", ExitResult(exit_code=0))

        assert await drained
        assert server.status_of(alloc.id) == CLIENT_COMPLETE and server.status_of(lasting.id) == "running"


async def test_what_does_not_end_in_time_is_told(
    run_client: MakeClient, server: FakeServerPort, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutdown_drain, "FORCED_STOP_LIMIT_S", 0.05)
    async with run_client(shutdown_drain=DrainSpec(deadline=seconds(-1))) as client:
        alloc = placed(client.node_id)
        await running(server, alloc)
        assert not await client.drain(RealEnv())
    assert f"drain on shutdown: allocations did not end: ids={alloc.id}" in caplog.messages


async def test_no_drain_begins_without_servers(run_client: MakeClient, server: FakeServerPort) -> None:
    async with run_client(shutdown_drain=SPEC) as client:
        server.failure = Unavailable("no leader")
        assert not await client.drain(RealEnv())
        server.failure = None


async def test_an_agent_that_is_back_ends_its_drain_and_others_ask_for_none(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    async with run_client(shutdown_drain=SPEC):
        await eventually(lambda: server.drains == [None])
    server.drains.clear()
    async with run_client() as client:
        assert not await client.drain(RealEnv())
    assert server.drains == []


async def test_what_the_servers_place_while_all_tasks_end_does_not_start(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    """As the replacement of a service, on a node that leaves without a drain and counts as ready until it is missed."""
    async with run_client() as client:
        alloc, later = placed(client.node_id), placed(client.node_id)
        await running(server, alloc)
        await client.stop_all()
        server.put_alloc(later)
        await eventually(lambda: server.calls.count("get_allocs") > 1)
        await settle()
        assert later.id not in client.allocs.live and not server.status_of(later.id)
