"""What operators set: preemption by type of job, oversubscribed memory, algorithms of node pools; and sticky disks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.attempts import Attempt
from yurt.sdk.value import replace, seconds
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.cluster import NodePool, NodePoolSchedulerConfiguration, PreemptionConfig, SchedulerConfiguration
from yurt.structs.constraint import Affinity
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.resources import EphemeralDisk, Resources
from yurt.testing import factories

KINDS = ("service", "batch", "system", "sysbatch")
SWITCHES = {
    "service": "service_scheduler_enabled",
    "batch": "batch_scheduler_enabled",
    "system": "system_scheduler_enabled",
    "sysbatch": "sys_batch_scheduler_enabled",
}


def _node(number: int, pool: str = "default") -> Node:
    return factories.node(factories.number_id(number, kind=1), node_pool=pool)


def _job(name: str, resources: Resources, **changes: Any) -> Job:
    group = {name: changes.pop(name) for name in ("count", "ephemeral_disk") if name in changes}
    made = factories.group(tasks=(factories.task(resources=resources),), update=None, **group)
    return factories.job(name, task_groups=(made,), **changes)


def _with(state: Snapshot, *made: c.AnyCommand) -> Snapshot:
    for command in made:
        state = apply(state, command, index=state.index + 1).state
    return state


def _state(nodes: Sequence[Node], config: SchedulerConfiguration | None = None, *pools: NodePool) -> Snapshot:
    state = _with(Snapshot.empty(), c.UpsertNodePools(pools=pools))
    if config is not None:
        state = _with(state, c.SetSchedulerConfiguration(configuration=config))
    return _with(state, *(c.RegisterNode(node=node) for node in nodes))


def _attempt(state: Snapshot, job: Job) -> Attempt:
    evaluation = Evaluation(id=f"eval-{job.id}", job_id=job.id, type=job.type, triggered_by="job-register")
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=1)


def _placed(state: Snapshot, job: Job) -> tuple[Snapshot, Attempt]:
    state = _with(state, c.RegisterJob(job=job))
    made = _attempt(state, job)
    return (state if made.plan.is_empty else _with(state, c.ApplyPlan(plan=made.plan))), made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_on", [True, False])
def test_each_type_of_job_preempts_as_its_own_switch_says(kind: str, is_on: bool) -> None:
    switches = {switch: (name == kind) is is_on for name, switch in SWITCHES.items()}
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(**switches))
    state, _ = _placed(_state([_node(1)], config), _job("low", Resources(cpu=3000, memory_mb=64), priority=20))
    _, made = _placed(state, _job("high", Resources(cpu=3000, memory_mb=64), priority=80, type=kind))
    assert (len(made.plan.placements), len(made.plan.preemptions)) == ((1, 1) if is_on else (0, 0))


def test_only_system_jobs_preempt_when_nothing_is_set() -> None:
    for kind in KINDS:
        state, _ = _placed(_state([_node(1)]), _job("low", Resources(cpu=3000, memory_mb=64), priority=20))
        _, made = _placed(state, _job("high", Resources(cpu=3000, memory_mb=64), priority=80, type=kind))
        assert bool(made.plan.preemptions) is (kind == "system")


@pytest.mark.parametrize(
    ("everywhere", "in_pool", "granted"), [(False, None, 0), (True, None, 900), (True, False, 0), (False, True, 900)]
)
def test_a_pool_overrides_whether_memory_is_oversubscribed(
    everywhere: bool, in_pool: bool | None, granted: int
) -> None:
    override = NodePoolSchedulerConfiguration(memory_oversubscription_enabled=in_pool)
    pool = NodePool(name="gpu", scheduler_configuration=override)
    config = SchedulerConfiguration(memory_oversubscription_enabled=everywhere)
    job = _job("web", Resources(cpu=100, memory_mb=300, memory_max_mb=900), node_pool="gpu")
    state, made = _placed(_state([_node(1, "gpu")], config, pool), job)
    (placement,) = made.plan.placements
    assert placement.resources.tasks["web"].memory.memory_max_mb == granted
    used = state.columns.used[state.columns.rows[placement.node_id]]
    assert used[1] == 300, "what is reserved is the memory that is asked for, not the most"


@pytest.mark.parametrize(
    ("everywhere", "in_pool", "is_spread"),
    [("binpack", "", False), ("spread", "", True), ("spread", "binpack", False), ("binpack", "spread", True)],
)
def test_a_pool_overrides_the_algorithm(everywhere: str, in_pool: str, is_spread: bool) -> None:
    pool = NodePool(name="gpu", scheduler_configuration=NodePoolSchedulerConfiguration(scheduler_algorithm=in_pool))
    config = SchedulerConfiguration(scheduler_algorithm=everywhere)
    state = _state([_node(number, "gpu") for number in range(3)], config, pool)
    first = _job("first", Resources(cpu=1000, memory_mb=1000), node_pool="gpu")
    state, made = _placed(state, first)
    _, second = _placed(state, replace(first, id="second", name="second"))
    is_apart = made.plan.placements[0].node_id != second.plan.placements[0].node_id
    assert is_apart is is_spread


def test_a_sticky_disk_brings_the_next_version_to_the_same_nodes_while_there_is_room() -> None:
    sticky = EphemeralDisk(size_mb=300, sticky=True)
    state = _state([_node(number) for number in range(6)])
    old = _job("web", Resources(cpu=500, memory_mb=64), count=3, ephemeral_disk=sticky)
    state, made = _placed(state, old)
    before = {placement.name: placement.node_id for placement in made.plan.placements}
    filler = _job("filler", Resources(cpu=3000, memory_mb=64), count=3)
    state, _ = _placed(state, filler)
    _, made = _placed(state, _job("web", Resources(cpu=600, memory_mb=64), count=3, ephemeral_disk=sticky))
    after = {placement.name: placement.node_id for placement in made.plan.placements}
    assert after == before
    _, loose = _placed(state, _job("web", Resources(cpu=3500, memory_mb=64), count=3, ephemeral_disk=sticky))
    assert {p.node_id for p in loose.plan.placements}, "one that no longer fits there goes elsewhere"


def test_the_longest_run_of_a_batch_job_is_changed_in_place() -> None:
    state = _state([_node(1)])
    job = _job("work", Resources(cpu=100, memory_mb=64), type="batch")
    state, _ = _placed(state, job)
    longer = replace(job, task_groups=(replace(job.task_groups[0], max_run_duration=seconds(60)),))
    _, made = _placed(state, longer)
    assert len(made.plan.in_place) == 1 and not made.plan.placements


@pytest.mark.parametrize("kind", ["system", "sysbatch"])
def test_the_score_of_a_system_job_tells_of_its_node_alone(kind: str) -> None:
    fast = Affinity(l_target="${node.class}", operand="=", r_target="fast", weight=50)
    switches = PreemptionConfig(system_scheduler_enabled=True, sys_batch_scheduler_enabled=True)
    state = _state([_node(1), _node(2)], SchedulerConfiguration(preemption_config=switches))
    job = _job("everywhere", Resources(cpu=1000, memory_mb=100), type=kind, affinities=(fast,), priority=80)
    state, made = _placed(state, job)
    for placement in made.plan.placements:
        assert placement.metrics is not None
        (row,) = placement.metrics.score_meta_data
        assert (row.node_id, list(row.scores)) == (placement.node_id, ["binpack"])
        assert row.norm_score == row.scores["binpack"]
    state, made = _placed(
        state,
        replace(
            job,
            id="more",
            name="more",
            priority=100,
            task_groups=_job("x", Resources(cpu=3500, memory_mb=100)).task_groups,
        ),
    )
    (row, _) = [p.metrics.score_meta_data[0] for p in made.plan.placements if p.metrics is not None]
    assert len(made.plan.preemptions) == 2 and list(row.scores) == ["binpack", "preemption"]
    assert made.plan.annotations is not None and made.plan.annotations.desired_tg_updates["web"].preemptions == 2
    assert row.norm_score == pytest.approx(sum(row.scores.values()) / 2)
