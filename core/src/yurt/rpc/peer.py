"""One end of a connection: calls to the far end, and calls from it, side by side.

Frames that gather while the loop is busy, or while the far end does not read, travel together. When the connection
ends, every call that waits fails with ConnectionLost and every call that is being served is cancelled.

The end that was dialled bounds what the far end may cost it: calls a second (further ones are refused, and nothing is
read for a moment), calls at a time, and answers that the far end does not fetch. Both ends give a connection up whose
other end sends more items than it was granted, or grants more than it was sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from functools import cache
from typing import Any, NamedTuple

import msgspec

from yurt.rpc import frames
from yurt.rpc.contract import Contract, Method
from yurt.rpc.frames import (
    FRAME_BYTES,
    GATHER_BYTES,
    MESSAGE_BYTES_MAX,
    WINDOW,
    Answer,
    AnyFrame,
    Ask,
    Cancel,
    End,
    Failure,
    Grant,
    Item,
)
from yurt.rpc.rate import Bucket, Rate
from yurt.rpc.wire import ConnectionLost, Wire
from yurt.runtime.peer_lines import one_line
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import Invalid, Reason, Unavailable, YurtError

__all__ = ["ConnectionLost", "Peer", "Served"]

log = logging.getLogger(__name__)

SERVED_MAX = 2_000
"""Calls of one far end that are served at a time; further ones are refused."""
TOO_MANY = "too many calls at once on one connection; try again in a moment"
UNREAD_BYTES_MAX = 4 * 1024 * 1024
"""The end that was dialled takes no further calls while more than this waits for the other end to read it."""
REST_S = 1.0
"""How long nothing is read from an end that calls too often."""
REFUSED_MAX = 20_000
"""The connection is given up when so much is refused before such a rest begins to work."""
NAME_MAX = 100

_encoder = msgspec.msgpack.Encoder()


class Served(NamedTuple):
    """A port that this end offers, and what carries it out."""

    contract: Contract
    target: Any


class Abuse(Exception):
    """The far end does what no agent does; the connection is given up."""


class Inbox:
    """The items of one stream that have come, for the one who reads them."""

    def __init__(self) -> None:
        self._items: deque[bytes | Exception | None] = deque()
        self._has = asyncio.Event()

    def put(self, item: bytes | YurtError | None) -> None:
        """An item, the end (None), or what the stream failed with; raises Abuse beyond what was granted."""
        if len(self._items) > WINDOW:
            raise Abuse("it sends more items than it was granted")
        self._items.append(item)
        self._has.set()

    def fail(self, error: Exception) -> None:
        """The connection has ended, or this end can not go on."""
        self._items.append(error)
        self._has.set()

    async def get(self) -> bytes | None:
        """The next item, None at the end; raises what the stream failed with."""
        while not self._items:
            self._has.clear()
            await self._has.wait()
        item = self._items.popleft()
        if isinstance(item, Exception):
            raise item
        return item


class Credit:
    """How many items the far end still takes."""

    def __init__(self) -> None:
        self._left = WINDOW
        self._more = asyncio.Event()

    def add(self, count: int) -> None:
        """The far end takes more; raises Abuse when that is more than it was sent."""
        if not 0 < count <= WINDOW - self._left:
            raise Abuse("it grants more items than it was sent")
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
        self, wire: Wire, *, serves: Mapping[str, Served], is_dialler: bool, rate: Rate | None = None,
        tell: Callable[[str], None] = log.warning,
    ) -> None:  # fmt: skip
        """`rate`: how often the far end may call. `tell`: logs what a far end does that no agent does."""
        self._tell = tell
        self._wire = wire
        self._serves = serves
        self._is_dialler = is_dialler
        self._next_id = 1 if is_dialler else 2
        self._bucket = Bucket(rate, asyncio.get_running_loop().time()) if rate is not None else None
        self._outgoing: deque[AnyFrame] = deque()
        self._outgoing_bytes = 0
        self._is_due = False
        self._is_paused = False
        self._rests = False
        self._refused = 0
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._inboxes: dict[int, Inbox] = {}
        self._credits: dict[int, Credit] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._runs = asyncio.Event()
        self._over = asyncio.Event()
        self._lost: ConnectionLost | None = None

    @property
    def is_open(self) -> bool:
        """Calls may be made."""
        return self._lost is None

    @property
    def is_idle(self) -> bool:
        """No call of the far end is being served."""
        return not self._serving

    async def run(self) -> None:
        """Carry calls until the connection ends, the far end does what no agent does, or this is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._runs.set()
                self._wire.attach(self)
                await self._over.wait()
                self._end()
        finally:
            self._end()
            self._wire.close()

    def close(self) -> None:
        """End the connection; `run` returns."""
        self._over.set()

    # What the wire calls.

    def take(self, message: bytes) -> None:
        """Carry out what the frames of a message say."""
        if self._over.is_set():
            return
        try:
            if not message:
                self._greet_back()
                return
            for frame in frames.decode(message):
                self._take(frame)
        except frames.UNREADABLE as error:
            self._give_up(f"it sent what is no message: {error}")
        except Abuse as error:
            self._give_up(str(error))

    def pause(self) -> None:
        """The far end does not read."""
        self._is_paused = True

    def resume(self) -> None:
        """The far end reads again."""
        self._is_paused = False
        self._flush()

    def lose(self) -> None:
        """The connection has ended."""
        self._over.set()

    def _give_up(self, reason: str) -> None:
        self._tell(f"closing connection: protocol violation by peer: {one_line(reason)}")
        self._over.set()

    def _greet_back(self) -> None:
        """Somebody asks whether this end is there; what comes to the end that dialled is such an answer."""
        if not self._is_dialler and self._is_allowed():
            self._wire.write(b"")

    # How much the far end may ask for.

    def _is_allowed(self) -> bool:
        """Whether one more frame of the far end's own accord is taken; if not, nothing is read for a moment."""
        loop = asyncio.get_running_loop()
        if self._bucket is None or self._bucket.take(loop.time()):
            return True
        if not self._rests:
            self._rests = True
            self._set_reading()
            loop.call_later(REST_S, self._stop_resting)
        self._refused += 1
        if self._refused > REFUSED_MAX:
            raise Abuse("it does not stop to call although it is refused")
        return False

    def _stop_resting(self) -> None:
        self._rests, self._refused = False, 0
        self._set_reading()

    def _set_reading(self) -> None:
        is_full = not self._is_dialler and self._outgoing_bytes > UNREAD_BYTES_MAX
        self._wire.read_on(not (self._rests or is_full))

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
            inbox.fail(lost)

    # Sending.

    def _post(self, frame: AnyFrame) -> None:
        self._outgoing.append(frame)
        self._outgoing_bytes += _size(frame)
        if self._is_paused:
            self._set_reading()
        elif not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        if self._lost is not None:
            return
        while self._outgoing and not self._is_paused:
            self._wire.write(frames.encode(self._gathered()))
        self._set_reading()

    def _gathered(self) -> list[AnyFrame]:
        gathered: list[AnyFrame] = []
        size = 0
        while self._outgoing and size < GATHER_BYTES:
            frame = self._outgoing.popleft()
            size += _size(frame)
            gathered.append(frame)
        self._outgoing_bytes -= size
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
        """The items of a call; closing it before its end cancels the call at the far end.

        Raises what the far end raised, ConnectionLost, or what `inputs` raised: the call is cancelled then.
        """
        call_id = self._begin(port, method, request)
        inbox = self._inboxes[call_id] = Inbox()
        self._credits[call_id] = Credit()
        feeding = None
        if inputs is not None:
            await self._runs.wait()
            feeding = self._begin_work("rpc inputs", self._feed(call_id, inputs, inbox))
        is_over = False
        try:
            while True:
                try:
                    data = await inbox.get()
                except Exception:
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
        self._post(Ask(call_id, f"{port}.{method.name}", _encoded(request)))
        return call_id

    async def _feed(self, call_id: int, inputs: AsyncIterator[Any], inbox: Inbox) -> None:
        """Send the inputs of a call; when they break off nobody waits for the rest."""
        try:
            await self._send_items(call_id, inputs)
        except Exception as error:
            self._post(Cancel(call_id))
            inbox.fail(error)

    async def _send_items(self, call_id: int, items: AsyncIterator[Any]) -> None:
        credit = self._credits[call_id]
        async for item in items:
            await credit.take()
            self._post(Item(call_id, _encoded(item)))
        self._post(End(call_id))

    # What comes.

    def _take(self, frame: AnyFrame) -> None:
        match frame:
            case Ask():
                self._serve(frame)
            case Answer():
                self._answer(frame)
            case Failure():
                self._fail(frame)
            case Item() | End():
                inbox = self._inboxes.get(frame.id)
                if inbox is not None:
                    inbox.put(frame.item if isinstance(frame, Item) else None)
                else:
                    self._is_allowed()
            case Cancel():
                self._is_allowed()
                if frame.id in self._serving:
                    self._serving[frame.id].cancel()
            case Grant():
                credit = self._credits.get(frame.id)
                if credit is not None:
                    credit.add(frame.count)
                else:
                    self._is_allowed()

    def _answer(self, frame: Answer) -> None:
        answer = self._answers.get(frame.id)
        if answer is not None and not answer.done():
            answer.set_result(frame.answer)
        else:
            self._is_allowed()

    def _fail(self, frame: Failure) -> None:
        error = frames.raised(frame)
        answer, inbox = self._answers.get(frame.id), self._inboxes.get(frame.id)
        if answer is not None and not answer.done():
            answer.set_exception(error)
        if inbox is not None:
            inbox.put(error)
        if answer is None and inbox is None:
            self._is_allowed()

    # Calls of the far end.

    def _serve(self, ask: Ask) -> None:
        if not self._is_allowed():
            self._post(frames.failure(ask.id, Unavailable(self._rate_text(), reason=Reason.OVERLOADED)))
            return
        if len(self._serving) >= SERVED_MAX or ask.id in self._serving:
            self._post(frames.failure(ask.id, Unavailable(TOO_MANY, reason=Reason.OVERLOADED)))
            return
        port, _, name = ask.method.partition(".")
        served = self._serves.get(port)
        method = served.contract.get(name) if served is not None else None
        if served is None or method is None:
            text = f"this agent does not offer {ask.method[:NAME_MAX]}; it may be older than the one that asks"
            self._post(frames.failure(ask.id, Invalid(text)))
            return
        if method.is_stream:
            self._inboxes[ask.id] = Inbox()
            self._credits[ask.id] = Credit()
        work = self._served(ask, method, getattr(served.target, name))
        task = self._begin_work(ask.method, work, lambda _: self._broke(ask))
        self._serving[ask.id] = task
        task.add_done_callback(lambda _: self._forget(ask.id))

    def _rate_text(self) -> str:
        per_s = self._bucket.rate.per_s if self._bucket is not None else 0
        return f"more than {per_s:g} calls a second on one connection; try again in {REST_S:g} s"

    def _forget(self, call_id: int) -> None:
        self._serving.pop(call_id, None)
        self._inboxes.pop(call_id, None)
        self._credits.pop(call_id, None)

    async def _served(self, ask: Ask, method: Method, function: Callable[..., Any]) -> None:
        try:
            given = method.unpack(_decoded(ask.request, method.request))
            if method.is_stream:
                await self._give_items(ask.id, method, function, given)
            else:
                self._post(Answer(ask.id, _encoded(await function(**given))))
        except YurtError as error:
            self._post(frames.failure(ask.id, error))

    def _broke(self, ask: Ask) -> None:
        text = f"{ask.method} failed unexpectedly at the other agent; its log says more"
        self._post(frames.failure(ask.id, Unavailable(text, reason=Reason.INTERNAL, is_transient=True)))

    async def _give_items(
        self, call_id: int, method: Method, function: Callable[..., Any], given: dict[str, Any]
    ) -> None:
        if method.input_name:
            given[method.input_name] = self._inputs(call_id, method)
        with suppress(asyncio.CancelledError):
            async with aclosing(function(**given)) as items:
                await self._send_items(call_id, items)

    async def _inputs(self, call_id: int, method: Method) -> AsyncGenerator[Any]:
        inbox = self._inboxes[call_id]
        while (data := await inbox.get()) is not None:
            self._post(Grant(call_id, 1))
            yield _decoded(data, method.input)


def _size(frame: AnyFrame) -> int:
    match frame:
        case Ask(request=data) | Answer(answer=data) | Item(item=data):
            return len(data) + FRAME_BYTES
        case _:
            return FRAME_BYTES


def _encoded(value: Any) -> bytes:
    data = _encoder.encode(value)
    if len(data) > MESSAGE_BYTES_MAX - GATHER_BYTES:
        raise Invalid(f"{len(data)} bytes are more than another agent takes at once, which is {MESSAGE_BYTES_MAX}")
    return data


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def _decoded(data: bytes, kind: Any) -> Any:
    try:
        return _decoder(kind).decode(data)
    except frames.UNREADABLE as error:
        raise Invalid(f"the other agent speaks of something else here: {error}") from None
