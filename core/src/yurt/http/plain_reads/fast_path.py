"""The fast path: answers a repeated read over an open connection without aiohttp's request machinery.

Most requests are small reads that their client has sent before: an SDK asks again and again for a job, a node, its
allocations, with the same headers. Parsing such a head, its task, the middlewares, the router and the writing of the
headers cost several times what the answer itself costs. All of that follows from the bytes of the head, or from facts
that do not change while the agent runs. So a connection keeps the headers of its last plain read, and the application
the targets of plain reads; when both come again, byte by byte, the read is answered from what they led to.

**What is skipped** depends on the bytes of the request alone, and was done for the same bytes before: the parser, the
checks of browsers and of body codings (`app._gate`), the check of a node's route, the region, the router, the options
of the query. Only headers of `PLAIN_HEADERS` are known to have no other effect; others take the usual way.

**What is done for each request** is all that can change: whether this server leads, the caller and its rights
(`dispatcher.answered`, as for every request), the handler with the newest state, the metrics, the limits on connections
and on their idle time. An answer that follows from stored rows alone is kept until they change (`kept_answers`); no
decision is kept here.

**What goes the whole way**: everything that is not an answer 200 with a short body, made without waiting. That is found
out by trying: the answer is made in one step of its coroutine, and nothing is sent or counted before it is complete.
Where that fails, the same bytes take the usual way, so errors, refusals, blocking queries, forwarded requests and long
lists have one implementation. A refusal says nothing about the target, which stays known. One whose answer waits or is
no short 200 any more is forgotten, and one that fails in any other way, which would be a defect, is not tried again.
Requests that are recorded in the audit log or logged take the usual way, too, as do those of tasks' sockets, those with
a body, heads in several parts and those with others behind them. With other servers a consistent read waits until this
one is confirmed to lead, together with all others that came meanwhile (`confirmed_reads`).

Both memories are bounded: one head for each connection, and `TARGETS_MAX` targets in two halves. A caller who asks for
ever new targets can push out those of others, who pay for one request the whole way and are back. Only answers of 200
count, but routes that need no token give them to strangers too. A client with other headers in every request has no
use of it. Targets are kept apart for clients that accept compressed answers and for others, because an answer may be
short for one of them alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from hmac import compare_digest
from typing import Any, Final, TypeVar, cast

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE, HttpVersion11, RawRequestMessage
from aiohttp.http_writer import _serialize_headers
from aiohttp.streams import EMPTY_PAYLOAD
from multidict import CIMultiDictProxy

from yurt.http.authentication import shown_secret
from yurt.http.call import SHOWN, Context
from yurt.http.dispatcher import AT_ONCE, IS_AUDITED, answered, note
from yurt.http.edge.protocol import ApiProtocol
from yurt.http.pieces import CachedResponse
from yurt.http.plain_reads.confirmed_reads import ConfirmedReads
from yurt.http.plain_reads.kept_answers import KeptAnswers
from yurt.http.plain_reads.response_headers import COMPRESS_MIN, accepts_gzip, complete_headers, count_response
from yurt.http.plain_reads.target import Target
from yurt.http.routes import AnsweredBy
from yurt.sdk.errors import YurtError
from yurt.server.backends import HttpBackend

log = logging.getLogger(__name__)
T = TypeVar("T")

PLAIN_HEADERS: Final = frozenset(
    {
        "accept", "accept-encoding", "authorization", "connection", "content-type", "host", "user-agent",
        "x-nomad-token",
    }
)  # fmt: skip
"""Headers of plain reads, in lower case. `Host` has passed its check; the credentials are read for each request.

