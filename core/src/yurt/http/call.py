"""One HTTP request on its way through a route: its agent, its parameters, and how answers are written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec
from aiohttp import web

from yurt.access import Access, Actor, Authority, Caller, Scope
from yurt.access.authority import ALLOW_ALL
from yurt.api.decode import check_size, decode_json, decode_value
from yurt.api.encode import encode_json
from yurt.api.row_texts import RowTexts
from yurt.http.agent_info import AgentInfo
from yurt.http.answer_cache import AnswerCache, DerivedIndexes
from yurt.http.authentication import actor_of, connection_of, origin_of, origin_over, shown_secret, token_text
from yurt.http.cluster import CLUSTER, Cluster
from yurt.http.edge.followed import FollowedStreams
from yurt.http.errors import NoServer, Refused
from yurt.http.forwarding_headers import ORIGIN
from yurt.http.leases import Lease, OpenLeases
from yurt.http.pieces import ZippedTexts
from yurt.http.query import ReadOptions
from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics
from yurt.runtime.turns import Turns
from yurt.sdk.errors import Unavailable
from yurt.server.failures import no_leader
from yurt.server.operations import Operations
from yurt.server.server_status import ServerFacts
from yurt.server.views import View
from yurt.structs.plugins import PluginReloaded

if TYPE_CHECKING:
    from yurt.client.client import Client
    from yurt.http.api_port import ApiPort
    from yurt.server.backends import HttpBackend
    from yurt.server.config import ServerConfig
    from yurt.server.keys.callers import Callers
    from yurt.server.keys.last_secret import LastSecret
    from yurt.server.operations.explanations import Explanations
    from yurt.server.ports import NodePort
    from yurt.server.views import Rows
    from yurt.server.views.events import EventFilter, Subscription
    from yurt.state.store import Snapshot
    from yurt.state.watch import WatchKey

T = TypeVar("T", bound=msgspec.Struct)

_WAITING: Final = ("index=", "wait=")
STATE_AGE_MAX_S: Final = 30.0
"""How long a stream of changes may be open on a server that does not hear of them, as for tokens (`acl.token_ttl`)."""
LARGE_BODY: Final = 64 * 1024
"""Bytes of a body that are read and decoded in 20 ms at most."""


class Context(msgspec.Struct, frozen=True):
    """What all routes share."""

    server: HttpBackend | None
    client: Client | None
    agent: AgentInfo
    env: Env
    parsers: asyncio.Semaphore
    waiters: asyncio.Semaphore
    restores: asyncio.Lock
    """Held while a snapshot is restored."""
    leases: OpenLeases
    followed: FollowedStreams
    metrics: Metrics
    """Of the server, or of the HTTP API alone."""
    policy_reads: asyncio.Lock
    """Held while long policies are read in a thread, so that one thread is enough for many requests of a caller."""
    texts: RowTexts = msgspec.field(default_factory=RowTexts)
    answers: AnswerCache = msgspec.field(default_factory=AnswerCache)
    derived: DerivedIndexes = msgspec.field(default_factory=DerivedIndexes)
    zipped: ZippedTexts = msgspec.field(default_factory=ZippedTexts)
    servers: ApiPort | None = None
    """How an agent without a server reaches those that have one."""


BEGUN: ContextVar[list[web.StreamResponse]] = ContextVar("answers that have begun")
"""The answer of the request that is being carried out, once the answer has begun."""
CONTEXT: web.AppKey[Context] = web.AppKey("yurt_context", Context)
SHOWN: web.RequestKey[tuple[str, ...]] = web.RequestKey("yurt_shown", tuple)
"""The tables from which, with the caller's rights, the answer of a request follows (`shows_only`)."""
AUTHORITY: web.AppKey[Authority] = web.AppKey("yurt_authority")
"""The authority that decides about requests."""


