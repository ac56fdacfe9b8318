"""Hooks of packages that hang, give the wrong thing or are cancelled from within: the client goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from yurt.client import timed_waits
from yurt.client.config import AddedHooks
from yurt.client.hooks import alloc_hook_calls, task_hook_calls
from yurt.sdk.hooks import AllocHook, HookedAlloc, HookedTask, TaskHook
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_RUNNING
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

from .conftest import MakeClient
from .test_hooks import AllocRecorder, Recorder, added, alloc_of, events

CANCELLED = "failed unexpectedly: WorkCancelledError"


async def cancelled_within(seen: object) -> None:
    """What a hook does that awaits a task of its own which somebody cancels."""
    work = asyncio.ensure_future(asyncio.sleep(3600))
    asyncio.get_running_loop().call_later(0.01, work.cancel)
    await work


class AllocActs(AllocHook):
    """Does at the steps of an allocation what it was told to, and notes those calls."""

    name = "acts"

    def __init__(self, **acts: Callable[[HookedAlloc], Any]) -> None:
        self.acts = acts
        self.calls: list[str] = []

    def _called(self, step: str, alloc: HookedAlloc) -> Any:
        self.calls.append(step)
        return self.acts[step](alloc) if step in self.acts else None

    async def prepare(self, alloc: HookedAlloc) -> None:
        if (work := self._called("prepare", alloc)) is not None:
            await work

    async def recover(self, alloc: HookedAlloc) -> None:
        if (work := self._called("recover", alloc)) is not None:
            await work

    def update(self, alloc: HookedAlloc) -> UnixNano | None:
        answer: UnixNano | None = self._called("update", alloc) if alloc.running else None
        return answer

    def stopping(self, alloc: HookedAlloc) -> Any:
        return self._called("stopping", alloc)

    async def exited(self, alloc: HookedAlloc) -> None:
        if (work := self._called("exited", alloc)) is not None:
            await work


def of_allocs(hook: AllocHook) -> AddedHooks:
    return AddedHooks(alloc={hook.name: hook})


def hangs(seen: object) -> Coroutine[Any, Any, None]:
    return asyncio.sleep(3600)


async def test_a_preparation_cancelled_from_within_fails_the_task(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client(added=added(Recorder(prepare=cancelled_within))) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
    assert any(kind == "Setup Failure" and CANCELLED in text for kind, text in events(server, alloc))


async def test_an_end_of_a_run_cancelled_from_within_is_told_as_what_it_is(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client(added=added(Recorder(exited=cancelled_within))) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
    assert any(CANCELLED in text for _, text in events(server, alloc))
    assert not any("not done within" in text for _, text in events(server, alloc))


async def test_a_preparation_of_an_allocation_cancelled_from_within_fails_it(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client(added=of_allocs(AllocActs(prepare=cancelled_within))) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
    assert not driver.host.starts


@pytest.mark.parametrize("step", ["stopping", "exited"])
async def test_an_end_of_an_allocation_cancelled_from_within_goes_on(
    run_client: MakeClient, server: FakeServerPort, step: str
) -> None:
    hook = AllocActs(**{step: cancelled_within})
    async with run_client(added=of_allocs(hook)) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
    assert step in hook.calls


@pytest.mark.parametrize("act", [cancelled_within, hangs])
async def test_the_node_becomes_ready_whatever_a_recovery_does(
    run_client: MakeClient,
    server: FakeServerPort,
    driver: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[object], Coroutine[Any, Any, None]],
) -> None:
    monkeypatch.setattr(alloc_hook_calls, "LIMIT_S", 0.05)
    async with run_client() as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    hook = AllocActs(recover=act)
    async with asyncio.timeout(30):
        async with run_client(with_driver=FakeDriver(driver.host), added=of_allocs(hook)) as client:
            await eventually(lambda: any('hook "acts"' in text for _, text in events(server, alloc)))
            assert client.is_ready and hook.calls[0] == "recover"


async def test_a_recovery_is_given_up_for_a_stop(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client() as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    server.put_alloc(replace(alloc, desired_status="stop"))
    async with asyncio.timeout(5):  # half of the recovery's limit
        async with run_client(with_driver=FakeDriver(driver.host), added=of_allocs(AllocActs(recover=hangs))):
            await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)


async def test_the_node_becomes_ready_while_an_allocation_is_prepared(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    async with run_client() as client:
        node_id = client.node_id
    server.put_alloc(alloc_of(node_id))
    hook = AllocActs(prepare=hangs)
    async with asyncio.timeout(30):
        async with run_client(added=of_allocs(hook)) as client:
            assert client.is_ready
            await eventually(lambda: hook.calls == ["prepare"])


async def soon() -> None:
    """What a hook gives whose `update` is a coroutine function by mistake."""


@pytest.mark.parametrize("answer", [lambda alloc: "soon", lambda alloc: soon(), lambda alloc: True])
async def test_a_wrong_answer_of_update_is_a_failure_of_the_hook(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, answer: Callable[[HookedAlloc], Any]
) -> None:
    async with run_client(added=of_allocs(AllocActs(update=answer))) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        await eventually(lambda: any("it must give a time" in text for _, text in events(server, alloc)))
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)


async def test_a_time_in_the_past_is_no_busy_loop(run_client: MakeClient, server: FakeServerPort) -> None:
    hook = AllocActs(update=lambda alloc: 1)
    async with run_client(added=of_allocs(hook)) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        asked = len(hook.calls)
        await eventually(lambda: len(hook.calls) >= asked + 2)
        await asyncio.sleep(0.2)
    assert len(hook.calls) <= asked + 5, "at 277 a second it would be dozens"


async def test_an_allocation_that_ended_without_a_beginning_is_not_prepared_again(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client(added=of_allocs(AllocRecorder("prepare"))) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: alloc.id in client.allocs.ended)
    second = AllocRecorder()
    async with run_client(with_driver=FakeDriver(driver.host), added=of_allocs(second)) as client:
        await eventually(lambda: "finish" in second.calls)
    assert "prepare" not in second.calls


async def test_what_a_hook_asks_of_a_task_while_it_finishes_is_ignored(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    class Talkative(TaskHook):
        name = "talkative"
        calls = 0

        def finish(self, task: HookedTask) -> None:
            self.calls += 1
            task.note("bye")
            task.fail_task("no")
            task.follow(asyncio.sleep(3600))

    hook = Talkative()
    async with run_client(added=added(hook)) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: alloc.id in client.allocs.ended)
        assert not [work for work in asyncio.all_tasks() if "beside" in work.get_name() and not work.cancelling()]
    assert 0 < hook.calls < 10
    assert server.status_of(alloc.id) == CLIENT_COMPLETE
    assert not any(text in ("bye", "no") for _, text in events(server, alloc))


async def test_a_hook_that_fails_a_stopping_allocation_is_asked_once(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    hook = AllocActs(stopping=lambda alloc: alloc.fail_alloc("cannot drain"))
    async with run_client(added=of_allocs(hook)) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: alloc.id in client.allocs.ended)
    assert server.status_of(alloc.id) == CLIENT_COMPLETE
    assert hook.calls.count("stopping") == 1


@pytest.mark.parametrize("step", ["prepare", "recover"])
async def test_a_wrong_gift_names_its_hook(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, step: str
) -> None:
    async def give(task: HookedTask) -> Any:
        return {"A": "b"}

    hook = Recorder(**{step: give})
    async with run_client(added=added(hook) if step == "prepare" else AddedHooks()) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) in (CLIENT_FAILED, CLIENT_RUNNING))
    if step == "recover":
        async with run_client(with_driver=FakeDriver(driver.host), added=added(hook)):
            await eventually(lambda: any("gives a dict" in text for _, text in events(server, alloc)))
    assert any(text.startswith('hook "recorder": gives a dict') for _, text in events(server, alloc))


async def test_a_recovery_of_a_package_waits_for_no_other_one_for_ever(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_hook_calls, "RECOVER_LIMIT_S", 0.05)
    async with run_client() as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    first, second = Recorder(recover=hangs), Recorder()
    first.name = "a_first"
    async with run_client(with_driver=FakeDriver(driver.host), added=added(first, second)):
        await eventually(lambda: "recover 0" in second.calls)
        await eventually(lambda: any('hook "a_first": not done within' in text for _, text in events(server, alloc)))


async def test_work_that_swallows_its_cancellation_holds_nothing_back(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_hook_calls, "EXITED_LIMIT_S", 0.05)
    monkeypatch.setattr(timed_waits, "GIVE_UP_LIMIT_S", 0.05)
    may_end = asyncio.Event()

    async def stay(task: HookedTask) -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    async with run_client(added=added(Recorder(exited=stay))) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        may_end.set()
        await asyncio.sleep(0)


async def test_an_allocation_whose_preparation_fails_waits_out_no_delay(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    async with run_client(added=of_allocs(AllocRecorder("prepare"))) as client:
        group = factories.group(shutdown_delay=seconds(3600), tasks=(factories.task(),))
        alloc = placed(client.node_id, job=factories.job(type="batch", task_groups=(group,)))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)


async def test_ending_all_at_once_ends_a_delay_that_runs(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client() as client:
        group = factories.group(shutdown_delay=seconds(3600), tasks=(factories.task(),))
        alloc = placed(client.node_id, job=factories.job(type="batch", task_groups=(group,)))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: not client.allocs.live[alloc.id].is_live)
        async with asyncio.timeout(30):
            await client.stop_all()
    assert not driver.host.tasks
