"""Allocations: lists, one, stopping it, and the routes that its client node answers."""

from __future__ import annotations

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.api.row_texts import row_form
from yurt.api.stubs import alloc_stub, alloc_wire
from yurt.http.answers import list_rows, one_row
from yurt.http.call import Call, empty_answer, has_loaded_state, json_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.targets import node_of_alloc
from yurt.http.lists import check_prefix, check_uuid
from yurt.http.query import flag
from yurt.sdk.value import Duration, Value
from yurt.server.views import Listing, View
from yurt.server.views.scheduling import AllocationRows
from yurt.structs.alloc import Allocation


class AllocRestartBody(Value):
    """PUT /v1/client/allocation/:id/restart."""

    task_name: str = ""
    all_tasks: bool = False


class AllocSignalBody(Value):
    """PUT /v1/client/allocation/:id/signal."""

    signal: str = ""
    task: str = ""


class AllocKeepBody(Value):
    """PUT /v1/allocation/:id/keep."""

    duration: Duration = Duration(0)


async def list_allocations(call: Call) -> web.Response:
    """GET /v1/allocations."""
    options = call.options
    prefix = check_prefix(options.prefix, "alloc")
    resources = flag(call.query, "resources")
    task_states = flag(call.query, "task_states", default=True)

    def listing(view: View) -> Listing[Allocation]:
        rows = view.of(AllocationRows).of_namespace(options.namespace)
        return rows.where((lambda row: row.id.startswith(prefix)) if prefix else None)

    form = row_form(alloc_stub, task_states, resources)
    return await list_rows(call, (AllocationRows,), listing, render=form, namespace=options.namespace)


async def read(call: Call) -> web.Response:
    """GET /v1/allocation/:id."""
    alloc_id = check_uuid(call.part("id"), "alloc")
    return await one_row(call, AllocationRows, alloc_id, render=row_form(alloc_wire), missing="alloc not found")


async def stop(call: Call) -> web.Response:
    """PUT /v1/allocation/:id/stop."""
    alloc_id = check_uuid(call.part("id"), "alloc")
    if alloc_id not in call.view().of(AllocationRows):
        raise Refused(404, "allocation not found")
    no_shutdown_delay = flag(call.query, "no_shutdown_delay")
    reschedule = flag(call.query, "reschedule")
    done = await call.operations.allocations.stop(alloc_id, no_shutdown_delay=no_shutdown_delay, reschedule=reschedule)
    return json_answer(call, {"EvalID": done.eval_id, "Index": done.index}, index=done.index)


async def keep(call: Call) -> web.Response:
    """PUT /v1/allocation/:id/keep."""
    body = await call.body(AllocKeepBody)
    alloc_id = check_uuid(call.part("id"), "alloc")
    if alloc_id not in call.view().of(AllocationRows):
        raise Refused(404, "allocation not found")
    done = await call.operations.allocations.keep(alloc_id, body.duration)
    answer = {"KeptUntil": done.kept_until, "Keeps": done.keeps, "Index": done.index}
    return json_answer(call, answer, index=done.index)


async def stats(call: Call) -> web.Response:
    """GET /v1/client/allocation/:id/stats."""
    alloc_id, node = node_of_alloc(call, call.part("id"))
    return json_answer(call, await node.alloc_stats(alloc_id, call.query.get("task", "")))


async def usage_history(call: Call) -> web.Response:
    """GET /v1/yurt/allocation/:id/usage."""
    alloc_id, node = node_of_alloc(call, call.part("id"))
    return json_answer(call, await node.alloc_usage_history(alloc_id, call.query.get("task", "")))


async def restart(call: Call) -> web.Response:
    """PUT /v1/client/allocation/:id/restart."""
    body = await call.body(AllocRestartBody, optional=True)
    alloc_id, node = node_of_alloc(call, call.part("id"))
    if body.task_name and body.all_tasks:
        raise Refused(400, "cannot set TaskName and AllTasks at the same time: leave one of them out")
    _check_task(call, alloc_id, body.task_name)
    await node.restart_alloc(alloc_id, task=body.task_name, all_tasks=body.all_tasks)
    return json_answer(call, {})


async def signal(call: Call) -> web.Response:
    """PUT /v1/client/allocation/:id/signal."""
    body = await call.body(AllocSignalBody)
    alloc_id, node = node_of_alloc(call, call.part("id"))
    _check_task(call, alloc_id, body.task)
    await node.signal_alloc(alloc_id, task=body.task, signal=body.signal)
    return json_answer(call, {})


def _check_task(call: Call, alloc_id: str, task: str) -> None:
    """Refuse an unknown task; while the state is read the client alone does, which has its allocations already."""
    if not task or not has_loaded_state(call):
        return
    alloc = call.known_view().of(AllocationRows).get(alloc_id)
    group = alloc.job.group(alloc.task_group) if alloc is not None and alloc.job is not None else None
    if group is not None and group.task(task) is None:
        raise Refused(500, f'Could not find task named "{task[:64]}" in allocation {alloc_id[:8]}')


async def collect(call: Call) -> web.Response:
    """PUT /v1/client/allocation/:id/gc, and GET, which Nomad's SDKs send."""
    alloc_id, node = node_of_alloc(call, call.part("id"))
    await node.collect_garbage(alloc_id)
    return empty_answer()


async def checks(call: Call) -> web.Response:
    """GET /v1/client/allocation/:id/checks: the last results of its services' checks, by check id."""
    alloc_id, node = node_of_alloc(call, call.part("id"))
    return json_answer(call, {check.id: to_wire(check) for check in await node.alloc_checks(alloc_id)})
