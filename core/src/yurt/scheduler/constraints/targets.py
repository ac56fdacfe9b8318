"""Resolves `${...}` on a node (docs/explanation/feasibility.md)."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from yurt.structs.node import Node

_UNIQUE_PREFIXES = ("${node.unique.", "${attr.unique.", "${meta.unique.")
FIELDS: Final = {
    "node.unique.id": "id",
    "node.unique.name": "name",
    "node.datacenter": "datacenter",
    "node.class": "node_class",
    "node.pool": "node_pool",
}
"""The names of a node's fields that constraints can use, apart from attributes and metadata, with the field."""


def is_unique(target: str) -> bool:
    """Whether the value differs between nodes of one computed class."""
    return target.startswith(_UNIQUE_PREFIXES)


def resolve(target: str, node: Node) -> str | None:
    """The value of a literal or an interpolation on a node; None when it does not resolve."""
    if not target.startswith("${"):
        return target
    if not target.endswith("}"):
        return None
    name = target[2:-1]
    if name.startswith("attr."):
        return node.attributes.get(name[5:])
    if name.startswith("meta."):
        return node.meta.get(name[5:])
    field: str | None = getattr(node, FIELDS[name]) if name in FIELDS else None
    return field


def resolve_all(target: str, nodes: Iterable[Node]) -> list[str | None]:
    """`resolve` for many nodes."""
    name = target[2:-1] if target.startswith("${") and target.endswith("}") else ""
    key = name[5:]
    if name.startswith("attr."):
        return [node.attributes.get(key) for node in nodes]
    if name.startswith("meta."):
        return [node.meta.get(key) for node in nodes]
    if name in FIELDS:
        return list(map(attrgetter(FIELDS[name]), nodes))
    return [resolve(target, node) for node in nodes]
