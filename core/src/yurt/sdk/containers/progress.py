"""Progress of starting tasks, published to subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

TEXTS_MAX = 32


class StartProgress:
    """Texts by task; each subscriber gets the texts of one start."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[str]] = {}

    def publish(self, task_id: str, text: str) -> None:
        """Publish a text; it is dropped without subscribers, and for slow ones."""
        queue = self._queues.get(task_id)
        if queue and not queue.full():
            queue.put_nowait(text)

    async def follow(self, task_id: str) -> AsyncGenerator[str, None]:
        """The texts as they are published, until the subscriber stops."""
        queue = self._queues[task_id] = asyncio.Queue(TEXTS_MAX)
        try:
            while True:
                yield await queue.get()
        finally:
            self._queues.pop(task_id, None)
