"""Routes whose answer does not depend on the state: features that are not there."""

from __future__ import annotations

from aiohttp import web

from yurt.http.call import Call
from yurt.http.errors import Refused


async def enterprise(call: Call) -> web.Response:
    """A route of Nomad's Enterprise edition."""
    raise Refused(501, "Nomad Enterprise only endpoint")


async def acl_disabled(call: Call) -> web.Response:
    """Any other ACL route: 400 while access control is off, and else a path that does not exist."""
    call.need_acl()
    raise Refused(404, "")
