"""How many allocations start at one time, and that a slow start delays the others only for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from yurt.client.allocations import start_slots
from yurt.client.allocations.start_slots import AT_ONCE
from yurt.client.client import Client
from yurt.sdk.driver import TaskHandle, TaskRequest
from yurt.sdk.value import replace
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING, DESIRED_STOP, NODE_INIT, NODE_READY
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

MakeClient = Callable[..., AbstractAsyncContextManager[Client]]
MORE = 8


class SlowDriver(FakeDriver):
    """A driver whose tasks start when the test permits it."""

    def __init__(self) -> None:
        super().__init__()
        self.starting, self.most = 0, 0
        self.may_start = asyncio.Event()

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Wait for the permission."""
        self.starting += 1
        self.most = max(self.most, self.starting)
        await self.may_start.wait()
        self.starting -= 1
        return await super().start_task(request)


def put_allocs(server: FakeServerPort, client: Client) -> list[str]:
    """More allocations than may start at one time; their ids."""
    allocs = [placed(client.node_id, number=number) for number in range(AT_ONCE + MORE)]
    for alloc in allocs:
        server.put_alloc(alloc)
    return [alloc.id for alloc in allocs]


async def test_allocations_that_come_together_start_a_few_at_a_time(
    run_client: MakeClient, server: FakeServerPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_slots, "HOLD_S", 3600.0)
    driver = SlowDriver()
    async with run_client(with_driver=driver) as client:
        ids = put_allocs(server, client)
        await eventually(lambda: driver.starting == AT_ONCE)
        driver.may_start.set()
        await eventually(lambda: all(server.status_of(each) == CLIENT_RUNNING for each in ids))
        assert driver.most == AT_ONCE


async def test_starts_that_wait_for_something_delay_others_only_for_a_moment(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    driver = SlowDriver()
    async with run_client(with_driver=driver) as client:
        put_allocs(server, client)
        await eventually(lambda: driver.starting == AT_ONCE + MORE)
        driver.may_start.set()


async def test_an_allocation_that_waits_for_its_start_stops_at_once(
    run_client: MakeClient, server: FakeServerPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_slots, "HOLD_S", 3600.0)
    driver = SlowDriver()
    async with run_client(with_driver=driver) as client:
        ids = put_allocs(server, client)
        await eventually(lambda: driver.starting == AT_ONCE)

        server.put_alloc(replace(server.allocs[ids[-1]], desired_status=DESIRED_STOP))

        await eventually(lambda: server.status_of(ids[-1]) == CLIENT_COMPLETE)
        assert driver.starting == AT_ONCE
        driver.may_start.set()
        await eventually(lambda: server.status_of(ids[-2]) == CLIENT_RUNNING)


async def test_the_node_becomes_ready_while_new_allocations_wait_for_their_start(
    run_client: MakeClient, server: FakeServerPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_slots, "HOLD_S", 3600.0)
    server.ttl_s, driver = 0.02, SlowDriver()
    async with run_client(with_driver=driver) as client:
        put_allocs(server, client)
        await eventually(lambda: driver.starting == AT_ONCE)
        server.keep_initializing = True
        await eventually(lambda: server.statuses[-1] == NODE_INIT)

        server.keep_initializing = False

        await eventually(lambda: server.statuses[-1] == NODE_READY)
        assert driver.starting == AT_ONCE
        driver.may_start.set()
