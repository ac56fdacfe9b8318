"""Migrates allocations' data (`ephemeral_disk { migrate }`) from a node to the replacement's node."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from yurt.sdk.errors import NotFound, PermissionDenied, Unavailable
from yurt.server.log.replica import Replica
from yurt.server.ports import FindNode
from yurt.state import Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.predicates import is_client_terminal

WAIT_LIMIT_S: Final = 600.0
"""How long a successor waits for its predecessor to end; stopping that one has limits of its own."""
WAIT_STEP_S: Final = 30.0
SILENCE_LIMIT_S: Final = 60.0
"""How long a node may take for the next piece: an agent that hangs keeps its connection."""


class DiskMigration:
    """Fetches the data of allocations' predecessors from their nodes."""

    def __init__(self, replica: Replica, find_node: FindNode) -> None:
        self._replica = replica
        self._find_node = find_node

    async def fetch(self, node_id: str, alloc_id: str) -> AsyncGenerator[bytes]:
        """The data of an allocation's predecessor; raises NotFound or Unavailable when it cannot be had.

        A node that is down or disconnected is not asked: whether and when it returns is not known.
        """
        alloc = self._replica.state.allocs.get(alloc_id)
        if alloc is None or not alloc.previous_allocation:
            raise NotFound(f"allocation {alloc_id} has no predecessor")
        if alloc.node_id != node_id:
            raise PermissionDenied(f"allocation {alloc_id} does not run on node {node_id}")
        previous = await self._ended(alloc.previous_allocation)
        port = self._find_node(previous.node_id)
        async with aclosing(port.pack_disk(previous.id)) as pieces:
            while (piece := await self._next(pieces, previous)) is not None:
                yield piece

    async def _next(self, pieces: AsyncIterator[bytes], of: Allocation) -> bytes | None:
        """The next piece; None after the last."""
        try:
            async with self._replica.env.timeout(SILENCE_LIMIT_S):
                return await anext(pieces, None)
        except TimeoutError:
            raise Unavailable(f"node {of.node_id} sent nothing for {SILENCE_LIMIT_S:g} s") from None

    async def _ended(self, alloc_id: str) -> Allocation:
        """The allocation once all its tasks have ended; raises Unavailable once its node is lost."""
        env = self._replica.env
        end = env.monotonic() + WAIT_LIMIT_S
        while env.monotonic() < end:
            alloc = self._replica.state.allocs.get(alloc_id)
            if alloc is None:
                raise NotFound(f"allocation {alloc_id} is forgotten")
            node_id, node = alloc.node_id, self._replica.state.nodes.get(alloc.node_id)
            if node is not None and node.status in status.NODE_UNRESPONSIVE:
                raise Unavailable(f"node {node_id} is {node.status}")
            if is_client_terminal(alloc):
                return alloc

            def changed_at(state: Snapshot, node_id: str = node_id) -> int:
                rows = (state.allocs.get(alloc_id), state.nodes.get(node_id))
                return max(state.index + 1 if row is None else row.modify_index for row in rows)

            seen = changed_at(self._replica.state)
            keys = [("allocs", "node", node_id), ("nodes", node_id)]
            await self._replica.wait_past(keys, changed_at, min_index=seen, timeout_s=WAIT_STEP_S)
        raise Unavailable(f"allocation {alloc_id} has not ended within {WAIT_LIMIT_S:g} s")
