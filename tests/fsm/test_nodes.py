"""Registration, status, eligibility, drain, events and class of nodes."""

from __future__ import annotations

import pytest
from yurt.fsm.node_class import computed_class
from yurt.structs import status
from yurt.structs.commands import (
    AddNodeEvents,
    DeleteNodes,
    RegisterNode,
    SetNodeDrain,
    SetNodeEligibility,
    SetNodeStatus,
)
from yurt.structs.node import SHUTDOWN_META, DrainMetadata, DrainStrategy, Node, NodeEvent
from yurt.testing import factories
from yurt.testing.replica import Replica

ID = factories.number_id(1, kind=1)


def register(replica: Replica, **changes: object) -> Node:
    replica.apply(RegisterNode(node=factories.node(ID, **changes)))
    return replica.state.nodes[ID]


def set_status(replica: Replica, expected: str) -> Node:
    replica.apply(SetNodeStatus(node_id=ID, status=expected, updated_at=42))
    return replica.state.nodes[ID]


def test_a_new_node_is_stamped_and_remembers_its_registration(replica: Replica) -> None:
    node = register(replica, create_index=9, last_missed_heartbeat_index=5)
    assert (node.create_index, node.modify_index, node.last_missed_heartbeat_index) == (1, 1, 0)
    assert [event.message for event in node.events] == ["Node registered"]
    assert node.computed_class.startswith("v1:")


def test_registering_again_keeps_what_belongs_to_the_servers(replica: Replica) -> None:
    register(replica)
    drain = DrainStrategy(started_at=1)
    replica.apply(SetNodeDrain(node_id=ID, strategy=drain, last_drain=DrainMetadata(status="draining")))
    node = register(replica, meta={"rack": "b"})
    assert node.drain_strategy == drain
    assert node.scheduling_eligibility == status.INELIGIBLE
    assert node.last_drain == DrainMetadata(status="draining")
    assert (node.create_index, node.modify_index) == (1, 3)
    assert node.meta == {"rack": "b"}


def test_the_index_of_the_missed_heartbeat_lasts_until_the_node_is_ready(replica: Replica) -> None:
    register(replica)
    assert set_status(replica, status.NODE_DISCONNECTED).last_missed_heartbeat_index == 2
    assert set_status(replica, status.NODE_DOWN).last_missed_heartbeat_index == 2
    assert set_status(replica, status.NODE_INIT).last_missed_heartbeat_index == 2
    node = set_status(replica, status.NODE_READY)
    assert (node.last_missed_heartbeat_index, node.status_updated_at) == (0, 42)


def test_what_an_operator_says_of_eligibility_outlives_the_drain_of_a_shutdown(replica: Replica) -> None:
    register(replica)
    meta = {"message": "shutting down", SHUTDOWN_META: "true"}
    replica.apply(SetNodeDrain(node_id=ID, strategy=DrainStrategy(), last_drain=DrainMetadata(meta=meta)))
    replica.apply(SetNodeEligibility(node_id=ID, eligibility=status.INELIGIBLE))
    drain = replica.state.nodes[ID].last_drain
    assert drain is not None and dict(drain.meta) == {"message": "shutting down"}


def test_a_draining_node_can_not_become_eligible(replica: Replica) -> None:
    register(replica)
    replica.apply(SetNodeDrain(node_id=ID, strategy=DrainStrategy()))
    assert "draining" in replica.reject(SetNodeEligibility(node_id=ID, eligibility="eligible")).message
    replica.apply(SetNodeDrain(node_id=ID, strategy=None))
    assert replica.state.nodes[ID].scheduling_eligibility == status.INELIGIBLE
    replica.apply(SetNodeDrain(node_id=ID, strategy=None, mark_eligible=True))
    assert replica.state.nodes[ID].scheduling_eligibility == status.ELIGIBLE


def test_ten_events_are_kept(replica: Replica) -> None:
    register(replica)
    events = tuple(NodeEvent(message=str(number)) for number in range(12))
    replica.apply(AddNodeEvents(events={ID: events, "stranger": events}))
    kept = replica.state.nodes[ID].events
    assert [event.message for event in kept] == [str(number) for number in range(2, 12)]
    assert {event.create_index for event in kept} == {2}


def test_a_registration_may_make_its_node_pool(replica: Replica) -> None:
    replica.apply(RegisterNode(node=factories.node(ID, node_pool="gpu")))
    assert replica.state.node_pools.get("gpu") is None
    replica.apply(RegisterNode(node=factories.node(ID, node_pool="gpu"), create_node_pool=True))
    assert replica.state.node_pools["gpu"].create_index == 2


@pytest.mark.parametrize(
    "command",
    [
        SetNodeStatus(node_id=ID, status="ready", updated_at=1),
        SetNodeEligibility(node_id=ID, eligibility="eligible"),
        SetNodeDrain(node_id=ID, strategy=None),
        AddNodeEvents(events={ID: ()}),
        DeleteNodes(node_ids=(ID,)),
    ],
)
def test_commands_on_an_unknown_node_are_rejected(replica: Replica, command: SetNodeStatus) -> None:
    assert replica.reject(command).kind == "not_found"


def test_a_deleted_node_is_gone(replica: Replica) -> None:
    register(replica)
    replica.apply(DeleteNodes(node_ids=(ID, "stranger")))
    assert len(replica.state.nodes) == 0


def test_nodes_that_differ_in_unique_things_share_a_class() -> None:
    one, other = factories.node(), factories.node()
    assert one.attributes["unique.hostname"] != other.attributes["unique.hostname"]
    assert computed_class(one) == computed_class(other)


@pytest.mark.parametrize(
    "changes",
    [{"node_class": "big"}, {"datacenter": "dc2"}, {"node_pool": "gpu"}, {"meta": {"rack": "b"}}, {"attributes": {}}],
)
def test_nodes_that_differ_in_shared_things_differ_in_class(changes: dict[str, object]) -> None:
    assert computed_class(factories.node(**changes)) != computed_class(factories.node())
