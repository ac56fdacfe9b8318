"""Authenticates tasks' requests over their sockets before they are processed further.

A token is demanded even while access control is off (any text will do then), and the policy `anonymous` never applies:
the code of a task may be less trusted than clients of the agent's port. Secrets and identities
of nodes are refused: a task acts as itself. An agent without a server asks one who the caller is.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from aiohttp import web

from yurt.access import ANYWHERE, ShownNode, needs
from yurt.http.api_port import ApiPort, ApiRequest, no_body
from yurt.http.authentication import origin_of, token_text
from yurt.http.call import AUTHORITY, CONTEXT, identified, prepare_rights
from yurt.http.errors import Refused
from yurt.http.query import read_options
from yurt.sdk.errors import Invalid, Unavailable, YurtError

BAD_REQUEST: Final = "Bad Request"
UNAUTHORIZED: Final = "Unauthorized"
FORBIDDEN: Final = "Forbidden"
FAILED: Final = "Server error authenticating request\n"
WHO_AM_I: Final = "/v1/acl/policy/self?stale"
"""Answered for tokens and workloads, not for nodes; 400 while access control is off."""


async def refusal_of_task(request: web.Request) -> web.Response | None:
    """The answer to a task's request without a valid token; None when the request may continue."""
    try:
        read_options(request.query)
    except (Refused, Invalid):
        return web.Response(status=400, text=BAD_REQUEST)
    if not token_text(request):
        return web.Response(status=401, text=UNAUTHORIZED)
    try:
        is_authenticated = await _is_authenticated(request)
    except YurtError:
        return web.Response(status=500, text=FAILED)
    return None if is_authenticated else web.Response(status=403, text=FORBIDDEN)


async def _is_authenticated(request: web.Request) -> bool:
    """Whether the caller showed a valid token or workload identity; raises a YurtError when that cannot be decided."""
    context, authority = request.app[CONTEXT], request.app[AUTHORITY]
    if context.server is None:
        if context.servers is None:
            raise Unavailable("no server can be asked who the caller is")
        return await _is_authenticated_by(context.servers, request)
    if not context.server.config.acl.enabled:
        return True
    context.server.loader.need_state()
    actor = await identified(context, request)
    await prepare_rights(request, actor)
    return not isinstance(actor.caller, ShownNode) and authority.allows(actor, needs.AUTHENTICATED, ANYWHERE)


async def _is_authenticated_by(servers: ApiPort, request: web.Request) -> bool:
    """Whether a server knows the caller; raises Unavailable when it cannot decide."""
    token = token_text(request)
    if not token.isascii():
        return False
    api_request = ApiRequest(method="GET", path=WHO_AM_I, headers={"X-Nomad-Token": token}, origin=origin_of(request))
    async with aclosing(servers.ask(api_request, no_body())) as parts:
        async for part in parts:
            match part.status:
                case 200 | 400:
                    return True
                case 403:
                    return False
            break
    raise Unavailable("the server does not tell who the caller is")
