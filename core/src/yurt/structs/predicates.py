"""Predicates and derived values of jobs, allocations, nodes, evaluations and deployments, shared by all layers."""

from __future__ import annotations

from yurt.sdk.services import NODE_ATTRIBUTE
from yurt.sdk.value import Duration, UnixNano, replace
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import DrainSpec, Node
from yurt.structs.status import EvalType

CSI = "csi"
"""The type of volumes that CSI plugins serve."""
INDEX_DIGITS_MAX = 18
"""The maximum number of digits of an allocation's index; `int` rejects thousands of digits."""
POOL_ALL = "all"
"""The pool that every node is in."""


def has_same_specification(job: Job, other: Job) -> bool:
    """Whether two jobs differ only in fields that the servers write, so that they are one version."""
    return _specification(job) == _specification(other)


def _specification(job: Job) -> Job:
    return replace(
        job,
        status=status.JOB_PENDING,
        status_description="",
        stable=False,
        version=0,
        submit_time=UnixNano(0),
        create_index=0,
        modify_index=0,
        job_modify_index=0,
        version_tag=None,
    )


def eval_type(job: Job) -> EvalType:
    """The scheduler type of the job's evaluations; an unknown job type counts as `service`."""
    return status.EVAL_TYPES.get(job.type, status.JOB_SERVICE)


def total_count_problem(job: Job, count_max: int) -> str:
    """The rejection of a job with more allocations in total than allowed; "" for none. A limit of 0 allows any
    number."""
    count = sum(group.count for group in job.task_groups)
    if not count_max or count <= count_max:
        return ""
    return f"total count was greater than configured job_max_count: {count} > {count_max}"


def asks_csi(job: Job) -> bool:
    """Whether a group of the job requests a CSI volume."""
    # A loop: it runs for each allocation that is written, and most groups have no volumes.
    for group in job.task_groups:
        if group.volumes and any(request.type == CSI for request in group.volumes.values()):
            return True
    return False


def asks_devices(job: Job) -> bool:
    """Whether a task of the job requests devices."""
    return any(task.resources.devices for group in job.task_groups for task in group.tasks)


def runs_csi_plugin(job: Job) -> bool:
    """Whether a task of the job is a CSI plugin."""
    return any(task.csi_plugin_config is not None for group in job.task_groups for task in group.tasks)


def is_client_terminal(alloc: Allocation) -> bool:
    """Whether the client reported a final status."""
    return alloc.client_status in status.CLIENT_TERMINAL


def is_server_terminal(alloc: Allocation) -> bool:
    """Whether the servers have asked the allocation to stop."""
    return alloc.desired_status in status.SERVER_TERMINAL


def is_stopping(alloc: Allocation) -> bool:
    """Whether the servers have asked the allocation to stop and its client has not reported the end."""
    return alloc.desired_status in status.SERVER_TERMINAL and alloc.client_status not in status.CLIENT_TERMINAL


def is_terminal(alloc: Allocation) -> bool:
    """Whether the client or the servers consider the allocation ended."""
    return alloc.client_status in status.CLIENT_TERMINAL or alloc.desired_status in status.SERVER_TERMINAL


def has_completed(alloc: Allocation) -> bool:
    """Whether all of its tasks succeeded; a lost one whose tasks had ended is replaced, since nobody has its data."""
    states = alloc.task_states.values()
    succeeded = bool(states) and all(state.state == status.TASK_DEAD and not state.failed for state in states)
    return succeeded and alloc.client_status == status.CLIENT_COMPLETE


def has_returned_done(alloc: Allocation) -> bool:
    """Whether its client returned and reported success, so that no replacement is needed (invariant D4)."""
    if alloc.client_status != status.CLIENT_COMPLETE:
        return False
    log = [entry.value for entry in alloc.alloc_states if entry.field == "ClientStatus"]
    return bool(log) and log[-1] == status.CLIENT_UNKNOWN


