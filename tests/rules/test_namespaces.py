"""Which drivers, network modes and node pools a namespace lets its jobs use."""

from __future__ import annotations

import pytest
from yurt.rules.namespaces import configuration_problems, default_pool, namespace_problems
from yurt.structs.cluster import Namespace, NamespaceNodePoolConfiguration
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
