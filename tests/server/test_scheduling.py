"""From a registered job to allocations on clients, and back when clients are lost."""

from __future__ import annotations

import asyncio
from typing import Any

from yurt.sdk.errors import Invalid, NotFound
from yurt.sdk.value import replace, seconds
from yurt.structs.alloc import AllocDeploymentStatus
from yurt.structs.commands import AllocUpdate, ApplyPlan, UpsertVolumes
from yurt.structs.policies import DisconnectStrategy, ReschedulePolicy
from yurt.structs.rpc import RegisterNodeRequest, UpdateAllocsRequest
from yurt.structs.volumes.csi import CSIVolume, CSIVolumeCapability
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories
from yurt.testing.fakes import eventually


async def test_a_registered_job_reaches_its_client_and_runs(bench: Any) -> None:
    node = await bench.add_node()
    registered = await bench.server.resources.jobs.register(factories.job())
    pull = await bench.server.clients.calls.pull_allocs(node.id, min_index=registered.index - 1, timeout_s=5)
    assert pull.index > registered.index
    batch = await bench.server.clients.calls.get_allocs(node.id, tuple(pull.allocs))
    assert [(alloc.name, alloc.job.id) for alloc in batch.allocs] == [("web.web[0]", "web")]
    await bench.report("running")
    assert bench.server.state.jobs["default", "web"].status == "running"
    assert bench.evals() == [("job-register", "complete")]


async def test_a_pull_waits_for_the_servers_changes_and_not_for_the_clients_own(bench: Any) -> None:
    node = await bench.add_node()
    registered = await bench.server.resources.jobs.register(factories.job())
    first = await bench.server.clients.calls.pull_allocs(node.id, min_index=registered.index, timeout_s=5)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(bench.server.clients.calls.pull_allocs(node.id, min_index=first.index, timeout_s=5))
        await bench.report("running")
        assert not waiting.done()
        await bench.server.resources.jobs.deregister("default", "web")
    assert waiting.result().index > first.index


async def test_a_pull_of_an_unknown_node_asks_it_to_register(bench: Any) -> None:
    for call in (
        bench.server.clients.calls.pull_allocs("nobody", min_index=0, timeout_s=1),
        bench.server.clients.calls.heartbeat("nobody", "ready"),
    ):
        try:
            await call
        except NotFound as error:
            assert str(error) == "node not found"
        else:
            raise AssertionError("an unknown node was served")


async def test_what_finds_no_room_is_placed_when_a_node_joins(bench: Any) -> None:
    await bench.server.resources.jobs.register(factories.job())
    await bench.idle()
    assert bench.evals() == [("job-register", "complete"), ("queued-allocs", "blocked")]
    await bench.add_node()
    await bench.until(lambda: len(bench.live()) == 1)
    await bench.until(lambda: bench.evals()[1] == ("queued-allocs", "complete"))


async def test_room_freed_by_a_finished_allocation_is_used(bench: Any, with_count: Any) -> None:
    await bench.add_node()
    first, second = with_count(factories.job("first"), 40), factories.job("second", priority=40)
    await bench.server.resources.jobs.register(first)
    await bench.until(lambda: len(bench.live("first")) == 40)
    await bench.server.resources.jobs.register(second)
    await bench.idle()
    assert bench.live("second") == []
    await bench.server.resources.jobs.deregister("default", "first")
    await bench.idle()
    stopped = [alloc for alloc in bench.server.state.allocs.values() if alloc.desired_status == "stop"]
    updates = tuple(AllocUpdate(id=a.id, node_id=a.node_id, client_status="complete") for a in stopped[:1])
    await bench.server.clients.calls.update_allocs(UpdateAllocsRequest(node_id=stopped[0].node_id, updates=updates))
    await bench.until(lambda: len(bench.live("second")) == 1)


async def test_a_lost_nodes_allocations_move_to_another(bench: Any) -> None:
    one = await bench.add_node()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(lambda: len(bench.live()) == 1)
    await bench.report("running")
    other = await bench.add_node()
    await bench.pass_time(40, other)
    assert bench.server.state.nodes[one.id].status == "down"
    assert bench.server.state.nodes[one.id].events[-1].message == "Node heartbeat missed"
    await bench.until(lambda: [alloc.node_id for alloc in bench.live()] == [other.id])


async def test_a_disconnected_node_comes_back_through_initializing(bench: Any) -> None:
    group = factories.group(
        disconnect=DisconnectStrategy(lost_after=seconds(600), replace=False, reconcile="keep_original")
    )
    node = await bench.add_node()
    await bench.server.resources.jobs.register(factories.job(task_groups=(group,)))
    await bench.until(lambda: len(bench.live()) == 1)
    await bench.report("running")
    await bench.env.advance(60)
    assert bench.server.state.nodes[node.id].status == "disconnected"
    await bench.until(lambda: bench.live()[0].client_status == "unknown")
    update = AllocUpdate(id=bench.live()[0].id, node_id=node.id, client_status="running")
    request = UpdateAllocsRequest(node_id=node.id, updates=(update,))
    try:
        await bench.server.clients.calls.update_allocs(request)
    except Invalid as error:
        assert "not allowed to update allocs while in status disconnected" in str(error)
    else:
        raise AssertionError("a disconnected node was heard")
    assert (await bench.server.clients.calls.heartbeat(node.id, "ready")).node_status == "initializing"
    assert (await bench.server.clients.calls.heartbeat(node.id, "ready")).node_status == "initializing"
    await bench.server.clients.calls.update_allocs(request)
    assert (await bench.server.clients.calls.heartbeat(node.id, "ready")).node_status == "ready"
    await bench.until(lambda: [alloc.client_status for alloc in bench.live()] == ["running"])


