"""Entries of earlier versions apply as they did: what was acknowledged then is there after an upgrade.

Those versions stored what namespaces said of quotas and node pools, and held no job to it.
"""

from __future__ import annotations

import msgspec
import pytest
from yurt.sdk.value import UnixNano, replace
from yurt.server.log.proposals import ProposalQueue
from yurt.structs import commands as c
from yurt.structs.alloc import AllocatedDeviceResource
from yurt.structs.cluster import Namespace, NamespaceCapabilities, NamespaceNodePoolConfiguration
from yurt.structs.commands.versions import RegionRules
from yurt.structs.job import ParameterizedJobConfig, PeriodicConfig, ScalingEvent
from yurt.structs.node import DeviceHealth, DeviceState, HostVolumeInfo, Node, NodeDevice, NodeDeviceResource
from yurt.structs.plan import Plan
from yurt.structs.policies import MigrateStrategy
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.rules import (
    DELETING_VOLUME_RULES,
    HOST_VOLUME_RULES,
    MIG_RULES,
    NAMESPACE_RULES,
    PACED_MOVE_RULES,
    RULES_VERSION,
)
from yurt.structs.volumes.host import HostVolume
from yurt.testing import factories
from yurt.testing.replica import Replica

STRICT = Namespace(
    name="default",
    capabilities=NamespaceCapabilities(disabled_task_drivers=("mock_driver",)),
    node_pool_configuration=NamespaceNodePoolConfiguration(denied=("default",), default="gpu"),
)
BATCH = {"type": "batch"}
EARLIER: dict[str, tuple[c.AnyCommand, ...]] = {
    "registered": (c.RegisterJob(job=factories.job()),),
    "scaled": (
        c.RegisterJob(job=factories.job()),
        c.ScaleJob(namespace="default", job_id="web", group="web", event=ScalingEvent(count=3), count_max=100),
    ),
    "dispatched": (
        c.RegisterJob(job=factories.job(**BATCH, parameterized_job=ParameterizedJobConfig())),
        c.DispatchJob(namespace="default", job_id="web", child_id="web/dispatch-1"),
    ),
    "launched": (
        c.RegisterJob(job=factories.job(**BATCH, periodic=PeriodicConfig(spec="@daily"))),
        c.LaunchPeriodicJob(namespace="default", job_id="web", launched_at=UnixNano(factories.NOW)),
    ),
}


@pytest.fixture
def earlier() -> Replica:
    return Replica(rules_version=0)


def test_a_namespace_that_named_a_quota_before_there_were_any_is_there(earlier: Replica) -> None:
    earlier.apply(c.UpsertNamespaces(namespaces=(Namespace(name="team", quota="none"),)))
    earlier.apply(c.RegisterJob(job=factories.job(namespace="team")))
    assert ("team", "web") in earlier.state.jobs


@pytest.mark.parametrize("how", EARLIER)
def test_a_version_that_was_stored_before_its_namespace_was_heeded_is_there(earlier: Replica, how: str) -> None:
    earlier.apply(c.UpsertNamespaces(namespaces=(STRICT,)), *EARLIER[how])
    assert ("default", "web") in earlier.state.jobs


@pytest.mark.parametrize("rules_version", [NAMESPACE_RULES, HOST_VOLUME_RULES])
def test_a_deletion_takes_a_volume_from_its_nodes_row_since_the_rules_of_host_volumes(rules_version: int) -> None:
    replica = Replica(rules_version=rules_version)
    offered = {"data": HostVolumeInfo(path="/v", id="v-1"), "logs": HostVolumeInfo(path="/l")}
    node = factories.node(host_volumes=offered)
    replica.apply(c.RegisterNode(node=node))
    replica.apply(c.PutHostVolume(volume=HostVolume(id="v-1", name="data", node_id=node.id), now=factories.NOW))
    replica.apply(c.DeleteHostVolume(namespace="default", id="v-1"))
    known = {"logs"} if rules_version >= HOST_VOLUME_RULES else {"data", "logs"}
    assert set(replica.state.nodes[node.id].host_volumes) == known


@pytest.mark.parametrize("rules_version", [HOST_VOLUME_RULES, RULES_VERSION])
def test_a_volume_that_is_being_deleted_stays_so_when_its_node_changes(rules_version: int) -> None:
    replica = Replica(rules_version=rules_version)
    node = factories.node(host_volumes={"data": HostVolumeInfo(path="/v", id="v-1")})
    volume = HostVolume(id="v-1", name="data", node_id=node.id)
    replica.apply(c.RegisterNode(node=node), c.PutHostVolume(volume=volume, now=factories.NOW))
    replica.apply(c.PutHostVolume(volume=replace(volume, state="unavailable"), now=factories.NOW, keeps_state=True))
    replica.apply(c.RegisterNode(node=replace(node, attributes={**node.attributes, "os.version": "13"})))
    state = "deleting" if rules_version == RULES_VERSION else "ready"
    assert replica.state.host_volumes["v-1"].state == state
    down = c.SetNodeStatus(node_id=node.id, status="down", updated_at=1)
    replica.apply(down, replace(down, status="ready"))
    assert replica.state.host_volumes["v-1"].state == "ready"


