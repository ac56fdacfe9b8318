"""One connection to the HTTP API: its permitted input and its time limits.

A connection is idle, has begun a request, or is at work on one. A request that has begun must go on: its head has to be
there within `head_s`, and its body must keep up `body_bytes_per_s` on average after `body_grace_s`, but for the time in
which this end does not read. Otherwise it is answered with 408, or closed where there is nobody to answer. A connection
on which nothing came yet counts as one that has begun.

A repeated read is answered as soon as its head is there, past aiohttp (`yurt.http.plain_reads.fast_path`): only on an
idle connection, and only where the parser holds no part of a request. That is known as long as each request ended where
its bytes did. A head in parts, or a request behind another, switches it off for that connection, until a request
without a body ends where its bytes do: the parser has read it, so neither a part of it nor anything behind it is left.
Where the answer waits for something, what comes behind the read is held until then, so that answers keep their order.

Bytes that are not HTTP are answered with 400, and the connection is closed. Neither logs a traceback: invalid bytes
of a peer are not a defect (`yurt.http.edge.client_errors`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from aiohttp import hdrs, web
from aiohttp.http import HttpProcessingError, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from yurt.access import Origin
from yurt.http.edge.client_errors import ClientErrorReporter
from yurt.sdk.value import Value

if TYPE_CHECKING:
    from yurt.server.keys.last_secret import LastSecret

LOOK_S = 1.0
"""The interval at which an arriving body is checked."""
LAST_LOOK_S = 0.05
"""How long after its time a head may still be read."""
HEAD_MAX: Final = 4 * 1024
"""Bytes of a head that is kept."""
HELD_MAX: Final = 64 * 1024
"""Bytes held behind a read whose answer waits, from which on the connection is not read."""
HEAD_END: Final = b"\r\n\r\n"
NO_HEAD: Final = (b"", None)
BAD_REQUEST = "Bad request: what was sent is not valid HTTP/1.1"
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Pace(Value):
    """How long a request may take to arrive."""

    head_s: float = 10.0
    """From the connection, or the first byte of a further request, to the end of its head."""
    body_grace_s: float = 10.0
    body_bytes_per_s: int = 1024


class HalfSent(web.RequestPayloadError):
    """The rest of a request's body did not arrive in time."""


class Answerer(Protocol):
    """Answers repeated requests of a connection."""

    def answer(self, connection: ApiProtocol, data: bytes) -> bytes | None:
        """The answer to a whole head; b"" where it has to take the usual way.

        None where the answer waits for something: the connection goes on with `ApiProtocol.go_on`.
        """
        ...

    def fits(self, block: bytes) -> bool:
        """Whether these are its headers."""
        ...


class Repeats:
    """What the next request of a connection may skip, and where its last one ended."""

    __slots__ = ("answered", "cached_head", "head", "held", "missing", "waiting")

    def __init__(self) -> None:
        self.cached_head: Answerer | None = None
        """Answers repeated requests (`yurt.http.plain_reads.fast_path`)."""
        self.head: tuple[bytes, object] = NO_HEAD
        """The request at work, if it came as one whole head and is nothing else, and its raw headers: its identity."""
        self.missing = 0
        """Bytes of the last request that have not come yet; below 0 where that is not known."""
        self.answered = 0
        """Requests whose whole answers were written, and behind which the connection stays open."""
        self.waiting = b""
        """The read whose answer waits; b"" where none waits."""
        self.held = b""
        """What came behind it."""


class ConnectionTracker(Protocol):
    """The connections among which one has its place (`yurt.http.edge.connections`)."""

    pace: Pace
    strangers: ClientErrorReporter
    is_task_api: bool
    """Whether they arrive over the Unix socket of a task."""

    def enter(self, protocol: ApiProtocol, transport: asyncio.Transport) -> bool:
        """Count a connection; whether its pace is watched."""
        ...

    def is_watched(self, protocol: ApiProtocol) -> bool:
        """Whether it is a stranger's."""
        ...

    def put_last(self, protocol: ApiProtocol) -> None:
        """It begins a request."""
        ...

    def leave(self, protocol: ApiProtocol) -> None:
        """It has ended."""
        ...


