"""Routes: a path, and a handler for each method that it takes. PUT and POST are equal unless a route says
otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from aiohttp import web

from yurt.http.call import CONTEXT, Call, Handler
from yurt.http.errors import Refused
from yurt.http.query import read_options

CORS_PREFIXES = (
    "/v1/client/fs/", "/v1/client/stats", "/v1/client/allocation/", "/v1/client/metadata", "/v1/client/identity",
)  # fmt: skip
"""Where HEAD and OPTIONS are answered too, for pages of the origins to which the operator has opened reads."""
EFFECTS_OF_GET: web.AppKey[set[str]] = web.AppKey("yurt_effects_of_get", set)
"""Paths, in aiohttp's pattern language, of the routes whose GET has a side effect."""


INDEX_ERRORS = {"/v1/event/stream": "Unable to parse index: it must be a number, 0 or more"}
"""Routes with a text of their own for a bad `index`."""

WRONG_METHOD = 405


class Route(NamedTuple):
    """A path in aiohttp's pattern language and its handlers by method."""

    path: str
    methods: Mapping[str, Handler]
    wrong_method: int = WRONG_METHOD
    """The status for any other method."""
    has_effect_on_get: bool = False
    """GET changes something, as Nomad's SDKs expect it; browsers are refused (`yurt.http.browsers`)."""


def route(
    path: str, *, get: Handler | None = None, write: Handler | None = None, put: Handler | None = None,
    delete: Handler | None = None, wrong_method: int = WRONG_METHOD,
) -> Route:  # fmt: skip
    """A route; `write` takes PUT and POST, `put` takes PUT alone."""
    methods = {"GET": get, "PUT": write or put, "POST": write, "DELETE": delete}
    taken = {method: handler for method, handler in methods.items() if handler is not None}
    return Route(path, taken, wrong_method)


def add_routes(app: web.Application, routes: Iterable[Route]) -> None:
    """Serve the routes."""
    for entry in routes:
        app.router.add_route("*", entry.path, _adapter(entry))
        if entry.has_effect_on_get:
            app[EFFECTS_OF_GET].add(entry.path)


def has_effect_on_get(request: web.Request) -> bool:
    """Whether the request is a GET of a route whose GET has a side effect."""
    resource = request.match_info.route.resource
    return resource is not None and request.method == "GET" and resource.canonical in request.app[EFFECTS_OF_GET]


def make_call(request: web.Request) -> Call:
    """The request with its options checked."""
    context = request.app[CONTEXT]
    options = read_options(request.query, index_error=INDEX_ERRORS.get(request.path, "Invalid index"))
    return Call(request, context, options)


def handler_of(methods: Mapping[str, Handler], request: web.Request, *, wrong_method: int = WRONG_METHOD) -> Handler:
    """The handler of the request's method; `wrong_method` for any other."""
    handler = methods.get(request.method)
    if handler is None and request.method == "HEAD" and request.path.startswith(CORS_PREFIXES):
        handler = methods.get("GET")
    if handler is None:
        raise Refused(wrong_method, "Invalid method")
    return handler


def _adapter(entry: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method == "OPTIONS" and request.path.startswith(CORS_PREFIXES):
            return web.Response(status=204)
        handler = handler_of(entry.methods, request, wrong_method=entry.wrong_method)
        return await handler(make_call(request))

    return handle
