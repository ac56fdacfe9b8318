"""The present leader as a value instead of a queue: slow readers skip to the present one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from yurt.storage.log import Leadership


class LeadershipLevels:
    """The present leadership, for several readers."""

    def __init__(self) -> None:
        self.is_closed = False
        self._level: Leadership | None = None
        self._readers: dict[asyncio.Event, None] = {}
        """In the order in which they came: a set would go by addresses, which differ from run to run."""

    def set(self, level: Leadership) -> None:
        """Set the present leadership."""
        if level != self._level:
            self._level = level
            self._wake()

    def close(self) -> None:
        """End the readers' streams."""
        self.is_closed = True
        self._wake()

    async def follow(self) -> AsyncIterator[Leadership]:
        """The present leadership, then its changes; the end of an own term always comes before the next one."""
        changed = asyncio.Event()
        self._readers[changed] = None
        yielded: Leadership | None = None
        try:
            while not self.is_closed:
                level = self._level
                # A reader that missed the change from one own term to the next must see the end of the first: it stops
                # its duties.
                if (
                    yielded is not None
                    and level is not None
                    and yielded.is_leader
                    and level.is_leader
                    and yielded != level
                ):
                    level = Leadership(is_leader=False, epoch=yielded.epoch)
                if level is not None and level != yielded:
                    yielded = level
                    yield level
                    continue
                await changed.wait()
                changed.clear()
        finally:
            self._readers.pop(changed, None)

    def _wake(self) -> None:
        for reader in self._readers:
            reader.set()
