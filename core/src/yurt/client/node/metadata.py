"""A node's metadata: the configured part, and the changes that operators made at run time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

from yurt.client.node.local_node import LocalNode
from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.storage.client_db import ClientDatabase, DynamicMeta
from yurt.structs.node import Node
from yurt.structs.rpc import NodeMeta

KEYS_MAX = 256
KEY_LENGTH_MAX = 128
VALUE_LENGTH_MAX = 4096
KEY = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.\-/]*$")


DEFAULTS: Final[Mapping[str, str]] = {
    "connect.gateway_image": "docker.io/envoyproxy/envoy:v${NOMAD_envoy_version}",
    "connect.log_level": "info",
    "connect.proxy_concurrency": "1",
    "connect.sidecar_image": "docker.io/envoyproxy/envoy:v${NOMAD_envoy_version}",
    "connect.transparent_proxy.default_outbound_port": "15001",
    "connect.transparent_proxy.default_uid": "101",
}
"""Metadata of every node, which its configuration may change; jobs refer to it."""


def static_meta(configured: Mapping[str, str]) -> dict[str, str]:
    """The configured metadata of a node, with `DEFAULTS`."""
    return {**DEFAULTS, **configured}


class Metadata:
    """The metadata of one node; changes are on disk before they take effect."""

    def __init__(self, static: Mapping[str, str], *, store: ClientDatabase, node: LocalNode) -> None:
        self._store = store
        self._node = node
        self._value = combined(static, {})
        self._turn = asyncio.Lock()

    @property
    def value(self) -> NodeMeta:
        """The current metadata with its parts."""
        return self._value

    async def load(self) -> None:
        """Load the stored changes of operators and apply them."""
        self._apply(combined(self._value.static, (await self._store.node_meta()).values))

    async def change(self, changes: Mapping[str, str | None]) -> NodeMeta:
        """Set and store these values; None removes one. Raises Invalid."""
        async with self._turn:
            meta = changed(self._value, changes)
            await self._store.put_node_meta(DynamicMeta(values=meta.dynamic))
            self._apply(meta)
            return meta

    def _apply(self, meta: NodeMeta) -> None:
        self._value = meta
        self._node.change(self.applied)

    def applied(self, node: Node) -> Node:
        """The node with its metadata."""
        return replace(node, meta=self._value.meta)


def combined(static: Mapping[str, str], dynamic: Mapping[str, str | None]) -> NodeMeta:
    """The metadata with changes merged over the configuration."""
    merged = {**static, **dynamic}
    meta = {key: value for key, value in merged.items() if value is not None}
    return NodeMeta(meta=meta, dynamic=dynamic, static=static)


def changed(old: NodeMeta, changes: Mapping[str, str | None]) -> NodeMeta:
    """The metadata after changes; None removes a value. Raises Invalid for malformed keys and beyond the bounds."""
    if not changes:
        raise Invalid("missing required Meta object: name at least one key, with a text or null")
    for key, value in changes.items():
        _check(key, value)
    dynamic = {**old.dynamic, **changes}
    kept = {key: value for key, value in dynamic.items() if value is not None or key in old.static}
    if len(kept) > KEYS_MAX:
        raise Invalid(f"a node keeps {KEYS_MAX} changed keys of metadata at most; take some away first")
    return combined(old.static, kept)


def _check(key: str, value: str | None) -> None:
    if not KEY.match(key) or len(key) > KEY_LENGTH_MAX:
        raise Invalid(
            f"invalid metadata key {key[:KEY_LENGTH_MAX]!r}: use letters, digits and _ . - /, "
            f"{KEY_LENGTH_MAX} characters at most"
        )
    if value is not None and len(value) > VALUE_LENGTH_MAX:
        raise Invalid(f"the metadata value of {key!r} is longer than {VALUE_LENGTH_MAX} characters")
