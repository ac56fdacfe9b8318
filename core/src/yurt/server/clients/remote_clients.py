"""The calls of a client connected over the network: those of `client.ports.ServerPort`, for its own node.

A connection says at its beginning which node it speaks for, and proves it with the node's secret. Every later call is
held against both, and against what the port declares for it (`admit`): the node of a connection may have become known,
with its secret, only after it was admitted. The methods carry out admitted calls.

A connection may register its node, and nothing else until the node is registered: before that anybody can open one.
Neither may the connection of a second agent that runs as the same node (`agent_processes`) do more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from yurt.access.calls import CallerKind, CallNeed
from yurt.sdk.errors import Invalid, PermissionDenied, Reason
from yurt.sdk.value import replace
from yurt.server.clients.client_calls import ClientCalls
from yurt.server.clients.node_authentication import NodeAuthenticator, NodeCredentials, check_equal
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


class RemoteClient:
    """One connected client."""

    def __init__(
        self,
        calls: ClientCalls,
        authenticator: NodeAuthenticator,
        credentials: NodeCredentials,
        *,
        on_standing: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Raises Invalid or PermissionDenied for a refused node, Unavailable while the state is not loaded.

        `on_standing` hears after each registration and heartbeat whether the connection's agent is the node's.
        """
        if not credentials.node_id or not credentials.secret_id:
            raise Invalid("a client names its node and the node's secret when it connects")
        authenticator.need_state()
        self.node_id = credentials.node_id
        self._calls = calls
        self._authenticator = authenticator
        self._credentials = credentials
        self._refusal = ""
        self._on_standing = on_standing
        self._check_secret()

    async def admit(self, need: CallNeed, request: Any) -> None:
        """Raises a YurtError unless the connection may make a call: its agent is current, and the call concerns its own
        node.

        An allocation that this server does not know is left to what carries the call out.
        """
        for node_id in need.nodes(request):
            self._check_own(node_id)
        self._check_secret()
        if CallerKind.NEW_NODE not in need.callers:
            if CallerKind.NODE not in need.callers:
                raise PermissionDenied(f"this call is not for a {CallerKind.NODE}")
            await self.check_registered()
        for alloc_id in need.allocs(request):
            self._check_own(self._authenticator.node_of(alloc_id) or self.node_id)

    def _check_own(self, node_id: str) -> None:
        if node_id != self.node_id:
            raise PermissionDenied(f"this connection speaks for node {self.node_id}, not for {node_id}")

    def _check_secret(self) -> None:
        self._authenticator.check_secret(self.node_id, self._credentials.secret_id)

    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register the node."""
        check_equal(request.node.secret_id, self._credentials.secret_id)
        if not await self._authenticator.knows(self.node_id):
            await self._authenticator.introduce(request, self._credentials.intro_token)
        return await self._stand(self._calls.register_node(replace(request, identity=self._located(request.identity))))

    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None = None) -> NodeReply:
        """Record a heartbeat; raises NotFound for a node that is not registered."""
        return await self._stand(self._calls.heartbeat(node_id, status, self._located(identity)))

    def _located(self, identity: HeldIdentity | None) -> HeldIdentity | None:
        return None if identity is None else replace(identity, address=self._credentials.address)

    async def _stand(self, call: Awaitable[NodeReply]) -> NodeReply:
        """Record whether the connection's agent is the node's present one."""
        try:
            reply = await call
        except PermissionDenied as error:
            if error.reason is Reason.SECOND_AGENT:
                self._refusal = str(error)
                self._on_standing(False)
            raise
        self._refusal = ""
        self._on_standing(True)
        return reply

    async def check_registered(self) -> None:
        """Raises a YurtError unless the connection's node is registered with this agent."""
        if self._refusal:
            raise PermissionDenied(self._refusal, reason=Reason.SECOND_AGENT)
        self._check_secret()
        if not self._authenticator.has_node(self.node_id):
            await self._authenticator.require_node(self.node_id)
            self._check_secret()

    async def pull_allocs(self, node_id: str, *, min_index: int, timeout_s: float) -> AllocPull:
        """The node's allocations."""
        return await self._calls.pull_allocs(node_id, min_index=min_index, timeout_s=timeout_s)

    async def get_allocs(self, node_id: str, alloc_ids: tuple[str, ...]) -> AllocBatch:
        """Allocations of the node with their jobs."""
        return await self._calls.get_allocs(node_id, alloc_ids)

    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """Store the node's reports on its own allocations."""
        return await self._calls.update_allocs(request)

    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Register services that run on the node."""
        return await self._calls.register_services(node_id, services)

    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Deregister services that no longer run on the node."""
        return await self._calls.deregister_services(node_id, ids)

    async def drain_node(self, node_id: str, spec: DrainSpec | None) -> None:
        """Begin or end the drain of the node."""
        await self._calls.drain_node(node_id, spec)

    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Add events to the node."""
        await self._calls.emit_events(request)

    async def fetch_disk(self, node_id: str, alloc_id: str) -> AsyncGenerator[bytes]:
        """The disk data of the predecessor of one of the node's allocations."""
        async with aclosing(self._calls.fetch_disk(node_id, alloc_id)) as pieces:
            async for piece in pieces:
                yield piece

    async def ask_for_template(self, query: TemplateQuery) -> TemplateQueryAnswer:
        """Answer a query of a template of one of the node's allocations."""
        return await self._calls.ask_for_template(query)

    async def claim_csi_volume(self, query: CSIClaimQuery) -> CSIClaimed:
        """Claim a CSI volume for one of the node's allocations."""
        return await self._calls.claim_csi_volume(query)

    async def follow_gang(self, query: GangQuery) -> GangAnswer:
        """Wait at the rendezvous of a gang for one of the node's allocations."""
        return await self._calls.follow_gang(query)

    async def caller_rights(self, node_id: str, shown: ShownCredential) -> CallerRights:
        """The rights of a caller on the node's agent."""
        return await self._calls.caller_rights(node_id, shown)

    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """Sign the identity of a task that runs on the node."""
        return await self._calls.sign_identity(query)