def is_gang_member(alloc: Allocation, job: Job | None) -> bool:
    """Whether an allocation of a gang counts towards its minimum: it runs, or has completed in this version of a batch
    job."""
    if not is_terminal(alloc):
        return True
    own = alloc.job
    if job is None or own is None or eval_type(job) != status.JOB_BATCH:
        return False
    # A job that was purged and registered again begins with the same version numbers.
    is_own = own.version == job.version and own.create_index == job.create_index
    return is_own and has_completed(alloc)


def is_canary(alloc: Allocation) -> bool:
    """Whether the allocation is a canary that is not promoted yet; canaries of a gang are a gang of their own."""
    return alloc.deployment_status is not None and alloc.deployment_status.canary


def unknown_since(alloc: Allocation) -> int:
    """The start of the allocation's present unknown period by the servers' clock; 0 without one."""
    since = 0
    for entry in alloc.alloc_states:
        if entry.field == "ClientStatus":
            since = (since or entry.time) if entry.value == status.CLIENT_UNKNOWN else 0
    return since


def is_expired(alloc: Allocation, lost_after: Duration, now: UnixNano) -> bool:
    """Whether an allocation has been unknown for longer than its group allows; a time of 0 never expires."""
    if alloc.client_status != status.CLIENT_UNKNOWN or lost_after <= 0:
        return False
    return unknown_since(alloc) + lost_after <= now


def alloc_index(name: str) -> int:
    """The index in an allocation's name (7 in `job.group[7]`); -1 for a name without one."""
    if not name.endswith("]"):
        return -1
    digits = name[name.rfind("[") + 1 : -1]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= INDEX_DIGITS_MAX else -1


def alloc_name(job_id: str, group: str, index: int) -> str:
    """The name of an allocation: `job.group[index]`."""
    return f"{job_id}.{group}[{index}]"


def is_ready(node: Node) -> bool:
    """Whether new allocations may be placed on the node."""
    return (
        node.status == status.NODE_READY
        and node.scheduling_eligibility == status.ELIGIBLE
        and node.drain_strategy is None
    )


def holds_up_drain(alloc: Allocation, spec: DrainSpec) -> bool:
    """Whether a drain with this specification waits for the end of the allocation."""
    if is_client_terminal(alloc) or alloc.job is None:
        return False
    return not (spec.ignore_system_jobs and alloc.job.type == status.JOB_SYSTEM)


def is_eval_terminal(evaluation: Evaluation) -> bool:
    """Whether the evaluation has a final status."""
    return evaluation.status in status.EVAL_TERMINAL


def is_deployment_active(deployment: Deployment) -> bool:
    """Whether the deployment has not ended."""
    return deployment.status in status.DEPLOYMENT_ACTIVE


def is_of_version(deployment: Deployment, job: Job) -> bool:
    """Whether a deployment rolls out this version of this job, and not one of a purged job of the same name."""
    return deployment.job_version == job.version and deployment.job_create_index == job.create_index


def is_for_node(job: Job, node: Node) -> bool:
    """Whether the node is in the job's datacenters and node pool."""
    if job.node_pool not in (POOL_ALL, node.node_pool):
        return False
    return any(is_match(node.datacenter, glob) for glob in job.datacenters)


def is_match(text: str, glob: str) -> bool:
    """Whether a text matches a glob, in which only `*` has a special meaning: any characters."""
    first, *rest = glob.split("*")
    if not rest:
        return text == glob
    if not text.startswith(first):
        return False
    *middle, last = rest
    at = len(first)
    for part in middle:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(text) - at >= len(last) and text.endswith(last)


def providers_on(node: Node) -> tuple[str, ...]:
    """The service providers from packages on a node, sorted, without the built-in one."""
    found = [name for name in node.attributes if name.startswith(NODE_ATTRIBUTE)]
    return tuple(sorted(name.removeprefix(NODE_ATTRIBUTE) for name in found)) if found else ()
