"""Routes of an allocation on its node other than files: its disk as an archive, and whether its tasks are paused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web

from yurt.http.call import Call, json_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.targets import node_of_alloc
from yurt.http.streams import send_bytes
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value

if TYPE_CHECKING:
    from yurt.server.ports import NodePort

PAUSE, RUN, SCHEDULED = "pause", "run", "scheduled"
STATES: Final = (PAUSE, RUN, SCHEDULED)
"""States that an operator may request; for a task without a schedule, `scheduled` means the same as `run`."""


class AllocPauseBody(Value):
    """POST /v1/client/allocation/:id/pause."""

    task: str = ""
    schedule_state: str = ""


async def snapshot(call: Call) -> web.StreamResponse:
    """GET /v1/client/allocation/:id/snapshot: the ephemeral disk of an allocation that has ended, as a tar stream."""
    alloc_id, node = node_of_alloc(call, call.part("id"))
    return await send_bytes(call, node.pack_disk(alloc_id), content_type="application/octet-stream")


async def read_pause(call: Call) -> web.Response:
    """GET /v1/client/allocation/:id/pause: of the `task`, which may be omitted for an allocation with one task."""
    alloc_id, node = node_of_alloc(call, call.part("id"))
    state = await schedule_state(node, alloc_id, call.query.get("task", ""))
    return json_answer(call, {"ScheduleState": state})


async def pause(call: Call) -> web.Response:
    """POST /v1/client/allocation/:id/pause: end the task's run, begin a new one, or let its schedule decide."""
    body = await call.body(AllocPauseBody)
    alloc_id, node = node_of_alloc(call, call.part("id"))
    if body.schedule_state not in STATES:
        raise Refused(400, f"Not a valid task schedule state: use {', '.join(STATES)}")
    # An agent of the version before schedules reads `is_paused` alone; for it, "scheduled" means "run".
    is_paused = body.schedule_state == PAUSE
    await node.pause_task(alloc_id, task=body.task, wish=body.schedule_state, is_paused=is_paused)
    return json_answer(call, {"ScheduleState": body.schedule_state})


async def schedule_state(node: NodePort, alloc_id: str, task: str) -> str:
    """Whether a task may run: pause, scheduled_pause or run.

    Invalid is the refusal of an agent of the version before schedules, which lacks the call. It is also that of a task
    which does not fit; then the older call is refused for the same reason.
    """
    try:
        return await node.schedule_state(alloc_id, task=task)
    except Invalid:
        return PAUSE if await node.is_task_paused(alloc_id, task=task) else RUN
