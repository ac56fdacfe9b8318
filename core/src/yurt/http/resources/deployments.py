"""Deployments: lists, one of them, its allocations, and control of its progress."""

from __future__ import annotations

from collections.abc import Awaitable

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.api.row_texts import row_form
from yurt.api.stubs import alloc_stub
from yurt.http.answers import list_rows, one_row
from yurt.http.call import Call, json_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.lists import check_prefix, check_uuid
from yurt.sdk.value import Value
from yurt.server.results import DeploymentChanged
from yurt.server.views import Listing, View
from yurt.server.views.scheduling import AllocationRows, DeploymentRows
from yurt.structs.deployment import Deployment


class DeploymentPauseBody(Value):
    """PUT /v1/deployment/pause/:id."""

    deployment_id: str = ""
    pause: bool = False


class DeploymentPromoteBody(Value):
    """PUT /v1/deployment/promote/:id."""

    deployment_id: str = ""
    all: bool = False
    groups: tuple[str, ...] = ()


class DeploymentHealthBody(Value):
    """PUT /v1/deployment/allocation-health/:id."""

    deployment_id: str = ""
    healthy_allocation_ids: tuple[str, ...] = ()
    unhealthy_allocation_ids: tuple[str, ...] = ()


async def list_deployments(call: Call) -> web.Response:
    """GET /v1/deployments."""
    options = call.options
    prefix = check_prefix(options.prefix, "deployment")

    def listing(view: View) -> Listing[Deployment]:
        rows = view.of(DeploymentRows).of_namespace(options.namespace)
        return rows.where((lambda row: row.id.startswith(prefix)) if prefix else None)

    return await list_rows(call, (DeploymentRows,), listing, render=row_form(to_wire), namespace=options.namespace)


async def read(call: Call) -> web.Response:
    """GET /v1/deployment/:id."""
    key = check_uuid(call.part("id"), "deployment")
    return await one_row(call, DeploymentRows, key, render=row_form(to_wire), missing="deployment not found")


async def allocations(call: Call) -> web.Response:
    """GET /v1/deployment/allocations/:id."""
    key = check_uuid(call.part("id"), "deployment")
    return await list_rows(
        call, (AllocationRows,), lambda view: view.of(AllocationRows).each_where("deployment", key),
        render=row_form(alloc_stub),
    )  # fmt: skip


async def fail(call: Call) -> web.Response:
    """PUT /v1/deployment/fail/:id."""
    return await _changed(call, call.operations.deployments.fail(_path_id(call)))


async def pause(call: Call) -> web.Response:
    """PUT /v1/deployment/pause/:id."""
    body = await call.body(DeploymentPauseBody)
    deployment_id = _same_id(call, body.deployment_id)
    return await _changed(call, call.operations.deployments.pause(deployment_id, pause=body.pause))


async def promote(call: Call) -> web.Response:
    """PUT /v1/deployment/promote/:id."""
    body = await call.body(DeploymentPromoteBody)
    deployment_id = _same_id(call, body.deployment_id)
    is_clear = body.all != bool(body.groups)
    groups = (() if body.all else body.groups) if is_clear else None
    return await _changed(call, call.operations.deployments.promote(deployment_id, groups=groups))


async def set_health(call: Call) -> web.Response:
    """PUT /v1/deployment/allocation-health/:id."""
    body = await call.body(DeploymentHealthBody)
    deployment_id = _same_id(call, body.deployment_id)
    healthy, unhealthy = body.healthy_allocation_ids, body.unhealthy_allocation_ids
    return await _changed(
        call, call.operations.deployments.set_alloc_health(deployment_id, healthy=healthy, unhealthy=unhealthy)
    )


def _path_id(call: Call) -> str:
    return check_uuid(call.part("id"), "deployment")


def _same_id(call: Call, named: str) -> str:
    if not named:
        raise Refused(400, "DeploymentID must be specified")
    if named != call.part("id"):
        raise Refused(400, "Deployment ID does not match")
    return _path_id(call)


async def _changed(call: Call, change: Awaitable[DeploymentChanged]) -> web.Response:
    done = await failed_call(change)
    answer = {
        "DeploymentModifyIndex": done.deployment_modify_index,
        "EvalCreateIndex": done.eval_create_index,
        "EvalID": done.eval_id,
        "Index": done.index,
        "RevertedJobVersion": done.reverted_job_version,
    }
    return json_answer(call, answer, index=done.index)
