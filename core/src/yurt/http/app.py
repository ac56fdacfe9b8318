"""The HTTP application of an agent: its routes and its middleware.

A request passes: the check of browsers' pages, before anything else looks at it or passes it on; bounds (body size;
nesting is checked where JSON is read); the route; then here errors become Nomad's plain texts and answers are
compressed when the client accepts it. Nothing that goes wrong shows a traceback to the client; it is logged.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from yurt.access.authority import ALLOW_ALL, ALLOW_NOBODY, Authority
from yurt.api.row_texts import RowTexts
from yurt.http.agent_info import AgentInfo
from yurt.http.authentication import session_problem
from yurt.http.call import AUTHORITY, BEGUN, CONTEXT, FILES, Context
from yurt.http.cluster import CLUSTER, LoneServer
from yurt.http.dispatcher import IS_AUDITED, has_effect_on_get, is_socket
from yurt.http.edge.browsers import policy_of, refusal
from yurt.http.edge.client_errors import STRANGERS, ClientErrorReporter
from yurt.http.edge.followed import FOLLOWED, FollowedStreams
from yurt.http.edge.hosts import HostPolicy
from yurt.http.edge.protocol import ApiProtocol, HalfSent
from yurt.http.edge.task_sockets import is_task_api
from yurt.http.errors import NoServer, NotLed, headers_of, public_error
from yurt.http.forwarding.at_leader import LEADER_FORWARDING, LeaderForwarding, ServerApis
from yurt.http.forwarding.regions import OtherRegion, answer_from, requested_region
from yurt.http.forwarding_headers import NOT_LEADING
from yurt.http.leases import OpenLeases
from yurt.http.node_routes import check_node_route
from yurt.http.pieces import CachedResponse, PiecesBody
from yurt.http.plain_reads.fast_path import FAST_PATH, FastPath
from yurt.http.plain_reads.response_headers import COMPRESS_MIN, accepts_gzip, complete_headers, count_response
from yurt.http.route_table import add_all_routes
from yurt.runtime.env import Env, RealEnv
from yurt.runtime.metrics import Metrics
from yurt.sdk.errors import Reason, YurtError

if TYPE_CHECKING:
    from yurt.audit.trail import AuditTrail
    from yurt.client.client import Client
    from yurt.http.api_port import ApiPort
    from yurt.server.backends import HttpBackend

log = logging.getLogger(__name__)

BODY_MAX = 8 * 1024 * 1024
PARSERS_MAX = 2
BLOCKING_MAX = 10_000
"""Blocking queries that may wait at once; each costs about 9 KiB."""
PLAIN_BODY = {hdrs.CONTENT_ENCODING: "identity", hdrs.TRANSFER_ENCODING: "chunked"}
"""Permitted codings of request bodies: requests are never decompressed here."""
READER_LEFT = 499
"""The status of an answer that nobody reads; it appears only in the log."""
INTERNAL = "Internal error: the agent's log says what went wrong"
BROKEN_BODY = "Request body cannot be read: its length or its chunks are wrong"
LATE_BODY = "Request body did not come in time"

POLICY: web.AppKey[HostPolicy] = web.AppKey("yurt_policy", HostPolicy)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(
    server: HttpBackend | None,
    client: Client | None,
    agent: AgentInfo,
    *,
    env: Env | None = None,
    servers: ApiPort | None = None,
    others: ServerApis | None = None,
) -> web.Application:
    """The application; the server and client may still be starting. Without a server, `servers` answer.

    A server with `others` passes on what only the leader answers.
    """
    app = web.Application(client_max_size=BODY_MAX, middlewares=[_paced, _compression, _over_socket, _gate, _errors])
    env = env or RealEnv()
    metrics = server.metrics if server is not None else Metrics()
    app[CONTEXT] = Context(
        server=server,
        client=client,
        agent=agent,
        env=env,
        parsers=asyncio.Semaphore(PARSERS_MAX),
        waiters=asyncio.Semaphore(BLOCKING_MAX),
        restores=asyncio.Lock(),
        leases=OpenLeases(env),
        followed=FollowedStreams(env),
        metrics=metrics,
        policy_reads=asyncio.Lock(),
        texts=RowTexts(now_s=env.monotonic),
        servers=servers,
    )
    if server is not None:
        app[LEADER_FORWARDING] = LeaderForwarding(server, others)
        app[CLUSTER] = LoneServer(agent)
        app[FAST_PATH] = FastPath(app, app[CONTEXT], server)
    app[AUTHORITY] = authority_of(server, agent)
    app[POLICY] = policy_of(agent)
    app[FILES] = {}
    app[STRANGERS] = ClientErrorReporter(metrics)
    add_all_routes(app)
    app.on_response_prepare.append(_add_headers)
    return app


def add_audit(app: web.Application, trail: AuditTrail) -> None:
    """Record requests, refused ones included; the maker of the trail runs it."""
    from yurt.http.audit import AUDIT, audited, note_answer

    app[AUDIT] = trail
    app[IS_AUDITED] = True
    app.middlewares.insert(app.middlewares.index(_gate), audited)
    app.on_response_prepare.append(note_answer)


def authority_of(server: HttpBackend | None, agent: AgentInfo) -> Authority:
    """The authority that decides about requests: tokens and policies with access control.

    An agent without a server has neither. With access control on it allows nobody anything: what a server can answer
    is passed on to one, which decides; requests about this agent alone are refused.
    """
    if server is None:
        return ALLOW_NOBODY if agent.acl_enabled else ALLOW_ALL
    return server.authority


@web.middleware
async def _paced(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Tell the connection which part of a request it waits for, and let it learn what its next one may skip."""
    protocol = request.protocol
    if not isinstance(protocol, ApiProtocol):
        return await handler(request)
    protocol.begin(request.content)
    try:
        response = await handler(request)
        if (fast_path := request.app.get(FAST_PATH)) is not None:
            fast_path.learn(protocol, request, response)
        return response
    finally:
        protocol.finish()