class RightsSource(Protocol):
    """The source of callers' rights for an agent without a state."""

    def caller(self, token: str) -> Caller:
        """The caller that this text identifies."""
        ...

    async def learn(self, actor: Actor, token: str, *, is_refused: bool = False) -> None:
        """Give the authority the rights of the actor with this token; raises Unavailable.

        `is_refused`: the present state would refuse the actor, so it must not be old.
        """
        ...


RIGHTS: web.AppKey[RightsSource] = web.AppKey("yurt_rights_source")
"""Set on agents without a server, with access control."""


class PluginsPort(Protocol):
    """What an agent with a client offers."""

    def rows(self) -> list[Mapping[str, Any]]:
        """The plugins."""
        ...

    async def reload(self, name: str) -> PluginReloaded:
        """Reload the code of a plugin."""
        ...


FILES: web.AppKey[dict[str, object]] = web.AppKey("yurt_ui_files", dict)
"""The files of the web UI (`yurt.http.ui_routes.shell`), once a page was asked for."""
PLUGINS: web.AppKey[PluginsPort] = web.AppKey("yurt_plugins", PluginsPort)
RELOAD: web.AppKey[Callable[[], None]] = web.AppKey("yurt_reload")
"""Rereads and applies the configuration; raises the error that prevents it. Unset without a configuration file."""


class Call(msgspec.Struct, eq=False):
    """One request with its read options."""

    request: web.Request
    context: Context
    options: ReadOptions
    access: Access
    """The caller and the rights of the request."""
    scope: Scope
    """The scope in which the route's need was checked before the handler began."""
    lease: Lease
    """What the request may stay open for; a handler adds the row that it concerns."""

    @property
    def actor(self) -> Actor:
        """The caller."""
        return self.access.actor

    @property
    def server(self) -> HttpBackend:
        """The server in this agent; raises NoServer on an agent without one, which passes the request on."""
        self.need_server()
        assert self.context.server is not None
        return self.context.server

    def need_server(self) -> None:
        """Forward the request to an agent with a server when this one has none."""
        if self.context.server is None:
            raise NoServer("No known servers: this agent runs no server")

    def need_acl(self) -> None:
        """Raises Refused (400) while access control is off."""
        if not self.settings.acl.enabled:
            raise Refused(400, "ACL support disabled")

    @property
    def cluster(self) -> Cluster:
        """The servers as a whole; raises NoServer as `server` does."""
        self.need_server()
        return self.request.app[CLUSTER]

    @property
    def client(self) -> Client | None:
        """The client in this agent, or None."""
        return self.context.client

    @property
    def agent(self) -> AgentInfo:
        """Facts of this agent."""
        return self.context.agent

    @property
    def query(self) -> Any:
        """All query parameters."""
        return self.request.query

    @property
    def target(self) -> str:
        """The path and the query, without the parameters of waiting."""
        path, mark, query = self.request.raw_path.partition("?")
        if not self.options.index:
            return path + mark + query
        return path + mark + "&".join(each for each in query.split("&") if not each.startswith(_WAITING))

    def part(self, name: str) -> str:
        """A part of the path."""
        return self.request.match_info[name]

    async def document(self, *, optional: bool = False) -> Any:
        """The JSON body; None when it is empty and optional."""
        raw = await self.request.read()
        if not raw.strip():
            if optional:
                return None
            raise Refused(400, "Request body is empty")
        check_size(raw)
        return await self.context.env.in_thread(decode_json, raw) if len(raw) > LARGE_BODY else decode_json(raw)

    @property
    def has_large_body(self) -> bool:
        """Whether the body is large enough to be decoded in a thread, which leaves the event loop to others."""
        length = self.request.content_length
        return length is None or length > LARGE_BODY

    async def body(self, cls: type[T], *, optional: bool = False) -> T:
        """The JSON body as a struct; the struct's defaults when it is optional, and empty or null."""
        data = await self.document(optional=optional)
        return decode_value({} if data is None and optional else data, cls, name=cls.__name__.removesuffix("Body"))[0]

    @property
    def settings(self) -> ServerConfig:
        """The settings of the server in this agent."""
        return self.server.config

    @property
    def server_facts(self) -> ServerFacts:
        """Facts about the server in this agent; raises NoServer as `server` does."""
        return self.server.facts

    @property
    def turns(self) -> Turns:
        """Lets other requests through between the slices of a long look at the state."""
        return self.server.replica.turns

    def view(self) -> View:
        """The newest state as the caller may see it; raises as `read_state` does."""
        return View(self.read_state(), self.access)

    def known_view(self) -> View:
        """This server's state, with or without a leader: for requests that a node answers, wherever they arrive."""
        return View(self.server.replica.state, self.access)

    def subscription(self, event_filter: EventFilter) -> Subscription:
        """The caller's subscription to changes on this server, which leads or follows (`routes.AnsweredBy.SERVER`).

        Raises PermissionDenied for a topic, and Unavailable while the state is not loaded.
        """
        from yurt.server.views.events import Subscription

        self.server.loader.need_state()
        namespaces = tuple(self.server.replica.state.namespaces.keys())
        return Subscription(self.server.events, self.access, event_filter, namespaces)

    def node_port(self, node_id: str) -> NodePort:
        """The port of a node, reached directly or through another server; raises NotFound or Unavailable."""
        return self.server.node_ports.find(node_id)

    @property
    def has_server(self) -> bool:
        """This agent runs a server."""
        return self.context.server is not None

    @property
    def operations(self) -> Operations:
        """The operations permitted to the caller."""
        return Operations(self.server.operation_dependencies, self.access)

    @property
    def explanations(self) -> Explanations:
        """Explanations on the newest state; raises as `read_state` does."""
        return self.operations.explanations(self.read_state())

    def need_state(self) -> None:
        """Raises Unavailable without a leader, unless stale reads are allowed, or while the state is not loaded."""
        server = self.server
        if not server.leader.is_local and not self.options.stale:
            raise no_leader()
        server.loader.need_state()

    def read_state(self) -> Snapshot:
        """The state for a consistent read; raises as `need_state` does."""
        self.need_state()
        return self.server.replica.state


