"""Snapshots of the state, on every server's own schedule, and trimming of the log behind them, by the leader.

The log keeps what a majority of the servers does not have in a snapshot on disk, and some more for those that lag.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from yurt.fsm import snapshot as snapshots
from yurt.sdk.errors import YurtError
from yurt.storage.log import CommandLog

if TYPE_CHECKING:
    from yurt.server.server import Server

log = logging.getLogger(__name__)

ANSWER_LIMIT_S: Final = 2.0
"""How long a server may take to say how far its snapshots reach."""


class Snapshotter:
    """Saves the state when the log has grown by the configured number of commands; nothing is saved with `dev`."""

    def __init__(self, server: Server, command_log: CommandLog) -> None:
        self._server = server
        self._log = command_log
        self._saved = asyncio.Lock()
        self._trimmed_at = 0
        self.index = 0

    async def run(self) -> None:
        """Look each interval until cancelled."""
        config = self._server.config
        while True:
            await self._server.env.sleep(config.snapshot_interval_s)
            if self._server.state.index - self.index >= config.snapshot_threshold:
                await self.save()
            elif self.index:
                await self._trim()

    async def save(self) -> None:
        """Save the present state and trim the log; a failure is logged, the log still has everything."""
        if self._server.config.dev:
            return
        async with self._saved:
            state = self._server.state
            if state.index <= self.index:
                return
            try:
                await self._log.save_snapshot(state.index, snapshots.encode(state))
            except Exception as error:
                log.error("saving a snapshot at index %d failed, the log keeps everything: %s", state.index, error)
                return
            self.index = state.index
        await self._trim()

    async def _trim(self) -> None:
        """Forget what a majority has in snapshots; only the leader does."""
        server = self._server
        if not server.is_leader and server.peers.voters > 1:
            return
        index = await self._saved_by_majority()
        if index <= self._trimmed_at:
            return
        try:
            await self._log.trim(index, keep=server.config.trailing_entries)
        except Exception as error:
            log.error("the log could not be trimmed below index %d: %s", index, error)
            return
        self._trimmed_at = index

    async def _saved_by_majority(self) -> int:
        """The newest index that a majority of all servers, those away included, has reached with a snapshot."""
        peers = self._server.peers
        answers = await asyncio.gather(*(self._saved_by(name) for name in peers.names))
        reached = sorted((self.index, *answers), reverse=True)
        needed = peers.voters // 2 + 1
        return reached[needed - 1] if len(reached) >= needed else 0

    async def _saved_by(self, name: str) -> int:
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                return (await self._server.peers.peer(name).status()).snapshot_index
        except (YurtError, TimeoutError):
            return 0
