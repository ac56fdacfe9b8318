"""Which routes of a server the agent of a node may ask for users of its own HTTP API.

A client without a server passes requests on over the connection that its node holds. That connection proves who the
node is, and nothing about its users, so it carries what users of jobs need and no route that rules the cluster: not
`/v1/operator/`, not the keyring, not snapshots, not introductions of further nodes. The list names what is allowed,
so a new route is refused until somebody decides about it; `tests/http/test_node_routes.py` holds the decisions.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from yurt.http.errors import Refused

FROM_NODE: Final = "X-Yurt-From-Node"
"""A request with this header came over a node's connection; a server that takes it in sets it, whatever was sent."""
OWN_HEADERS: Final = "x-yurt-"
"""How headers begin that agents set, in lower case; a node's connection carries none of the caller's."""
ALLOWED: Final = (
    "/v1/allocation", "/v1/allocations", "/v1/client", "/v1/deployment", "/v1/deployments", "/v1/evaluation",
    "/v1/evaluations", "/v1/event/stream", "/v1/job", "/v1/jobs", "/v1/namespace", "/v1/namespaces", "/v1/node",
    "/v1/nodes", "/v1/plugin", "/v1/plugins", "/v1/quota", "/v1/quota-usages", "/v1/quotas", "/v1/recommendation",
    "/v1/recommendations", "/v1/regions", "/v1/scaling", "/v1/search", "/v1/sentinel", "/v1/service", "/v1/services",
    "/v1/status", "/v1/validate/job", "/v1/var", "/v1/vars", "/v1/volume", "/v1/volumes", "/v1/yurt/allocation",
    "/v1/yurt/evaluation", "/v1/yurt/job", "/v1/agent/members", "/v1/agent/monitor", "/v1/agent/pprof",
    "/v1/agent/host", "/.well-known/jwks.json", "/ui",
)  # fmt: skip
"""Beginnings of routes, as they are declared, up to a slash."""


def is_allowed(route: str) -> bool:
    """Whether a node's connection carries requests for the route."""
    return route == "/" or any(route == each or route.startswith(f"{each}/") for each in ALLOWED)


def check_node_route(request: web.Request) -> None:
    """Raises Refused (403) for a request over a node's connection to a route that it does not carry.

    The route that answers decides and not the text of the path, which can be written in several ways.
    """
    if FROM_NODE not in request.headers:
        return
    resource = request.match_info.route.resource
    if resource is not None and not is_allowed(resource.canonical):
        raise Refused(
            403,
            f"Permission denied: clients do not pass {request.method} {request.path[:256]} on to their servers; "
            "ask a server at its own HTTP address (-address or NOMAD_ADDR)",
        )
