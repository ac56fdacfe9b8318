"""Timers of the nodes' heartbeats: who did not call in time is lost."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import Final

from yurt.duties.nodes import heartbeat_ttl_s
from yurt.runtime.env import Env
from yurt.server.config import ServerConfig
from yurt.server.waiting import wait_for
from yurt.state import Snapshot
from yurt.structs import status

RETRY_S: Final = 1.0


class Heartbeats:
    """Deadlines by node id, on the monotonic clock."""

    def __init__(self, *, env: Env, config: ServerConfig, on_missed: Callable[[str], Awaitable[None]]) -> None:
        self._env = env
        self._config = config
        self._on_missed = on_missed
        self._deadlines: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._deadlines)

    def restore(self, state: Snapshot) -> None:
        """Give every node that was not down time to find its new leader."""
        for node in state.nodes.values():
            if node.status != status.NODE_DOWN:
                self._set(node.id, self._config.failover_heartbeat_ttl_s)

    def reset(self, node_id: str) -> float:
        """The node has called: seconds until it must call again."""
        ttl = heartbeat_ttl_s(
            len(self._deadlines),
            minimum_s=self._config.min_heartbeat_ttl_s,
            per_second=self._config.max_heartbeats_per_second,
            draw=self._env.random(),
        )
        self._set(node_id, ttl + self._config.heartbeat_grace_s)
        return ttl

    def forget(self, node_id: str) -> None:
        """The node is gone."""
        self._deadlines.pop(node_id, None)

    async def run(self) -> None:
        """Report nodes whose time is over, until cancelled."""
        while True:
            self._changed.clear()
            for node_id in self._due():
                try:
                    await self._on_missed(node_id)
                except Exception:
                    self._set(node_id, RETRY_S)
                    raise
            delay = self._heap[0][0] - self._env.monotonic() if self._heap else None
            await wait_for(self._env, self._changed, delay)

    def _due(self) -> list[str]:
        now = self._env.monotonic()
        due = []
        while self._heap and self._heap[0][0] <= now:
            deadline, node_id = heapq.heappop(self._heap)
            if self._deadlines.get(node_id) == deadline:
                del self._deadlines[node_id]
                due.append(node_id)
        return due

    def _set(self, node_id: str, delay_s: float) -> None:
        deadline = self._env.monotonic() + delay_s
        is_first = not self._heap or deadline < self._heap[0][0]
        self._deadlines[node_id] = deadline
        heapq.heappush(self._heap, (deadline, node_id))
        if is_first:
            self._changed.set()
