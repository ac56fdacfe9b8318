"""The rules of a namespace hold wherever a version of a job is stored, also when they are newer than the job."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import UnixNano
from yurt.structs.cluster import Namespace, NamespaceCapabilities, NamespaceNodePoolConfiguration, NodePool
from yurt.structs.commands import (
    DeregisterJob,
    DispatchJob,
    LaunchPeriodicJob,
    RegisterJob,
    ScaleJob,
    UpsertNamespaces,
    UpsertNodePools,
)
from yurt.structs.job import ParameterizedJobConfig, PeriodicConfig, ScalingEvent
from yurt.testing import factories
from yurt.testing.replica import Replica

KEY = ("default", "web")
NO_MOCK = Namespace(name="default", capabilities=NamespaceCapabilities(disabled_task_drivers=("mock_driver",)))


def restrict(replica: Replica, namespace: Namespace = NO_MOCK) -> None:
    replica.apply(UpsertNamespaces(namespaces=(namespace,)))


def scale(count: int) -> ScaleJob:
    return ScaleJob(namespace="default", job_id="web", group="web", event=ScalingEvent(count=count), count_max=100)


MAKES_A_VERSION: dict[str, tuple[dict[str, Any], Any]] = {
    "registered": ({}, RegisterJob(job=factories.job(priority=60))),
    "scaled": ({}, scale(3)),
    "dispatched": (
        {"type": "batch", "parameterized_job": ParameterizedJobConfig()},
        DispatchJob(namespace="default", job_id="web", child_id="web/dispatch-1"),
    ),
    "launched": (
        {"type": "batch", "periodic": PeriodicConfig(spec="@daily")},
        LaunchPeriodicJob(namespace="default", job_id="web", launched_at=UnixNano(factories.NOW)),
    ),
}


@pytest.mark.parametrize("how", MAKES_A_VERSION)
def test_a_version_that_its_namespace_forbids_is_not_stored(replica: Replica, how: str) -> None:
    fields, command = MAKES_A_VERSION[how]
    replica.apply(RegisterJob(job=factories.job(**fields)))
    restrict(replica)
    rejected = replica.reject(command)
    assert (rejected.kind, rejected.message) == (
        "invalid", 'used task drivers ["mock_driver"] are not allowed in namespace "default"'
    )  # fmt: skip
    assert list(replica.state.jobs.keys()) == [KEY]
    assert replica.state.jobs[KEY].version == 0


def test_a_job_that_its_namespace_forbids_can_be_stopped(replica: Replica) -> None:
    replica.apply(RegisterJob(job=factories.job()))
    restrict(replica)
    replica.apply(DeregisterJob(namespace="default", job_id="web"))
    assert replica.state.jobs[KEY].stop


def test_a_node_pool_that_its_namespace_forbids_takes_no_job(replica: Replica) -> None:
    pools = NamespaceNodePoolConfiguration(allowed=("gpu-*",))
    replica.apply(UpsertNodePools(pools=(NodePool(name="gpu-1"), NodePool(name="cpu"))))
    restrict(replica, Namespace(name="default", node_pool_configuration=pools))
    replica.apply(RegisterJob(job=factories.job(node_pool="gpu-1")))
    rejected = replica.reject(RegisterJob(job=factories.job(node_pool="cpu")))
    assert rejected.message == 'job "web" is in node pool "cpu", which is not allowed in namespace "default"'
    assert replica.state.jobs[KEY].node_pool == "gpu-1"
