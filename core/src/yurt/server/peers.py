"""Calls between the servers of a region.

`Peers` is what a server knows of the others; `agent.peers` implements it over connections. `PeerPort` is what each
offers: only servers may call it, for it hands out root keys.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from yurt.access.calls import CallerKind, allowed
from yurt.broker import Delivery
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import Value
from yurt.server.ports import NodePort
from yurt.storage.log import DatabaseSize
from yurt.structs.commands.versions import RegionRules
from yurt.structs.evaluation import Evaluation
from yurt.structs.node import DrainSpec
from yurt.structs.plan import Outcome, Plan
from yurt.structs.queueing.gang import GangAnswer, GangQuery
from yurt.structs.rpc import (
    CallerRights,
    HeldIdentity,
    IdentityQuery,
    NodeEventsRequest,
    NodeReply,
    RegisterNodeRequest,
    ShownCredential,
    SignedIdentity,
    UpdateAllocsRequest,
)
from yurt.structs.service import ServiceRegistration
from yurt.structs.status import JOB_TYPES
from yurt.structs.volumes.csi import CSIClaimed, CSIClaimQuery


class RootKey(Value):
    """A root key of the cluster; `pem` is the RSA key, "" for a key that signs by EdDSA.

    It never enters the state, the log or a snapshot.
    """

    key_id: str
    secret: bytes
    pem: bytes
    version: int = 1

    def __repr__(self) -> str:
        return f"RootKey({self.key_id})"


class PlanReply(Value):
    """The result of a plan: whether all or nothing was accepted; otherwise a state to refresh to."""

    is_full: bool
    is_empty: bool = False
    refresh_index: int = 0


class PeerStatus(Value):
    """A server's status: its applied index, whether it leads, and its database size.

    `room` is None where there is no quota, and of older servers.
    """

    index: int
    is_leader: bool = False
    room: DatabaseSize | None = None


class SnapshotPart(Value):
    """A part of a state: first its index, then its chunks, last their digest (BLAKE2b, 32 bytes).

    A chunk comes in pieces; `is_whole` with the last one.
    """

    index: int = 0
    data: bytes = b""
    is_whole: bool = False
    digest: bytes = b""


class PeerPort(Protocol):
    """A server as seen by another one."""

    @allowed(CallerKind.SERVER)
    async def status(self) -> PeerStatus:
        """Its status."""
        ...

    @allowed(CallerKind.SERVER)
    async def confirmed_index(self) -> int:
        """The index of its state once it is confirmed to lead; raises Unavailable ("No cluster leader")."""
        ...

    @allowed(CallerKind.SERVER)
    def snapshot(self, after: int) -> AsyncGenerator[SnapshotPart]:
        """Its present state; raises Unavailable when that is not beyond index `after`."""
        ...

    @allowed(CallerKind.SERVER)
    async def root_key(self, key_id: str) -> RootKey:
        """A root key; raises Unavailable when it is missing there."""
        ...

    @allowed(CallerKind.SERVER)
    async def take_root_key(self, key: RootKey) -> None:
        """Store a root key; durable on return."""
        ...

    @allowed(CallerKind.SERVER)
    async def drop_root_key(self, key_id: str) -> None:
        """Delete a distributed but unused root key; one in the state stays."""
        ...

    @allowed(CallerKind.SERVER)
    async def has_node(self, node_id: str) -> bool:
        """Whether a client is connected to that server."""
        ...

    @allowed(CallerKind.SERVER)
    async def take_work(
        self, *, timeout_s: float, scheduler: int = 0, queues: tuple[str, ...] = JOB_TYPES
    ) -> tuple[Delivery, ...]:
        """Evaluations of these queues delegated by the leader, possibly none; raises Unavailable without a leader.

        `scheduler` is the version of what would work on them; raises Conflict when it is not the leader's.
        """
        ...

    @allowed(CallerKind.SERVER)
    async def finish_work(self, delivery: Delivery, *, is_done: bool) -> None:
        """Acknowledge a delivery: done, or to be retried."""
        ...

    @allowed(CallerKind.SERVER)
    async def submit_plan(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanReply:
        """Check and store a plan, possibly packed; raises Conflict when the worker no longer owns the delivery."""
        ...

    @allowed(CallerKind.SERVER)
    async def store_evaluations(self, delivery: Delivery, evaluations: tuple[Evaluation, ...]) -> None:
        """Store the end of an evaluation; raises Conflict when the worker no longer owns the delivery."""
        ...


class LeaderPort(Protocol):
    """Clients' calls that only the leader serves; raise Unavailable ("No cluster leader") without one."""

    @allowed(CallerKind.SERVER)
    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register a node."""
        ...

    @allowed(CallerKind.SERVER)
    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None = None) -> NodeReply:
        """Record a heartbeat of a node."""
        ...

    @allowed(CallerKind.SERVER)
    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """Store a node's reports."""
        ...

    @allowed(CallerKind.SERVER)
    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Register services that run on a node."""
        ...

    @allowed(CallerKind.SERVER)
    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Deregister services that no longer run on a node."""
        ...

    @allowed(CallerKind.SERVER)
    async def drain_node(self, node_id: str, spec: DrainSpec | None) -> None:
        """Begin or end the drain of a node whose agent shuts down."""
        ...

    @allowed(CallerKind.SERVER)
    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Add events to a node."""
        ...

    @allowed(CallerKind.SERVER)
    async def claim_csi_volume(self, query: CSIClaimQuery) -> CSIClaimed:
        """Claim a CSI volume for an allocation."""
        ...

    @allowed(CallerKind.SERVER)
    async def follow_gang(self, query: GangQuery) -> GangAnswer:
        """Wait at the rendezvous of a gang for an allocation."""
        ...

    @allowed(CallerKind.SERVER)
    async def caller_rights(self, shown: ShownCredential) -> CallerRights:
        """The rights of a caller on a node's agent."""
        ...

    @allowed(CallerKind.SERVER)
    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """Sign the identity of a task."""
        ...


class Peers(Protocol):
    """The other servers of the region, by name."""

    @property
    def names(self) -> tuple[str, ...]:
        """The reachable servers' names, sorted."""
        ...

    @property
    def voters(self) -> int:
        """The number of servers in the cluster, including this one and unreachable ones."""
        ...

    @property
    def addresses(self) -> tuple[str, ...]:
        """The client addresses `host:port` of the reachable servers, including this one."""
        ...

    @property
    def rules(self) -> RegionRules:
        """The rules of the region, which the leader writes by; read for each command."""
        ...

    def peer(self, name: str) -> PeerPort:
        """A server's port for servers; its calls raise Unavailable while it is unreachable."""
        ...

    def leader(self, name: str) -> LeaderPort:
        """A server's port for calls that a leader serves."""
        ...

    def node(self, name: str, node_id: str) -> NodePort:
        """A client connected to a server."""
        ...


class NoPeers:
    """A single server without peers."""

    names: tuple[str, ...] = ()
    voters = 1
    rules = RegionRules()

    def __init__(self, address: str) -> None:
        self.addresses = (address,)

    def peer(self, name: str) -> PeerPort:
        """Raises Unavailable."""
        raise Unavailable(f"server {name} is not known")

    def leader(self, name: str) -> LeaderPort:
        """Raises Unavailable."""
        raise Unavailable(f"server {name} is not known")

    def node(self, name: str, node_id: str) -> NodePort:
        """Raises Unavailable."""
        raise Unavailable(f"server {name} is not known")
