"""Snapshots of the state on each server's own schedule, and the resulting trimming of the log.

What may be trimmed of a log that servers share is the log's to say: it knows how far their snapshots reach.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from yurt.fsm import snapshot as snapshots
from yurt.runtime.env import Env
from yurt.server.config import ServerConfig
from yurt.server.log.log_writer import LogWriter
from yurt.storage.log import CommandLog

log = logging.getLogger(__name__)

SCRUB_INTERVAL_S: Final = 3600.0
"""The seconds between two checks of all data on disk."""
CROWDED_PAUSE_S: Final = 2.0
"""Seconds between two snapshots while the log is short of space."""


class Snapshotter:
    """Saves the state when the log has grown by the configured number of commands; never with `dev`."""

    def __init__(self, log: CommandLog, *, writer: LogWriter, env: Env, config: ServerConfig) -> None:
        self._log = log
        self._writer = writer
        self._env = env
        self._config = config
        self._saved = asyncio.Lock()
        self.index = 0

    async def run(self) -> None:
        """Check at each interval, and whenever the log runs short of space, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_on_schedule())
            group.create_task(self._run_when_crowded())
            group.create_task(self._run_scrubs())

    async def _run_on_schedule(self) -> None:
        while True:
            await self._env.sleep(self._config.snapshot_interval_s)
            if self._writer.state.index - self.index >= self._config.snapshot_threshold:
                await self.save()

    async def _run_when_crowded(self) -> None:
        while True:
            await self._log.wait_crowded()
            await self.save(keep=0)
            await self._env.sleep(CROWDED_PAUSE_S)

    async def _run_scrubs(self) -> None:
        """Check the disk for damage. A new snapshot of the sound state in memory replaces damaged files."""
        while not self._config.dev:
            await self._env.sleep(SCRUB_INTERVAL_S)
            problem = await self._log.scrub()
            if problem:
                log.error("damage found on disk, a new snapshot is saved; check the disk: %s", problem)
                await self.save(is_forced=True)

    async def save(self, *, keep: int | None = None, is_forced: bool = False) -> None:
        """Save a newer state and trim the log; after a failure the log is still complete.

        `keep` commands stay in the log for those who lag, by default as many as configured. `is_forced` saves the state
        again where it was saved already.
        """
        if self._config.dev:
            return
        async with self._saved:
            state = self._writer.state
            if state.index <= self.index and keep is None and not is_forced:
                return
            try:
                if state.index > self.index or is_forced:
                    await self._log.save_snapshot(state.index, snapshots.encode(state))
                await self._log.trim(state.index, keep=self._config.trailing_entries if keep is None else keep)
            except Exception as error:
                log.error("saving a snapshot at index %d failed, the log keeps everything: %s", state.index, error)
                return
            self.index = state.index
