"""A small, reproducible state with rows in every table of the first versions, for comparison with stored files.

Tables that are written in the order of their hash have one row, so that the bytes do not depend on the process.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final, TypeVar

from yurt.sdk.value import UnixNano, Value, replace, seconds
from yurt.state import TABLES, Snapshot, Tables, Transaction
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import (
    AutopilotConfiguration,
    DriverSchema,
    Namespace,
    NodePool,
    PeriodicLaunch,
    RestoreChunk,
    SchedulerConfiguration,
)
from yurt.structs.explain.metrics import AllocationMetric, NodeScoreMeta
from yurt.structs.job import Job, JobScalingEvents, JobSubmission, ScalingEvent
from yurt.structs.node import Node
from yurt.structs.plan import Plan, StagedPlan
from yurt.structs.summary import JobSummary, TaskGroupSummary
from yurt.structs.variable import EncryptedVariable, RootKeyMeta, VariableLock
from yurt.structs.volumes.csi import CSIVolume, CSIVolumeCapability
from yurt.structs.volumes.host import HostVolume, TaskGroupHostVolumeClaim
from yurt.testing import factories

T = TypeVar("T", bound=Value)
INDEX: Final = 7
"""The index of the state."""
DEPLOYMENT: Final = factories.number_id(8)


def every_table() -> Transaction:
    """The transaction that writes the state: one row of each table and three allocations."""
    edit = Snapshot.empty().edit(INDEX)
    for name in ("all", "default"):
        edit.delete(Tables.node_pools, name)
    edit.delete(Tables.namespaces, "default")
    node = _written(factories.node(factories.number_id(1), name="n1", secret_id="s"))
    job = _written(replace(factories.job(), submit_time=factories.NOW, job_modify_index=INDEX))
    rows: Mapping[str, Mapping[Hashable, Any]] = {
        **_of_job(job, node),
        **_of_cluster(),
        **_volumes(node),
        "nodes": {node.id: node},
        "allocs": {alloc.id: alloc for alloc in _allocs(job, node)},
    }
    for table, found in rows.items():
        for key, row in found.items():
            edit.put(TABLES[table], key, row)
    return edit


def _written(row: T) -> T:
    return replace(row, create_index=INDEX, modify_index=INDEX)


def _allocs(job: Job, node: Node) -> list[Allocation]:
    """Three allocations: two share resources and metrics, one has scores, one has neither job nor metrics."""
    score = NodeScoreMeta(node_id=node.id, scores={"binpack": 0.5}, norm_score=0.5)
    metric = AllocationMetric(nodes_evaluated=2, score_meta_data=(score,))
    first = _written(factories.alloc(job, on=node, id=factories.number_id(2), eval_id="e", metrics=metric))
    second = replace(first, id=factories.number_id(3), name="web.web[1]", deployment_id=DEPLOYMENT)
    third = replace(first, id=factories.number_id(4), name="web.web[2]", job=None, metrics=None)
    return [first, second, replace(third, client_status=status.CLIENT_COMPLETE)]


def _of_job(job: Job, node: Node) -> dict[str, dict[Hashable, Any]]:
    summary = JobSummary(job_id=job.id, namespace=job.namespace, summary={"web": TaskGroupSummary(running=2)})
    event = ScalingEvent(time=5, count=3, previous_count=1, message="more", meta={"by": "hand"}, create_index=INDEX)
    events = JobScalingEvents(job_id=job.id, scaling_events={"web": (event,)}, modify_index=INDEX)
    evaluation = _written(factories.evaluation(job, id=factories.number_id(6), deployment_id=DEPLOYMENT))
    deployment = _written(factories.deployment(job, id=DEPLOYMENT))
    service = _written(factories.service(factories.alloc(job, on=node, id=factories.number_id(2)), tags=("a",)))
    launch = _written(PeriodicLaunch(id=job.id, launch=factories.NOW))
    return {
        "jobs": {job.key: job},
        "job_versions": {(*job.key, 0): job},
        "job_summaries": {job.key: _written(summary)},
        "job_submissions": {(*job.key, 0): JobSubmission(source="job {}", format="hcl2", variable_flags={"a": "b"})},
        "scaling_events": {job.key: events},
        "evals": {evaluation.id: evaluation},
        "deployments": {deployment.id: deployment},
        "services": {service.id: service},
        "periodic_launches": {job.key: launch},
    }


def _of_cluster() -> dict[str, dict[Hashable, Any]]:
    lock = VariableLock(id="l", ttl=seconds(15))
    variable = _written(EncryptedVariable(path="a/b", key_id="k", data=b"sealed", lock=lock))
    plan = Plan(eval_id="e", namespace="default", job_id="web", now=factories.NOW)
    key = _written(RootKeyMeta(key_id="k", create_time=UnixNano(3)))
    return {
        "variables": {variable.key: variable},
        "root_keys": {key.key_id: key},
        "namespaces": {"ops": _written(Namespace(name="ops", meta={"team": "x"}))},
        "node_pools": {"gpu": _written(NodePool(name="gpu", description="cards"))},
        "scheduler_config": {"": _written(SchedulerConfiguration(scheduler_algorithm="spread"))},
        "autopilot_config": {"": _written(AutopilotConfiguration(min_quorum=3))},
        "schemas": {("raw_exec", "d"): DriverSchema(driver="raw_exec", digest="d", schema={"a": 1}, create_index=1)},
        "restore_chunks": {("r", 0): RestoreChunk(data=b"piece")},
        "staged_plans": {("p", 1): StagedPlan(plan=plan)},
    }


def _volumes(node: Node) -> dict[str, dict[Hashable, Any]]:
    modes = (CSIVolumeCapability(access_mode="single-node-writer", attachment_mode="file-system"),)
    csi = CSIVolume(id="db", name="Data", plugin_id="ebs", secrets={"password": "p"}, requested_capabilities=modes)
    host = _written(HostVolume(id=factories.number_id(9), name="data", plugin_id="mkdir", node_id=node.id))
    claim = TaskGroupHostVolumeClaim(
        id="c", namespace="default", job_id="web", task_group_name="web", alloc_id="a", alloc_name="web.web[0]",
        volume_id=host.id, volume_name=host.name, create_index=INDEX, modify_index=INDEX,
    )  # fmt: skip
    return {
        "csi_volumes": {("default", csi.id): _written(csi)},
        "host_volumes": {host.id: host},
        "host_volume_claims": {claim.id: claim},
    }
