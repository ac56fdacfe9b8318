"""Copies of the authoritative region's namespaces and node pools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from yurt.sdk.errors import Unavailable
from yurt.server.resources.region_replication import BUILT_IN, Pulled, Replication, difference
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.commands import UpsertNamespaces
from yurt.testing import factories
from yurt.testing.fakes import eventually


class FakeAuthority:
    """The authoritative region: what a test says that it has."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[Any, ...]] = {"namespaces": (Namespace(name="default"),), "node_pools": ()}
        self.problem = ""
        self.asked = 0
        self._index = 1
        self._changed = asyncio.Event()

    def change(self, table: str, *rows: Any) -> None:
        self.rows[table] = rows
        self._index += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def _pull(self, table: str, min_index: int) -> Pulled[Any]:
        self.asked += 1
        if self.problem:
            raise Unavailable(self.problem)
        while min_index >= self._index:
            await self._changed.wait()
        return Pulled(self._index, self.rows[table])

    async def namespaces(self, *, min_index: int, wait_s: float) -> Pulled[Namespace]:
        return await self._pull("namespaces", min_index)

    async def node_pools(self, *, min_index: int, wait_s: float) -> Pulled[NodePool]:
        return await self._pull("node_pools", min_index)


def test_a_difference_leaves_indexes_out_and_built_in_names_alone() -> None:
    ours = {name: NodePool(name=name, create_index=3, modify_index=9) for name in ("all", "default", "gpu", "old")}
    theirs = (NodePool(name="gpu", create_index=77), NodePool(name="new"), NodePool(name="default", description="x"))
    assert difference(theirs, ours, fixed=BUILT_IN) == ((NodePool(name="new"),), ("old",))
    spaces = {name: Namespace(name=name) for name in ("default", "web")}
    changed = (Namespace(name="default", description="ours"),)
    assert difference(changed, spaces, fixed=frozenset()) == (changed, ("web",))


@pytest.fixture
async def authority(bench: Any) -> Any:
    made = FakeAuthority()
    running = asyncio.ensure_future(Replication(bench.server.replica, made, bench.server.metrics).run())
    yield made
    running.cancel()
    await asyncio.wait({running})


async def test_what_is_decided_elsewhere_is_copied_changed_and_deleted(bench: Any, authority: FakeAuthority) -> None:
    state = lambda: bench.server.state  # noqa: E731
    authority.change("namespaces", Namespace(name="default"), Namespace(name="web"))
    authority.change("node_pools", NodePool(name="gpu", description="cards"))
    await eventually(lambda: "web" in state().namespaces and "gpu" in state().node_pools)
    authority.change("node_pools", NodePool(name="gpu", description="more cards"))
    await eventually(lambda: state().node_pools["gpu"].description == "more cards")
    authority.change("namespaces", Namespace(name="default"))
    authority.change("node_pools")
    await eventually(lambda: "web" not in state().namespaces and "gpu" not in state().node_pools)
    assert all(name in state().node_pools for name in BUILT_IN)


async def test_what_the_region_needs_is_kept_and_what_is_equal_is_not_written(
    bench: Any, authority: FakeAuthority
) -> None:
    await bench.server.replica.propose(UpsertNamespaces(namespaces=(Namespace(name="used"), Namespace(name="idle"))))
    await bench.server.resources.jobs.register(factories.job(namespace="used"))
    authority.change("namespaces", Namespace(name="default"))
    await eventually(lambda: "idle" not in bench.server.state.namespaces)
    assert "used" in bench.server.state.namespaces
    index, asked = bench.server.state.namespaces.index, authority.asked
    authority.change("namespaces", Namespace(name="default"))
    await eventually(lambda: authority.asked > asked + 1)
    assert bench.server.state.namespaces.index == index


async def test_a_region_that_cannot_be_reached_is_asked_again(
    bench: Any, authority: FakeAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    authority.problem = "No path to region"
    authority.change("namespaces", Namespace(name="default"), Namespace(name="web"))
    await eventually(lambda: "No path to region" in caplog.text)
    assert "web" not in bench.server.state.namespaces
    authority.problem = ""
    await bench.env.advance(5)
    await eventually(lambda: "web" in bench.server.state.namespaces)
    assert bench.server.metrics.counters["replication.failed"] >= 1
