"""Questions about allocations that a client is still to take up from an earlier agent wait for it, within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from yurt.client.allocations import alloc_table
from yurt.client.client import RECOVERY_LIMIT_S, Client
from yurt.client.drivers import driver_manager
from yurt.sdk import core_partitions
from yurt.sdk.core_partitions import CoreSharer
from yurt.sdk.driver import Fingerprint, TaskHandle
from yurt.sdk.errors import NotFound, Unavailable
from yurt.structs.alloc import Allocation
from yurt.structs.exec import ExecRequest
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeEnv, FakeServerPort, eventually, settle


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client waits for its drivers as long as a test does."""
    monkeypatch.setattr(driver_manager, "FIRST_FINGERPRINT_S", 1000.0)


class SlowDriver(FakeDriver):
    """Says nothing of itself until the test lets it."""

    def __init__(self, driver: FakeDriver) -> None:
        super().__init__(driver.host)
        self.may_speak = asyncio.Event()

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        await self.may_speak.wait()
        async for found in super().fingerprint():
            yield found


@pytest.fixture
async def alloc(run_client, server: FakeServerPort) -> Allocation:
    """One that an agent ran which is gone."""
    async with run_client() as client:
        made = placed(client.node_id)
        server.put_alloc(made)
        await eventually(lambda: server.status_of(made.id) == "running")
    return made


async def first_log(client: Client, alloc: Allocation) -> None:
    frames = client.calls.stream_logs(alloc.id, "web", kind="stdout", offset=0, origin="start", follow=True)
    await anext(frames)
    await frames.aclose()


async def command(client: Client, alloc: Allocation) -> None:
    async def no_input():
        await asyncio.Event().wait()
        yield

    request = ExecRequest(alloc_id=alloc.id, task="web", command=("true",), is_node_exec_allowed=True)
    async for _ in client.calls.exec_task(request, no_input()):
        pass


QUESTIONS = {
    "logs": first_log,
    "files": lambda client, alloc: client.calls.list_files(alloc.id, "/"),
    "checks": lambda client, alloc: client.calls.alloc_checks(alloc.id),
    "a signal": lambda client, alloc: client.calls.signal_alloc(alloc.id, task="web", signal="SIGHUP"),
    "exec": command,
}


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question_waits_until_the_allocation_is_taken_up(run_client, driver, alloc: Allocation, name: str):
    slow = SlowDriver(driver)
    async with run_client(with_driver=slow, wait_ready=False) as client, asyncio.timeout(60):
        asked = asyncio.ensure_future(QUESTIONS[name](client, alloc))
        await settle()
        assert not asked.done()

        slow.may_speak.set()

        await asked


async def test_an_allocation_that_is_not_among_those_taken_up_is_unknown(run_client, driver, alloc: Allocation):
    slow = SlowDriver(driver)
    async with run_client(with_driver=slow, wait_ready=False) as client:
        asked = asyncio.ensure_future(client.calls.alloc_checks(placed("other").id))
        await settle()
        slow.may_speak.set()

        with pytest.raises(NotFound, match="this node does not run it"):
            await asyncio.wait_for(asked, 60)


async def test_a_question_does_not_wait_for_ever(run_client, driver, alloc: Allocation):
    env = FakeEnv()
    async with run_client(with_driver=SlowDriver(driver), env=env, wait_ready=False) as client:
        asked = asyncio.ensure_future(client.calls.alloc_checks(alloc.id))
        await env.advance(alloc_table.RESTORE_LIMIT_S + 1)

        with pytest.raises(Unavailable, match="try again in a moment"):
            await asyncio.wait_for(asked, 60)


class SlowEngine(FakeDriver):
    """Recovers tasks once the test lets it."""

    def __init__(self, driver: FakeDriver) -> None:
        super().__init__(driver.host)
        self.asked: list[TaskHandle] = []
        self.may_recover = asyncio.Event()

    async def recover_task(self, handle: TaskHandle) -> None:
        self.asked.append(handle)
        await self.may_recover.wait()
        await super().recover_task(handle)


