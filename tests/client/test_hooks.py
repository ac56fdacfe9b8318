"""Hooks that packages add, on a client with a fake driver: when each is called, and what follows from failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from yurt.client.config import AddedHooks
from yurt.client.hooks import task_hook_calls
from yurt.client.task_env import replace_in_words
from yurt.sdk.driver import ExitResult, Mount, TaskHandle
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.hooks import Additions, AllocHook, HookedAlloc, HookedTask, TaskHook
from yurt.sdk.services import ServiceInstance
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.policies import RestartPolicy
from yurt.structs.service import Service
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_RUNNING
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

from .conftest import MakeClient

ONCE_MORE = RestartPolicy(attempts=1, interval=seconds(600), delay=seconds(0.01), mode="fail")


class Recorder(TaskHook):
    """Notes every call; does at a step what it was told to."""

    name = "recorder"

    def __init__(self, **acts: Callable[[HookedTask], Coroutine[Any, Any, Any]]) -> None:
        self.calls: list[str] = []
        self.acts = acts

    async def _called(self, step: str, task: HookedTask) -> Any:
        self.calls.append(f"{step} {task.run}")
        return await self.acts[step](task) if step in self.acts else None

    async def prepare(self, task: HookedTask) -> Additions | None:
        given: Additions | None = await self._called("prepare", task)
        return given

    async def started(self, task: HookedTask, handle: TaskHandle) -> None:
        await self._called("started", task)

    async def exited(self, task: HookedTask, result: ExitResult) -> None:
        await self._called("exited", task)

    async def recover(self, task: HookedTask) -> Additions | None:
        given: Additions | None = await self._called("recover", task)
        return given

    def finish(self, task: HookedTask) -> None:
        if "finish" not in self.calls:
            self.calls.append("finish")


def added(*hooks: TaskHook) -> AddedHooks:
    return AddedHooks(task={hook.name: hook for hook in hooks})


def alloc_of(node_id: str, **task: Any) -> Allocation:
    job = factories.job(type="batch", task_groups=(factories.group(tasks=(factories.task(**task),)),))
    return placed(node_id, job=job)


def events(server: FakeServerPort, alloc: Allocation) -> list[tuple[str, str]]:
    states = server.last_update(alloc.id).task_states
    return [(event.type, event.display_message) for state in states.values() for event in state.events]


async def raising(error: Exception) -> None:
    raise error


async def test_the_steps_of_a_task_come_in_their_order(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    hook = Recorder()
    async with run_client(added=added(hook)) as client:
        alloc = alloc_of(client.node_id, restart_policy=ONCE_MORE)
        server.put_alloc(alloc)
        for run in (0, 1):
            await eventually(lambda run=run: f"started {run}" in hook.calls)
            driver.finish(f"{alloc.id}/web/{run}", ExitResult(exit_code=1))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
    assert hook.calls == ["prepare 0", "started 0", "exited 0", "prepare 1", "started 1", "exited 1", "finish"]


async def test_a_run_gets_what_hooks_give(run_client: MakeClient, server: FakeServerPort, driver: FakeDriver) -> None:
    async def give(task: HookedTask) -> Additions:
        assert task.env["OWN"] == "job" and task.facts.meta == {"colour": "red"}
        mounts = (Mount(host_path="/srv", task_path="/srv"),)
        return Additions(env={"OWN": "hook", "FIXED": "no"}, fixed_env={"FIXED": "yes"}, mounts=mounts)

    async with run_client(added=added(Recorder(prepare=give))) as client:
        alloc = alloc_of(client.node_id, env={"OWN": "job"}, meta={"colour": "red"})
        server.put_alloc(alloc)
        await eventually(lambda: driver.host.tasks)
        request = driver.host.tasks[f"{alloc.id}/web/0"].request
    assert (request.env["OWN"], request.env["FIXED"]) == ("hook", "yes")
    assert [mount.task_path for mount in request.mounts] == ["/srv"]


async def test_a_hook_behind_the_configuration_adds_too(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async def give(task: HookedTask) -> Additions:
        return Additions(env={"LATE": "1"}, network_namespace="/run/netns/x")

    hook = Recorder(prepare=give)
    hook.after = ("templates",)
    async with run_client(added=added(hook)) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: driver.host.tasks)
        request = driver.host.tasks[f"{alloc.id}/web/0"].request
    assert (request.env["LATE"], request.network_namespace) == ("1", "/run/netns/x")


@pytest.mark.parametrize(
    ("error", "text", "runs"),
    [
        (DriverError("no"), 'hook "recorder": no', 1),
        (RecoverableError("not yet"), 'hook "recorder": not yet', 2),
        (ValueError("odd"), 'hook "recorder" failed unexpectedly: ValueError: odd', 1),
    ],
)
async def test_a_preparation_that_fails_is_told_and_fails_the_task(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, error: Exception, text: str, runs: int
) -> None:
    hook = Recorder(prepare=lambda task: raising(error))
    async with run_client(added=added(hook)) as client:
        alloc = alloc_of(client.node_id, restart_policy=ONCE_MORE)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
    assert ("Setup Failure", text) in events(server, alloc)
    assert hook.calls[:-1] == [f"prepare {run}" for run in range(runs)] and not driver.host.starts


@pytest.mark.parametrize("step", ["started", "exited"])
async def test_other_steps_that_fail_are_told_and_the_task_goes_on(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, step: str
) -> None:
    hook = Recorder(**{step: lambda task: raising(DriverError("no"))})
    async with run_client(added=added(hook)) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: "started 0" in hook.calls)
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
    assert ("Task hook failed", 'hook "recorder": no') in events(server, alloc)


async def test_a_kill_gives_up_the_preparation_of_a_hook(run_client: MakeClient, server: FakeServerPort) -> None:
    hook = Recorder(prepare=lambda task: asyncio.sleep(3600))
    async with run_client(added=added(hook)) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: "prepare 0" in hook.calls)
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)


async def test_the_end_of_a_run_waits_only_for_a_while(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_hook_calls, "EXITED_LIMIT_S", 0.05)
    async with run_client(added=added(Recorder(exited=lambda task: asyncio.sleep(3600)))) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
    assert any("were not done within" in text for _, text in events(server, alloc))


async def test_a_run_that_is_found_again_is_recovered_and_not_prepared(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async def give(task: HookedTask) -> Additions:
        return Additions(env={"TOKEN": "t"})

    async with run_client() as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    hook = Recorder(recover=give)
    async with run_client(with_driver=FakeDriver(driver.host), added=added(hook)) as client:
        task = client.allocs.live[alloc.id].tasks["web"]
        await eventually(lambda: replace_in_words(("${TOKEN}",), task.hooked.lookup) == ("t",))
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
    assert hook.calls == ["recover 0", "exited 0", "finish"]


async def test_work_beside_a_task_ends_with_it(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    ends: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ends.append("end")

    async def follow(task: HookedTask) -> None:
        task.follow(work())

    async with run_client(added=added(Recorder(prepare=follow))) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        assert not ends
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: ends == ["end"])


class AllocRecorder(AllocHook):
    """Notes every call."""

    name = "recorder"

    def __init__(self, failing: str = "") -> None:
        self.calls: list[str] = []
        self.failing = failing

    def _called(self, step: str) -> None:
        if step not in self.calls[-1:]:
            self.calls.append(step)
        if step == self.failing:
            raise DriverError("no")

    async def prepare(self, alloc: HookedAlloc) -> None:
        self._called("prepare")

    async def recover(self, alloc: HookedAlloc) -> None:
        self._called("recover")

    def update(self, alloc: HookedAlloc) -> UnixNano | None:
        self._called("runs" if alloc.running else "waits")
        return None

    async def stopping(self, alloc: HookedAlloc) -> None:
        self._called("stopping")

    async def exited(self, alloc: HookedAlloc) -> None:
        self._called("exited")

    def finish(self, alloc: HookedAlloc) -> None:
        self._called("finish")


async def test_the_steps_of_an_allocation_come_in_their_order(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    first, second = AllocRecorder(), AllocRecorder()
    async with run_client(added=AddedHooks(alloc={"recorder": first})) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    async with run_client(with_driver=FakeDriver(driver.host), added=AddedHooks(alloc={"recorder": second})) as client:
        await eventually(lambda: "runs" in second.calls)
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: alloc.id in client.allocs.ended)
    assert first.calls == ["prepare", "waits", "runs"]
    assert second.calls[:2] == ["recover", "runs"]
    assert [each for each in second.calls if each not in ("runs", "waits")] == [
        "recover",
        "stopping",
        "exited",
        "finish",
    ]
    assert second.calls.index("stopping") < second.calls.index("exited")


async def test_an_allocation_whose_preparation_fails_begins_no_task(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client(added=AddedHooks(alloc={"recorder": AllocRecorder("prepare")})) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
    assert ("Setup Failure", 'hook "recorder": no') in events(server, alloc) and not driver.host.starts


async def test_a_hook_that_fails_at_every_look_is_told_once(run_client: MakeClient, server: FakeServerPort) -> None:
    async with run_client(added=AddedHooks(alloc={"recorder": AllocRecorder("runs")})) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        failure = ("Task hook failed", 'hook "recorder": no')
        await eventually(lambda: failure in events(server, alloc))
        client.allocs.live[alloc.id].hooked.note("something else")
        await eventually(lambda: ("Task hook message", "something else") in events(server, alloc))
        assert events(server, alloc).count(failure) == 1


class Directory:
    """A service provider that keeps what it is told."""

    name = "directory"

    def __init__(self) -> None:
        self.known: dict[str, ServiceInstance] = {}
        self.failures: list[Exception] = []

    async def register(self, services: tuple[ServiceInstance, ...]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.known |= {service.id: service for service in services}

    async def deregister(self, ids: tuple[str, ...]) -> None:
        for each in ids:
            self.known.pop(each, None)

    async def close(self) -> None:
        """Nothing is held."""


async def test_services_go_to_the_provider_that_they_name(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.client.services.registrations.RETRY_S", 0.01)
    directory = Directory()
    directory.failures = [ValueError("odd")]
    async with run_client(added=AddedHooks(service_providers={"directory": directory})) as client:
        services = (
            Service(name="web", provider="directory", meta={"on": "${NOMAD_TASK_NAME}"}),
            Service(name="api", provider="nomad"),
            Service(name="lost", provider="elsewhere"),
        )
        alloc = alloc_of(client.node_id, services=services)
        server.put_alloc(alloc)
        await eventually(lambda: directory.known and server.services)
        (found,), (row,) = directory.known.values(), server.services.values()
        assert (found.name, found.task_name, found.meta, row.service_name) == ("web", "web", {"on": "web"}, "api")
        assert any('"lost" is not registered: its provider is elsewhere' in text for _, text in events(server, alloc))
        driver.finish(f"{alloc.id}/web/0")
        await eventually(lambda: not directory.known and not server.services)
