"""The rows that all regions share, as the authoritative region shows them to servers of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from yurt.server.views.acl import AuthMethodRows, BindingRuleRows, PolicyRows, RoleRows, TokenRows
from yurt.server.views.cluster import NamespaceRows, NodePoolRows, QuotaRows
from yurt.server.views.rows import Rows


class SharedKind(NamedTuple):
    """One table of shared rows."""

    rows: type[Rows[str, Any]]
    key_of: Callable[[Any], str]
    is_shared: Callable[[Any], bool] = lambda _: True
    needs_acl: bool = True
    """Exists only where access control is on."""


SHARED_KINDS: Final[Mapping[str, SharedKind]] = {
    kind.rows.name: kind
    for kind in (
        SharedKind(NamespaceRows, lambda row: row.name, needs_acl=False),
        SharedKind(QuotaRows, lambda row: row.name, needs_acl=False),
        SharedKind(NodePoolRows, lambda row: row.name, needs_acl=False),
        SharedKind(PolicyRows, lambda row: row.name),
        SharedKind(RoleRows, lambda row: row.id),
        SharedKind(TokenRows, lambda row: row.accessor_id, lambda row: row.is_global),
        SharedKind(AuthMethodRows, lambda row: row.name),
        SharedKind(BindingRuleRows, lambda row: row.id),
    )
}
"""By the name of the table."""
