"""A client with a device plugin: what its node offers, what tasks get, and what happens when a device breaks."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from yurt.client.client import Client
from yurt.client.devices.manager import online_nodes
from yurt.lifecycle.device_health import DeviceHealthSettings, DeviceRecord
from yurt.sdk.device import SLICE, ClaimedDevices, DeviceClaim, SelfTest
from yurt.sdk.driver import ExitResult, Mount
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.value import Duration, replace
from yurt.storage.client_db import ClientDatabase
from yurt.structs.alloc import AllocatedDeviceResource, AllocatedResources, AllocatedTaskResources, Allocation
from yurt.structs.node import DeviceMark, Node, NodeDevice
from yurt.structs.resources import NUMAResource
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_RUNNING
from yurt.testing.client_objects import placed
from yurt.testing.fake_devices import NAME, TYPE, VENDOR, FakeDevices, SelfTestingDevices
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually
from yurt.testing.real_agent import shell_alloc

MakeClient = Callable[..., AbstractAsyncContextManager[Client]]
MIB = 1 << 20
AT_ONCE = DeviceHealthSettings(probation_s=0.0, trial_s=0.0)


def given(alloc: Allocation, *ids: str, **share: Any) -> Allocation:
    """The allocation with devices for its one task."""
    assert alloc.job is not None
    (task,) = alloc.job.task_groups[0].tasks
    device = AllocatedDeviceResource(vendor=VENDOR, type=TYPE, name=NAME, device_ids=ids, **share)
    tasks = {task.name: AllocatedTaskResources(devices=(device,))}
    return replace(alloc, allocated_resources=AllocatedResources(tasks=tasks))


def known(server: FakeServerPort) -> Node:
    """The node, as the servers know it."""
    (node,) = server.nodes.values()
    return node


def shown(server: FakeServerPort) -> dict[str, NodeDevice]:
    """The devices of the node, as the servers know it."""
    return {each.id: each for group in known(server).node_resources.devices for each in group.instances}


def task_events(server: FakeServerPort, alloc: Allocation) -> list[str]:
    """The messages of the task's events as reported to the servers."""
    (state,) = server.last_update(alloc.id).task_states.values()
    return [event.display_message for event in state.events]


async def test_the_first_registration_has_the_devices(run_client: MakeClient, server: FakeServerPort) -> None:
    async with run_client(devices={"fake": FakeDevices("f0", "f1")}):
        assert list(shown(server)) == ["f0", "f1"]
        assert known(server).attributes["device.fake"] == "1"
        assert known(server).node_resources.devices[0].attributes["memory"].int_val == 80


