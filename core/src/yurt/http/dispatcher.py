"""The dispatcher: from a request to the route that is declared for it (`yurt.http.routes`), and through its need.

aiohttp's router finds the path; the dispatcher finds the method's route, makes the `Call`, and asks the authority
before the handler looks at the body. Job ids may hold slashes, so all below `/v1/job/` is one path of
aiohttp's, and the longest declared ending decides (`JobPaths`).

The middlewares ask `endpoint_of` what is declared for the path of a request: who answers it, whether a node's
connection carries it, whether its GET has an effect.
"""

from __future__ import annotations

import asyncio
import re
import types
from collections.abc import Awaitable, Coroutine, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import unquote

import msgspec
from aiohttp import web
from yarl import URL

from yurt.access import ANYWHERE, Access, Actor, Authority, Recalled, Scope, Trace
from yurt.access.authority import ALLOW_ALL
from yurt.access.needs import OnVariable
from yurt.http.authentication import connection_of, origin_of, shown_secret, token_text
from yurt.http.call import (
    AUTHORITY,
    CONTEXT,
    RIGHTS,
    Call,
    Context,
    identified,
    leader_headers,
    prepare_rights,
)
from yurt.http.edge.browsers import READS
from yurt.http.edge.rpc_names import RPC_NAMES
from yurt.http.errors import NoServer, Refused, public_error
from yurt.http.forwarding_headers import ORIGIN
from yurt.http.leases import Lease
from yurt.http.query import ReadOptions, read_options
from yurt.http.routes import BODY, BY_STATE, QUERY, AnsweredBy, Route
from yurt.runtime.metrics import Metrics
from yurt.server.keys.last_secret import CachedDecision, LastSecret

T = TypeVar("T")

JOB: Final = "/v1/job/{job_id}"
"""How the paths of one job begin."""
DECISIONS_MAX: Final = 64
"""Decisions that a connection keeps; then all are forgotten."""
INTERNAL_ERROR: Final = 500
"""Answers from this status on tell of a failure of the agent."""
DECIDED_BY_SERVER: Final = "No known servers: this agent runs no server, and cannot decide who may ask"


class Endpoint(Protocol):
    """One path of aiohttp's router, with its declared routes."""

    answered_by: AnsweredBy
    from_nodes: bool
    has_effect_on_get: bool
    cors: bool

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer as the route of the request's method does."""
        ...

    def find(self, method: str, parts: dict[str, str], *, raw_path: str) -> tuple[Route, dict[str, str]]:
        """The route of a method and the parameters of its path; raises Refused. `raw_path` is still encoded."""
        ...


class RequestAudit(Protocol):
    """The facts kept of a request for the audit log (`yurt.http.audit`)."""

    trace: Trace

    def decide(self, route: Route, actor: Actor, authority: Authority, namespace: str) -> None:
        """This agent decides about the request."""
        ...

    async def begin(self) -> None:
        """The request is carried out now; raises Unavailable where this has to be written before and cannot be."""
        ...


RECORD: web.RequestKey[RequestAudit] = web.RequestKey("yurt_record")
"""Set where requests are recorded."""


class Read(NamedTuple):
    """A request for a route with the options in its query."""

    route: Route
    options: ReadOptions


AT_ONCE: web.RequestKey[Read] = web.RequestKey("yurt_at_once", Read)
"""Set on a read whose handler waited for nothing (`yurt.http.plain_reads.fast_path`)."""
IS_AUDITED: web.AppKey[bool] = web.AppKey("yurt_is_audited", bool)
"""Set where each request has a record."""
ENDPOINTS: web.AppKey[dict[web.AbstractResource, Endpoint]] = web.AppKey("yurt_endpoints", dict)


