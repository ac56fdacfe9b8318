"""The last applied commands and their changes, for `/v1/event/stream`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import NamedTuple

from yurt.state import Changes


class Event(NamedTuple):
    """What one command changed."""

    index: int  # type: ignore[assignment]
    changes: Changes
    command: str


class EventBuffer:
    """The newest events; a subscriber that falls behind the buffer goes on at its oldest one."""

    def __init__(self, size: int = 100) -> None:
        self._events: deque[Event] = deque(maxlen=size)
        self._arrived = asyncio.Event()

    def add(self, event: Event) -> None:
        """Append, dropping the oldest one when full."""
        self._events.append(event)
        arrived, self._arrived = self._arrived, asyncio.Event()
        arrived.set()

    async def subscribe(self, from_index: int = 0) -> AsyncIterator[Event]:
        """Buffered events from `from_index` on, that one included, then new ones as they come."""
        next_index = from_index
        while True:
            arrived = self._arrived
            found = [event for event in self._events if event.index >= next_index]
            for event in found:
                next_index = event.index + 1
                yield event
            if not found:
                await arrived.wait()
