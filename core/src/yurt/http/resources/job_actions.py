"""Changes of a job: stop, evaluate, plan, dispatch, revert, mark stable, scale, launch."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.api.stubs import alloc_stub
from yurt.api.times import rfc3339
from yurt.http.call import Call, json_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.forwarding.targets import job_key
from yurt.http.query import flag
from yurt.http.resources.jobs import read_job, registered_wire, warnings_text
from yurt.rules.bounds import is_costly
from yurt.sdk.value import Value, no_entries
from yurt.server.requests import DispatchRequest
from yurt.server.views import View
from yurt.server.views.scheduling import AllocationRows
from yurt.structs.job import ScalingEvent

EVAL_PRIORITY_MAX = 100
DISPATCH_PAYLOAD_MAX = 16 * 1024


class EvalOptionsBody(Value):
    """Inside JobEvaluateBody."""

    force_reschedule: bool = False


class JobEvaluateBody(Value):
    """PUT /v1/job/:id/evaluate."""

    job_id: str = ""
    eval_options: EvalOptionsBody = EvalOptionsBody()


class JobPlanBody(Value):
    """PUT /v1/job/:id/plan."""

    job: Any = None
    diff: bool = False
    policy_override: bool = False


class JobDispatchBody(Value):
    """PUT /v1/job/:id/dispatch."""

    job_id: str = ""
    payload: bytes = b""
    meta: dict[str, str] = no_entries()
    id_prefix_template: str = ""
    priority: int = 0


class JobRevertBody(Value):
    """PUT /v1/job/:id/revert."""

    job_id: str = ""
    job_version: int = 0
    enforce_prior_version: int | None = None


class JobStabilityBody(Value):
    """PUT /v1/job/:id/stable."""

    job_id: str = ""
    job_version: int = 0
    stable: bool = False


class JobScaleBody(Value):
    """PUT /v1/job/:id/scale."""

    target: dict[str, str] = no_entries()
    count: int | None = None
    message: str = ""
    error: bool = False
    meta: dict[str, Any] = no_entries()
    policy_override: bool = False
    job_modify_index: int = 0
    enforce_index: bool = False


def _check_job_id(job_id: str, call: Call, text: str, *, required: str = "") -> None:
    if not job_id and required:
        raise Refused(400, required)
    if job_id and job_id != call.part("job_id"):
        raise Refused(400, text)


async def deregister(call: Call) -> web.Response:
    """DELETE /v1/job/:id."""
    priority = call.query.get("eval_priority", "0")
    if not (priority.isascii() and priority.isdigit() and int(priority[:9]) <= EVAL_PRIORITY_MAX):
        raise Refused(400, f"eval_priority must be a number between 1 and {EVAL_PRIORITY_MAX}")
    purge = flag(call.query, "purge", code=500)
    flag(call.query, "global", code=500)
    no_shutdown_delay = flag(call.query, "no_shutdown_delay", code=500)
    done = await failed_call(
        call.operations.jobs.deregister(
            job_key(call),
            purge=purge, eval_priority=int(priority), no_shutdown_delay=no_shutdown_delay,
        )
    )  # fmt: skip
    return json_answer(call, registered_wire(call, done), index=done.index)


async def evaluate(call: Call) -> web.Response:
    """PUT /v1/job/:id/evaluate."""
    body = await call.body(JobEvaluateBody, optional=True)
    _check_job_id(body.job_id, call, "JobID not same as job name")
    done = await failed_call(
        call.operations.jobs.evaluate(job_key(call), force_reschedule=body.eval_options.force_reschedule)
    )
    return json_answer(call, registered_wire(call, done), index=done.index)


async def plan(call: Call) -> web.Response:
    """PUT /v1/job/:id/plan: what registering would do."""
    body = await call.body(JobPlanBody)
    if body.job is None:
        raise Refused(400, "Job must be specified")
    if isinstance(body.job, dict) and not any(key.lower() == "id" and value for key, value in body.job.items()):
        raise Refused(400, "Job must have a valid ID")
    job, warnings = await read_job(call, body.job)
    _check_job_id(job.id, call, "Job ID does not match")
    plans = call.operations.jobs.plan(job, diff=body.diff, overrides_policies=body.policy_override)
    planned = await failed_call(plans)
    view = call.view()
    answer = {
        "Annotations": _annotations(view, planned.annotations),
        "CreatedEvals": list(planned.created_evals) or None,
        "Diff": planned.diff,
        "FailedTGAllocs": dict(planned.failed_tg_allocs) or None,
        "Index": view.index,
        "JobModifyIndex": planned.job_modify_index,
        "NextPeriodicLaunch": rfc3339(planned.next_periodic_launch or 0),
        "Warnings": warnings_text((*warnings, *planned.warnings)),
    }
    written = partial(json_answer, call, answer, index=view.index)
    return await asyncio.to_thread(written) if is_costly(job) else written()


def _annotations(view: View, annotations: Any) -> Any:
    """The annotations, with stubs of the preempted allocations in the place of their ids."""
    if annotations is None:
        return None
    wire = to_wire(annotations)
    allocations = view.of(AllocationRows)
    allocs = (allocations.get(alloc_id) for alloc_id in annotations.preempted_allocs)
    wire["PreemptedAllocs"] = [alloc_stub(alloc) for alloc in allocs if alloc is not None] or None
    return wire


async def force_periodic(call: Call) -> web.Response:
    """PUT /v1/job/:id/periodic/force."""
    done = await failed_call(call.operations.jobs.force_periodic(job_key(call)))
    answer = {"EvalCreateIndex": done.eval_create_index, "EvalID": done.eval_id, "Index": done.index}
    if done.warnings:
        answer["Warnings"] = "; ".join(done.warnings)
    return json_answer(call, answer, index=done.index)


async def dispatch(call: Call) -> web.Response:
    """PUT /v1/job/:id/dispatch."""
    body = await call.body(JobDispatchBody)
    _check_job_id(body.job_id, call, "Job ID does not match")
    return await _dispatch(call, body)


async def dispatch_payload(call: Call) -> web.Response:
    """PUT /v1/job/:id/dispatch/payload: the body is the payload."""
    return await _dispatch(call, JobDispatchBody(payload=await call.request.read()))


async def _dispatch(call: Call, body: JobDispatchBody) -> web.Response:
    if len(body.payload) > DISPATCH_PAYLOAD_MAX:
        text = f"Payload exceeds maximum size; {len(body.payload)} > {DISPATCH_PAYLOAD_MAX}"
        raise Refused(500, text)
    done = await failed_call(
        call.operations.jobs.dispatch(
            job_key(call),
            DispatchRequest(
                payload=body.payload,
                meta=body.meta,
                id_prefix=body.id_prefix_template,
                idempotency_token=call.query.get("idempotency_token", ""),
                priority=body.priority,
            ),
        )
    )
    answer = {
        "DispatchedJobID": done.dispatched_job_id,
        "EvalCreateIndex": done.eval_create_index,
        "EvalID": done.eval_id,
        "Index": done.index,
        "JobCreateIndex": done.job_create_index,
    }
    return json_answer(call, answer, index=done.index)


async def revert(call: Call) -> web.Response:
    """PUT /v1/job/:id/revert."""
    body = await call.body(JobRevertBody)
    _check_job_id(body.job_id, call, "Job ID does not match", required="JobID must be specified")
    done = await failed_call(
        call.operations.jobs.revert(job_key(call), body.job_version, enforce_prior_version=body.enforce_prior_version)
    )
    return json_answer(call, registered_wire(call, done), index=done.index)


async def set_stability(call: Call) -> web.Response:
    """PUT /v1/job/:id/stable."""
    body = await call.body(JobStabilityBody)
    _check_job_id(body.job_id, call, "Job ID does not match", required="JobID must be specified")
    index = await failed_call(call.operations.jobs.set_stability(job_key(call), body.job_version, stable=body.stable))
    return json_answer(call, {"Index": index}, index=index)


async def scale(call: Call) -> web.Response:
    """PUT /v1/job/:id/scale."""
    body = await call.body(JobScaleBody)
    target, job_id = body.target, call.part("job_id")
    if target.get("Job", job_id) != job_id:
        raise Refused(400, "job ID in payload did not match URL")
    group = target.get("Group", "")
    if not group:
        raise Refused(400, "missing task group name for scaling action")
    if body.error and body.count is not None:
        raise Refused(400, "scaling action should not contain count if error is true")
    event = ScalingEvent(
        count=None if body.error else body.count, message=body.message, error=body.error, meta=body.meta
    )
    done = await call.operations.jobs.scale(
        job_key(call),
        event,
        group=group,
        enforce_index=body.job_modify_index if body.enforce_index or body.job_modify_index else None,
    )
    return json_answer(call, registered_wire(call, done), index=done.index)
