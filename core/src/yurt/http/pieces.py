"""Response bodies in pieces, which are sent and compressed one by one and never joined."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Sequence

from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter

_GZIP = 16 + zlib.MAX_WBITS


class PiecesBody(payload.Payload):
    """A body of known length; each piece is let go of when it is sent, and the loop has a turn between two of them."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(deque(pieces), content_type="application/json")
        self._size = sum(map(len, pieces))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """All that has not been sent yet, as text."""
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the pieces, each when the reader has taken the one before it."""
        while self._value:
            await writer.write(self._value.popleft())
            await asyncio.sleep(0)

    async def zipped(self) -> PiecesBody:
        """The same in gzip's format, made in a thread."""
        return PiecesBody(await asyncio.to_thread(_zipped, self._value))


def body_of(pieces: Sequence[bytes]) -> bytes | PiecesBody:
    """What an answer is given for a body: one piece is as good as any bytes."""
    return pieces[0] if len(pieces) == 1 else PiecesBody(pieces)


def _zipped(pieces: deque[bytes]) -> list[bytes]:
    compressor = zlib.compressobj(wbits=_GZIP)
    made = []
    while pieces:
        made.append(compressor.compress(pieces.popleft()))
    return [piece for piece in (*made, compressor.flush()) if piece]
