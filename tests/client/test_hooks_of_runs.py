"""What hooks are told of runs that end late or unseen, and of changes while a run is made ready."""

from __future__ import annotations

import asyncio

import pytest
from yurt.client.tasks import driver_calls
from yurt.sdk.driver import ExitResult
from yurt.sdk.errors import DriverError, Unavailable
from yurt.sdk.hooks import HookedTask, TaskHook
from yurt.sdk.value import Duration, replace
from yurt.structs.alloc import Allocation
from yurt.structs.rpc import IdentityQuery, SignedIdentity
from yurt.structs.service import WorkloadIdentity
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

from .conftest import MakeClient
from .test_hooks import Recorder, added, alloc_of, events


async def test_each_run_ends_for_hooks_before_the_next_one_is_prepared(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_calls, "KILL_RETRY_FIRST_S", 0.01)
    monkeypatch.setattr(driver_calls, "KILL_RETRY_MAX_S", 0.01)
    stop, destroy = driver.stop_task, driver.destroy_task

    async def stop_all_but_the_first(task_id: str, *, signal: str, timeout: Duration) -> None:
        if task_id.endswith("/0"):
            raise DriverError("engine is gone")
        await stop(task_id, signal=signal, timeout=timeout)

    async def destroy_all_but_the_first(task_id: str) -> None:
        if task_id.endswith("/0"):
            raise DriverError("engine is gone")
        await destroy(task_id)

    monkeypatch.setattr(driver, "stop_task", stop_all_but_the_first)
    monkeypatch.setattr(driver, "destroy_task", destroy_all_but_the_first)
    hook = Recorder()
    async with run_client(added=added(hook)) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: "started 0" in hook.calls)
        await client.calls.restart_alloc(alloc.id, task="web", all_tasks=False)
        await eventually(lambda: "started 1" in hook.calls)
        driver.finish(f"{alloc.id}/web/0")
        driver.finish(f"{alloc.id}/web/1")
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
    assert hook.calls == ["prepare 0", "started 0", "exited 0", "prepare 1", "started 1", "exited 1", "finish"]


async def test_hooks_hear_of_the_end_of_a_run_that_the_driver_fails_to_watch(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(task_id: str) -> ExitResult:
        raise ValueError("odd")

    monkeypatch.setattr(driver, "wait_task", wait)
    hook = Recorder()
    async with run_client(added=added(hook)) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: "exited 0" in hook.calls)
        failure = "driver 'fake' watching the task failed unexpectedly: ValueError: odd"
        await eventually(lambda: any(failure in text for _, text in events(server, alloc)))


class Updates(TaskHook):
    """Notes what `update` finds in the facts of the task; prepares until it may go on."""

    name = "updates"

    def __init__(self) -> None:
        self.may_go = asyncio.Event()
        self.has_begun = False
        self.seen: list[dict[str, str]] = []

    async def prepare(self, task: HookedTask) -> None:
        self.has_begun = True
        await self.may_go.wait()

    def update(self, task: HookedTask) -> None:
        self.seen.append(dict(task.facts.meta))


def with_meta(alloc: Allocation, value: str) -> Allocation:
    assert alloc.job is not None
    group = alloc.job.task_groups[0]
    changed = replace(group, tasks=(replace(group.tasks[0], meta={"v": value}),))
    return replace(alloc, job=replace(alloc.job, version=1, task_groups=(changed,)))


async def test_a_change_while_a_run_is_prepared_is_told_when_it_has_started(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    hook = Updates()
    async with run_client(added=added(hook)) as client:
        alloc = alloc_of(client.node_id, meta={"v": "1"})
        server.put_alloc(alloc)
        await eventually(lambda: hook.has_begun)
        server.put_alloc(with_meta(alloc, "2"))
        await eventually(lambda: getattr(client.allocs.live[alloc.id].alloc.job, "version", 0) == 1)
        assert not hook.seen
        hook.may_go.set()
        await eventually(lambda: hook.seen == [{"v": "2"}])


async def test_a_stop_is_no_change_of_the_job(run_client: MakeClient, server: FakeServerPort) -> None:
    hook = Updates()
    hook.may_go.set()
    async with run_client(added=added(hook)) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
    assert not hook.seen


async def test_hooks_of_packages_take_up_a_run_while_the_servers_are_away(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(query: IdentityQuery) -> SignedIdentity:
        raise Unavailable("no servers")

    async with run_client() as client:
        alloc = alloc_of(client.node_id, identity=WorkloadIdentity(name="default", env=True))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    monkeypatch.setattr(server, "sign_identity", refuse)
    hook = Recorder()
    async with run_client(with_driver=FakeDriver(driver.host), added=added(hook)):
        await eventually(lambda: hook.calls == ["recover 0"])
