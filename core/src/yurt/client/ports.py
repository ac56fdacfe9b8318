"""The calls of a client to its servers, implemented by `server` in process and by `rpc` over the network."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol

from yurt.access.calls import CallerKind, allowed
from yurt.structs.node import DrainSpec
from yurt.structs.queueing.gang import GangAnswer, GangQuery
from yurt.structs.rpc import (
    AllocBatch,
    AllocPull,
    CallerRights,
    HeldIdentity,
    IdentityQuery,
    NodeEventsRequest,
    NodeReply,
    RegisterNodeRequest,
    ShownCredential,
    SignedIdentity,
    TemplateQuery,
    TemplateQueryAnswer,
    UpdateAllocsRequest,
)
from yurt.structs.service import ServiceRegistration
from yurt.structs.volumes.csi import CSIClaimed, CSIClaimQuery

ServeTask = Callable[[socket.socket], Awaitable[Callable[[], None]]]
"""Serves the agent's HTTP API at a bound Unix socket; returns a function that closes it with its connections."""
NEW_NODE, NODE = CallerKind.NEW_NODE, CallerKind.NODE


class ServerPort(Protocol):
    """The calls. They raise NotFound for an unknown node (register again) and Unavailable without a leader (retry)."""

    @allowed(NEW_NODE, NODE, nodes=lambda call: (call.request.node.id,))
    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register; the node starts as initializing."""
        ...

    @allowed(NEW_NODE, NODE, nodes=lambda call: (call.node_id,))
    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None = None) -> NodeReply:
        """Send a heartbeat; `status` is the status that the node requests (initializing, then ready).

        `identity` says which identity it holds; the answer may bring another one.
        """
        ...

    @allowed(NODE, nodes=lambda call: (call.node_id,))
    async def pull_allocs(self, node_id: str, *, min_index: int, timeout_s: float) -> AllocPull:
        """Wait until the node's allocations change beyond `min_index` or the time-out; all of them, by id."""
        ...

    @allowed(NODE, nodes=lambda call: (call.node_id,))
    async def get_allocs(self, node_id: str, alloc_ids: tuple[str, ...]) -> AllocBatch:
        """The allocations with their jobs; unknown ids are left out."""
        ...

    @allowed(
        NODE,
        nodes=lambda call: (call.request.node_id, *(update.node_id for update in call.request.updates)),
        allocs=lambda call: (update.id for update in call.request.updates),
    )
    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """Report allocations; returns the index at which the report was stored."""
        ...

    @allowed(NODE, nodes=lambda call: (call.node_id, *(service.node_id for service in call.services)))
    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Register services of the node; returns the index at which they are stored."""
        ...

    @allowed(NODE, nodes=lambda call: (call.node_id,))
    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Deregister services of the node; unknown ids are ignored."""
        ...

    @allowed(NODE, nodes=lambda call: (call.node_id,))
    async def drain_node(self, node_id: str, spec: DrainSpec | None) -> None:
        """Drain the node because its agent shuts down; without a spec, end that drain because the agent is back."""
        ...

    @allowed(NODE, nodes=lambda call: (call.request.node_id,))
    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Add events to the node."""
        ...

    @allowed(NODE, nodes=lambda call: (call.node_id,))
    def fetch_disk(self, node_id: str, alloc_id: str) -> AsyncGenerator[bytes]:
        """The sticky data of the ended predecessor of an allocation of the node."""
        ...

    @allowed(NODE, nodes=lambda call: (call.query.node_id,))
    async def ask_for_template(self, query: TemplateQuery) -> TemplateQueryAnswer:
        """Data of the cluster for a task's template, as soon as it is newer than the query's index."""
        ...

    @allowed(NODE, nodes=lambda call: (call.query.node_id,))
    async def claim_csi_volume(self, query: CSIClaimQuery) -> CSIClaimed:
        """Claim a CSI volume for an allocation of the node; raises Unavailable while another one holds it."""
        ...

    @allowed(NODE, nodes=lambda call: (call.query.node_id,), allocs=lambda call: (call.query.alloc_id,))
    async def follow_gang(self, query: GangQuery) -> GangAnswer:
        """Wait at the rendezvous of a gang, or for the end of its generation, for an allocation of the node."""
        ...

    @allowed(NODE, nodes=lambda call: (call.node_id,))
    async def caller_rights(self, node_id: str, shown: ShownCredential) -> CallerRights:
        """The rights of a caller on the node's agent."""
        ...

    @allowed(NODE, nodes=lambda call: (call.query.node_id,))
    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """Sign the identity token of a task of the node."""
        ...
