"""The definition of a route: a path, its methods, a handler, its need, and which agent answers it.

Everything that is known of a route stands in its declaration, in a module of `yurt.http.declarations`. `needs` has no
default: a declaration without it does not import. A need that depends on a namespace, a node pool or a variable's path
also says where that comes from (`scope`):

- `QUERY`: the `namespace` parameter, together with the path's parameters, names the object or limits the list. The
  dispatcher decides before the body is read.
- `ROW`: the path names an object by its id. Its namespace is the one of its row, never the one of the query: the
  dispatcher lets through who may do this somewhere, and the view decides about the row.
- `BODY`: the body names the object; the operation decides.

An agent answers few of its routes. The declarations (`yurt.http.declarations`) are imported with the agent; a module of
handlers is imported with the first request of its resource, once the dispatcher has let that request through, and in a
thread: an import takes 5 to 30 ms, for which the event loop would answer nobody else. A declaration names its handler
as an attribute of the module; type checkers see the module itself:

    if TYPE_CHECKING:
        from yurt.http.resources import nodes
    else:
        nodes = handlers_of("yurt.http.resources.nodes")

    ROUTES = (routes.get("/v1/nodes", nodes.list_nodes, needs=needs.NODE_READ),)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec
from aiohttp import web

from yurt.access.needs import Anonymous, Need, is_scoped
from yurt.http.query import INDEX_ERROR

if TYPE_CHECKING:
    from yurt.http.call import Call

Handler = Callable[["Call"], Coroutine[Any, Any, web.StreamResponse]]

WRONG_METHOD = 405


class NamedHandler:
    """A handler by its module and name."""

    def __init__(self, home: HandlerModule, name: str) -> None:
        self.home = home
        self.name = name

    def __call__(self, call: Call) -> Coroutine[Any, Any, web.StreamResponse]:
        """Answer, as the handler does."""
        if "function" not in self.__dict__:
            return self._first_answer(call)
        return self.function(call)

    def __repr__(self) -> str:
        return f"{self.home.module}.{self.name}"

    @cached_property
    def function(self) -> Handler:
        """The handler itself; imports its module."""
        handler: Handler = getattr(import_module(self.home.module), self.name)
        return handler

    async def _first_answer(self, call: Call) -> web.StreamResponse:
        if not self.home.is_imported:
            await call.context.env.in_thread(import_handlers, self.home)
        return await self.function(call)


class HandlerModule:
    """A module of handlers whose attributes are their names. A method here would take the place of a handler."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.is_imported = False
        """Whether a thread has imported it. `sys.modules` has it from the beginning of its import, and a second request
        that looked there would wait for the first one's import in the event loop."""

    def __getattr__(self, name: str) -> NamedHandler:
        return NamedHandler(self, name)


def handlers_of(module: str) -> HandlerModule:
    """The handlers of a module, which is not imported yet."""
    return HandlerModule(module)


def import_handlers(home: HandlerModule) -> None:
    """Import a module of handlers; blocks for milliseconds."""
    import_module(home.module)
    home.is_imported = True


def function_of(handler: Handler) -> Handler:
    """The function that answers, for code that reads it."""
    return handler.function if isinstance(handler, NamedHandler) else handler


class ScopeFrom(StrEnum):
    """Where a request names the namespace, node pool or path to which its need applies."""

    QUERY = "query"
    ROW = "row"
    BODY = "body"


QUERY, ROW, BODY = ScopeFrom.QUERY, ScopeFrom.ROW, ScopeFrom.BODY


class AnsweredBy(StrEnum):
    """Which agent answers a request."""

    LEADER = "leader"
    """The server that leads; a read that may be stale is answered by any server."""
    SERVER = "server"
    """Any server, once its state is as new as the leader's was when the request came."""
    AGENT = "agent"
    """The agent that the request reached."""
    NODE = "node"
    """The agent of the request's node, found by the agent that received the request."""


SERVER, AGENT, NODE = AnsweredBy.SERVER, AnsweredBy.AGENT, AnsweredBy.NODE
BY_STATE = (AnsweredBy.LEADER, AnsweredBy.SERVER)
"""Answered from the newest state, unless a read may be stale."""


class Facts(TypedDict, total=False):
    """Optional facts of a route's declaration."""

    scope: ScopeFrom | None
    answered_by: AnsweredBy
    from_nodes: bool
    has_effect_on_get: bool
    is_stream: bool
    is_socket: bool
    wrong_method: int
    cors: bool
    index_error: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One declaration; `path` is in aiohttp's pattern language."""

    methods: tuple[str, ...]
    path: str
    handler: Handler
    needs: Need
    scope: ScopeFrom | None = None
    answered_by: AnsweredBy = AnsweredBy.LEADER
    from_nodes: bool = False
    """The connection of a node carries it, for users of that agent's API (`yurt.http.node_routes`)."""
    has_effect_on_get: bool = False
    """GET changes something, as Nomad's SDKs expect it; browsers are refused (`yurt.http.edge.browsers`)."""
    is_stream: bool = False
    """The answer to GET is a websocket, or is written as long as its reader stays: the audit log has a line when it
    begins too."""
    is_socket: bool = False
    """It answers over a websocket, and refuses by closing it (`yurt.http.websockets`)."""
    wrong_method: int = WRONG_METHOD
    """The status for a method that no route of the path takes."""
    cors: bool = False
    """HEAD and OPTIONS are answered too, for pages of the origins to which the operator has opened reads."""
    index_error: str = INDEX_ERROR
    """The text of the answer to an `index` that is not a number."""

    is_anonymous: bool = False
    """Whether anybody may ask: follows from `needs`, whatever is given here."""

    def __post_init__(self) -> None:
        """A declaration that contradicts itself does not import."""
        msgspec.structs.force_setattr(self, "is_anonymous", isinstance(self.needs, Anonymous))
        if not isinstance(self.needs, Need):
            raise TypeError(f"{self.path}: needs= is a need of yurt.access.needs, not {self.needs!r}")
        if is_scoped(self.needs) != (self.scope is not None):
            rule = "needs scope=QUERY, ROW or BODY" if self.scope is None else "takes no scope="
            raise TypeError(f"{self.path}: {self.needs!r} {rule}")


def get(path: str, handler: Handler, *, needs: Need, **facts: Unpack[Facts]) -> Route:
    """A route of GET."""
    return Route(methods=("GET",), path=path, handler=handler, needs=needs, **facts)


def write(path: str, handler: Handler, *, needs: Need, **facts: Unpack[Facts]) -> Route:
    """A route of PUT and POST, which are equal."""
    return Route(methods=("PUT", "POST"), path=path, handler=handler, needs=needs, **facts)


def put(path: str, handler: Handler, *, needs: Need, **facts: Unpack[Facts]) -> Route:
    """A route of PUT alone."""
    return Route(methods=("PUT",), path=path, handler=handler, needs=needs, **facts)


def delete(path: str, handler: Handler, *, needs: Need, **facts: Unpack[Facts]) -> Route:
    """A route of DELETE."""
    return Route(methods=("DELETE",), path=path, handler=handler, needs=needs, **facts)


def any_method(path: str, handler: Handler, *, needs: Need, **facts: Unpack[Facts]) -> Route:
    """A route that handles every method in the same way."""
    return Route(methods=("GET", "PUT", "POST", "DELETE"), path=path, handler=handler, needs=needs, **facts)
