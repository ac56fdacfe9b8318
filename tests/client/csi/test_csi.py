"""CSI on one node: plugins that run as tasks are looked after, and mount volumes for allocations."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from yurt.client.client import Client
from yurt.client.csi import volumes as csi_volumes
from yurt.client.hooks.csi import UNMOUNTING
from yurt.sdk.driver import Capabilities, TaskRequest
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_RUNNING, DESIRED_STOP
from yurt.structs.task import TaskCSIPluginConfig
from yurt.structs.volumes.csi import CSIClaimed, CSIClaimQuery
from yurt.structs.volumes.request import CSIMountOptions, VolumeMount, VolumeRequest
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually
from yurt.testing.services.csi_plugin import NAME, VERSION, FakeCsiPlugin

PLUGIN = "folders"
CLAIMED = CSIClaimed(
    id="data", namespace="default", external_id="vol-1", plugin_id=PLUGIN, access_mode="multi-node-single-writer",
    attachment_mode="file-system", mount_options=CSIMountOptions(fs_type="ext4", mount_flags=("noatime",)),
    secrets={"key": "s3cret"}, context={"tier": "fast"},
)  # fmt: skip


@pytest.fixture
def driver() -> FakeDriver:
    """A driver whose tasks mount volumes, and see the host's own file system."""
    made = FakeDriver()
    made.capabilities = Capabilities(mounts=True)
    return made


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[FakeCsiPlugin]:
    """A plugin that does not listen yet."""
    made = FakeCsiPlugin(tmp_path / "storage")
    yield made
    await made.stop()


def plugin_alloc(node_id: str, *, kind: str = "node", timeout_s: float = 30.0) -> Allocation:
    """An allocation whose task is the plugin."""
    block = TaskCSIPluginConfig(
        id=PLUGIN, type=kind, mount_dir="/csi", stage_publish_base_dir="/local/csi", health_timeout=seconds(timeout_s)
    )
    group = factories.group(tasks=(factories.task(csi_plugin_config=block),))
    return placed(node_id, job=factories.job("plugin", task_groups=(group,)))


def user_alloc(node_id: str, number: int = 0, **request: Any) -> Allocation:
    """An allocation whose task mounts the volume `data`."""
    asked = VolumeRequest(
        **{"name": "v", "type": "csi", "source": "data", "access_mode": CLAIMED.access_mode,
           "attachment_mode": "file-system", **request}
    )  # fmt: skip
    task = factories.task(volume_mounts=(VolumeMount(volume="v", destination="/srv"),))
    group = factories.group(tasks=(task,), volumes={"v": asked})
    return placed(node_id, job=factories.job("user", task_groups=(group,)), number=number)


async def started(client: Client, server: FakeServerPort, plugin: FakeCsiPlugin, **expected: Any) -> Allocation:
    """The plugin runs on the client and is healthy."""
    alloc = plugin_alloc(client.node_id, **expected)
    server.put_alloc(alloc)
    socket = client.context.csi.places.socket(alloc.id, "web")
    await eventually(socket.parent.is_dir)
    await plugin.start(socket)
    await eventually(lambda: is_healthy(server, client))
    return alloc


def request_of(driver: FakeDriver, alloc: Allocation) -> TaskRequest:
    """What the driver was asked to start for the allocation."""
    return next(task.request for task_id, task in driver.host.tasks.items() if task_id.startswith(alloc.id))


def are_gone(*paths: str) -> bool:
    """Nothing is there any more."""
    return not any(os.path.lexists(path) for path in paths)


def is_healthy(server: FakeServerPort, client: Client) -> bool:
    """The servers hold the plugin for healthy on the client's node."""
    found = server.nodes[client.node_id].csi_node_plugins.get(PLUGIN)
    return found is not None and found.healthy


def stopped(alloc: Allocation) -> Allocation:
    return replace(alloc, desired_status=DESIRED_STOP)


