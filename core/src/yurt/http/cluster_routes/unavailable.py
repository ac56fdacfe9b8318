"""Routes whose answer does not depend on the state: features that are not there."""

from __future__ import annotations

from aiohttp import web

from yurt.access import needs
from yurt.http import routes
from yurt.http.call import Call
from yurt.http.errors import Refused

ENTERPRISE = (
    "/v1/sentinel/policies", "/v1/sentinel/policy/{name}", "/v1/recommendations", "/v1/recommendation",
    "/v1/recommendation/{id}",
    "/v1/recommendations/apply", "/v1/operator/license", "/v1/deployment/unblock/{id}",
)  # fmt: skip


async def enterprise(call: Call) -> web.Response:
    """A route of Nomad's Enterprise edition."""
    raise Refused(501, "Nomad Enterprise only endpoint")


async def acl_disabled(call: Call) -> web.Response:
    """Any other ACL route: 400 while access control is off, and else a path that does not exist."""
    call.need_acl()
    raise Refused(404, "")


ROUTES = (
    *(
        routes.any_method(path, enterprise, needs=needs.ANONYMOUS, from_nodes=not path.startswith("/v1/operator/"))
        for path in ENTERPRISE
    ),
    routes.any_method("/v1/acl/{path:.*}", acl_disabled, needs=needs.ANONYMOUS),
)
