"""The clients' calls: registration, heartbeats, allocations and reports; the client's ServerPort by structure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from yurt.duties.nodes import (
    granted_status,
    missed_heartbeat_status,
    pool_event,
    refused_report,
    registered,
    set_status,
)
from yurt.fsm.bookkeeping.devices import requests_of
from yurt.fsm.eval_triggers import Mint
from yurt.fsm.nodes import WRONG_SECRET
from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied, Unavailable
from yurt.server.clients.heartbeats import Heartbeats
from yurt.server.failures import no_leader, shutting_down
from yurt.server.log.cluster_identity import ClusterIdentity, cluster_id_of
from yurt.server.log.decisions import ATTEMPTS_MAX
from yurt.server.log.log_writer import ENTRY_BYTES, Committed, LogWriter, Stale
from yurt.server.log.state_waits import StateWaiter
from yurt.server.peers import Peers
from yurt.state import Changes, Snapshot
from yurt.structs import status
from yurt.structs.commands import AddNodeEvents, AllocUpdate, Applied, RegisterNode, StoreSchema, UpdateAllocsFromClient
from yurt.structs.node import Node
from yurt.structs.rpc import (
    AllocBatch,
    AllocPull,
    NodeEventsRequest,
    NodeReply,
    RegisterNodeRequest,
    UpdateAllocsRequest,
)
from yurt.structs.status import NodeStatus

REPORT_LIMIT = 500
"""The maximum number of clients' reports in one command: applying them takes some ten milliseconds, in one turn of the
loop."""
NODE_LOOKUP_LIMIT_S = 5.0
"""The time in seconds for which a follower waits to receive a node's registration."""


class _Report(msgspec.Struct, frozen=True):
    node_id: str
    updates: tuple[AllocUpdate, ...]
    answer: asyncio.Future[int]


