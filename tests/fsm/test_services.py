"""Service registrations in the state."""

from __future__ import annotations

import pytest
from yurt.structs.alloc import Allocation
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    DeleteNodes,
    DeregisterServices,
    RegisterJob,
    RegisterNode,
    RegisterServices,
    Rejected,
    SetNodeStatus,
    UpdateAllocsFromClient,
)
from yurt.structs.plan import Plan
from yurt.structs.service import ServiceRegistration
from yurt.testing import factories
from yurt.testing.replica import Replica

NODE = factories.node(factories.number_id(1, kind=1))


@pytest.fixture
def alloc(replica: Replica) -> Allocation:
    """A placed allocation."""
    replica.apply(RegisterNode(node=NODE), RegisterJob(job=factories.job()))
    placement = factories.placement(replica.state.jobs[("default", "web")], on=NODE)
    plan = Plan(eval_id="e", namespace="default", job_id="web", now=factories.NOW, placements=(placement,))
    replica.apply(ApplyPlan(plan=plan))
    return replica.state.allocs[placement.id]


def test_a_registration_is_found_by_name_job_and_allocation(replica: Replica, alloc: Allocation) -> None:
    service = factories.service(alloc)
    replica.apply(RegisterServices(services=(service,)))
    for column, value in (("name", ("default", "web")), ("job", ("default", "web")), ("alloc", alloc.id)):
        (found,) = replica.state.services.where(column, value)
        assert (found.id, found.create_index, found.modify_index) == (service.id, 4, 4)


def test_the_same_registration_again_changes_nothing(replica: Replica, alloc: Allocation) -> None:
    service = factories.service(alloc)
    replica.apply(RegisterServices(services=(service,)))
    assert replica.step(RegisterServices(services=(service,))).changes == ()
    replica.apply(RegisterServices(services=(factories.replace(service, port=9090),)))
    stored = replica.state.services[service.id]
    assert (stored.port, stored.create_index, stored.modify_index) == (9090, 4, 6)


@pytest.mark.parametrize(
    ("claim", "named"),
    [
        ({"node_id": factories.number_id(2, kind=1)}, "node"),
        ({"namespace": "prod"}, "namespace"),
        ({"job_id": "payments"}, "job"),
        ({"id": f"_nomad-task-{factories.number_id(9, kind=3)}-group-web"}, "ID must begin"),
    ],
    ids=["node", "namespace", "job", "id"],
)
def test_a_registration_that_is_not_its_allocations_is_rejected(
    replica: Replica, alloc: Allocation, claim: dict[str, str], named: str
) -> None:
    result = replica.step(RegisterServices(services=(factories.service(alloc, **claim),))).result
    assert isinstance(result, Rejected)
    assert result.kind == "invalid"
    assert named in result.message
    assert not len(replica.state.services)


def test_a_registration_without_a_name_is_rejected(replica: Replica) -> None:
    result = replica.step(RegisterServices(services=(ServiceRegistration(id="x"),))).result
    assert isinstance(result, Rejected)
    assert result.kind == "invalid"


def test_an_allocation_that_ends_takes_its_services_with_it_and_gets_no_new_ones(
    replica: Replica, alloc: Allocation
) -> None:
    service = factories.service(alloc)
    replica.apply(RegisterServices(services=(service,)))
    update = AllocUpdate(id=alloc.id, node_id=NODE.id, client_status="complete")
    replica.apply(UpdateAllocsFromClient(updates=(update,), now=factories.NOW))
    assert not len(replica.state.services)
    replica.apply(RegisterServices(services=(service,)))
    assert not len(replica.state.services)


@pytest.mark.parametrize(
    "command",
    [SetNodeStatus(node_id=NODE.id, status="down", updated_at=1), DeleteNodes(node_ids=(NODE.id,))],
    ids=["down", "deleted"],
)
def test_a_node_that_is_gone_takes_its_services_with_it(
    replica: Replica, alloc: Allocation, command: SetNodeStatus | DeleteNodes
) -> None:
    replica.apply(RegisterServices(services=(factories.service(alloc),)))
    replica.apply(command)
    assert not len(replica.state.services)


def test_a_deregistered_service_is_gone_and_an_unknown_one_no_error(replica: Replica, alloc: Allocation) -> None:
    service = factories.service(alloc)
    replica.apply(RegisterServices(services=(service,)))
    replica.apply(DeregisterServices(ids=("unknown", service.id)))
    assert not len(replica.state.services)
