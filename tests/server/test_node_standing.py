"""Nodes that go silent, come back and register again, as a server sees them."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace, seconds
from yurt.structs.cluster import NodePool
from yurt.structs.commands import AllocUpdate, SetNodeStatus, UpdateAllocsFromClient, UpsertNodePools
from yurt.structs.policies import DisconnectStrategy
from yurt.structs.rpc import RegisterNodeRequest, UpdateAllocsRequest
from yurt.testing import factories

LOST_AFTER_S = 120


def job(**strategy: Any) -> Any:
    disconnect = DisconnectStrategy(**{"lost_after": seconds(LOST_AFTER_S), "replace": True, **strategy})
    return factories.job(task_groups=(factories.group(update=None, disconnect=disconnect),))


async def running(bench: Any, of: Any) -> Any:
    """The job's allocation on a node that is ready."""
    node = await bench.add_node()
    await bench.server.resources.jobs.register(of)
    await bench.until(bench.live)
    await bench.report("running")
    (alloc,) = bench.live()
    return node, alloc


def status_of(bench: Any, node: Any) -> str:
    return str(bench.server.state.nodes[node.id].status)


async def test_a_disconnected_node_is_down_when_its_last_allocation_has_expired(bench: Any) -> None:
    node, alloc = await running(bench, job(replace=False))
    await bench.env.advance(40)
    assert status_of(bench, node) == "disconnected"
    assert bench.server.state.allocs[alloc.id].client_status == "unknown"

    await bench.env.advance(LOST_AFTER_S + 60)

    assert bench.server.state.allocs[alloc.id].client_status == "lost"
    assert status_of(bench, node) == "down"


@pytest.mark.parametrize("says", ["ready", "initializing", "down", "disconnected"])
async def test_a_registration_changes_no_status(bench: Any, says: str) -> None:
    node, _ = await running(bench, job())
    await bench.server.clients.calls.register_node(RegisterNodeRequest(node=replace(node, status=says)))
    assert status_of(bench, node) == "ready"
    await bench.env.advance(40)
    reply = await bench.server.clients.calls.register_node(RegisterNodeRequest(node=replace(node, status=says)))
    assert (status_of(bench, node), reply.node_status) == ("disconnected", "disconnected")


async def test_the_way_back_leads_over_initializing_and_a_report(bench: Any) -> None:
    node, alloc = await running(bench, job())
    await bench.env.advance(40)
    report = UpdateAllocsRequest(
        node_id=node.id, updates=(AllocUpdate(id=alloc.id, node_id=node.id, client_status="running"),)
    )
    with pytest.raises(Invalid, match="not allowed to update allocs while in status disconnected"):
        await bench.server.clients.calls.update_allocs(report)

    seen = [(await bench.server.clients.calls.heartbeat(node.id, "ready")).node_status for _ in range(2)]
    await bench.server.clients.calls.update_allocs(report)
    seen.append((await bench.server.clients.calls.heartbeat(node.id, "ready")).node_status)

    assert seen == ["initializing", "initializing", "ready"]


async def test_a_report_that_is_stored_behind_the_loss_of_its_node_is_refused(bench: Any) -> None:
    node, alloc = await running(bench, job())
    bench.server.log.writer.enqueue((SetNodeStatus(node_id=node.id, status="disconnected", updated_at=1),))
    update = AllocUpdate(id=alloc.id, node_id=node.id, client_status="failed")

    with pytest.raises(Invalid, match="while in status disconnected"):
        await bench.server.clients.calls.update_allocs(UpdateAllocsRequest(node_id=node.id, updates=(update,)))

    assert bench.server.state.allocs[alloc.id].client_status != "failed"


async def test_clients_do_not_say_what_is_lost_or_unknown(bench: Any) -> None:
    node, alloc = await running(bench, job())
    for told in ("lost", "unknown"):
        update = AllocUpdate(id=alloc.id, node_id=node.id, client_status=told)
        await bench.server.replica.propose(UpdateAllocsFromClient(updates=(update,)))
        assert bench.server.state.allocs[alloc.id].client_status == "running"


async def test_a_server_that_was_held_up_itself_blames_no_node(bench: Any) -> None:
    node, _ = await running(bench, factories.job())
    bench.env._now_s += 100.0

    await bench.env.advance(5)
    assert status_of(bench, node) == "ready"
    await bench.env.advance(30)
    assert status_of(bench, node) == "down"


async def test_nodes_whose_loss_cannot_be_stored_come_again(bench: Any, monkeypatch: Any) -> None:
    nodes = [await bench.add_node() for _ in range(3)]
    heartbeats = bench.server.term.heartbeats
    stored, missed = [], heartbeats._on_missed

    async def fail_once(node_id: str) -> None:
        stored.append(node_id)
        if len(stored) == 1:
            raise Invalid("the log is busy")
        await missed(node_id)

    monkeypatch.setattr(heartbeats, "_on_missed", fail_once)
    await bench.env.advance(60)

    assert [status_of(bench, node) for node in nodes] == ["down"] * 3


async def test_a_node_waits_until_the_authoritative_region_has_made_its_pool(run_server: Any) -> None:
    async with run_server(region="west", authoritative_region="east") as bench:
        node = await bench.add_node(node_pool="gpu")
        await bench.server.clients.calls.heartbeat(node.id, "ready")
        told = [event.message for event in bench.server.state.nodes[node.id].events]
        assert told == ["Node registered", "Node registered but waiting for node pool to be created"]
        assert (status_of(bench, node), "gpu" in bench.server.state.node_pools) == ("initializing", False)
        await bench.server.replica.propose(UpsertNodePools(pools=(NodePool(name="gpu"),)))
        await bench.server.clients.calls.heartbeat(node.id, "ready")
        assert status_of(bench, node) == "ready"


async def test_the_authoritative_region_makes_the_pool_of_a_node(run_server: Any) -> None:
    async with run_server(region="east", authoritative_region="east") as bench:
        node = await bench.add_node(node_pool="gpu")
        assert (status_of(bench, node), "gpu" in bench.server.state.node_pools) == ("ready", True)
