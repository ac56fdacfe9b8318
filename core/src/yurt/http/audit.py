"""The audit log's view of a request: the recorded fields, and the time of recording.

The middleware makes a record for each request; the dispatcher tells it the route, the caller and the decisions; what
comes of the request ends it. A line says what an agent has decided, so an agent that passes a request on writes none.
A request that changes something, and one that opens a stream, has a line before its handler begins, so that where
delivery is enforced nothing happens that the log does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from yurt.access import Actor, Authority, Identity, ObjectName, Trace
from yurt.http.authentication import actor_of, token_text
from yurt.http.call import AUTHORITY, CONTEXT, identified
from yurt.http.dispatcher import RECORD
from yurt.http.errors import headers_of
from yurt.http.routes import Route
from yurt.sdk.errors import ERROR_HEADER, NO_ERROR, Unavailable, YurtError, reason_of_status

if TYPE_CHECKING:
    from yurt.audit.events import AuditedRequest, AuditedResponse, EncodedRequest
    from yurt.audit.trail import AuditTrail

AUDIT: web.AppKey[AuditTrail] = web.AppKey("yurt_audit")
READS: Final = ("GET", "HEAD", "OPTIONS")
REFUSED: Final = (401, 403)
ERROR_OF_OURS: Final = 500
READER_LEFT: Final = 499
"""The status in the record of a request whose handler was cancelled."""
_PARAMETER: Final = re.compile(r"\{(\w+)")
_KINDS: Final = {
    "client/allocation": "allocation",
    **{f"client/fs/{name}": "allocation" for name in ("ls", "stat", "cat", "readat", "stream", "logs")},
    **{f"deployment/{name}": "deployment" for name in ("fail", "pause", "promote", "allocation-health")},
    "var": "variable",
    "volume/csi": "volume",
    "volume/host": "volume",
    "volumes/claim": "volume/claim",
    "operator/keyring/key": "keyring/key",
    "acl/role/name": "acl/role",
}
"""Kinds of objects whose paths begin with another word."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def audited(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Record a request, whatever its outcome."""
    record = request[RECORD] = AuditRecord(request.app[AUDIT], request)
    try:
        response = await handler(request)
    except BaseException as error:
        record.abandon(error.status if isinstance(error, web.HTTPException) else READER_LEFT)
        raise
    return await record.complete(response)


async def note_answer(request: web.Request, response: web.StreamResponse) -> None:
    """Keep the answer that begins: a reader that leaves it ends the request without one."""
    record = request.get(RECORD)
    if isinstance(record, AuditRecord):
        record.response = response


async def _actor_of(request: web.Request) -> Actor:
    """The actor of a request that was refused before its caller was identified."""
    try:
        return await identified(request.app[CONTEXT], request)
    except YurtError:
        return actor_of(request)


