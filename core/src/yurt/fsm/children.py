"""Children of periodic and parameterized jobs: dispatches and launches.

Both are decided here, at the command's position in the log. So an idempotency token makes one child and a time of a
schedule one launch, for any number of requests and changes of the leader. A stopped or purged parent makes none.
"""

from __future__ import annotations

from typing import Final

from yurt.fsm.edit import Edit
from yurt.fsm.evals import put_job_evaluation
from yurt.fsm.jobs import registration_denied, store_job
from yurt.fsm.periodic import record_launch
from yurt.fsm.reject import conflict, invalid, not_found
from yurt.rules.child_jobs import dispatch_problem, dispatched_child, periodic_child
from yurt.sdk.value import replace
from yurt.state import Tables
from yurt.structs import status
from yurt.structs.commands import DispatchJob, LaunchPeriodicJob, Rejected
from yurt.structs.job import Job
from yurt.structs.rules import FORCED_LAUNCH_RULES

JOB_NOT_FOUND: Final = "job not found"


def dispatch_job(edit: Edit, command: DispatchJob) -> Rejected | None:
    """Register a child of a parameterized job, unless its idempotency token was used."""
    parent = edit.job((command.namespace, command.job_id))
    problem = dispatch_problem(parent, command.job_id, command.payload, command.meta)
    if problem:
        return not_found(problem) if parent is None else invalid(problem)
    assert parent is not None
    token = command.idempotency_token
    if token and edit.tx.count_where(Tables.jobs, "token", (*parent.key, token)):
        return None
    child = dispatched_child(parent, command.child_id, payload=command.payload, meta=command.meta, token=token)
    child = replace(child, priority=command.priority or parent.priority, submit_time=command.now)
    return registration_denied(edit, is_management=command.is_management) or _register_child(edit, child, command)


def launch_periodic_job(edit: Edit, command: LaunchPeriodicJob) -> Rejected | None:
    """Register the child of a periodic job for an instant, unless it exists.

    `prohibit_overlap` holds back a scheduled launch while a child is live; a forced one it does not.
    """
    parent = edit.job((command.namespace, command.job_id))
    if parent is None:
        return not_found(JOB_NOT_FOUND)
    if parent.periodic is None:
        return invalid("can't force launch non-periodic job")
    is_forced = command.specification_index == 0
    if not is_forced and (parent.stop or parent.job_modify_index != command.specification_index):
        return conflict(f'job "{parent.id}" changed before its launch')
    rejected = registration_denied(edit, is_management=command.is_management) if is_forced else None
    if rejected is not None:
        return rejected
    heeds_overlap = not is_forced or edit.rules_version < FORCED_LAUNCH_RULES
    if heeds_overlap and parent.periodic.prohibit_overlap and _has_live_child(edit, parent):
        return None
    child = replace(periodic_child(parent, command.launched_at), submit_time=command.now)
    if edit.job(child.key) is None and (rejected := _register_child(edit, child, command)) is not None:
        return rejected
    record_launch(edit, parent, command.launched_at)
    return None


def _register_child(edit: Edit, child: Job, command: DispatchJob | LaunchPeriodicJob) -> Rejected | None:
    if edit.job(child.key) is not None:
        return conflict(f'job "{child.id}" exists already')
    return store_job(edit, child) or put_job_evaluation(edit, child.key, command.evaluation)


def _has_live_child(edit: Edit, parent: Job) -> bool:
    """Whether a launch of the periodic job is still live."""
    return any(child.status != status.JOB_DEAD for child in edit.tx.base.jobs.each_where("parent", parent.key))
