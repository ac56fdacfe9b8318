"""Known refusals of devices save work and change nothing: plans are those of a scheduler that knows none."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.capacity.ask import GroupAsk
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs.commands import (
    AllocUpdate,
    AnyCommand,
    ApplyPlan,
    RegisterJob,
    RegisterNode,
    UpdateAllocsFromClient,
)
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import NodeDevice, NodeDeviceResource
from yurt.structs.plan import Plan
from yurt.structs.resources import RequestedDevice, Resources
from yurt.testing import factories

ETH0 = NetworkResource(device="eth0", ip="10.0.0.1", cidr="10.0.0.1/32")
NODES, CARDS, JOBS = 300, 2, 40
"""More nodes than a chunk of the columns has rows."""


class Cluster:
    """Nodes with two cards each, whose state commands make."""

    def __init__(self, draw: random.Random) -> None:
        self.state = Snapshot.empty()
        self._draw = draw
        for number in range(NODES):
            cards = tuple(NodeDevice(id=f"gpu-{card}", healthy=True) for card in range(CARDS))
            kind = NodeDeviceResource(vendor="nvidia", type="gpu", name="h100", instances=cards)
            made = factories.node(factories.number_id(number + 1, kind=1))
            resources = replace(made.node_resources, devices=(kind,), networks=(ETH0,))
            self.apply(RegisterNode(node=replace(made, node_resources=resources)))

    def apply(self, command: AnyCommand) -> None:
        """Apply a command."""
        self.state = apply(self.state, command, index=self.state.index + 1).state

    def attempt(self, number: int, *, count: int, cards: int) -> Plan:
        """The plan for a new job whose allocations also want a port."""
        network = NetworkResource(mode="host", dynamic_ports=(Port(label="http"),))
        made = factories.job(f"job-{number}", type="batch")
        asked = Resources(cpu=50, memory_mb=32, devices=(RequestedDevice(name="nvidia/gpu", count=cards),))
        (group,) = made.task_groups
        group = replace(group, count=count, networks=(network,), tasks=(replace(group.tasks[0], resources=asked),))
        self.apply(RegisterJob(job=replace(made, task_groups=(group,))))
        evaluation = factories.evaluation(self.state.jobs[made.key])
        evaluation = replace(evaluation, id=factories.number_id(number, kind=3))
        return scheduler.attempt(self.state, evaluation, now=UnixNano(factories.NOW + number), seed=number).plan

    def end_some(self) -> None:
        """A few allocations end."""
        running = [alloc for alloc in self.state.allocs.values() if alloc.client_status == "pending"]
        for alloc in self._draw.sample(running, min(len(running), 4)):
            update = AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete")
            self.apply(UpdateAllocsFromClient(updates=(update,), now=factories.NOW))


def plans(seed: int, *, forgets: bool) -> list[Plan]:
    """The plans of a sequence of jobs on a nearly full cluster."""
    draw = random.Random(seed)
    cluster, found = Cluster(draw), []
    for number in range(JOBS):
        if forgets:
            cluster.state.columns.nodes.lasting.clear()
        count = NODES if number == 0 else draw.randint(1, 6)
        found.append(cluster.attempt(number, count=count, cards=draw.choice((1, 1, 2))))
        cluster.apply(ApplyPlan(plan=found[-1]))
        if number > 8:
            cluster.end_some()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_plans_do_not_depend_on_known_refusals(seed: int) -> None:
    found = plans(seed, forgets=False)
    assert found == plans(seed, forgets=True)
    assert sum(len(plan.placements) for plan in found) > NODES + JOBS


def test_a_full_node_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(random.Random(0))
    cluster.apply(ApplyPlan(plan=cluster.attempt(0, count=NODES - 1, cards=CARDS)))
    assert len(cluster.state.allocs) == NODES - 1
    asked = Counter[str]()
    grant = GroupAsk.grant
    monkeypatch.setattr(
        GroupAsk, "grant", lambda self, node, *rest, **more: asked.update([node.id]) or grant(self, node, *rest, **more)
    )
    for number in range(1, 6):
        assert cluster.attempt(number, count=1, cards=CARDS).placements
    assert sum(asked.values()) < NODES + 5 * 3
