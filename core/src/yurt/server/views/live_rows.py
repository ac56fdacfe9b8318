"""The rows of the read models that one caller may see: each kind with the need of its plain list."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from yurt.access import ANYWHERE, Access, Capability, Need, Scope, needs
from yurt.readmodels.job_facts import JobFacts
from yurt.readmodels.kinds import ALLOCATIONS, JOBS, NODES
from yurt.readmodels.node_facts import card_list
from yurt.readmodels.overview import Agents, attention, jobs_part, nodes_part

if TYPE_CHECKING:
    from yurt.server.read_models import ReadModels

ALL: Final = "*"
NEEDS: Final[Mapping[str, Need]] = {
    JOBS.name: needs.namespace(Capability.LIST_JOBS),
    ALLOCATIONS.name: needs.namespace(Capability.READ_JOB),
    NODES.name: needs.NODE_READ,
}
"""The needs of each kind's rows."""


class RowPosition(NamedTuple):
    """The part of a kind that a list is of."""

    kind: str
    namespace: str = ALL
    parent: str | None = None
    """Jobs: children of this job; "" for jobs without a parent."""
    job: str = ""
    """Allocations: of this job of the namespace."""
    node: str = ""
    """Allocations: on the node with this id."""


class SeenRow(NamedTuple):
    """Rows as a caller sees them: those that `is_selected` rejects do not exist; None: all exist."""

    index: int  # type: ignore[assignment]
    rows: Iterable[Any]
    is_selected: Callable[[Any], bool] | None

    def among(self, rows: Iterable[Any]) -> Iterable[Any]:
        """The wanted rows of a slice."""
        return rows if self.is_selected is None else filter(self.is_selected, rows)


class Delta(NamedTuple):
    """What changed in a place: rows that are or were there."""

    index: int  # type: ignore[assignment]
    pairs: Iterable[tuple[Hashable, Any, Any]]
    """Key, and the row before and after, each None where it is not in the place or not visible."""


class LiveRows:
    """The rows for one caller."""

    def __init__(self, models: ReadModels, access: Access) -> None:
        self._models = models
        self._access = access
        self._by_kind = {kind: access.narrowed(need) for kind, need in NEEDS.items()}

    def require(self, place: RowPosition) -> None:
        """Raises PermissionDenied when the caller may see nothing in a place."""
        access = self._by_kind[place.kind]
        is_named = place.kind != NODES.name and place.namespace != ALL
        access.require(Scope(namespace=place.namespace) if is_named else ANYWHERE)

    def may_see(self, place: RowPosition) -> bool:
        """Whether `require` lets the caller."""
        access = self._by_kind[place.kind]
        is_named = place.kind != NODES.name and place.namespace != ALL
        return access.allows(Scope(namespace=place.namespace) if is_named else ANYWHERE)

    def renew(self) -> None:
        """Forget earlier decisions: the caller's rights may have changed."""
        for access in self._by_kind.values():
            access.renew()

    async def rows(self, place: RowPosition) -> SeenRow:
        """All rows of a place, now."""
        state = await self._models.refreshed()
        is_selected = self._filter_of(place)
        if place.kind == JOBS.name:
            if place.parent and place.namespace != ALL:
                keys = state.jobs.keys_where("parent", (place.namespace, place.parent))
                rows = (self._models.jobs.get(key) for key in keys)
                return SeenRow(state.index, [row for row in rows if row is not None], is_selected)
            return SeenRow(state.index, list(self._models.jobs.values()), is_selected)
        if place.kind == NODES.name:
            return SeenRow(state.index, list(self._models.nodes.values()), is_selected)
        if place.job and place.namespace != ALL:
            return SeenRow(state.index, state.allocs.each_where("job", (place.namespace, place.job)), is_selected)
        if place.node:
            return SeenRow(state.index, state.allocs.each_where("node", place.node), is_selected)
        return SeenRow(state.index, state.allocs.values(), is_selected)

    async def card_lists(self, node_ids: Iterable[str]) -> list[list[dict[str, Any]]]:
        """The devices of nodes with their users."""
        state = await self._models.refreshed()
        sees = self._by_kind[ALLOCATIONS.name]
        lists = []
        for node_id in node_ids:
            node = state.nodes.get(node_id)
            lists.append([] if node is None else card_list(state, node, sees.allows_namespace))
        return lists

    async def overview(self, namespace: str, agents: Agents) -> dict[str, Any]:
        """Numbers, capacity and problems; a part that the caller may not see is None."""
        jobs, nodes = RowPosition(JOBS.name, namespace), RowPosition(NODES.name)
        sees_jobs, sees_nodes = self.may_see(jobs), self.may_see(nodes)
        state = await self._models.refreshed()
        is_selected = self._filter_of(jobs)
        listed: list[JobFacts] = list(filter(is_selected, self._models.jobs.values())) if sees_jobs else []
        machines = list(self._models.nodes.values()) if sees_nodes else []
        return {
            "Index": state.index,
            **(jobs_part(listed) if sees_jobs else dict.fromkeys(("Jobs", "Allocations", "Recent"))),
            **(nodes_part(machines) if sees_nodes else dict.fromkeys(("Nodes", "Pools"))),
            **attention(listed, machines, agents if sees_nodes else Agents()),
        }

    async def newest_index(self) -> int:
        """The index that the rows show now."""
        return (await self._models.refreshed()).index

    async def changes(self, places: Mapping[str, RowPosition], after: int) -> AsyncGenerator[dict[str, Delta] | int]:
        """Changes in places, by their names, without end; yields an index when earlier changes are unavailable.

        So they are for an index that is not reached yet, as that of the log before a recovery: a reader that waited for
        it would miss everything meanwhile.
        """
        with self._models as models:
            newest = await self.newest_index()
            if after > newest:
                after = newest
                yield after
            while True:
                batches = await models.after(after)
                if batches is None:
                    after = await self.newest_index()
                    yield after
                    continue
                for batch in batches:
                    after = batch.index
                    yield {
                        name: Delta(after, self._pairs(place, batch.rows.get(place.kind, {})))
                        for name, place in places.items()
                    }

    def _pairs(
        self, place: RowPosition, rows: Mapping[Hashable, tuple[Any, Any]]
    ) -> Iterable[tuple[Hashable, Any, Any]]:
        is_selected = self._filter_of(place)
        for key, (before, after) in rows.items():
            was = before if before is not None and (is_selected is None or is_selected(before)) else None
            now = after if after is not None and (is_selected is None or is_selected(after)) else None
            if was is not None or now is not None:
                yield key, was, now

    def _filter_of(self, place: RowPosition) -> Callable[[Any], bool] | None:
        """Whether a row lies in the place and may be seen; None: every row."""
        if place.kind == NODES.name:
            return None if self.may_see(place) else _nothing
        access, tests = self._by_kind[place.kind], list[Callable[[Any], bool]]()
        namespace, parent, job, node = place.namespace, place.parent, place.job, place.node
        if namespace != ALL:
            tests.append(lambda row: row.namespace == namespace)
        if not access.sees_all:
            tests.append(lambda row: access.allows_namespace(row.namespace))
        if parent is not None and place.kind == JOBS.name:
            tests.append(lambda row: row.parent_id == parent)
        if job:
            tests.append(lambda row: row.job_id == job)
        if node:
            tests.append(lambda row: row.node_id == node)
        if len(tests) < 2:
            return tests[0] if tests else None
        return lambda row: all(test(row) for test in tests)


def _nothing(_: Any) -> bool:
    return False
