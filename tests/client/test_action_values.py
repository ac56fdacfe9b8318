"""What the `${...}` of an action find: all that its task was started with, also when another agent took it up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from yurt.client.client import Client
from yurt.client.task_env import replace_in_words
from yurt.sdk.value import Duration, replace
from yurt.structs.alloc import AllocatedDeviceResource, AllocatedResources, AllocatedTaskResources, Allocation
from yurt.structs.status import CLIENT_RUNNING
from yurt.structs.task import Action, Template, WaitConfig
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fake_devices import NAME, TYPE, VENDOR, FakeDevices
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

MakeClient = Callable[..., AbstractAsyncContextManager[Client]]

COMMAND = ("${COLOUR}", "${FPGA_IDS}", "${NOMAD_TASK_NAME}-${nobody}")
FILLED = ("green", "f0", "web-${nobody}")


def alloc_of(node_id: str) -> Allocation:
    """A task with an action, a template for its environment, one that shows its devices, and a device."""
    job = factories.job(type="service")
    group = job.task_groups[0]
    at_once = WaitConfig(min=Duration(0), max=Duration(0))
    templates = (
        Template(dest_path="local/env", embedded_tmpl="COLOUR=green", envvars=True, wait=at_once),
        Template(dest_path="local/ids", embedded_tmpl='{{ env "FPGA_IDS" }}', change_mode="restart", wait=at_once),
    )
    actions = (Action(name="tell", command="/bin/echo", args=COMMAND),)
    task = replace(group.tasks[0], templates=templates, actions=actions)
    device = AllocatedDeviceResource(vendor=VENDOR, type=TYPE, name=NAME, device_ids=("f0",))
    resources = AllocatedResources(tasks={task.name: AllocatedTaskResources(devices=(device,))})
    alloc = placed(node_id, job=replace(job, task_groups=(replace(group, tasks=(task,)),)))
    return replace(alloc, allocated_resources=resources)


def events(server: FakeServerPort, alloc: Allocation) -> list[str]:
    """What the servers were told of the task."""
    return [event.display_message for event in server.last_update(alloc.id).task_states["web"].events]


@pytest.fixture
async def alloc(run_client: MakeClient, server: FakeServerPort) -> Allocation:
    """An allocation that runs, and whose agent has ended."""
    async with run_client(devices={"fake": FakeDevices("f0")}) as client:
        alloc = alloc_of(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        assert replace_in_words(COMMAND, client.allocs.live[alloc.id].tasks["web"].hooked.lookup) == FILLED
    return alloc


async def test_an_action_knows_what_templates_and_devices_gave_also_after_a_restart_of_the_agent(
    alloc: Allocation, run_client: MakeClient, driver: FakeDriver
) -> None:
    async with run_client(devices={"fake": FakeDevices("f0")}, with_driver=FakeDriver(driver.host)) as client:
        task = client.allocs.live[alloc.id].tasks["web"]
        await eventually(lambda: replace_in_words(COMMAND, task.hooked.lookup) == FILLED)
        assert driver.host.starts == [f"{alloc.id}/web/0"], "its templates come out as the task has seen them"


async def test_a_task_whose_device_is_gone_keeps_its_templates_and_says_so(
    alloc: Allocation, run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client(devices={"fake": FakeDevices("f1")}, with_driver=FakeDriver(driver.host)) as client:
        task = client.allocs.live[alloc.id].tasks["web"]
        await eventually(lambda: any("nor those of devices" in text for text in events(server, alloc)))
        assert replace_in_words(COMMAND, task.hooked.lookup) == ("${COLOUR}", "${FPGA_IDS}", "web-${nobody}")
        assert driver.host.starts == [f"{alloc.id}/web/0"] and server.status_of(alloc.id) == CLIENT_RUNNING