async def test_a_plugin_is_shown_by_its_node_while_it_runs(
    run_client: Any, server: FakeServerPort, driver: FakeDriver, plugin: FakeCsiPlugin
) -> None:
    async with run_client() as client:
        alloc = await started(client, server, plugin)
        found = server.nodes[client.node_id].csi_node_plugins[PLUGIN]
        assert (found.provider, found.provider_version, found.alloc_id) == (NAME, VERSION, alloc.id)
        assert found.node_info is not None and found.node_info.accessible_topology is not None
        assert (found.node_info.id, found.node_info.max_volumes) == ("here", 8)
        assert found.node_info.requires_node_stage_volume
        assert found.node_info.accessible_topology.segments == {"rack": "R1"}
        assert not server.nodes[client.node_id].csi_controller_plugins
        assert request_of(driver, alloc).env["CSI_ENDPOINT"].endswith("csi.sock")
        server.put_alloc(stopped(alloc))
        await eventually(lambda: not server.nodes[client.node_id].csi_node_plugins)


async def test_a_controller_says_what_it_can_do(run_client: Any, server: FakeServerPort, tmp_path: Path) -> None:
    plugin = FakeCsiPlugin(tmp_path / "storage", attaches=True)
    async with run_client() as client:
        await started(client, server, plugin, kind="monolith")
        found = server.nodes[client.node_id].csi_controller_plugins[PLUGIN]
        assert found.controller_info is not None and found.controller_info.supports_attach_detach
        assert found.requires_controller_plugin and found.node_info is None
    await plugin.stop()


async def test_a_plugin_that_never_gets_ready_is_restarted_by_its_policy(
    run_client: Any, server: FakeServerPort
) -> None:
    async with run_client() as client:
        alloc = plugin_alloc(client.node_id, timeout_s=0.2)
        server.put_alloc(alloc)
        await eventually(lambda: _told(server, alloc.id, "was not ready within 0.2s"))
        await eventually(lambda: not server.nodes[client.node_id].csi_node_plugins.get(PLUGIN))


def _told(server: FakeServerPort, alloc_id: str, text: str) -> bool:
    """Whether a task event of the allocation holds the text."""
    return any(
        text in event.display_message
        for update in server.updates
        if update.id == alloc_id
        for state in update.task_states.values()
        for event in state.events
    )


async def test_a_volume_is_staged_and_published_and_both_are_undone_at_the_end(
    run_client: Any, server: FakeServerPort, driver: FakeDriver, plugin: FakeCsiPlugin
) -> None:
    async with run_client() as client:
        await started(client, server, plugin)
        server.csi_volumes["v"] = CLAIMED
        alloc = user_alloc(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        (stage,), (publish,) = plugin.named("NodeStageVolume"), plugin.named("NodePublishVolume")
        assert (stage.volume_id, dict(stage.secrets), dict(stage.volume_context)) == (
            "vol-1", {"key": "s3cret"}, {"tier": "fast"},
        )  # fmt: skip
        assert stage.volume_capability.mount.fs_type == "ext4"
        assert list(stage.volume_capability.mount.mount_flags) == ["noatime"]
        assert stage.volume_capability.access_mode.mode == 4
        assert publish.staging_target_path == stage.staging_target_path and not publish.readonly
        (mount,) = request_of(driver, alloc).mounts
        assert (mount.task_path, mount.host_path) == ("/srv", publish.target_path)
        (Path(mount.host_path) / "kept").write_text("x")
        server.put_alloc(stopped(alloc))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert [name for name, _ in plugin.calls[-2:]] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
        assert are_gone(publish.target_path, stage.staging_target_path)
        assert (plugin.storage / "vol-1" / "kept").read_text() == "x"


async def test_a_volume_stays_staged_until_its_last_user_here_has_ended(
    run_client: Any, server: FakeServerPort, plugin: FakeCsiPlugin
) -> None:
    async with run_client() as client:
        await started(client, server, plugin)
        server.csi_volumes["v"] = replace(CLAIMED, read_only=True)
        allocs = [user_alloc(client.node_id, number, read_only=True) for number in range(2)]
        for alloc in allocs:
            server.put_alloc(alloc)
        await eventually(lambda: all(server.status_of(alloc.id) == CLIENT_RUNNING for alloc in allocs))
        assert all(request.readonly for request in plugin.named("NodePublishVolume"))
        for alloc, unstaged in zip(allocs, (0, 1), strict=True):
            server.put_alloc(stopped(alloc))
            await eventually(lambda alloc=alloc: server.status_of(alloc.id) == CLIENT_COMPLETE)
            assert len(plugin.named("NodeUnstageVolume")) == unstaged


async def test_a_task_waits_for_the_plugin_and_for_those_who_hold_the_volume(
    run_client: Any, server: FakeServerPort, plugin: FakeCsiPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csi_volumes, "CLAIM_AGAIN_S", 0.01)
    held = [Unavailable("CSI volume data has exhausted its available writer claims")] * 2

    async def claim(query: CSIClaimQuery) -> CSIClaimed:
        if held:
            raise held.pop()
        return CLAIMED

    async with run_client() as client:
        monkeypatch.setattr(server, "claim_csi_volume", claim)
        alloc = user_alloc(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: _told(server, alloc.id, "Waiting for volume v: CSI volume data has exhausted"))
        await eventually(lambda: not held)
        assert server.status_of(alloc.id) != CLIENT_RUNNING
        await started(client, server, plugin)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)


