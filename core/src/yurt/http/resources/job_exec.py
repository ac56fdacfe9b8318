"""`/v1/job/:id/action`: a websocket between a user's terminal and a command that a task's job declares for it.

Frames are those of `/v1/client/allocation/:id/exec`. Which allocation runs it says `allocID`, else it is the newest of
the job that runs, of `group` where that is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiohttp import web

from yurt.http.call import Call
from yurt.http.errors import Refused
from yurt.http.exec_sockets import converse
from yurt.http.forwarding.targets import find_alloc, job_key
from yurt.http.lists import check_uuid
from yurt.http.query import flag
from yurt.server.views.jobs import JobRows
from yurt.server.views.scheduling import AllocationRows
from yurt.structs.exec import ExecRequest
from yurt.structs.status import CLIENT_RUNNING

if TYPE_CHECKING:
    from yurt.structs.alloc import Allocation
    from yurt.structs.task import Action

NAMES_MAX = 20
"""Names listed in an error."""


async def run_action(call: Call) -> web.StreamResponse:
    """GET /v1/job/:id/action."""
    name = call.query.get("action", "")
    if not name:
        raise Refused(400, "missing parameter: action")
    alloc = _allocation(call)
    task, action = _declared(alloc, name, call.query.get("task", ""))
    target = find_alloc(call, alloc.id)
    request = ExecRequest(
        alloc_id=target.alloc_id,
        task=task,
        command=(action.command, *action.args),
        tty=flag(call.query, "tty"),
        is_action=True,
    )
    return await converse(call, target.node, request, target.scope)


def _allocation(call: Call) -> Allocation:
    """The requested allocation, or the newest running one of the job."""
    view, key, group = call.view(), job_key(call), call.query.get("group", "")
    allocations = view.of(AllocationRows)
    if key not in view.of(JobRows):
        raise Refused(404, "job not found")
    requested = call.query.get("allocID", "")
    if requested:
        requested_alloc = allocations.get(check_uuid(requested, "alloc"))
        if (
            requested_alloc is None
            or (requested_alloc.namespace, requested_alloc.job_id) != key
            or (group and requested_alloc.task_group != group)
        ):
            of_group = f' of its group "{group[:128]}"' if group else ""
            raise Refused(404, f'The job has no allocation "{requested}"{of_group}')
        return requested_alloc
    running = [
        alloc
        for alloc in allocations.where("job", key)
        if alloc.client_status == CLIENT_RUNNING and group in ("", alloc.task_group)
    ]
    if not running:
        raise Refused(404, f'No allocation of the group "{group[:128]}" runs' if group else "No allocation runs")
    return max(running, key=lambda alloc: (alloc.create_index, alloc.id))


def _declared(alloc: Allocation, name: str, task: str) -> tuple[str, Action]:
    """The task and its action; a task that is not named is the only one with an action of that name."""
    declared = [(owner, action) for owner, action in _actions(alloc) if task in ("", owner)]
    matching = [(owner, action) for owner, action in declared if action.name == name]
    if len(matching) > 1:
        raise Refused(400, f"missing parameter: task; {', '.join(owner for owner, _ in matching)} have this action")
    if not matching:
        names = sorted({action.name for _, action in declared})[:NAMES_MAX]
        where = f'The task "{task[:128]}"' if task else f'The group "{alloc.task_group}"'
        raise Refused(404, f'{where} has no action "{name[:128]}"; it has {", ".join(names) or "none"}')
    return matching[0]


def _actions(alloc: Allocation) -> Iterator[tuple[str, Action]]:
    """The actions of the job's version that the allocation runs, with their tasks."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    for task in group.tasks if group is not None else ():
        for action in task.actions:
            yield task.name, action