class Methods:
    """The routes of one path by method."""

    def __init__(self, routes: Sequence[Route]) -> None:
        """All routes of a path have the same answering agent, because that is decided before the method is examined."""
        first = routes[0]
        self.routes = tuple(routes)
        self.answered_by = first.answered_by
        self.from_nodes = first.from_nodes
        self.has_effect_on_get = any(each.has_effect_on_get for each in routes)
        self._by_method = {method: each for each in routes for method in each.methods}
        self.cors = first.cors
        self._wrong_method = first.wrong_method
        for each in routes:
            if (each.answered_by, each.from_nodes, each.wrong_method, each.cors) != (
                first.answered_by, first.from_nodes, first.wrong_method, first.cors,
            ):  # fmt: skip
                raise TypeError(f"{each.path}: its routes disagree about who answers, or about other methods")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer as the route of the request's method does."""
        if request.method == "OPTIONS" and self.cors:
            return web.Response(status=204)
        return await _carry_out(self.route_of(request.method), request)

    def find(self, method: str, parts: dict[str, str], *, raw_path: str) -> tuple[Route, dict[str, str]]:
        """The route of a method and the parameters of its path; raises Refused. `raw_path` is still encoded."""
        return self.route_of(method), parts

    def route_of(self, method: str) -> Route:
        """The route of a method; raises Refused."""
        route = self._by_method.get(method)
        if route is None and method == "HEAD" and self.cors:
            route = self._by_method.get("GET")
        if route is None:
            raise Refused(self._wrong_method, "Invalid method")
        return route


class Below(msgspec.Struct, frozen=True):
    """The parts of a path below `/v1/job/`."""

    methods: Methods
    parts: dict[str, str]
    """The parameters of the path, the job's id among them."""


class JobPaths:
    """All routes below `/v1/job/{job_id}`: the ending selects one, and the rest is the job's id."""

    def __init__(self, routes: Iterable[Route]) -> None:
        by_path = _by_path(routes)
        by_ending = {path.removeprefix(JOB): Methods(each) for path, each in by_path.items()}
        self._job = by_ending.pop("")
        self._endings = {ending: each for ending, each in by_ending.items() if "{" not in ending}
        self._patterns = tuple((_pattern(ending), each) for ending, each in by_ending.items() if "{" in ending)
        self.answered_by = self._job.answered_by
        self.from_nodes = self._job.from_nodes
        self.has_effect_on_get = self.cors = False
        assert all(
            (each.answered_by, each.from_nodes, each.has_effect_on_get, each.cors)
            == (self.answered_by, self.from_nodes, False, False)
            for each in by_ending.values()
        ), "the routes of a job are found by their ending only after it is known who answers"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer as the route of the path's ending and the request's method does."""
        below = self.split(request.match_info["path"], raw_path=request.rel_url.raw_path)
        request.match_info.update(below.parts)
        return await _carry_out(below.methods.route_of(request.method), request)

    def find(self, method: str, parts: dict[str, str], *, raw_path: str) -> tuple[Route, dict[str, str]]:
        """The route of a method and the parameters of its path; raises Refused. `raw_path` is still encoded."""
        below = self.split(parts["path"], raw_path=raw_path)
        return below.methods.route_of(method), parts | below.parts

    def split(self, path: str, *, raw_path: str) -> Below:
        """The routes for what follows `/v1/job/`; raises Refused.

        A slash that is encoded (%2F) belongs to the id, so that a job with an id such as `a/versions` has a path.
        """
        for pattern, methods in self._patterns:
            match = pattern.search(path)
            if match is not None and _ends_with(raw_path, match.group()):
                if match.start() == 0:
                    raise Refused(404, "invalid job tag endpoint")
                return Below(methods, match.groupdict() | {"job_id": path[: match.start()]})
        if not path:
            raise Refused(400, "Missing job ID")
        # An ending has one or two segments; what stands before it must not be empty, else it is a job's id.
        last = path.rfind("/")
        for start in (path.rfind("/", 0, last) if last > 0 else -1, last):
            ending = path[start:]
            if start > 0 and (by_ending := self._endings.get(ending)) is not None and _ends_with(raw_path, ending):
                return Below(by_ending, {"job_id": path[:start]})
        return Below(self._job, {"job_id": path})


def _ends_with(raw_path: str, ending: str) -> bool:
    """Whether an encoded path has these last segments, separated by slashes that are not encoded."""
    if "%" not in raw_path:
        return True
    segments = ending.split("/")[1:]
    return [unquote(each) for each in raw_path.rsplit("/", len(segments))[1:]] == segments


def add_routes(app: web.Application, routes: Iterable[Route]) -> None:
    """Serve the routes; of several patterns that match a path the one that is declared first decides."""
    endpoints = app[ENDPOINTS] = {}
    routes = tuple(routes)

    def add(path: str, endpoint: Endpoint) -> None:
        resource = app.router.add_route("*", path, endpoint.answer).resource
        assert resource is not None, path
        endpoints[resource] = endpoint

    # Ids hold any characters, line breaks too, which a dot alone does not match.
    add("/v1/job/{path:(?s:.*)}", JobPaths(each for each in routes if each.path.startswith(JOB)))
    for path, path_routes in _by_path(each for each in routes if not each.path.startswith(JOB)).items():
        add(path.replace(":.*}", ":(?s:.*)}"), Methods(path_routes))


def endpoint_of(request: web.Request) -> Endpoint | None:
    """The endpoint of the request's path; None for a path that does not exist."""
    resource = request.match_info.route.resource
    return None if resource is None else request.app[ENDPOINTS].get(resource)