STATE_QUESTIONS = {
    "a signal": lambda client, alloc: client.calls.signal_alloc(alloc.id, task="web", signal="SIGHUP"),
    "a restart": lambda client, alloc: client.calls.restart_alloc(alloc.id, task="web", all_tasks=False),
    "exec": command,
}


@pytest.mark.parametrize("name", STATE_QUESTIONS)
async def test_an_order_for_a_task_waits_until_its_driver_has_recovered_it(
    run_client, driver: FakeDriver, alloc: Allocation, name: str
) -> None:
    slow = SlowEngine(driver)
    async with run_client(with_driver=slow, wait_ready=False) as client, asyncio.timeout(60):
        await eventually(lambda: bool(slow.asked))
        order = asyncio.ensure_future(STATE_QUESTIONS[name](client, alloc))
        await settle()
        assert not order.done()

        slow.may_recover.set()

        await order


async def test_an_order_does_not_wait_forever_for_a_driver(run_client, driver: FakeDriver, alloc: Allocation) -> None:
    env, slow = FakeEnv(), SlowEngine(driver)
    async with run_client(with_driver=slow, env=env, wait_ready=False) as client, asyncio.timeout(60):
        await eventually(lambda: bool(slow.asked))
        order = asyncio.ensure_future(client.calls.signal_alloc(alloc.id, task="web", signal="SIGHUP"))
        await settle()
        await env.advance(alloc_table.RESTORE_LIMIT_S + 1)

        with pytest.raises(Unavailable, match="still recovering the tasks of allocation"):
            await order
        slow.may_recover.set()


async def test_statistics_do_not_wait_for_drivers(run_client, driver: FakeDriver, alloc: Allocation) -> None:
    slow = SlowEngine(driver)
    async with run_client(with_driver=slow, wait_ready=False) as client, asyncio.timeout(20):
        await eventually(lambda: bool(slow.asked))

        assert (await client.calls.alloc_stats(alloc.id, "web")).tasks == {}
        slow.may_recover.set()


async def test_files_do_not_wait_for_drivers(run_client, driver: FakeDriver, alloc: Allocation) -> None:
    slow = SlowEngine(driver)
    async with run_client(with_driver=slow, wait_ready=False) as client, asyncio.timeout(60):
        await eventually(lambda: bool(slow.asked))

        assert await client.calls.list_files(alloc.id, "/")
        await first_log(client, alloc)
        slow.may_recover.set()


async def test_the_cores_of_tasks_do_not_change_before_all_are_recovered(
    run_client, driver: FakeDriver, alloc: Allocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_partitions, "SHARED", {})
    partitions = core_partitions.partitions_of("", dev=False)
    lists: list[tuple[int, ...]] = []
    slow = SlowEngine(driver)
    async with run_client(with_driver=slow, wait_ready=False), asyncio.timeout(60):
        await eventually(lambda: bool(slow.asked))
        sharer = CoreSharer(cores=frozenset(range(4)), write=lambda cores: not lists.append(cores))
        partitions.join("shared", sharer, None)
        partitions.write()
        assert not lists
        partitions.reserve("own", (3,))
        slow.may_recover.set()
        await eventually(lambda: bool(lists))
    assert (lists, [handle.reserved_cores for handle in slow.asked]) == ([(0, 1, 2)], [()])


async def test_a_slow_engine_holds_the_cores_of_others_within_a_bound(
    run_client, driver: FakeDriver, alloc: Allocation
) -> None:
    env, slow = FakeEnv(), SlowEngine(driver)
    async with run_client(with_driver=slow, env=env, wait_ready=False), asyncio.timeout(60):
        await eventually(lambda: bool(slow.asked))
        assert core_partitions.HOLDS
        await env.advance(RECOVERY_LIMIT_S + 1)
        await eventually(lambda: not core_partitions.HOLDS)
        slow.may_recover.set()
