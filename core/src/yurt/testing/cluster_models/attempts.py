"""Commands applied to a state, and scheduling attempts on it, without a server."""

from __future__ import annotations

from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.attempts import Attempt
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs.commands import AnyCommand, Applied, ApplyPlan
from yurt.structs.evaluation import Evaluation
from yurt.structs.predicates import eval_type
from yurt.structs.rules import RULES_VERSION
from yurt.testing import factories


def applied(state: Snapshot, *commands: AnyCommand, rules: int = RULES_VERSION) -> Snapshot:
    """The state after commands of these rules, all of which must be accepted."""
    for command in commands:
        step = apply(state, replace(command, rules_version=rules), index=state.index + 1)
        assert isinstance(step.result, Applied), step.result
        state = step.state
    return state


def attempted(state: Snapshot, job_id: str) -> Attempt:
    """An attempt at a new evaluation of a job in the default namespace."""
    kind = eval_type(state.jobs["default", job_id])
    evaluation = Evaluation(id=f"eval-{state.index}", job_id=job_id, type=kind, triggered_by="job-register")
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=state.index)


def evaluated(state: Snapshot, job_id: str) -> tuple[Snapshot, Attempt]:
    """The state with the plan of an attempt at a job, and the attempt."""
    made = attempted(state, job_id)
    return (state if made.plan.is_empty else applied(state, ApplyPlan(plan=made.plan))), made
