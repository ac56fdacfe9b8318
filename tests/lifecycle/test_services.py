"""Which services and checks an allocation has."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.lifecycle import services
from yurt.lifecycle.services import ServiceAddress, ServicePlan
from yurt.sdk.value import replace, seconds
from yurt.structs.alloc import (
    AllocatedResources,
    AllocatedSharedResources,
    Allocation,
    AllocDeploymentStatus,
    AllocNetworkStatus,
)
from yurt.structs.network import PortMapping
from yurt.structs.service import CheckRestart, Service, ServiceCheck
from yurt.testing import factories

PLACE = ServiceAddress(node_id="node-1", datacenter="dc1", address="10.0.0.9")
PORTS = AllocatedResources(
    shared=AllocatedSharedResources(
        ports=(
            PortMapping(label="http", value=23456, to=80, host_ip="10.0.0.7"),
            PortMapping(label="any", value=23457, host_ip="0.0.0.0"),
        )
    )
)


def service(**changes: Any) -> Service:
    return replace(Service(name="web", port_label="http", provider="nomad", address_mode="auto"), **changes)


def check(**changes: Any) -> ServiceCheck:
    made = ServiceCheck(name="alive", type="tcp", interval=seconds(10), timeout=seconds(2), address_mode="host")
    return replace(made, **changes)


RUNNING = {"web": ""}


def planned(
    *of_group: Service, of_task: tuple[Service, ...] = (), running: dict[str, str] = RUNNING, **changes: Any
) -> ServicePlan:
    group = factories.group(services=of_group, tasks=(factories.task(services=of_task),))
    job = factories.job(task_groups=(group,))
    alloc = Allocation(
        id="a1", namespace="default", node_id="node-1", job_id="web", job=job, task_group="web",
        allocated_resources=PORTS,
    )  # fmt: skip
    fill = lambda task, text: text.replace("${X}", task or "G")  # noqa: E731
    return services.plan(replace(alloc, **changes), PLACE, fill, running=running)


def test_a_registration_names_the_port_that_the_allocation_was_given() -> None:
    ((registration, _, task, _),) = planned(service(tags=("v-${X}",))).planned
    assert (registration.address, registration.port, registration.tags, task) == ("10.0.0.7", 23456, ("v-G",), "")
    assert registration.id == "_nomad-task-a1-group-web-web-http"
    assert (registration.node_id, registration.datacenter, registration.alloc_id) == ("node-1", "dc1", "a1")


@pytest.mark.parametrize(
    ("changes", "address"),
    [
        ({"port_label": ""}, ("10.0.0.9", 0)),
        ({"port_label": "8080"}, ("10.0.0.9", 8080)),
        ({"port_label": "any"}, ("10.0.0.9", 23457)),
        ({"address": "web.example"}, ("web.example", 23456)),
        ({"address_mode": "alloc"}, ("172.26.0.2", 80)),
        ({"address_mode": "alloc_ipv6"}, ("fd00::2", 80)),
        ({"address_mode": "driver"}, ("172.26.0.2", 80)),
    ],
)
def test_addresses_by_mode_and_label(changes: dict[str, Any], address: tuple[str, int]) -> None:
    network = AllocNetworkStatus(address="172.26.0.2", address_ipv6="fd00::2")
    (found,) = planned(service(**changes), network_status=network).planned
    assert (found.registration.address, found.registration.port) == address


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"port_label": "admin"}, 'no port "admin"'),
        ({"address_mode": "driver"}, "use host"),
        ({"address_mode": "alloc"}, "no network of its own"),
        ({"port_label": "", "checks": (check(),)}, "check 'alive' has no port"),
    ],
)
def test_a_service_without_an_address_is_left_out_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    plan = planned(service(**changes))
    assert plan.planned == ()
    (problem,) = plan.problems
    assert problem.startswith("Service 'web' is not registered: ")
    assert reason in problem


def test_a_service_at_an_address_of_its_own_waits_for_its_task_without_a_complaint() -> None:
    for mode in ("alloc", "alloc_ipv6", "driver"):
        assert planned(service(address_mode=mode), running={}) == ServicePlan()
        assert planned(of_task=(service(address_mode=mode),), running={"other": ""}) == ServicePlan()


def test_the_address_that_a_driver_gave_a_task_is_its_services() -> None:
    (found,) = planned(of_task=(service(address_mode="driver"),), running={"web": "172.17.0.5"}).planned
    assert (found.registration.address, found.registration.port) == ("172.17.0.5", 80)


def test_services_of_consul_are_not_ours() -> None:
    assert planned(service(provider="consul")) == ServicePlan()
    assert not services.has_services(factories.group(services=(service(provider="consul"),)), ("nomad",))
    assert services.has_services(factories.group(services=(service(),)), ("nomad",))


def test_a_service_without_a_provider_is_consul_s_where_a_package_brings_one() -> None:
    group = factories.group(services=(service(provider=""), service(name="other", provider="nomad")))
    alloc = Allocation(
        id="a1", job=factories.job(task_groups=(group,)), task_group=group.name, allocated_resources=PORTS
    )
    found = services.plan(alloc, PLACE, lambda _, text: text, running=RUNNING, providers=("consul", "nomad")).planned
    assert [(each.registration.name, each.provider) for each in found] == [("web", "consul"), ("other", "nomad")]


def test_a_canary_has_tags_of_its_own() -> None:
    status = AllocDeploymentStatus(canary=True)
    (found,) = planned(service(tags=("live",), canary_tags=("canary",)), deployment_status=status).planned
    assert found.registration.tags == ("canary",)


def test_a_task_s_service_is_due_while_it_runs_and_the_group_s_while_anything_does() -> None:
    plan = planned(service(), of_task=(service(name="own"),))
    assert services.due(plan, set()) == ()
    assert [each.registration.name for each in services.due(plan, {"other"})] == ["web"]
    assert [each.registration.name for each in services.due(plan, {"web"})] == ["web", "own"]


def test_a_check_takes_the_restart_of_its_service_and_the_address_of_its_own_port() -> None:
    restart = CheckRestart(limit=3, grace=seconds(5))
    checks = (check(type="http", path="/${X}", port_label="any", on_update="ignore"), check(type="script"))
    ((_, _, _, specs),) = planned(of_task=(service(checks=checks, check_restart=restart),)).planned
    (spec,) = specs
    assert (spec.host, spec.port, spec.path, spec.task) == ("10.0.0.9", 23457, "/web", "web")
    assert (spec.limit, spec.grace, spec.mode) == (3, seconds(5), "readiness")


def test_checks_of_two_services_have_ids_of_their_own() -> None:
    plan = planned(service(checks=(check(), check())), of_task=(service(name="own", checks=(check(),)),))
    assert len({spec.id for each in plan.planned for spec in each.checks}) == 3


def test_a_group_s_check_that_names_a_task_waits_for_it() -> None:
    plan = planned(service(checks=(check(task_name="web"), check(name="free"))))
    assert [spec.name for spec in services.checked(plan, {"other"})] == ["free"]
    assert [spec.name for spec in services.checked(plan, {"web"})] == ["alive", "free"]
