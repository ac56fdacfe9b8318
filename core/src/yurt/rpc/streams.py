"""The streams of one connection by call: received items, and how many the far end still accepts.

Each end grants the other a window of items, so that no reader is sent more than it can hold.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from yurt.rpc.coding import decoded, encoded
from yurt.rpc.frames import WINDOW, End, Grant, Item
from yurt.rpc.intake import Abuse
from yurt.rpc.sending import Sender
from yurt.sdk.errors import YurtError


class Inbox:
    """The received items of one stream, for its reader."""

    def __init__(self) -> None:
        self._items: deque[bytes | Exception | None] = deque()
        self._has = asyncio.Event()

    def put(self, item: bytes | YurtError | None) -> None:
        """Add an item, the end (None) or an exception; raises Abuse beyond the granted number."""
        if len(self._items) > WINDOW:
            raise Abuse("it sends more items than it was granted")
        self._items.append(item)
        self._has.set()

    def fail(self, error: Exception) -> None:
        """Fail the stream: the connection has ended, or this end cannot continue."""
        self._items.append(error)
        self._has.set()

    async def get(self) -> bytes | None:
        """The next item, None at the end; raises the stream's exception."""
        while not self._items:
            self._has.clear()
            await self._has.wait()
        item = self._items.popleft()
        if isinstance(item, Exception):
            raise item
        return item


class Credit:
    """How many items the far end still accepts."""

    def __init__(self) -> None:
        self._left = WINDOW
        self._more = asyncio.Event()

    def add(self, count: int) -> None:
        """Add credit from the far end; raises Abuse when that exceeds the number of sent items."""
        if not 0 < count <= WINDOW - self._left:
            raise Abuse("it grants more items than it was sent")
        self._left += count
        self._more.set()

    async def take(self) -> None:
        """Wait until another item may be sent."""
        while self._left <= 0:
            self._more.clear()
            await self._more.wait()
        self._left -= 1


class Streams:
    """The open streams, both of this end's calls and of served calls."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._inboxes: dict[int, Inbox] = {}
        self._credits: dict[int, Credit] = {}

    def open(self, call_id: int) -> Inbox:
        """Open the streams of a call."""
        inbox = self._inboxes[call_id] = Inbox()
        self._credits[call_id] = Credit()
        return inbox

    def close(self, call_id: int) -> None:
        """Close the streams of an ended call; no effect for a call without items."""
        self._inboxes.pop(call_id, None)
        self._credits.pop(call_id, None)

    def inbox(self, call_id: int) -> Inbox | None:
        """The received items of a call in progress."""
        return self._inboxes.get(call_id)

    def credit(self, call_id: int) -> Credit | None:
        """The credit of a call in progress."""
        return self._credits.get(call_id)

    def fail(self, error: Exception) -> None:
        """Fail all streams: the connection has ended."""
        for inbox in self._inboxes.values():
            inbox.fail(error)

    async def send(self, call_id: int, items: AsyncIterator[Any]) -> None:
        """Send all items of a call at the rate the far end accepts."""
        credit = self._credits[call_id]
        async for item in items:
            await credit.take()
            self._sender.post(Item(call_id, encoded(item)))
        self._sender.post(End(call_id))

    async def receive(self, call_id: int, kind: Any) -> AsyncGenerator[Any]:
        """The items of a call until its end."""
        inbox = self._inboxes[call_id]
        while (data := await inbox.get()) is not None:
            self._sender.post(Grant(call_id, 1))
            yield decoded(data, kind)
