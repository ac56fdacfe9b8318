"""How many allocations start or end at one time, and that a slow one delays the others only for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from yurt.client.allocations import start_slots
from yurt.client.allocations.start_slots import AT_ONCE, HOLD_MAX_S, HOLD_S, LATE_S, LOOK_S, StartSlots
from yurt.client.client import Client
from yurt.client.timed_waits import LightEvent
from yurt.runtime.env import Timer
from yurt.sdk.driver import TaskHandle, TaskRequest
from yurt.sdk.value import replace
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING, DESIRED_STOP, NODE_INIT, NODE_READY
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeEnv, FakeServerPort, eventually

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


class BusyEnv(FakeEnv):
    """A clock whose timers are late, as in an event loop that has much to do."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call a function later than asked."""
        return super().call_later(seconds + 2 * LATE_S, function)


@pytest.fixture
def endless_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start or an end keeps its slot whatever its duration."""
    monkeypatch.setattr(start_slots, "HOLD_S", 3600.0)
    monkeypatch.setattr(start_slots, "HOLD_MAX_S", 3600.0)


def requested(slots: StartSlots, count: int) -> list[LightEvent]:
    """Slots that were requested for allocations 0, 1 and so on: their events."""
    events = [LightEvent() for _ in range(count)]
    for number, event in enumerate(events):
        slots.request(str(number), event)
    return events


def granted(events: list[LightEvent]) -> int:
    """How many of the allocations may start."""
    return sum(event.is_set() for event in events)


def put_allocs(server: FakeServerPort, client: Client) -> list[str]:
    """More allocations than may start at one time; their ids."""
    allocs = [placed(client.node_id, number=number) for number in range(AT_ONCE + MORE)]
    for alloc in allocs:
        server.put_alloc(alloc)
    return [alloc.id for alloc in allocs]


async def test_allocations_that_come_together_start_a_few_at_a_time(
    run_client: MakeClient, server: FakeServerPort, endless_holds: None
) -> None:
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
    run_client: MakeClient, server: FakeServerPort, endless_holds: None
) -> None:
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
    run_client: MakeClient, server: FakeServerPort, endless_holds: None
) -> None:
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


async def test_an_end_waits_for_no_slot_but_delays_a_start() -> None:
    slots = StartSlots(FakeEnv())
    events = requested(slots, AT_ONCE + 2)
    for number in (0, 1):
        slots.take(str(number))  # its tasks ended as soon as they had started
    slots.take("another")
    assert granted(events) == AT_ONCE

    for number in (0, 1):
        slots.release(str(number))

    assert granted(events) == AT_ONCE + 1


async def test_a_start_or_an_end_keeps_its_slot_for_a_moment_of_an_idle_event_loop() -> None:
    env = FakeEnv()
    slots = StartSlots(env)
    events = requested(slots, AT_ONCE + 1)
    slots.take("another")

    await env.advance(HOLD_S - LOOK_S)
    assert granted(events) == AT_ONCE

    await env.advance(3 * LOOK_S)
    assert granted(events) == AT_ONCE + 1


async def test_a_busy_event_loop_does_not_take_slots_from_starts_that_wait_for_it_alone() -> None:
    env = BusyEnv()
    slots = StartSlots(env)
    events = requested(slots, AT_ONCE + 1)

    await env.advance(HOLD_MAX_S - LOOK_S)
    assert granted(events) == AT_ONCE

    await env.advance(3 * LOOK_S)
    assert granted(events) == AT_ONCE + 1


async def test_an_allocation_takes_a_slot_when_its_tasks_have_ended(
    run_client: MakeClient, server: FakeServerPort, endless_holds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    monkeypatch.setattr(StartSlots, "take", lambda slots, alloc_id: taken.append(alloc_id))
    async with run_client() as client:
        alloc = placed(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        assert taken == [alloc.id]

        server.put_alloc(replace(server.allocs[alloc.id], desired_status=DESIRED_STOP))

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert taken == [alloc.id, alloc.id]
