"""Evaluations: stored as proposed, stamped with the index.

A complete evaluation that placed everything cancels the job's blocked evaluations: they have nothing left to place.
Any complete evaluation cancels the job's evaluations for the time limits of disconnections that are over.
A terminal evaluation stays as it is; a late write of an older state is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from yurt.fsm.edit import Edit
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.sdk.errors import Reason
from yurt.sdk.value import replace
from yurt.state import Snapshot, Tables
from yurt.state.tables import JobKey
from yurt.structs import status
from yurt.structs.cluster import SchedulerConfiguration
from yurt.structs.commands import DeleteEvaluations, EvaluationCommand, Rejected, UpsertEvaluations
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.predicates import eval_type, is_eval_terminal, is_terminal
from yurt.structs.rules import PAST_DISCONNECT_RULES

BROKER_ENABLED: Final = "eval broker is enabled; eval broker must be paused to delete evals"
"""The wording is Nomad's."""
NO_LONGER_DISCONNECTED: Final = "no allocation is disconnected any more"
STATUSES = frozenset({status.EVAL_BLOCKED, status.EVAL_PENDING, *status.EVAL_TERMINAL})


def apply_evaluation(edit: Edit, command: EvaluationCommand) -> Rejected | None:
    """Apply an evaluation command."""
    match command:
        case UpsertEvaluations():
            return put_evaluations(edit, command.evaluations)
        case DeleteEvaluations():
            return delete_evaluations(edit, command)
        case _:
            assert_never(command)


def put_evaluations(edit: Edit, evaluations: Iterable[Evaluation | None]) -> Rejected | None:
    """Store the evaluations of a command; None stands for none."""
    for evaluation in evaluations:
        if evaluation is None:
            continue
        if not evaluation.id:
            return invalid("an evaluation without an ID")
        if evaluation.status not in STATUSES:
            return invalid(f'evaluation "{evaluation.id}" has the unknown status "{evaluation.status}"')
        _put_evaluation(edit, evaluation)
    return None


def evaluation_for(job: Job, requested: Evaluation | None) -> Evaluation | None:
    """The evaluation requested by a command, with its job's type and, if it has none, the job's priority."""
    if requested is None:
        return None
    return replace(requested, type=eval_type(job), priority=requested.priority or job.priority)


def put_job_evaluation(edit: Edit, key: JobKey, requested: Evaluation | None) -> Rejected | None:
    """Store the requested evaluation of a job in its present version; templates have none."""
    job = edit.job(key)
    if job is None or job.is_template:
        return None
    return put_evaluations(edit, (evaluation_for(job, requested),))


def _put_evaluation(edit: Edit, evaluation: Evaluation) -> None:
    existing = edit.evaluation(evaluation.id)
    if existing is not None and is_eval_terminal(existing) and not is_eval_terminal(evaluation):
        return
    stamped = replace(
        evaluation,
        job_modify_index=evaluation.job_modify_index or _job_index(edit, evaluation),
        create_index=edit.index if existing is None else existing.create_index,
        create_time=evaluation.create_time if existing is None else existing.create_time,
        modify_index=edit.index,
    )
    assert stamped.create_index <= stamped.modify_index, (stamped.id, stamped.create_index, edit.index)
    edit.put_evaluation(stamped)
    if stamped.status == status.EVAL_COMPLETE:
        _cancel_needless(edit, stamped)


def _job_index(edit: Edit, evaluation: Evaluation) -> int:
    """The index of the specification to evaluate, which the same command may register."""
    job = edit.job((evaluation.namespace, evaluation.job_id))
    return 0 if job is None else job.job_modify_index


def _cancel_needless(edit: Edit, done: Evaluation) -> None:
    live = map(edit.evaluation, edit.tx.keys_where(Tables.evals, "live", (done.namespace, done.job_id)))
    others = [other for other in live if other is not None and other.create_index != edit.index]
    if not done.failed_tg_allocs:
        blocked = (other for other in others if other.status == status.EVAL_BLOCKED)
        _cancel(edit, done, blocked, why=f'evaluation "{done.id}" successful')
    limits = [other for other in others if _is_disconnect_limit(other)]
    if limits and edit.rules_version >= PAST_DISCONNECT_RULES:
        awaited = _awaited_limits(edit, done)
        _cancel(edit, done, (other for other in limits if other.id not in awaited), why=NO_LONGER_DISCONNECTED)


def _cancel(edit: Edit, done: Evaluation, others: Iterable[Evaluation], *, why: str) -> None:
    """Cancel other evaluations of the job, which have nothing left to do after a complete one."""
    for other in others:
        assert other.id != done.id, (done.id, "a complete evaluation is not among the live ones")
        canceled = replace(
            other,
            status=status.EVAL_CANCELED,
            status_description=why,
            modify_index=edit.index,
            modify_time=done.modify_time,
        )
        edit.put_evaluation(canceled)


def _is_disconnect_limit(evaluation: Evaluation) -> bool:
    return evaluation.status != status.EVAL_BLOCKED and evaluation.triggered_by == status.TRIGGER_MAX_DISCONNECT


def _awaited_limits(edit: Edit, done: Evaluation) -> frozenset[str]:
    """The follow-up evaluations of the job's unknown allocations."""
    # The allocations of a plan in parts refer to theirs from the end of the plan's own evaluation on, and a job has one
    # evaluation at a time. All are found in one pass: a job may have many allocations and many time limits.
    alloc_ids = edit.tx.keys_where(Tables.allocs, "job", (done.namespace, done.job_id))
    return frozenset(
        alloc.followup_eval_id
        for alloc in edit.tx.rows(Tables.allocs, alloc_ids)
        if alloc.client_status == status.CLIENT_UNKNOWN
    )


def why_evaluation_stays(state: Snapshot, evaluation: Evaluation) -> str:
    """The reason why an evaluation must not be deleted, or ''."""
    if not is_eval_terminal(evaluation):
        return f"its status is {evaluation.status}; stop its job, or wait until it has ended"
    if not state.allocs.count_where("live", (evaluation.namespace, evaluation.job_id)):
        return ""
    live = next((alloc for alloc in state.allocs.each_where("eval", evaluation.id) if not is_terminal(alloc)), None)
    return f"its allocation {live.id[:8]} has not ended" if live is not None else ""


def why_broker_forbids_deletion(configuration: SchedulerConfiguration | None) -> str:
    """The reason why a scheduler configuration forbids the deletion of evaluations by users, or ''."""
    return "" if configuration is not None and configuration.pause_eval_broker else BROKER_ENABLED


def delete_evaluations(edit: Edit, command: DeleteEvaluations) -> Rejected | None:
    """Delete ended evaluations and allocations."""
    configuration: SchedulerConfiguration | None = edit.tx.get(Tables.scheduler_configurations, "")
    if command.requires_pause and (why := why_broker_forbids_deletion(configuration)):
        return conflict(why, Reason.EVAL_BROKER_ENABLED)
    for eval_id in command.eval_ids:
        evaluation = edit.evaluation(eval_id)
        reason = why_evaluation_stays(edit.tx.base, evaluation) if evaluation is not None else ""
        if command.is_strict and evaluation is None:
            return not_found(f"eval not found: {eval_id}")
        if command.is_strict and reason:
            return invalid(f"eval {eval_id} is not safe to delete: {reason}")
        if evaluation is not None and not reason:
            edit.delete_evaluation(evaluation)
    for alloc_id in command.alloc_ids:
        alloc = edit.alloc(alloc_id)
        if alloc is not None and is_terminal(alloc):
            edit.delete_alloc(alloc)
    return None
