"""Tokens that introduce new clients."""

from __future__ import annotations

from aiohttp import web

from yurt.http.call import Call, json_answer
from yurt.sdk.value import NANOSECONDS, Duration, Value


class IntroductionBody(Value):
    """For which node (any when empty) and pool (`default` when empty), and for how long (as configured when 0)."""

    ttl: Duration = Duration(0)
    node_name: str = ""
    node_pool: str = ""


async def make(call: Call) -> web.Response:
    """POST /v1/acl/identity/client-introduction-token."""
    body = await call.body(IntroductionBody, optional=True)
    call.access.name_object("node", body.node_name)
    token = await call.operations.introductions.make_token(
        node_name=body.node_name, node_pool=body.node_pool, ttl_s=body.ttl / NANOSECONDS
    )
    return json_answer(call, {"JWT": token})
