"""One end of a connection: concurrent calls in both directions.

Frames that gather while the loop is busy, or while the far end does not read, travel together. When the connection
ends, every call that waits fails with ConnectionLost and every call that is being served is cancelled.

The end that was dialled bounds what the far end may cost it: calls a second (further ones are refused, and nothing is
read for a moment), calls at a time, and answers that the far end does not fetch. Both ends give a connection up whose
other end sends more items than it was granted, or grants more than it was sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from yurt.rpc import frames
from yurt.rpc.calls import Calls
from yurt.rpc.connection_tasks import ConnectionTasks
from yurt.rpc.contract import PortMethod
from yurt.rpc.frames import Answer, AnyFrame, Ask, Cancel, End, Failure, Grant, Item
from yurt.rpc.intake import Abuse, Intake
from yurt.rpc.rate import Rate
from yurt.rpc.sending import Sender
from yurt.rpc.serving import Served, Serving
from yurt.rpc.silence import SilenceWatch
from yurt.rpc.streams import Streams
from yurt.rpc.wire import ConnectionLost, Wire
from yurt.runtime.peer_lines import one_line

__all__ = ["ConnectionLost", "Peer", "Served"]

log = logging.getLogger(__name__)


class Peer:
    """Calls in both directions over one connection."""

    def __init__(
        self, wire: Wire, *, serves: Mapping[str, Served], is_dialler: bool, rate: Rate | None = None,
        silence: SilenceWatch | None = None, warn: Callable[[str], None] = log.warning,
    ) -> None:  # fmt: skip
        """`rate` limits the far end's calls. `silence` gets the begin and the end of each call of this end. `warn` logs
        protocol violations of a far end."""
        self._warn = warn
        self._wire = wire
        self._is_dialler = is_dialler
        self._intake = Intake(wire, is_dialler=is_dialler, rate=rate)
        self._sender = Sender(wire, intake=self._intake)
        self._streams = Streams(self._sender)
        self._tasks = ConnectionTasks()
        self._calls = Calls(
            is_dialler=is_dialler, sender=self._sender, streams=self._streams, tasks=self._tasks, silence=silence
        )
        self._serving = Serving(
            serves, sender=self._sender, streams=self._streams, tasks=self._tasks, intake=self._intake
        )
        self._over = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self._calls.lost is None

    @property
    def is_idle(self) -> bool:
        """Whether no call of the far end is being served."""
        return self._serving.is_idle

    def call(self, port: str, method: PortMethod, request: msgspec.Struct, *, limit_s: float) -> Awaitable[Any]:
        """One call with one answer; raises what the far end raised, ConnectionLost, or TimeoutError."""
        return self._calls.call(port, method, request, limit_s)

    def stream(
        self, port: str, method: PortMethod, request: msgspec.Struct, inputs: AsyncIterator[Any] | None = None
    ) -> AsyncGenerator[Any]:
        """The items of a call; see `Calls.stream`."""
        return self._calls.stream(port, method, request, inputs)

    async def run(self) -> None:
        """Carry calls until the connection ends, the far end violates the protocol, or this is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._tasks.run_in(group)
                self._wire.attach(self)
                await self._over.wait()
                self._end()
        finally:
            self._end()
            self._wire.close()

    def close(self) -> None:
        """Close the connection; `run` returns."""
        self._over.set()

    # What the wire calls.

    def take(self, message: bytes) -> None:
        """Process the frames of a message."""
        if self._over.is_set():
            return
        try:
            if not message:
                self._greet_back()
                return
            for frame in frames.decode(message):
                self._take(frame)
        except frames.UNREADABLE as error:
            self._give_up(f"it sent a malformed message: {error}")
        except Abuse as error:
            self._give_up(str(error))

    def pause(self) -> None:
        """The far end has stopped reading."""
        self._sender.pause()

    def resume(self) -> None:
        """The far end reads again."""
        self._sender.resume()

    def lose(self) -> None:
        """The connection has ended."""
        self._over.set()

    def _give_up(self, reason: str) -> None:
        self._warn(f"closing connection: protocol violation by peer: {one_line(reason)}")
        self._over.set()

    def _greet_back(self) -> None:
        """Answer a keep-alive; at the dialling end an incoming one is itself an answer."""
        if not self._is_dialler and self._intake.takes():
            self._wire.write(b"")

    def _end(self) -> None:
        self._sender.close()
        self._tasks.cancel()
        self._calls.lose()

    def _take(self, frame: AnyFrame) -> None:
        """Dispatch a frame. An unexpected one counts as a call, since it costs this end as much."""
        match frame:
            case Ask():
                self._serving.serve(frame)
            case Answer():
                self._calls.answer(frame) or self._intake.takes()
            case Failure():
                self._calls.fail(frame) or self._intake.takes()
            case Item() | End():
                inbox = self._streams.inbox(frame.id)
                if inbox is not None:
                    inbox.put(frame.item if isinstance(frame, Item) else None)
                else:
                    self._intake.takes()
            case Cancel():
                self._intake.takes()
                self._serving.cancel(frame.id)
            case Grant():
                credit = self._streams.credit(frame.id)
                if credit is not None:
                    credit.add(frame.count)
                else:
                    self._intake.takes()
