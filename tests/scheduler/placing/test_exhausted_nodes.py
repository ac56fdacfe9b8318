"""Metrics of placements count the nodes that were ruled out for lack of room, at the moment of each placement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.explain import why
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.cluster import PreemptionConfig, SchedulerConfiguration
from yurt.structs.constraint import Constraint
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import Node
from yurt.structs.resources import Resources
from yurt.testing import factories

ETH0 = NetworkResource(mode="host", device="eth0", ip="10.0.0.1")
HALF, WHOLE = Resources(cpu=2000, memory_mb=64), Resources(cpu=3900, memory_mb=64)
NOTHING: Mapping[str, Any] = {}


def _node(number: int) -> Node:
    made = factories.node(factories.number_id(number, kind=1), node_class="ab"[number % 2])
    return replace(made, node_resources=replace(made.node_resources, networks=(ETH0,)))


def _state(nodes: int, config: SchedulerConfiguration | None = None) -> Snapshot:
    state = Snapshot.empty()
    made: list[c.AnyCommand] = [c.RegisterNode(node=_node(number)) for number in range(nodes)]
    if config is not None:
        made.append(c.SetSchedulerConfiguration(configuration=config))
    for command in made:
        state = apply(state, command, index=state.index + 1).state
    return state


def _job(count: int, resources: Resources, job: Mapping[str, Any] = NOTHING, **group: Any) -> Job:
    task = factories.task(resources=resources)
    return factories.job(task_groups=(factories.group(count=count, tasks=(task,), **group),), **job)


def _placed(state: Snapshot, job: Job) -> tuple[Snapshot, list[AllocationMetric]]:
    """The state with the job, and the metrics of its placements in order."""
    state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state
    evaluation = Evaluation(id=f"eval-{job.id}", job_id=job.id, type=job.type, triggered_by="job-register")
    plan = scheduler.attempt(state, evaluation, now=factories.NOW, seed=1).plan
    found = [placement.metrics for placement in plan.placements if placement.metrics is not None]
    return apply(state, c.ApplyPlan(plan=plan), index=state.index + 1).state, found


def _dimensions(metrics: list[AllocationMetric]) -> list[dict[str, int]]:
    return [dict(metric.dimension_exhausted) for metric in metrics]


def test_each_placement_tells_how_many_nodes_had_filled_up_before_it() -> None:
    _, metrics = _placed(_state(3), _job(3, WHOLE))
    assert [metric.nodes_exhausted for metric in metrics] == [0, 1, 2]
    assert _dimensions(metrics) == [{}, {"cpu": 1}, {"cpu": 2}]
    assert [sum(metric.class_exhausted.values()) for metric in metrics] == [0, 1, 2]


def test_what_other_jobs_fill_counts_from_the_first_placement_on() -> None:
    state, _ = _placed(_state(4), replace(_job(2, WHOLE), id="other"))
    _, metrics = _placed(state, _job(2, HALF))
    assert [metric.nodes_exhausted for metric in metrics] == [2, 2]
    later, _ = _placed(state, replace(_job(1, HALF), id="between"))
    assert [metric.nodes_exhausted for metric in _placed(later, _job(2, HALF))[1]] == [2, 3]


def test_placements_between_which_no_node_fills_up_share_what_they_tell() -> None:
    _, metrics = _placed(_state(8), _job(20, Resources(cpu=500, memory_mb=64)))
    assert len({metric.nodes_exhausted for metric in metrics}) < len({id(metric) for metric in metrics}) == 20
    assert len({id(m.dimension_exhausted) for m in metrics}) == len({m.nodes_exhausted for m in metrics})


def test_nodes_that_refuse_a_port_are_exhausted_by_it() -> None:
    static = (NetworkResource(mode="host", reserved_ports=(Port(label="http", value=80),)),)
    state, _ = _placed(_state(3), replace(_job(1, HALF, networks=static), id="other"))
    _, metrics = _placed(state, _job(2, Resources(cpu=100, memory_mb=64), networks=static))
    assert _dimensions(metrics) == [{"network: reserved port collision http=80": 1}] * 2


def test_what_a_distinct_rule_refuses_is_filtered_and_not_exhausted() -> None:
    state, _ = _placed(_state(4), replace(_job(1, WHOLE), id="other"))
    rule = Constraint(operand="distinct_hosts")
    _, metrics = _placed(state, _job(3, HALF, job={"constraints": (rule,)}))
    assert _dimensions(metrics) == [{"cpu": 1}] * 3
    assert [metric.constraint_filtered.get("distinct_hosts", 0) for metric in metrics] == [0, 1, 2]
    assert [metric.nodes_filtered for metric in metrics] == [0, 1, 2]


def test_one_that_preempts_counts_only_nodes_on_which_even_that_does_not_help() -> None:
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
    state, _ = _placed(_state(3, config), replace(_job(1, WHOLE), id="peer", priority=85))
    state, _ = _placed(state, replace(_job(2, WHOLE), id="low", priority=20))
    _, metrics = _placed(state, _job(2, HALF, job={"priority": 90}))
    assert _dimensions(metrics) == [{"cpu": 1}, {"cpu": 2}]


def test_a_system_allocation_is_told_of_its_own_node_alone() -> None:
    state, _ = _placed(_state(3), replace(_job(1, WHOLE), id="other"))
    state, metrics = _placed(state, _job(1, HALF, job={"type": "system"}))
    assert [metric.nodes_exhausted for metric in metrics] == [0, 0]
    alloc = state.allocs_of_job("default", "web")[0]
    told = f"node {alloc.node_name} has one, as has every node that can: it is of a system job"
    assert why(state, alloc, seed=1).text == told


def test_a_system_job_that_fails_on_several_nodes_tells_all_that_ran_out_on_any_of_them() -> None:
    slow, small = _node(1), _node(2)
    slow = _with(slow, cpu=replace(slow.node_resources.cpu, cpu_shares=100))
    small = _with(small, memory=replace(small.node_resources.memory, memory_mb=10))
    state = Snapshot.empty()
    job = _job(1, Resources(cpu=500, memory_mb=300), job={"type": "system"})
    commands: list[c.AnyCommand] = [*(c.RegisterNode(node=node) for node in (slow, small)), c.RegisterJob(job=job)]
    for command in commands:
        state = apply(state, command, index=state.index + 1).state
    evaluation = Evaluation(id="e", job_id=job.id, type="system", triggered_by="job-register")
    outcome = scheduler.attempt(state, evaluation, now=factories.NOW, seed=1).outcome
    failed = outcome.evaluation.failed_tg_allocs["web"]
    asked = failed.resources_exhausted["web"]
    assert (asked.cpu, asked.memory_mb, asked.disk_mb) == (500, 300, 0)
    assert (failed.coalesced_failures, failed.nodes_exhausted, failed.nodes_evaluated) == (1, 2, 2)
    assert dict(failed.dimension_exhausted) == {"cpu": 1, "memory": 1}
    assert dict(failed.class_exhausted) == {"a": 1, "b": 1}


def _with(node: Node, **resources: Any) -> Node:
    return replace(node, node_resources=replace(node.node_resources, **resources))


def test_why_an_allocation_is_on_its_node_counts_full_nodes_as_ruled_out() -> None:
    state, _ = _placed(_state(3), replace(_job(2, WHOLE), id="other"))
    state, _ = _placed(state, _job(1, HALF))
    (alloc,) = state.allocs_of_job("default", "web")
    found = why(state, alloc, seed=1)
    assert found.text.startswith(f"node {alloc.node_name} was chosen of 3 that were looked at, 2 of them ruled out")
