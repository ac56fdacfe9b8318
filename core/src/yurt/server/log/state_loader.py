"""Loads the state at a server's start: its newest snapshot, then the later commands of the log.

Where the log begins later than the snapshot ends, the state of another server comes first (`catch_up`). A server that
has others waits for one of them, or for its log, as long as it takes; one that stands alone fails.
"""

from __future__ import annotations

import logging
from typing import Final

from yurt.fsm import snapshot as snapshots
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable
from yurt.server.log.catch_up import fetch_snapshot
from yurt.server.log.log_writer import LogWriter
from yurt.server.log.snapshots import Snapshotter
from yurt.server.peers import NoPeers, Peers
from yurt.state import Snapshot
from yurt.storage.log import CommandLog, LogTrimmed

log = logging.getLogger(__name__)

START_RETRY_S: Final = 1.0


class StateLoader:
    """Loads the state, and tells whether it is loaded."""

    def __init__(
        self, command_log: CommandLog, *, writer: LogWriter, snapshotter: Snapshotter, peers: Peers, env: Env
    ) -> None:
        self.is_restored = False
        """Whether the state includes the log, instead of being empty because nothing was read yet."""
        self.awaits = ""
        """The reason why the agent has not let the log be opened yet."""
        self._log = command_log
        self._writer = writer
        self._snapshotter = snapshotter
        self._peers = peers
        self._env = env

    @property
    def why_unread(self) -> str:
        """The reason why the state is not loaded yet."""
        return self.awaits or "still reads its state"

    def need_state(self) -> None:
        """Raises Unavailable until the state is loaded."""
        if not self.is_restored:
            raise Unavailable(f"this server {self.why_unread}; try again in a moment")

    async def load(self) -> None:
        """Open the log and load the state."""
        await self._log.open()
        stored = await self._log.load_snapshot()
        if stored is not None:
            self._take(snapshots.decode(stored[1]))
        count = await self._replay()
        self.is_restored = True
        if stored is not None or count:
            log.info("state restored at index %d, %d commands replayed", self._writer.state.index, count)

    async def install(self, state: Snapshot) -> None:
        """Continue from a newer state of another server."""
        await self._writer.install(state)
        self._snapshotter.index = state.index

    async def _replay(self) -> int:
        """Apply the log; when its start is missing, load another server's snapshot first."""
        while True:
            try:
                return await self._writer.replay()
            except (LogTrimmed, Unavailable) as error:
                if isinstance(self._peers, NoPeers):
                    raise
                log.warning("this server cannot start yet: %s", error)
                if isinstance(error, LogTrimmed) and await self._start_from_peer():
                    continue
            await self._env.sleep(START_RETRY_S)

    async def _start_from_peer(self) -> bool:
        """Start from another server's state; returns whether one was available."""
        try:
            self._take(await fetch_snapshot(self._peers, self._log, after=self._writer.state.index))
        except Unavailable as error:
            log.error("this server cannot start yet: %s", error)
            return False
        return True

    def _take(self, state: Snapshot) -> None:
        """Start from a stored state, before anyone reads it."""
        self._writer.state = state
        self._snapshotter.index = state.index
