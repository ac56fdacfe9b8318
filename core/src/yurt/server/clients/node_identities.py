"""Identities of nodes: tokens (JWT, RS256) that identify the client node of their bearer.

The leader hands a node its identity with the answer to a registration or a heartbeat: when the node has none, when
two thirds of its time are over, when the key that signed it is gone, or when the node asks for a new one. A node's
pool says how long it lasts (`node_identity_ttl`). At most `SIGNING_MAX` identities are signed at a time; other nodes
get theirs with their next heartbeat, so that many nodes that register together do not wait for signatures.

Every call of a node is still checked against its secret, because older agents have no identity. The identity matters
only where the servers have forgotten the node: it readmits the node without a new introduction.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import msgspec

from yurt.rules.workload_claims import AUDIENCE
from yurt.sdk.errors import PermissionDenied, YurtError
from yurt.sdk.value import NANOSECONDS, replace
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.root_keys import RootKeys
from yurt.server.keys.tokens import NODE_IDENTITY_TTL_S, checked_token, signed_token
from yurt.server.log.replica import Replica
from yurt.structs.node import Node
from yurt.structs.rpc import HeldIdentity, NodeReply

log = logging.getLogger(__name__)

DEFAULT_POOL: Final = "default"
RENEW_AT: Final = 0.67
"""The part of its lifetime after which an identity is replaced (Nomad's documentation, node identity)."""
SIGNING_MAX: Final = 4
"""The maximum number of identities signed at once."""


class _NodeClaims(msgspec.Struct):
    """The claims of an identity that are compared with the node."""

    sub: str
    aud: str
    exp: int
    nomad_node_id: str
    nomad_node_pool: str = ""


class NodeIdentities:
    """Signs and checks identities of nodes."""

    def __init__(self, replica: Replica, region: str, *, root_keys: RootKeys, keyring: Keyring) -> None:
        self._replica = replica
        self._region = region
        self._root_keys = root_keys
        self._keyring = keyring
        self._signing = 0

    async def with_identity(self, reply: NodeReply, node_id: str, identity: HeldIdentity | None) -> NodeReply:
        """The answer to a node, with a new identity when one is due and the node supports it."""
        node = self._replica.state.nodes.get(node_id)
        if identity is None or node is None or not self._is_due(identity):
            return reply
        can_wait = not identity.must_renew
        if can_wait and (self._signing >= SIGNING_MAX or self._root_keys.usable() is None):
            return reply
        self._signing += 1
        try:
            return replace(reply, identity=await self._sign(node))
        except YurtError as error:
            log.warning("node gets no identity now: node_id=%s error=%s", node_id, error)
            return reply
        finally:
            self._signing -= 1

    def _is_due(self, identity: HeldIdentity) -> bool:
        if identity.must_renew or identity.key_id not in self._replica.state.root_keys:
            return True
        age = self._replica.env.now() - identity.issued_at * NANOSECONDS
        return age >= (identity.expires_at - identity.issued_at) * NANOSECONDS * RENEW_AT

    async def _sign(self, node: Node) -> str:
        key = await self._root_keys.active()
        return await asyncio.to_thread(signed_token, self._keyring, key.key_id, self._claims(node))

    def _claims(self, node: Node) -> dict[str, Any]:
        env, pool_name = self._replica.env, node.node_pool or DEFAULT_POOL
        now = env.now() // NANOSECONDS
        pool = self._replica.state.node_pools.get(pool_name)
        ttl_s = max(pool.node_identity_ttl // NANOSECONDS, 1) if pool is not None and pool.node_identity_ttl > 0 else 0
        claims = {
            "aud": AUDIENCE, "exp": now + (ttl_s or NODE_IDENTITY_TTL_S), "iat": now, "jti": env.uuid(), "nbf": now,
            "nomad_node_datacenter": node.datacenter, "nomad_node_id": node.id, "nomad_node_pool": pool_name,
            "sub": self._subject(pool_name, node.id),
        }  # fmt: skip
        return claims | ({"nomad_node_class": node.node_class} if node.node_class else {})

    def _subject(self, pool: str, node_id: str) -> str:
        return f"node:{self._region}:{pool}:{node_id}:default"

    async def is_identity_of(self, token: str, node: Node) -> bool:
        """Whether the token is the node's present identity: of its pool and this region, and not expired."""
        if not token:
            return False
        try:
            claims = await asyncio.to_thread(
                checked_token, self._keyring, token, self._replica.state.root_keys, _NodeClaims
            )
        except PermissionDenied:
            return False
        subject = self._subject(node.node_pool or DEFAULT_POOL, node.id)
        is_its_own = claims.aud == AUDIENCE and claims.sub == subject and claims.nomad_node_id == node.id
        return is_its_own and claims.exp * NANOSECONDS > self._replica.env.now()
