"""A follower that hangs while its kernel lives: its clients go to another server before their nodes are missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from yurt.testing.sim.csi.plugin import CsiNodes
from yurt.testing.sim.host import simulated_machine
from yurt.testing.sim.loop import SimLoop, run_on
from yurt.testing.sim.plan import Plan
from yurt.testing.sim.run import Cluster

PLAN = Plan(seed=1, servers=3, clients=12, users=0, features=("service",), faults=())
HANG_S = 60.0


@pytest.mark.timeout(120)
def test_no_node_is_missed_while_its_server_hangs(tmp_path: Path) -> None:
    loop = SimLoop(1)
    csi = CsiNodes(loop, 1)
    cluster = Cluster(PLAN, loop, tmp_path, csi=csi)

    async def hang() -> tuple[int, int]:
        for agent in (*cluster.servers, *cluster.clients):
            agent.start()
        await cluster._wait_until(cluster._is_ready, 60.0, "the cluster does not start")
        leading = next(each for each in cluster.servers if each.server is not None and each.server.is_leader)
        hanging = next(each for each in cluster.servers if each is not leading)
        assert hanging.process is not None and hanging.server is not None and leading.server is not None
        clients = sum(hanging.server.clients.node_ports.has(each.node_id) for each in cluster.clients)
        loop.pause(hanging.process)
        await cluster._watch(HANG_S)
        nodes = leading.server.state.nodes.values()
        return clients, sum(bool(each.last_missed_heartbeat_index) for each in nodes)

    with simulated_machine(tmp_path, 1, turn_s=0.0, csi=csi):
        clients, missed = run_on(loop, hang())
    assert clients > 0
    assert missed == 0
