"""How the servers of one region reach each other, and what each of them offers to the others.

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
from yurt.storage.log import LogRoom
from yurt.structs.evaluation import Evaluation
from yurt.structs.plan import Outcome, Plan
from yurt.structs.rpc import (
    HeldIdentity,
    IdentityQuery,
    NodeEventsRequest,
    NodeReply,
    RegisterNodeRequest,
    SignedIdentity,
    UpdateAllocsRequest,
)
from yurt.structs.service import ServiceRegistration
from yurt.structs.volumes.csi import CSIClaimed, CSIClaimQuery


class RootKey(Value):
    """A root key of the cluster; `pem` is the RSA half. It never enters the state, the log or a snapshot."""

    key_id: str
    secret: bytes
    pem: bytes
    version: int = 1

    def __repr__(self) -> str:
        return f"RootKey({self.key_id})"


class PlanReply(Value):
    """What became of a plan: whether all of it, or nothing, was accepted; a state to look at when it was not all."""

    is_full: bool
    is_empty: bool = False
    refresh_index: int = 0


class PeerStatus(Value):
    """How a server fares: the index that it has applied, whether it leads, and how large its log's file is.

    `room` is None where there is no quota, and of older servers.
    """

    index: int
    is_leader: bool = False
    room: LogRoom | None = None


class SnapshotPart(Value):
    """A part of a state: first its index, then its chunks, last the digest (BLAKE2b, 32 bytes) of all of them.

    A chunk comes in pieces; `is_whole` with the last one.
    """

    index: int = 0
    data: bytes = b""
    is_whole: bool = False
    digest: bytes = b""


class PeerPort(Protocol):
    """One server, seen from another one."""

    @allowed(CallerKind.SERVER)
    async def status(self) -> PeerStatus:
        """How it fares."""
        ...

    @allowed(CallerKind.SERVER)
    def snapshot(self, after: int) -> AsyncGenerator[SnapshotPart]:
        """Its present state; raises Unavailable when that is not beyond index `after`."""
        ...

    @allowed(CallerKind.SERVER)
    async def root_key(self, key_id: str) -> RootKey:
        """A root key; raises Unavailable when it is not there."""
        ...

    @allowed(CallerKind.SERVER)
    async def take_root_key(self, key: RootKey) -> None:
        """Keep a root key; it is durable when this returns."""
        ...

    @allowed(CallerKind.SERVER)
    async def drop_root_key(self, key_id: str) -> None:
        """Forget a root key that was given and is not used after all; one that the cluster knows stays."""
        ...

    @allowed(CallerKind.SERVER)
    async def has_node(self, node_id: str) -> bool:
        """Whether a client is connected there."""
        ...

    @allowed(CallerKind.SERVER)
    async def take_work(self, *, timeout_s: float, scheduler: int = 0) -> tuple[Delivery, ...]:
        """Evaluations that the leader has to spare, perhaps none; raises Unavailable where nobody leads, as below.

        `scheduler` is the version of what would work on them; raises Conflict when it is not the leader's.
        """
        ...

    @allowed(CallerKind.SERVER)
    async def finish_work(self, delivery: Delivery, *, is_done: bool) -> None:
        """The answer to a delivery: done, or to be tried again."""
        ...

    @allowed(CallerKind.SERVER)
    async def submit_plan(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanReply:
        """Check and store a plan, which may be packed; raises Conflict when the delivery is no longer the worker's."""
        ...

    @allowed(CallerKind.SERVER)
    async def store_evaluations(self, delivery: Delivery, evaluations: tuple[Evaluation, ...]) -> None:
        """Store the end of an evaluation; raises Conflict when the delivery is no longer the worker's."""
        ...


class LeaderPort(Protocol):
    """Calls of clients that only the leader carries out; raise Unavailable ("No cluster leader") where nobody leads."""

    @allowed(CallerKind.SERVER)
    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register a node."""
        ...

    @allowed(CallerKind.SERVER)
    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None = None) -> NodeReply:
        """A node lives."""
        ...

    @allowed(CallerKind.SERVER)
    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """A node's reports."""
        ...

    @allowed(CallerKind.SERVER)
    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Services that run on a node."""
        ...

    @allowed(CallerKind.SERVER)
    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Services that no longer run on a node."""
        ...

    @allowed(CallerKind.SERVER)
    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Events of a node."""
        ...

    @allowed(CallerKind.SERVER)
    async def claim_csi_volume(self, query: CSIClaimQuery) -> CSIClaimed:
        """A CSI volume for an allocation."""
        ...

    @allowed(CallerKind.SERVER)
    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """The token of a task."""
        ...


class Peers(Protocol):
    """The other servers of the region, by name."""

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are there, sorted."""
        ...

    @property
    def voters(self) -> int:
        """How many servers make up the cluster, this one and those that are away included."""
        ...

    @property
    def addresses(self) -> tuple[str, ...]:
        """`host:port` at which clients reach the servers that are there, this one included."""
        ...

    def peer(self, name: str) -> PeerPort:
        """What a server offers to servers; its calls raise Unavailable while it cannot be reached."""
        ...

    def leader(self, name: str) -> LeaderPort:
        """The server of that name, for calls that a leader carries out."""
        ...

    def node(self, name: str, node_id: str) -> NodePort:
        """A client that is connected to the server of that name."""
        ...


class NoPeers:
    """A server that stands alone."""

    names: tuple[str, ...] = ()
    voters = 1

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