class NodeService:
    """Serves the calls of clients on the state."""

    def __init__(
        self,
        *,
        env: Env,
        writer: LogWriter,
        waiter: StateWaiter,
        peers: Peers,
        makes_pools: bool = True,
        metrics: Metrics | None = None,
    ) -> None:
        """`makes_pools`: create a missing node pool; otherwise the node waits for the authoritative region."""
        self._env = env
        self._writer = writer
        self._waiter = waiter
        self._peers = peers
        self._makes_pools = makes_pools
        self._metrics = metrics or Metrics()
        self._cluster_identity = ClusterIdentity(writer, env)
        self._alloc_indexes: dict[str, int] = {}
        self._base_index = 0
        self._reports: list[_Report] = []
        self._has_reports = asyncio.Event()
        self._heartbeats: Heartbeats | None = None
        self._refused_at: dict[str, int] = {}
        """The index of the loss with which a node was refused the status ready in this term: for agents that do not say
        of which loss they know."""

    def begin_term(self, heartbeats: Heartbeats) -> None:
        """Accept calls as the leader, with the heartbeat timers of this term."""
        self._heartbeats = heartbeats
        self._refused_at.clear()

    def end_term(self) -> None:
        """Refuse the calls that only the leader serves."""
        self._heartbeats = None

    def start(self, state: Snapshot) -> None:
        """Record the log's index: changes before it are not tracked by node."""
        self._base_index = state.index
        self._alloc_indexes.clear()

    def observe(self, changes: Changes, *, index: int) -> None:
        """Track the nodes whose allocations changed."""
        for change in changes:
            if change.table == "allocs":
                if change.after is None:
                    self._alloc_indexes[change.before.node_id] = index
                elif change.after.alloc_modify_index == index:
                    self._alloc_indexes[change.after.node_id] = index
            elif change.table == "nodes" and change.after is None:
                self._alloc_indexes.pop(change.before.id, None)
                self._refused_at.pop(change.before.id, None)
                if self._heartbeats is not None:
                    self._heartbeats.forget(change.before.id)

    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register a node; a new one has the status initializing."""
        heartbeats = self._leading()
        await self._cluster_identity.ensure()
        existing = self._writer.state.nodes.get(request.node.id)
        _check_node(request.node, existing)
        mint = self._mint()
        node = registered(request.node, mint.now)
        await self._store_schemas(request)
        command = RegisterNode(node=node, seed=mint.seed(), create_node_pool=self._makes_pools)
        return self._reply(await self._writer.propose(command), node.id, heartbeats)

    async def heartbeat(self, node_id: str, status_text: str, *, known_loss: int | None = None) -> NodeReply:
        """Record a heartbeat; the node gets the status it requests if permitted. `known_loss`: as in `HeldIdentity`."""
        heartbeats = self._leading()
        requested = status.NODE_STATUSES.get(status_text)
        if requested is None:
            raise Invalid(f'invalid status "{status_text}" for node')
        await self._cluster_identity.ensure()
        for _ in range(ATTEMPTS_MAX):
            with suppress(Stale):
                return self._reply(await self._granted(node_id, requested, known_loss), node_id, heartbeats)
        raise Unavailable(f"node {node_id} keeps changing; it heartbeats again")

    async def _granted(self, node_id: str, requested: NodeStatus, known_loss: int | None) -> Committed:
        """Set a node's requested status if permitted; raises Stale when the node changed meanwhile."""
        state = self._writer.state
        node = state.nodes.get(node_id)
        if node is None:
            raise NotFound("node not found")
        granted = granted_status(state, node, requested)
        if requested == status.NODE_READY:
            granted = self._unless_unaware(node, granted, known_loss)
        if granted != node.status:
            was_lost = node.status in (status.NODE_DOWN, status.NODE_DISCONNECTED)
            event = "Node reregistered by heartbeat" if was_lost else ""
            return await self._writer.propose(set_status(state, node, granted, self._mint(), event=event))
        if not self._makes_pools and (pool_news := pool_event(state, node, self._env.now())) is not None:
            return await self._writer.propose(AddNodeEvents(events={node_id: (pool_news,)}))
        return Committed(Applied(index=state.index), state)

    def _unless_unaware(self, node: Node, granted: NodeStatus, known_loss: int | None) -> NodeStatus:
        """The status granted to a node that requests ready, but not ready for one that has not heard of its loss.

        A node reports all its allocations again when it is refused. One that a restored snapshot made initializing may
        report single ones before it hears of that; taken for all, the others would keep the states of the snapshot.
        """
        lost_at = node.last_missed_heartbeat_index
        # What the agent says holds, since an answer that tells of a loss can be lost itself.
        known = self._refused_at.get(node.id) if known_loss is None else known_loss
        if node.status == status.NODE_INIT and lost_at and known != lost_at:
            granted = status.NODE_INIT
        if granted == status.NODE_READY:
            self._refused_at.pop(node.id, None)
        else:
            self._refused_at[node.id] = lost_at
        return granted

    async def pull_allocs(self, node_id: str, *, min_index: int, timeout_s: float) -> AllocPull:
        """The node's allocations and their modify indexes, once these exceed `min_index`."""

        def changed_at(state: Snapshot) -> int:
            if min_index > state.index:
                return min_index + 1
            return self._alloc_indexes.get(node_id, self._base_index)

        await self._reach(node_id, min_index, timeout_s)
        if min_index > 0:
            keys = [("allocs", "node", node_id)]
            await self._waiter.wait_past(keys, changed_at, min_index=min_index, timeout_s=timeout_s)
        state = self._writer.state
        allocs = {alloc.id: alloc.alloc_modify_index for alloc in state.allocs_of_node(node_id)}
        return AllocPull(index=state.index, allocs=allocs, cluster_id=cluster_id_of(state))

    async def _reach(self, node_id: str, min_index: int, timeout_s: float) -> None:
        """Wait until a follower has caught up with the caller, so that it does not report a node as missing."""
        if self._heartbeats is not None:
            if node_id not in self._writer.state.nodes:
                raise NotFound("node not found")
            return
        if not await self._waiter.wait_index(min_index, timeout_s=timeout_s):
            raise Unavailable(f"this server is at index {self._writer.state.index} and has not reached {min_index} yet")
        limit_s = min(timeout_s, NODE_LOOKUP_LIMIT_S)
        basis = [("nodes", node_id)]
        state = await self._waiter.wait_past(basis, lambda s: node_id in s.nodes, min_index=0, timeout_s=limit_s)
        if node_id not in state.nodes:
            raise Unavailable(f"this server does not know node {node_id} yet")

    async def get_allocs(self, node_id: str, alloc_ids: tuple[str, ...]) -> AllocBatch:
        """The node's allocations with these ids; deleted ones are omitted."""
        state = self._writer.state
        allocs = (state.allocs.get(alloc_id) for alloc_id in alloc_ids)
        return AllocBatch(allocs=tuple(alloc for alloc in allocs if alloc is not None and alloc.node_id == node_id))

    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """Store a client's reports; returns their index."""
        self._leading()
        node = self._writer.state.nodes.get(request.node_id)
        if node is None:
            raise NotFound("node not found")
        refusal = refused_report(node)
        if refusal:
            raise Invalid(refusal)
        if not request.updates:
            return self._writer.state.index
        report = _Report(request.node_id, request.updates, asyncio.get_running_loop().create_future())
        self._reports.append(report)
        self._has_reports.set()
        return await report.answer

    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Add events to a node."""
        await self._writer.propose(AddNodeEvents(events={request.node_id: request.events}))

    async def run_reports(self) -> None:
        """Store reports in batches until cancelled: the first at once, those that arrive meanwhile together."""
        try:
            while True:
                await self._has_reports.wait()
                self._has_reports.clear()
                while self._reports:
                    await self._store_reports()
        finally:
            for report in self._reports:
                _settle(report.answer, no_leader())
            self._reports.clear()

    async def missed(self, node_id: str) -> None:
        """Handle a missed heartbeat of the node."""
        began = self._env.monotonic()
        for attempt in range(ATTEMPTS_MAX):
            if attempt and self._heartbeats is not None and self._heartbeats.is_awaited(node_id):
                return  # it called while the first attempt was on its way
            with suppress(Stale):
                await self._lose(node_id)
                self._metrics.time("heartbeat.invalidate", self._env.monotonic() - began)
                return
        raise Unavailable(f"node {node_id} keeps changing; its missed heartbeat is noted later")

    async def _lose(self, node_id: str) -> None:
        """Mark a node as lost; raises Stale when it changed meanwhile."""
        state, mint = self._writer.state, self._mint()
        node = state.nodes.get(node_id)
        if node is None or node.status == status.NODE_DOWN:
            return
        lost = missed_heartbeat_status(state, node, mint.now)
        if lost != node.status:
            await self._writer.propose(set_status(state, node, lost, mint, event="Node heartbeat missed"))
        if lost == status.NODE_DISCONNECTED and self._heartbeats is not None:
            self._heartbeats.reset(node_id)

    async def _store_reports(self) -> None:
        reports, count = [], 0
        while self._reports and count < REPORT_LIMIT:
            report = self._reports.pop(0)
            refusal = refused_report(self._writer.state.nodes.get(report.node_id))
            if refusal:
                _settle(report.answer, Invalid(refusal))
                continue
            count += len(report.updates)
            reports.append(report)
        if not reports:
            return
        await self._answer(reports)

    async def _answer(self, reports: Sequence[_Report]) -> None:
        """Store reports together; after a rejection store each separately, so that one does not block others."""
        try:
            index = await self._store(tuple(update for report in reports for update in report.updates))
        except BaseException as error:
            if isinstance(error, Invalid) and len(reports) > 1:
                for report in reports:
                    await self._answer((report,))
                return
            outcome = error if isinstance(error, Exception) else shutting_down()
            for report in reports:
                _settle(report.answer, outcome)
            if not isinstance(error, Exception):
                raise
        else:
            nodes = self._writer.state.nodes
            for report in reports:
                refusal = refused_report(nodes.get(report.node_id), index=index)
                _settle(report.answer, Invalid(refusal) if refusal else index)

    async def _store(self, updates: Sequence[AllocUpdate]) -> int:
        """Store updates in as many commands as the entry size requires; returns the last index."""
        seed = self._mint().seed()
        command = UpdateAllocsFromClient(updates=tuple(updates), seed=seed, now=seed.now)
        (prepared,) = self._writer.prepare((command,))
        if prepared.size <= ENTRY_BYTES or len(updates) == 1:
            return (await self._writer.propose(prepared)).index
        half = len(updates) // 2
        await self._store(updates[:half])
        return await self._store(updates[half:])

    async def _store_schemas(self, request: RegisterNodeRequest) -> None:
        stored = self._writer.state.schemas
        for digest, sent in request.schemas.items():
            driver, schema = str(sent.get("driver", "")), sent.get("schema")
            if driver and isinstance(schema, Mapping) and (driver, digest) not in stored:
                await self._writer.propose(StoreSchema(driver=driver, digest=digest, schema=schema))

    def _leading(self) -> Heartbeats:
        if self._heartbeats is None or not self._writer.is_open:
            raise no_leader()
        return self._heartbeats

    def _reply(self, committed: Committed, node_id: str, heartbeats: Heartbeats) -> NodeReply:
        node = committed.state.nodes.get(node_id)
        return NodeReply(
            heartbeat_ttl_s=heartbeats.reset(node_id),
            index=committed.index,
            node_status=node.status if node is not None else "",
            servers=self._peers.addresses,
            device_marks=requests_of(node) if node is not None else {},
            lost_at=node.last_missed_heartbeat_index if node is not None else 0,
            cluster_id=cluster_id_of(committed.state),
        )

    def _mint(self) -> Mint:
        new_id: Callable[[], str] = self._env.uuid
        return Mint(self._env.now(), new_id)


def _check_node(node: Node, registered: Node | None) -> None:
    """Refuse a wrong secret before anything is stored; `apply` checks again."""
    if not node.id:
        raise Invalid("missing node ID for client registration")
    if not node.datacenter:
        raise Invalid("missing datacenter for client registration")
    if not node.name:
        raise Invalid("missing node name for client registration")
    if node.node_pool == "all":
        raise Invalid('node is not allowed to register in node pool "all"')
    if registered is not None and registered.secret_id and registered.secret_id != node.secret_id:
        raise PermissionDenied(WRONG_SECRET)


def _settle(future: asyncio.Future[int], outcome: int | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
