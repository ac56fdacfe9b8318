"""Snapshots of the state, on every server's own schedule, and trimming of the log behind them.

What may be trimmed of a log that servers share is the log's to say: it knows how far their snapshots reach.
"""

from __future__ import annotations

import asyncio
import logging

from yurt.fsm import snapshot as snapshots
from yurt.runtime.env import Env
from yurt.server.config import ServerConfig
from yurt.server.log_writer import LogWriter
from yurt.storage.log import CommandLog

log = logging.getLogger(__name__)


class Snapshotter:
    """Saves the state when the log has grown by the configured number of commands; nothing is saved with `dev`."""

    def __init__(self, log: CommandLog, *, writer: LogWriter, env: Env, config: ServerConfig) -> None:
        self._log = log
        self._writer = writer
        self._env = env
        self._config = config
        self._saved = asyncio.Lock()
        self.index = 0

    async def run(self) -> None:
        """Look each interval until cancelled."""
        while True:
            await self._env.sleep(self._config.snapshot_interval_s)
            if self._writer.state.index - self.index >= self._config.snapshot_threshold:
                await self.save()

    async def save(self) -> None:
        """Save the present state and trim the log; a failure is logged, the log still has everything."""
        if self._config.dev:
            return
        async with self._saved:
            state = self._writer.state
            if state.index <= self.index:
                return
            try:
                await self._log.save_snapshot(state.index, snapshots.encode(state))
                await self._log.trim(state.index, keep=self._config.trailing_entries)
            except Exception as error:
                log.error("saving a snapshot at index %d failed, the log keeps everything: %s", state.index, error)
                return
            self.index = state.index
