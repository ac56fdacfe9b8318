"""Identities of nodes: tokens (JWT, RS256) that say which client node their bearer is.

The leader hands a node its identity with the answer to a registration or a heartbeat: when the node has none, when
two thirds of its time are over, when the key that signed it is gone, or when the node asks for a new one. A node's
pool says how long it lasts (`node_identity_ttl`). Signing is held to a few at once: the others go without until their
next heartbeat, so that many nodes that register together do not wait for signatures.

Every call of a node is still held against its secret, which agents have that know no identities. The identity counts
where the servers know the node no more: it lets a node that was forgotten in again, without a new introduction.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yurt.sdk.errors import PermissionDenied, YurtError
from yurt.sdk.value import NANOSECONDS, replace
from yurt.server.keys.tokens import AUDIENCE, checked_token, signed_token
from yurt.structs.node import Node
from yurt.structs.rpc import HeldIdentity, NodeReply

if TYPE_CHECKING:
    from yurt.server.server import Server

log = logging.getLogger(__name__)

DEFAULT_TTL_S: Final = 24 * 3600
DEFAULT_POOL: Final = "default"
RENEW_AT: Final = 0.67
"""The part of its time after which an identity is replaced (Nomad's documentation, node identity)."""
SIGNING_MAX: Final = 4
"""Identities that are being signed at once."""


class _Claims(msgspec.Struct):
    """What an identity says, as far as it is held against a node."""

    sub: str
    aud: str
    exp: int
    nomad_node_id: str
    nomad_node_pool: str = ""


class NodeIdentities:
    """Signs identities of nodes, and checks them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._signing = 0

    async def handed(self, reply: NodeReply, node_id: str, held: HeldIdentity | None) -> NodeReply:
        """The answer to a node with a new identity in it, where one is due; nodes that say nothing get none."""
        node = self._server.state.nodes.get(node_id)
        if held is None or node is None or not self._is_due(held):
            return reply
        can_wait = not held.must_renew
        if can_wait and (self._signing >= SIGNING_MAX or self._server.root_keys.usable() is None):
            return reply
        self._signing += 1
        try:
            return replace(reply, identity=await self._sign(node))
        except YurtError as error:
            log.warning("node %s gets no identity now: %s", node_id, error)
            return reply
        finally:
            self._signing -= 1

    def _is_due(self, held: HeldIdentity) -> bool:
        if held.must_renew or held.key_id not in self._server.state.root_keys:
            return True
        age = self._server.env.now() - held.issued_at * NANOSECONDS
        return age >= (held.expires_at - held.issued_at) * NANOSECONDS * RENEW_AT

    async def _sign(self, node: Node) -> str:
        key = await self._server.root_keys.active()
        return await asyncio.to_thread(signed_token, self._server.keyring, key.key_id, self._claims(node))

    def _claims(self, node: Node) -> dict[str, Any]:
        env, pool_name = self._server.env, node.node_pool or DEFAULT_POOL
        now = env.now() // NANOSECONDS
        pool = self._server.state.node_pools.get(pool_name)
        ttl_s = max(pool.node_identity_ttl // NANOSECONDS, 1) if pool is not None and pool.node_identity_ttl > 0 else 0
        claims = {
            "aud": AUDIENCE, "exp": now + (ttl_s or DEFAULT_TTL_S), "iat": now, "jti": env.uuid(), "nbf": now,
            "nomad_node_datacenter": node.datacenter, "nomad_node_id": node.id, "nomad_node_pool": pool_name,
            "sub": self._subject(pool_name, node.id),
        }  # fmt: skip
        return claims | ({"nomad_node_class": node.node_class} if node.node_class else {})

    def _subject(self, pool: str, node_id: str) -> str:
        return f"node:{self._server.config.region}:{pool}:{node_id}:default"

    async def is_of(self, token: str, node: Node) -> bool:
        """Whether the token is the identity of the node as it is: in that pool, of this region, and not expired."""
        server = self._server
        if not token:
            return False
        try:
            claims = await asyncio.to_thread(checked_token, server.keyring, token, server.state.root_keys, _Claims)
        except PermissionDenied:
            return False
        subject = self._subject(node.node_pool or DEFAULT_POOL, node.id)
        is_its_own = claims.aud == AUDIENCE and claims.sub == subject and claims.nomad_node_id == node.id
        return is_its_own and claims.exp * NANOSECONDS > server.env.now()
