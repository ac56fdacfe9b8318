"""Entry points: one attempt at one evaluation, a series of attempts on one state, and a dry run of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, assert_never

from yurt.scheduler.capacity.in_flight import with_plans
from yurt.scheduler.capacity.limits import LimitsOf, no_limits
from yurt.scheduler.ids import SeededIds, number_of
from yurt.scheduler.job_types import full_nodes
from yurt.scheduler.job_types.context import AttemptContext
from yurt.scheduler.job_types.generic import GenericAttempt
from yurt.scheduler.placing.warm_start import WarmStart, is_new, only_adds
from yurt.sdk.value import UnixNano, replace
from yurt.state import Tables
from yurt.state.store import Snapshot
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import Outcome, Plan
from yurt.structs.predicates import eval_type, has_same_specification
from yurt.structs.status import (
    EVAL_BLOCKED,
    EVAL_COMPLETE,
    EVAL_FAILED,
    EVAL_PENDING,
    TRIGGER_JOB_REGISTER,
    TRIGGERS,
)


class Attempt(NamedTuple):
    """A plan, and the outcome of the evaluation if all of it is accepted."""

    plan: Plan
    outcome: Outcome


def attempt(
    snapshot: Snapshot,
    evaluation: Evaluation,
    *,
    now: UnixNano,
    seed: int,
    attempt: int = 0,
    limits: LimitsOf = no_limits,
) -> Attempt:
    """Attempt an evaluation on this snapshot."""
    ready = _ready(snapshot, evaluation, now=now, seed=seed, attempt=attempt, limits=limits)
    return ready if isinstance(ready, Attempt) else Attempt(*GenericAttempt(ready).run())


class Series:
    """First attempts at evaluations of different jobs on one state, each on top of the earlier plans.

    The answers are those of `attempt` with the same seed on that state, to the byte. New jobs go on from each other
    (`placing.warm_start`), those with limits excepted.
    """

    def __init__(self, state: Snapshot, *, seed: int, limits: LimitsOf = no_limits) -> None:
        self._state = state
        self._plans: list[Plan] = []
        """Plans that `_state` does not include yet."""
        self._warm_start: WarmStart | None = None
        """The state of the last attempt, if the next one can continue from it."""
        self._seed = seed
        self._limits = limits

    def attempt(self, evaluation: Evaluation, *, now: UnixNano) -> Attempt:
        """Attempt an evaluation on top of all earlier plans."""
        warm_start, self._warm_start = self._warm_start, None
        job = self._state.jobs.get((evaluation.namespace, evaluation.job_id))
        # Limits count the usage of all jobs, so they need each earlier plan in the state. Most jobs have no limits.
        can_go_on = job is not None and is_new(self._state, job) and not self._limits(self._state, job)
        if warm_start is None or not can_go_on:
            self._lay_over()
            warm_start = None
        ready = _ready(self._state, evaluation, now=now, seed=self._seed, limits=self._limits)
        if isinstance(ready, Attempt):
            made = ready
        else:
            generic = GenericAttempt(ready, warm_start)
            made = Attempt(*generic.run())
            if can_go_on and only_adds(*made):
                self._warm_start = generic.warm_start_after()
        self._plans.append(made.plan)
        return made

    def _lay_over(self) -> None:
        self._state, self._plans = with_plans(self._state, self._plans), []


def _ready(
    snapshot: Snapshot, evaluation: Evaluation, *, now: UnixNano, seed: int, attempt: int = 0, limits: LimitsOf
) -> AttemptContext | Attempt:
    """The attempt for a service or batch job, ready to run; for other job types the result at once."""
    if evaluation.triggered_by not in TRIGGERS:
        text = f"scheduler cannot handle '{evaluation.triggered_by}' evaluation reason"
        return _nothing(evaluation, EVAL_FAILED, text, now=now)
    own_seed = number_of(seed, "attempt", str(attempt)) if attempt else seed
    ids = SeededIds(seed, evaluation.id, str(attempt))
    job = snapshot.jobs.get((evaluation.namespace, evaluation.job_id))
    if job is not None and job.is_template and not job.stop:
        return _nothing(evaluation, EVAL_COMPLETE, "", now=now)
    job_type = eval_type(job) if job is not None else evaluation.type
    typed = replace(evaluation, type=job_type)
    context = AttemptContext.of(snapshot, typed, now=now, ids=ids, seed=own_seed, limits=limits)
    if evaluation.status == EVAL_BLOCKED and evaluation.quota_limit_reached:
        waiting = _blocked_by_limit(context)
        if waiting is not None:
            return Attempt(_no_plan(evaluation, now), Outcome(evaluation=waiting, reblock=waiting))
    match job_type:
        case "system" | "sysbatch":
            from yurt.scheduler.job_types.system import SystemAttempt  # Many clusters have no system jobs.

            return Attempt(*SystemAttempt(context).run())
        case "service" | "batch" | "_core":
            return context
        case _:
            assert_never(job_type)


def still_blocked(
    snapshot: Snapshot,
    evaluation: Evaluation,
    *,
    freed: Sequence[str] | None,
    now: UnixNano,
    limits: LimitsOf = no_limits,
) -> Evaluation | None:
    """The blocked evaluation as an attempt would leave it, if it is certain that the attempt would place nothing; None:
    only an attempt shows it.

    `freed` are the nodes on which something was freed since the last attempt; None: unknown. The numbers of nodes in
    its metrics stay those of the last attempt.
    """
    job = snapshot.jobs.get((evaluation.namespace, evaluation.job_id))
    if evaluation.status != EVAL_BLOCKED or job is None or job.is_template:
        return None
    typed, ids = replace(evaluation, type=eval_type(job)), SeededIds(0, evaluation.id)
    context = AttemptContext.of(snapshot, typed, now=now, ids=ids, seed=0, limits=limits)
    if evaluation.quota_limit_reached:
        return _blocked_by_limit(context)
    return None if freed is None else full_nodes.still_blocked(context, freed)


def _blocked_by_limit(context: AttemptContext) -> Evaluation | None:
    from yurt.scheduler.job_types import full_limits  # Many clusters have no quotas.

    return full_limits.still_blocked(context)


def dry_run(snapshot: Snapshot, job: Job, *, now: UnixNano, seed: int, limits: LimitsOf = no_limits) -> Attempt:
    """The effect of registering the job: an attempt at the job's next version on the snapshot."""
    laid, evaluation = lay_over(snapshot, job, now=now, seed=seed)
    return attempt(laid, evaluation, now=now, seed=seed, limits=limits)


