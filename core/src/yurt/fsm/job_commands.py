"""Dispatches job commands to the module of their concept."""

from __future__ import annotations

from typing import assert_never

from yurt.fsm.children import dispatch_job, launch_periodic_job
from yurt.fsm.edit import Edit
from yurt.fsm.jobs import (
    delete_dead_jobs,
    deregister_job,
    evaluate_job,
    register_job,
    set_stability,
    set_version_tag,
)
from yurt.fsm.scaling import record_scaling, scale_job
from yurt.structs.commands import (
    DeleteJobs,
    DeregisterJob,
    DispatchJob,
    EvaluateJob,
    FormGang,
    JobCommand,
    LaunchPeriodicJob,
    RecordScalingEvent,
    RegisterJob,
    Rejected,
    ScaleJob,
    SetJobStability,
    SetJobVersionTag,
)


def apply_job(edit: Edit, command: JobCommand) -> Rejected | None:
    """Apply a job command."""
    match command:
        case RegisterJob():
            return register_job(edit, command)
        case DeregisterJob():
            return deregister_job(edit, command)
        case ScaleJob():
            return scale_job(edit, command)
        case DispatchJob():
            return dispatch_job(edit, command)
        case LaunchPeriodicJob():
            return launch_periodic_job(edit, command)
        case EvaluateJob():
            return evaluate_job(edit, command)
        case SetJobStability():
            return set_stability(edit, command)
        case SetJobVersionTag():
            return set_version_tag(edit, command)
        case RecordScalingEvent():
            return record_scaling(edit, command)
        case FormGang():
            from yurt.fsm.bookkeeping.gangs import form_gang

            return form_gang(edit, command)
        case DeleteJobs():
            delete_dead_jobs(edit, command)
            return None
        case _:
            assert_never(command)
