"""Explanations, Yurt's own routes: why an allocation is where it is, why a job is not placed, and an
evaluation made again.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from yurt.access import needs
from yurt.access.needs import Capability
from yurt.http import routes
from yurt.http.call import Call, json_answer, object_missing, read_answer
from yurt.http.errors import Refused
from yurt.http.lists import check_uuid
from yurt.http.resources.jobs import read_job
from yurt.http.routes import BODY, ROW
from yurt.rules.problems import multi_error
from yurt.sdk.value import Value, replace
from yurt.server.views.jobs import JobRows
from yurt.server.views.scheduling import AllocationRows, EvaluationRows
from yurt.structs.job import Job


class WhyNotBody(Value):
    """POST /v1/yurt/job/why-not: a job as a registration carries it, or the id of a known one."""

    job: Any = None
    job_id: str = ""
    namespace: str = ""


async def why(call: Call) -> web.Response:
    """GET /v1/yurt/allocation/:id/why."""
    alloc_id, explanations = check_uuid(call.part("id"), "alloc"), call.explanations
    allocations = call.view().of(AllocationRows)
    alloc = allocations.get(alloc_id)
    if alloc is None:
        return object_missing(call, "alloc not found", allocations.index)
    async with call.context.parsers:
        found = await explanations.why(alloc, seed=_seed(call))
    return read_answer(call, found, explanations.index)


async def why_not(call: Call) -> web.Response:
    """POST /v1/yurt/job/why-not: nothing is changed."""
    body = await call.body(WhyNotBody)
    job, warnings = await _job(call, body)
    explanations = call.explanations
    async with call.context.parsers:
        found = await explanations.why_not(job, now=call.context.env.now(), seed=_seed(call))
    return json_answer(call, replace(found, warnings=warnings), index=explanations.index)


async def replay(call: Call) -> web.Response:
    """GET /v1/yurt/evaluation/:id/replay."""
    eval_id, explanations = check_uuid(call.part("id"), "eval"), call.explanations
    evaluations = call.view().of(EvaluationRows)
    evaluation = evaluations.get(eval_id)
    if evaluation is None:
        return object_missing(call, "eval not found", evaluations.index)
    async with call.context.parsers:
        found = await explanations.replay(evaluation)
    return read_answer(call, found, explanations.index)


async def _job(call: Call, body: WhyNotBody) -> tuple[Job, tuple[str, ...]]:
    """The job of the body, whose namespace counts; one that is not registered must be admissible."""
    warnings: tuple[str, ...] = ()
    if body.job is None:
        if not body.job_id:
            raise Refused(400, "Job or JobID must be specified")
        namespace = body.namespace or call.options.namespace
        job = call.view().of(JobRows).get((namespace, body.job_id))
        if job is None:
            raise Refused(404, f'job "{body.job_id}" in namespace "{namespace}" not found')
    else:
        job, told = await read_job(call, body.job)
        admission = await call.explanations.admission(job)
        if admission.errors:
            raise Refused(400, multi_error(admission.errors))
        warnings = (*told, *admission.warnings)
    if job.is_template:
        kind = "periodic" if job.periodic is not None else "parameterized"
        warnings = (*warnings, f'job "{job.id}" is {kind}: this is what one of its children would find now')
    return job, warnings


def _seed(call: Call) -> int:
    return int(call.context.env.uuid().replace("-", ""), 16)


READ_JOB = needs.namespace(Capability.READ_JOB)

ROUTES = (
    routes.get("/v1/yurt/allocation/{id}/why", why, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.get("/v1/yurt/evaluation/{id}/replay", replay, needs=READ_JOB, scope=ROW, from_nodes=True),
    routes.write("/v1/yurt/job/why-not", why_not, needs=READ_JOB, scope=BODY, from_nodes=True),
)