def lay_over(snapshot: Snapshot, job: Job, *, now: UnixNano, seed: int) -> tuple[Snapshot, Evaluation]:
    """The state after a registration of the job, and the evaluation that it would create."""
    current = snapshot.jobs.get(job.key)
    if current is not None and has_same_specification(current, job):
        return snapshot, _registration(job, current.modify_index, seed, now)
    index = snapshot.index + 1
    laid = replace(
        job,
        version=current.version + 1 if current is not None else 0,
        create_index=current.create_index if current is not None else index,
        modify_index=index,
        job_modify_index=index,
    )
    edit = snapshot.edit(index)
    edit.put(Tables.jobs, laid.key, laid)
    edit.put(Tables.job_versions, (*laid.key, laid.version), laid)
    return edit.commit(), _registration(job, index, seed, now)


def _registration(job: Job, index: int, seed: int, now: UnixNano) -> Evaluation:
    return Evaluation(
        id=SeededIds(seed, "dry run").next("eval"),
        namespace=job.namespace,
        priority=job.priority,
        type=eval_type(job),
        triggered_by=TRIGGER_JOB_REGISTER,
        job_id=job.id,
        job_modify_index=index,
        status=EVAL_PENDING,
        annotate_plan=True,
        create_time=now,
        modify_time=now,
    )


def _nothing(evaluation: Evaluation, status: str, description: str, *, now: UnixNano) -> Attempt:
    """An empty attempt, for an unknown trigger or a job that only launches children."""
    ended = replace(evaluation, status=status, status_description=description, modify_time=now)
    return Attempt(_no_plan(evaluation, now), Outcome(evaluation=ended))


def _no_plan(evaluation: Evaluation, now: UnixNano) -> Plan:
    return Plan(eval_id=evaluation.id, namespace=evaluation.namespace, job_id=evaluation.job_id, now=now)