@web.middleware
async def _over_socket(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Refuse by closing the websocket that a request asks for; pages of foreign sites get none."""
    if hdrs.UPGRADE not in request.headers or not is_socket(request) or _page_problem(request):
        return await handler(request)
    from yurt.http.websockets import answer_over_socket  # an idle agent answers over none

    return await answer_over_socket(request, handler)


def _page_problem(request: web.Request) -> str:
    """Why a request is refused as that of a foreign site's page; "" where it is not."""
    if is_task_api(request):  # no browser reaches it, and any host name will do
        return ""
    why = refusal(request, request.app[POLICY], has_effect=has_effect_on_get(request))
    return why or session_problem(request)


@web.middleware
async def _gate(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Refuse requests of foreign sites and compressed request bodies."""
    if why := _page_problem(request):
        request.app[STRANGERS].refuse_page(request.remote or "", why)
        return web.Response(status=403, text=why)
    for name, plain in PLAIN_BODY.items():
        coding = request.headers.get(name)
        if coding not in (None, plain) and (coding := coding.strip().lower()) != plain:
            request.app[STRANGERS].refuse_request(request.remote or "", f"its body has {name} {coding}")
            return web.Response(status=400, text=f"{name} may only be {plain}: send the body as it is")
    return await handler(request)


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    BEGUN.set([])
    try:
        if is_task_api(request) and (refused := await _refused_task(request)) is not None:
            return refused
        if "//" in request.raw_path and (cleaned := _cleaned_path(request)):
            return _moved(request, cleaned)
        return await _to_its_end(request, handler)
    except YurtError as error:
        headers = headers_of(error) | ({NOT_LEADING: "true"} if isinstance(error, NotLed) else {})
        return _broken_off(request, error) or web.Response(status=error.status, text=str(error), headers=headers)
    except web.HTTPRequestEntityTooLarge:
        return web.Response(status=413, text=f"Request body is too large: the limit is {BODY_MAX} bytes")
    except web.RequestPayloadError as error:
        if _is_disconnected(request):
            return web.Response(status=READER_LEFT)
        return _broken_off(request, error) or _unread_body(request, error)
    except web.HTTPNotFound:
        return web.Response(status=404)
    except web.HTTPRedirection:
        raise
    except web.HTTPException as error:
        return web.Response(status=error.status, text=error.reason)
    except Exception as error:
        if isinstance(error, ConnectionError) and _is_disconnected(request):
            return web.Response(status=READER_LEFT)
        log.exception("request failed: method=%s path=%s", request.method, request.path)
        shown = public_error(error) or YurtError(INTERNAL, reason=Reason.INTERNAL)
        answer = web.Response(status=shown.status, text=str(shown), headers=headers_of(shown))
        return _broken_off(request, error) or answer


def _cleaned_path(request: web.Request) -> str:
    """The path with its query and without empty segments; "" where there are none."""
    path, mark, query = request.raw_path.partition("?")
    cleaned = re.sub("//+", "/", path)
    return "" if cleaned == path or "://" in path else f"{cleaned}{mark}{query}"


def _moved(request: web.Request, path: str) -> web.Response:
    """Send a read to the path without empty segments, as Nomad does with every request.

    A write that is sent on becomes a read for most clients, and the path without its empty id may name another object.
    """
    if request.method in ("GET", "HEAD"):
        # A browser reads a backslash as a slash: behind the first one, it would go to the host that the path names.
        return web.Response(status=301, headers={"Location": path.replace("\\", "%5C")})
    return web.Response(status=400, text=f"The path has an empty segment; is {path} meant, or is an id missing?")


async def _refused_task(request: web.Request) -> web.Response | None:
    """The answer to a task that shows no valid token; imported with the first request over a task's socket."""
    from yurt.http.task_api import refusal_of_task

    return await refusal_of_task(request)


def _unread_body(request: web.Request, error: web.RequestPayloadError) -> web.Response:
    """The answer to a request whose body was incomplete."""
    if isinstance(error, HalfSent):
        answer = web.Response(status=408, text=LATE_BODY)
    else:
        request.app[STRANGERS].refuse_request(request.remote or "", "its body cannot be read")
        answer = web.Response(status=400, text=BROKEN_BODY)
    answer.force_close()
    return answer


def _broken_off(request: web.Request, error: Exception) -> web.StreamResponse | None:
    """End a started response without its last chunk, so that its reader sees that it is incomplete."""
    response = next(iter(BEGUN.get()), None)
    if response is not None and request.transport is not None:
        log.info("answer ended early: method=%s path=%s error=%s", request.method, request.path, error)
        request.transport.close()
    return response


async def _to_its_end(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """The answer; a followed stream ends with its last chunk when the agent stops."""
    followed = request.app[CONTEXT].followed
    try:
        return await _where_it_belongs(request, handler)
    except asyncio.CancelledError:
        if not any(map(followed.ends, BEGUN.get())):
            raise
        return await followed.finish(request, BEGUN.get()[0])
    finally:
        for response in BEGUN.get():
            followed.forget(response)


async def _where_it_belongs(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer in this region, or forward the request to its region."""
    check_node_route(request)
    context = request.app[CONTEXT]
    try:
        authority = context.server.config.authoritative_region if context.server is not None else ""
        region = requested_region(request, authority)
        if region not in ("", context.agent.region):
            raise OtherRegion(region)
        return await _in_region(request, handler)
    except OtherRegion as other:
        if context.server is not None:
            return await answer_from(request, other)
        if context.servers is None:
            raise
    from yurt.http.forwarding.forward import forward

    return await forward(request, context.servers)


async def _in_region(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer here, or forward the request to a server that can answer."""
    app = request.app
    if LEADER_FORWARDING in app:
        started = BEGUN.get()
        return await app[LEADER_FORWARDING].answer(request, handler, lambda: bool(started))
    servers = app[CONTEXT].servers
    try:
        return await handler(request)
    except NoServer:
        if servers is None:
            raise
    from yurt.http.forwarding.forward import forward

    return await forward(request, servers)


def _is_disconnected(request: web.Request) -> bool:
    """Whether the caller has closed the connection, which is how a stream normally ends."""
    return request.transport is None or request.transport.is_closing()


@web.middleware
async def _compression(request: web.Request, handler: _Handler) -> web.StreamResponse:
    response = await handler(request)
    is_plain = isinstance(response, web.Response) and hdrs.CONTENT_ENCODING not in response.headers
    if isinstance(response, web.Response) and is_plain and not response.prepared:
        response.headers[hdrs.VARY] = hdrs.ACCEPT_ENCODING
        if not accepts_gzip(request.headers):
            return response
        match response.body:
            case bytes() as body if len(body) < COMPRESS_MIN:
                pass
            case PiecesBody() | bytes() as body if isinstance(response, CachedResponse):
                response.uncompressed = body
                response.body = await request.app[CONTEXT].zipped.zipped(body)
                response.headers[hdrs.CONTENT_ENCODING] = web.ContentCoding.gzip.value
            case PiecesBody() as body:
                response.body = await body.zipped()
                response.headers[hdrs.CONTENT_ENCODING] = web.ContentCoding.gzip.value
            case bytes():
                response.enable_compression(web.ContentCoding.gzip)
    return response


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    if (started := BEGUN.get(None)) is not None:
        started.append(response)
    context = request.app[CONTEXT]
    if not isinstance(response, web.Response) and FOLLOWED in response.headers:
        context.followed.begin(response)
    count_response(context.metrics, response.status)
    complete_headers(request, response, context.agent.response_headers)
