"""The durations of appends and of applying commands, under the names of Nomad's Raft and FSM metrics."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from yurt.runtime.metrics import Metrics, Timing
from yurt.structs.commands import AnyCommand

FSM_NAMES: Final = {
    "AddNodeEvents": "upsert_node_events",
    "ApplyPlan": "apply_plan_results",
    "BootstrapACL": "apply_acl_token_bootstrap",
    "CreateACLToken": "apply_acl_token_upsert",
    "DeleteACLPolicies": "apply_acl_policy_delete",
    "DeleteACLTokens": "apply_acl_token_delete",
    "DeleteDeployments": "apply_deployment_delete",
    "DeleteEvaluations": "delete_eval",
    "DeleteJobs": "batch_deregister_job",
    "DeleteNamespaces": "apply_namespace_delete",
    "DeleteNodePools": "apply_node_pool_delete",
    "DeleteNodes": "batch_deregister_node",
    "DeleteVolumes": "apply_csi_volume_deregister",
    "PromoteDeployment": "apply_deployment_promotion",
    "RecordScalingEvent": "upsert_scaling_event",
    "SetAutopilotConfiguration": "autopilot",
    "SetDeploymentAllocHealth": "apply_deployment_alloc_health",
    "SetDeploymentStatus": "apply_deployment_status_update",
    "SetDesiredTransitions": "alloc_update_desired_transition",
    "SetJobStability": "apply_job_stability",
    "SetJobVersionTag": "apply_job_version_tag",
    "SetNodeDrain": "node_drain_update",
    "SetDeviceEligibility": "node_device_eligibility_update",
    "SetNodeEligibility": "node_eligibility_update",
    "SetNodeStatus": "node_status_update",
    "SetSchedulerConfiguration": "apply_scheduler_config",
    "UpdateACLToken": "apply_acl_token_upsert",
    "UpdateAllocsFromClient": "alloc_client_update",
    "UpsertACLPolicies": "apply_acl_policy_upsert",
    "UpsertEvaluations": "update_eval",
    "UpsertNamespaces": "apply_namespace_upsert",
    "UpsertNodePools": "apply_node_pool_upsert",
    "UpsertVolumes": "apply_csi_volume_register",
}
"""Nomad's names of commands; other commands have their own name."""
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def fsm_name(command: str) -> str:
    """`ApplyPlan` -> `fsm.apply_plan_results`; `PutVariable` -> `fsm.put_variable`."""
    return "fsm." + (FSM_NAMES.get(command) or _WORD.sub("_", command).lower())


class LogTimes:
    """Records the durations of one server's log."""

    __slots__ = ("_all", "_by_kind", "_metrics", "now")

    def __init__(self, metrics: Metrics, now: Callable[[], float]) -> None:
        self._metrics = metrics
        self._by_kind: dict[type[AnyCommand], Timing] = {}
        self._all: Timing | None = None
        self.now = now

    def appended(self, count: int, began: float) -> None:
        """Record that a batch of commands is durable."""
        self._metrics.time("raft.commitTime", self.now() - began)
        self._metrics.count("raft.apply", count)

    def applied(self, command: AnyCommand, began: float) -> None:
        """Record that a command has changed the state."""
        seconds = self.now() - began
        kind = type(command)
        timing, every = self._by_kind.get(kind), self._all
        if timing is None or every is None:
            timing = self._by_kind[kind] = self._metrics.timing(fsm_name(kind.__name__))
            every = self._all = self._metrics.timing("raft.fsm.apply")
        timing.add(seconds)
        every.add(seconds)
