"""Queries of task templates for services and variables, answered as these change.

A node asks for an allocation that it runs; anybody else is refused. Without ACLs every variable of every namespace may
be read, as by anyone who reaches the API.
"""

from __future__ import annotations

from typing import Any

from yurt.api.encode import to_wire
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied
from yurt.server.log.replica import Replica
from yurt.server.resources.variables import Variables, metadata_of
from yurt.state import Snapshot
from yurt.state.watch import WatchKey
from yurt.structs.questions import is_client_terminal
from yurt.structs.rpc import TemplateAnswer, TemplateQuery

WAIT_MAX_S = 600.0


class TemplateQueries:
    """Answers templates' queries."""

    def __init__(self, replica: Replica, variables: Variables) -> None:
        self._replica = replica
        self._variables = variables

    async def ask(self, query: TemplateQuery) -> TemplateAnswer:
        """The answer once it may be newer than the query's index; raises NotFound, PermissionDenied or Invalid."""
        self._check(query)
        table, key = _watched(query)
        state = await self._replica.wait_past(
            [key],
            lambda state: _index(state, table, query.min_index),
            min_index=query.min_index,
            timeout_s=min(max(query.timeout_s, 0.0), WAIT_MAX_S),
        )
        index = max(state.table(table).index, 1)
        found = self._found(state, query)
        return TemplateAnswer(index=index, exists=found is not None, data=found)

    def _check(self, query: TemplateQuery) -> None:
        alloc = self._replica.state.allocs.get(query.alloc_id)
        if alloc is None:
            raise NotFound(f"allocation {query.alloc_id[:36]} not found")
        if alloc.node_id != query.node_id or is_client_terminal(alloc):
            raise PermissionDenied(f"allocation {alloc.id} does not run on node {query.node_id[:36]}")

    def _found(self, state: Snapshot, query: TemplateQuery) -> Any:
        match query.kind:
            case "service":
                return [to_wire(each) for each in state.services.where("name", (query.namespace, query.name))]
            case "services":
                return _service_names(state, query.namespace)
            case "variable":
                found = state.variables.get((query.namespace, query.name))
                return None if found is None else to_wire(self._variables.open(found))
            case "variables":
                return _metadata(state, query)
        raise AssertionError(query.kind)


def _watched(query: TemplateQuery) -> tuple[str, WatchKey]:
    match query.kind:
        case "service":
            return "services", ("services", "name", (query.namespace, query.name))
        case "services":
            return "services", ("services",)
        case "variable":
            return "variables", ("variables", (query.namespace, query.name))
        case "variables":
            return "variables", ("variables",)
    raise Invalid(f"templates cannot ask for {query.kind[:60]!r}")


def _index(state: Snapshot, table: str, asked: int) -> int:
    """The index for comparison: a state restored to an earlier index counts as new."""
    index = max(state.table(table).index, 1)
    return index if asked <= state.index else asked + 1


def _metadata(state: Snapshot, query: TemplateQuery) -> list[Any]:
    found = (
        variable
        for variable in state.variables.values()
        if variable.namespace == query.namespace and variable.path.startswith(query.name)
    )
    return [to_wire(metadata_of(variable)) for variable in sorted(found, key=lambda each: each.path)]


def _service_names(state: Snapshot, namespace: str) -> list[dict[str, Any]]:
    names: dict[str, set[str]] = {}
    for service in state.services.values():
        if service.namespace == namespace:
            names.setdefault(service.service_name, set()).update(service.tags)
    return [{"ServiceName": name, "Tags": sorted(tags)} for name, tags in sorted(names.items())]
