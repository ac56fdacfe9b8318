"""Watches one engine: its health, and which containers have ended.

One stream of events serves all containers. An event is only a hint: its receiver queries the container's state. Because
events are lost while the stream is down, all containers of this client are listed each time the stream is up again, and
periodically. A query every few seconds distinguishes an engine that hangs from one without events.

States: absent (no socket) or down -stream opens-> up -stream breaks, or a query is not answered-> down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

import aiohttp

from yurt.sdk.containers.background import DriverTasks, is_set_within
from yurt.sdk.containers.engine import Engine, EngineDown, lines_of
from yurt.sdk.driver import UNDETECTED, UNHEALTHY, Fingerprint
from yurt.sdk.errors import DriverError, NotFound

RETRY_FIRST_S, RETRY_MAX_S = 0.1, 3.0
ASK_EVERY_S = 5.0
LIST_EVERY_ASKS = 6


class EngineQueries(Protocol):
    """Queries of one kind of engine; errors are DriverError, NotFound and ValueError."""

    install: str
    """The hint to install an engine, when there is none."""
    restart: str
    """The hint to restart an engine that does not work."""

    async def look(self) -> Fingerprint:
        """The fingerprint of a healthy engine."""
        ...

    def events(self) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The stream of end events of this client's containers."""
        ...

    async def states(self) -> Mapping[str, str]:
        """All containers of this client, with their states."""
        ...


class Watch:
    """Calls `on_end` for containers that may have ended, and `on_list` with all containers of this client."""

    def __init__(
        self,
        engine: Engine,
        queries: EngineQueries,
        *,
        on_end: Callable[[str], None],
        on_list: Callable[[Mapping[str, str]], None],
    ) -> None:
        self.engine = engine
        self.queries = queries
        self.on_end = on_end
        self.on_list = on_list
        self.found: Fingerprint | None = None
        self.changed = asyncio.Event()
        self.up = asyncio.Event()

    def begin(self, background: DriverTasks) -> None:
        """Start watching."""
        background.start("events of the engine", self._follow_events)
        background.start("health of the engine", self._ask_health)

    async def fingerprints(self) -> AsyncIterator[Fingerprint]:
        """The present fingerprint, then each change."""
        last: Fingerprint | None = None
        if self.found is None:
            await self._look()
        while True:
            changed, found = self.changed, self.found
            if found is not None and found != last:
                last = found
                yield found
            else:
                await changed.wait()

    async def wait_up(self, within_s: float) -> bool:
        """Wait, up to a time limit, until the engine is healthy."""
        return await is_set_within(self.up, within_s)

    async def _follow_events(self) -> None:
        """Keep the stream of events open."""
        wait_s = RETRY_FIRST_S
        while True:
            try:
                await self._events_once()
                wait_s = RETRY_FIRST_S
            except (DriverError, NotFound, ValueError):
                wait_s = min(wait_s * 2, RETRY_MAX_S)
            self.up.clear()
            await self._look()
            await asyncio.sleep(wait_s)

    async def _events_once(self) -> None:
        """Read one event stream to its end."""
        async with self.queries.events() as response:
            await self._look()
            await self.list_all()
            async for event in lines_of(response):
                self.on_end(ended_container(event))

    async def _ask_health(self) -> None:
        """Periodically check the engine's health and list its containers."""
        asks = 0
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            asks += 1
            was_up = self.up.is_set()
            await self._look()
            if self.up.is_set() and (not was_up or asks % LIST_EVERY_ASKS == 0):
                with suppress(DriverError, NotFound):
                    await self.list_all()

    async def list_all(self) -> None:
        """Report all containers of this client."""
        self.on_list(await self.queries.states())

    async def _look(self) -> None:
        """Update the fingerprint from the engine's health."""
        try:
            found = await self.queries.look()
        except (DriverError, NotFound, ValueError) as error:
            self._note(self._unwell(error), is_up=False)
            return
        self._note(found, is_up=True)

    def _unwell(self, error: Exception) -> Fingerprint:
        """The fingerprint of a failing engine: undetected if it was never healthy, otherwise unhealthy."""
        was_seen = self.found is not None and self.found.health != UNDETECTED
        if self.engine.target.is_absent() and not was_seen:
            return Fingerprint(health=UNDETECTED, description=str(error), fix=self.queries.install)
        fix = self.queries.restart if was_seen or isinstance(error, EngineDown) else self.queries.install
        fix = self.engine.target.group_fix() or fix
        return Fingerprint(health=UNHEALTHY, description=str(error), fix=fix)

    def _note(self, found: Fingerprint, *, is_up: bool) -> None:
        """Store a fingerprint and wake waiters for a change."""
        if is_up:
            self.up.set()
        else:
            self.up.clear()
        if found != self.found:
            self.found = found
            self.changed.set()
            self.changed = asyncio.Event()


def ended_container(event: Mapping[str, Any]) -> str:
    """The container of an event, in the format of Docker's API and its copies."""
    return str((event.get("Actor") or {}).get("ID", ""))