@pytest.mark.parametrize("rules_version", [DELETING_VOLUME_RULES - 1, DELETING_VOLUME_RULES])
def test_a_late_report_of_its_node_leaves_a_volume_that_is_being_deleted(rules_version: int) -> None:
    replica = Replica(rules_version=rules_version)
    node, volume = factories.node(), HostVolume(id="v-1", name="data")
    volume = replace(volume, node_id=node.id)
    replica.apply(c.RegisterNode(node=node), c.PutHostVolume(volume=volume, now=factories.NOW))
    replica.apply(c.PutHostVolume(volume=replace(volume, state="unavailable"), now=factories.NOW, keeps_state=True))
    replica.apply(c.RegisterNode(node=replace(node, host_volumes={"data": HostVolumeInfo(path="/v", id="v-1")})))
    is_kept = rules_version >= DELETING_VOLUME_RULES
    assert replica.state.host_volumes["v-1"].state == ("deleting" if is_kept else "ready")
    made = replace(replica.state.host_volumes["v-1"], host_path="/v")
    replica.apply(c.PutHostVolume(volume=made, now=factories.NOW))  # the request that made it stores the report
    assert replica.state.host_volumes["v-1"].state == ("deleting" if is_kept else "ready")
    replica.apply(c.PutHostVolume(volume=replace(volume, state="unavailable"), now=factories.NOW))
    assert replica.state.host_volumes["v-1"].state == "ready", "the node refused to delete it"


@pytest.mark.parametrize(("rules_version", "is_moved"), [(MIG_RULES, True), (PACED_MOVE_RULES, False)])
def test_apply_moves_services_from_failed_devices_until_the_leader_does(rules_version: int, is_moved: bool) -> None:
    device = RequestedDevice(name="nvidia/gpu", on_failure="move")
    task = factories.task(resources=Resources(cpu=1, memory_mb=1, devices=(device,)))
    job = factories.job(task_groups=(factories.group(tasks=(task,), migrate=MigrateStrategy()),))
    granted = factories.allocated(job.task_groups[0])
    ((name, of_task),) = granted.tasks.items()
    card = AllocatedDeviceResource(vendor="nvidia", type="gpu", name="H100", device_ids=("GPU-0",))
    resources = replace(granted, tasks={name: replace(of_task, devices=(card,))})
    placed = factories.placement(job, on=node_with_card("healthy"), id="a-1", resources=resources)
    replica = Replica(rules_version=rules_version)
    replica.apply(c.RegisterNode(node=node_with_card("healthy")), c.RegisterJob(job=job))
    replica.apply(c.ApplyPlan(plan=Plan(eval_id="e", namespace="default", job_id=job.id, placements=(placed,))))
    replica.apply(c.RegisterNode(node=node_with_card("failed")))
    assert bool(replica.state.allocs["a-1"].desired_transition.migrate) is is_moved


def node_with_card(state: DeviceState) -> Node:
    """A node with one card in this state."""
    card = NodeDevice(id="GPU-0", healthy=True, health=DeviceHealth(state=state))
    made = factories.node("n1")
    kind = NodeDeviceResource(vendor="nvidia", type="gpu", name="H100", instances=(card,))
    return replace(made, node_resources=replace(made.node_resources, devices=(kind,)))


async def test_a_command_that_was_encoded_before_an_older_server_came_back_is_stored_by_its_rules() -> None:
    rules = RegionRules()
    queue = ProposalQueue(lambda: rules)
    (made,) = queue.prepare([c.KeepAlive()])
    rules = RegionRules(version=RULES_VERSION - 1)
    queue.add([made])
    (item,) = queue.next_batch()
    assert item.command.rules_version == c.decode_command(bytes(item.encoded)).rules_version == RULES_VERSION - 1


async def test_each_command_on_its_way_to_the_log_is_subject_to_the_rules_of_now() -> None:
    (made,) = ProposalQueue(RegionRules).prepare([c.KeepAlive()])
    assert made.command.rules_version == made.stored.rules_version == RULES_VERSION > 0
    assert c.decode_command(bytes(made.encoded)).rules_version == RULES_VERSION
    assert c.decode_command(msgspec.msgpack.encode(c.KeepAlive())).rules_version == 0
