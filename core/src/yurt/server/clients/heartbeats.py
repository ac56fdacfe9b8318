"""The heartbeat timers of nodes: a node that misses its deadline is lost."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from yurt.duties.nodes import heartbeat_ttl_s
from yurt.runtime.env import Env
from yurt.runtime.supervise import outcome_of
from yurt.runtime.turns import Turns
from yurt.server.config import ServerConfig
from yurt.server.log.state_waits import wait_for
from yurt.state import Snapshot
from yurt.structs import status

RETRY_S: Final = 1.0
TOGETHER: Final = 500
"""The number of nodes whose loss is stored concurrently, so that one append serves many."""
NODES_A_SLICE: Final = 2
"""The number of nodes whose allocations are examined in one turn of the loop: each may have those of hundreds of
jobs."""
LATE_S: Final = 1.0
"""The delay of a check, in seconds, from which the server itself was blocked: heartbeats that arrived meanwhile are
unread."""

log = logging.getLogger(__name__)


class Heartbeats:
    """Deadlines by node id, on the monotonic clock."""

    def __init__(
        self, *, env: Env, config: ServerConfig, on_missed: Callable[[str], Awaitable[None]], turns: Turns
    ) -> None:
        self._env = env
        self._turns = turns
        self._config = config
        self._on_missed = on_missed
        self._deadlines: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._excused: set[str] = set()
        """Nodes with a grace period because the server was blocked, and without a heartbeat since."""
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._deadlines)

    def restore(self, state: Snapshot) -> None:
        """Give every node that was not down a full period to find its new leader."""
        for node in state.nodes.values():
            if node.status != status.NODE_DOWN:
                self._set(node.id, self._config.failover_heartbeat_ttl_s)

    def reset(self, node_id: str) -> float:
        """Record a heartbeat; returns the seconds until the next one is due."""
        self._excused.discard(node_id)
        ttl = heartbeat_ttl_s(
            len(self._deadlines),
            minimum_s=self._config.min_heartbeat_ttl_s,
            per_second=self._config.max_heartbeats_per_second,
            draw=self._env.random(),
        )
        self._set(node_id, ttl + self._config.heartbeat_grace_s)
        return ttl

    def is_awaited(self, node_id: str) -> bool:
        """Whether the node has sent a heartbeat and the next one is not overdue."""
        return node_id in self._deadlines

    def forget(self, node_id: str) -> None:
        """Remove the timer of a deleted node."""
        self._excused.discard(node_id)
        self._deadlines.pop(node_id, None)

    async def run(self) -> None:
        """Report nodes that missed their deadline, until cancelled."""
        while True:
            self._changed.clear()
            late_s = self._late_s()
            due = self._due()
            await self._report(self._unexcused(due, late_s) if late_s > LATE_S else due)
            delay = self._heap[0][0] - self._env.monotonic() if self._heap else None
            await wait_for(self._env, self._changed, delay)

    async def _report(self, due: list[str]) -> None:
        """Store that nodes are lost; failures are retried later, and the first error is raised."""
        for start in range(0, len(due), TOGETHER):
            chunk = due[start : start + TOGETHER]
            outcomes: list[asyncio.Task[Exception | None]] = []
            async with asyncio.TaskGroup() as group:
                async for part in self._turns.slices(chunk, NODES_A_SLICE):
                    outcomes += [group.create_task(outcome_of(self._on_missed(node_id))) for node_id in part]
            failed = [
                (node_id, error)
                for node_id, outcome in zip(chunk, outcomes, strict=True)
                if (error := outcome.result()) is not None
            ]
            for node_id in [node_id for node_id, _ in failed] + (due[start + TOGETHER :] if failed else []):
                self._set(node_id, RETRY_S)
            if failed:
                raise failed[0][1]

    def _unexcused(self, due: list[str], late_s: float) -> list[str]:
        """The nodes without a remaining grace period; the others get one now."""
        lost = [node_id for node_id in due if node_id in self._excused]
        excused = [node_id for node_id in due if node_id not in self._excused]
        if excused:
            log.warning("this server was held up for %.1f s: %d nodes get that time again", late_s, len(excused))
        for node_id in excused:
            self._set(node_id, min(late_s, self._config.heartbeat_grace_s))
        self._excused.update(excused)
        return lost

    def _late_s(self) -> float:
        """The seconds for which the earliest deadline is overdue."""
        return self._env.monotonic() - self._heap[0][0] if self._heap else 0.0

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