class AuditRecord:
    """The facts recorded about one request."""

    def __init__(self, trail: AuditTrail, request: web.Request) -> None:
        self._trail = trail
        self._request = request
        self._since_s = trail.env.monotonic()
        self._id = trail.env.uuid()
        self._route: Route | None = None
        self._actor: Actor | None = None
        self._identity: Identity | None = None
        self._namespace = ""
        self._is_received = False
        self._shown: tuple[tuple[object, ...], EncodedRequest] | None = None
        """The facts that the last line showed, and how."""
        self.response: web.StreamResponse | None = None
        """The answer, once it has begun."""
        self.trace = Trace()

    def decide(self, route: Route, actor: Actor, authority: Authority, namespace: str) -> None:
        """Record that this agent decides about the request; its caller may be identified later."""
        self._route = route
        self._actor = actor
        self._identity = authority.identify(actor)
        self._namespace = namespace

    async def begin(self) -> None:
        """Write the line that precedes a change or a stream, once; raises Unavailable."""
        from yurt.audit.settings import RECEIVED

        route = self._route
        assert route is not None, "a request begins after the decision about it"
        is_read = self._request.method in READS and not route.has_effect_on_get and not route.is_stream
        if is_read or self._is_received:
            return
        self._is_received = True
        data = self._line(RECEIVED, None)
        if data:
            try:
                await self._trail.write(data)
            except Unavailable as error:
                self._is_received = False
                raise Unavailable(f"{error}: the request was not carried out") from None

    async def complete(self, response: web.StreamResponse) -> web.StreamResponse:
        """Write the last line, and answer; where it has to be written and cannot be, an answer that has not begun is
        replaced, unless the first line already describes the change.
        """
        if self._actor is None and response.status in REFUSED:
            self._actor = await _actor_of(self._request)
        data = self._last_line(response.status, response.headers.get(ERROR_HEADER, ""))
        if not data:
            return response
        try:
            await self._trail.write(data)
        except Unavailable as error:
            if not self._is_received and not response.prepared and response.status < ERROR_OF_OURS:
                return web.Response(status=error.status, text=str(error), headers=headers_of(error))
        return response

    def abandon(self, status: int) -> None:
        """Write the last line of a request whose caller no longer waits for an answer."""
        status = status if self.response is None else self.response.status
        if data := self._last_line(status, ""):
            self._trail.post(data)

    def _last_line(self, status: int, reason: str) -> bytes:
        """The line of a request that is over; b"" for one about which this agent has not decided."""
        from yurt.audit.events import AuditedResponse
        from yurt.audit.settings import COMPLETE

        if self._route is None and status not in REFUSED:
            return b""
        has_hidden = status == 404 and any(not made.is_allowed for made in self.trace.decisions)
        ended = AuditedResponse(
            status=status,
            is_refused=status in REFUSED or has_hidden,
            reason=reason or (reason_of_status(status) if status >= NO_ERROR else ""),
            duration_s=self._trail.env.monotonic() - self._since_s,
        )
        return self._line(COMPLETE, ended)

    def _line(self, stage: str, ended: AuditedResponse | None) -> bytes:
        from yurt.audit.events import line_of

        request, env = self._request, self._trail.env
        if self._trail.omits(request.method, stage, request.path):
            return b""
        return line_of(self._encoded(), event_id=env.uuid(), stage=stage, at_ns=env.now(), ended=ended)

    def _encoded(self) -> EncodedRequest:
        """The request as its lines show it, encoded again only after it decided or named something more."""
        from yurt.audit.events import cleaner, encode_request

        request, trace = self._request, self.trace
        facts = (self._route, self._actor, trace.object, len(trace.decisions), trace.omitted)
        if self._shown is None or self._shown[0] != facts:
            clean = cleaner(request.app[AUTHORITY].is_secret, token_text(request))
            self._shown = (facts, encode_request(self._audited_request(), clean))
        return self._shown[1]

    def _audited_request(self) -> AuditedRequest:
        from yurt.audit.events import AuditedRequest

        request = self._request
        actor = self._actor or actor_of(request)
        named = self.trace.object if self.trace.object.id else self._object()
        namespaces = (made.scope.namespace for made in reversed(self.trace.decisions))
        return AuditedRequest(
            id=self._id,
            operation=request.method,
            endpoint=request.path,
            route=self._route.path if self._route is not None else "",
            namespace=next((each for each in namespaces if each is not None), self._namespace),
            origin=actor.origin,
            identity=self._identity or request.app[AUTHORITY].identify(actor),
            object=named,
            decisions=tuple(self.trace.decisions),
            decisions_omitted=self.trace.omitted,
        )

    def _object(self) -> ObjectName:
        """The object that the path names."""
        path = self._route.path if self._route is not None else ""
        match = _PARAMETER.search(path)
        if match is None:
            return ObjectName()
        kind = path[: match.start()].removeprefix("/v1/").strip("/")
        return ObjectName(_KINDS.get(kind, kind), self._request.match_info.get(match[1], ""))
