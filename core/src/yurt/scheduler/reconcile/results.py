"""The reconciler's results, before nodes are chosen."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment, DeploymentState
from yurt.structs.evaluation import DesiredUpdates, Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, AttributeUpdate, DeploymentUpdate
from yurt.structs.queueing.requeue import requeue_policy
from yurt.structs.status import DESIRED_EVICT, DESIRED_STOP, ClientStatus, NotGiven

NOT_NEEDED = "alloc not needed due to job update"
NOT_NEEDED_RECONNECT = "alloc not needed due to disconnected client reconnect"
MIGRATING = "alloc is being migrated"
UPDATING = "alloc is being updated due to job update"
LOST = "alloc is lost since its node is down"
UNKNOWN = "alloc is unknown since its node is disconnected"
NODE_TAINTED = "alloc not needed as node is tainted"
RESCHEDULED = "alloc was rescheduled because it failed"


class PlacementRequest(msgspec.Struct, frozen=True, gc=False):
    """An allocation to place. `stops` gives the reason when `previous` stops only with this placement."""

    group: str
    name: str
    previous: Allocation | None = None
    is_canary: bool = False
    is_rescheduled: bool = False
    is_requeued: bool = False
    """Whether `previous` was preempted, so that its replacement continues its work."""
    stops: str = ""
    job: Job | None = None
    """The version to place, if it is not the newest (a lost or migrating allocation while canaries run)."""


class InPlaceRequest(msgspec.Struct, frozen=True):
    """A running allocation to update to the new version in place."""

    alloc: Allocation


class StopRequest(msgspec.Struct, frozen=True):
    """An allocation to stop."""

    alloc: Allocation
    description: str
    client_status: ClientStatus | NotGiven = ""
    followup_eval_id: str = ""

    def as_plan(self) -> AllocStop:
        """The stop in the form of a plan."""
        return AllocStop(
            id=self.alloc.id,
            node_id=self.alloc.node_id,
            # A requeued allocation that is lost with its node meanwhile stays preempted, and is placed again as such.
            desired_status=DESIRED_STOP if requeue_policy(self.alloc) is None else DESIRED_EVICT,
            description=self.description,
            client_status=self.client_status,
            followup_eval_id=self.followup_eval_id,
        )


class GangShortfall(NamedTuple):
    """The members that a gang would be short of if all that it may place now were placed."""

    missing: int
    least: int
    """The number of members that must run together."""

    def __str__(self) -> str:
        return (
            f"{self.missing} of the {self.least} that must run together {'is' if self.missing == 1 else 'are'} missing"
        )


class Results(msgspec.Struct):
    """The results of the reconciler, collected group by group."""

    destructive: list[PlacementRequest] = msgspec.field(default_factory=list)
    place: list[PlacementRequest] = msgspec.field(default_factory=list)
    in_place: list[InPlaceRequest] = msgspec.field(default_factory=list)
    stops: list[StopRequest] = msgspec.field(default_factory=list)
    attributes: dict[str, AttributeUpdate] = msgspec.field(default_factory=dict)
    followups: list[Evaluation] = msgspec.field(default_factory=list)
    desired: dict[str, DesiredUpdates] = msgspec.field(default_factory=dict)
    deployment: Deployment | None = None
    deployment_updates: list[DeploymentUpdate] = msgspec.field(default_factory=list)
    states: dict[str, DeploymentState] = msgspec.field(default_factory=dict)
    """The deployment state of each group, for a deployment to create."""
    gang_shortfalls: dict[str, GangShortfall] = msgspec.field(default_factory=dict)
    """The gangs of which nothing is placed because too few members would run."""
