"""Jobs as a list: listing, registering, parsing, checking, and the overview with statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final

from aiohttp import web

from yurt.api.decode import are_jobs_prepared, decode_job, prepare_jobs
from yurt.api.encode import encode_builtins
from yurt.api.page import STEP, by_modify_index, by_name, in_order
from yurt.api.pieces import JsonList
from yurt.api.row_texts import row_form
from yurt.api.stubs import job_stub
from yurt.http.answers import (
    FormBeside,
    WholeAt,
    answer_slot,
    changed_view,
    kinds_index,
    list_page_newest_first,
    list_rows,
)
from yurt.http.call import Call, json_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.forwarding.regions import OtherRegion
from yurt.http.lists import list_answer
from yurt.http.query import flag
from yurt.http.resources.parsing import parse_text
from yurt.rules.problems import multi_error
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value
from yurt.server.requests import RetainedFields
from yurt.server.views import Listing, View
from yurt.server.views.jobs import JobRows, JobSummaryRows
from yurt.server.views.scheduling import AllocationRows, DeploymentRows
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job, JobSubmission
from yurt.structs.predicates import is_deployment_active
from yurt.structs.summary import JobSummary

PRIORITY_MAX = 100
ALLOCS_A_SLICE: Final = 200
"""Allocations of jobs that are written before others get the loop."""
_ADDED: Final = ("Allocs", "ChildStatuses")
"""Fields of a status that are added to a row when it is written, unless a filter refers to them."""


class JobRegisterBody(Value):
    """PUT /v1/jobs."""

    job: Any = None
    enforce_index: bool = False
    job_modify_index: int = 0
    preserve_counts: bool = False
    preserve_resources: bool = False
    policy_override: bool = False
    eval_priority: int = 0
    submission: JobSubmission | None = None


class JobsParseBody(Value):
    """PUT /v1/jobs/parse."""

    job_hcl: Any = None
    variables: str = ""
    canonicalize: bool = False
    hclv1: bool = False


class JobPlace(Value):
    """A job by namespace and id."""

    namespace: str = "default"
    id: str = ""


class JobStatusesBody(Value):
    """POST /v1/jobs/statuses."""

    jobs: tuple[JobPlace, ...] | None = None


class JobValidateBody(Value):
    """PUT /v1/validate/job."""

    job: Any = None


def check_job_document(document: Any, *, needs_id: bool = True) -> dict[str, Any]:
    """The job inside a body, before it is decoded, by the names of its fields in lower case.

    Raises Refused (400) when there is none or it has no id, unless it may lack one.
    """
    if document is None:
        raise Refused(400, "Job must be specified")
    if type(document) is not dict and not isinstance(document, Mapping):
        raise Refused(400, "Failed to decode body: Job: expected object")
    folded = {key.lower(): value for key, value in document.items()}
    if needs_id and not folded.get("id"):
        raise Refused(400, "Job ID hasn't been provided")
    return folded


async def read_job(call: Call, document: Any, *, needs_id: bool = True) -> tuple[Job, tuple[str, ...]]:
    """The job of a body, with the request's namespace and region where it names none, and warnings."""
    folded = check_job_document(document, needs_id=needs_id)
    fields = dict(document)
    if not folded.get("namespace") and call.query.get("namespace"):
        _set(fields, folded, "Namespace", call.options.namespace)
    if folded.get("region") in (None, "", "global"):
        _set(fields, folded, "Region", call.agent.region)
    if folded.get("priority") is None:
        _set(fields, folded, "Priority", call.settings.job_default_priority)
    if not are_jobs_prepared():
        await call.context.env.in_thread(prepare_jobs)
    try:
        is_large = call.has_large_body
        # The namespace has a pool for jobs that name none, which the operation looks up.
        decoded = partial(decode_job, fields, node_pool="")
        job, warnings = await asyncio.to_thread(decoded) if is_large else decoded()
    except Invalid as error:
        raise Refused(400, f"Failed to decode body: {error}") from None
    call.access.name_object("job", job.id)
    if job.region != call.agent.region:
        raise OtherRegion(job.region)
    if job.namespace == "*":
        raise Refused(400, 'Job namespace must not be "*"')
    if job.type == status.JOB_SYSTEM and any(group.scaling is not None for group in job.task_groups):
        raise Refused(400, "Task groups with job type system do not support scaling blocks")
    return job, warnings


def _set(fields: dict[str, Any], folded: Mapping[str, Any], name: str, value: str | int) -> None:
    """Set a field's value under the spelling that the object uses."""
    if (lower := name.lower()) in folded:
        for key in [key for key in fields if key.lower() == lower]:
            del fields[key]
    fields[name] = value


def warnings_text(warnings: Iterable[str]) -> str:
    """Warnings in Nomad's format; "" for none."""
    lines = list(dict.fromkeys(warnings))
    if not lines:
        return ""
    return f"{len(lines)} warning{'s' if len(lines) > 1 else ''}:\n\n" + "\n".join(f"* {line}" for line in lines)


