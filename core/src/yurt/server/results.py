"""Results of the server's operations."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Timestamp, UnixNano, Value, no_entries
from yurt.structs.evaluation import Evaluation, PlanAnnotations
from yurt.structs.explain.diff import JobDiff
from yurt.structs.explain.metrics import AllocationMetric


class JobRegistered(Value):
    """A registered job; `eval_id` is empty without an evaluation."""

    eval_id: str = ""
    eval_create_index: int = 0
    job_modify_index: int = 0
    index: int = 0
    warnings: tuple[str, ...] = ()


class JobPlanned(Value):
    """The plan for registering a job."""

    job_modify_index: int = 0
    diff: JobDiff | None = None
    annotations: PlanAnnotations | None = None
    failed_tg_allocs: Mapping[str, AllocationMetric] = no_entries()
    created_evals: tuple[Evaluation, ...] = ()
    next_periodic_launch: Timestamp = 0
    warnings: tuple[str, ...] = ()


class JobDispatched(Value):
    """A dispatched child, new or found by its idempotency token."""

    dispatched_job_id: str
    eval_id: str = ""
    eval_create_index: int = 0
    job_create_index: int = 0
    index: int = 0


class NodeUpdated(Value):
    """A changed node and the resulting evaluations."""

    node_modify_index: int = 0
    eval_ids: tuple[str, ...] = ()
    eval_create_index: int = 0
    index: int = 0
    heartbeat_ttl_s: float = 0.0


class AllocStopped(Value):
    """An allocation with the desired status stop."""

    eval_id: str = ""
    index: int = 0


class IdleDeferral(Value):
    """An allocation whose end for being idle is put off, and how often that was done while others waited."""

    kept_until: UnixNano = UnixNano(0)
    keeps: int = 0
    index: int = 0


class ConfigurationSet(Value):
    """The outcome of a compare-and-set of a configuration, and the index of its command, refused or not."""

    is_updated: bool
    index: int


class DeploymentChanged(Value):
    """A changed deployment; `reverted_job_version` is set after a rollback to a stable version."""

    eval_id: str = ""
    eval_create_index: int = 0
    deployment_modify_index: int = 0
    reverted_job_version: int | None = None
    index: int = 0
