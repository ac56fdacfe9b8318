"""Inactive root keys go when nothing can need them: no variable, no allocation from before, no node's identity."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import seconds
from yurt.server.config import GcThresholds
from yurt.server.keys.root_key_gc import RootKeyCollector
from yurt.server.keys.tokens import NODE_IDENTITY_TTL_S
from yurt.structs.cluster import NodePool
from yurt.structs.commands import UpsertNodePools
from yurt.structs.variable import KEY_INACTIVE
from yurt.testing import factories

DAY_S = 24 * 3600.0


async def rotated(bench: Any) -> str:
    """The id of a key that has become inactive."""
    old = await bench.server.keys.root_keys.active()
    await bench.server.keys.root_keys.rotate(is_full=False)
    assert bench.server.state.root_keys[old.key_id].state == KEY_INACTIVE
    return str(old.key_id)


async def test_a_key_goes_when_it_has_been_inactive_for_long_enough(bench: Any) -> None:
    old, collector = await rotated(bench), bench.server.keys.collector
    assert await collector.collect(seconds(100)) == 0
    await bench.env.advance(99)
    assert await collector.collect(seconds(100)) == 0
    await bench.env.advance(2)
    assert await collector.collect(seconds(100)) > 0
    assert old not in bench.server.state.root_keys and old not in bench.server.keys.keyring
    assert await collector.collect() == 0 and len(bench.server.keys.root_keys.listed()) == 1


async def test_no_key_goes_before_the_identities_of_nodes_that_it_may_have_signed(run_server: Any) -> None:
    async with run_server(gc=GcThresholds(root_key_s=DAY_S / 2)) as bench:
        assert bench.server.keys.collector.age() == seconds(NODE_IDENTITY_TTL_S)
        slow = NodePool(name="slow", node_identity_ttl=seconds(3 * DAY_S))
        await bench.server.replica.propose(UpsertNodePools(pools=(slow,)))
        assert bench.server.keys.collector.age() == seconds(3 * DAY_S)
    async with run_server(gc=GcThresholds(root_key_s=2 * DAY_S)) as bench:
        assert bench.server.keys.collector.age() == seconds(2 * DAY_S)


async def test_the_leader_looks_for_itself(run_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RootKeyCollector, "age", lambda self: seconds(100))
    async with run_server(gc=GcThresholds(root_key_interval_s=30.0)) as bench:
        old = await rotated(bench)
        await bench.env.advance(125)
        assert old in bench.server.state.root_keys
        await bench.env.advance(50)
        await bench.until(lambda: old not in bench.server.state.root_keys)


async def test_a_key_stays_while_a_variable_is_encrypted_with_it(bench: Any) -> None:
    await bench.server.resources.variables.put("default", "app/mine", {"a": "1"})
    old = await rotated(bench)
    assert await bench.server.keys.collector.collect() == 0
    await bench.server.resources.variables.delete("default", "app/mine")
    assert await bench.server.keys.collector.collect() > 0
    assert old not in bench.server.state.root_keys


async def test_a_key_stays_while_an_allocation_from_before_lives(bench: Any) -> None:
    await bench.add_node()
    await bench.server.keys.root_keys.active()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(bench.live)
    old = await rotated(bench)
    collector = bench.server.keys.collector
    assert await collector.collect() == 0
    await bench.server.resources.jobs.deregister("default", "web")
    await bench.report("complete")
    await bench.until(lambda: all(a.client_status == "complete" for a in bench.server.state.allocs.values()))
    assert await collector.collect() > 0 and old not in bench.server.state.root_keys


async def test_an_allocation_from_after_needs_no_older_key(bench: Any) -> None:
    old = await rotated(bench)
    await bench.add_node()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(bench.live)
    assert await bench.server.resources.system.collect_garbage() == bench.server.state.index
    assert old not in bench.server.state.root_keys