async def test_a_task_gets_the_variables_of_its_devices_and_cannot_change_them(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    plugin = FakeDevices("f0", "f1", "f2")
    async with run_client(devices={"fake": plugin}) as client:
        alloc = given(placed(client.node_id), "f2", "f0")
        assert alloc.job is not None
        group = alloc.job.task_groups[0]
        task = replace(group.tasks[0], env={"FPGA_IDS": "f1", "MINE": "${FPGA_IDS}"})
        alloc = replace(alloc, job=replace(alloc.job, task_groups=(replace(group, tasks=(task,)),)))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        (started,) = driver.host.tasks.values()

        assert started.request is not None
        assert (started.request.env["FPGA_IDS"], started.request.env["MINE"]) == ("f2,f0", "f2,f0")
        await eventually(lambda: plugin.reported_claims and plugin.reported_claims[-1])
        assert plugin.reported_claims[-1][0].ids == ("f2", "f0")


async def test_holders_are_told_until_they_have_ended_also_by_the_next_agent(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client(devices={"fake": FakeDevices("f0")}) as client:
        alloc = given(placed(client.node_id), "f0")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    plugin = FakeDevices("f0")
    async with run_client(devices={"fake": plugin}):
        await eventually(lambda: plugin.reported_claims)
        assert [claim.alloc_id for claim in plugin.reported_claims[0]] == [alloc.id]
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: plugin.reported_claims[-1] == ())

    assert plugin.claims == [], "a task that goes on is not started again"


async def test_a_device_that_breaks_is_told_to_the_servers_and_to_its_holder_which_goes_on(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    plugin = FakeDevices("f0", "f1")
    async with run_client(devices={"fake": plugin}, device_health=AT_ONCE) as client:
        alloc, other = (given(placed(client.node_id, number=n), each) for n, each in enumerate(("f0", "f1")))
        for each in (alloc, other):
            server.put_alloc(each)
        await eventually(lambda: {server.status_of(each.id) for each in (alloc, other)} == {CLIENT_RUNNING})
        plugin.change(reasons={"f0": "Xid 79"})
        await eventually(lambda: not shown(server)["f0"].healthy)
        text = "Device acme/fpga/A1/f0 has failed: Xid 79"
        await eventually(lambda: text in task_events(server, alloc))

        assert (shown(server)["f0"].health_description, shown(server)["f1"].healthy) == ("Xid 79", True)
        assert text in [event.message for request in server.events for event in request.events]
        assert server.status_of(alloc.id) == CLIENT_RUNNING
        assert not any("has failed" in event for event in task_events(server, other))
        plugin.change(reasons={})
        await eventually(lambda: any("f0 is on probation" in event for event in task_events(server, alloc)))
        assert not shown(server)["f0"].healthy, "it is tested once its holder has ended"
        server.put_alloc(replace(alloc, desired_status="stop"))
        await eventually(lambda: shown(server)["f0"].healthy)


async def test_a_fault_is_stored_before_the_servers_learn_of_it_and_holds_on_the_node_at_once(
    run_client: MakeClient, server: FakeServerPort, database: ClientDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, put, may_store = FakeDevices("f0"), database.put_device_health, asyncio.Event()
    began = asyncio.Event()

    async def slow_put(records: Mapping[str, DeviceRecord]) -> None:
        began.set()
        await may_store.wait()
        await put(records)

    async with run_client(devices={"fake": plugin}) as client:
        monkeypatch.setattr(database, "put_device_health", slow_put)
        plugin.change(reasons={"f0": "Xid 79"})
        await asyncio.wait_for(began.wait(), 10)
        claim = DeviceClaim(
            alloc_id="a", task_name="t", devices=(ClaimedDevices(vendor=VENDOR, type=TYPE, name=NAME, ids=("f0",)),)
        )
        with pytest.raises(DriverError, match="is unhealthy: Xid 79"):
            await client.devices.reserve(claim)
        assert shown(server)["f0"].healthy, "the servers do not know it yet"
        assert client.node.node_resources.devices[0].instances[0].healthy, "nor would any heartbeat tell them"
        may_store.set()
        await eventually(lambda: not shown(server)["f0"].healthy)
        assert "acme/fpga/A1/f0" in await database.device_health()


async def test_a_task_that_ends_is_not_started_again_with_a_bad_device(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    plugin = FakeDevices("f0")
    async with run_client(devices={"fake": plugin}) as client:
        alloc = given(with_restarts(placed(client.node_id)), "f0")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        plugin.change(reasons={"f0": "Xid 79"})
        await eventually(lambda: not shown(server)["f0"].healthy)
        driver.finish(driver.host.starts[0], ExitResult(exit_code=1))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)

        assert len(driver.host.starts) == 1
        assert any(event.endswith("f0 is unhealthy: Xid 79") for event in task_events(server, alloc))


def with_restarts(alloc: Allocation, attempts: int = 3) -> Allocation:
    """The allocation with a task that is started again at once, so often."""
    assert alloc.job is not None
    group = alloc.job.task_groups[0]
    (task,) = group.tasks
    task = replace(task, restart_policy=replace(task.restart_policy, attempts=attempts, delay=1_000_000, mode="fail"))
    return replace(alloc, job=replace(alloc.job, task_groups=(replace(group, tasks=(task,)),)))


async def test_a_device_that_is_not_there_fails_the_task_with_its_id(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    async with run_client(devices={"fake": FakeDevices("f0")}) as client:
        alloc = given(placed(client.node_id), "f7")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)

        assert any("acme/fpga/A1/f7 is no longer on this node" in event for event in task_events(server, alloc))


async def test_a_reservation_that_may_work_later_is_tried_again(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    plugin = FakeDevices("f0")
    plugin.reserve_errors = [RecoverableError("the daemon starts")]
    async with run_client(devices={"fake": plugin}) as client:
        alloc = given(with_restarts(placed(client.node_id)), "f0")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)

        assert any("the daemon starts" in event for event in task_events(server, alloc))


async def test_a_plugin_that_fails_leaves_its_devices_unhealthy_and_the_client_running(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    plugin, other = FakeDevices("f0"), FakeDevices(name="other")
    async with run_client(devices={"fake": plugin, "other": other}) as client:
        plugin.fail()
        await eventually(lambda: not shown(server)["f0"].healthy)

        assert "the plugin has a defect" in shown(server)["f0"].health_description
        assert client.devices.lines()["other"] == (False, "it found no device")


async def test_a_mount_that_a_driver_cannot_make_is_refused(run_client: MakeClient, server: FakeServerPort) -> None:
    plugin = FakeDevices("f0")
    plugin.mounts = (Mount(host_path="/run/fpga", task_path="/fpga"),)
    async with run_client(devices={"fake": plugin}) as client:
        alloc = given(placed(client.node_id), "f0")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)

        assert any("isolates no file system" in event for event in task_events(server, alloc))


async def test_figures_stand_in_the_statistics_of_the_node_and_of_the_holder(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    plugin = FakeDevices("f0", "f1")
    plugin.use("f0", {7: 3 * MIB})
    plugin.use("f1", {})
    async with run_client(devices={"fake": plugin}) as client:
        alloc = given(placed(client.node_id), "f0")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        of_alloc = await client.calls.alloc_stats(alloc.id, "")
        of_node = await client.calls.host_stats()

    assert list(of_node.device_stats[0].instance_stats) == ["f0", "f1"]
    assert list(of_alloc.resource_usage.device_stats[0].instance_stats) == ["f0"]
    (task,) = of_alloc.tasks.values()
    assert task.resource_usage.device_stats[0].instance_stats["f0"].summary.int_numerator_val == 3


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_slice_that_overruns_is_stopped_and_its_neighbour_lives(
    run_client: MakeClient, server: FakeServerPort, tmp_path: Path
) -> None:
    raw_exec = pytest.importorskip("yurt_driver_raw_exec.plugin", reason="the raw_exec driver is not installed")
    from yurt.sdk.driver import AgentPaths, PluginContext

    paths = AgentPaths(state_dir=str(tmp_path / "plugins"), run_dir=str(tmp_path / "run"))
    context = PluginContext(dev=True, options={"driver.raw_exec.enable": "1"}, paths=paths)
    (driver,) = raw_exec.yurt_task_drivers(context)
    plugin = FakeDevices("f0")
    async with run_client(devices={"fake": plugin}, with_driver=driver) as client:
        allocs = [
            given(
                replace(with_restarts(shell_alloc(client.node_id, "sleep 60 & wait"), attempts=0), id=alloc_id),
                f"f0::{n}",
                share=SLICE,
                memory_mb=1024,
            )
            for n, alloc_id in enumerate((str(uuid.uuid4()), str(uuid.uuid4())))
        ]
        for alloc in allocs:
            server.put_alloc(alloc)
        await eventually(lambda: all(server.status_of(each.id) == CLIENT_RUNNING for each in allocs))
        pids = [handle.pid for each in allocs if (handle := client.allocs.live[each.id].tasks["web"].handle)]
        plugin.use("f0", {pids[0]: 1500 * MIB, pids[1]: 1000 * MIB, 1: 9000 * MIB})
        text = "Memory of device acme/fpga/A1/f0: used 1.5 of 1 GiB; the task is stopped to spare its neighbours"
        await eventually(lambda: text in task_events(server, allocs[0]))
        await eventually(lambda: server.status_of(allocs[0].id) == CLIENT_FAILED)

        assert any("Signal: 9" in event for event in task_events(server, allocs[0]))
        assert server.status_of(allocs[1].id) == CLIENT_RUNNING
        assert not any("Memory of device" in event for event in task_events(server, allocs[1]))
        await asyncio.wait_for(client.stop_all(), 60)
    await driver.close()


@pytest.mark.skipif(0 not in online_nodes(), reason="this machine tells of no NUMA nodes")
async def test_memory_comes_from_the_devices_node_where_the_job_requires_it(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client(devices={"fake": FakeDevices("f0")}) as client:
        alloc = given(placed(client.node_id), "f0")
        assert alloc.job is not None
        group = alloc.job.task_groups[0]
        (task,) = group.tasks
        bound = replace(task, resources=replace(task.resources, numa=NUMAResource(affinity="require")))
        job = replace(alloc.job, task_groups=(replace(group, tasks=(bound,)),))
        near, other = replace(alloc, job=job), given(placed(client.node_id, number=1), "f0")
        for each in (near, other):
            server.put_alloc(each)
        await eventually(lambda: len(driver.host.tasks) == 2)
        requests = {task.request.alloc_id: task.request for task in driver.host.tasks.values() if task.request}

    assert requests[near.id].resources.memory_nodes == (0,)
    assert requests[other.id].resources.memory_nodes == ()


def test_nodes_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    (tmp_path / "online").write_text("0-1,4\n")

    assert online_nodes(tmp_path / "online") == {0, 1, 4}
    assert online_nodes(tmp_path / "none") == frozenset()


class SlowToStop(FakeDriver):
    """Ends a task once it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may_stop = asyncio.Event()

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        await self.may_stop.wait()
        await super().stop_task(task_id, signal=signal, timeout=timeout)


async def waiting_for_device(
    client: Client, server: FakeServerPort, driver: FakeDriver
) -> tuple[Allocation, Allocation]:
    """An allocation that is being stopped, and one that has begun to wait for its device."""
    old, new = (given(placed(client.node_id, number=number), "f0") for number in (0, 1))
    server.put_alloc(old)
    await eventually(lambda: server.status_of(old.id) == CLIENT_RUNNING)
    server.put_alloc(replace(old, desired_status="stop"))
    server.put_alloc(new)
    text = f"of allocation {old.id[:8]} has not ended yet"
    await eventually(lambda: any(text in repr(update) for update in server.updates if update.id == new.id))
    assert len(driver.host.starts) == 1
    return old, new


async def test_a_task_waits_until_another_that_is_being_stopped_has_left_its_device(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    driver = SlowToStop()
    async with run_client(devices={"fake": FakeDevices("f0")}, with_driver=driver) as client:
        _, new = await waiting_for_device(client, server, driver)
        driver.may_stop.set()
        await eventually(lambda: server.status_of(new.id) == CLIENT_RUNNING)


async def test_a_task_that_waits_for_a_device_can_be_stopped(run_client: MakeClient, server: FakeServerPort) -> None:
    driver = SlowToStop()
    async with run_client(devices={"fake": FakeDevices("f0")}, with_driver=driver) as client:
        _, new = await waiting_for_device(client, server, driver)
        server.put_alloc(replace(new, desired_status="stop"))
        await eventually(lambda: server.status_of(new.id) == CLIENT_COMPLETE)
        assert len(driver.host.starts) == 1
        driver.may_stop.set()


async def test_a_card_returns_when_its_self_test_has_passed_and_stays_out_when_it_failed(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    plugin = SelfTestingDevices("f0", "f1")
    async with run_client(devices={"fake": plugin}, device_health=AT_ONCE):
        plugin.change(reasons={"f0": "Xid 79", "f1": "Xid 79"})
        await eventually(lambda: not shown(server)["f1"].healthy)
        plugin.change(reasons={})
        await eventually(lambda: len(plugin.tests) == 2)
        answers = dict(plugin.tests)
        answers["f0"].set_result(SelfTest(detail="16 GiB of memory"))
        answers["f1"].set_result(SelfTest(problem="memory differs"))
        await eventually(lambda: shown(server)["f0"].healthy)

        health = shown(server)["f0"].health
        assert health is not None
        assert [change.state for change in health.history] == ["failed", "probation", "healthy"]
        await eventually(lambda: "self-test failed: memory differs" in history(server, "f1"))


def history(server: FakeServerPort, device: str) -> str:
    """The reasons of a device's changes, as the servers know them."""
    health = shown(server)[device].health
    return "; ".join(change.reason for change in health.history) if health is not None else ""


async def test_a_self_test_that_hangs_fails_at_its_time_limit(run_client: MakeClient, server: FakeServerPort) -> None:
    plugin = SelfTestingDevices("f0")
    settings = DeviceHealthSettings(probation_s=0.0, self_test_s=0.05)
    async with run_client(devices={"fake": plugin}, device_health=settings):
        plugin.change(reasons={"f0": "Xid 79"})
        await eventually(lambda: not shown(server)["f0"].healthy)
        plugin.change(reasons={})
        await eventually(lambda: "self-test failed: it did not end within 0.05 s" in history(server, "f0"))

        assert not shown(server)["f0"].healthy


async def test_a_card_that_is_out_stays_out_over_a_restart_of_the_agent(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    plugin = FakeDevices("f0")
    async with run_client(devices={"fake": plugin}):
        plugin.change(reasons={"f0": "Xid 79"})
        await eventually(lambda: not shown(server)["f0"].healthy)
        await asyncio.sleep(0)
    async with run_client(devices={"fake": FakeDevices("f0")}):
        assert not shown(server)["f0"].healthy
        await eventually(lambda: "Xid 79; the fault has passed" in history(server, "f0"))


async def test_a_card_that_the_servers_suspect_is_tested_and_their_mark_acknowledged(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    plugin = SelfTestingDevices("f0")
    server.ttl_s = 0.05
    mark = DeviceMark(kind="suspected", index=9, reason="three jobs failed")
    async with run_client(devices={"fake": plugin}, device_health=AT_ONCE):
        server.device_marks = {"acme/fpga/A1/f0": mark}
        await eventually(lambda: plugin.tests)
        await eventually(lambda: not shown(server)["f0"].healthy)
        health = shown(server)["f0"].health
        plugin.tests[0][1].set_result(SelfTest())
        await eventually(lambda: shown(server)["f0"].healthy)

    assert health is not None
    assert (health.state, health.acknowledged_mark, len(plugin.tests)) == ("probation", mark.key, 1)


async def test_a_degraded_card_is_told_and_a_suspect_one_may_still_be_used(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    plugin = FakeDevices("f0", "f1")
    async with run_client(devices={"fake": plugin}):
        reasons = {"f0": "rows wait to be remapped", "f1": "it slows down for heat"}
        plugin.change(reasons=reasons, severities={"f0": "degraded", "f1": "suspect"})
        await eventually(lambda: not shown(server)["f0"].healthy)
        await eventually(lambda: "slows down" in history(server, "f1"))

        assert shown(server)["f1"].healthy
        texts = [event.message for request in server.events for event in request.events]
        assert "Device acme/fpga/A1/f0 is degraded: rows wait to be remapped" in texts
