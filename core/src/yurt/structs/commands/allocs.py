"""Commands on allocations: plans, reports of clients, desired transitions."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Duration, UnixNano, Value, no_entries
from yurt.structs.accounting.devices import DeviceAccounting
from yurt.structs.alloc import AllocDeploymentStatus, AllocNetworkStatus, DesiredTransition, TaskState
from yurt.structs.commands.base import Command, EvalSeed, EventType
from yurt.structs.evaluation import Evaluation
from yurt.structs.plan import Plan
from yurt.structs.status import ClientStatus


class StagePlan(Command, tag=True):
    """Store a part of an indivisible plan, invisible until the `ApplyPlan` that names it."""

    plan_id: str
    number: int
    plan: Plan


class DropStagedPlans(Command, tag=True):
    """Delete staged parts of one plan, or of all plans."""

    plan_id: str = ""


class ApplyPlan(Command, tag=True):
    """The accepted part of a plan; evaluations of preempted jobs and the evaluation's own update commit with it.

    `staged` is the id of a plan of which `parts` parts were staged: they are applied first, all at this index.
    """

    event_type = EventType("PlanResult")

    plan: Plan
    evaluations: tuple[Evaluation, ...] = ()
    staged: str = ""
    parts: int = 0
    checked_at: int = 0
    """The index of the state against which the plan was checked; 0: it is applied unchecked.

    The plan is rejected as stale when its job's specification has changed since, or a node that it places on is no
    longer ready for allocations.
    """
    follows: tuple[str, ...] = ()
    """Allocations that earlier parts of the same plan have placed; the command is stale if one is missing.

    So a prefix of the parts is applied, and the evaluation ends, with the last part, only when all of them are.
    """


class IdleReport(Value):
    """The idleness of an allocation's devices, by its client's monotonic clock, and the measurement as text.

    Clients report when a time of the policy is reached, and, with 0, when the devices are used again.
    """

    idle_for: Duration = Duration(0)
    text: str = ""
    job_version: int | None = None
    """The job version whose policy it was measured under; None from older agents."""


class AllocUpdate(Value):
    """A client's report on one allocation."""

    id: str
    node_id: str
    client_status: ClientStatus
    client_description: str = ""
    task_states: Mapping[str, TaskState] = no_entries()
    deployment_status: AllocDeploymentStatus | None = None
    network_status: AllocNetworkStatus | None = None
    accounting: DeviceAccounting | None = None
    """The measured use of its devices since its start."""
    idle: IdleReport | None = None
    """The idleness of its devices; None without a policy on idle devices, or without data."""


class UpdateAllocsFromClient(Command, tag=True):
    """Clients' reports at time `now`; with a seed, the resulting evaluations commit with them."""

    event_type = EventType("AllocationUpdated")

    updates: tuple[AllocUpdate, ...]
    seed: EvalSeed | None = None
    evaluations: tuple[Evaluation, ...] = ()
    """The evaluations of an entry from before `apply` created them."""
    now: UnixNano = UnixNano(0)


class SetDesiredTransitions(Command, tag=True):
    """Set requested transitions of running allocations (drain, `alloc stop`, deployments), with evaluations."""

    event_type = EventType("AllocationUpdateDesiredStatus")

    transitions: Mapping[str, DesiredTransition]
    evaluations: tuple[Evaluation, ...] = ()
    now: UnixNano = UnixNano(0)


class AnnounceIdleEnd(Command, tag=True):
    """Announce the end of idle allocations, each named with the index of its last report; `ends_at` 0 withdraws it.

    Rejected when one of them has been used, kept or ended since, or is not all of a gang.
    """

    event_type = EventType("AllocationUpdated")

    reports: Mapping[str, int]
    ends_at: UnixNano = UnixNano(0)
    reason: str = ""
    waiting_eval: str = ""
    now: UnixNano = UnixNano(0)


class EndIdleAllocs(Command, tag=True):
    """End idle allocations whose end was announced, with the action of their policy.

    Rejected when one of them has been used, kept or ended since, its end is not due, its policy is another one by now,
    or the evaluation that waits for their devices (`waiting_eval`, where the policy needs one) waits no more, or others
    are ending for it already.
    """

    event_type = EventType("AllocationUpdateDesiredStatus")

    reports: Mapping[str, int]
    action: str
    reason: str
    waiting_eval: str = ""
    seed: EvalSeed | None = None
    tracked_versions: int = 6
    now: UnixNano = UnixNano(0)


class KeepAlloc(Command, tag=True):
    """Put off the end of an idle allocation; rejected beyond the policy's number of times while other jobs wait."""

    event_type = EventType("AllocationUpdated")

    alloc_id: str
    duration: Duration
    now: UnixNano = UnixNano(0)


AllocCommand = (
    StagePlan
    | DropStagedPlans
    | ApplyPlan
    | UpdateAllocsFromClient
    | SetDesiredTransitions
    | AnnounceIdleEnd
    | EndIdleAllocs
    | KeepAlloc
)
