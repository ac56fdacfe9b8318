"""The plan check of plans that reclaim: a part that is dropped takes with it what relied on its victims."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.fsm import apply
from yurt.scheduler.plan_check import check_plan
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.cluster import Namespace
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, Placement, Plan
from yurt.structs.policies import Gang
from yurt.structs.quota import QuotaSpec
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.quotas import QUOTAS, guaranteed, quota

NODES = tuple(factories.node(factories.number_id(number, kind=1)) for number in range(3))
"""Of 8,192 MB each."""
PROTECTION = seconds(60)
LATER = UnixNano(factories.NOW + PROTECTION)


def after(state: Snapshot, *made: c.AnyCommand) -> Snapshot:
    for command in made:
        step = apply(state, command, index=state.index + 1)
        assert isinstance(step.result, c.Applied), step.result
        state = step.state
    return state


def cluster(**of_b: Any) -> Snapshot:
    """Namespaces "a" and "b" with quotas of a parent of 8,000 MB, of which 2,000 are guaranteed to "b"."""
    specs = (
        quota("top", memory_mb=8000),
        replace(quota("a", cpu=4000, parent="top"), protection=PROTECTION),
        guaranteed(quota("b", parent="top", **of_b), memory_mb=2000),
    )
    return after(
        Snapshot.empty(),
        *(c.RegisterNode(node=node) for node in NODES),
        c.UpsertQuotas(quotas=specs),
        c.UpsertNamespaces(namespaces=(Namespace(name="a", quota="a"), Namespace(name="b", quota="b"))),
    )


def job_of(name: str, namespace: str, **of_group: Any) -> Job:
    group = factories.group(update=None, **of_group)
    return factories.job(name, namespace=namespace, type="batch", task_groups=(group,))


def placed(job: Job, node: int, index: int, memory_mb: int, cpu: int = 10) -> Placement:
    task = factories.task(resources=Resources(cpu=cpu, memory_mb=memory_mb))
    sized = factories.allocated(factories.group(tasks=(task,)))
    return factories.placement(job, on=NODES[node], index=index, resources=sized)


def plan_of(job: Job, *placements: Placement, **changes: Any) -> Plan:
    return Plan(
        eval_id="e", namespace=job.namespace, job_id=job.id, placements=placements, **{"now": factories.NOW} | changes
    )


def reclaims(victim: Placement, by: Placement) -> AllocStop:
    return AllocStop(
        id=victim.id, node_id=victim.node_id, desired_status="evict", preempted_by=by.id, reclaimed_for="b"
    )


def test_limits_are_asked_again_after_guarantees_have_dropped_a_part() -> None:
    """Without the stop on node 0, node 1 is beyond its guarantee, and without its victim node 2 beyond the limit."""
    borrower, owner = job_of("borrower", "a"), job_of("owner", "b")
    state = after(cluster(cpu=1000), c.RegisterJob(job=borrower), c.RegisterJob(job=owner))
    lent = [placed(borrower, node, node, 2000) for node in range(3)]
    old = placed(owner, 0, 0, 2000)
    state = after(state, c.ApplyPlan(plan=plan_of(borrower, *lent)), c.ApplyPlan(plan=plan_of(owner, old)))
    large, first, second = placed(owner, 0, 0, 0, cpu=2000), placed(owner, 1, 1, 1000), placed(owner, 2, 2, 1000)
    plan = plan_of(
        owner,
        *(replace(large, previous_allocation=old.id), first, second),
        stops=(AllocStop(id=old.id, node_id=old.node_id, desired_status="stop"),),
        preemptions=(reclaims(lent[1], first),),
        now=LATER,
    )
    result = check_plan(state, plan, QUOTAS)
    assert (result.accepted.placements, result.accepted.preemptions) == ((), ())
    assert {node.id: result.rejected_nodes[node.id].partition(":")[0] for node in NODES} == {
        NODES[0].id: "quota b", NODES[1].id: "quota guarantee", NODES[2].id: "quota top",
    }  # fmt: skip


@pytest.mark.parametrize("dropped_by", ["node", "guarantee", "nothing"])
def test_a_node_on_which_a_dropped_placements_victim_goes_on_takes_nothing_in_its_place(dropped_by: str) -> None:
    """A gang of two nodes ends for a placement on the first; another placement counts on what the second frees."""
    gang, owner = job_of("gang", "a", count=2, gang=Gang(min=2)), job_of("owner", "b")
    other = job_of("other", "default")
    state = after(cluster(memory_mb=8000), *(c.RegisterJob(job=job) for job in (gang, owner, other)))
    members = [placed(gang, node, node, 4000) for node in range(2)]
    state = after(
        state,
        c.ApplyPlan(plan=plan_of(gang, *members)),
        c.ApplyPlan(plan=plan_of(other, placed(other, 1, 0, 4000))),
    )
    first, second = placed(owner, 0, 0, 1000), placed(owner, 1, 1, 1000)
    plan = plan_of(
        owner,
        *(first, second),
        preemptions=tuple(reclaims(member, first) for member in members),
        now=LATER - (dropped_by == "guarantee"),
    )
    if dropped_by == "node":
        state = after(state, c.SetNodeEligibility(node_id=NODES[0].id, eligibility="ineligible"))
    result = check_plan(state, plan, QUOTAS)
    if dropped_by == "nothing":
        assert result.is_full and result.accepted.guarantees_of == "global"
    else:
        assert (result.accepted.placements, result.rejected_nodes[NODES[1].id]) == ((), "memory")


@pytest.mark.parametrize("specs", [(), (quota("a"),), (guaranteed(quota("a"), memory_mb=1),)])
def test_apply_builds_no_columnar_view_for_what_is_guaranteed_to_nobody(specs: tuple[QuotaSpec, ...]) -> None:
    """A preemption by priority; the view of all allocations would block the server's loop."""
    low, urgent = job_of("low", "default"), job_of("urgent", "default")
    state = after(Snapshot.empty(), *(c.RegisterNode(node=node) for node in NODES), c.UpsertQuotas(quotas=specs))
    victim = placed(low, 0, 0, 1000)
    state = after(state, *(c.RegisterJob(job=job) for job in (low, urgent)), c.ApplyPlan(plan=plan_of(low, victim)))
    by = placed(urgent, 0, 0, 1000)
    preempted = replace(reclaims(victim, by), reclaimed_for="")
    plan = plan_of(urgent, by, preemptions=(preempted,), guarantees_of="global")
    bare = Snapshot(state.index, state._tables)
    after(bare, c.ApplyPlan(plan=plan))
    assert bare._columns is None


@pytest.mark.parametrize("cpu", [20, 100])
def test_a_borrower_gives_nothing_back_that_takes_it_further_below_another_guarantee(cpu: int) -> None:
    """It uses 30 MHz: above a guarantee of 20, below one of 100; of memory it uses three times its guarantee."""
    borrower, owner = job_of("borrower", "a"), job_of("owner", "b")
    spec = guaranteed(quota("a", parent="top"), cpu=cpu, memory_mb=2000)
    state = after(cluster(), c.UpsertQuotas(quotas=(spec,)), *(c.RegisterJob(job=job) for job in (borrower, owner)))
    lent = [placed(borrower, node, node, 2000) for node in range(3)]
    state = after(state, c.ApplyPlan(plan=plan_of(borrower, *lent)))
    first = placed(owner, 0, 0, 1000)
    now = UnixNano(factories.NOW + seconds(600))
    result = check_plan(state, plan_of(owner, first, preemptions=(reclaims(lent[0], first),), now=now), QUOTAS)
    assert result.is_full == (cpu == 20)
    assert cpu == 20 or "is within a guarantee" in result.rejected_nodes[NODES[0].id]
