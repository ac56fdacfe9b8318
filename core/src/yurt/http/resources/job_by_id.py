"""One job: `/v1/job/:id` and what hangs below it. The id may hold slashes, so routes go by the end of the path."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, TypeVar

from aiohttp import web

from yurt.api.encode import pretty_json, to_wire
from yurt.api.row_texts import RowForm, row_form
from yurt.api.stubs import alloc_stub
from yurt.http.answers import FormAt, answer_slot, changed_view, list_page_newest_first, one_row
from yurt.http.call import Call, object_missing, read_answer, shows_only
from yurt.http.errors import Refused
from yurt.http.forwarding.targets import job_key
from yurt.http.lists import list_answer
from yurt.http.query import flag, number
from yurt.http.resources.jobs import register_job
from yurt.rules.bounds import is_costly
from yurt.server.views import Rows, Stored, View
from yurt.server.views.jobs import JobRows, JobSummaryRows, JobVersionRows, ScalingEventRows
from yurt.server.views.scheduling import AllocationRows, DeploymentRows, EvaluationRows
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.job import Job
from yurt.structs.predicates import is_terminal

_MODIFY_INDEX: Final = attrgetter("modify_index")
JobKey = tuple[str, str]
R = TypeVar("R", bound=Stored)


async def read(call: Call) -> web.Response:
    """GET /v1/job/:id."""
    return await one_row(call, JobRows, job_key(call), render=row_form(to_wire), missing="job not found")


async def update(call: Call) -> web.Response:
    """PUT /v1/job/:id."""
    return await register_job(call, job_id=call.part("job_id"))


async def summary(call: Call) -> web.Response:
    """GET /v1/job/:id/summary."""
    return await one_row(call, JobSummaryRows, job_key(call), render=row_form(to_wire), missing="job not found")


async def versions(call: Call) -> web.Response:
    """GET /v1/job/:id/versions: newest first, each with the difference to the previous one if requested."""
    key, wants_diffs = job_key(call), flag(call.query, "diffs")
    base_version, base_tag = number(call.query, "diff_version"), call.query.get("diff_tag", "")
    watched = [JobVersionRows.watched_where("job", key)]
    view, index = await changed_view(call, watched, lambda view: view.of(JobVersionRows).index_of_job(key))
    rows = view.of(JobVersionRows).newest_first(key)
    if not rows:
        return object_missing(call, "job versions not found", index)
    if base_tag:
        base_version = _tagged(rows, base_tag).version

    if not wants_diffs:
        shows_only(call, (JobVersionRows,))
        return _encoded(call, b'{"Diffs":null,"Versions":[%b]}', rows, index)

    def answer() -> web.Response:
        return read_answer(call, {"Diffs": _version_diffs(rows, base_version), "Versions": rows}, index)

    return await asyncio.to_thread(answer) if any(map(is_costly, rows)) else answer()


def _encoded(call: Call, frame: bytes, rows: Iterable[Any], index: int) -> web.Response:
    """The cached texts of rows in a frame."""
    texts, form = call.context.texts, row_form(to_wire)
    text = frame % b",".join(texts.text(form, row) for row in rows)
    return list_answer(call, [pretty_json(text) if call.options.pretty else text], index, "")


def _tagged(rows: list[Job], name: str) -> Job:
    job = next((job for job in rows if job.version_tag is not None and job.version_tag.name == name), None)
    if job is None:
        raise Refused(404, f'tag "{name[:64]}" not found')
    return job


def _version_diffs(rows: list[Job], base_version: int | None) -> list[Any]:
    from yurt.rules.diff import job_diff

    if base_version is not None:
        base = next((job for job in rows if job.version == base_version), None)
        if base is None:
            raise Refused(404, f"job version {base_version} not found")
        return [job_diff(base, job) for job in rows if job.version != base_version]
    return [job_diff(old, new) for new, old in itertools.pairwise(rows)]


async def allocations(call: Call) -> web.Response:
    """GET /v1/job/:id/allocations; `all` includes those of earlier jobs with the same id."""
    wants_all = flag(call.query, "all")

    def selection(job: Job | None) -> Callable[[Allocation], bool] | None:
        if wants_all or job is None:
            return None
        return lambda alloc: alloc.job is None or alloc.job.create_index == job.create_index

    return await _list_below(call, AllocationRows, row_form(alloc_stub), selection)


async def evaluations(call: Call) -> web.Response:
    """GET /v1/job/:id/evaluations."""
    return await _list_below(call, EvaluationRows, row_form(to_wire))


async def deployments(call: Call) -> web.Response:
    """GET /v1/job/:id/deployments."""
    wants_all = flag(call.query, "all")

    def selection(job: Job | None) -> Callable[[Deployment], bool] | None:
        if wants_all or job is None:
            return None
        return lambda deployment: deployment.job_create_index == job.create_index

    return await _list_below(call, DeploymentRows, row_form(to_wire), selection)


async def _list_below(
    call: Call,
    kind: type[Rows[str, R]],
    form: RowForm,
    selection: Callable[[Job | None], Callable[[R], bool] | None] = lambda _: None,
) -> web.Response:
    """The job's rows of a kind that pass `selection`, newest first.

    `selection` gets the job as it is when the answer is written: while a query waited, another may have got its id.
    """
    key = job_key(call)
    if call.options.index:
        view, index = await changed_view(call, [kind.watched_where("job", key)], lambda view: _newest(view, kind, key))
    else:
        view, index = call.view(), None
    shows_only(call, (kind, JobRows))
    slot = answer_slot(call, view, (kind, JobRows), key[0])
    if slot is not None and (cached := slot.find()) is not None:
        return list_answer(call, cached.pieces, cached.at_index, cached.next_token)
    if index is None:
        index = await _newest_in_slices(call, view, kind, key)
    rows = view.of(kind)
    listing = rows.each_where("job", key).where(selection(view.of(JobRows).get(key)))
    return await list_page_newest_first(call, listing, index or rows.index, render=FormAt(form, view, slot))


def _newest(view: View, kind: type[Rows[str, R]], key: JobKey) -> int:
    """The last change of any of the job's rows of a kind; 0 when there is none."""
    return max(map(_MODIFY_INDEX, view.of(kind).each_where("job", key)), default=0)