def registered_wire(call: Call, done: Any, warnings: Iterable[str] = ()) -> dict[str, Any]:
    """The answer to a registration."""
    return {
        "EvalCreateIndex": done.eval_create_index,
        "EvalID": done.eval_id,
        "Index": done.index,
        "JobModifyIndex": done.job_modify_index,
        "KnownLeader": True,
        "LastContact": 0,
        "NextToken": "",
        "Warnings": warnings_text((*warnings, *done.warnings)),
    }


async def register(call: Call) -> web.Response:
    """PUT /v1/jobs."""
    return await register_job(call, job_id=None)


async def register_job(call: Call, *, job_id: str | None) -> web.Response:
    """Register the job of the body, whose id must be the one of the path if there is one."""
    body = await call.body(JobRegisterBody)
    job, warnings = await read_job(call, body.job)
    if job_id is not None and job.id != job_id:
        raise Refused(400, "Job ID does not match name")
    if body.eval_priority and not 1 <= body.eval_priority <= PRIORITY_MAX:
        raise Refused(
            400, f"Eval priority {body.eval_priority} is out of range: it must be between 1 and {PRIORITY_MAX}"
        )
    done = await failed_call(
        call.operations.jobs.register(
            job,
            submission=body.submission,
            enforce_index=body.job_modify_index if body.enforce_index else None,
            eval_priority=body.eval_priority,
            keep=RetainedFields(counts=body.preserve_counts, resources=body.preserve_resources),
            overrides_policies=body.policy_override,
        )
    )
    return json_answer(call, registered_wire(call, done, warnings), index=done.index)


async def list_jobs(call: Call) -> web.Response:
    """GET /v1/jobs."""
    options, meta = call.options, flag(call.query, "meta")

    prefix = options.prefix

    def listing(view: View) -> Listing[Job]:
        rows = view.of(JobRows).of_namespace(options.namespace)
        return rows.where((lambda job: job.id.startswith(prefix)) if prefix else None)

    return await list_rows(
        call, (JobRows, JobSummaryRows), listing, key=by_name,
        render=FormBeside(row_form(job_stub, meta), with_summaries), namespace=options.namespace,
    )  # fmt: skip


def with_summaries(view: View) -> Callable[[Job], tuple[Job, JobSummary | None]]:
    """Gives a job and its summary."""
    summaries = view.of(JobSummaryRows)
    return lambda job: (job, summaries.get(job.key))


async def parse(call: Call) -> web.Response:
    """PUT /v1/jobs/parse."""
    body = await call.body(JobsParseBody)
    if body.hclv1:
        raise Refused(400, "Job files of HCL version 1 are not read: write the file in HCL2, or leave Hclv1 out")
    if not isinstance(body.job_hcl, str) or not body.job_hcl.strip():
        raise Refused(400, "Job spec is empty")
    parsed = await parse_text(call, body.job_hcl, body.variables, canonicalize=body.canonicalize)
    return web.Response(body=encode_builtins(parsed, pretty=call.options.pretty), content_type="application/json")


async def validate(call: Call) -> web.Response:
    """PUT /v1/validate/job."""
    body = await call.body(JobValidateBody)
    if body.job is None:
        raise Refused(400, "Job must be specified")
    job, decoded = await read_job(call, body.job, needs_id=False)
    errors, warnings = await call.operations.jobs.validate(job)
    answer = {
        "DriverConfigValidated": True,
        "Error": multi_error(errors) if errors else "",
        "ValidationErrors": list(errors) or None,
        "Warnings": warnings_text((*decoded, *warnings)),
    }
    return json_answer(call, answer)


async def statuses(call: Call) -> web.Response:
    """GET and POST /v1/jobs/statuses: jobs with their allocations and latest deployment, newest change first."""
    selected = await _requested_jobs(call)
    options, children = call.options, flag(call.query, "include_children")
    kinds = (JobRows, AllocationRows, DeploymentRows)

    def is_selected(job: Job) -> bool:
        return job.id.startswith(options.prefix) and (children or not job.parent_id)

    view, index = await changed_view(call, [kind.watched() for kind in kinds], lambda view: kinds_index(view, kinds))
    jobs, slot = view.of(JobRows), None
    if selected is None:
        slot = answer_slot(call, view, kinds, options.namespace)
        if slot is not None and (cached := slot.find()) is not None:
            return list_answer(call, cached.pieces, cached.at_index, cached.next_token)
        listing = jobs.of_namespace(options.namespace).where(is_selected)
    else:
        listing = Listing([job for key in selected if (job := jobs.get(key)) is not None])
    is_whole = any(name in options.filter for name in _ADDED)
    return await list_page_newest_first(
        call, listing, index, key=by_modify_index,
        render=WholeAt(lambda job: _status_row(view, job, is_whole=is_whole), slot),
        write=None if is_whole else _StatusWriter(call, view).add,
    )  # fmt: skip


