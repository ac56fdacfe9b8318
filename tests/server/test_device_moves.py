"""Services leave failed devices at the pace of their migrate block; others at once."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs.alloc import AllocDeploymentStatus
from yurt.structs.job import Job
from yurt.structs.node import DeviceHealth, Node, NodeDevice, NodeDeviceResource
from yurt.structs.policies import MigrateStrategy
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.rpc import RegisterNodeRequest
from yurt.testing import factories

CARDS = 3
HEALTHY = AllocDeploymentStatus(healthy=True, timestamp=UnixNano(1))


def cards(state: str) -> Any:
    health = DeviceHealth(state=state, reason="" if state == "healthy" else "Xid 79")  # type: ignore[arg-type]
    instances = tuple(NodeDevice(id=f"GPU-{n}", healthy=True, health=health) for n in range(CARDS))
    group = NodeDeviceResource(vendor="nvidia", type="gpu", name="H100", instances=instances)
    return replace(factories.node().node_resources, devices=(group,))


def gpu_service(job_type: str = "service", *, at_once: int = 1) -> Job:
    device = RequestedDevice(name="nvidia/gpu", on_failure="move")
    task = factories.task(resources=Resources(cpu=100, memory_mb=100, devices=(device,)))
    pace = MigrateStrategy(
        max_parallel=at_once, health_check="task_states", healthy_deadline=seconds(300), min_healthy_time=seconds(10)
    )
    migrate = pace if job_type == "service" else None
    fields = {"update": None, "reschedule_policy": None, "migrate": migrate}
    return factories.job("web", type=job_type, task_groups=(factories.group(count=CARDS, tasks=(task,), **fields),))


async def fail_all(bench: Any, node: Node) -> Node:
    """All cards of a node fail with one report of it, while a second node, which is returned, has as many free ones."""
    other: Node = await bench.add_node(id=factories.number_id(2, kind=1), node_resources=cards("healthy"))
    again = replace(node, node_resources=cards("failed"))
    await bench.server.clients.calls.register_node(RegisterNodeRequest(node=again))
    await bench.idle()
    return other


def moved(bench: Any) -> int:
    allocs = bench.server.state.allocs_of_job("default", "web")
    return sum(bool(alloc.desired_transition.migrate) for alloc in allocs)


@pytest.mark.parametrize("at_once", [1, 2])
async def test_a_service_leaves_failed_cards_at_the_pace_of_its_migrate_block(bench: Any, at_once: int) -> None:
    node = await bench.add_node(node_resources=cards("healthy"))
    await bench.server.resources.jobs.register(gpu_service(at_once=at_once))
    await bench.until(lambda: len(bench.live()) == CARDS)
    await bench.report("running", deployment_status=HEALTHY)
    other = await fail_all(bench, node)
    await bench.until(lambda: moved(bench) == at_once)
    await bench.pass_time(30, node, other)
    assert moved(bench) == at_once, "the others wait for healthy replacements"
    for expected in range(2 * at_once, CARDS + at_once, at_once):
        await bench.report("running", deployment_status=HEALTHY)
        await bench.until(lambda expected=expected: moved(bench) == min(CARDS, expected))
        await bench.idle()
    await bench.until(lambda: {alloc.node_id for alloc in bench.live()} == {other.id})


async def test_what_has_not_become_healthy_leaves_failed_cards_at_once(bench: Any) -> None:
    node = await bench.add_node(node_resources=cards("healthy"))
    await bench.server.resources.jobs.register(gpu_service())
    await bench.until(lambda: len(bench.live()) == CARDS)
    await fail_all(bench, node)
    await bench.until(lambda: moved(bench) == CARDS)


async def test_batch_work_leaves_failed_cards_at_once(bench: Any) -> None:
    node = await bench.add_node(node_resources=cards("healthy"))
    await bench.server.resources.jobs.register(gpu_service("batch"))
    await bench.until(lambda: len(bench.live()) == CARDS)
    await bench.report("running")
    await fail_all(bench, node)
    assert moved(bench) == CARDS
