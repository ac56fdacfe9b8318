"""The node's identity token: signed by the servers, stored on disk, renewed before it expires or on demand.

The servers decide when to replace it, because their clock counts; each heartbeat names the token that the node has. A
node that moved to another pool or datacenter requests a new token, and so does an operator.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid, NotFound
from yurt.storage.client_db import NODE_TOKEN, ClientDatabase, NodeIdentity
from yurt.structs.node import Node
from yurt.structs.rpc import HeldIdentity

log = logging.getLogger(__name__)

ASK_LIMIT_S: Final = 5.0
"""The time limit for a missing token to arrive when a user asks for it."""
NONE_YET: Final = "this node has no identity: its servers have not given it one yet, or are of a version without them"


async def identified(database: ClientDatabase, env: Env, *, host_uuid: str = "") -> NodeIdentity:
    """The node's id, which is `host_uuid` where that is given, and its secret; both are created at its first start."""
    identity = await database.identity()
    if identity is None:
        identity = NodeIdentity(node_id=host_uuid or env.uuid(), secret_id=env.uuid())
        await database.put_identity(identity)
    return identity


class NodeToken:
    """The token of one node; `wake` makes a heartbeat due at once."""

    def __init__(self, store: ClientDatabase, env: Env, *, wake: Callable[[], None]) -> None:
        self.token = ""
        self._claims: Mapping[str, Any] = {}
        self._key_id = ""
        self._must_renew = False
        self._process = env.uuid()
        self._store = store
        self._env = env
        self._wake = wake

    async def load(self) -> None:
        """Load the stored token; the servers replace an unreadable one."""
        token = await self._store.text(NODE_TOKEN)
        try:
            self._set(token)
        except Invalid as error:
            log.warning("stored node identity is invalid, asking for a new one: error=%s", error)

    async def take(self, token: str) -> None:
        """Store a new token from the servers."""
        if not token:
            return
        try:
            self._set(token)
        except Invalid as error:
            log.warning("servers sent an invalid node identity: error=%s", error)
            return
        self._must_renew = False
        log.debug("node identity renewed: key=%s", self._key_id)
        await self._store.put_text(NODE_TOKEN, token)

    def identity_of(self, node: Node) -> HeldIdentity:
        """The description of the token for heartbeats."""
        if not self.token:
            return HeldIdentity(must_renew=self._must_renew, process=self._process)
        claims = self._claims
        has_moved = (claims.get("nomad_node_pool", ""), claims.get("nomad_node_datacenter", "")) != (
            node.node_pool or "default",
            node.datacenter,
        )
        return HeldIdentity(
            key_id=self._key_id,
            issued_at=_seconds(claims, "iat"),
            expires_at=_seconds(claims, "exp"),
            must_renew=self._must_renew or has_moved,
            process=self._process,
        )

    def renew(self) -> None:
        """Request a new token with a heartbeat that is sent at once."""
        self._must_renew = True
        self._wake()

    async def claims(self) -> Mapping[str, Any]:
        """The claims of the token; a node without one requests it. Raises NotFound when none arrives."""
        if not self.token:
            self.renew()
            end_s = self._env.monotonic() + ASK_LIMIT_S
            while not self.token and self._env.monotonic() < end_s:
                await self._env.sleep(0.05)
        if not self.token:
            raise NotFound(NONE_YET)
        return self._claims

    @property
    def process(self) -> str:
        """The unique id of this agent process."""
        return self._process

    def _set(self, token: str) -> None:
        if token:
            self._key_id, self._claims = decode_token(token)
            self.token = token


def decode_token(token: str) -> tuple[str, Mapping[str, Any]]:
    """The key id and the claims of a token, unverified; raises Invalid."""
    try:
        first, second, _ = token.split(".")
        header = msgspec.json.decode(_decoded(first), type=dict[str, Any])
        claims = msgspec.json.decode(_decoded(second), type=dict[str, Any])
    except (ValueError, binascii.Error, RecursionError):
        raise Invalid("it is not a JSON Web Token") from None
    return str(header.get("kid", "")), claims


def _seconds(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    return value if isinstance(value, int) else 0


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
