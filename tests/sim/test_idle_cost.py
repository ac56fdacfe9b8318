"""What a cluster without work costs: counts of the simulated edges, which no load of the machine changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.sim.csi.plugin import CsiNodes
from yurt.testing.sim.etcd import SimEtcd
from yurt.testing.sim.host import simulated_machine
from yurt.testing.sim.loop import SimLoop, run_on
from yurt.testing.sim.plan import Plan
from yurt.testing.sim.run import Cluster

IDLE = Plan(seed=1, servers=3, clients=1, users=0, features=("service",), faults=())
IDLE_S = 20.0


@pytest.mark.timeout(120)
def test_followers_that_hear_their_leader_ask_their_etcd_member_twice_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    ask = SimEtcd.ask

    async def counted(etcd: SimEtcd, host: str, service: str, name: str, *rest: Any) -> Any:
        asked[name] += 1
        return await ask(etcd, host, service, name, *rest)

    monkeypatch.setattr(SimEtcd, "ask", counted)
    loop = SimLoop(1)
    csi = CsiNodes(loop, 1)
    cluster = Cluster(IDLE, loop, tmp_path, csi=csi)

    async def rest() -> None:
        for agent in (*cluster.servers, *cluster.clients):
            agent.start()
        await cluster._wait_until(cluster._is_ready, 60.0, "the cluster does not start")
        asked.clear()
        await cluster._watch(IDLE_S)

    with simulated_machine(tmp_path, 1, turn_s=0.0, csi=csi):
        run_on(loop, rest())
    followers = IDLE.servers - 1
    assert IDLE_S <= asked["Status"] / followers <= 2.2 * IDLE_S