def has_loaded_state(call: Call) -> bool:
    """Whether this agent's server has read its state; False for an agent without one."""
    return call.has_server and call.server.loader.is_restored


def need_loaded_state(call: Call) -> None:
    """Raises Unavailable until this agent's server has read its state."""
    call.server.loader.need_state()


def loaded_view(call: Call) -> View:
    """As `Call.known_view`; raises Unavailable until the state is loaded: a server that reads its log knows too little
    to call anything unknown.
    """
    need_loaded_state(call)
    return call.known_view()


def need_recent_state(call: Call) -> None:
    """Raises Unavailable on a server that has been cut off for longer than `STATE_AGE_MAX_S`.

    A stream of changes checks this while it is open: there it would be silent, as if nothing happened. With `stale` the
    reader accepts an old state, and the stream stays open.
    """
    leader = call.server.leader
    if call.options.stale or not leader.is_confirmed_by_others or leader.state_age_s <= STATE_AGE_MAX_S:
        return
    raise Unavailable(
        f"this server has not had the leader's state for more than {STATE_AGE_MAX_S:.0f} s: ask another server"
    )


def is_shown_again(callers: Callers, request: web.Request, last: LastSecret) -> bool:
    """Whether the request shows the last secret of its connection, and no other agent passes it on."""
    return ORIGIN not in request.headers and callers.is_shown_again(last, shown_secret(request))


async def identified(context: Context, request: web.Request) -> Actor:
    """The actor of a request, by a server that knows keys and nodes; elsewhere only by the request itself."""
    source = request.app.get(RIGHTS)
    if source is not None:
        return Actor(caller=source.caller(token_text(request)), origin=origin_of(request))
    if request.app[AUTHORITY] is ALLOW_ALL:
        return Actor(origin=origin_of(request))  # nobody looks the token up
    callers = context.server.callers if context.server is not None else None
    if callers is None:
        return actor_of(request)
    connection = connection_of(request)
    last = None if connection is None else connection.last_secret
    if last is not None and is_shown_again(callers, request, last):
        return last.actor
    token, origin = token_text(request), origin_over(connection, request)
    caller = callers.secret(token)
    if caller is None:
        return Actor(caller=await callers.shown(token), origin=origin)
    actor = Actor(caller=caller, origin=origin)
    if connection is not None and ORIGIN not in request.headers:
        connection.last_secret = callers.last_secret(token, actor)
    return actor


