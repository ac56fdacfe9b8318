"""Authentication of client connections: a connection acts for the node whose secret it presents, if it is registered or
admitted.

A node that the servers do not know is let in by its identity when it was forgotten, or by its introduction when it is
new (`introduction`).
"""

from __future__ import annotations

import hmac
import logging

from yurt.sdk.errors import NotFound, PermissionDenied, Unavailable
from yurt.sdk.value import Value
from yurt.server.clients.introduction import Introductions
from yurt.server.clients.node_identities import NodeIdentities
from yurt.server.clients.node_service import NODE_LOOKUP_LIMIT_S
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.server.log.state_loader import StateLoader
from yurt.structs.rpc import RegisterNodeRequest

log = logging.getLogger(__name__)


class NodeCredentials(Value):
    """A connection's credentials: the node, its secret, optionally an introduction, and the source address."""

    node_id: str
    secret_id: str
    intro_token: str = ""
    address: str = ""

    def __repr__(self) -> str:
        return f"NodeCredentials({self.node_id})"


class NodeAuthenticator:
    """Checks clients' connections against the registered nodes."""

    def __init__(
        self,
        replica: Replica,
        leader: CurrentLeader,
        loader: StateLoader,
        *,
        node_identities: NodeIdentities,
        introductions: Introductions,
    ) -> None:
        self._replica = replica
        self._leader = leader
        self._loader = loader
        self._node_identities = node_identities
        self._introductions = introductions

    def need_state(self) -> None:
        """Raises Unavailable while the state is not loaded, since registered nodes are unknown until then."""
        self._loader.need_state()

    def check_secret(self, node_id: str, secret_id: str) -> None:
        """Raises PermissionDenied when the node has another secret."""
        node = self._replica.state.nodes.get(node_id)
        if node is not None and node.secret_id:
            check_equal(node.secret_id, secret_id)

    def has_node(self, node_id: str) -> bool:
        """Whether this server's state contains the node."""
        return node_id in self._replica.state.nodes

    async def knows(self, node_id: str) -> bool:
        """Whether the cluster has the node; a follower first catches up with the leader before it denies that."""
        if not self.has_node(node_id) and not self._leader.is_local:
            try:
                index = (await self._leader.peer().status()).index
            except Unavailable as error:
                log.debug("cannot read the index of the leader: error=%s", error)
            else:
                await self._replica.waiter.wait_index(index, timeout_s=NODE_LOOKUP_LIMIT_S)
        return self.has_node(node_id)

    async def require_node(self, node_id: str) -> None:
        """Raises NotFound for an unregistered node, Unavailable if only the leader could answer."""
        if await self.knows(node_id):
            return
        if self._leader.is_local:
            raise NotFound(f"node not found: {node_id} is not registered")
        raise Unavailable(f"this server does not know node {node_id} yet")

    async def introduce(self, request: RegisterNodeRequest, intro_token: str) -> None:
        """Admit an unregistered node: a deleted one by its identity, a new one by its introduction."""
        if not await self._node_identities.is_identity_of(request.token, request.node):
            await self._introductions.check(intro_token, request.node)

    def node_of(self, alloc_id: str) -> str:
        """The node of an allocation; "" for a missing allocation."""
        alloc = self._replica.state.allocs.get(alloc_id)
        return alloc.node_id if alloc is not None else ""


def check_equal(secret: str, presented: str) -> None:
    """Raises PermissionDenied unless both are equal, compared in constant time, as bytes: `hmac` accepts only ASCII
    text."""
    if not hmac.compare_digest(secret.encode(), presented.encode()):
        raise PermissionDenied(
            "node secret ID does not match: the servers know a node of this ID with another secret; where it is the "
            "same machine whose state was lost, remove the earlier node first (PUT /v1/node/<id>/purge)"
        )
