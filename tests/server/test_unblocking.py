"""What makes the servers look again at evaluations that are blocked."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.broker.blocked import BlockedEvals
from yurt.sdk.value import replace
from yurt.server.scheduling.unblock_events import UnblockEvents, gained_capacity
from yurt.state import Change, Snapshot, Tables
from yurt.structs.constraint import Constraint
from yurt.structs.evaluation import Evaluation
from yurt.structs.node import (
    CSIInfo,
    DeviceHealth,
    DriverInfo,
    HostNetworkInfo,
    HostVolumeInfo,
    Node,
    NodeDevice,
    NodeDeviceResource,
    NodeResources,
)
from yurt.structs.rpc import RegisterNodeRequest
from yurt.structs.volumes.host import HostVolume
from yurt.testing import factories
from yurt.testing.quotas import QUOTAS

NEW: dict[str, Any] = {
    "node_class": {"computed_class": "v1:2"},
    "meta of this node alone": {"meta": {"unique.rack": "r1"}},
    "attribute of this node alone": {"attributes": {"unique.hostname": "h1"}},
    "name": {"name": "other"},
    "room for more allocations": {"node_max_allocs": 9},
    "driver": {"drivers": {"docker": DriverInfo(detected=True, healthy=True)}},
    "host network": {"host_networks": {"lan": HostNetworkInfo(name="lan", cidr="10.0.0.0/8")}},
    "host volume": {"host_volumes": {"data": HostVolumeInfo(path="/data")}},
    "CSI plugin": {"csi_node_plugins": {"ebs": CSIInfo(plugin_id="ebs")}},
}


@pytest.mark.parametrize("change", NEW.values(), ids=NEW)
def test_a_ready_node_that_offers_something_else_may_take_what_waits(change: dict[str, Any]) -> None:
    node = factories.node()
    assert gained_capacity(node, replace(node, **change))


def test_a_node_that_only_tells_of_itself_takes_no_more_than_before() -> None:
    node = factories.node()
    assert not gained_capacity(node, replace(node, status_updated_at=99, http_addr="10.0.0.9:4646", modify_index=99))


def test_a_new_reason_for_a_device_that_is_out_takes_no_more_than_before() -> None:
    node = factories.node()

    def reasoned(reason: str) -> Node:
        device = NodeDevice(id="g0", health=DeviceHealth(state="degraded", reason=reason), health_description=reason)
        resources = NodeResources(devices=(NodeDeviceResource(instances=(device,)),))
        return replace(node, node_resources=resources)

    assert not gained_capacity(reasoned("one"), reasoned("two"))


async def test_a_job_that_waits_for_meta_of_one_node_is_placed_once_a_node_has_it(bench: Any) -> None:
    node = await bench.add_node()
    expected = Constraint(l_target="${meta.unique.rack}", r_target="r1", operand="=")
    await bench.server.resources.jobs.register(factories.job("web", constraints=(expected,)))
    await bench.until(lambda: ("queued-allocs", "blocked") in bench.evals())
    again = replace(node, meta={**node.meta, "unique.rack": "r1"})
    await bench.server.clients.calls.register_node(RegisterNodeRequest(node=again))
    await bench.until(lambda: len(bench.server.state.allocs) > 0)


def test_what_waits_for_its_node_is_tried_again_when_a_volume_there_is_deleted() -> None:
    blocked, node, edit = BlockedEvals(), factories.node(), Snapshot.empty().edit(1)
    edit.put(Tables.nodes, node.id, node)
    state = edit.commit()
    events = UnblockEvents(blocked, lambda: state, QUOTAS)
    blocked.block(Evaluation(id="waits", job_id="web", status="blocked", node_id=node.id))
    gone = Change("host_volumes", "data", HostVolume(id="data", name="data", node_id=node.id), None)
    assert [each.id for each in events.note((gone,), index=9)] == ["waits"]


@pytest.mark.parametrize("after", [replace(factories.node(), scheduling_eligibility="ineligible"), None])
def test_what_waits_for_its_node_is_tried_again_when_the_node_takes_no_allocations_any_more(after: Node | None) -> None:
    blocked, node = BlockedEvals(), replace(factories.node(), id="here")
    events = UnblockEvents(blocked, Snapshot.empty, QUOTAS)
    blocked.block(Evaluation(id="waits", job_id="web", status="blocked", node_id=node.id))
    change = Change("nodes", node.id, node, None if after is None else replace(after, id=node.id))
    assert [each.id for each in events.note((change,), index=9)] == ["waits"]