class _PathRequest(msgspec.Struct, frozen=True):
    """The parts of a request that aiohttp's router reads."""

    method: str
    rel_url: URL


async def find_need(request: web.Request, method: str, url: str) -> tuple[Route, Scope]:
    """The route that such a request would take, and the scope of its need; raises Refused.

    Nothing is carried out; the request that asks only lends its application.
    """
    try:
        path_request = _PathRequest(method, URL(url, encoded=True))
        match = await request.app.router.resolve(cast(web.Request, path_request))
    except ValueError:
        raise Refused(400, f'"{url[:256]}" is not a path of the API') from None
    resource = match.route.resource
    endpoint = None if resource is None else request.app[ENDPOINTS].get(resource)
    if endpoint is None:
        raise Refused(404, f'"{url[:256]}" is not a path of the API')
    route, parts = endpoint.find(method, dict(match), raw_path=path_request.rel_url.raw_path)
    query = path_request.rel_url.query
    scope = _scope(route, parts, read_options(query, index_error=route.index_error).namespace)
    if route.scope is BODY and query.get("namespace"):
        # The body of a job names its namespace; commands and libraries name the same in the query.
        scope = scope._replace(namespace=query["namespace"])
    return route, scope


def has_effect_on_get(request: web.Request) -> bool:
    """Whether the request is a GET of a route whose GET has a side effect."""
    endpoint = endpoint_of(request) if request.method == "GET" else None
    return endpoint is not None and endpoint.has_effect_on_get


def is_socket(request: web.Request) -> bool:
    """Whether the request is for a route that answers over a websocket."""
    endpoint = endpoint_of(request)
    try:
        if endpoint is None:
            return False
        found, _ = endpoint.find(request.method, dict(request.match_info), raw_path=request.rel_url.raw_path)
    except Refused:
        return False
    return found.is_socket


def has_cors(request: web.Request) -> bool:
    """Whether pages of origins permitted by the operator may read the path."""
    endpoint = endpoint_of(request)
    return endpoint is not None and endpoint.cors


async def _carry_out(route: Route, request: web.Request) -> web.StreamResponse:
    """As `answered`, counted and timed."""
    context = request.app[CONTEXT]
    now = context.env.monotonic
    began, is_failed = now(), False
    try:
        read = Read(route, read_options(request.query, index_error=route.index_error))
        response = await answered(read, request, context)
        is_failed = response.status >= INTERNAL_ERROR
        return response
    except Exception as error:
        shown = public_error(error)
        is_failed = shown is None or shown.status >= INTERNAL_ERROR
        raise
    finally:
        note(context.metrics, route, request.method, now() - began, is_failed=is_failed)


