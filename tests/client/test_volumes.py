"""Host volumes: what a task mounts, and why it may not."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from yurt.client.client import Client
from yurt.client.volumes.mounts import VolumesThere, mounts_of
from yurt.sdk.driver import Capabilities, Driver, Mount, PluginContext
from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.structs.job import TaskGroup
from yurt.structs.node import HostVolumeInfo
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED
from yurt.structs.volumes.request import VolumeMount, VolumeRequest
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually
from yurt.testing.real_agent import agent_client, shell_alloc

OFFERED = {
    "data": HostVolumeInfo(path="/srv/data"),
    "fixed": HostVolumeInfo(path="/srv/fixed", read_only=True),
    "each[3]": HostVolumeInfo(path="/srv/each-3"),
}


def group_with(mount: VolumeMount, **request: Any) -> TaskGroup:
    """A group with a volume `v` and a task that mounts it."""
    volume = VolumeRequest(**{"name": "v", "type": "host", "source": "data", **request})
    return factories.group(tasks=(factories.task(volume_mounts=(mount,)),), volumes={"v": volume})


def mounts(group: TaskGroup, *, driver: Driver | None = None) -> tuple[Mount, ...]:
    """What the group's task mounts on a node that offers OFFERED."""
    if driver is None:
        driver = FakeDriver()
        driver.capabilities = Capabilities(mounts=True)
    alloc = replace(placed("node"), name="web.web[3]")
    lookup = {"NOMAD_TASK_NAME": "web"}.get
    return mounts_of(group.tasks[0], group, alloc=alloc, driver=driver, there=VolumesThere(OFFERED, {}), lookup=lookup)


def test_a_volume_is_mounted_where_the_task_wants_it():
    group = group_with(VolumeMount(volume="v", destination="/var/${NOMAD_TASK_NAME}/"))
    assert mounts(group) == (Mount(host_path="/srv/data", task_path="/var/web"),)


def test_a_relative_destination_begins_at_the_root():
    assert mounts(group_with(VolumeMount(volume="v", destination="srv/x")))[0].task_path == "/srv/x"


@pytest.mark.parametrize(
    ("mount", "request_"),
    [({"read_only": True}, {}), ({}, {"read_only": True}), ({}, {"source": "fixed", "read_only": True})],
)
def test_one_wish_for_read_only_is_enough(mount: dict[str, Any], request_: dict[str, Any]):
    made = mounts(group_with(VolumeMount(volume="v", destination="/d", **mount), **request_))
    assert made[0].is_read_only


def test_each_allocation_may_have_a_volume_of_its_own():
    made = mounts(group_with(VolumeMount(volume="v", destination="/d"), source="each", per_alloc=True))
    assert made[0].host_path == "/srv/each-3"


@pytest.mark.parametrize(
    ("mount", "request_", "reason"),
    [
        ({"volume": "w"}, {}, "the group has no volume 'w'; it has v"),
        ({}, {"source": "none"}, 'offers no host volume "none"'),
        ({}, {"source": "fixed"}, "is read-only on this node"),
        ({}, {"type": "csi"}, "is not mounted on this node"),
        ({"destination": "/a/../../etc"}, {}, "written without"),
        ({"destination": "/"}, {}, "must be a folder below"),
        ({"propagation_mode": "shared"}, {}, "must be one of private"),
    ],
)
def test_what_cannot_be_mounted_is_told(mount: dict[str, Any], request_: dict[str, Any], reason: str):
    expected = VolumeMount(**{"volume": "v", "destination": "/d", **mount})
    with pytest.raises(Invalid, match=reason):
        mounts(group_with(expected, **request_))


@pytest.mark.parametrize(("label", "given"), [("z", "z"), ("Z", "Z"), ("", ""), ("system_u:x", "")])
def test_a_mount_has_the_label_that_drivers_know(label: str, given: str):
    made = mounts(group_with(VolumeMount(volume="v", destination="/d", selinux_label=label)))
    assert made[0].selinux_label == given


def test_a_driver_without_a_file_system_of_its_own_refuses_volumes():
    with pytest.raises(Invalid, match="driver 'fake' cannot mount volumes"):
        mounts(group_with(VolumeMount(volume="v", destination="/d")), driver=FakeDriver())


async def test_a_task_that_cannot_have_its_volume_fails_with_the_reason(run_client, server: FakeServerPort):
    async with run_client() as client:
        alloc = placed(client.node_id, job=factories.job(task_groups=(group_of_fake(),)))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        events = server.last_update(alloc.id).task_states["web"].events
        assert any("cannot mount volumes" in event.display_message for event in events)


def group_of_fake() -> TaskGroup:
    """A group whose task is run by the fake driver."""
    return group_with(VolumeMount(volume="v", destination="/d"))


def exec_driver(context: PluginContext) -> Driver:
    """The exec driver."""
    plugin = pytest.importorskip("yurt_driver_exec.plugin", reason="the exec driver is not installed")
    driver: Driver = plugin.yurt_task_drivers(context)[0]
    return driver


def mounting(client: Client, script: str, *, read_only: bool) -> Any:
    """A task that has the volume `shared` at /shared."""
    alloc = shell_alloc(client.node_id, script, driver="exec")
    alloc = replace(alloc, job=replace(alloc.job, task_groups=(with_volume(alloc, read_only=read_only),)))
    return replace(alloc, id=factories.new_id())


def with_volume(alloc: Any, *, read_only: bool) -> TaskGroup:
    """The group with its volume and its mount."""
    group = alloc.job.task_groups[0]
    mount = VolumeMount(volume="v", destination="/shared", read_only=read_only)
    task = replace(group.tasks[0], volume_mounts=(mount,), restart_policy=factories.restart_policy(attempts=0))
    volume = VolumeRequest(name="v", type="host", source="shared")
    return replace(group, tasks=(task,), volumes={"v": volume})


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("runc") is None,
    reason="isolation takes root and runc on Linux",
)
async def test_an_isolated_task_reads_and_writes_its_volume_and_nothing_stays_mounted(tmp_path: Path):
    shared = tmp_path / "shared"
    await asyncio.to_thread(shared.mkdir)
    await asyncio.to_thread(shared.chmod, 0o777)
    (shared / "given").write_text("from the host")
    server, volumes = FakeServerPort(), {"shared": HostVolumeInfo(path=str(shared))}
    async with agent_client(tmp_path, server, exec_driver, host_volumes=volumes) as client:
        assert server.registrations[-1].node.host_volumes == volumes
        writes = mounting(client, "cat /shared/given > /shared/taken", read_only=False)
        refused = mounting(client, "echo x > /shared/refused && exit 0; exit 9", read_only=True)
        server.put_alloc(writes)
        server.put_alloc(refused)
        await eventually(lambda: server.status_of(writes.id) == CLIENT_COMPLETE)
        await eventually(lambda: server.status_of(refused.id) == CLIENT_FAILED)
    assert (shared / "taken").read_text() == "from the host"
    assert not (shared / "refused").exists()
    mounted = await asyncio.to_thread(Path("/proc/self/mounts").read_text)
    assert str(tmp_path) not in mounted
