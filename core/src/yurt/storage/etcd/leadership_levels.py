"""The present leader as a level rather than a queue: slow readers see the present value."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from yurt.storage.log import Leadership


class LeadershipLevels:
    """The present level, for several readers."""

    def __init__(self) -> None:
        self.is_closed = False
        self._level: Leadership | None = None
        self._readers: set[asyncio.Event] = set()

    def set(self, level: Leadership) -> None:
        """Set the level."""
        if level != self._level:
            self._level = level
            self._wake()

    def close(self) -> None:
        """End the readers' streams."""
        self.is_closed = True
        self._wake()

    async def follow(self) -> AsyncIterator[Leadership]:
        """The present level, then its changes; the end of a term always shows before the next one."""
        changed = asyncio.Event()
        self._readers.add(changed)
        told: Leadership | None = None
        try:
            while not self.is_closed:
                level = self._level
                # A reader that slept from one own term into the next must see the first one end: duties stop by it.
                if told is not None and level is not None and told.is_leader and level.is_leader and told != level:
                    level = Leadership(is_leader=False, epoch=told.epoch)
                if level is not None and level != told:
                    told = level
                    yield level
                    continue
                await changed.wait()
                changed.clear()
        finally:
            self._readers.discard(changed)

    def _wake(self) -> None:
        for reader in self._readers:
            reader.set()
