"""Search results: the objects of each context that the caller may list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from yurt.access import Access, Capability, Need, Scope, needs
from yurt.access.needs import NodePoolCapability, VariableCapability
from yurt.server.views.rows import Listing
from yurt.state import TABLES, Snapshot
from yurt.state.csi_plugins import csi_plugins
from yurt.structs.job import Job

Entry = tuple[str, str, str]
"""(namespace, id, name) of an object; the namespace is "" where it has none."""
PLUGINS: Final = "plugins"
"""A context without a table: plugins follow from nodes and jobs."""
_TABLES: Final = {table.search.name: name for name, table in TABLES.items() if table.search is not None}
"""The table of a context."""
_SEARCHED: Final = {table.search.name: table.search for table in TABLES.values() if table.search is not None}
"""How the rows of a context are found."""
SCALING_POLICIES: Final = "scaling_policy"
"""A special context: scaling policies are derived from jobs."""
CONTEXTS: Final = (*_SEARCHED, PLUGINS, SCALING_POLICIES)
WITH_UUIDS: Final = frozenset((*(name for name, each in _SEARCHED.items() if each.has_uuids), SCALING_POLICIES))
SHOWN_BY_NAME: Final = frozenset(name for name, each in _SEARCHED.items() if each.is_shown_by_name)
_READ_JOB: Final = needs.namespace(Capability.READ_JOB)
_NEEDS: Final[Mapping[str, Need]] = {
    "allocs": _READ_JOB,
    "deployment": _READ_JOB,
    "evals": _READ_JOB,
    "host_volumes": needs.namespace(Capability.HOST_VOLUME_READ),
    "jobs": needs.namespace(Capability.READ_JOB, Capability.LIST_JOBS),
    "namespaces": needs.ANY_CAPABILITY,
    "node_pools": needs.node_pool(NodePoolCapability.READ),
    "nodes": needs.NODE_READ,
    PLUGINS: needs.PLUGIN_LIST,
    "quotas": needs.QUOTA_READ,
    SCALING_POLICIES: needs.any_of(
        needs.namespace(Capability.LIST_SCALING_POLICIES),
        needs.all_of(needs.namespace(Capability.LIST_JOBS), _READ_JOB),
    ),
    "vars": needs.variable(VariableCapability.LIST),
    "volumes": needs.namespace(Capability.CSI_LIST_VOLUME, Capability.CSI_READ_VOLUME),
}
"""The need of each context; the route's need only admits callers who may search in one of them."""


class SearchView:
    """The objects of all contexts that one caller may find."""

    __slots__ = ("_access", "_state")

    def __init__(self, state: Snapshot, access: Access) -> None:
        self._state = state
        self._access = access

    def of_context(self, context: str) -> Listing[Entry]:
        """The objects of a context; one without a declared need requires a management token."""
        access = self._access.narrowed(_NEEDS.get(context, needs.MANAGEMENT))
        if access.sees_all:
            return Listing(self._entries(context))
        if not access.sees_some:  # anybody may search, and a million rows take a second
            return Listing(())
        return Listing(self._entries(context), lambda entry: access.allows(_scope(context, entry)))

    def jobs(self) -> Listing[Job]:
        """The jobs whose parts the caller may find."""
        access = self._access.narrowed(_READ_JOB)
        if not access.sees_some:
            return Listing(())
        return Listing(self._state.jobs.values(), lambda job: access.allows(Scope(namespace=job.namespace)))

    def _entries(self, context: str) -> Iterable[Entry]:
        if context == PLUGINS:
            return (("", plugin_id, "") for plugin_id in csi_plugins(self._state))
        if context == SCALING_POLICIES:
            from yurt.rules.scaling_policies import policies_of

            policies = (each for job in self._state.jobs.values() for each in policies_of(job))
            return ((policy.namespace, policy.id, "") for policy in policies)
        searched = _SEARCHED.get(context)
        return () if searched is None else map(searched.entry, self._state.table(_TABLES[context]).values())


def _scope(context: str, entry: Entry) -> Scope:
    """The scope of an object."""
    namespace, row_id, _ = entry
    match context:
        case "namespaces":
            return Scope(namespace=row_id)
        case "node_pools":
            return Scope(node_pool=row_id)
        case "vars":
            return Scope(namespace=namespace, variable=row_id)
    return Scope(namespace=namespace or None)
