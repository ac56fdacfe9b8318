"""A service may name the provider that a package brings to some node, and no other."""

from __future__ import annotations

from yurt.fsm import apply
from yurt.sdk.value import replace
from yurt.server.resources.admission import provider_problems_of
from yurt.state import Snapshot
from yurt.structs.commands import RegisterNode
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
    task = factories.task(services=(Service(name="web", provider=provider),))
    job = factories.job(task_groups=(factories.group(tasks=(task,)),))
    return list(provider_problems_of(state, job))


def test_a_provider_that_no_node_has_is_refused() -> None:
    (found,) = problems(state_with(), "etcd")
    assert 'Service provider must be "consul" or "nomad"; got "etcd"' in found
    assert "Task web Service[web] validation failed" in found


def test_a_provider_that_a_node_has_is_taken() -> None:
    assert not problems(state_with(service__provider__etcd="true"), "etcd")


def test_providers_that_jobs_of_nomad_name_are_taken() -> None:
    assert not [text for name in ("", "consul", "nomad") for text in problems(state_with(), name)]
