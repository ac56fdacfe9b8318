"""A service may name the provider that a package brings to some node, and no other; one for Consul that no node
registers is warned of.
"""

from __future__ import annotations

import pytest
from yurt.fsm import apply
from yurt.sdk.value import replace
from yurt.server.config import ServerConfig
from yurt.server.resources.admission import admit, offered_providers, provider_problems_of, services_of
from yurt.state import Snapshot
from yurt.structs.commands import DeleteNodes, RegisterNode
from yurt.structs.job import Job
from yurt.structs.service import Service
from yurt.testing import factories


def state_with(**attributes: str) -> Snapshot:
    """A state with one node of these attributes; `__` stands for a dot."""
    node = factories.node()
    given = {name.replace("__", "."): value for name, value in attributes.items()}
    node = replace(node, attributes={**node.attributes, **given})
    return apply(Snapshot.empty(), RegisterNode(node=node), index=1).state


def problems(state: Snapshot, provider: str) -> list[str]:
    """What is wrong with the provider of a task's service."""
    job = job_with(provider)
    services = services_of(job)
    return provider_problems_of(job, services, offered_providers(state, services))


def job_with(provider: str) -> Job:
    """A job whose group and task have a service of this provider."""
    services = (Service(name="web", provider=provider),)
    task = factories.task(services=services)
    return factories.job(task_groups=(factories.group(tasks=(task,), services=services),))


def test_a_provider_that_no_node_has_is_refused() -> None:
    (found,) = problems(state_with(), "etcd")
    assert 'Service provider must be "consul" or "nomad"; got "etcd"' in found
    assert "Task web Service[web] validation failed" in found


def test_a_provider_that_a_node_has_is_taken() -> None:
    assert not problems(state_with(service__provider__etcd="true"), "etcd")


def test_a_provider_counts_as_long_as_some_node_has_it() -> None:
    state, job = Snapshot.empty(), job_with("etcd")
    first, second = (factories.node(factories.number_id(number)) for number in (1, 2))
    with_etcd = {"service.provider.etcd": "true", "service.provider.other": "true"}
    steps = (
        (RegisterNode(node=replace(first, attributes={**first.attributes, **with_etcd})), {"etcd"}),
        (RegisterNode(node=replace(second, attributes={**second.attributes, **with_etcd})), {"etcd"}),
        (RegisterNode(node=first), {"etcd"}),
        (DeleteNodes(node_ids=(second.id,)), set()),
    )
    for index, (command, offered) in enumerate(steps, start=1):
        state = apply(state, command, index=index).state
        assert offered_providers(state, services_of(job)) == offered


def test_providers_that_jobs_of_nomad_name_are_taken() -> None:
    assert not [text for name in ("", "consul", "nomad") for text in problems(state_with(), name)]


@pytest.mark.parametrize("provider", ["", "consul"])
def test_services_that_no_node_registers_with_consul_are_warned_of(provider: str) -> None:
    of_group, of_task = unregistered(state_with(), provider)

    said = 'service "web" is not registered: its provider is consul'
    assert of_group.startswith(f'Group "web" has warnings: {said}')
    assert of_task.startswith(f'Group "web" has warnings: Task "web" has warnings: {said}')


@pytest.mark.parametrize("provider", ["", "consul"])
def test_services_that_a_package_registers_with_consul_are_not_warned_of(provider: str) -> None:
    assert not unregistered(state_with(service__provider__consul="true"), provider)


def unregistered(state: Snapshot, provider: str) -> list[str]:
    """What a registration warns of services."""
    return [
        text
        for text in admit(state, job_with(provider), ServerConfig(name="s1")).warnings
        if "is not registered" in text
    ]
