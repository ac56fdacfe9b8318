"""An allocation on its node beside its files: its disk as an archive, and whether a schedule pauses its tasks."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from yurt.access import needs
from yurt.access.needs import Capability
from yurt.http import routes
from yurt.http.call import Call, json_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.targets import node_of_alloc
from yurt.http.routes import NODE, ROW
from yurt.http.streams import send_bytes
from yurt.sdk.value import Value

STATES: Final = ("pause", "run", "scheduled")
"""What an operator may ask of a task with a schedule."""


class AllocPauseBody(Value):
    """POST /v1/client/allocation/:id/pause."""

    task: str = ""
    schedule_state: str = ""


async def snapshot(call: Call) -> web.StreamResponse:
    """GET /v1/client/allocation/:id/snapshot: the ephemeral disk of an allocation that has ended, as a tar stream."""
    alloc_id, node = node_of_alloc(call, call.part("id"))
    return await send_bytes(call, node.pack_disk(alloc_id), content_type="application/octet-stream")


async def read_pause(call: Call) -> web.Response:
    """GET /v1/client/allocation/:id/pause: the state is empty, because no task has a schedule here."""
    node_of_alloc(call, call.part("id"))
    return json_answer(call, {"ScheduleState": ""})


async def pause(call: Call) -> web.Response:
    """POST /v1/client/allocation/:id/pause: schedules of tasks belong to Nomad's Enterprise edition."""
    body = await call.body(AllocPauseBody)
    node_of_alloc(call, call.part("id"))
    if body.schedule_state not in STATES:
        raise Refused(400, f"Not a valid task schedule state: use {', '.join(STATES)}")
    raise Refused(501, "Nomad Enterprise only endpoint: tasks have no schedules here; stop the job to pause it")


PAUSE = needs.namespace(Capability.SUBMIT_JOB, Capability.PAUSE_ALLOCATION)
READ = needs.namespace(Capability.READ_JOB)
READ_FS = needs.namespace(Capability.READ_FS)

ROUTES = (
    routes.get(
        "/v1/client/allocation/{id}/snapshot", snapshot, needs=READ_FS, scope=ROW, answered_by=NODE, from_nodes=True,
        cors=True, is_stream=True,
    ),
    routes.get(
        "/v1/client/allocation/{id}/pause", read_pause, needs=READ, scope=ROW, answered_by=NODE, from_nodes=True,
        cors=True,
    ),
    routes.write(
        "/v1/client/allocation/{id}/pause", pause, needs=PAUSE, scope=ROW, answered_by=NODE, from_nodes=True, cors=True
    ),
)  # fmt: skip
