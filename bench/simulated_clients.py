"""Simulated clients without machines: they register, become ready and send heartbeats on schedule.

They share the server's process and call its ServerPort directly, as the client in `agent -dev` does. They start no
tasks: what is placed on them stays pending, as it would on clients that have not answered yet.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence

from yurt.server.server import Server
from yurt.structs.node import Node
from yurt.structs.rpc import RegisterNodeRequest

AT_ONCE = 200
"""Registrations on their way at a time."""
SHARE_OF_TTL = 0.75
"""A client calls again when this share of its time has passed."""


class SimulatedClients:
    """Some nodes of one server."""

    def __init__(self, server: Server, nodes: Sequence[Node]) -> None:
        self._server = server
        self._nodes = nodes
        self._due: list[tuple[float, str]] = []
        self.heartbeats = 0

    async def register(self) -> None:
        """Register all of them and have them ready."""
        for first in range(0, len(self._nodes), AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for node in self._nodes[first : first + AT_ONCE]:
                    group.create_task(self._join(node))

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            while self._due and self._due[0][0] <= loop.time():
                await self._call(heapq.heappop(self._due)[1])
            await asyncio.sleep(max(0.0, self._due[0][0] - loop.time()) if self._due else 1.0)

    async def _join(self, node: Node) -> None:
        await self._server.clients.calls.register_node(RegisterNodeRequest(node=node))
        await self._call(node.id)

    async def _call(self, node_id: str) -> None:
        reply = await self._server.clients.calls.heartbeat(node_id, "ready")
        self.heartbeats += 1
        due = asyncio.get_running_loop().time() + reply.heartbeat_ttl_s * SHARE_OF_TTL
        heapq.heappush(self._due, (due, node_id))
