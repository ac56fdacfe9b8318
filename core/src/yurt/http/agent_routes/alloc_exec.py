"""`/v1/client/allocation/:id/exec`: a command inside a task, over a websocket (`yurt.http.exec_sockets`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from yurt.http.call import Call
from yurt.http.errors import Refused
from yurt.http.exec_sockets import converse
from yurt.http.forwarding.targets import find_alloc
from yurt.http.query import flag
from yurt.structs.exec import ExecRequest

if TYPE_CHECKING:
    pass

ARGUMENTS_MAX = 4096


async def exec_in_task(call: Call) -> web.StreamResponse:
    """GET /v1/client/allocation/:id/exec."""
    target = find_alloc(call, call.part("id"))
    return await converse(call, target.node, read_request(call.query, target.alloc_id), target.scope)


def read_request(query: Mapping[str, str], alloc_id: str) -> ExecRequest:
    """The parameters of the query; 400 for missing or malformed ones."""
    task = query.get("task", "")
    if not task:
        raise Refused(400, "missing parameter: task")
    try:
        command = msgspec.json.decode(query.get("command", ""), type=tuple[str, ...])
    except msgspec.DecodeError:
        raise Refused(400, 'parameter command must be a JSON list of texts, such as ["/bin/sh"]') from None
    if not command or not command[0] or len(command) > ARGUMENTS_MAX:
        raise Refused(400, f"parameter command must name a program, with at most {ARGUMENTS_MAX - 1} arguments")
    return ExecRequest(alloc_id=alloc_id, task=task, command=command, tty=flag(query, "tty"))
