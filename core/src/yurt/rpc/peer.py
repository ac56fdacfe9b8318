"""One end of a connection: calls to the far end, and calls from it, side by side.

The connection itself is a function that sends a message and an iterator of those that come. Frames that gather while
a message is being sent travel together in the next one. When the connection ends, every call that waits fails with
ConnectionLost and every call that is being served is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from functools import cache
from typing import Any, NamedTuple

import msgspec

from yurt.rpc import frames
from yurt.rpc.contract import Contract, Method
from yurt.rpc.frames import GATHER_BYTES, WINDOW, Answer, AnyFrame, Ask, Cancel, End, Failure, Grant, Item
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import Invalid, Unavailable, YurtError

log = logging.getLogger(__name__)

SERVED_MAX = 2_000
"""Calls of one far end that are served at a time; further ones are refused."""
TOO_MANY = "too many calls at once on one connection; try again in a moment"

_encode = msgspec.msgpack.Encoder().encode


class ConnectionLost(Unavailable):
    """The connection ended while the call was under way: it may or may not have been carried out."""


class Served(NamedTuple):
    """A port that this end offers, and what carries it out."""

    contract: Contract
    target: Any


class Inbox:
    """The items of one stream that have come, for the one who reads them."""

    def __init__(self) -> None:
        self._items: deque[bytes | YurtError | None] = deque()
        self._has = asyncio.Event()

    def put(self, item: bytes | YurtError | None) -> None:
        """An item, the end (None), or what the stream failed with."""
        self._items.append(item)
        self._has.set()

    async def get(self) -> bytes | None:
        """The next item, None at the end; raises what the stream failed with."""
        while not self._items:
            self._has.clear()
            await self._has.wait()
        item = self._items.popleft()
        if isinstance(item, YurtError):
            raise item
        return item


class Credit:
    """How many items the far end still takes."""

    def __init__(self) -> None:
        self._left = WINDOW
        self._more = asyncio.Event()

    def add(self, count: int) -> None:
        """The far end takes more."""
        self._left += count
        self._more.set()

    async def take(self) -> None:
        """Wait until one more may be sent."""
        while self._left <= 0:
            self._more.clear()
            await self._more.wait()
        self._left -= 1


class Peer:
    """Calls in both directions over one connection."""

    def __init__(
        self, *, send: Callable[[bytes], Awaitable[None]], serves: Mapping[str, Served], is_dialler: bool
    ) -> None:
        self._send = send
        self._serves = serves
        self._next_id = 1 if is_dialler else 2
        self._outgoing: deque[AnyFrame] = deque()
        self._has_outgoing = asyncio.Event()
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._inboxes: dict[int, Inbox] = {}
        self._credits: dict[int, Credit] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._runs = asyncio.Event()
        self._lost: ConnectionLost | None = None

    @property
    def is_open(self) -> bool:
        """Calls may be made."""
        return self._lost is None

    async def run(self, incoming: AsyncIterator[bytes]) -> None:
        """Carry calls until the connection ends, the far end sends what is no message, or this is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._runs.set()
                sending = self._begin_work("rpc sender", self._send_all())
                receiving = self._begin_work("rpc receiver", self._receive(incoming))
                await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
                self._end()
        finally:
            self._end()

    async def _receive(self, incoming: AsyncIterator[bytes]) -> None:
        async for message in incoming:
            try:
                received = frames.decode(message)
            except msgspec.DecodeError as error:
                log.warning("a connection is given up, the other agent sent what is no message: %s", error)
                return
            for frame in received:
                self._take(frame)

    def _begin_work(
        self, name: str, work: Coroutine[Any, Any, None], on_error: Callable[[Exception], None] | None = None
    ) -> asyncio.Task[None]:
        assert self._group is not None
        task = supervised(self._group, name, work, on_error=on_error)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def _end(self) -> None:
        lost = self._lost = self._lost or ConnectionLost("the connection to the other agent has ended")
        for task in self._work:
            task.cancel()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(lost)
        for inbox in self._inboxes.values():
            inbox.put(lost)

    # Sending.

    def _post(self, frame: AnyFrame) -> None:
        self._outgoing.append(frame)
        self._has_outgoing.set()

    async def _send_all(self) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            while self._outgoing:
                try:
                    await self._send(frames.encode(self._gathered()))
                except ConnectionLost:
                    return

    def _gathered(self) -> list[AnyFrame]:
        gathered: list[AnyFrame] = []
        size = 0
        while self._outgoing and size < GATHER_BYTES:
            frame = self._outgoing.popleft()
            size += _size(frame)
            gathered.append(frame)
        return gathered

    # Calls to the far end.

    async def call(self, port: str, method: Method, request: msgspec.Struct) -> Any:
        """One call with one answer; raises what the far end raised, or ConnectionLost."""
        call_id = self._begin(port, method, request)
        answer = self._answers[call_id] = asyncio.get_running_loop().create_future()
        try:
            data = await answer
        except asyncio.CancelledError:
            self._post(Cancel(call_id))
            raise
        finally:
            del self._answers[call_id]
        return _decoded(data, method.answer)

    async def stream(
        self, port: str, method: Method, request: msgspec.Struct, inputs: AsyncIterator[Any] | None = None
    ) -> AsyncGenerator[Any]:
        """The items of a call; closing it before its end cancels the call at the far end."""
        call_id = self._begin(port, method, request)
        inbox = self._inboxes[call_id] = Inbox()
        self._credits[call_id] = Credit()
        feeding = None
        if inputs is not None:
            await self._runs.wait()
            feeding = self._begin_work("rpc inputs", self._send_items(call_id, inputs))
        is_over = False
        try:
            while True:
                try:
                    data = await inbox.get()
                except YurtError:
                    is_over = True
                    raise
                if data is None:
                    is_over = True
                    return
                self._post(Grant(call_id, 1))
                yield _decoded(data, method.item)
        finally:
            self._inboxes.pop(call_id, None)
            self._credits.pop(call_id, None)
            if feeding is not None:
                feeding.cancel()
            if not is_over:
                self._post(Cancel(call_id))

    def _begin(self, port: str, method: Method, request: msgspec.Struct) -> int:
        if self._lost is not None:
            raise self._lost
        call_id, self._next_id = self._next_id, self._next_id + 2
        self._post(Ask(call_id, f"{port}.{method.name}", _encode(request)))
        return call_id

    async def _send_items(self, call_id: int, items: AsyncIterator[Any]) -> None:
        credit = self._credits[call_id]
        async for item in items:
            await credit.take()
            self._post(Item(call_id, _encode(item)))
        self._post(End(call_id))

    # What comes.

    def _take(self, frame: AnyFrame) -> None:
        match frame:
            case Ask():
                self._serve(frame)
            case Answer():
                answer = self._answers.get(frame.id)
                if answer is not None and not answer.done():
                    answer.set_result(frame.answer)
            case Failure():
                self._fail(frame)
            case Item() | End():
                inbox = self._inboxes.get(frame.id)
                if inbox is not None:
                    inbox.put(frame.item if isinstance(frame, Item) else None)
            case Cancel():
                serving = self._serving.get(frame.id)
                if serving is not None:
                    serving.cancel()
            case Grant():
                credit = self._credits.get(frame.id)
                if credit is not None:
                    credit.add(frame.count)

    def _fail(self, frame: Failure) -> None:
        error = frames.raised(frame)
        answer, inbox = self._answers.get(frame.id), self._inboxes.get(frame.id)
        if answer is not None and not answer.done():
            answer.set_exception(error)
        if inbox is not None:
            inbox.put(error)

    # Calls of the far end.

    def _serve(self, ask: Ask) -> None:
        if len(self._serving) >= SERVED_MAX:
            self._post(frames.failure(ask.id, Unavailable(TOO_MANY)))
            return
        self._inboxes[ask.id] = Inbox()
        self._credits[ask.id] = Credit()
        task = self._begin_work(f"serving {ask.method}", self._served(ask), lambda _: self._broke(ask))
        self._serving[ask.id] = task
        task.add_done_callback(lambda _: self._forget(ask.id))

    def _forget(self, call_id: int) -> None:
        self._serving.pop(call_id, None)
        self._inboxes.pop(call_id, None)
        self._credits.pop(call_id, None)

    async def _served(self, ask: Ask) -> None:
        try:
            await self._carry_out(ask)
        except YurtError as error:
            self._post(frames.failure(ask.id, error))

    def _broke(self, ask: Ask) -> None:
        text = f"{ask.method} failed unexpectedly at the other agent; its log says more"
        self._post(frames.failure(ask.id, Unavailable(text)))

    async def _carry_out(self, ask: Ask) -> None:
        port, _, name = ask.method.partition(".")
        served = self._serves.get(port)
        method = served.contract.get(name) if served is not None else None
        if served is None or method is None:
            raise Invalid(f"this agent does not offer {ask.method}; it may be older than the one that asks")
        given = method.unpack(_decoded(ask.request, method.request))
        function = getattr(served.target, name)
        if not method.is_stream:
            self._post(Answer(ask.id, _encode(await function(**given))))
            return
        if method.input_name:
            given[method.input_name] = self._inputs(ask.id, method)
        items = function(**given)
        with suppress(asyncio.CancelledError):
            async with aclosing(items):
                await self._send_items(ask.id, items)

    async def _inputs(self, call_id: int, method: Method) -> AsyncGenerator[Any]:
        inbox = self._inboxes[call_id]
        while (data := await inbox.get()) is not None:
            self._post(Grant(call_id, 1))
            yield _decoded(data, method.input)


def _size(frame: AnyFrame) -> int:
    match frame:
        case Ask(request=data) | Answer(answer=data) | Item(item=data):
            return len(data) + 32
        case _:
            return 32


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def _decoded(data: bytes, kind: Any) -> Any:
    try:
        return _decoder(kind).decode(data)
    except msgspec.DecodeError as error:
        raise Invalid(f"the other agent speaks of something else here: {error}") from None