None of them may say that more belongs to the request than its head, as `Content-Length` does even if it is 0.
"""
LINE_BEGIN: Final = b"GET /v1/"
LINE_MAX: Final = 512
BODY_MAX: Final = 64 * 1024
"""Longer bodies are sent in pieces, between which others get a turn."""
TARGETS_MAX: Final = 2_048
"""About 2 KiB each."""
STATUS_LINE: Final = "HTTP/1.1 200 OK"

# No plain read writes by itself or looks at its task; a handler that does fails, and the request takes the usual way.
_NO_WRITER: Final = cast(AbstractStreamWriter, None)
_NO_TASK: Final = cast(Any, None)


class NoPlainAnswer(Exception):
    """The answer waits for something, or is not a short 200."""


Key = tuple[bytes, bool]
"""A request line, and whether the client accepts compressed answers."""


class CachedHead:
    """The headers of a connection's last plain read."""

    __slots__ = ("_block", "_fast_path", "_headers", "_raw_headers", "accepts_gzip", "secret")

    def __init__(self, block: bytes, request: web.Request, fast_path: FastPath) -> None:
        """`block` is the head behind the request line, up to its empty line."""
        self._block = block
        self._headers: CIMultiDictProxy[str] = request.headers
        self._raw_headers = request.raw_headers
        self._fast_path = fast_path
        self.accepts_gzip = accepts_gzip(request.headers)
        self.secret = shown_secret(request)
        """What its requests show; "" for none."""

    def fits(self, block: bytes) -> bool:
        """Whether these are the headers.

        They hold a secret, so the comparison takes the same time wherever the bytes differ (`Callers.is_shown_again`).
        """
        return compare_digest(self._block, block)

    def answer(self, connection: ApiProtocol, data: bytes) -> bytes | None:
        """The answer to a whole head; b"" where it has to take the usual way, None where it waits for other servers."""
        line, _, block = data.partition(b"\r\n")
        if not self.fits(block):
            return b""
        key = line, self.accepts_gzip
        target = self._fast_path.find(key)
        if target is None:
            return b""
        if target.needs_leader and self._fast_path.is_confirmed_by_others:
            self._fast_path.confirmed.add(_WaitingRead(connection, self, data))
            return None
        return self._fast_path.answer(connection, self, key, target)

    def answer_confirmed(self, connection: ApiProtocol, data: bytes) -> bytes:
        """As `answer`, once this server has been confirmed to lead; its target may be forgotten by now."""
        key = data.partition(b"\r\n")[0], self.accepts_gzip
        target = self._fast_path.find(key)
        return b"" if target is None else self._fast_path.answer(connection, self, key, target, is_confirmed=True)

    def request(self, connection: ApiProtocol, target: Target) -> web.Request:
        """The request as aiohttp would have read it."""
        message = RawRequestMessage(
            "GET", target.path, HttpVersion11, self._headers, self._raw_headers, False, None, False, False, target.url
        )
        request = web.Request(message, EMPTY_PAYLOAD, connection, _NO_WRITER, _NO_TASK, connection.loop)
        request._match_info = target.match  # as `Application._handle` does
        return request


class _WaitingRead:
    """A consistent read until this server is confirmed to lead."""

    __slots__ = ("_connection", "_data", "_head")

    def __init__(self, connection: ApiProtocol, head: CachedHead, data: bytes) -> None:
        self._connection = connection
        self._head = head
        self._data = data

    def go_on(self, *, is_confirmed: bool) -> None:
        """Answer it on its connection, or let it take the usual way."""
        connection, data = self._connection, self._data
        is_waiting = is_confirmed and connection.transport is not None and connection.repeats.waiting is data
        connection.go_on(self._head.answer_confirmed(connection, data) if is_waiting else b"")


