"""Response bodies in pieces, which are sent and compressed one by one and never joined."""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Final

from aiohttp import payload, web
from aiohttp.abc import AbstractStreamWriter

_GZIP = 16 + zlib.MAX_WBITS
ZIPPED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Cached bytes in gzip format."""
ZIPPED_ENTRY_BYTES: Final = 400
"""The memory of an entry in addition to its content, bytes."""
ZIPPED_PIECE: Final = 64 * 1024
"""Compressed bytes that are kept as one piece."""
ZIPPED_AT_ONCE: Final = 16 * 1024
"""Bytes that are compressed on the event loop: a millisecond at most."""


class PiecesBody(payload.Payload):
    """A body of known length; each piece is released once sent, and the loop gets a turn between two pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(deque(pieces), content_type="application/json")
        self.cached = pieces if isinstance(pieces, tuple) else ()
        """The whole body, where its maker keeps it."""
        self._size = sum(map(len, pieces))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """All that has not been sent yet, as text."""
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the pieces, each when the reader has taken the previous one."""
        while self._value:
            await writer.write(self._value.popleft())
            await asyncio.sleep(0)

    async def zipped(self) -> PiecesBody:
        """The same in gzip's format, made in a thread."""
        return PiecesBody(await asyncio.to_thread(_zipped, self._value))


def body_of(pieces: Sequence[bytes]) -> bytes | PiecesBody:
    """What an answer is given for a body: one piece is as good as any bytes."""
    return pieces[0] if len(pieces) == 1 else PiecesBody(pieces)


class CachedResponse(web.Response):
    """An answer whose bytes are cached for further requests."""

    uncompressed: bytes | PiecesBody | None = None
    """The body before it was compressed; None if it was not."""


class ZippedTexts:
    """Kept bytes in gzip's format, compressed once; the least recently used ones are dropped.

    The key is the identity of the bytes, which an entry holds.
    """

    def __init__(self, bytes_max: int = ZIPPED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[int, tuple[bytes | tuple[bytes, ...], tuple[bytes, ...], int]] = OrderedDict()
        self.bytes = 0

    def find(self, body: bytes) -> bytes | None:
        """A short body in gzip's format, if that is cached."""
        entry = self._entries.get(id(body))
        if entry is None or len(entry[1]) > 1:
            return None
        self._entries.move_to_end(id(body))
        return entry[1][0]

    async def zipped(self, body: bytes | PiecesBody) -> bytes | PiecesBody:
        """A body in gzip's format."""
        source = body.cached if isinstance(body, PiecesBody) else body
        entry = self._entries.get(id(source))
        if entry is not None:
            self._entries.move_to_end(id(source))
            return body_of(entry[1])
        pieces = (source,) if isinstance(source, bytes) else source
        is_short = sum(map(len, pieces)) <= ZIPPED_AT_ONCE
        made = tuple(_zip(pieces) if is_short else await asyncio.to_thread(_zip, pieces))
        if sum(map(len, made)) <= ZIPPED_PIECE:
            made = (b"".join(made),)
        size = sum(map(len, (*pieces, *made))) + ZIPPED_ENTRY_BYTES
        if id(source) not in self._entries and size <= self._bytes_max:
            self._keep(source, made, size)
        return body_of(made)

    def _keep(self, source: bytes | tuple[bytes, ...], made: tuple[bytes, ...], size: int) -> None:
        self._entries[id(source)] = (source, made, size)
        self.bytes += size
        while self.bytes > self._bytes_max:
            _, (_, _, dropped) = self._entries.popitem(last=False)
            self.bytes -= dropped


def _zipped(pieces: deque[bytes]) -> list[bytes]:
    """The pieces, each of which is let go of when it is compressed."""
    return _zip(pieces.popleft() for _ in range(len(pieces)))


def _zip(pieces: Iterable[bytes]) -> list[bytes]:
    compressor = zlib.compressobj(wbits=_GZIP)
    made = [compressor.compress(piece) for piece in pieces]
    return [piece for piece in (*made, compressor.flush()) if piece]
