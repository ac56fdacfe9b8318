"""The first root key, made for readers of the public keys: clients of Nomad wait for one before they use an agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from yurt.sdk.errors import Unavailable
from yurt.server.log.replica import Replica
from yurt.structs.variable import RootKeyMeta

log = logging.getLogger(__name__)


class FirstKey:
    """One attempt for each start of a server, and only while it leads.

    Readers need not show a token, and an attempt writes a file on every server and an entry of the log: what fails is
    left to those who need a key, and to the leader's own duty.
    """

    def __init__(self, replica: Replica, make: Callable[[], Awaitable[RootKeyMeta]]) -> None:
        """`make` returns the active key, made if there is none; raises Unavailable."""
        self._replica = replica
        self._make = make
        self._making = asyncio.Lock()
        self._is_tried = False

    async def make(self) -> None:
        """Make the first key; no effect with a key, after the first attempt, and on a server that does not lead."""
        async with self._making:
            if self._replica.state.root_keys or self._is_tried or not self._replica.writer.is_open:
                return
            self._is_tried = True
            try:
                await self._make()
            except Unavailable as error:
                log.warning("no first key for the readers of the public keys: error=%s", error)
