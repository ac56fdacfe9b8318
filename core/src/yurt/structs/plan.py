"""Plans: the changes that a scheduler proposes, and the part that the applier accepted.

A plan is normalised. A placement names its group, node, resources and scores; the job, and everything that
allocations of one group share, is named once. `fsm` makes the allocations from it, so that the log never carries a
copy of the job per allocation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from yurt.sdk.value import Timestamp, UnixNano, Value, no_entries
from yurt.structs.alloc import AllocatedResources, AllocDeploymentStatus, RescheduleTracker
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation, PlanAnnotations
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.status import ClientStatus, DeploymentStatus, DesiredStatus, NotGiven

JOB_REFUSAL: Final = "job "
"""The beginning of the reason if the job itself takes no placement: it is stopped, is another one by now, or has no
such version."""
QUOTA_REFUSAL: Final = "quota "
"""The beginning of the reason if a limit refuses a placement, rather than its node."""


class Placement(Value):
    """A new allocation of the plan's job, of version `job_version`."""

    id: str
    name: str
    task_group: str
    node_id: str
    job_version: int
    resources: AllocatedResources
    node_name: str = ""
    metrics: AllocationMetric | None = None
    deployment_id: str = ""
    deployment_status: AllocDeploymentStatus | None = None
    previous_allocation: str = ""
    reschedule_tracker: RescheduleTracker | None = None
    preempted_allocations: tuple[str, ...] = ()


class ExhaustedFrom(Value, array_like=True):
    """The number of exhausted nodes in the metrics of all placements from this one on."""

    at: int
    nodes: int = 0
    classes: Mapping[str, int] = no_entries()
    dimensions: Mapping[str, int] = no_entries()


class PlacementBlock(Value):
    """Placements in the encoding of the log (`structs.packed`); a node's number is its position in `nodes`."""

    task_group: str
    job_version: int
    resources: AllocatedResources
    count: int
    ids: bytes
    indexes: bytes
    """The indexes in the names, 4 bytes each."""
    nodes: bytes
    """Node ids, first those with placements, whose names are in `node_names`."""
    node_names: tuple[str, ...]
    rows: bytes
    """The number of each placement's node, 2 bytes each."""
    deployment_id: str = ""
    deployment_status: AllocDeploymentStatus | None = None
    metrics: AllocationMetric | None = None
    """The metrics of the first placement, without the score tables."""
    exhausted: tuple[ExhaustedFrom, ...] = ()
    """The steps at which the metrics of later placements differ from those before."""
    part_names: tuple[str, ...] = ()
    parts: bytes = b""
    """Distinct score parts, 8 bytes for each scorer."""
    score_rows: bytes = b""
    """Distinct rows of score tables: the numbers of node and parts, 2 bytes each."""
    scores: bytes = b""
    """The score of each such row, 8 bytes each."""
    tables: bytes = b""
    """The row numbers of each placement's score table, 2 bytes each; all tables have the same length."""


class InPlaceUpdate(Value):
    """A live allocation that moves to another job version without a restart; None leaves a field unchanged."""

    id: str
    node_id: str
    job_version: int
    resources: AllocatedResources | None = None
    deployment_id: str = ""
    deployment_status: AllocDeploymentStatus | None = None
    metrics: AllocationMetric | None = None


class AttributeUpdate(Value):
    """A change of an allocation's bookkeeping that does not concern its node; None leaves a field unchanged."""

    id: str
    node_id: str
    followup_eval_id: str | None = None
    client_status: ClientStatus | None = None
    client_description: str | None = None
    reschedule_tracker: RescheduleTracker | None = None
    desired_transition_clear: bool = False
    append_state: tuple[str, Timestamp] | None = None
    canary: bool | None = None


class AllocStop(Value):
    """An allocation to stop; it has a client status if its client cannot report any more (lost, unknown)."""

    id: str
    node_id: str
    desired_status: DesiredStatus = "stop"
    description: str = ""
    client_status: ClientStatus | NotGiven = ""
    followup_eval_id: str = ""
    preempted_by: str = ""
    reclaimed_for: str = ""
    """The quota whose guarantee covers the preempting allocation: the stop reclaims lent capacity."""


class DeploymentUpdate(Value):
    """A new status of an existing deployment, or fewer canaries."""

    deployment_id: str
    status: DeploymentStatus
    status_description: str = ""
    canaries: Mapping[str, int] = no_entries()
    """By group, the smaller number of canaries that the deployment desires from now on; its status stays then."""


class Plan(Value):
    """All changes that one scheduling attempt proposes. `snapshot_index`: the index of the state it was computed on."""

    eval_id: str
    namespace: str
    job_id: str
    eval_token: str = ""
    priority: int = 50
    all_at_once: bool = False
    snapshot_index: int = 0
    placements: tuple[Placement, ...] = ()
    blocks: tuple[PlacementBlock, ...] = ()
    """The placements as encoded in the command log; empty everywhere else."""
    in_place: tuple[InPlaceUpdate, ...] = ()
    attributes: tuple[AttributeUpdate, ...] = ()
    stops: tuple[AllocStop, ...] = ()
    preemptions: tuple[AllocStop, ...] = ()
    deployment: Deployment | None = None
    deployment_updates: tuple[DeploymentUpdate, ...] = ()
    annotations: PlanAnnotations | None = None
    gangs: Mapping[str, int] = no_entries()
    """For groups that are placed together or not at all, the minimum number of their placements that must be
    accepted."""
    gang_members: Mapping[str, int] = no_entries()
    """For gangs with placements, the minimum number of members after the plan, which `apply` checks on its state."""
    now: UnixNano = UnixNano(0)
    guarantees_of: str = ""
    """The region whose guarantees the preemptions must keep, which `apply` checks again."""

    @property
    def is_indivisible(self) -> bool:
        """Whether the plan must become visible to readers all at once."""
        has_gangs = bool(self.gangs or self.gang_members)
        return self.all_at_once or has_gangs or any(stop.reclaimed_for for stop in self.preemptions)

    @property
    def is_empty(self) -> bool:
        """Whether applying the plan would change nothing."""
        return not (
            self.placements
            or self.blocks
            or self.in_place
            or self.attributes
            or self.stops
            or self.preemptions
            or self.deployment
            or self.deployment_updates
        )


class StagedPlan(Value):
    """A stored part of a plan whose other parts are not stored yet."""

    plan: Plan


class PlanResult(Value):
    """The accepted part of a plan; with a `refresh_index` above 0, retry on a state at least that new."""

    accepted: Plan
    refresh_index: int = 0
    alloc_index: int = 0
    rejected_nodes: Mapping[str, str] = no_entries()

    @property
    def is_full(self) -> bool:
        """Whether the whole plan was accepted."""
        return not self.rejected_nodes


class Outcome(Value):
    """The result of a scheduler: the ended evaluation, follow-up evaluations to create, and an evaluation to block."""

    evaluation: Evaluation
    created: tuple[Evaluation, ...] = ()
    reblock: Evaluation | None = None
