"""Queries of task templates for services and variables, answered as these change.

A node asks for a task of an allocation that it runs; anybody else is refused. With access control the query is decided
as one of the task's default identity: its own variables, the services of its namespace, and what policies attached to
it grant, never what the node may do. Without it every variable of every namespace may be read, as by anyone who
reaches the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from yurt.access import ANYWHERE, Access, Actor, Authority, Need, Scope, ShownWorkload, needs
from yurt.access.needs import Capability, VariableCapability
from yurt.api.encode import to_wire
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied
from yurt.server.log.replica import Replica
from yurt.server.resources.variables import Variables, metadata_of
from yurt.state import Snapshot
from yurt.state.watch import WatchKey
from yurt.structs.alloc import Allocation
from yurt.structs.predicates import is_client_terminal
from yurt.structs.rpc import TemplateQuery, TemplateQueryAnswer

WAIT_MAX_S = 600.0
TASK: Final = "template of a task"
_SERVICES: Final = needs.any_of(needs.namespace(Capability.READ_JOB), needs.WORKLOAD)
_NEEDS: Final[Mapping[str, Need]] = {
    "service": _SERVICES,
    "services": _SERVICES,
    "variable": needs.variable(VariableCapability.READ),
    "variables": needs.each_row(needs.variable(VariableCapability.LIST)),
}
"""Those of the HTTP routes that answer the same."""


class TemplateQueries:
    """Answers templates' queries."""

    def __init__(self, replica: Replica, variables: Variables, authority: Authority) -> None:
        self._replica = replica
        self._variables = variables
        self._authority = authority

    async def ask(self, query: TemplateQuery) -> TemplateQueryAnswer:
        """The answer once it may be newer than the query's index; raises NotFound, PermissionDenied or Invalid."""
        table, key = _watched(query)
        actor = Actor(name=TASK, caller=self._task(query))
        await self._prepare(actor)
        access = Access(actor, _NEEDS[query.kind], self._authority)
        access.require(_scope(query))
        state = await self._replica.wait_past(
            [key],
            lambda state: _index(state, table, query.min_index),
            min_index=query.min_index,
            timeout_s=min(max(query.timeout_s, 0.0), WAIT_MAX_S),
        )
        index = max(state.table(table).index, 1)
        access.renew()
        access.require(_scope(query))
        data = self._data(state, query, access)
        return TemplateQueryAnswer(index=index, exists=data is not None, data=data)

    async def _prepare(self, actor: Actor) -> None:
        """Read long policies in a thread."""
        work = self._authority.preparation(actor)
        if work is not None:
            keep = await self._replica.env.in_thread(work)
            keep()

    def _task(self, query: TemplateQuery) -> ShownWorkload:
        """The task as a caller; raises unless the node runs it."""
        alloc = self._replica.state.allocs.get(query.alloc_id)
        if alloc is None:
            raise NotFound(f"allocation {query.alloc_id[:36]} not found")
        if alloc.node_id != query.node_id or is_client_terminal(alloc):
            raise PermissionDenied(f"allocation {alloc.id} does not run on node {query.node_id[:36]}")
        if not _has_task(alloc, query.task):
            raise NotFound(f"allocation {alloc.id} has no task {query.task[:128]!r}")
        job = alloc.job
        assert job is not None
        return ShownWorkload(
            alloc_id=alloc.id, namespace=alloc.namespace, job=job.parent_id or alloc.job_id, task=query.task
        )

    def _data(self, state: Snapshot, query: TemplateQuery, access: Access) -> Any:
        match query.kind:
            case "service":
                return [to_wire(each) for each in state.services.where("name", (query.namespace, query.name))]
            case "services":
                return _service_names(state, query.namespace)
            case "variable":
                variable = state.variables.get((query.namespace, query.name))
                return None if variable is None else to_wire(self._variables.open(variable))
            case "variables":
                return _metadata(state, query, access)
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


def _index(state: Snapshot, table: str, requested: int) -> int:
    """The index for comparison: a state restored to an earlier index counts as new."""
    index = max(state.table(table).index, 1)
    return index if requested <= state.index else requested + 1


def _scope(query: TemplateQuery) -> Scope:
    """The scope of a query; lists of variables are decided row by row."""
    if query.kind == "variables":
        return ANYWHERE
    return Scope(namespace=query.namespace, variable=query.name if query.kind == "variable" else None)


def _has_task(alloc: Allocation, name: str) -> bool:
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    return group is not None and group.task(name) is not None


def _metadata(state: Snapshot, query: TemplateQuery, access: Access) -> list[Any]:
    rows = (
        variable
        for variable in state.variables.values()
        if variable.namespace == query.namespace
        and variable.path.startswith(query.name)
        and access.allows(Scope(namespace=variable.namespace, variable=variable.path))
    )
    return [to_wire(metadata_of(variable)) for variable in sorted(rows, key=lambda each: each.path)]


def _service_names(state: Snapshot, namespace: str) -> list[dict[str, Any]]:
    names: dict[str, set[str]] = {}
    for service in state.services.values():
        if service.namespace == namespace:
            names.setdefault(service.service_name, set()).update(service.tags)
    return [{"ServiceName": name, "Tags": sorted(tags)} for name, tags in sorted(names.items())]
