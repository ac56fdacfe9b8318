"""Evaluations: requests to the scheduler to look at a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from yurt.sdk.value import INTERNAL, Duration, Timestamp, UnixNano, Value, no_entries, spelled
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.status import EvalStatus, EvalType, NotGiven, Trigger


class DesiredUpdates(Value):
    """The changes of a plan to one group, as counts."""

    ignore: int = 0
    place: int = 0
    migrate: int = 0
    stop: int = 0
    in_place_update: int = 0
    destructive_update: int = 0
    canary: int = 0
    preemptions: int = 0
    disconnect: int = 0
    reconnect: int = 0
    reschedule_now: int = 0
    reschedule_later: int = 0


class EvaluationStub(Value):
    """An evaluation in a list of related ones."""

    id: str = ""
    priority: int = 50
    type: EvalType = "service"
    triggered_by: Trigger | NotGiven = ""
    namespace: str = "default"
    job_id: str = ""
    node_id: str = ""
    deployment_id: str = ""
    status: EvalStatus = "pending"
    status_description: str = ""
    wait_until: Timestamp = 0
    next_eval: str = ""
    previous_eval: str = ""
    blocked_eval: str = ""
    create_index: int = 0
    modify_index: int = 0
    create_time: UnixNano = UnixNano(0)
    modify_time: UnixNano = UnixNano(0)


class PlanAnnotations(Value, rename=spelled(desired_tg_updates="DesiredTGUpdates")):
    """The changes that a plan would make, by group, and the ids of the allocations it would preempt."""

    desired_tg_updates: Mapping[str, DesiredUpdates] = no_entries()
    preempted_allocs: tuple[str, ...] = ()


class AttemptRecord(Value):
    """The inputs of a scheduling attempt, recorded so that it can be replayed.

    The state at `state_index`, with the plans of the commands up to `ahead` laid over it, and then, when `after` names
    an evaluation, that one's first attempt. `seed` is hexadecimal.
    """

    seed: str
    state_index: int
    now: UnixNano
    number: int = 0
    ahead: int = 0
    after: str = ""


class Evaluation(Value):
    """A request to the scheduler to look at a job (or at a node for it), and the outcome."""

    id: str = ""
    priority: int = 50
    type: EvalType = "service"
    triggered_by: Trigger | NotGiven = ""
    namespace: str = "default"
    job_id: str = ""
    job_modify_index: int = 0
    node_id: str = ""
    node_modify_index: int = 0
    deployment_id: str = ""
    status: EvalStatus = "pending"
    status_description: str = ""
    wait: Duration = Duration(0)
    wait_until: Timestamp = 0
    next_eval: str = ""
    previous_eval: str = ""
    blocked_eval: str = ""
    related_evals: tuple[EvaluationStub, ...] = ()
    failed_tg_allocs: Mapping[str, AllocationMetric] = no_entries()
    plan_annotations: PlanAnnotations | None = None
    class_eligibility: Mapping[str, bool] = no_entries()
    escaped_computed_class: bool = False
    quota_limit_reached: str = ""
    missing_non_node_resources: tuple[str, ...] = ()
    annotate_plan: bool = False
    queued_allocations: Mapping[str, int] = no_entries()
    attempts: Annotated[tuple[AttemptRecord, ...], INTERNAL] = ()
    snapshot_index: int = 0
    create_index: int = 0
    modify_index: int = 0
    create_time: UnixNano = UnixNano(0)
    modify_time: UnixNano = UnixNano(0)
