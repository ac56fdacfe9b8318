"""Bounds what a websocket's caller may send before it is known.

The first message names the token. Until the caller is admitted, the agent keeps that message (`FIRST_BYTES_MAX`) and
what came in the same read behind it (`HELD_BYTES_MAX`), and reads nothing else: the caller's further messages wait in
its own kernel. A caller that is refused is read only to its close frame, without keeping anything.

States: awaiting the first message -> holding what came behind it -> admitted (everything goes to aiohttp's parser), or
refused (only a close frame does) -> ended (nothing does). Nothing reaches aiohttp's parser before the caller is
admitted or refused.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, Final

from aiohttp import web

from yurt.api.websocket import BINARY, CLOSE, TEXT, BrokenFrame, Message, WebSocketFrames, encode

FIRST_BYTES_MAX: Final = 8 * 1024
"""Bytes of the first message; a JSON web token has about one KiB."""
HELD_BYTES_MAX: Final = 512 * 1024
"""Bytes behind the first message; reading is paused then, so more than two reads of 256 KiB never come."""
NO_MASK = b"\0\0\0\0"


class _GateState(Enum):
    AWAITING = auto()
    HOLDING = auto()
    ADMITTED = auto()
    REFUSED = auto()
    ENDED = auto()


class FirstMessageSocket(web.WebSocketResponse):
    """A websocket that passes nothing on to its reader until the sender of its first message is admitted."""

    _gate: FirstMessageGate | None = None

    def _post_start(self, request: Any, protocol: str | None, writer: Any) -> None:
        # aiohttp hands its parser to the connection here, together with the bytes that came behind the head.
        self._gate = FirstMessageGate(request.protocol)
        super()._post_start(_GatedRequest(request, self._gate), protocol, writer)  # type: ignore[arg-type]

    async def first_message(self) -> Message:
        """The first message, CLOSE for a caller that leaves; raises BrokenFrame, for a message too long as well."""
        assert self._gate is not None, "the socket is not prepared"
        found = await self._gate.first
        if isinstance(found, BrokenFrame):
            raise found
        return found

    def admit(self) -> None:
        """Go on with the messages behind the first one."""
        assert self._gate is not None, "the socket is not prepared"
        self._gate.admit()

    def refuse(self) -> None:
        """Drop all that comes, up to the close frame."""
        if self._gate is not None:
            self._gate.refuse()


class FirstMessageGate:
    """Stands between a connection and aiohttp's parser of its frames, which it calls as the connection would."""

    def __init__(self, protocol: Any) -> None:
        self._parser: Any = None
        self.first: asyncio.Future[Message | BrokenFrame] = asyncio.get_running_loop().create_future()
        self._protocol = protocol
        self._frames = _frames()
        self._state = _GateState.AWAITING
        self._held = bytearray()
        self._closing: Message | None = None

    def attach(self, parser: Any) -> None:
        """Stand before this parser, before any byte comes."""
        self._parser = parser

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Bytes arrived."""
        if self._state is _GateState.ADMITTED:
            found: tuple[bool, bytes] = self._parser.feed_data(data)
            return found
        if self._state is _GateState.HOLDING:
            self._keep(data)
        elif self._state is _GateState.AWAITING:
            self._await(bytes(data))
        elif self._state is _GateState.REFUSED:
            self._drop(bytes(data))
        return False, b""

    def feed_eof(self) -> None:
        """The connection has ended."""
        if not self.first.done():
            self.first.set_result(Message(CLOSE, b""))
        self._parser.feed_eof()

    def admit(self) -> None:
        """Pass on the retained bytes and all later ones."""
        if self._state is _GateState.ENDED:
            return
        held, self._held, self._state = self._held, bytearray(), _GateState.ADMITTED
        self._protocol.resume_reading()  # before the parser gets anything: it may have reading paused again
        if held:
            self._parser.feed_data(bytes(held))

    def refuse(self) -> None:
        """Pass on nothing but a close frame, which may have been the first message."""
        if self._state in (_GateState.ADMITTED, _GateState.ENDED):
            return
        held, self._held, self._state = self._held, bytearray(), _GateState.REFUSED
        if self._closing is not None:
            self._close(self._closing)
        else:
            self._drop(bytes(held))
        self._protocol.resume_reading()

    def _await(self, data: bytes) -> None:
        try:
            message = self._frames.next_message(data)
            while message is not None and message.kind not in (TEXT, BINARY, CLOSE):
                message = self._frames.next_message()  # a ping may come before it
        except BrokenFrame as error:
            self._frames = _frames()  # without the beginning of a message that is too long
            self._hold(error)
            return
        if message is not None:
            if message.kind == CLOSE:
                self._closing = message
            rest = self._frames.take_rest()
            self._hold(message)
            self._keep(rest)

    def _hold(self, first: Message | BrokenFrame) -> None:
        self._state = _GateState.HOLDING
        # By the protocol, not by its transport: it resumes that one by itself after a full buffer of pipelined bytes.
        self._protocol.pause_reading()
        if not self.first.done():  # a cancelled request cancels it
            self.first.set_result(first)

    def _keep(self, data: bytes) -> None:
        """Hold bytes; an excess, which only a connection that is read in spite of the pause has, closes it."""
        if len(self._held) + len(data) > HELD_BYTES_MAX:
            self._state, self._held = _GateState.ENDED, bytearray()
            self._protocol.force_close()
            return
        self._held += data

    def _drop(self, data: bytes) -> None:
        """Find the close frame; parsing ends at malformed bytes and at a frame that is too long."""
        try:
            message = self._frames.next_message(data)
            while message is not None and message.kind != CLOSE:
                message = self._frames.next_message()
        except BrokenFrame:
            self._frames.take_rest()
            self._state = _GateState.ENDED
            return
        if message is not None:
            self._close(message)

    def _close(self, message: Message) -> None:
        self._state = _GateState.ENDED
        self._parser.feed_data(encode(CLOSE, message.data, mask=NO_MASK))


def _frames() -> WebSocketFrames:
    return WebSocketFrames(is_masked=True, bytes_max=FIRST_BYTES_MAX)


class _GatedRequest:
    """The request as `_post_start` uses it: the connection gets the gate in the place of the parser."""

    def __init__(self, request: Any, gate: FirstMessageGate) -> None:
        self._protocol = request._protocol
        self.protocol = self
        self._gate = gate

    def set_parser(self, parser: Any, data_received_cb: Any = None) -> None:
        self._gate.attach(parser)
        self._protocol.set_parser(self._gate, data_received_cb=data_received_cb)

    def keep_alive(self, value: bool) -> None:
        self._protocol.keep_alive(value)
