"""This end's calls to the far end: one answer, or a stream of items in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec

from yurt.rpc import frames
from yurt.rpc.coding import decoded, encoded
from yurt.rpc.connection_tasks import ConnectionTasks
from yurt.rpc.contract import PortMethod
from yurt.rpc.frames import Answer, Ask, Cancel, Failure, Grant
from yurt.rpc.sending import Sender
from yurt.rpc.silence import SilenceWatch
from yurt.rpc.streams import Inbox, Streams
from yurt.rpc.wire import ConnectionLost


class Calls:
    """The calls of this end that are in progress. The end that dialled uses odd numbers."""

    def __init__(
        self,
        *,
        is_dialler: bool,
        sender: Sender,
        streams: Streams,
        tasks: ConnectionTasks,
        silence: SilenceWatch | None = None,
    ) -> None:
        self.lost: ConnectionLost | None = None
        """Why no calls can be made any more."""
        self._next_id = 1 if is_dialler else 2
        self._sender = sender
        self._streams = streams
        self._tasks = tasks
        self._silence = silence
        self._answers: dict[int, asyncio.Future[bytes]] = {}

    async def call(self, port: str, method: PortMethod, request: msgspec.Struct, limit_s: float) -> Any:
        """One call with one answer; raises what the far end raised, ConnectionLost, or TimeoutError."""
        call_id, loop = self._begin(port, method, request), asyncio.get_running_loop()
        answer = self._answers[call_id] = loop.create_future()
        # A timer that ends the future: `asyncio.timeout` is three more calls and cancels the task.
        limit = loop.call_later(limit_s, _time_out, answer)
        silence = None if method.is_long_poll else self._silence
        if silence is not None:
            silence.call_begins()
        try:
            data = await answer
        except (asyncio.CancelledError, TimeoutError):
            self._sender.post(Cancel(call_id))
            raise
        finally:
            limit.cancel()
            del self._answers[call_id]
            if silence is not None:
                silence.call_ends()
        return decoded(data, method.answer)

    async def stream(
        self, port: str, method: PortMethod, request: msgspec.Struct, inputs: AsyncIterator[Any] | None = None
    ) -> AsyncGenerator[Any]:
        """The items of a call; closing the stream early cancels the call at the far end.

        Raises what the far end raised, ConnectionLost, or what `inputs` raised: the call is cancelled then.
        """
        call_id = self._begin(port, method, request)
        inbox = self._streams.open(call_id)
        silence, feeding = self._silence, None
        if inputs is not None:
            await self._tasks.wait_running()
            feeding = self._tasks.start("rpc inputs", self._feed(call_id, inputs, inbox))
        is_over = False
        if silence is not None:
            silence.call_begins()
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
                self._sender.post(Grant(call_id, 1))
                yield decoded(data, method.item)
        finally:
            self._streams.close(call_id)
            if silence is not None:
                silence.call_ends()
            if feeding is not None:
                feeding.cancel()
            if not is_over:
                self._sender.post(Cancel(call_id))

    def answer(self, frame: Answer) -> bool:
        """Deliver an answer; returns whether a call was waiting for it."""
        answer = self._answers.get(frame.id)
        if answer is None or answer.done():
            return False
        answer.set_result(frame.answer)
        return True

    def fail(self, frame: Failure) -> bool:
        """Deliver a failure; returns whether a call was waiting for it."""
        error = frames.raised(frame)
        answer, inbox = self._answers.get(frame.id), self._streams.inbox(frame.id)
        if answer is not None and not answer.done():
            answer.set_exception(error)
        if inbox is not None:
            inbox.put(error)
        return answer is not None or inbox is not None

    def lose(self) -> None:
        """The connection has ended: fail all calls and refuse further ones."""
        lost = self.lost = self.lost or ConnectionLost("the connection to the other agent has ended")
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(lost)
        self._streams.fail(lost)

    def _begin(self, port: str, method: PortMethod, request: msgspec.Struct) -> int:
        if self.lost is not None:
            raise self.lost
        call_id, self._next_id = self._next_id, self._next_id + 2
        self._sender.post(Ask(call_id, f"{port}.{method.name}", encoded(request)))
        return call_id

    async def _feed(self, call_id: int, inputs: AsyncIterator[Any], inbox: Inbox) -> None:
        """Send the inputs of a call; a failure cancels the call."""
        try:
            await self._streams.send(call_id, inputs)
        except Exception as error:
            self._sender.post(Cancel(call_id))
            inbox.fail(error)


def _time_out(answer: asyncio.Future[bytes]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())
