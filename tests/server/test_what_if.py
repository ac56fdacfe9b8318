"""What-if: the scheduler acts on a changed copy of the state, and the state is as it was."""

from __future__ import annotations

import pytest
from yurt.fsm.snapshot import digest
from yurt.scheduler.attempts import attempt
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Duration, replace
from yurt.server.simulation.what_if import JobOutlook, Scenario, what_if
from yurt.state import Snapshot, Tables
from yurt.structs.cluster import Namespace, NodePool, PreemptionConfig, SchedulerConfiguration
from yurt.structs.commands import (
    ApplyPlan,
    RegisterJob,
    RegisterNode,
    SetSchedulerConfiguration,
    UpsertEvaluations,
    UpsertNamespaces,
    UpsertNodePools,
)
from yurt.structs.job import Job
from yurt.structs.queueing.batch_queue import HOUR, BatchQueue, FairShareQueue
from yurt.structs.quota import QuotaLimit, QuotaResources, QuotaSpec
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.replica import Replica

NOW, SLOT = factories.NOW, 1000
"""A node has four slots of so many MHz."""


def job(id: str, *, count: int = 1, slots: int = 1, **changes: object) -> Job:
    made = factories.job(id, **changes)
    group = made.task_groups[0]
    task = replace(group.tasks[0], resources=Resources(cpu=slots * SLOT, memory_mb=64))
    limit = Duration(HOUR if made.type == "batch" else 0)
    return replace(made, task_groups=(replace(group, count=count, tasks=(task,), max_run_duration=limit),))


class World:
    """A replica on which the scheduler acts at once."""

    def __init__(self, nodes: int = 2, **of_node: object) -> None:
        self.replica = Replica()
        self.nodes = [factories.node(factories.number_id(number + 1), **of_node) for number in range(nodes)]
        self.replica.apply(*(RegisterNode(node=each) for each in self.nodes))

    def run(self, *jobs: Job) -> World:
        for made in jobs:
            evaluation = factories.evaluation(made)
            self.replica.apply(RegisterJob(job=made), UpsertEvaluations(evaluations=(evaluation,)))
            found = attempt(self.replica.state, evaluation, now=NOW, seed=1)
            if not found.plan.is_empty:
                self.replica.apply(ApplyPlan(plan=found.plan))
            ended = (found.outcome.evaluation, *found.outcome.created)
            self.replica.apply(UpsertEvaluations(evaluations=ended))
        return self

    @property
    def state(self) -> Snapshot:
        return self.replica.state


def asked(world: World, **scenario: object) -> dict[str, JobOutlook]:
    """The answer by job; the state is what it was."""
    before = digest(world.state)
    found = what_if(world.state, Scenario(**scenario), now=NOW, region="global")  # type: ignore[arg-type]
    assert digest(world.state) == before
    return {one.key[1]: one for one in found}


def test_without_changes_only_what_waits_is_shown() -> None:
    world = World(nodes=1).run(job("runs", count=3), job("waits", slots=2))
    found = asked(world)
    assert set(found) == {"waits"}
    assert (found["waits"].runs, found["waits"].waits, found["waits"].waits_before) == (0, 1, 1)
    assert "cpu" in found["waits"].reason
    assert not found["waits"].is_worse


def test_more_nodes_start_what_waits() -> None:
    world = World(nodes=1).run(job("runs", count=3), job("waits", count=2, slots=4))
    found = asked(world, added=((world.nodes[0].id, 1),))
    assert (found["waits"].runs, found["waits"].waits, found["waits"].is_worse) == (1, 1, False)
    assert asked(world, added=((world.nodes[0].id, 2),))["waits"].waits == 0


def test_a_lost_node_moves_what_has_room_elsewhere() -> None:
    world = World(nodes=2).run(job("web", count=6))
    on_first = sum(alloc.node_id == world.nodes[0].id for alloc in world.state.allocs.values())
    one = asked(world, lost=(world.nodes[0].id,))["web"]
    assert (one.runs_before, one.runs, one.waits, one.lost) == (6, 4, 2, on_first)
    assert one.is_worse


def test_a_submitted_job_runs_or_waits() -> None:
    world = World(nodes=1).run(job("web", count=3))
    assert asked(world, jobs=(job("small"),))["small"].is_worse is False
    one = asked(world, jobs=(job("large", slots=2),))["large"]
    assert (one.waits, one.is_worse, one.is_submitted) == (1, True, True)


def test_what_would_be_preempted_is_named() -> None:
    world = World(nodes=1)
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
    world.replica.apply(SetSchedulerConfiguration(configuration=config))
    world.run(job("low", count=4, priority=10))
    found = asked(world, jobs=(job("high", slots=2, priority=90),))
    assert (found["high"].runs, found["high"].waits) == (1, 0)
    assert (found["low"].preempted, found["low"].runs, found["low"].waits) == (2, 2, 2)
    assert found["low"].is_worse


def test_a_quota_that_would_be_raised_starts_what_it_held_back() -> None:
    def quota(cpu: int) -> QuotaSpec:
        return QuotaSpec(name="q", limits=(QuotaLimit(region="global", region_limit=QuotaResources(cpu=cpu)),))

    world = World(nodes=1)
    edit = world.state.edit(world.state.index + 1)
    edit.put(Tables.quotas, "q", quota(1 * SLOT))
    world.replica.state = edit.commit()
    world.replica.apply(UpsertNamespaces(namespaces=(Namespace(name="team", quota="q"),)))
    wants = job("wants", count=2, namespace="team")
    one = asked(world, jobs=(wants,))["wants"]
    assert (one.runs, one.waits, one.reason) == (1, 1, 'quota "q" is used up')
    assert asked(world, jobs=(wants,), quotas=(quota(2 * SLOT),))["wants"].waits == 0


def test_jobs_of_a_queue_start_in_its_order_with_expected_starts() -> None:
    world = World(nodes=1, node_pool="gpu")
    queue = BatchQueue(fair_share=FairShareQueue())
    world.replica.apply(UpsertNodePools(pools=(NodePool(name="gpu", batch_queue=queue),), now=NOW))
    batch = {"type": "batch", "node_pool": "gpu"}
    world.run(job("runs", slots=3, **batch))
    jobs = (job("first", slots=4, **batch), job("short", **batch), job("last", slots=4, **batch))
    found = asked(world, jobs=jobs)
    assert (found["short"].runs, found["first"].waits, found["last"].waits) == (1, 1, 1)
    assert NOW < found["first"].expected_start < found["last"].expected_start


def test_a_node_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(Invalid, match='node "none" does not exist'):
        asked(World(), lost=("none",))
    world = World()
    with pytest.raises(Invalid, match="0 nodes cannot be added"):
        asked(world, added=((world.nodes[0].id, 0),))