async def prepare_rights(request: web.Request, actor: Actor) -> None:
    """Let the authority read what it needs to decide about the actor, outside the event loop where that takes long.

    Raises Unavailable where a server has to tell it, and none answers.
    """
    app = request.app
    context, authority, source = app[CONTEXT], app[AUTHORITY], app.get(RIGHTS)
    if source is not None:
        await source.learn(actor, token_text(request))
    if authority.preparation(actor) is not None:
        await _prepare(context, authority, actor)


async def _prepare(context: Context, authority: Authority, actor: Actor) -> None:
    async with context.policy_reads:
        work = authority.preparation(actor)  # another request may have done it meanwhile
        if work is not None:
            keep = await context.env.in_thread(work)
            keep()


def json_answer(call: Call, value: Any, *, index: int | None = None, status: int = 200) -> web.Response:
    """A JSON answer; writes tell the index at which they were stored."""
    headers = {} if index is None else {"X-Nomad-Index": str(index)}
    body = encode_json(value, pretty=call.options.pretty)
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def empty_answer(*, index: int | None = None) -> web.Response:
    """An empty answer with the status, as Nomad answers where there is no content."""
    return web.Response(headers={} if index is None else {"X-Nomad-Index": str(index)})


def read_headers(call: Call, index: int) -> dict[str, str]:
    """The headers of every read."""
    return {
        "X-Nomad-Index": str(index),
        **leader_headers(call.context),
    }


def leader_headers(context: Context) -> dict[str, str]:
    """Headers of every read about the leader: whether there is one, and the milliseconds since it was last heard."""
    server = context.server
    return {
        "X-Nomad-KnownLeader": "true" if server is not None and server.leader.name else "false",
        "X-Nomad-LastContact": str(round(server.leader.last_contact_s * 1000)) if server is not None else "0",
    }


def read_answer(call: Call, value: Any, index: int, *, next_token: str = "") -> web.Response:
    """A JSON answer of a read."""
    response = json_answer(call, value)
    response.headers.update(read_headers(call, index))
    if next_token:
        response.headers["X-Nomad-NextToken"] = next_token
    return response


async def changed_state(
    call: Call, keys: Iterable[WatchKey], index_of: Callable[[Snapshot], int]
) -> tuple[Snapshot, int]:
    """The state to answer from, and its index: at once, or for a blocking query when the index passed the given one."""
    state = call.read_state()
    options = call.options
    if options.index > 0:
        waiters = call.context.waiters
        if waiters.locked():
            raise Refused(429, "Too many blocking queries wait already: try again later, or ask without an index")
        timeout_s = options.wait_s * (1 + call.context.env.random() / 16)
        async with waiters:
            call.lease.suspend()
            state = await call.server.replica.wait_past(keys, index_of, min_index=options.index, timeout_s=timeout_s)
            call.lease.resume()
    return state, index_of(state)


def shows_only(call: Call, kinds: Iterable[type[Rows[Any, Any]]]) -> None:
    """Declare that the answer follows from the rows of these kinds, the path, the query and the caller's rights.

    And from nothing else: it is sent again to equal requests until such a row changes. Who leads counts as known,
    because only a leader sends it again. The last declaration counts, so that a handler can add kinds to those of the
    list that it answers with.
    """
    call.request[SHOWN] = tuple([kind.name for kind in kinds])


def object_missing(call: Call, text: str, index: int) -> web.Response:
    """404 with the headers of a read, so that a blocking query can wait for the object: its index is never 0."""
    return web.Response(status=404, text=text, headers=read_headers(call, max(index, 1)))
