"""What a driver does for tasks whose start is under way, for those who follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

TEXTS_MAX = 32


class Telling:
    """Texts by task; who follows gets those of one start."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[str]] = {}

    def tell(self, task_id: str, text: str) -> None:
        """Tell those who follow; when nobody does, or they are slow, it is lost."""
        queue = self._queues.get(task_id)
        if queue and not queue.full():
            queue.put_nowait(text)

    async def follow(self, task_id: str) -> AsyncGenerator[str, None]:
        """The texts as they come, until the one who follows has enough."""
        queue = self._queues[task_id] = asyncio.Queue(TEXTS_MAX)
        try:
            while True:
                yield await queue.get()
        finally:
            self._queues.pop(task_id, None)
