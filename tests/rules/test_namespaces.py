"""Which drivers, network modes and node pools a namespace lets its jobs use."""

from __future__ import annotations

import pytest
from yurt.rules.namespaces import configuration_problems, default_pool, namespace_problems
from yurt.structs.cluster import Namespace, NamespaceCapabilities, NamespaceNodePoolConfiguration
from yurt.structs.network import NetworkResource
from yurt.testing import factories

Pools = NamespaceNodePoolConfiguration


@pytest.mark.parametrize(
    ("pools", "pool", "is_allowed"),
    [
        (Pools(), "gpu", True),
        (Pools(allowed=("gpu",)), "gpu", True),
        (Pools(allowed=("gpu",)), "cpu", False),
        (Pools(allowed=("g*",)), "gpu", True),
        (Pools(allowed=("g*",)), "big", False),
        (Pools(allowed=()), "gpu", False),
        (Pools(allowed=()), "default", True),
        (Pools(default="cpu", allowed=()), "cpu", True),
        (Pools(default="cpu", allowed=()), "default", False),
        (Pools(denied=("g*",)), "gpu", False),
        (Pools(denied=("g*",)), "cpu", True),
        (Pools(denied=("*",)), "default", True),
    ],
)
def test_a_pool_is_allowed_by_name_or_glob_and_the_default_always(pools: Pools, pool: str, is_allowed: bool) -> None:
    space = Namespace(name="prod", node_pool_configuration=pools)
    assert (not list(namespace_problems(space, factories.job(node_pool=pool)))) == is_allowed


def test_a_job_that_names_no_pool_is_in_the_default_one_of_its_namespace() -> None:
    assert default_pool(None) == default_pool(Namespace(name="a")) == "default"
    assert default_pool(Namespace(name="a", node_pool_configuration=Pools(default="gpu"))) == "gpu"


def test_rules_that_contradict_each_other_are_problems() -> None:
    def problems(pools: Pools) -> int:
        return len(list(configuration_problems(Namespace(name="a", node_pool_configuration=pools))))

    assert problems(Pools(default="gpu", denied=("x",))) == problems(Pools(allowed=())) == 0
    assert problems(Pools(allowed=(), denied=())) == 1
    assert problems(Pools(default="gpu", denied=("g*",))) == 1


@pytest.mark.parametrize(
    ("networks", "is_allowed"),
    [
        ((), False),
        ((NetworkResource(),), False),
        ((NetworkResource(mode="host"),), False),
        ((NetworkResource(mode="bridge"),), True),
    ],
)
def test_a_group_without_a_network_counts_as_one_in_that_of_the_host(
    networks: tuple[NetworkResource, ...], is_allowed: bool
) -> None:
    job = factories.job(task_groups=(factories.group(networks=networks),))
    for rules in (
        NamespaceCapabilities(disabled_network_modes=("host",)),
        NamespaceCapabilities(enabled_network_modes=("bridge",)),
    ):
        space = Namespace(name="prod", capabilities=rules)
        assert (not list(namespace_problems(space, job))) == is_allowed
