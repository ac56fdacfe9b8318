"""Introductions of clients: short-lived tokens (JWT) with which an operator permits new nodes to register.

`server { client_introduction { enforcement } }` says what happens to a node that no server knows yet and that brings
no token: nothing (`none`), a warning (`warn`), or a refusal (`strict`). A token that does not count, or is for another
node, is refused by `warn` too. A token is bound to a node pool, and may be bound to a node's name. Nodes that are known
show their secret instead, always.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from yurt.rules.workload_claims import AUDIENCE
from yurt.runtime.metrics import Metrics
from yurt.sdk.errors import Invalid, PermissionDenied
from yurt.sdk.value import NANOSECONDS, duration_text, seconds
from yurt.server.clients.node_identities import DEFAULT_POOL
from yurt.server.config import ServerConfig
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.root_keys import RootKeys
from yurt.server.keys.tokens import INTRODUCTION_KIND, checked_token, signed_token
from yurt.server.log.replica import Replica
from yurt.structs.node import Node

log = logging.getLogger(__name__)

NONE, WARN, STRICT = "none", "warn", "strict"
TTL_MIN_S = 1.0
HOW = "make one with `yurt node intro create` and start the client with -client-intro-token"


class _IntroductionClaims(msgspec.Struct):
    """The claims of a token."""

    sub: str
    aud: str
    exp: int
    nomad_node_name: str = ""
    nomad_node_pool: str = DEFAULT_POOL


class Introductions:
    """Signs introduction tokens, and checks new nodes against them."""

    def __init__(
        self, replica: Replica, config: ServerConfig, *, root_keys: RootKeys, keyring: Keyring, metrics: Metrics
    ) -> None:
        self._replica = replica
        self._config = config
        self._root_keys = root_keys
        self._keyring = keyring
        self._metrics = metrics

    async def make(self, *, node_name: str = "", node_pool: str = "", ttl_s: float = 0.0) -> str:
        """A token for a node (any when empty) of a pool (`default` when empty); raises Invalid or Unavailable."""
        settings = self._config.introduction
        lasts_s = ttl_s or settings.default_ttl_s
        if not TTL_MIN_S <= lasts_s <= settings.max_ttl_s:
            raise Invalid(
                f"TTL {_text(lasts_s)} is not between {_text(TTL_MIN_S)} and {_text(settings.max_ttl_s)} "
                "(server.client_introduction.max_identity_ttl)"
            )
        pool = node_pool or DEFAULT_POOL
        env, key = self._replica.env, await self._root_keys.active()
        now = env.now() // NANOSECONDS
        claims = {
            "aud": AUDIENCE, "exp": now + round(lasts_s), "iat": now, "jti": env.uuid(), "nbf": now,
            "nomad_node_name": node_name, "nomad_node_pool": pool,
            "sub": f"{self._subject()}{pool}:{node_name}:default",
        }  # fmt: skip
        return await asyncio.to_thread(signed_token, self._keyring, key.key_id, claims)

    async def check(self, token: str, node: Node) -> None:
        """Check a new node against its token; raises PermissionDenied if introductions are enforced."""
        enforcement = self._config.introduction.enforcement
        if enforcement == NONE:
            return
        try:
            if not token:
                raise PermissionDenied("it brings no introduction token")
            _hold_against(await asyncio.to_thread(self._claims, token), node)
        except PermissionDenied as error:
            self._metrics.count("client.introduction.violation")
            if token or enforcement == STRICT:
                text = f"node {node.name} ({node.id}) is not introduced: {error}"
                raise PermissionDenied(f"{text}; {HOW}") from None
            log.warning(
                "node registers without an introduction: name=%s node=%s client_introduction.enforcement=%s: %s",
                node.name, node.id, enforcement, error,
            )  # fmt: skip

    def _subject(self) -> str:
        """The beginning of the subject of this region's tokens."""
        return f"{INTRODUCTION_KIND}:{self._config.region}:"

    def _claims(self, token: str) -> _IntroductionClaims:
        """The claims of a token; raises PermissionDenied unless a key of this region signed it and it is valid now."""
        try:
            claims = checked_token(self._keyring, token, self._replica.state.root_keys, _IntroductionClaims)
        except PermissionDenied as error:
            raise PermissionDenied(f"its introduction token does not count: {error}") from None
        if claims.aud != AUDIENCE or not claims.sub.startswith(self._subject()):
            raise PermissionDenied("its token is not one for introductions to this region")
        if claims.exp * NANOSECONDS <= self._replica.env.now():
            raise PermissionDenied("its introduction token has expired")
        return claims


def _hold_against(claims: _IntroductionClaims, node: Node) -> None:
    if claims.nomad_node_name and claims.nomad_node_name != node.name:
        raise PermissionDenied(f"its introduction token is for the node {claims.nomad_node_name!r}")
    if claims.nomad_node_pool != (node.node_pool or DEFAULT_POOL):
        raise PermissionDenied(f"its introduction token is for the node pool {claims.nomad_node_pool!r}")


def _text(lasts_s: float) -> str:
    return duration_text(seconds(lasts_s))
