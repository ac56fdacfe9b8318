"""An allocation whose turn to start has not come: it can be looked at and paused, loses nothing, and is reported."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from yurt.client.allocations import start_slots
from yurt.client.config import AddedHooks
from yurt.client.hooks.gang_variables import HOSTFILE
from yurt.sdk.errors import Conflict, NotFound
from yurt.sdk.hooks import AllocHook, HookedAlloc
from yurt.sdk.value import replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.queueing.gang import GangAnswer, GangQuery
from yurt.structs.status import (
    CLIENT_COMPLETE,
    CLIENT_PENDING,
    CLIENT_RUNNING,
    CLIENT_UNKNOWN,
    DESIRED_STOP,
    NODE_INIT,
    NODE_READY,
)
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeEnv, FakeServerPort, eventually

from .conftest import MakeClient
from .test_gang import member, roster
from .test_start_slots import SlowDriver
from .test_sticky import NEW, OLD, leave, sticky


class SlowPreparation(AllocHook):
    """Prepares an allocation, before its disk, when the test permits it."""

    name = "slow"
    before = ("disk",)

    def __init__(self) -> None:
        self.preparing: set[str] = set()
        self.may_prepare = asyncio.Event()
        self.may_prepare.set()

    async def prepare(self, alloc: HookedAlloc) -> None:
        """Wait for the permission."""
        self.preparing.add(alloc.facts.alloc_id)
        await self.may_prepare.wait()


@pytest.fixture(autouse=True)
def one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """One start at a time, and it does not give up its turn."""
    monkeypatch.setattr(start_slots, "AT_ONCE", 1)
    monkeypatch.setattr(start_slots, "HOLD_S", 3600.0)
    monkeypatch.setattr(start_slots, "HOLD_MAX_S", 3600.0)


@pytest.fixture
def driver() -> SlowDriver:
    """The driver of every client here."""
    return SlowDriver()


async def queued(server: FakeServerPort, driver: SlowDriver, alloc: Allocation) -> None:
    """Place an allocation behind one that starts until the test permits it."""
    server.put_alloc(placed(alloc.node_id))
    await eventually(lambda: driver.starting == 1)
    server.put_alloc(alloc)


async def test_a_queued_allocation_has_its_directory_and_no_log_yet(
    run_client: MakeClient, server: FakeServerPort, driver: SlowDriver, tmp_path: Path
) -> None:
    async with run_client() as client, asyncio.timeout(60):
        alloc = placed(client.node_id)
        await queued(server, driver, alloc)
        await eventually((tmp_path / "alloc" / alloc.id).is_dir)

        assert [each.name for each in await client.calls.list_files(alloc.id, "/")] == ["alloc"]
        assert await client.calls.alloc_stats(alloc.id, "web")
        with pytest.raises(NotFound, match="not started yet"):
            await anext(
                client.calls.stream_logs(alloc.id, "web", kind="stdout", offset=0, origin="start", follow=False)
            )
        assert driver.starting == 1
        driver.may_start.set()


async def test_a_queued_allocation_can_be_paused_and_is_when_its_turn_comes(
    run_client: MakeClient, server: FakeServerPort, driver: SlowDriver
) -> None:
    async with run_client() as client, asyncio.timeout(60):
        alloc = placed(client.node_id)
        await queued(server, driver, alloc)
        await eventually(lambda: alloc.id in client.allocs.live)

        await client.calls.pause_task(alloc.id, task="web", wish="pause")

        records = {record.id: record for record in await client.context.store.allocs()}
        assert records[alloc.id].tasks["web"].state.paused == "pause"
        driver.may_start.set()
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_PENDING)
        assert f"{alloc.id}/web/0" not in driver.host.tasks
        await client.calls.pause_task(alloc.id, task="web", wish="run")
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)


async def test_a_restarted_agent_starts_queued_allocations_in_turn(
    run_client: MakeClient, server: FakeServerPort, driver: SlowDriver
) -> None:
    async with run_client() as client:
        allocs = [placed(client.node_id) for _ in range(4)]
        for alloc in allocs:
            server.put_alloc(alloc)
        await eventually(lambda: driver.starting == 1)
        await eventually(lambda: sum(each.recovered.is_set() for each in client.allocs.live.values()) == 4)
        assert len(await client.context.store.allocs()) == 4
    again = SlowDriver()
    async with run_client(with_driver=again):
        await eventually(lambda: again.starting == 1)
        again.may_start.set()
        await eventually(lambda: all(server.status_of(each.id) == CLIENT_RUNNING for each in allocs))
        assert again.most == 1 and len(again.host.tasks) == 4


@pytest.mark.parametrize("is_queued", [True, False])
async def test_garbage_collection_leaves_the_data_that_a_replacement_has_yet_to_take(
    run_client: MakeClient, server: FakeServerPort, driver: SlowDriver, tmp_path: Path, is_queued: bool
) -> None:
    root, slow = tmp_path / "alloc", SlowPreparation()
    driver.may_start.set()
    async with run_client(added=AddedHooks(alloc={"slow": slow})) as client, asyncio.timeout(60):
        old = sticky(client.node_id, OLD)
        server.put_alloc(old)
        await eventually(lambda: server.status_of(OLD) == CLIENT_RUNNING)
        leave(root, OLD)
        driver.may_start.clear()
        slow.may_prepare.clear()
        if is_queued:
            server.put_alloc(placed(client.node_id))
            await eventually(lambda: len(slow.preparing) == 2)
        server.put_alloc(replace(old, desired_status=DESIRED_STOP))
        server.put_alloc(replace(sticky(client.node_id, NEW), previous_allocation=OLD))
        await eventually(lambda: server.status_of(OLD) == CLIENT_COMPLETE and (root / NEW).is_dir())
        await eventually(lambda: OLD in client.allocs.ended)
        await eventually(lambda: is_queued or NEW in slow.preparing)

        await client.calls.collect_garbage(None)
        with pytest.raises(Conflict, match=f"moves to its replacement {NEW}"):
            await client.calls.collect_garbage(OLD)

        slow.may_prepare.set()
        driver.may_start.set()
        await eventually(lambda: server.status_of(NEW) == CLIENT_RUNNING)
        assert (root / NEW / "alloc" / "data" / "shared").read_text() == "s"
        await client.calls.collect_garbage(OLD)
        assert not (root / OLD).exists()


async def test_the_removal_of_an_allocation_waits_until_its_replacement_has_taken_the_data(
    run_client: MakeClient, server: FakeServerPort, driver: SlowDriver, tmp_path: Path
) -> None:
    root, slow, env = tmp_path / "alloc", SlowPreparation(), FakeEnv()
    driver.may_start.set()
    async with run_client(added=AddedHooks(alloc={"slow": slow}), env=env) as client, asyncio.timeout(60):
        old = sticky(client.node_id, OLD)
        server.put_alloc(old)
        await eventually(lambda: server.status_of(OLD) == CLIENT_RUNNING)
        leave(root, OLD)
        slow.may_prepare.clear()
        server.put_alloc(replace(old, desired_status=DESIRED_STOP))
        server.put_alloc(replace(sticky(client.node_id, NEW), previous_allocation=OLD))
        await eventually(lambda: OLD in client.allocs.ended and NEW in slow.preparing)

        server.drop_alloc(OLD)
        await env.advance(5)
        assert (root / OLD).is_dir()

        slow.may_prepare.set()
        await eventually(lambda: server.status_of(NEW) == CLIENT_RUNNING)
        assert (root / NEW / "alloc" / "data" / "shared").read_text() == "s"
        await eventually(lambda: not (root / OLD).exists())


@pytest.mark.parametrize("is_queued", [True, False])
async def test_a_replacement_that_ends_unstarted_takes_no_data_and_the_removal_goes_on(
    run_client: MakeClient, server: FakeServerPort, driver: SlowDriver, tmp_path: Path, is_queued: bool
) -> None:
    root, slow = tmp_path / "alloc", SlowPreparation()
    driver.may_start.set()
    async with run_client(added=AddedHooks(alloc={"slow": slow}), env=FakeEnv()) as client, asyncio.timeout(60):
        old = sticky(client.node_id, OLD)
        server.put_alloc(old)
        await eventually(lambda: server.status_of(OLD) == CLIENT_RUNNING)
        leave(root, OLD)
        slow.may_prepare.clear()
        if is_queued:
            server.put_alloc(placed(client.node_id))
            await eventually(lambda: len(slow.preparing) == 2)
        server.put_alloc(replace(old, desired_status=DESIRED_STOP))
        new = replace(sticky(client.node_id, NEW), previous_allocation=OLD)
        server.put_alloc(new)
        await eventually(lambda: OLD in client.allocs.ended and client.allocs.awaiting_replacement(OLD) == NEW)
        server.drop_alloc(OLD)

        server.put_alloc(replace(new, desired_status=DESIRED_STOP))
        slow.may_prepare.set()

        await eventually(lambda: not (root / OLD).exists())


async def test_members_of_a_gang_meet_although_others_start(
    run_client: MakeClient, server: FakeServerPort, driver: SlowDriver, tmp_path: Path
) -> None:
    asked: set[str] = set()
    are_all_in = asyncio.Event()

    async def answer(query: GangQuery) -> GangAnswer:
        if query.is_running:
            await asyncio.Event().wait()
        asked.add(query.alloc_id)
        if len(asked) == 3:
            are_all_in.set()
        await are_all_in.wait()
        return GangAnswer(status="formed", roster=roster(query.alloc_id, 1))

    server.gangs = answer
    async with run_client() as client, asyncio.timeout(60):
        members = [member(client.node_id) for _ in range(3)]
        await queued(server, driver, members[0])
        for each in members[1:]:
            server.put_alloc(each)

        await eventually(lambda: all((tmp_path / "alloc" / each.id / "web" / "local" / HOSTFILE).is_file()
                                     for each in members))  # fmt: skip

        driver.may_start.set()


@pytest.mark.parametrize("is_queued", [True, False])
@pytest.mark.parametrize("is_restarted", [True, False])
async def test_an_allocation_called_unknown_before_its_start_is_reported_before_the_node_is_ready(
    run_client: MakeClient, server: FakeServerPort, is_queued: bool, is_restarted: bool
) -> None:
    server.ttl_s, slow = 0.02, SlowPreparation()
    slow.may_prepare.clear()
    hooks = AddedHooks(alloc={"slow": slow})
    async with run_client(added=hooks) as client:
        first, second = placed(client.node_id), placed(client.node_id)
        server.put_alloc(first)
        await eventually(lambda: first.id in slow.preparing)
        server.put_alloc(second)
        await eventually(lambda: len(client.allocs.live) == 2)
        alloc = second if is_queued else first
        if not is_restarted:
            server.keep_initializing = True
            await eventually(lambda: server.statuses[-1] == NODE_INIT)
            server.put_alloc(replace(alloc, client_status=CLIENT_UNKNOWN))
            server.keep_initializing = False
            await eventually(lambda: server.statuses[-1] == NODE_READY)
            assert server.status_of(alloc.id) == CLIENT_PENDING
    if is_restarted:
        server.put_alloc(replace(alloc, client_status=CLIENT_UNKNOWN))
        async with run_client(added=hooks):
            assert server.status_of(alloc.id) == CLIENT_PENDING


async def test_the_time_to_become_healthy_does_not_count_the_wait_for_a_start(
    run_client: MakeClient, server: FakeServerPort, driver: SlowDriver
) -> None:
    env = FakeEnv()
    update = factories.update_strategy(min_healthy_time=seconds(1), healthy_deadline=seconds(10))
    job = factories.job(task_groups=(factories.group(update=update),))
    async with run_client(env=env, wait_ready=False) as client:
        await eventually(server.is_ready)
        alloc = replace(placed(client.node_id, job=job), deployment_id=factories.new_id())
        await queued(server, driver, alloc)
        await eventually(lambda: alloc.id in client.allocs.live and client.allocs.live[alloc.id].reported.is_set())
        await env.advance(60)

        driver.may_start.set()

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        await env.advance(2)
        await eventually(lambda: server.last_update(alloc.id).deployment_status is not None)
        assert server.last_update(alloc.id).deployment_status.healthy is True
