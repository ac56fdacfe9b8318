"""The streams of one connection, by their calls: items that have come, and how many the far end still takes.

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


class Streams:
    """The streams that are open, those of this end's calls and those of calls that it serves."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._inboxes: dict[int, Inbox] = {}
        self._credits: dict[int, Credit] = {}

    def open(self, call_id: int) -> Inbox:
        """Take items of a call, and send some."""
        inbox = self._inboxes[call_id] = Inbox()
        self._credits[call_id] = Credit()
        return inbox

    def close(self, call_id: int) -> None:
        """The call is over; nothing happens for a call without items."""
        self._inboxes.pop(call_id, None)
        self._credits.pop(call_id, None)

    def inbox(self, call_id: int) -> Inbox | None:
        """The items of a call that is going on."""
        return self._inboxes.get(call_id)

    def credit(self, call_id: int) -> Credit | None:
        """What the far end of a call still takes."""
        return self._credits.get(call_id)

    def fail(self, error: Exception) -> None:
        """The connection has ended."""
        for inbox in self._inboxes.values():
            inbox.fail(error)

    async def send(self, call_id: int, items: AsyncIterator[Any]) -> None:
        """Send all items of a call, as fast as the far end takes them."""
        credit = self._credits[call_id]
        async for item in items:
            await credit.take()
            self._sender.post(Item(call_id, encoded(item)))
        self._sender.post(End(call_id))

    async def receive(self, call_id: int, kind: Any) -> AsyncGenerator[Any]:
        """The items of a call until their end."""
        inbox = self._inboxes[call_id]
        while (data := await inbox.get()) is not None:
            self._sender.post(Grant(call_id, 1))
            yield decoded(data, kind)
