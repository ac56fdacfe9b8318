"""Changes to namespaces and node pools. They are made in the region that decides about them for all."""

from __future__ import annotations

from yurt.access import Access, Scope
from yurt.sdk.errors import Conflict
from yurt.sdk.value import replace
from yurt.server.log.log_writer import LogWriter
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.commands import DeleteNamespaces, DeleteNodePools, UpsertNamespaces, UpsertNodePools
from yurt.structs.status import JOB_DEAD


class NamespaceOperations:
    """Operations on namespaces; their routes need a management token, whatever the namespace."""

    __slots__ = ("_region", "_writer")

    def __init__(self, writer: LogWriter, region: str) -> None:
        self._writer = writer
        self._region = region

    async def upsert(self, namespace: Namespace) -> int:
        """Store a namespace; the index of the change."""
        clean = replace(namespace, create_index=0, modify_index=0)
        return (await self._writer.propose(UpsertNamespaces(namespaces=(clean,)))).index

    async def delete(self, name: str) -> int:
        """Delete an empty namespace; raises Conflict while jobs of it live."""
        if any(job.namespace == name and job.status != JOB_DEAD for job in self._writer.state.jobs.values()):
            raise Conflict(f'namespace "{name}" has non-terminal jobs in regions: [{self._region}]')
        return (await self._writer.propose(DeleteNamespaces(names=(name,)))).index


class NodePoolOperations:
    """Operations on node pools for one caller."""

    __slots__ = ("_access", "_region", "_writer")

    def __init__(self, writer: LogWriter, region: str, access: Access) -> None:
        self._writer = writer
        self._region = region
        self._access = access

    async def upsert(self, pool: NodePool) -> int:
        """Store a node pool; the index of the change."""
        self._access.require(Scope(node_pool=pool.name))
        clean = replace(pool, create_index=0, modify_index=0)
        return (await self._writer.propose(UpsertNodePools(pools=(clean,)))).index

    async def delete(self, name: str) -> int:
        """Delete an empty node pool; raises Conflict while nodes or live jobs are in it."""
        self._access.require(Scope(node_pool=name))
        state = self._writer.state
        if any(node.node_pool == name for node in state.nodes.values()):
            raise Conflict(f'node pool "{name}" has nodes in regions: [{self._region}]')
        if any(job.node_pool == name and job.status != JOB_DEAD for job in state.jobs.values()):
            raise Conflict(f'node pool "{name}" has non-terminal jobs in regions: [{self._region}]')
        return (await self._writer.propose(DeleteNodePools(names=(name,)))).index