async def _requested_jobs(call: Call) -> tuple[tuple[str, str], ...] | None:
    if call.request.method == "GET":
        return None
    body = await call.body(JobStatusesBody)
    if not body.jobs:
        raise Refused(400, "no jobs in request")
    return tuple(dict.fromkeys((place.namespace, place.id) for place in body.jobs))


class _StatusWriter:
    """Writes rows with what a job may have a hundred thousand of: its allocations, and the statuses of its children."""

    def __init__(self, call: Call, view: View) -> None:
        self._jobs, self._allocations = view.of(JobRows), view.of(AllocationRows)
        self._turns = call.turns
        self._pretty = call.options.pretty
        self._allocs = 0
        """How many were written since the last turn."""

    async def add(self, rows: JsonList, added: list[dict[str, Any]]) -> None:
        """Add rows that lack these fields; a few at a time, others get the loop."""
        small: list[dict[str, Any]] = []
        for row in added:
            key = (row["Namespace"], row["ID"])
            if row["ChildStatuses"] is not None:
                row["ChildStatuses"] = await self._child_statuses(key)
            count = self._allocations.count_of_job(key)
            if count > STEP or self._allocs + count > ALLOCS_A_SLICE:
                rows.add(small)
                small, self._allocs = [], 0
                await self._turns.next()
            if count > STEP:
                rows.add_object(row | {"Allocs": await self._many_allocs(key)})
            else:
                self._allocs += count
                small.append(row | {"Allocs": [_alloc_row(alloc) for alloc in self._allocations.where("job", key)]})
        rows.add(small)

    async def _many_allocs(self, key: tuple[str, str]) -> JsonList:
        written = JsonList(pretty=self._pretty, depth=2)
        async for part in self._turns.slices(self._allocations.each_where("job", key), ALLOCS_A_SLICE):
            written.add([_alloc_row(alloc) for alloc in part])
        return written

    async def _child_statuses(self, key: tuple[str, str]) -> list[str]:
        child_statuses: list[str] = []
        children = in_order(self._jobs.each_where("parent", key), attrgetter("key"))
        async for part in self._turns.slices(children):
            child_statuses += [child.status for child in part if child is not None]
        return child_statuses


def _alloc_row(alloc: Allocation) -> dict[str, Any]:
    return {
        "ClientStatus": alloc.client_status,
        "DeploymentStatus": {
            "Canary": alloc.deployment_status is not None and alloc.deployment_status.canary,
            "Healthy": None if alloc.deployment_status is None else alloc.deployment_status.healthy,
        },
        "FollowupEvalID": alloc.followup_eval_id,
        "Group": alloc.task_group,
        "HasPausedTask": any(task.paused.endswith("pause") for task in alloc.task_states.values()),
        "ID": alloc.id,
        "JobVersion": alloc.job.version if alloc.job is not None else 0,
        "NodeID": alloc.node_id,
    }


def _status_row(view: View, job: Job, *, is_whole: bool) -> dict[str, Any]:
    """A job's row; unless it must be whole, its allocations and its children are filled in later."""
    children = view.of(JobRows).where("parent", job.key) if is_whole and job.is_template else ()
    deployment = view.of(DeploymentRows).newest_of(job.key)
    allocations = view.of(AllocationRows).where("job", job.key) if is_whole else ()
    return {
        "Allocs": [_alloc_row(alloc) for alloc in allocations] if is_whole else None,
        "ChildStatuses": [child.status for child in children] if job.is_template else None,
        "CreateIndex": job.create_index,
        "Datacenters": list(job.datacenters),
        "GroupCountSum": sum(group.count for group in job.task_groups),
        "ID": job.id,
        "IsPack": job.meta.get("pack.name", "") != "",
        "LatestDeployment": None if deployment is None else _deployment_row(deployment, job),
        "ModifyIndex": job.modify_index,
        "Name": job.name,
        "Namespace": job.namespace,
        "NodePool": job.node_pool,
        "ParentID": job.parent_id,
        "Priority": job.priority,
        "Status": job.status,
        "Stop": job.stop,
        "SubmitTime": job.submit_time,
        "Type": job.type,
        "Version": job.version,
    }


def _deployment_row(deployment: Deployment, job: Job) -> dict[str, Any]:
    canaries = {name: state for name, state in deployment.task_groups.items() if state.desired_canaries > 0}
    updates = [group.update for group in job.task_groups if group.name in canaries]
    return {
        "AllAutoPromote": bool(updates) and all(update is not None and update.auto_promote for update in updates),
        "ID": deployment.id,
        "IsActive": is_deployment_active(deployment),
        "JobVersion": deployment.job_version,
        "RequiresPromotion": any(not state.promoted for state in canaries.values()),
        "Status": deployment.status,
        "StatusDescription": deployment.status_description,
    }
