"""What `${...}` means on a node (semantics 17)."""

from __future__ import annotations

from yurt.structs.node import Node

_UNIQUE_PREFIXES = ("${node.unique.", "${attr.unique.", "${meta.unique.")


def is_unique(target: str) -> bool:
    """True when the answer differs between nodes of one computed class."""
    return target.startswith(_UNIQUE_PREFIXES)


def resolve(target: str, node: Node) -> str | None:
    """A literal as it is, an interpolation by the node; None when it does not resolve."""
    if not target.startswith("${"):
        return target
    if not target.endswith("}"):
        return None
    name = target[2:-1]
    if name.startswith("attr."):
        return node.attributes.get(name[5:])
    if name.startswith("meta."):
        return node.meta.get(name[5:])
    match name:
        case "node.unique.id":
            return node.id
        case "node.datacenter":
            return node.datacenter
        case "node.unique.name":
            return node.name
        case "node.class":
            return node.node_class
        case "node.pool":
            return node.node_pool
        case _:
            return None
