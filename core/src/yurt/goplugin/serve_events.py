"""Publishes a served driver's progress messages during a start to all connected hosts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from yurt.goplugin import convert
from yurt.goplugin.messages import Message, driver_message
from yurt.runtime.env import Env
from yurt.sdk.driver import Driver, ProgressDriver

EVENTS_MAX: Final = 256


class StartEvents:
    """The start events of one driver and their subscribers."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._listeners: set[asyncio.Queue[Message | None]] = set()

    async def events(self, _request: Message) -> AsyncIterator[Message]:
        """The stream of start events, open until the plugin ends, as the host expects."""
        events: asyncio.Queue[Message | None] = asyncio.Queue(EVENTS_MAX)
        self._listeners.add(events)
        try:
            while (event := await events.get()) is not None:
                yield event
        finally:
            self._listeners.discard(events)

    async def follow(self, served_driver: Driver, task: Message) -> None:
        """Publish a driver's progress during a start; a slow subscriber misses events."""
        driver: object = served_driver
        if not isinstance(driver, ProgressDriver):
            return
        async for text in driver.progress(task.id):
            event = driver_message(
                "DriverTaskEvent", task_id=task.id, alloc_id=task.alloc_id, task_name=task.name, message=text,
                timestamp=convert.timestamp_fields(self._env.now()),
            )  # fmt: skip
            for listener in self._listeners:
                with contextlib.suppress(asyncio.QueueFull):
                    listener.put_nowait(event)

    def close(self) -> None:
        """End the streams; unread events are dropped."""
        for listener in self._listeners:
            while listener.full():
                listener.get_nowait()
            listener.put_nowait(None)
