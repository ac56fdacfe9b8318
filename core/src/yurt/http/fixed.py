"""Routes whose answer does not depend on the state: features that are not there, and empty lists."""

from __future__ import annotations

from aiohttp import web

from yurt.http.call import Call, Handler, read_answer
from yurt.http.errors import Refused
from yurt.http.routing import Route, route
from yurt.sdk.errors import NotFound

ENTERPRISE = (
    "/v1/sentinel/policies", "/v1/sentinel/policy/{name}", "/v1/quotas", "/v1/quota-usages", "/v1/quota",
    "/v1/quota/{name}",
    "/v1/quota/usage/{name}", "/v1/recommendations", "/v1/recommendation", "/v1/recommendation/{id}",
    "/v1/recommendations/apply", "/v1/operator/license", "/v1/operator/utilization", "/v1/deployment/unblock/{id}",
)  # fmt: skip
EMPTY_LISTS = ("/v1/plugins",)


async def enterprise(call: Call) -> web.Response:
    """A route of Nomad's Enterprise edition."""
    raise Refused(501, "Nomad Enterprise only endpoint")


async def empty_list(call: Call) -> web.Response:
    """A list of a kind of object that Yurt does not have yet."""
    return read_answer(call, [], call.read_state().index)


async def acl_disabled(call: Call) -> web.Response:
    """Any ACL route: ACLs are off."""
    raise Refused(400, "ACL support disabled")


def missing(text: str) -> Handler:
    """A lookup that never finds anything."""

    async def handler(call: Call) -> web.Response:
        raise NotFound(text)

    return handler


def _any_method(path: str, handler: Handler) -> Route:
    return Route(path, dict.fromkeys(("GET", "PUT", "POST", "DELETE"), handler))


ROUTES = (
    *(_any_method(path, enterprise) for path in ENTERPRISE),
    *(route(path, get=empty_list) for path in EMPTY_LISTS),
    _any_method("/v1/acl/{path:.*}", acl_disabled),
    route("/v1/plugin/csi/{id}", get=missing("plugin not found")),
    route("/v1/volume/csi/{id}", get=missing("volume not found")),
)
