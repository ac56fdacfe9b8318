"""What `${...}` means on a node (semantics 17)."""

from __future__ import annotations

from collections.abc import Callable

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


def reader(target: str) -> Callable[[Node], str | None]:
    """The same as `resolve` for many nodes."""
    name = target[2:-1] if target.startswith("${") and target.endswith("}") else ""
    if name.startswith("attr."):
        key = name[5:]
        return lambda node: node.attributes.get(key)
    if name.startswith("meta."):
        key = name[5:]
        return lambda node: node.meta.get(key)
    return lambda node: resolve(target, node)
