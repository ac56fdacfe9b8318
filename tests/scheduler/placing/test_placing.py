"""Where allocations go: resources, ports, cores, devices, distinct rules, spread, affinity, preemption, and the
reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.attempts import Attempt
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Snapshot, Tables
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import TaskState
from yurt.structs.cluster import NodePool, PreemptionConfig, SchedulerConfiguration
from yurt.structs.constraint import Affinity, Constraint, Spread, SpreadTarget
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import (
    DriverInfo,
    HostNetworkInfo,
    HostVolumeInfo,
    Node,
    NodeDevice,
    NodeDeviceResource,
    NodeReservedNetworkResources,
    NodeReservedResources,
)
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories

ETH0 = NetworkResource(mode="host", device="eth0", ip="10.0.0.1")


def _node(number: int, **changes: Any) -> Node:
    made = factories.node(factories.number_id(number, kind=1), **changes)
    resources = made.node_resources
    return replace(made, node_resources=replace(resources, networks=resources.networks or (ETH0,)))


def _nodes(count: int, **changes: Any) -> list[Node]:
    return [_node(number, **changes) for number in range(count)]


def _state(nodes: Sequence[Node], *jobs: Job, config: SchedulerConfiguration | None = None) -> Snapshot:
    state = Snapshot.empty()
    made: list[c.AnyCommand] = [c.UpsertNodePools(pools=(NodePool(name="gpu"),))]
    made.extend(c.RegisterNode(node=node) for node in nodes)
    if config is not None:
        made.append(c.SetSchedulerConfiguration(configuration=config))
    made.extend(c.RegisterJob(job=job) for job in jobs)
    for command in made:
        state = apply(state, command, index=state.index + 1).state
    return state


def _attempt(state: Snapshot, job: Job, seed: int = 1) -> Attempt:
    evaluation = Evaluation(id=f"eval-{job.id}", job_id=job.id, type=job.type, triggered_by="job-register")
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=seed)


def _placed(nodes: Sequence[Node], job: Job, config: SchedulerConfiguration | None = None) -> Attempt:
    return _attempt(_state(nodes, job, config=config), job)


def _job(count: int = 1, resources: Resources | None = None, **changes: Any) -> Job:
    task = factories.task(resources=resources or Resources(cpu=100, memory_mb=128))
    job_changes = {name: changes.pop(name) for name in ("constraints", "datacenters", "node_pool") if name in changes}
    return factories.job(task_groups=(factories.group(count=count, tasks=(task,), **changes),), **job_changes)


def _reasons(attempt: Attempt) -> dict[str, int]:
    metric = attempt.outcome.evaluation.failed_tg_allocs["web"]
    return {**metric.constraint_filtered, **metric.dimension_exhausted}


def test_every_constraint_that_filters_is_counted_not_only_the_first() -> None:
    job = _job(
        constraints=(
            Constraint(l_target="${attr.cpu.arch}", operand="=", r_target="arm64"),
            Constraint(l_target="${attr.kernel.name}", operand="=", r_target="windows"),
        )
    )
    attempt = _placed(_nodes(3), job)
    assert _reasons(attempt) == {"${attr.cpu.arch} = arm64": 3, "${attr.kernel.name} = windows": 3}
    assert attempt.outcome.evaluation.failed_tg_allocs["web"].nodes_filtered == 3
    (blocked,) = attempt.outcome.created
    assert set(blocked.class_eligibility.values()) == {False} and not blocked.escaped_computed_class


def test_a_unique_attribute_is_checked_node_by_node_and_escapes_the_classes() -> None:
    nodes = _nodes(3)
    job = _job(2, constraints=(Constraint(l_target="${node.unique.id}", operand="=", r_target=nodes[1].id),))
    job = replace(
        job, task_groups=(replace(job.task_groups[0], tasks=(factories.task(resources=Resources(cpu=3000)),)),)
    )
    attempt = _placed(nodes, job)
    assert [placement.node_id for placement in attempt.plan.placements] == [nodes[1].id]
    assert attempt.outcome.created[0].escaped_computed_class


def test_an_unhealthy_driver_filters_its_node_but_not_its_class() -> None:
    sick = {"mock_driver": DriverInfo(detected=True, healthy=False)}
    attempt = _placed(_nodes(1, drivers=sick), _job())
    assert _reasons(attempt) == {"missing drivers": 1}
    assert set(attempt.outcome.created[0].class_eligibility.values()) == {True}


def test_datacenters_match_by_glob_and_pools_by_name() -> None:
    nodes = [_node(1, datacenter="eu-1"), _node(2, datacenter="us-1"), _node(3, datacenter="eu-2", node_pool="gpu")]
    apart = (Constraint(operand="distinct_hosts"),)
    for globs, pool, expected in (("eu-*", "default", "1"), ("*", "gpu", "3"), ("*", "all", "123")):
        plan = _placed(nodes, _job(3, datacenters=(globs,), node_pool=pool, constraints=apart)).plan
        assert sorted(placement.node_id[-1] for placement in plan.placements) == list(expected)


@pytest.mark.parametrize(
    ("glob", "is_met"),
    [
        ("eu-[1]", True), ("*", True), ("**", True), ("eu-*", True), ("*]", True), ("*-*]", True), ("e*u*[*1*", True),
        ("eu-?1?", False), ("eu-1", False), ("*1", False), ("*1]1]", False), ("EU*", False), ("", False),
    ],
)  # fmt: skip
def test_of_a_datacenters_glob_only_the_star_is_special(glob: str, is_met: bool) -> None:
    assert bool(_placed([_node(1, datacenter="eu-[1]")], _job(datacenters=(glob,))).plan.placements) is is_met


def test_static_ports_collide_with_each_other_and_with_reserved_ones() -> None:
    kept = NodeReservedResources(networks=NodeReservedNetworkResources(reserved_host_ports="22,8000-8100"))
    nodes = [_node(1), _node(2), _node(3, reserved_resources=kept)]
    ports = (NetworkResource(mode="host", reserved_ports=(Port(label="http", value=8080),)),)
    attempt = _placed(nodes, _job(3, networks=ports))
    assert len({placement.node_id for placement in attempt.plan.placements}) == 2
    assert _reasons(attempt) == {"network: reserved port collision http=8080": 3}


@pytest.mark.parametrize(("alias", "is_free"), [("", False), ("public", False), ("same", False), ("inside", True)])
def test_what_a_host_network_keeps_is_kept_on_its_address_by_any_name(alias: str, is_free: bool) -> None:
    address, other = f"{ETH0.ip}/24", "192.0.2.7/24"
    networks = {
        "public": HostNetworkInfo(name="public", cidr=address, reserved_ports="8080"),
        "same": HostNetworkInfo(name="same", cidr=address),
        "inside": HostNetworkInfo(name="inside", cidr=other, reserved_ports="22"),
    }
    port = Port(label="http", value=8080, host_network=alias)
    asked = (NetworkResource(mode="host", reserved_ports=(port,)),)
    attempt = _placed([_node(1, host_networks=networks)], _job(1, networks=asked))
    assert bool(attempt.plan.placements) is is_free


def test_dynamic_ports_come_from_the_nodes_range_and_are_never_given_twice() -> None:
    node = _node(1)
    node = replace(node, node_resources=replace(node.node_resources, min_dynamic_port=30_000, max_dynamic_port=30_004))
    ports = (NetworkResource(mode="host", dynamic_ports=(Port(label="a"), Port(label="b", to=-1))),)
    attempt = _placed([node], _job(3, networks=ports))
    given = [port for p in attempt.plan.placements for port in p.resources.shared.ports]
    assert len({port.value for port in given}) == len(given) == 4
    assert all(30_000 <= port.value <= 30_004 and port.host_ip == "10.0.0.1" for port in given)
    assert all(port.to == port.value for port in given if port.label == "b")
    assert _reasons(attempt) == {"network: dynamic port selection failed": 1}


def test_a_port_on_a_named_host_network_gets_that_networks_address() -> None:
    public = {"public": HostNetworkInfo(name="public", cidr="192.0.2.7/24", interface="eth1")}
    ports = (NetworkResource(mode="host", dynamic_ports=(Port(label="http", host_network="public"),)),)
    nodes = [_node(1), _node(2, host_networks=public)]
    attempt = _placed(nodes, _job(networks=ports))
    (placement,) = attempt.plan.placements
    assert placement.node_id == nodes[1].id
    assert placement.resources.shared.ports[0].host_ip == "192.0.2.7"


def test_reserved_cores_count_in_the_score_of_their_own_placement() -> None:
    def binpack(cpu: int) -> float:
        return float((20 - 10 ** (1 - cpu / 4000) - 10 ** (1 - 10 / 8192)) / 18)

    attempt = _placed(_nodes(2), _job(1, Resources(cpu=0, cores=2, memory_mb=10)))
    metrics = attempt.plan.placements[0].metrics
    assert metrics is not None
    assert [meta.scores["binpack"] for meta in metrics.score_meta_data] == pytest.approx([binpack(2000)] * 2)


def test_cores_are_reserved_for_one_allocation_each() -> None:
    attempt = _placed(_nodes(1), _job(3, Resources(cpu=0, cores=2, memory_mb=10)))
    cores = [core for p in attempt.plan.placements for core in p.resources.tasks["web"].cpu.reserved_cores]
    assert sorted(cores) == [0, 1, 2, 3]
    assert {p.resources.tasks["web"].cpu.cpu_shares for p in attempt.plan.placements} == {2000}
    assert _reasons(attempt) == {"cores": 1}


def test_device_instances_are_given_once_and_by_constraint() -> None:
    node = _node(1)
    kinds = tuple(
        NodeDeviceResource(
            vendor="nvidia",
            type="gpu",
            name=name,
            instances=tuple(NodeDevice(id=f"{name}-{i}", healthy=i < 2) for i in range(3)),
        )
        for name in ("k80", "h200")
    )
    node = replace(node, node_resources=replace(node.node_resources, devices=kinds))
    asked = RequestedDevice(
        name="nvidia/gpu", constraints=(Constraint(l_target="${device.model}", operand="=", r_target="h200"),)
    )
    attempt = _placed([node], _job(3, Resources(cpu=1, memory_mb=1, devices=(asked,))))
    given = [d.device_ids for p in attempt.plan.placements for d in p.resources.tasks["web"].devices]
    assert sorted(given) == [("h200-0",), ("h200-1",)]
    assert _reasons(attempt) == {"devices: no devices match request": 1}


def test_distinct_property_limits_the_allocations_per_value() -> None:
    nodes = [_node(number, meta={"rack": f"r{number % 2}"}) for number in range(6)]
    rule = Constraint(l_target="${meta.rack}", operand="distinct_property", r_target="2")
    attempt = _placed(nodes, _job(5, constraints=(rule,)))
    racks = {node.id: node.meta["rack"] for node in nodes}
    assert Counter(racks[p.node_id] for p in attempt.plan.placements) == {"r0": 2, "r1": 2}
    assert _reasons(attempt) == {"distinct_property: ${meta.rack}": 6}


def test_an_even_spread_fills_all_values_alike() -> None:
    nodes = [_node(number, datacenter=f"dc{number % 3}") for number in range(30)]
    job = _job(12, spreads=(Spread(attribute="${node.datacenter}", weight=100),), datacenters=("*",))
    dcs = {node.id: node.datacenter for node in nodes}
    assert Counter(dcs[p.node_id] for p in _placed(nodes, job).plan.placements) == {"dc0": 4, "dc1": 4, "dc2": 4}


def test_a_spread_with_targets_follows_the_percentages() -> None:
    nodes = [_node(number, datacenter=f"dc{number % 2 + 1}") for number in range(20)]
    targets = (SpreadTarget(value="dc1", percent=70), SpreadTarget(value="dc2", percent=30))
    job = _job(
        10, spreads=(Spread(attribute="${node.datacenter}", weight=100, spread_target=targets),), datacenters=("*",)
    )
    dcs = {node.id: node.datacenter for node in nodes}
    assert Counter(dcs[p.node_id] for p in _placed(nodes, job).plan.placements) == {"dc1": 7, "dc2": 3}


def test_an_affinity_wins_over_packing_and_an_anti_affinity_is_avoided() -> None:
    nodes = [_node(number, node_class=("fast", "slow", "plain")[number % 3]) for number in range(9)]
    wants = (
        Affinity(l_target="${node.class}", operand="=", r_target="fast", weight=80),
        Affinity(l_target="${node.class}", operand="=", r_target="slow", weight=-80),
    )
    classes = {node.id: node.node_class for node in nodes}
    attempt = _placed(nodes, _job(3, affinities=wants))
    assert {classes[p.node_id] for p in attempt.plan.placements} == {"fast"}
    metrics = attempt.plan.placements[0].metrics
    assert metrics is not None and metrics.score_meta_data[0].node_id == attempt.plan.placements[0].node_id
    assert metrics.score_meta_data[0].scores["node-affinity"] == 0.5 and len(metrics.score_meta_data) == 5


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_score_table_names_what_was_looked_at_also_where_it_is_0(count: int) -> None:
    placements = _placed(_nodes(9), _job(count)).plan.placements
    names = {tuple(sorted(m.scores)) for p in placements if p.metrics is not None for m in p.metrics.score_meta_data}
    assert len(placements) == count
    assert names == {("binpack", "job-anti-affinity", "node-affinity", "node-reschedule-penalty")}


def test_the_spread_algorithm_prefers_empty_nodes_and_binpack_full_ones() -> None:
    nodes = _nodes(2)
    first, second = _job(1), replace(_job(1), id="second", name="second")
    found = {}
    for algorithm in ("binpack", "spread"):
        state = _state(nodes, first, second, config=SchedulerConfiguration(scheduler_algorithm=algorithm))
        plan = _attempt(state, first).plan
        state = apply(state, c.ApplyPlan(plan=plan), index=state.index + 1).state
        found[algorithm] = _attempt(state, second).plan.placements[0].node_id == plan.placements[0].node_id
    assert found == {"binpack": True, "spread": False}


def test_preemption_ends_only_much_less_important_allocations_and_as_few_as_needed() -> None:
    nodes = _nodes(1)
    jobs = [
        replace(_job(1, Resources(cpu=cpu, memory_mb=100)), id=name, name=name, priority=priority)
        for name, cpu, priority in (("low", 1500, 30), ("small", 500, 30), ("near", 1900, 45))
    ]
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
    urgent = replace(_job(1, Resources(cpu=1400, memory_mb=100)), id="urgent", name="urgent", priority=50)
    state = _state(nodes, *jobs, urgent, config=config)
    for job in jobs:
        state = apply(state, c.ApplyPlan(plan=_attempt(state, job).plan), index=state.index + 1).state
    plan = _attempt(state, urgent).plan
    ended = [state.allocs[stop.id].job_id for stop in plan.preemptions]
    assert ended == ["low"]
    assert plan.preemptions[0].description == f"Preempted by alloc ID {plan.placements[0].id}"
    assert plan.placements[0].preempted_allocations == (plan.preemptions[0].id,)


def test_the_score_of_a_preempting_placement_is_that_of_its_node_without_the_victims() -> None:
    low = replace(_job(1, Resources(cpu=3900, memory_mb=100)), id="low", name="low", priority=10)
    urgent = replace(_job(1, Resources(cpu=1000, memory_mb=100)), id="urgent", name="urgent", priority=90)
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
    state = _state(_nodes(1), low, urgent, config=config)
    state = apply(state, c.ApplyPlan(plan=_attempt(state, low).plan), index=state.index + 1).state
    (preempting,) = _attempt(state, urgent).plan.placements
    (alone,) = _placed(_nodes(1), urgent).plan.placements
    assert preempting.preempted_allocations and preempting.metrics is not None and alone.metrics is not None
    (shown,), (expected,) = preempting.metrics.score_meta_data, alone.metrics.score_meta_data
    assert shown.scores["binpack"] == expected.scores["binpack"]


@pytest.mark.parametrize("numbers", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_of_victims_that_are_not_needed_the_one_farthest_from_the_need_is_spared(numbers: tuple[int, ...]) -> None:
    urgent = replace(_job(1, Resources(cpu=3400, memory_mb=10)), priority=90)
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
    edit = _state(_nodes(1), urgent, config=config).edit(100)
    for number, cpu, priority in zip(numbers, (500, 600, 2900), (10, 10, 20), strict=True):
        low = replace(_job(1, Resources(cpu=cpu, memory_mb=10)), id=f"low-{cpu}", priority=priority)
        alloc = factories.alloc(low, on=_node(0), id=factories.number_id(number, kind=7), client_status="running")
        edit.put(Tables.allocs, alloc.id, alloc)
    state = edit.commit()
    ended = [state.allocs[stop.id].job_id for stop in _attempt(state, urgent).plan.preemptions]
    assert sorted(ended) == ["low-2900", "low-600"]


def test_victims_of_batch_jobs_are_those_that_lose_the_least_work() -> None:
    """Equal jobs on two nodes run equally long; the one that saved a minute ago makes way."""
    urgent = replace(_job(1, Resources(cpu=3000, memory_mb=10)), type="batch", priority=90)
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(batch_scheduler_enabled=True))
    for saver in range(2):
        edit = _state(_nodes(2), urgent, config=config).edit(100)
        for number in range(2):
            low = replace(_job(1, Resources(cpu=3900, memory_mb=10)), id=f"low-{number}", type="batch", priority=10)
            saved = factories.NOW - seconds(60) if number == saver else 0
            state = TaskState(
                state="running", started_at=UnixNano(factories.NOW - seconds(9000)), checkpointed_at=saved
            )
            alloc = factories.alloc(low, on=_node(number), id=factories.number_id(number, kind=7))
            alloc = replace(alloc, client_status="running", task_states={"web": state})
            edit.put(Tables.allocs, alloc.id, alloc)
        made = edit.commit()
        ended = [made.allocs[stop.id].job_id for stop in _attempt(made, urgent).plan.preemptions]
        assert ended == [f"low-{saver}"]


@pytest.mark.parametrize("target", ["distinct_hosts", "${node.datacenter}", "${node.unique.id}"])
def test_preempting_for_cores_keeps_to_the_distinct_rules(target: str) -> None:
    operand = target if target == "distinct_hosts" else "distinct_property"
    rule = Constraint(l_target="" if operand == target else target, operand=operand)
    low = replace(_job(1, Resources(cpu=4000, memory_mb=100)), id="low", name="low", priority=1)
    urgent = replace(_job(2, Resources(cpu=0, cores=1, memory_mb=100), constraints=(rule,)), priority=90)
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
    state = _state(_nodes(1), low, urgent, config=config)
    state = apply(state, c.ApplyPlan(plan=_attempt(state, low).plan), index=state.index + 1).state
    attempt = _attempt(state, urgent)
    assert len(attempt.plan.placements) == len(attempt.plan.preemptions) == 1
    assert attempt.outcome.evaluation.queued_allocations == {"web": 1}


def test_what_preemption_frees_beyond_the_need_is_used_by_the_next() -> None:
    low = replace(_job(1, Resources(cpu=0, cores=4, memory_mb=100)), id="low", name="low", priority=1)
    urgent = replace(_job(4, Resources(cpu=0, cores=1, memory_mb=100)), priority=90)
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
    state = _state(_nodes(1), low, urgent, config=config)
    state = apply(state, c.ApplyPlan(plan=_attempt(state, low).plan), index=state.index + 1).state
    plan = _attempt(state, urgent).plan
    assert len(plan.placements) == 4 and len(plan.preemptions) == 1


def test_a_host_volume_with_a_single_writer_is_held_by_one_allocation_of_a_node() -> None:
    nodes = [_node(number, host_volumes={"data": HostVolumeInfo(path="/data")}) for number in range(2)]
    alone = VolumeRequest(name="data", type="host", source="data", access_mode="single-node-single-writer")
    reader = replace(alone, read_only=True)
    attempt = _placed(nodes, _job(3, volumes={"data": alone}))
    assert len({placement.node_id for placement in attempt.plan.placements}) == 2
    assert _reasons(attempt) == {"conflicting claims for host volume with single-writer": 2}
    assert len(_placed(nodes, _job(3, volumes={"data": reader})).plan.placements) == 3


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    groups = (
        factories.group("small", count=2),
        factories.group("large", count=2, tasks=(factories.task(resources=Resources(cpu=3000, memory_mb=10)),)),
    )
    gang = factories.job(task_groups=groups, all_at_once=True)
    attempt = _placed(_nodes(1), gang)
    assert not attempt.plan.placements and not attempt.plan.stops
    assert attempt.outcome.evaluation.queued_allocations == {"small": 2, "large": 2}
    assert attempt.outcome.created[0].status == status.EVAL_BLOCKED
    assert len(_placed(_nodes(2), gang).plan.placements) == 4
    assert len(_placed(_nodes(1), replace(gang, all_at_once=False)).plan.placements) == 3


def test_without_permission_nothing_is_preempted() -> None:
    low = replace(_job(1, Resources(cpu=4000, memory_mb=100)), id="low", name="low", priority=1)
    urgent = replace(_job(1, Resources(cpu=100, memory_mb=100)), id="urgent", name="urgent", priority=90)
    state = _state(_nodes(1), low, urgent)
    state = apply(state, c.ApplyPlan(plan=_attempt(state, low).plan), index=state.index + 1).state
    plan = _attempt(state, urgent).plan
    assert not plan.placements and not plan.preemptions


def test_equal_nodes_take_turns_by_seed() -> None:
    nodes, job = _nodes(20), _job(1)
    state = _state(nodes, job)
    chosen = {_attempt(state, job, seed=seed).plan.placements[0].node_id for seed in range(12)}
    assert len(chosen) > 3


def test_a_dry_run_tells_what_a_registration_would_do() -> None:
    job = _job(3)
    state = _state(_nodes(3), job)
    state = apply(state, c.ApplyPlan(plan=_attempt(state, job).plan), index=state.index + 1).state
    changed = _job(4, Resources(cpu=200, memory_mb=128))
    annotations = scheduler.dry_run(state, changed, now=factories.NOW, seed=1).plan.annotations
    assert annotations is not None
    updates = annotations.desired_tg_updates["web"]
    assert (updates.destructive_update, updates.place, updates.ignore) == (0, 1, 3)
    changed = _job(3, Resources(cpu=200, memory_mb=128))
    annotations = scheduler.dry_run(state, changed, now=factories.NOW, seed=1).plan.annotations
    assert annotations is not None and annotations.desired_tg_updates["web"].destructive_update == 1
    same = scheduler.dry_run(state, job, now=factories.NOW, seed=1).plan
    assert same.is_empty and same.annotations is not None and same.annotations.desired_tg_updates["web"].ignore == 3


def test_an_unknown_trigger_fails_the_evaluation_with_its_name() -> None:
    evaluation = Evaluation(id="e", job_id="web", triggered_by="moon-phase")
    made = scheduler.attempt(Snapshot.empty(), evaluation, now=factories.NOW, seed=1)
    assert made.outcome.evaluation.status == status.EVAL_FAILED
    assert made.outcome.evaluation.status_description == "scheduler cannot handle 'moon-phase' evaluation reason"


def test_used_up_attempts_fail_the_evaluation_and_block_another() -> None:
    evaluation = Evaluation(id="e", job_id="web", type="service", triggered_by="job-register")
    ended = scheduler.exhausted(evaluation, seed=1, now=factories.NOW, snapshot_index=7)
    (waiting,) = ended.created
    assert ended.evaluation.status_description == "maximum attempts reached (5)"
    assert (waiting.status, waiting.triggered_by) == ("blocked", "max-plan-attempts")
    assert waiting.status_description == "created due to placement conflicts"
    assert ended.evaluation.blocked_eval == waiting.id
