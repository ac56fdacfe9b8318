"""The outcome of an evaluation after an attempt, for all job types."""

from __future__ import annotations

from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.plan_draft import PlanDraft
from yurt.sdk.value import replace
from yurt.structs.evaluation import Evaluation, PlanAnnotations
from yurt.structs.plan import Plan
from yurt.structs.status import EVAL_COMPLETE


def completed(
    context: AttemptContext, draft: PlanDraft, plan: Plan, *, limit_reached: str, deployment_id: str
) -> Evaluation:
    """The evaluation as complete, with its unplaced groups, which wait in a blocked evaluation."""
    evaluation = context.evaluation
    return replace(
        evaluation,
        status=EVAL_COMPLETE,
        status_description=_shortfalls(draft),
        failed_tg_allocs=dict(sorted(draft.failed.items())),
        queued_allocations=dict(sorted(draft.queued.items())),
        quota_limit_reached=limit_reached,
        deployment_id=deployment_id,
        plan_annotations=_annotations(evaluation, plan),
        snapshot_index=context.snapshot.index,
        modify_time=context.now,
    )


def _shortfalls(draft: PlanDraft) -> str:
    """The gangs that wait for members, which no evaluation is blocked for: capacity would not help them."""
    return "; ".join(f'gang "{name}" waits: {each}' for name, each in sorted(draft.results.gang_shortfalls.items()))


def _annotations(evaluation: Evaluation, plan: Plan) -> PlanAnnotations | None:
    """The changes of the plan by group; ids of preempted allocations only for a dry run that requests them."""
    if plan.annotations is None or evaluation.annotate_plan:
        return plan.annotations
    return replace(plan.annotations, preempted_allocs=())
