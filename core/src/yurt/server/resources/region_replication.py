"""Replicates namespaces and node pools from the authoritative region.

The leader of every other region asks for all of them, waits for changes, and makes its own state the same: what is new
or different is put, what is gone is deleted. What the region itself needs there is not deleted (a namespace with jobs,
a pool with nodes): it is tried again with the next change and after a while. While the authoritative region cannot be
reached, nothing changes, and it is asked again after a growing pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from yurt.sdk.errors import Unavailable, YurtError
from yurt.sdk.value import replace
from yurt.server.log.replica import Replica
from yurt.server.metrics import Metrics
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.commands import DeleteNamespaces, DeleteNodePools, UpsertNamespaces, UpsertNodePools

log = logging.getLogger(__name__)

T = TypeVar("T", Namespace, NodePool)
WAIT_S: Final = 60.0
"""How long the authoritative region may wait for a change."""
PAUSE_FIRST_S, PAUSE_MAX_S = 1.0, 60.0
BUILT_IN: Final = frozenset({"default", "all"})
"""Every region has them from the start; they are never deleted, and node pools of these names never change."""


class Pulled(NamedTuple, Generic[T]):
    """The authoritative region's objects, at its own index."""

    at: int
    rows: tuple[T, ...]


class AuthoritativeRegion(Protocol):
    """The authoritative region; calls raise Unavailable while it cannot be reached."""

    async def namespaces(self, *, min_index: int, wait_s: float) -> Pulled[Namespace]:
        """All namespaces, once they changed after `min_index`, or at the time limit."""
        ...

    async def node_pools(self, *, min_index: int, wait_s: float) -> Pulled[NodePool]:
        """All node pools, likewise."""
        ...


class Difference(NamedTuple, Generic[T]):
    """The changes that make a copy equal: rows to store, and names to delete."""

    put: tuple[T, ...]
    delete: tuple[str, ...]


def difference(theirs: Iterable[T], ours: Mapping[str, T], *, fixed: frozenset[str]) -> Difference[T]:
    """The changes from `ours` to `theirs`, by name; indexes are ignored, `fixed` names are not changed."""
    wanted = {row.name: replace(row, create_index=0, modify_index=0) for row in theirs if row.name not in fixed}
    have = {name: replace(row, create_index=0, modify_index=0) for name, row in ours.items() if name not in fixed}
    put = tuple(row for name, row in sorted(wanted.items()) if have.get(name) != row)
    return Difference(put, tuple(sorted(name for name in have if name not in wanted and name not in BUILT_IN)))


class Replication:
    """The replication into one region."""

    def __init__(self, replica: Replica, authority: AuthoritativeRegion, metrics: Metrics) -> None:
        self._replica = replica
        self._authority = authority
        self._metrics = metrics

    async def run(self) -> None:
        """Replicate until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forever("namespaces", self._namespaces))
            group.create_task(self._forever("node pools", self._node_pools))

    async def _forever(self, what: str, step: Callable[[int], Awaitable[int]]) -> None:
        index, pause_s, problem = 0, PAUSE_FIRST_S, ""
        while True:
            try:
                index = await step(index)
            except YurtError as error:
                self._metrics.count("replication.failed")
                if str(error) != problem:
                    problem = str(error)
                    log.warning("copying the %s of the authoritative region failed: %s", what, error)
                await self._replica.env.sleep(pause_s * (1 + self._replica.env.random()))
                pause_s, index = min(pause_s * 2, PAUSE_MAX_S), 0
            else:
                self._metrics.count("replication.pulled")
                pause_s, problem = PAUSE_FIRST_S, ""

    async def _namespaces(self, index: int) -> int:
        pulled = await self._authority.namespaces(min_index=index, wait_s=WAIT_S)
        found = difference(pulled.rows, _by_name(self._replica.state.namespaces.values()), fixed=frozenset())
        if found.put:
            await self._replica.propose(UpsertNamespaces(namespaces=found.put))
        kept = await self._delete(found.delete, lambda name: DeleteNamespaces(names=(name,)))
        return self._next("namespaces", pulled.at, found, kept)

    async def _node_pools(self, index: int) -> int:
        pulled = await self._authority.node_pools(min_index=index, wait_s=WAIT_S)
        found = difference(pulled.rows, _by_name(self._replica.state.node_pools.values()), fixed=BUILT_IN)
        if found.put:
            await self._replica.propose(UpsertNodePools(pools=found.put))
        kept = await self._delete(found.delete, lambda name: DeleteNodePools(names=(name,)))
        return self._next("node pools", pulled.at, found, kept)

    def _next(self, what: str, index: int, found: Difference[Any], kept: list[str]) -> int:
        if found.put or len(kept) < len(found.delete):
            log.info("copied from the authoritative region: %s", what)
        return index

    async def _delete(self, names: tuple[str, ...], command: Callable[[str], Any]) -> list[str]:
        """Delete what can be deleted; returns the names that cannot."""
        kept = []
        for name in names:
            try:
                await self._replica.propose(command(name))
            except Unavailable:
                raise
            except YurtError as error:
                kept.append(name)
                log.warning("kept although the authoritative region deleted it: %s", error)
        return kept


def _by_name(rows: Iterable[T]) -> dict[str, T]:
    return {row.name: row for row in rows}
