"""Deployments: the roll-out of one job version."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Duration, Timestamp, UnixNano, Value, no_entries
from yurt.structs.status import DeploymentStatus


class DeploymentState(Value):
    """The roll-out of one group."""

    placed_canaries: tuple[str, ...] = ()
    auto_revert: bool = False
    auto_promote: bool = False
    progress_deadline: Duration = Duration(0)
    require_progress_by: Timestamp = 0
    promoted: bool = False
    desired_canaries: int = 0
    desired_total: int = 0
    placed_allocs: int = 0
    healthy_allocs: int = 0
    unhealthy_allocs: int = 0


class Deployment(Value):
    """The roll-out of one job version."""

    id: str = ""
    namespace: str = "default"
    job_id: str = ""
    job_version: int = 0
    job_modify_index: int = 0
    job_spec_modify_index: int = 0
    job_create_index: int = 0
    is_multiregion: bool = False
    task_groups: Mapping[str, DeploymentState] = no_entries()
    status: DeploymentStatus = "running"
    status_description: str = ""
    create_index: int = 0
    modify_index: int = 0
    create_time: UnixNano = UnixNano(0)
    modify_time: UnixNano = UnixNano(0)
