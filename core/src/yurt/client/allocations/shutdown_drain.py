"""Drains the node when its agent shuts down (`drain_on_shutdown`), and makes it eligible when the agent starts again.

The servers move the node's allocations as for any drain; the agent waits until its own allocations have ended and the
servers have acknowledged that. It waits at most for the drain's deadline plus `FORCED_STOP_LIMIT_S`; the caller must
stop the allocations that were not drained (because no server answered or a task did not end).
"""

from __future__ import annotations

import logging
from typing import Final

from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.allocations.reports import Reporter
from yurt.client.ports import ServerPort
from yurt.runtime.env import Env
from yurt.sdk.errors import YurtError
from yurt.sdk.value import NANOSECONDS
from yurt.structs.node import DrainSpec
from yurt.structs.predicates import holds_up_drain

ASK_LIMIT_S: Final = 10.0
"""The time limit for the servers to accept the drain."""
FORCED_STOP_LIMIT_S: Final = 60.0
"""The time limit for tasks to end after the drain's deadline."""
LOOK_S: Final = 0.2
RETRY_S: Final = 5.0

log = logging.getLogger(__name__)


class ShutdownDrain:
    """The drain of one node by its own agent."""

    def __init__(
        self, spec: DrainSpec, server: ServerPort, env: Env, *, node_id: str, allocs: AllocTable, reporter: Reporter
    ) -> None:
        self._spec = spec
        self._server = server
        self._env = env
        self._node_id = node_id
        self._allocs = allocs
        self._reporter = reporter

    async def begin(self) -> bool:
        """Drain the node and wait; returns whether every allocation to be drained has ended."""
        try:
            async with self._env.timeout(ASK_LIMIT_S):
                await self._server.drain_node(self._node_id, self._spec)
        except (YurtError, TimeoutError) as error:
            log.error("drain on shutdown: could not start the drain: error=%s", error or "no server answered")
            return False
        log.info("drain on shutdown: the node drains: deadline_s=%g", self._spec.deadline / NANOSECONDS)
        try:
            async with self._env.timeout(self._limit_s()):
                while any(self._remaining()):
                    await self._env.sleep(LOOK_S)
                await self._reporter.wait_idle()
        except TimeoutError:
            log.error("drain on shutdown: allocations did not end: ids=%s", ",".join(self._remaining()))
            return False
        log.info("drain on shutdown: the node is drained")
        return True

    def _limit_s(self) -> float | None:
        """The longest wait in seconds; a deadline of 0 means none."""
        if self._spec.deadline == 0:
            return None
        return max(0.0, self._spec.deadline / NANOSECONDS) + FORCED_STOP_LIMIT_S

    def _remaining(self) -> list[str]:
        live = self._allocs.live.values()
        return [runner.id for runner in live if not runner.is_over and holds_up_drain(runner.alloc, self._spec)]

    async def end(self) -> None:
        """End the drain of an earlier shutdown as soon as the servers answer."""
        while True:
            try:
                await self._server.drain_node(self._node_id, None)
            except YurtError as error:
                log.warning("drain on shutdown: the node stays drained: retry_s=%g error=%s", RETRY_S, error)
                await self._env.sleep(RETRY_S)
            else:
                return