async def test_a_failed_allocation_is_replaced_after_its_delay(bench: Any) -> None:
    node = await bench.add_node()
    job = factories.job(task_groups=(factories.group(update=None),))
    await bench.server.resources.jobs.register(job)
    await bench.until(lambda: len(bench.live()) == 1)
    await bench.report("failed")
    await bench.until(lambda: ("alloc-failure", "complete") in bench.evals())
    assert bench.live() == []
    await bench.pass_time(32, node)
    await bench.until(lambda: len(bench.live()) == 1)


async def test_a_system_job_runs_on_each_node_that_joins(bench: Any) -> None:
    await bench.server.resources.jobs.register(factories.job("sys", type="system"))
    for count in (1, 2, 3):
        await bench.add_node()
        await bench.until(lambda: len(bench.live("sys")) == count)  # noqa: B023


async def test_a_deployment_becomes_successful_when_its_allocations_are_healthy(bench: Any) -> None:
    await bench.add_node()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(lambda: len(bench.live()) == 1)
    health = AllocDeploymentStatus(healthy=True, timestamp=factories.NOW)
    await bench.report("running", deployment_status=health)
    server = bench.server
    await bench.until(lambda: server.state.latest_deployment("default", "web").status == "successful")
    assert server.state.jobs["default", "web"].stable


async def test_a_big_plan_is_stored_in_parts(bench: Any, with_count: Any) -> None:
    for _ in range(10):
        await bench.add_node()
    await bench.server.resources.jobs.register(with_count(factories.job("big"), 390))
    await eventually(lambda: len(bench.live("big")) == 390)
    types = [event.type for event in bench.server.log.events._newest]
    assert types.count(ApplyPlan.event_type) >= 2


async def test_a_node_with_another_secret_is_refused(bench: Any) -> None:
    node = await bench.add_node()
    thief = replace(node, secret_id="other")
    try:
        await bench.server.clients.calls.register_node(RegisterNodeRequest(node=thief))
    except Exception as error:
        assert "secret ID does not match" in str(error)
    else:
        raise AssertionError("a stolen node id was accepted")


async def test_a_deployment_without_progress_fails_at_its_deadline(bench: Any) -> None:
    node = await bench.add_node()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(lambda: len(bench.live()) == 1)
    await bench.report("running")
    await bench.pass_time(608, node)
    deployment = bench.server.state.latest_deployment("default", "web")
    assert (deployment.status, deployment.status_description) == ("failed", "Failed due to progress deadline")


async def test_a_job_that_waits_for_a_volume_is_looked_at_again_when_it_is_registered(bench: Any) -> None:
    await bench.add_node()
    asked = VolumeRequest(name="data", type="csi", source="data", access_mode="single-node-writer", attachment_mode="x")
    group = replace(factories.group(), volumes={"data": asked})
    await bench.server.resources.jobs.register(factories.job(task_groups=(group,)))
    await bench.until(lambda: ("queued-allocs", "blocked") in bench.evals())
    blocked = next(e for e in bench.server.state.evals.values() if e.status == "blocked")
    assert blocked.missing_non_node_resources == ("data",)
    way = CSIVolumeCapability(access_mode="single-node-writer", attachment_mode="x")
    volume = CSIVolume(id="data", plugin_id="ebs", requested_capabilities=(way,))
    await bench.server.replica.propose(UpsertVolumes(volumes=(volume,)))
    await bench.until(
        lambda: any(
            "CSI plugin ebs is missing" in metric.constraint_filtered
            for e in bench.server.state.evals.values()
            for metric in e.failed_tg_allocs.values()
        )
    )


async def test_one_that_was_healthy_and_fails_while_the_deployment_goes_on_is_replaced(bench: Any) -> None:
    """Nobody but the deployment's watcher marks it, and no health changes: its failure alone must wake the watcher."""
    policy = ReschedulePolicy(delay=seconds(5), delay_function="constant", unlimited=True)
    await bench.add_node()
    group = factories.group(count=2, reschedule_policy=policy, update=factories.update_strategy(max_parallel=2))
    await bench.server.resources.jobs.register(factories.job(task_groups=(group,)))
    await bench.until(lambda: len(bench.live()) == 2)
    first, _ = bench.live()
    well = AllocDeploymentStatus(healthy=True, timestamp=bench.env.now())
    for status, health in (("running", well), ("failed", None)):
        update = AllocUpdate(id=first.id, node_id=first.node_id, client_status=status, deployment_status=health)
        await bench.server.clients.calls.update_allocs(UpdateAllocsRequest(node_id=first.node_id, updates=(update,)))
        await bench.until(lambda told=status: bench.server.state.allocs[first.id].client_status == told)
    await bench.until(lambda: bench.server.state.allocs[first.id].desired_transition.reschedule)
    (node,) = bench.server.state.nodes.values()
    await bench.pass_time(30, node)
    await bench.until(lambda: len(bench.live()) == 2)
    deployment = bench.server.state.latest_deployment("default", "web")
    assert deployment is not None and deployment.status == "running"
