"""What a client needs of its servers. `server` implements it in process; a remote transport is a further adapter."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from yurt.structs.rpc import (
    AllocBatch,
    AllocPull,
    HeldIdentity,
    IdentityQuery,
    NodeEventsRequest,
    NodeReply,
    RegisterNodeRequest,
    SignedIdentity,
    TemplateAnswer,
    TemplateQuery,
    UpdateAllocsRequest,
)
from yurt.structs.service import ServiceRegistration
from yurt.structs.volumes.csi import CSIClaimed, CSIClaimQuery


class ServerPort(Protocol):
    """Calls raise NotFound (unknown node: register again), Unavailable (no leader: retry) or PermissionDenied."""

    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register; the node starts as initializing."""
        ...

    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None = None) -> NodeReply:
        """Say that the node lives; `status` is what it believes itself to be (initializing, then ready).

        `identity` says which identity it holds; the answer may bring another one.
        """
        ...

    async def pull_allocs(self, node_id: str, *, min_index: int, timeout_s: float) -> AllocPull:
        """Wait until the node's allocations change beyond `min_index`, or the time is over; all of them, by id."""
        ...

    async def get_allocs(self, node_id: str, alloc_ids: tuple[str, ...]) -> AllocBatch:
        """The allocations with their jobs; ids that are gone are left out."""
        ...

    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """Report on allocations; the index at which the report was stored."""
        ...

    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Service instances that run on the node; the index at which they are stored."""
        ...

    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Service instances that no longer run on the node; unknown ids are no error."""
        ...

    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Add events to the node."""
        ...

    def fetch_disk(self, node_id: str, alloc_id: str) -> AsyncGenerator[bytes]:
        """The data that the predecessor of an allocation of the node left where it ran, once that has ended."""
        ...

    async def ask_for_template(self, query: TemplateQuery) -> TemplateAnswer:
        """What a task's template needs of the cluster, once it is newer than the query's index."""
        ...

    async def claim_csi_volume(self, query: CSIClaimQuery) -> CSIClaimed:
        """A CSI volume for an allocation of the node; raises Unavailable while another holds it."""
        ...

    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """The token of a task that runs on the node."""
        ...