class RepeatingConnection(web.RequestHandler):
    """A connection that knows where its requests end and which are answered, so that repeated ones may skip aiohttp."""

    def __init__(self, server: web.Server, *, is_task_api: bool, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self.is_task_api = is_task_api
        self.repeats = Repeats()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the connection."""
        return self._loop

    def head_of(self, request: web.BaseRequest) -> bytes:
        """A request as it came, if it came at once, without a body, and its next one may be answered past aiohttp."""
        head, raw_headers = self.repeats.head
        if self._logging_enabled or self.is_task_api or request.content is not EMPTY_PAYLOAD:
            return b""
        # Without headers they are the empty tuple, which is the same object for every request.
        return head if raw_headers and raw_headers is request.raw_headers else b""

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write an answer to its end; aiohttp calls it for each request that it has read."""
        written, is_lost = await super().finish_response(request, resp, start_time)
        if not is_lost and written.keep_alive:
            self.repeats.answered += 1
        return written, is_lost

    def _is_between_requests(self) -> bool:
        """Whether aiohttp's handler, which does not wait, is about to: it has ended where the connection closes."""
        return self._request_count == self.repeats.answered and not (self._close or self._force_close)

    def _keep_alive(self) -> None:
        """Count the time in which an idle connection is closed from now on."""
        self._next_keepalive_close_time = self._now() + self.keepalive_timeout

    def _now(self) -> float:
        """The clock of the loop, by which aiohttp closes idle connections."""
        return self._loop.time()

    def _count_missing(self, data: bytes, waiting: int) -> None:
        """Follow where requests end; `waiting` requests were read before these bytes and have not begun."""
        repeats = self.repeats
        if repeats.missing > 0:
            repeats.missing -= len(data)  # below 0: a further request begins in the same bytes
            return
        message, content = self._messages[-1] if len(self._messages) == waiting + 1 else (None, None)
        if not isinstance(message, RawRequestMessage):
            repeats.missing = -1
            return
        missing = missing_bytes(data, message)
        is_whole = missing == 0 and content is EMPTY_PAYLOAD and is_whole_head(data, message)
        # A whole head, read alone, ends at a boundary of requests, wherever it began: bytes behind its first blank
        # line would be a second request or an error. The parser holds a second one back only while others wait.
        if repeats.missing < 0 and (waiting or not is_whole):
            return
        repeats.missing = missing
        if is_whole and len(data) <= HEAD_MAX:
            repeats.head = data, message.raw_headers


class ApiProtocol(RepeatingConnection):
    """The requests of one connection."""

    def __init__(self, server: web.Server, connections: ConnectionTracker, **options: Any) -> None:
        super().__init__(server, is_task_api=connections.is_task_api, **options)
        self.peer = ""
        self.origin: Origin | None = None
        """Where the requests of the connection come from, once it was asked (`yurt.http.authentication`)."""
        self.last_secret: LastSecret | None = None
        """The stored secret that its last request showed, as long as the connection lasts."""
        self._connections = connections
        self._pace = connections.pace
        self._is_at_work = False
        self._has_more = False
        """Something came behind the request at work: perhaps a part of a further one."""
        self._body: StreamReader | None = None
        self._received = 0
        self._began_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether a complete request is being answered, or about to be."""
        is_busy = self._is_at_work or bool(self._messages) or bool(self.repeats.waiting)
        return is_busy and not self.is_body_awaited

    @property
    def is_head_awaited(self) -> bool:
        """Whether a request or connection has begun, but its headers are incomplete."""
        return self._timer is not None and self._body is None

    @property
    def is_body_awaited(self) -> bool:
        """Whether the headers are complete, but the body is not."""
        return self._body is not None and not self._body.is_eof()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established, the TLS handshake included."""
        super().connection_made(transport)
        if self._connections.enter(
            self, cast(asyncio.Transport, transport)
        ):  # uvloop's transports are not a subclass of it
            self._await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It has ended."""
        self._stop_timer()
        self._connections.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        repeats = self.repeats
        if repeats.waiting:
            self._hold(repeats.held + data)
        elif repeats.cached_head is None or not self._is_idle():
            self._parse(data)
        elif (answer := repeats.cached_head.answer(self, data)) is None:
            repeats.waiting = data
            self._keep_alive()
        elif answer:
            self._send(answer)
        else:
            self._parse(data)

    def go_on(self, answer: bytes) -> None:
        """End the wait of a read: with its answer, or b"" for the usual way; no effect where none waits any more."""
        repeats = self.repeats
        data, repeats.waiting = repeats.waiting, b""
        held, repeats.held = repeats.held, b""
        if not data or self.transport is None:
            return
        if answer and self._is_idle():
            self._send(answer)
        else:
            self._parse(data)
        if held:
            if len(held) > HELD_MAX:
                self.transport.resume_reading()
            self.data_received(held)

    def close(self) -> None:
        """Take no more requests; aiohttp calls it before it ends, and answers those that it has read by then.

        So a read whose answer waits takes the usual way.
        """
        self.go_on(b"")
        super().close()

    def _hold(self, held: bytes) -> None:
        """Keep what came behind a read whose answer waits."""
        self.repeats.held = held
        # At the transport: aiohttp's own pause is for a body that its parser reads.
        if len(held) > HELD_MAX and self.transport is not None:
            self.transport.pause_reading()

    def _parse(self, data: bytes) -> None:
        """Let aiohttp read what came."""
        if self._is_at_work and data:  # aiohttp passes none to go on with a body that it held back
            self._has_more = self._has_more or not self.is_body_awaited
        begins = bool(data) and not self._is_at_work and self._timer is None and not self.is_body_awaited
        if begins:
            self._begin_head()
        self._received += len(data)
        waiting = len(self._messages)
        try:
            super().data_received(data)
        except Exception as error:
            self._connections.strangers.refuse_request(self.peer, f"it cannot be read: {type(error).__name__}")
            self.end()
            return
        if data:
            self._count_missing(data, waiting)
        if self._messages and self._body is None:
            self._stop_timer()  # a head is there; its handler begins in a later turn
        elif begins:
            self._limit_head()
        if self._body is not None and self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
            self._body.set_exception(web.RequestPayloadError("the body is not valid HTTP"))

    def _is_idle(self) -> bool:
        """Whether all requests are answered, no part of another has arrived, and the client reads its answers.

        aiohttp's handler then waits for a request, or is about to: it has written an answer and has yet to be called
        by the loop, which a client that asks again at once may precede.
        """
        waiter = self._waiter  # done once the handler was given a request, or ends
        is_answered = self._is_between_requests() if waiter is None else not waiter.done()
        return is_answered and self.repeats.missing == 0 and self._timer is None and not self.writing_paused

    def _send(self, answer: bytes) -> None:
        """Answer a whole request that aiohttp has not seen, on an idle connection."""
        assert self.transport is not None and self._manager is not None
        self._begin_head()
        self._request_count += 1
        self.repeats.answered += 1
        self._manager.requests_count += 1
        self._keep_alive()
        self.transport.write(answer)

    # What requests tell.

    def begin(self, content: StreamReader) -> None:
        """The headers are complete; the body may still be arriving."""
        self._stop_timer()
        self._is_at_work, self._body, self._has_more = True, None, False
        if not content.is_eof() and self._connections.is_watched(self):
            self._body, self._received, self._began_s = content, 0, self._now()
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def finish(self) -> None:
        """The request is answered."""
        self._stop_timer()
        self._is_at_work = False
        if not self._has_more:
            self.repeats.head = NO_HEAD  # an idle connection needs none, and there may be many
        if self.is_body_awaited:
            return  # aiohttp waits for the rest of it, and closes.
        self._body = None
        if self._has_more:
            self._await_head()

    def end(self) -> None:
        """End the connection at once."""
        self._stop_timer()
        if self.transport is not None:
            self.transport.abort()

    # Time.

    def _await_head(self) -> None:
        self._begin_head()
        self._limit_head()

    def _begin_head(self) -> None:
        """A request begins."""
        if self._connections.is_watched(self):
            self._connections.put_last(self)
            self._received = 0

    def _limit_head(self) -> None:
        """Limit the time of headers that have begun; most arrive at once and need no timer."""
        if self._connections.is_watched(self):
            self._timer = self._loop.call_later(self._pace.head_s, self._look_once_more)

    def _look_once_more(self) -> None:
        """The time is over. A blocked loop may not have read bytes that already arrived: read once more first."""
        self._timer = self._loop.call_later(LAST_LOOK_S, self._give_up)

    def _give_up(self) -> None:
        """The headers did not arrive in time."""
        self._timer = None
        if self.transport is None:
            return
        if self._received:
            self._connections.strangers.time_out(self.peer, "the head of a request did not come in time")
            self.transport.write(TOO_SLOW)
        self.force_close()

    def _look(self) -> None:
        """Check that the body still arrives fast enough."""
        self._timer = None
        body, now = self._body, self._now()
        if body is None or body.is_eof() or self.transport is None:
            return
        if not self.transport.is_reading():
            self._began_s += LOOK_S
        late_s = now - self._began_s - self._pace.body_grace_s
        if late_s > 0 and self._received < late_s * self._pace.body_bytes_per_s:
            self._connections.strangers.time_out(self.peer, "the body of a request did not come in time")
            body.set_exception(HalfSent("the body did not come in time"))
            return
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # What aiohttp would log with a traceback.

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to what could not be read: a head that is not HTTP, or a header that cannot even be quoted."""
        if not isinstance(exc, HttpProcessingError | UnicodeError):
            return super().handle_error(request, status, exc, message)
        self._connections.strangers.refuse_request(self.peer, BAD_REQUEST)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun")
        response = web.Response(status=400, text=BAD_REQUEST)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """A failure outside of a handler; failures caused by an incomplete body are not logged."""
        if isinstance(kwargs.get("exc_info"), web.RequestPayloadError | HttpProcessingError | ConnectionError):
            return
        super().log_exception(*args, **kwargs)


def missing_bytes(data: bytes, message: RawRequestMessage) -> int:
    """How many bytes of a request's body come behind the first ones, which hold its head; below 0: not known."""
    headers, size = message.headers, data.find(HEAD_END) + len(HEAD_END)
    lines = len(message.raw_headers) + 2
    # Lines that the parser has joined or ended in another way would end the head at another place.
    if size < len(HEAD_END) or data.count(b"\n", 0, size) != lines or data.count(b"\r", 0, size) != lines:
        return -1
    length = headers.get(hdrs.CONTENT_LENGTH, "0")
    if message.chunked or message.upgrade or hdrs.TRANSFER_ENCODING in headers or not length.isdigit():
        return -1
    return size + int(length) - len(data)


def is_whole_head(data: bytes, message: RawRequestMessage) -> bool:
    """Whether these bytes are the message's head and nothing else: its whole request line, up to its blank line.

    Bytes before the request line would be the end of an earlier body, which may look like the beginning of a line.
    """
    version = f"HTTP/{message.version.major}.{message.version.minor}"
    line = f"{message.method} {message.path} {version}\r\n".encode(errors="surrogateescape")
    return data.startswith(line) and data.find(HEAD_END) == len(data) - len(HEAD_END)