def note(metrics: Metrics, route: Route, method: str, seconds: float, *, is_failed: bool) -> None:
    """Count a request; streams have no duration, because their readers decide how long they last."""
    if route.answered_by in BY_STATE:
        metrics.count("rpc.request")
        if method == "GET":
            metrics.count("rpc.query")
        if is_failed:
            metrics.count("rpc.request_error")
    if route.is_stream:
        return
    metrics.time("http.request", seconds)
    name = RPC_NAMES.get((method, route.path))
    if name is not None:
        metrics.time(name, seconds)


async def answered(read: Read, request: web.Request, context: Context) -> web.StreamResponse:
    """Let the handler answer once the authority allows what the route needs, and as long as it does.

    Raises why the caller's rights have ended, if they end before the handler does.
    """
    route, options = read
    app = request.app
    authority = app[AUTHORITY]
    if context.server is None and _is_decided_by_server(route, context):
        raise NoServer(DECIDED_BY_SERVER)
    is_controlled = authority is not ALLOW_ALL
    if context.server is not None and is_controlled and not route.is_anonymous:
        loader = context.server.loader
        if not loader.is_restored:
            loader.need_state()  # half of a log knows tokens that its other half revokes
    cached = _cached_decision(route, request, context, options.namespace) if is_controlled else None
    actor, scope, recalled, _ = cached or await _looked_up(route, request, context, options.namespace)
    if context.server is None:
        if not route.is_anonymous:
            await prepare_rights(request, actor)
    elif recalled is None and authority.preparation(actor) is not None:
        await prepare_rights(request, actor)
    record = request[RECORD] if app.get(IS_AUDITED) else None
    access = Access(actor, route.needs, authority, None if record is None else record.trace)
    if context.server is None:
        await _need_newest_rights(route, access, scope, request)
    if record is not None:
        record.decide(route, actor, authority, options.namespace)
    if recalled is None:
        access.require(scope)
    else:
        access.keep(scope)
    if record is not None:
        recalled = await _begun(record, access, scope, authority, recalled)
    lease = Lease(access, context.leases, partial(prepare_rights, request, actor))
    call = Call(request, context, options, access, scope, lease)
    if request.method not in READS:
        return await route.handler(call)
    # A stream of changes has a lease without access control too: a server that is cut off ends it.
    is_leased = (
        is_controlled and not route.is_anonymous and not route.has_effect_on_get
    ) or route.answered_by is AnsweredBy.SERVER
    handled = route.handler(call)
    if is_leased and recalled is not None:
        access.begin_step(recalled)
    try:
        # Most reads wait for nothing: they end here, and need no lease.
        waits_for = handled.send(None)
    except StopIteration as done:
        request[AT_ONCE] = read
        return _as_read(call, done.value)
    if not is_leased:
        return _as_read(call, await _continued(handled, waits_for))
    access.end_step()
    return _as_read(call, await _under_lease(lease, scope, _continued(handled, waits_for)))


def _cached_decision(route: Route, request: web.Request, context: Context, namespace: str) -> CachedDecision | None:
    """What was decided about an earlier request of the connection with the same secret, route and namespace.

    None says nothing. Most clients ask the same again: then neither the caller nor the decision is looked up.
    """
    connection = connection_of(request)
    last = None if connection is None else connection.last_secret
    if last is None or ORIGIN in request.headers:
        return None
    return recalled_decision(route, last, shown_secret(request), context, namespace)


def recalled_decision(
    route: Route, last: LastSecret, secret: str, context: Context, namespace: str
) -> CachedDecision | None:
    """As `_cached_decision` for a request of the connection that shows `secret`, and that no other agent passes on."""
    callers = None if context.server is None else context.server.callers
    decision = last.decisions.get((id(route), namespace))
    if decision is None or callers is None or not callers.is_shown_again(last, secret):
        return None
    if decision.recalled is not None and decision.recalled.holds():
        return decision
    last.decisions.clear()
    return None


