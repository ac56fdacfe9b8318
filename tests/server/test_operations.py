"""Operations on jobs, nodes, allocations and the cluster."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import msgspec
import pytest
from yurt.fsm.restore import framed
from yurt.fsm.snapshot import encode
from yurt.runtime.metrics import full_name
from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied, Unavailable
from yurt.sdk.schema import AttributeSpec, Schema
from yurt.sdk.value import replace, seconds
from yurt.server.config import GcThresholds
from yurt.server.log.restore import restore
from yurt.server.peers import NoPeers
from yurt.server.requests import DispatchRequest, RetainedFields
from yurt.server.resources.jobs import HELD_BACK, INSTANCE_EXISTS
from yurt.state import Snapshot
from yurt.storage.memory import MemoryLog
from yurt.structs.alloc import AllocDeploymentStatus
from yurt.structs.cluster import Namespace, NamespaceCapabilities, SchedulerConfiguration
from yurt.structs.commands import AllocUpdate, RegisterNode, StoreSchema, UpsertNamespaces
from yurt.structs.commands.versions import RegionRules
from yurt.structs.job import Job, ParameterizedJobConfig, PeriodicConfig, ScalingEvent
from yurt.structs.node import DrainSpec, Node
from yurt.structs.resources import Resources
from yurt.structs.rpc import HeldIdentity, UpdateAllocsRequest
from yurt.structs.rules import FORCED_LAUNCH_RULES
from yurt.structs.task import ScalingPolicy
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv

BIG = Resources(cpu=900, memory_mb=900)


def batch(id: str, **changes: Any) -> Job:
    return factories.job(id, type="batch", **changes)


async def test_registering_twice_makes_one_version_and_another_evaluation(bench: Any) -> None:
    first = await bench.server.resources.jobs.register(factories.job())
    second = await bench.server.resources.jobs.register(factories.job())
    assert first.job_modify_index == second.job_modify_index
    assert bench.server.state.jobs["default", "web"].version == 0
    assert second.eval_id != first.eval_id


async def test_an_enforced_index_must_be_the_jobs(bench: Any) -> None:
    jobs = bench.server.resources.jobs
    with pytest.raises(Conflict, match="Enforcing job modify index 7: job does not exist"):
        await jobs.register(factories.job(), enforce_index=7)
    first = await jobs.register(factories.job(), enforce_index=0)
    with pytest.raises(Conflict, match="job already exists"):
        await jobs.register(factories.job(), enforce_index=0)
    with pytest.raises(Conflict, match="conflicting job modify index"):
        await jobs.register(factories.job(), enforce_index=first.job_modify_index + 5)
    await jobs.register(factories.job(priority=60), enforce_index=first.job_modify_index)


async def test_an_invalid_job_is_refused_with_every_problem(bench: Any) -> None:
    job = factories.job(namespace="nowhere", node_pool="nothing", priority=1000)
    with pytest.raises(Invalid) as caught:
        await bench.server.resources.jobs.register(job)
    text = str(caught.value)
    assert 'nonexistent namespace "nowhere"' in text
    assert 'nonexistent node pool "nothing"' in text
    assert "errors occurred:\n\t* " in text


async def test_driver_options_are_checked_against_what_nodes_have_shown(bench: Any) -> None:
    schema = Schema(attributes=(AttributeSpec(name="run_for"), AttributeSpec(name="exit_code", type="number")))
    stored = msgspec.to_builtins(schema)
    await bench.server.replica.propose(StoreSchema(driver="mock_driver", digest="d", schema=stored))
    await bench.server.resources.jobs.register(factories.job())
    task = factories.task(config={"run_fr": "1s"})
    with pytest.raises(Invalid, match="run_for"):
        await bench.server.resources.jobs.register(factories.job(task_groups=(factories.group(tasks=(task,)),)))


async def test_a_job_of_an_unknown_driver_is_warned_of(bench: Any) -> None:
    registered = await bench.server.resources.jobs.register(factories.job())
    assert any("mock_driver" in warning for warning in registered.warnings)


async def test_stopping_a_job_stops_its_allocations_and_an_unknown_one_gets_an_evaluation(bench: Any) -> None:
    await bench.add_node()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(lambda: len(bench.live()) == 1)
    await bench.server.resources.jobs.deregister("default", "web")
    await bench.until(lambda: bench.live() == [])
    assert bench.server.state.jobs["default", "web"].stop
    unknown = await bench.server.resources.jobs.deregister("default", "never-was")
    assert unknown.eval_id
    await bench.idle()


async def test_purging_forgets_the_job(bench: Any) -> None:
    await bench.add_node()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(lambda: len(bench.live()) == 1)
    await bench.server.resources.jobs.deregister("default", "web", purge=True)
    assert ("default", "web") not in bench.server.state.jobs
    await bench.until(lambda: bench.live() == [])


async def test_reverting_makes_a_new_version_of_the_old_specification(bench: Any) -> None:
    jobs = bench.server.resources.jobs
    await jobs.register(factories.job(meta={"v": "0"}))
    await jobs.register(factories.job(meta={"v": "1"}))
    with pytest.raises(Invalid, match="can't revert to current version"):
        await jobs.revert(("default", "web"), 1)
    with pytest.raises(Conflict, match="Current job has version 1; enforcing version 0"):
        await jobs.revert(("default", "web"), 0, enforce_prior_version=0)
    await jobs.revert(("default", "web"), 0)
    job = bench.server.state.jobs["default", "web"]
    assert (job.version, dict(job.meta)) == (2, {"v": "0"})


async def test_scaling_obeys_its_bounds(bench: Any) -> None:
    group = factories.group(scaling=ScalingPolicy(min=1, max=3, enabled=True), update=None)
    await bench.add_node()
    await bench.server.resources.jobs.register(factories.job(task_groups=(group,)))
    with pytest.raises(Invalid, match="greater than scaling policy maximum: 4 > 3"):
        await bench.server.resources.jobs.scale("default", "web", ScalingEvent(count=4), group="web")
    with pytest.raises(NotFound, match='job "nope" not found'):
        await bench.server.resources.jobs.scale("default", "nope", ScalingEvent(count=1), group="web")
    scaled = await bench.server.resources.jobs.scale(
        "default", "web", ScalingEvent(count=3, message="more"), group="web"
    )
    assert scaled.eval_id
    await bench.until(lambda: len(bench.live()) == 3)


async def test_scaling_waits_for_an_active_deployment(bench: Any) -> None:
    await bench.add_node()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(lambda: len(bench.live()) == 1)
    with pytest.raises(Invalid, match="job scaling blocked due to active deployment"):
        await bench.server.resources.jobs.scale("default", "web", ScalingEvent(count=2), group="web")


async def test_a_registration_may_keep_what_the_running_job_has(bench: Any) -> None:
    running = factories.job(task_groups=(factories.group(count=3, tasks=(factories.task(resources=BIG),)),))
    await bench.server.resources.jobs.register(running)
    group = factories.group(count=1, tasks=(factories.task(), factories.task(name="new")))

    await bench.server.resources.jobs.register(factories.job(task_groups=(group,)), keep=RetainedFields(resources=True))
    kept = bench.server.state.jobs["default", "web"].task_groups[0]
    await bench.server.resources.jobs.register(factories.job(task_groups=(group,)))
    taken = bench.server.state.jobs["default", "web"].task_groups[0]

    assert (kept.count, kept.tasks[0].resources, kept.tasks[1].resources) == (1, BIG, group.tasks[1].resources)
    assert taken.tasks[0].resources == group.tasks[0].resources


@pytest.mark.parametrize("priority", [-1, 101])
async def test_a_dispatch_with_a_priority_out_of_bounds_is_refused(bench: Any, priority: int) -> None:
    await bench.server.resources.jobs.register(batch("work", parameterized_job=ParameterizedJobConfig()))
    with pytest.raises(Invalid, match=r"priority must be between \[1, 100\]"):
        await bench.server.resources.jobs.dispatch("default", "work", DispatchRequest(priority=priority))


async def test_dispatching_makes_a_child_with_its_payload_and_metadata(bench: Any) -> None:
    spec = ParameterizedJobConfig(payload="required", meta_required=("key",))
    await bench.server.resources.jobs.register(batch("work", parameterized_job=spec))
    for payload, meta, text in (
        (b"", {"key": "1"}, "Payload is not provided"),
        (b"x", {}, r"did not provide required meta keys: \[key\]"),
        (b"x", {"key": "1", "odd": "2"}, r"unpermitted metadata keys: \[odd\]"),
        (b"x" * 20_000, {"key": "1"}, "exceeds maximum size"),
    ):
        with pytest.raises(Invalid, match=text):
            await bench.server.resources.jobs.dispatch("default", "work", DispatchRequest(payload=payload, meta=meta))
    asked = DispatchRequest(payload=b"x", meta={"key": "1"}, idempotency_token="once", priority=70)
    made = await bench.server.resources.jobs.dispatch("default", "work", asked)
    child = bench.server.state.jobs["default", made.dispatched_job_id]
    assert made.dispatched_job_id.startswith("work/dispatch-")
    assert (child.parent_id, child.payload, child.meta["key"], child.dispatched) == ("work", b"x", "1", True)
    assert (child.priority, bench.server.state.evals[made.eval_id].priority) == (70, 70)
    again = await bench.server.resources.jobs.dispatch("default", "work", asked)
    assert (again.dispatched_job_id, again.eval_id) == (made.dispatched_job_id, "")


async def test_a_periodic_job_launches_at_its_times(bench: Any) -> None:
    await bench.server.resources.jobs.register(
        batch("tick", periodic=PeriodicConfig(spec="* * * * *", time_zone="UTC"))
    )
    await bench.env.advance(61)
    await bench.until(lambda: len(bench.server.state.jobs.where("parent", ("default", "tick"))) == 1)
    await bench.env.advance(60)
    await bench.until(lambda: len(bench.server.state.jobs.where("parent", ("default", "tick"))) == 2)
    await bench.server.resources.jobs.deregister("default", "tick")
    await bench.env.advance(120)
    assert len(bench.server.state.jobs.where("parent", ("default", "tick"))) == 2


async def test_launches_that_must_not_overlap_are_skipped_while_one_is_alive(bench: Any) -> None:
    periodic = PeriodicConfig(spec="* * * * *", time_zone="UTC", prohibit_overlap=True)
    await bench.server.resources.jobs.register(batch("tick", periodic=periodic))
    await bench.env.advance(200)
    assert len(bench.server.state.jobs.where("parent", ("default", "tick"))) == 1


async def test_a_launch_missed_while_no_server_ran_is_made_up_once(run_server: Any) -> None:
    log, env = MemoryLog(), FakeEnv()
    async with run_server(log, env) as bench:
        await bench.server.resources.jobs.register(
            batch("tick", periodic=PeriodicConfig(spec="* * * * *", time_zone="UTC"))
        )
        await bench.env.advance(61)
        await bench.until(lambda: len(bench.server.state.jobs.where("parent", ("default", "tick"))) == 1)
    await env.advance(600)
    async with run_server(log, env) as bench:
        await bench.until(lambda: len(bench.server.state.jobs.where("parent", ("default", "tick"))) == 2)
        await bench.env.advance(1)
        assert len(bench.server.state.jobs.where("parent", ("default", "tick"))) == 2


async def test_only_periodic_jobs_can_be_forced(bench: Any) -> None:
    await bench.server.resources.jobs.register(factories.job())
    with pytest.raises(Invalid, match="can't force launch non-periodic job"):
        await bench.server.resources.jobs.force_periodic("default", "web")
    await bench.server.resources.jobs.register(batch("tick", periodic=PeriodicConfig(spec="@yearly", time_zone="UTC")))
    with pytest.raises(Invalid, match="can't evaluate periodic job"):
        await bench.server.resources.jobs.evaluate("default", "tick")
    assert (await bench.server.resources.jobs.force_periodic("default", "tick")).eval_id


async def test_a_forced_launch_that_makes_no_child_says_why(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, schedule = bench.server.resources.jobs, PeriodicConfig(spec="@yearly", time_zone="UTC", prohibit_overlap=True)
    await jobs.register(batch("tick", periodic=schedule))
    assert (await jobs.force_periodic("default", "tick")).warnings == ()
    assert (await jobs.force_periodic("default", "tick")).warnings == (INSTANCE_EXISTS,)

    monkeypatch.setattr(NoPeers, "rules", RegionRules(version=FORCED_LAUNCH_RULES - 1, behind=("srv2.global",)))
    await bench.env.advance(60)

    assert (await jobs.force_periodic("default", "tick")).warnings == (HELD_BACK,)


async def test_disabled_registration_refuses_jobs(bench: Any) -> None:
    await bench.server.resources.system.set_scheduler_config(SchedulerConfiguration(reject_job_registration=True))
    with pytest.raises(PermissionDenied, match="disabled by the scheduler configuration"):
        await bench.server.resources.jobs.register(factories.job())


async def test_a_paused_broker_schedules_nothing_until_it_goes_on(bench: Any) -> None:
    await bench.add_node()
    await bench.server.resources.system.set_scheduler_config(SchedulerConfiguration(pause_eval_broker=True))
    await bench.server.resources.jobs.register(factories.job())
    await bench.env.advance(1)
    assert bench.evals() == [("job-register", "pending")]
    await bench.server.resources.system.set_scheduler_config(SchedulerConfiguration())
    await bench.until(lambda: len(bench.live()) == 1)


async def test_a_plan_changes_nothing_and_says_what_would_happen(bench: Any) -> None:
    await bench.add_node()
    before = bench.server.state.index
    planned = await bench.server.resources.jobs.plan(factories.job(), diff=True)
    assert planned.annotations.desired_tg_updates["web"].place == 1
    assert planned.diff.type == "Added"
    assert dict(planned.diff.task_groups[0].updates) == {"create": 1}
    assert bench.server.state.index == before


async def test_an_ineligible_node_takes_nothing_new(bench: Any) -> None:
    node = await bench.add_node()
    with pytest.raises(Invalid, match='invalid scheduling eligibility "maybe"'):
        await bench.server.resources.nodes.set_eligibility(node.id, "maybe")
    await bench.server.resources.nodes.set_eligibility(node.id, "ineligible")
    await bench.server.resources.jobs.register(factories.job())
    await bench.idle()
    assert bench.live() == []
    await bench.server.resources.nodes.set_eligibility(node.id, "eligible")
    await bench.until(lambda: len(bench.live()) == 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda nodes, node_id, check: nodes.set_eligibility(node_id, "ineligible", check=check),
        lambda nodes, node_id, check: nodes.evaluate(node_id, check=check),
        lambda nodes, node_id, check: nodes.purge(node_id, check=check),
        lambda nodes, node_id, check: nodes.drain(node_id, DrainSpec(), mark_eligible=False, check=check),
    ],
)
async def test_a_node_that_leaves_the_pool_of_a_decision_is_decided_about_again(bench: Any, change: Any) -> None:
    node = await bench.add_node()
    pools: list[str] = []

    def check(state: Snapshot) -> None:
        pools.append(state.nodes[node.id].node_pool)
        if pools[-1] != "default":
            raise NotFound("node not found")

    async with asyncio.TaskGroup() as group:
        group.create_task(bench.server.replica.propose(RegisterNode(node=replace(node, node_pool="gpu"))))
        await asyncio.sleep(0)
        with pytest.raises(NotFound, match="node not found"):
            await change(bench.server.resources.nodes, node.id, check)
    assert pools == ["default", "gpu"]
    assert bench.server.state.nodes[node.id].scheduling_eligibility == "eligible"


async def test_a_drained_node_ends_empty_and_ineligible(bench: Any) -> None:
    one = await bench.add_node()
    await bench.server.resources.jobs.register(factories.job(task_groups=(factories.group(update=None),)))
    await bench.until(lambda: len(bench.live()) == 1)
    await bench.report("running", deployment_status=AllocDeploymentStatus(healthy=True))
    other = await bench.add_node()
    await bench.server.resources.nodes.drain(one.id, DrainSpec(deadline=seconds(3600)), mark_eligible=False)
    await bench.until(lambda: [alloc.node_id for alloc in bench.live()] == [other.id])
    moved = next(a for a in bench.server.state.allocs.values() if a.node_id == one.id)
    update = AllocUpdate(id=moved.id, node_id=one.id, client_status="complete")
    await bench.server.clients.calls.update_allocs(UpdateAllocsRequest(node_id=one.id, updates=(update,)))
    await bench.until(lambda: bench.server.state.nodes[one.id].drain_strategy is None)
    node = bench.server.state.nodes[one.id]
    assert node.scheduling_eligibility == "ineligible"
    assert node.events[-1].message == "Node drain complete"
    assert node.last_drain.status == "complete"


async def restored_with_a_running_task(bench: Any) -> Node:
    """The node of a bench that was restored from a snapshot of itself and has reported since, of its own accord."""
    node: Node = await bench.add_node()
    await bench.server.resources.jobs.register(factories.job(task_groups=(factories.group(update=None),)))
    await bench.until(lambda: len(bench.live()) == 1)
    await bench.report("running")
    data = b"".join(framed(encode(bench.server.state)))
    async with asyncio.TaskGroup() as tasks:
        restoring = tasks.create_task(restore(bench.server.replica, bench.server.leader, io.BytesIO(data), len(data)))
        while not restoring.done():
            await bench.env.advance(0.1)
    await bench.report("running")  # what else has happened since the snapshot is not reported yet
    return node


async def test_a_node_is_ready_after_a_restore_only_once_it_has_heard_of_it(bench: Any) -> None:
    node, calls = await restored_with_a_running_task(bench), bench.server.clients.calls
    statuses = [(await calls.heartbeat(node.id, "ready")).node_status for _ in range(2)]
    assert statuses == ["initializing", "ready"]


async def test_an_answer_that_tells_of_a_restore_may_be_lost(bench: Any) -> None:
    node, calls = await restored_with_a_running_task(bench), bench.server.clients.calls
    unaware = HeldIdentity(known_loss=0)
    answers = [await calls.heartbeat(node.id, "ready", unaware) for _ in range(3)]
    assert {answer.node_status for answer in answers} == {"initializing"}
    (lost_at,) = {answer.lost_at for answer in answers}
    assert lost_at == bench.server.state.nodes[node.id].last_missed_heartbeat_index

    aware = await calls.heartbeat(node.id, "ready", HeldIdentity(known_loss=lost_at))
    assert aware.node_status == "ready"


async def test_a_stopped_service_allocation_is_replaced(bench: Any) -> None:
    await bench.add_node()
    await bench.server.resources.jobs.register(factories.job(task_groups=(factories.group(update=None),)))
    await bench.until(lambda: len(bench.live()) == 1)
    (old,) = bench.live()
    await bench.server.resources.allocs.stop(old.id)
    await bench.until(lambda: [alloc.id for alloc in bench.live()] not in ([], [old.id]))
    with pytest.raises(NotFound, match="allocation not found"):
        await bench.server.resources.allocs.stop("none")


async def test_failing_a_deployment_by_hand(bench: Any) -> None:
    await bench.add_node()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(lambda: len(bench.live()) == 1)
    deployment = bench.server.state.latest_deployment("default", "web")
    await bench.server.resources.deployments.pause(deployment.id, pause=True)
    assert bench.server.state.deployments[deployment.id].status == "paused"
    await bench.server.resources.deployments.fail(deployment.id)
    ended = bench.server.state.deployments[deployment.id]
    assert (ended.status, ended.status_description) == ("failed", "Deployment marked as failed")
    with pytest.raises(Invalid, match="can't fail terminal deployment"):
        await bench.server.resources.deployments.fail(deployment.id)


async def test_forced_garbage_collection_forgets_what_is_over_and_nothing_else(bench: Any) -> None:
    await bench.add_node()
    await bench.server.resources.jobs.register(batch("done"))
    await bench.until(lambda: len(bench.live("done")) == 1)
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(lambda: len(bench.live()) == 1)
    await bench.report("complete", "done")
    await bench.idle()
    await bench.server.resources.system.collect_garbage()
    state = bench.server.state
    assert [job.id for job in state.jobs.values()] == ["web"]
    assert {alloc.job_id for alloc in state.allocs.values()} == {"web"}


async def test_scaling_heeds_the_most_allocations_of_a_job(run_server: Any) -> None:
    groups = (factories.group(update=None), factories.group("db", count=2, update=None))
    async with run_server(job_max_count=5) as bench:
        await bench.server.resources.jobs.register(factories.job(task_groups=groups))
        await bench.server.resources.jobs.scale("default", "web", ScalingEvent(count=3), group="web")
        with pytest.raises(Invalid, match="total count was greater than configured job_max_count: 6 > 5"):
            await bench.server.resources.jobs.scale("default", "web", ScalingEvent(count=4), group="web")


async def test_an_ended_batch_job_is_forgotten_after_its_threshold(run_server: Any) -> None:
    thresholds = GcThresholds(interval_s=10.0, job_s=60.0)
    async with run_server(gc=thresholds) as bench:
        node = await bench.add_node()
        await bench.server.resources.jobs.register(batch("done"))
        await bench.until(lambda: len(bench.live("done")) == 1)
        await bench.report("complete", "done")
        await bench.idle()
        await bench.pass_time(48, node)
        assert ("default", "done") in bench.server.state.jobs
        await bench.pass_time(32, node)
        await bench.until(lambda: not bench.server.state.allocs and not bench.server.state.jobs)


async def test_a_node_that_nobody_attached_cannot_be_reached(bench: Any) -> None:
    node = await bench.add_node()
    with pytest.raises(Unavailable, match="No path to node"):
        bench.server.clients.node_ports.find(node.id)
    with pytest.raises(NotFound, match="Unknown node"):
        bench.server.clients.node_ports.find("none")


async def test_figures_are_there_for_the_agent(bench: Any) -> None:
    found = {gauge.name: gauge.value for gauge in bench.server.http.facts.gauges()}
    assert (
        found[full_name("server.is_leader")],
        found[full_name("server.last_contact_ms")],
        found[full_name("broker.total_ready")],
    ) == (1, 0, 0)


async def test_the_jobs_that_are_blocked_tell_what_they_ask_for(bench: Any) -> None:
    await bench.server.resources.jobs.register(factories.job(id="web"))  # There is no node.
    facts = bench.server.http.facts

    def blocked() -> dict[str, float]:
        return {
            gauge.name: gauge.value for gauge in facts.blocked_gauges()() if gauge.labels.get("job", "web") == "web"
        }

    await bench.until(lambda: full_name("blocked_evals.job.cpu") in blocked())
    (group,) = factories.job().task_groups
    (task,) = group.tasks
    assert blocked() == {
        full_name("blocked_evals.total_quota_limit"): 0,
        full_name("blocked_evals.job.cpu"): group.count * task.resources.cpu,
        full_name("blocked_evals.job.memory"): group.count * task.resources.memory_mb,
    }


@pytest.mark.parametrize("reschedule", [False, True])
async def test_a_stopped_batch_allocation_is_replaced_only_when_asked(bench: Any, reschedule: bool) -> None:
    await bench.add_node()
    await bench.server.resources.jobs.register(batch("work"))
    await bench.until(lambda: len(bench.live("work")) == 1)
    await bench.report("running", "work")
    (old,) = bench.live("work")
    await bench.server.resources.allocs.stop(old.id, reschedule=reschedule)
    await bench.until(lambda: bench.server.state.allocs[old.id].desired_status == "stop")
    await bench.idle()
    assert len(bench.live("work")) == int(reschedule)


async def test_a_plan_says_what_each_change_leads_to(bench: Any) -> None:
    await bench.add_node()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(lambda: len(bench.live()) == 1)
    moved = factories.group(count=3, tasks=(factories.task(env={"A": "1"}),))
    destructive = await bench.server.resources.jobs.plan(factories.job(task_groups=(moved,)), diff=True)
    (group,) = destructive.diff.task_groups
    assert group.tasks[0].annotations == ("forces create/destroy update",)
    assert [field.annotations for field in group.fields if field.name == "Count"] == [("forces create",)]
    gentle = factories.group(tasks=(factories.task(kill_timeout=seconds(9)),))
    in_place = await bench.server.resources.jobs.plan(factories.job(task_groups=(gentle,)), diff=True)
    assert in_place.diff.task_groups[0].tasks[0].annotations == ("forces in-place update",)
    assert dict(in_place.diff.task_groups[0].updates) == {"in-place update": 1}


async def test_a_launch_that_the_namespace_forbids_is_tried_again_at_the_next_time(bench: Any) -> None:
    periodic = PeriodicConfig(spec="* * * * *", time_zone="UTC")
    await bench.server.resources.jobs.register(batch("tick", periodic=periodic))
    propose = bench.server.replica.propose
    strict = NamespaceCapabilities(disabled_task_drivers=("mock_driver",))
    await propose(UpsertNamespaces(namespaces=(Namespace(name="default", capabilities=strict),)))
    await bench.env.advance(61)
    await bench.idle()
    assert bench.server.state.jobs.where("parent", ("default", "tick")) == ()
    await propose(UpsertNamespaces(namespaces=(Namespace(name="default"),)))
    await bench.env.advance(60)
    await bench.until(lambda: len(bench.server.state.jobs.where("parent", ("default", "tick"))) == 1)