async def test_what_a_plugin_refuses_for_good_fails_the_task(
    run_client: Any, server: FakeServerPort, plugin: FakeCsiPlugin
) -> None:
    plugin.failures["NodeStageVolume"] = grpc.StatusCode.INVALID_ARGUMENT
    async with run_client() as client:
        await started(client, server, plugin)
        server.csi_volumes["v"] = CLAIMED
        alloc = user_alloc(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        assert _told(server, alloc.id, "the CSI plugin refuses: NodeStageVolume: NodeStageVolume is told to fail")


async def test_the_end_is_told_only_when_the_volume_is_unmounted_and_without_the_plugin_by_the_client(
    run_client: Any, server: FakeServerPort, plugin: FakeCsiPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csi_volumes, "UNDO_AGAIN_S", 0.05)
    monkeypatch.setattr(csi_volumes, "UNDO_LIMIT_S", 3.0)
    async with run_client() as client:
        await started(client, server, plugin)
        server.csi_volumes["v"] = CLAIMED
        alloc = user_alloc(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        plugin.failures["NodeUnpublishVolume"] = grpc.StatusCode.INTERNAL
        server.put_alloc(stopped(alloc))
        await asyncio.sleep(0.3)
        assert server.status_of(alloc.id) == CLIENT_RUNNING
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert client.context.csi.volumes.uses == ()


async def test_the_end_does_not_wait_for_a_plugin_that_is_gone_when_nothing_is_mounted(
    run_client: Any, server: FakeServerPort, plugin: FakeCsiPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csi_volumes, "UNDO_LIMIT_S", 3600.0)
    async with run_client() as client:
        its_plugin = await started(client, server, plugin)
        server.csi_volumes["v"] = CLAIMED
        alloc = user_alloc(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        server.put_alloc(stopped(its_plugin))
        await eventually(lambda: server.status_of(its_plugin.id) == CLIENT_COMPLETE)
        server.put_alloc(stopped(alloc))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert client.context.csi.volumes.uses == ()


async def test_an_agent_that_comes_back_unmounts_what_nobody_uses_any_more(
    run_client: Any, server: FakeServerPort, driver: FakeDriver, plugin: FakeCsiPlugin
) -> None:
    server.csi_volumes["v"] = CLAIMED
    async with run_client(dev=False) as client:
        first = await started(client, server, plugin)
        alloc = user_alloc(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    async with run_client(dev=False) as client:
        await eventually(lambda: is_healthy(server, client))
        assert server.nodes[client.node_id].csi_node_plugins[PLUGIN].alloc_id == first.id
        assert len(client.context.csi.volumes.uses) == 1
        server.drop_alloc(alloc.id)
        await eventually(lambda: not client.context.csi.volumes.uses)
        assert plugin.named("NodeUnstageVolume")


async def test_a_node_is_ready_while_its_next_agent_waits_for_the_plugin_to_unmount_a_volume(
    run_client: Any, server: FakeServerPort, plugin: FakeCsiPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csi_volumes, "UNDO_AGAIN_S", 0.05)
    monkeypatch.setattr(csi_volumes, "UNDO_LIMIT_S", 3600.0)
    server.csi_volumes["v"] = CLAIMED
    async with run_client(dev=False) as client:
        await started(client, server, plugin)
        alloc = user_alloc(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        plugin.failures["NodeUnpublishVolume"] = grpc.StatusCode.INTERNAL
        server.put_alloc(stopped(alloc))
        await eventually(lambda: server.last_update(alloc.id).client_description == UNMOUNTING)
    server.statuses.clear()
    async with run_client(dev=False, wait_ready=False) as client:
        await eventually(server.is_ready)
        assert server.status_of(alloc.id) == CLIENT_RUNNING
        plugin.failures.clear()
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert client.context.csi.volumes.uses == ()