class FastPath:
    """The known targets of an application, and the answers to plain reads of them."""

    def __init__(self, app: web.Application, context: Context, server: HttpBackend) -> None:
        self._app = app
        self._context = context
        self._leader = server.leader
        self.confirmed = ConfirmedReads(server.leader)
        self.kept = KeptAnswers(context, server)
        self._targets: dict[Key, Target | None] = {}
        """Those that were asked for since the others were put aside; None for one that is not learnt."""
        self._older: dict[Key, Target | None] = {}

    @property
    def is_confirmed_by_others(self) -> bool:
        """Whether consistent reads are answered here once other servers have confirmed that this one leads."""
        return self._leader.is_local and self._leader.is_confirmed_by_others

    def learn(self, connection: ApiProtocol, request: web.Request, response: web.StreamResponse) -> None:
        """Keep what a request has led to, if it was a plain read."""
        head = connection.head_of(request)
        if not head.startswith(LINE_BEGIN) or not self._is_plain_read(request, response):
            return
        line, _, block = head.partition(b"\r\n")
        cached = connection.repeats.cached_head
        if cached is None or not cached.fits(block):
            if not all(name.lower() in PLAIN_HEADERS for name in request.headers):
                return
            connection.repeats.cached_head = CachedHead(block, request, self)
        key = line, accepts_gzip(request.headers)
        if len(line) <= LINE_MAX and key not in self._targets:
            read = request[AT_ONCE]
            needs_leader = read.route.answered_by is AnsweredBy.LEADER and not read.options.stale
            match = request.match_info
            shown = request.get(SHOWN)
            self._keep(key, Target(request.raw_path, request.rel_url, match, read, needs_leader, shown))

    def find(self, key: Key) -> Target | None:
        """A known target."""
        target = self._targets.get(key)
        if target is None and (target := self._older.pop(key, None)) is not None:
            self._keep(key, target)
        return target

    def answer(
        self, connection: ApiProtocol, head: CachedHead, key: Key, target: Target, *, is_confirmed: bool = False
    ) -> bytes:
        """The whole answer in bytes; b"" where the request has to take the usual way.

        `is_confirmed`: this server was confirmed to lead since the request came.
        """
        context = self._context
        now = context.env.monotonic
        began = now()
        try:
            if target.needs_leader and not is_confirmed:
                _result(self._confirm())
            answer = self.kept.find(connection, head.secret, target, accepts_gzip=head.accepts_gzip)
            if not answer:
                answer = self._made(connection, head, target)
        except YurtError:
            return b""  # the usual way refuses it; another caller or a later time may get an answer
        except NoPlainAnswer:
            self._targets.pop(key, None)
            return b""
        except (Exception, asyncio.CancelledError):
            # No task runs here that could be cancelled, so that comes from what the handler awaited. The usual way
            # meets the same error, answers it, and logs it where it is a defect.
            log.debug("no answer past aiohttp: route=%s", target.read.route.path, exc_info=True)
            self._targets[key] = None
            return b""
        count_response(context.metrics, 200)
        note(context.metrics, target.read.route, "GET", now() - began, is_failed=False)
        return answer

    def __len__(self) -> int:
        return len(self._targets) + len(self._older)

    async def _confirm(self) -> None:
        """Raises what refuses a consistent read of a server without others; NoPlainAnswer with others."""
        leader = self._leader
        if not leader.is_local or leader.is_confirmed_by_others:
            raise NoPlainAnswer
        await leader.confirm()

    def _made(self, connection: ApiProtocol, cached: CachedHead, target: Target) -> bytes:
        """The answer of the route's handler, in one step."""
        request = cached.request(connection, target)
        response = _result(answered(target.read, request, self._context))
        head, body = self._written(request, response, accepts_gzip=cached.accepts_gzip)
        if request.get(SHOWN) == target.shown:
            self.kept.keep(connection, cached.secret, target, head, body, accepts_gzip=cached.accepts_gzip)
        return head + body

    def _written(
        self, request: web.Request, response: web.StreamResponse, *, accepts_gzip: bool
    ) -> tuple[bytes, bytes]:
        """Head and body of a response as aiohttp would write it, its headers in the same order.

        Raises NoPlainAnswer, and ValueError for a header that aiohttp would not write.
        """
        body, coding = self._sent(response, accepts_gzip=accepts_gzip)
        headers = response.headers
        headers[hdrs.VARY] = hdrs.ACCEPT_ENCODING
        if coding:
            headers[hdrs.CONTENT_ENCODING] = coding
        headers[hdrs.CONTENT_LENGTH] = str(len(body))
        headers[hdrs.DATE] = rfc822_formatted_time()
        headers[hdrs.SERVER] = SERVER_SOFTWARE
        complete_headers(request, response, self._context.agent.response_headers)
        return _serialize_headers(STATUS_LINE, headers), body

    def _sent(self, response: web.StreamResponse, *, accepts_gzip: bool) -> tuple[bytes, str]:
        """The body of a plain answer as it is sent, and its coding, "" for none; raises NoPlainAnswer.

        Compression takes too long to be done here, so the compressed body has to be cached.
        """
        body = _short_body(response)
        if not accepts_gzip or len(body) < COMPRESS_MIN:
            return body, ""
        zipped = self._context.zipped.find(body) if isinstance(response, CachedResponse) else None
        if zipped is None:
            raise NoPlainAnswer
        return zipped, web.ContentCoding.gzip.value

    def _is_plain_read(self, request: web.Request, response: web.StreamResponse) -> bool:
        """Whether its answer is one that would be given here, too: what is learnt in vain is answered twice."""
        if AT_ONCE not in request or IS_AUDITED in self._app or request.version != HttpVersion11:
            return False
        try:
            self._sent(response, accepts_gzip=accepts_gzip(request.headers))
            _serialize_headers(STATUS_LINE, response.headers)
        except (NoPlainAnswer, ValueError):
            return False
        route, options = request[AT_ONCE]
        is_special = route.answered_by is AnsweredBy.NODE or route.is_stream or route.has_effect_on_get
        return not (is_special or options.index) and request.keep_alive

    def _keep(self, key: Key, target: Target) -> None:
        if len(self._targets) >= TARGETS_MAX // 2:
            self._older, self._targets = self._targets, {}
        self._targets[key] = target


def _short_body(response: web.StreamResponse) -> bytes:
    """The body, before its compression, of an answer 200 that has nothing else about it; raises NoPlainAnswer."""
    # By type: a class of its own may send itself in another way, and `isinstance` of an abstract class costs more.
    if type(response) is CachedResponse:
        body = response.body if response.uncompressed is None else response.uncompressed
    elif type(response) is web.Response:
        body = response.body
    else:
        raise NoPlainAnswer
    if not isinstance(body, bytes) or len(body) > BODY_MAX or response.status != 200:
        raise NoPlainAnswer
    # aiohttp adds headers for cookies, and where there is no type.
    if response.cookies or hdrs.CONTENT_TYPE not in response.headers:
        raise NoPlainAnswer
    if response.compression or response.chunked or response.keep_alive is False:
        raise NoPlainAnswer
    return body


def _result(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns; raises NoPlainAnswer, and ends it, at its first wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise NoPlainAnswer


FAST_PATH: web.AppKey[FastPath] = web.AppKey("yurt_fast_path", FastPath)
"""Set on agents with a server."""