async def _looked_up(route: Route, request: web.Request, context: Context, namespace: str) -> CachedDecision:
    """The actor of a request, the scope of its need, and what is remembered about both; kept for the next request."""
    authority = request.app[AUTHORITY]
    is_off = authority is ALLOW_ALL
    actor = Actor(origin=origin_of(request)) if is_off else await identified(context, request)
    scope = _scope(route, request.match_info, namespace)
    recalled = None if context.server is None else authority.recall(actor, route.needs, scope)
    is_cacheable = not is_off and recalled is not None and scope.variable is None
    decision = CachedDecision(actor, scope, recalled)
    connection = connection_of(request) if is_cacheable else None
    last = None if connection is None else connection.last_secret
    if last is not None and last.actor is actor:
        if len(last.decisions) >= DECISIONS_MAX:
            last.decisions.clear()
        last.decisions[id(route), namespace] = decision._replace(standing=authority.standing(actor))
    return decision


async def _begun(
    record: RequestAudit, access: Access, scope: Scope, authority: Authority, recalled: Recalled | None
) -> Recalled | None:
    """Begin a request's record, and recall earlier answers again, because the line may have waited for its file.

    Raises PermissionDenied where the rights that they tell of have ended meanwhile.
    """
    await record.begin()
    if recalled is None:
        return None
    still = authority.recall(access.actor, access.need, scope)
    if still is None:
        access.renew()
        access.require(scope)
    return still


async def _under_lease(lease: Lease, scope: Scope, answer: Awaitable[T]) -> T:
    """The answer of a request that waits, as long as its rights last; raises why they have ended."""
    lease.begin(scope)
    try:
        return await answer
    except asyncio.CancelledError:
        lease.raise_refusal()
        raise
    finally:
        if lease.is_watched:
            await lease.close()
        else:
            lease.forget()


@types.coroutine
def _continued(handled: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Await a coroutine that was begun with `send`, and waits for what that returned."""
    try:
        while True:
            try:
                value = yield waits_for
            except BaseException as error:
                waits_for = handled.throw(error)
            else:
                waits_for = handled.send(value)
    except StopIteration as done:
        result: T = done.value
        return result


def _as_read(call: Call, response: web.StreamResponse) -> web.StreamResponse:
    """The answer of a read with headers about the leader."""
    if not response.prepared and "X-Nomad-KnownLeader" not in response.headers:
        response.headers.update(leader_headers(call.context))
    return response


def _is_decided_by_server(route: Route, context: Context) -> bool:
    """Whether an agent without a server forwards a request before identifying its caller."""
    return context.agent.acl_enabled and route.answered_by in BY_STATE and not route.is_anonymous


async def _need_newest_rights(route: Route, access: Access, scope: Scope, request: web.Request) -> None:
    """Refuse on an agent without a server only by rights that are not old; raises NoServer where a server can answer.

    So a new right takes effect at once, while earlier rights are taken from the cache.
    """
    if access.allows(scope):
        return
    if route.answered_by is not AnsweredBy.AGENT:
        raise NoServer(DECIDED_BY_SERVER)
    source = request.app.get(RIGHTS)
    if source is not None:
        await source.learn(access.actor, token_text(request), is_refused=True)
        access.renew()


def _scope(route: Route, parts: Mapping[str, str], namespace: str) -> Scope:
    """The scope of the need as far as known before the row or the body is read."""
    if route.scope is not QUERY:
        return ANYWHERE
    variable = parts["path"] if isinstance(route.needs, OnVariable) else None
    return Scope(namespace=None if namespace == "*" else namespace, variable=variable)


def _by_path(routes: Iterable[Route]) -> Mapping[str, list[Route]]:
    by_path: dict[str, list[Route]] = {}
    for each in routes:
        by_path.setdefault(each.path, []).append(each)
    return by_path


def _pattern(ending: str) -> re.Pattern[str]:
    """`/versions/{tag}/tag` as the end of a path."""
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", ending) + r"\Z")
