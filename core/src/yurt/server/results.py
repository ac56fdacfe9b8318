"""What the server's operations answer."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Timestamp, Value, no_entries
from yurt.structs.evaluation import Evaluation, PlanAnnotations
from yurt.structs.explain.diff import JobDiff
from yurt.structs.explain.metrics import AllocationMetric


class JobRegistered(Value):
    """A job was written; `eval_id` is empty when nothing is to be scheduled."""

    eval_id: str = ""
    eval_create_index: int = 0
    job_modify_index: int = 0
    index: int = 0
    warnings: tuple[str, ...] = ()


class JobPlanned(Value):
    """What registering a job would do."""

    job_modify_index: int = 0
    diff: JobDiff | None = None
    annotations: PlanAnnotations | None = None
    failed_tg_allocs: Mapping[str, AllocationMetric] = no_entries()
    created_evals: tuple[Evaluation, ...] = ()
    next_periodic_launch: Timestamp = 0
    warnings: tuple[str, ...] = ()


class JobDispatched(Value):
    """A parameterized job was dispatched, or the child that its idempotency token names was found."""

    dispatched_job_id: str
    eval_id: str = ""
    eval_create_index: int = 0
    job_create_index: int = 0
    index: int = 0


class NodeUpdated(Value):
    """A node was changed, and these evaluations follow."""

    node_modify_index: int = 0
    eval_ids: tuple[str, ...] = ()
    eval_create_index: int = 0
    index: int = 0
    heartbeat_ttl_s: float = 0.0


class AllocStopped(Value):
    """An allocation is to be stopped."""

    eval_id: str = ""
    index: int = 0


class DeploymentChanged(Value):
    """A deployment was changed; `reverted_job_version` is set when it went back to a stable one."""

    eval_id: str = ""
    eval_create_index: int = 0
    deployment_modify_index: int = 0
    reverted_job_version: int | None = None
    index: int = 0