async def _newest_in_slices(call: Call, view: View, kind: type[Rows[str, R]], key: JobKey) -> int:
    """The same for a read that does not block."""
    newest = 0
    async for part in call.turns.slices(view.of(kind).each_where("job", key)):
        newest = max(newest, *map(_MODIFY_INDEX, part))
    return newest


async def deployment(call: Call) -> web.Response:
    """GET /v1/job/:id/deployment: the newest one, or null."""
    key = job_key(call)

    def index_of(view: View) -> int:
        rows = view.of(DeploymentRows)
        latest = rows.newest_of(key)
        return rows.index if latest is None else latest.modify_index

    view, index = await changed_view(call, [DeploymentRows.watched_where("job", key)], index_of)
    shows_only(call, (DeploymentRows,))
    latest = view.of(DeploymentRows).newest_of(key)
    if latest is None:
        return read_answer(call, None, index)
    return _encoded(call, b"%b", (latest,), index)


async def submission(call: Call) -> web.Response:
    """GET /v1/job/:id/submission: the text that a version was submitted as."""
    text = call.query.get("version", "")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Refused(400, "Unable to parse job submission version parameter")
    key = (*job_key(call), int(text))
    watched = [JobRows.watched_submission(key)]
    view, index = await changed_view(call, watched, lambda view: view.of(JobRows).submissions_index)
    row = view.of(JobRows).submission(key)
    if row is None:
        return object_missing(call, "job source not found", index)
    version = view.of(JobVersionRows).get(key)
    of_job = {"JobID": key[1], "Namespace": key[0], "Version": key[2]}
    stored_at = version.job_modify_index if version is not None else 0
    return read_answer(call, to_wire(row) | of_job | {"JobModifyIndex": stored_at}, index)


async def scale_status(call: Call) -> web.Response:
    """GET /v1/job/:id/scale."""
    key = job_key(call)

    def index_of(view: View) -> int:
        events = view.of(ScalingEventRows).get(key)
        scaled = events.modify_index if events is not None else 0
        newest = _newest(view, AllocationRows, key) if call.options.index else 0
        return max(view.of(JobRows).index_of(key), scaled, newest)

    watched = [JobRows.watched(key), AllocationRows.watched_where("job", key), ScalingEventRows.watched(key)]
    view, index = await changed_view(call, watched, index_of)
    job = view.of(JobRows).get(key)
    newest = 0 if call.options.index else await _newest_in_slices(call, view, AllocationRows, key)
    if job is None:
        return object_missing(call, "job not found", max(index, newest))
    return read_answer(call, await _scale_wire(call, view, job), max(index, newest))


async def _scale_wire(call: Call, view: View, job: Job) -> dict[str, Any]:
    groups: dict[str, dict[str, Any]] = {
        group.name: {"Desired": group.count, "Events": None, "Healthy": 0, "Placed": 0, "Running": 0, "Unhealthy": 0}
        for group in job.task_groups
    }
    recorded = view.of(ScalingEventRows).get(job.key)
    for name, events in (recorded.scaling_events if recorded is not None else {}).items():
        if name in groups:
            groups[name]["Events"] = [to_wire(event) for event in events]
    async for part in call.turns.slices(view.of(AllocationRows).each_where("job", job.key)):
        for alloc in part:
            if alloc.task_group in groups and not is_terminal(alloc):
                _count(groups[alloc.task_group], alloc)
    return {
        "JobCreateIndex": job.create_index,
        "JobID": job.id,
        "JobModifyIndex": job.job_modify_index,
        "JobStopped": job.stop,
        "Namespace": job.namespace,
        "TaskGroups": groups,
    }


def _count(counts: dict[str, Any], alloc: Allocation) -> None:
    healthy = alloc.deployment_status.healthy if alloc.deployment_status is not None else None
    counts["Placed"] += 1
    counts["Running"] += alloc.client_status == status.CLIENT_RUNNING
    counts["Healthy"] += healthy is True
    counts["Unhealthy"] += healthy is False


async def actions(call: Call) -> web.Response:
    """GET /v1/job/:id/actions."""

    def render(job: Job, _: View) -> list[dict[str, str]]:
        return [
            {"Name": action.name, "TaskGroupName": group.name, "TaskName": task.name}
            for group in job.task_groups
            for task in group.tasks
            for action in task.actions
        ]

    return await one_row(call, JobRows, job_key(call), render=render, missing="job not found")


async def logs(call: Call) -> web.StreamResponse:
    """GET /v1/yurt/job/:id/logs."""
    from yurt.http.resources import job_logs

    return await job_logs.logs(call)
