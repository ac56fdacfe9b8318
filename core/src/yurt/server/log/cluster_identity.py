"""The ID of the cluster, by which clients tell the log of their servers from that of another cluster.

The leader proposes one before its first term begins, and `apply` keeps the first. A cluster of an earlier version gets
its ID once all of its servers know the command: with the next registration or heartbeat of a client.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict
from yurt.server.log.log_writer import LogWriter
from yurt.state import Snapshot
from yurt.structs.commands import SetClusterID
from yurt.structs.rules import CLUSTER_ID_RULES


def cluster_id_of(state: Snapshot) -> str:
    """The ID of the cluster; "" before it has one."""
    metadata = state.cluster_metadata.get("")
    return "" if metadata is None else metadata.cluster_id


class ClusterIdentity:
    """Makes the ID of the cluster, at the leader."""

    def __init__(self, writer: LogWriter, env: Env) -> None:
        self._writer = writer
        self._env = env
        self._making = asyncio.Lock()

    async def ensure(self) -> None:
        """Return once the cluster has an ID, or has servers that do not know of one; raises Unavailable."""
        if self._is_settled():
            return
        async with self._making:  # many clients ask at one time
            if self._is_settled():
                return
            # A server of an earlier version may have joined meanwhile; then the ID waits for its upgrade.
            with suppress(Conflict):
                await self._writer.submit(SetClusterID(cluster_id=self._env.uuid()))

    def _is_settled(self) -> bool:
        return bool(cluster_id_of(self._writer.state)) or self._writer.rules().version < CLUSTER_ID_RULES
