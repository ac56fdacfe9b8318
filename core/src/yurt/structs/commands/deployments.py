"""Commands on deployments."""

from __future__ import annotations

from yurt.sdk.value import UnixNano
from yurt.structs.commands.base import Command, EventType
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import DeploymentUpdate
from yurt.structs.status import DeploymentStatus, NotGiven


class SetDeploymentStatus(Command, tag=True):
    """End or pause a deployment; may store a reverted job and an evaluation with it."""

    event_type = EventType("DeploymentStatusUpdate")

    update: DeploymentUpdate
    evaluation: Evaluation | None = None
    job: Job | None = None
    now: UnixNano = UnixNano(0)
    expected_status: DeploymentStatus | NotGiven = ""
    """The status on which the decision is based; the command is stale if it has changed. "" is any active one."""


class SetDeploymentAllocHealth(Command, tag=True):
    """Set the health of a deployment's allocations, as decided by an operator."""

    event_type = EventType("DeploymentAllocHealth")

    deployment_id: str
    healthy: tuple[str, ...] = ()
    unhealthy: tuple[str, ...] = ()
    now: UnixNano = UnixNano(0)
    update: DeploymentUpdate | None = None
    evaluation: Evaluation | None = None


class PromoteDeployment(Command, tag=True):
    """Promote the canaries of all or some groups."""

    event_type = EventType("DeploymentPromotion")

    deployment_id: str
    groups: tuple[str, ...] = ()
    evaluation: Evaluation | None = None
    now: UnixNano = UnixNano(0)
    expected_status: DeploymentStatus | NotGiven = ""
    """As for SetDeploymentStatus."""


class DeleteDeployments(Command, tag=True):
    """Delete deployments, as garbage collection."""

    deployment_ids: tuple[str, ...]


DeploymentCommand = SetDeploymentStatus | SetDeploymentAllocHealth | PromoteDeployment | DeleteDeployments
