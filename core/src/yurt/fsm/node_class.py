"""The computed class of a node: constraints without unique names cannot distinguish nodes of one class."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from yurt.structs.node import Node

V = TypeVar("V")
UNIQUE = "unique."

_encoder = msgspec.msgpack.Encoder(order="deterministic")


def computed_class(node: Node) -> str:
    """A hash of non-unique attributes and meta, class, datacenter, pool and devices."""
    devices = [
        (device.vendor, device.type, device.name, device.attributes)
        for device in sorted(node.node_resources.devices, key=lambda device: (device.vendor, device.type, device.name))
    ]
    content = (
        _shared(node.attributes),
        _shared(node.meta),
        node.node_class,
        node.datacenter,
        node.node_pool,
        devices,
    )
    digest = hashlib.blake2b(_encoder.encode(content), digest_size=8).digest()
    return f"v1:{int.from_bytes(digest, 'big')}"


def _shared(entries: Mapping[str, V]) -> dict[str, V]:
    return {name: value for name, value in entries.items() if not name.startswith(UNIQUE)}
