"""Changes to nodes, and to namespaces, quotas and node pools, which the authoritative region stores for all regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from yurt.access import Access, Scope
from yurt.sdk.errors import Conflict, NotFound
from yurt.sdk.value import UnixNano, replace
from yurt.server.log.log_writer import LogWriter
from yurt.server.resources.nodes import Check, Nodes
from yurt.server.results import NodeUpdated
from yurt.state import Snapshot
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.commands import (
    DeleteNamespaces,
    DeleteNodePools,
    DeleteQuotas,
    UpsertNamespaces,
    UpsertNodePools,
    UpsertQuotas,
)
from yurt.structs.node import DrainSpec
from yurt.structs.quota import QuotaSpec, with_hashes
from yurt.structs.status import JOB_DEAD


class NamespaceOperations:
    """Operations on namespaces; their routes need a management token for every namespace."""

    __slots__ = ("_region", "_writer")

    def __init__(self, writer: LogWriter, region: str) -> None:
        self._writer = writer
        self._region = region

    async def upsert(self, namespace: Namespace) -> int:
        """Store a namespace; returns the index."""
        clean = replace(namespace, create_index=0, modify_index=0)
        return (await self._writer.propose(UpsertNamespaces(namespaces=(clean,)))).index

    async def delete(self, name: str) -> int:
        """Delete an empty namespace; raises Conflict while it has live jobs."""
        if any(job.namespace == name and job.status != JOB_DEAD for job in self._writer.state.jobs.values()):
            raise Conflict(f'namespace "{name}" has non-terminal jobs in regions: [{self._region}]')
        return (await self._writer.propose(DeleteNamespaces(names=(name,)))).index


class QuotaOperations:
    """Operations on quotas; their routes need `quota:write`, which covers all of them."""

    __slots__ = ("_writer",)

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer

    async def upsert(self, spec: QuotaSpec) -> int:
        """Store a quota; returns the index."""
        clean = with_hashes(replace(spec, create_index=0, modify_index=0))
        return (await self._writer.propose(UpsertQuotas(quotas=(clean,)))).index

    async def delete(self, name: str) -> int:
        """Delete a quota; raises NotFound, or Conflict while a namespace names it."""
        return (await self._writer.propose(DeleteQuotas(names=(name,)))).index


class NodePoolOperations:
    """Operations on node pools for one caller."""

    __slots__ = ("_access", "_now", "_region", "_writer")

    def __init__(self, writer: LogWriter, region: str, access: Access, *, now: Callable[[], UnixNano]) -> None:
        self._writer = writer
        self._now = now
        self._region = region
        self._access = access

    async def upsert(self, pool: NodePool) -> int:
        """Store a node pool; returns the index."""
        self._access.require(Scope(node_pool=pool.name))
        clean = replace(pool, create_index=0, modify_index=0)
        return (await self._writer.propose(UpsertNodePools(pools=(clean,), now=self._now()))).index

    async def delete(self, name: str) -> int:
        """Delete an empty node pool; raises Conflict while it has nodes or live jobs."""
        self._access.require(Scope(node_pool=name))
        state = self._writer.state
        if any(node.node_pool == name for node in state.nodes.values()):
            raise Conflict(f'node pool "{name}" has nodes in regions: [{self._region}]')
        if any(job.node_pool == name and job.status != JOB_DEAD for job in state.jobs.values()):
            raise Conflict(f'node pool "{name}" has non-terminal jobs in regions: [{self._region}]')
        return (await self._writer.propose(DeleteNodePools(names=(name,)))).index


class NodeOperations:
    """Operations on nodes for one caller; each raises NotFound also for a node that the caller may not see."""

    __slots__ = ("_access", "_nodes")

    def __init__(self, nodes: Nodes, access: Access) -> None:
        self._nodes = nodes
        self._access = access

    async def set_eligibility(self, node_id: str, eligibility: str) -> NodeUpdated:
        """Allow or forbid new allocations on a node."""
        return await self._nodes.set_eligibility(node_id, eligibility, check=self._check(node_id))

    async def set_device_eligibility(
        self, node_id: str, device: str, *, is_eligible: bool, reason: str = "", mark_index: int | None = None
    ) -> NodeUpdated:
        """Take a device of a node out, or put it back; with `mark_index` only while its mark has that index."""
        return await self._nodes.set_device_eligibility(
            node_id,
            device,
            is_eligible=is_eligible,
            reason=reason,
            mark_index=mark_index,
            check=self._check(node_id),
        )

    async def evaluate(self, node_id: str) -> NodeUpdated:
        """Evaluate the jobs of a node."""
        return await self._nodes.evaluate(node_id, check=self._check(node_id))

    async def purge(self, node_id: str) -> NodeUpdated:
        """Delete a node and evaluate its jobs."""
        return await self._nodes.purge(node_id, check=self._check(node_id))

    async def drain(
        self,
        node_id: str,
        spec: DrainSpec | None,
        *,
        mark_eligible: bool,
        meta: Mapping[str, str] | None = None,
        accessor_id: str = "",
    ) -> NodeUpdated:
        """Start or change a node's drain, or end it when `spec` is None; `accessor_id` is the caller's."""
        return await self._nodes.drain(
            node_id,
            spec,
            mark_eligible=mark_eligible,
            meta=meta,
            accessor_id=accessor_id,
            check=self._check(node_id),
        )

    def _check(self, node_id: str) -> Check:
        """Reject a node in a pool where the caller lacks the right, in the state that the command is based on."""

        def check(state: Snapshot) -> None:
            node = state.nodes.get(node_id)
            # An unknown node is left to `apply`.
            if node is not None and not self._access.allows(Scope(node_pool=node.node_pool, node=node_id)):
                raise NotFound("node not found")

        return check
