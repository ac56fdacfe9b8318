"""Services leave failed devices at the pace of their migrate block; others at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.server.resources import drain
from yurt.storage.memory import MemoryLog
from yurt.structs.alloc import AllocatedDeviceResource, AllocDeploymentStatus
from yurt.structs.commands import ApplyPlan, RegisterJob
from yurt.structs.job import Job
from yurt.structs.node import DeviceHealth, Node, NodeDevice, NodeDeviceResource
from yurt.structs.plan import Plan
from yurt.structs.policies import MigrateStrategy
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.rpc import RegisterNodeRequest
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv

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


async def test_a_plan_that_is_applied_after_the_failure_leaves_the_failed_card(bench: Any) -> None:
    node = await bench.add_node(node_resources=cards("healthy"))
    await fail_all(bench, node)
    made = gpu_service("batch")
    await bench.server.replica.propose(RegisterJob(job=made))
    found = factories.allocated(made.task_groups[0])
    ((name, task),) = found.tasks.items()
    device = AllocatedDeviceResource(vendor="nvidia", type="gpu", name="H100", device_ids=("GPU-0",))
    resources = replace(found, tasks={name: replace(task, devices=(device,))})
    placed = factories.placement(bench.server.state.jobs[made.key], on=node, resources=resources)
    plan = Plan(eval_id="e", namespace="default", job_id="web", placements=(placed,), now=bench.env.now())
    await bench.server.replica.propose(ApplyPlan(plan=plan))
    await bench.until(lambda: moved(bench) == 1)
    assert not bench.server.state.allocs[placed.id].desired_transition.migrate_disable_placement


async def test_other_jobs_do_not_make_the_leader_look_at_a_node_that_none_can_leave(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Counter[str]()
    look = drain.device_moves
    monkeypatch.setattr(drain, "device_moves", lambda *given: looks.update(["times"]) or look(*given))
    node = await bench.add_node(node_resources=cards("healthy"))
    await bench.server.resources.jobs.register(gpu_service())
    await bench.until(lambda: len(bench.live()) == CARDS)
    await bench.report("running", deployment_status=HEALTHY)
    await bench.server.clients.calls.register_node(
        RegisterNodeRequest(node=replace(node, node_resources=cards("failed")))
    )
    await bench.until(lambda: moved(bench) == 1)
    await bench.server.resources.jobs.register(factories.job("plain", type="batch"))
    await bench.until(lambda: bench.live("plain"))
    await bench.pass_time(5, node)
    before = looks["times"]
    await bench.report("running", "plain")
    await bench.report("complete", "plain")
    await bench.pass_time(5, node)
    assert looks["times"] == before


async def test_a_new_leader_continues_the_moves(run_server: Any) -> None:
    log, env = MemoryLog(), FakeEnv()
    async with run_server(log, env) as bench:
        node = await bench.add_node(node_resources=cards("healthy"))
        await bench.server.resources.jobs.register(gpu_service())
        await bench.until(lambda: len(bench.live()) == CARDS)
        await bench.report("running", deployment_status=HEALTHY)
        await fail_all(bench, node)
        await bench.until(lambda: moved(bench) == 1)
        await bench.idle()
        assert len(bench.live()) == CARDS
    async with run_server(log, env) as bench:
        await bench.report("running", deployment_status=HEALTHY)
        await bench.until(lambda: moved(bench) == 2)
