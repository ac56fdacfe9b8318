"""Namespaces, node pools and nodes."""

from __future__ import annotations

from yurt.access import Scope
from yurt.server.views.rows import Rows
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.node import Node
from yurt.structs.quota import QuotaSpec


class NamespaceRows(Rows[str, Namespace]):
    """Namespaces; the scope of each is itself."""

    __slots__ = ()
    name = "namespaces"

    @staticmethod
    def scope_of(row: Namespace) -> Scope:
        """The namespace itself."""
        return Scope(namespace=row.name)


class QuotaRows(Rows[str, QuotaSpec]):
    """Quotas by name; callers who may read quotas see all."""

    __slots__ = ()
    name = "quotas"


class NodePoolRows(Rows[str, NodePool]):
    """Node pools; the scope of each is itself."""

    __slots__ = ()
    name = "node_pools"

    @staticmethod
    def scope_of(row: NodePool) -> Scope:
        """The pool itself."""
        return Scope(node_pool=row.name)


class NodeRows(Rows[str, Node]):
    """Nodes."""

    __slots__ = ()
    name = "nodes"

    @staticmethod
    def scope_of(row: Node) -> Scope:
        """The node's pool, for needs that name one."""
        return Scope(node_pool=row.node_pool)
