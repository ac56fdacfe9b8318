"""Guarantees of quotas: what is lent is reclaimed, from borrowers alone, and no history of plans breaks a promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yurt import scheduler
from yurt.broker import cut_plan
from yurt.fsm import apply
from yurt.scheduler.capacity.guarantee_usage import QuotaHoldings
from yurt.scheduler.capacity.guarantees import Guarantees
from yurt.scheduler.placing.reclaim import ReclaimSearch
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Snapshot
from yurt.state.quota_totals import members_of
from yurt.state.quota_tree import tree_of
from yurt.state.usage import is_using
from yurt.structs import commands as c
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.cluster import Namespace, PreemptionConfig, SchedulerConfiguration
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import Plan
from yurt.structs.policies import Gang
from yurt.structs.predicates import alloc_index, eval_type, is_terminal
from yurt.structs.quota import QuotaSpec
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.rules import RULES_VERSION
from yurt.testing import factories
from yurt.testing.cluster_models.pending_jobs import node as sized_node
from yurt.testing.cluster_models.pending_jobs import with_gpus
from yurt.testing.nightly import cases
from yurt.testing.quotas import QUOTAS, guaranteed, quota

PROTECTION = seconds(60)
LATER = UnixNano(factories.NOW + PROTECTION)


def cards(count: int) -> tuple[RequestedDevice, ...]:
    return (RequestedDevice(name="nvidia/gpu", count=count),)


def share(name: str, guarantee: int, *, limit: int = 8, parent: str = "") -> QuotaSpec:
    """A quota of GPUs with a protection of a minute."""
    spec = replace(quota(name, parent=parent, devices=cards(limit)), protection=PROTECTION)
    return guaranteed(spec, devices=cards(guarantee)) if guarantee else spec


def after(state: Snapshot, *made: c.AnyCommand) -> Snapshot:
    for command in made:
        step = apply(state, replace(command, rules_version=RULES_VERSION), index=state.index + 1)
        assert isinstance(step.result, c.Applied), step.result
        state = step.state
    return state


def cluster(*specs: QuotaSpec, nodes: Sequence[int] = (8,)) -> Snapshot:
    """Nodes with GPUs, and namespaces called as the quotas that they name."""
    made: list[c.AnyCommand] = [
        c.RegisterNode(node=with_gpus(sized_node(number), count)) for number, count in enumerate(nodes)
    ]
    namespaces = tuple(Namespace(name=spec.name, quota=spec.name) for spec in specs)
    return after(Snapshot.empty(), *made, c.UpsertQuotas(quotas=specs), c.UpsertNamespaces(namespaces=namespaces))


def job_of(name: str, namespace: str, count: int = 1, gpus: int = 1, **changes: Any) -> Job:
    task = factories.task(resources=Resources(cpu=10, memory_mb=10, devices=cards(gpus) if gpus else ()))
    group = factories.group(count=count, tasks=(task,), update=None, gang=changes.pop("gang", None))
    return factories.job(name, namespace=namespace, task_groups=(group,), **{"type": "batch", **changes})


def attempt(state: Snapshot, job: Job, now: int = LATER) -> scheduler.Attempt:
    evaluation = Evaluation(
        id=f"eval-{job.id}-{state.index}", namespace=job.namespace, job_id=job.id, type=eval_type(job),
        triggered_by="job-register",
    )  # fmt: skip
    return scheduler.attempt(state, evaluation, now=UnixNano(now), seed=1, limits=QUOTAS)


def run(state: Snapshot, job: Job, now: int = factories.NOW) -> tuple[Snapshot, Plan]:
    """Register a job, attempt it and store what the plan check accepts."""
    state = after(state, c.RegisterJob(job=job))
    result = scheduler.check_plan(state, attempt(state, job, now).plan, QUOTAS)
    assert result.is_full, result.rejected_nodes
    if not result.accepted.is_empty:
        state = after(state, c.ApplyPlan(plan=result.accepted, checked_at=state.index))
    return state, result.accepted


def ended(state: Snapshot, *allocs: Allocation) -> Snapshot:
    """Their clients told the end."""
    return after(state, c.UpdateAllocsFromClient(updates=tuple(
        c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete") for alloc in allocs
    ))) if allocs else state  # fmt: skip


def victims(state: Snapshot, plan: Plan) -> list[str]:
    return [state.allocs[stop.id].job_id for stop in plan.preemptions]


def held(state: Snapshot, quota_name: str) -> int:
    """The GPUs of what stays, counted one by one."""
    members = members_of(state, quota_name)
    found = [alloc for alloc in state.allocs.values() if alloc.namespace in members and not is_terminal(alloc)]
    return sum(gpus_of(alloc) for alloc in found)


def gpus_of(alloc: Allocation) -> int:
    return sum(len(each.device_ids) for task in alloc.allocated_resources.tasks.values() for each in task.devices)


def test_what_is_lent_is_reclaimed_and_the_stop_says_for_whom() -> None:
    state, _ = run(cluster(share("a", 4), share("b", 4)), job_of("borrower", "a", 8))
    state, plan = run(state, job_of("owner", "b", 3), LATER)
    assert (len(plan.placements), victims(state, plan), held(state, "a")) == (3, ["borrower"] * 3, 5)
    stop = plan.preemptions[0]
    assert (stop.reclaimed_for, plan.guarantees_of) == ("b", "global")
    assert state.allocs[stop.id].desired_description.startswith('Reclaimed for the guarantee of quota "b" by alloc ID')


def test_a_guarantee_of_the_borrower_is_kept_and_so_is_the_entitled_ones() -> None:
    state, _ = run(cluster(share("a", 4), share("b", 4)), job_of("borrower", "a", 8))
    state, plan = run(state, job_of("owner", "b", 6), LATER)
    assert (len(plan.placements), held(state, "a"), held(state, "b")) == (4, 4, 4)
    state, plan = run(state, job_of("more", "b"), LATER + PROTECTION)
    assert (plan.placements, plan.preemptions) == ((), ()), "beyond its guarantee it borrows, and reclaims nothing"


def test_what_ends_already_is_not_counted_as_held() -> None:
    """The clients have not ended the first victims when the second job comes."""
    state, _ = run(cluster(share("a", 4), share("b", 4)), job_of("borrower", "a", 8))
    for number in range(4):
        state, plan = run(state, job_of(f"owner-{number}", "b"), LATER)
        assert len(plan.preemptions) == 1
    state, plan = run(state, job_of("third", "b"), LATER)
    assert (plan.placements, held(state, "a"), held(state, "b")) == ((), 4, 4)


def test_a_borrower_is_protected_for_a_time_after_its_start() -> None:
    state, _ = run(cluster(share("a", 4), share("b", 4)), job_of("borrower", "a", 8))
    early = attempt(after(state, c.RegisterJob(job=job_of("owner", "b"))), job_of("owner", "b"), LATER - 1)
    assert not early.plan.placements
    again = [each for each in early.outcome.created if each.status == "pending"]
    assert [each.wait_until for each in again] == [LATER], "an evaluation comes when the protection ends"
    _, plan = run(state, job_of("owner", "b"), LATER)
    assert len(plan.placements) == 1


@pytest.mark.parametrize("jump", [-(10**18), 10**18])
def test_a_start_by_a_wrong_clock_protects_no_longer_than_any_other(jump: int) -> None:
    state, _ = run(cluster(share("a", 4), share("b", 4)), job_of("borrower", "a", 8), factories.NOW + jump)
    _, plan = run(state, job_of("owner", "b"), LATER)
    assert len(plan.placements) == 1


def test_the_least_work_is_lost() -> None:
    state, _ = run(cluster(share("a", 0), share("b", 4)), job_of("old", "a", 4), factories.NOW - seconds(1000))
    state, _ = run(state, job_of("young", "a", 4), factories.NOW)
    running = tuple(
        c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="running", task_states={
            "web": TaskState(state="running", started_at=alloc.create_time)})
        for alloc in state.allocs.values()
    )  # fmt: skip
    state = after(state, c.UpdateAllocsFromClient(updates=running))
    state, plan = run(state, job_of("owner", "b", 4), LATER)
    assert victims(state, plan) == ["young"] * 4


def test_a_service_of_a_namespace_without_a_quota_is_not_reclaimed_and_a_batch_job_is() -> None:
    state = cluster(share("b", 4))
    state, _ = run(state, job_of("service", "default", 8, type="service"))
    assert not attempt(after(state, c.RegisterJob(job=job_of("owner", "b"))), job_of("owner", "b")).plan.placements
    state, _ = run(cluster(share("b", 4)), job_of("batch", "default", 8))
    _, plan = run(state, job_of("owner", "b", type="service"), factories.NOW + seconds(600))
    assert len(plan.preemptions) == 1, "a namespace without a quota has the default protection"


def test_a_gang_ends_as_a_whole_where_too_few_of_it_would_remain() -> None:
    state, _ = run(cluster(share("a", 0), share("b", 4), nodes=(4, 4)), job_of("gang", "a", 8, gang=Gang(min=8)))
    state, plan = run(state, job_of("owner", "b"), LATER)
    assert victims(state, plan) == ["gang"] * 8 and len({stop.preempted_by for stop in plan.preemptions}) == 1


def test_a_gang_is_not_reclaimed_where_its_end_would_break_a_guarantee() -> None:
    state, _ = run(cluster(share("a", 2), share("b", 4)), job_of("gang", "a", 8, gang=Gang(min=8)))
    _, plan = run(state, job_of("owner", "b"), LATER)
    assert not plan.placements


def test_a_limit_above_makes_room_by_reclaim() -> None:
    """The nodes have room; the parent's limit has none."""
    specs = (share("top", 0), share("a", 4, parent="top"), share("b", 4, parent="top"))
    state, _ = run(cluster(*specs, nodes=(16,)), job_of("borrower", "a", 8))
    state, plan = run(state, job_of("owner", "b", 2), LATER)
    assert (len(plan.placements), len(plan.preemptions), held(state, "top")) == (2, 2, 8)


def test_a_team_reclaims_within_the_guarantee_of_its_department_from_outside_of_it_alone() -> None:
    specs = (share("dept", 6), share("x", 2, parent="dept"), share("y", 2, parent="dept"), share("other", 1))
    state, _ = run(cluster(*specs), job_of("sibling", "y", 3))
    state, _ = run(state, job_of("borrower", "other", 5))
    state, plan = run(state, job_of("owner", "x", 5), LATER)
    assert sorted(victims(state, plan)) == ["borrower", "borrower", "borrower", "sibling"]
    assert [stop.reclaimed_for for stop in plan.preemptions] == ["x", "x", "dept", "dept"]
    assert (held(state, "x"), held(state, "y"), held(state, "dept")) == (4, 2, 6), "the fifth is beyond both"


def test_a_priority_takes_nothing_that_is_guaranteed_to_another() -> None:
    state = after(
        cluster(share("a", 4), share("b", 0)),
        c.SetSchedulerConfiguration(configuration=SchedulerConfiguration(
            preemption_config=PreemptionConfig(batch_scheduler_enabled=True))),
    )  # fmt: skip
    state, _ = run(state, job_of("owner", "a", 8, priority=10))
    state, plan = run(state, job_of("urgent", "b", 8, priority=90), LATER)
    assert (len(plan.placements), held(state, "a")) == (4, 4)
    assert {stop.reclaimed_for for stop in plan.preemptions} == {""}


def test_apply_refuses_a_reclaim_whose_victim_came_to_be_within_its_guarantee() -> None:
    """A client tells an end between the check and the command: one more would be below the guarantee."""
    state, _ = run(cluster(share("a", 7), share("b", 1)), job_of("borrower", "a", 8))
    owner = job_of("owner", "b")
    state = after(state, c.RegisterJob(job=owner))
    plan = scheduler.check_plan(state, attempt(state, owner).plan, QUOTAS).accepted
    (victim,) = (stop.id for stop in plan.preemptions)
    other = next(alloc for alloc in state.allocs.values() if alloc.id != victim)
    changed = ended(state, other)
    step = apply(changed, c.ApplyPlan(plan=plan, checked_at=state.index), index=changed.index + 1)
    assert isinstance(step.result, c.Rejected) and step.result.kind == "stale"
    assert "is within a guarantee" in step.result.message
    assert (
        apply(state, c.ApplyPlan(plan=plan, checked_at=state.index), index=state.index + 1).result.__class__
        is c.Applied
    )


def two_reclaims() -> tuple[Snapshot, Plan]:
    """A checked plan that reclaims two allocations for quota "b"."""
    state, _ = run(cluster(share("a", 4), share("b", 4)), job_of("borrower", "a", 8))
    owner = job_of("owner", "b", 2)
    state = after(state, c.RegisterJob(job=owner))
    plan = scheduler.check_plan(state, attempt(state, owner).plan, QUOTAS).accepted
    assert len(plan.preemptions) == 2
    return state, plan


@pytest.mark.parametrize("is_staged", [True, False])
def test_a_quota_that_is_gone_with_the_victim_reclaims_nothing_and_stops_no_server(*, is_staged: bool) -> None:
    """The quota is deleted and the client tells an end between the check and the command."""
    state, plan = two_reclaims()
    first, last = plan.preemptions
    plan = replace(plan, preemptions=(first,), placements=tuple(
        replace(each, preempted_allocations=()) if each.id == last.preempted_by else each for each in plan.placements
    ))  # fmt: skip
    state = after(state, c.UpsertNamespaces(namespaces=(Namespace(name="b"),)), c.DeleteQuotas(names=("b",)))
    state = ended(state, state.allocs[first.id])
    whole = [c.ApplyPlan(plan=plan)]
    if is_staged:
        part, rest = cut_plan(plan, 2)
        whole = [c.StagePlan(plan_id="p", number=0, plan=part), c.ApplyPlan(plan=rest, staged="p", parts=1)]
    for command in whole:
        step = apply(state, command, index=state.index + 1)
        state = step.state
    assert isinstance(step.result, c.Applied), "its victim is gone, so nothing is taken from anyone"


def test_a_victim_that_a_plan_names_twice_counts_once() -> None:
    state, plan = two_reclaims()
    borrowers = [alloc for alloc in state.allocs.values() if alloc.job_id == "borrower"]
    others = [alloc.id for alloc in borrowers if alloc.id not in {stop.id for stop in plan.preemptions}]
    first = plan.preemptions[0]
    twice = (first, *plan.preemptions, *(replace(first, id=each) for each in others[:2]))
    step = apply(state, c.ApplyPlan(plan=replace(plan, preemptions=twice)), index=state.index + 1)
    assert isinstance(step.result, c.Applied), "four of eight end, and four are guaranteed"
    assert held(step.state, "a") == 4


@pytest.mark.parametrize("name", ["owner.web[\u00b2]", "owner.web[" + "9" * 5000 + "]"])
def test_a_name_with_digits_that_are_no_index_stops_no_server(name: str) -> None:
    state, plan = two_reclaims()
    placements = tuple(replace(each, name=name) for each in plan.placements)
    apply(state, c.ApplyPlan(plan=replace(plan, placements=placements)), index=state.index + 1)
    assert alloc_index(name) == -1


def test_apply_decides_the_same_without_the_columnar_view() -> None:
    state, _ = run(cluster(share("a", 4), share("b", 4)), job_of("borrower", "a", 8))
    owner = job_of("owner", "b", 4)
    state = after(state, c.RegisterJob(job=owner))
    plan = scheduler.check_plan(state, attempt(state, owner).plan, QUOTAS).accepted
    bare = Snapshot(state.index, state._tables)
    assert isinstance(apply(bare, c.ApplyPlan(plan=plan), index=bare.index + 1).result, c.Applied)
    worse = replace(plan, preemptions=tuple(replace(stop, reclaimed_for="a") for stop in plan.preemptions))
    assert isinstance(apply(bare, c.ApplyPlan(plan=worse), index=bare.index + 1).result, c.Rejected)


def test_the_check_refuses_a_plan_made_on_an_older_state() -> None:
    """Two workers reclaim the same surplus; the second plan is refused, node by node."""
    state, _ = run(cluster(share("a", 7), share("b", 1), share("d", 0)), job_of("borrower", "a", 8))
    jobs = [job_of("one", "b"), job_of("two", "b")]
    state = after(state, *(c.RegisterJob(job=job) for job in jobs))
    plans = [attempt(state, job).plan for job in jobs]
    state = after(state, c.ApplyPlan(plan=scheduler.check_plan(state, plans[0], QUOTAS).accepted))
    result = scheduler.check_plan(state, plans[1], QUOTAS)
    assert not result.accepted.placements and not result.accepted.preemptions
    assert result.rejected_nodes


def test_a_search_keeps_one_sum_however_often_it_tries_a_victim() -> None:
    state, _ = run(cluster(share("a", 4), share("b", 4)), job_of("borrower", "a", 8))
    tree = tree_of(state, "global")
    assert tree is not None
    guarantees = Guarantees(state, tree, ("b", ""), now=LATER)
    for alloc in state.allocs.values():
        for sign in (1, -1) * 10:
            guarantees.count_end(alloc, sign)
    assert len(guarantees._delta) == 1
    first, *others = state.allocs.values()
    for alloc in others[:4]:
        assert guarantees.keeps_guarantees(alloc), "what was taken back counts as held"
        guarantees.count_end(alloc)
    assert not guarantees.keeps_guarantees(first)


def test_members_that_end_already_are_not_counted_as_the_rest_of_a_gang() -> None:
    """One of four may go; with a second, too few would remain."""
    state, _ = run(cluster(share("a", 0), share("b", 4), nodes=(4,)), job_of("gang", "a", 4, gang=Gang(min=3)))
    one, plan = run(state, job_of("owner", "b", 1), LATER)
    assert victims(one, plan) == ["gang"]
    two, plan = run(state, job_of("owner", "b", 2), LATER)
    assert victims(two, plan) == ["gang"] * 4 and held(two, "b") == 2
    large, plan = run(state, job_of("owner", "b", 1, 2), LATER)
    assert victims(large, plan) == ["gang"] * 4, "also where one placement takes more than one of them"


def model_of(state: Snapshot) -> str:
    (group,) = next(iter(state.nodes.values())).node_resources.devices
    return f"{group.vendor}/{group.type}/{group.name}"


@pytest.mark.parametrize("asked", ["gpu", "nvidia/gpu", "model"])
def test_a_guarantee_of_a_model_covers_requests_that_name_none(asked: str) -> None:
    state = cluster(share("a", 0), share("b", 0))
    model = model_of(state)
    spec = guaranteed(share("b", 0), devices=(RequestedDevice(name=model, count=2),))
    state, _ = run(after(state, c.UpsertQuotas(quotas=(spec,))), job_of("borrower", "a", 8))
    owner = job_of("owner", "b", 3)
    device = RequestedDevice(name=model if asked == "model" else asked, count=1)
    task = replace(owner.task_groups[0].tasks[0], resources=Resources(cpu=10, memory_mb=10, devices=(device,)))
    owner = replace(owner, task_groups=(replace(owner.task_groups[0], tasks=(task,)),))
    state, plan = run(state, owner, LATER)
    assert len(plan.placements) == 2 and victims(state, plan) == ["borrower"] * 2


def test_what_a_victim_frees_beyond_the_need_is_left_to_the_next_plan() -> None:
    state, _ = run(cluster(share("a", 0), share("b", 1), nodes=(4,)), job_of("borrower", "a", 1, 4))
    state, plan = run(state, job_of("owner", "b", 4), LATER)
    assert (len(plan.placements), victims(state, plan)) == (1, ["borrower"])
    state = ended(state, *(alloc for alloc in state.allocs.values() if alloc.job_id == "borrower"))
    _, plan = run(state, job_of("owner", "b", 4), LATER + 1)
    assert (len(plan.placements), plan.preemptions) == (3, ()), "it borrows as any other"


def test_apply_keeps_a_guarantee_that_came_after_the_check() -> None:
    """There was not one quota when the plan was checked, so it is a preemption by priority and nothing else."""
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(batch_scheduler_enabled=True))
    state = after(cluster(), c.SetSchedulerConfiguration(configuration=config))
    state, _ = run(
        after(state, c.UpsertNamespaces(namespaces=(Namespace(name="a"),))), job_of("low", "a", 8, priority=10)
    )
    urgent = job_of("urgent", "default", 1, priority=90)
    state = after(state, c.RegisterJob(job=urgent))
    plan = scheduler.check_plan(state, attempt(state, urgent).plan, QUOTAS).accepted
    assert plan.preemptions and plan.guarantees_of == "global"
    changed = after(
        state, c.UpsertQuotas(quotas=(share("a", 8),)), c.UpsertNamespaces(namespaces=(Namespace(name="a", quota="a"),))
    )
    step = apply(changed, c.ApplyPlan(plan=plan), index=changed.index + 1)
    assert isinstance(step.result, c.Rejected) and "is within a guarantee" in step.result.message


def test_a_plan_that_reclaims_is_stored_whole_and_checked_whole() -> None:
    """A client told the end of one allocation between the check and the commands."""
    state, _ = run(cluster(share("a", 4), share("b", 4)), job_of("borrower", "a", 8))
    owner = job_of("owner", "b", 4)
    state = after(state, c.RegisterJob(job=owner))
    plan = scheduler.check_plan(state, attempt(state, owner).plan, QUOTAS).accepted
    first, last = cut_plan(plan, 4)
    assert plan.is_indivisible and first.preemptions and last.placements
    staged = (c.StagePlan(plan_id="p", number=0, plan=first), c.ApplyPlan(plan=last, staged="p", parts=1))
    assert held(after(state, *staged), "a") == 4
    victims_of_plan = {stop.id for stop in plan.preemptions}
    gone = next(
        alloc for alloc in state.allocs.values() if alloc.job_id == "borrower" and alloc.id not in victims_of_plan
    )
    changed = after(ended(state, gone), staged[0])
    step = apply(changed, staged[1], index=changed.index + 1)
    assert isinstance(step.result, c.Rejected) and step.result.kind == "stale"
    assert held(step.state, "a") == 7, "nothing stops for what is not placed"


def test_a_node_is_searched_only_if_it_may_lose_less_than_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    on_row = ReclaimSearch._on_row
    monkeypatch.setattr(ReclaimSearch, "_on_row", lambda self, row: searched.append(row) or on_row(self, row))
    state, _ = run(cluster(share("a", 0, limit=40), share("b", 4), nodes=(2,) * 20), job_of("borrower", "a", 40))
    _, plan = run(state, job_of("owner", "b", 4), LATER)
    assert len(plan.preemptions) == 4 and len(searched) <= 12, "each choice is searched for and made: 2 for each"


def test_the_sums_that_follow_changes_are_those_of_the_state() -> None:
    state = cluster(share("top", 4), share("a", 2, parent="top"), share("b", 2, parent="top"))
    tree = tree_of(state, "global")
    assert tree is not None
    followed = QuotaHoldings(state, tree)
    assert {name: followed.usage(name, "") for name in tree.shares}

    def step_of(command: c.AnyCommand) -> None:
        nonlocal state
        step = apply(state, command, index=state.index + 1)
        state = step.state
        followed.follow(step.changes, set())
        fresh = QuotaHoldings(state, tree)
        assert {name: followed.usage(name, "") for name in tree.shares} == {
            name: fresh.usage(name, "") for name in tree.shares
        }

    for job, now in ((job_of("one", "a", 6), factories.NOW), (job_of("two", "b", 2), LATER)):
        step_of(c.RegisterJob(job=job))
        step_of(c.ApplyPlan(plan=scheduler.check_plan(state, attempt(state, job, now).plan, QUOTAS).accepted))
    for alloc in list(state.allocs.values()):
        step_of(c.UpdateAllocsFromClient(updates=(
            c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete"),
        )))  # fmt: skip


# -- histories ---------------------------------------------------------------------------------------------------------

TEAMS = ("top", "x", "y", "z")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("x", "y", "z", "default")), st.integers(1, 4), st.integers(1, 2),
        st.sampled_from((30, 50, 90)), st.integers(-40, 90), st.integers(0, 3), st.booleans(),
    ),
    min_size=1, max_size=14,
)  # fmt: skip


@example(
    guarantees=(0, 1, 0), limits=(4, 4, 8), is_preempting=False,
    steps=[("z", 4, 2, 30, 0, 0, False), ("x", 4, 1, 30, 79, 0, False)],
)  # fmt: skip
@settings(max_examples=cases(15), deadline=None)
@given(
    guarantees=st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)),
    limits=st.tuples(st.integers(4, 8), st.integers(4, 8), st.integers(4, 8)), steps=STEPS,
    is_preempting=st.booleans(),
)  # fmt: skip
def test_no_history_exceeds_a_limit_or_takes_what_is_guaranteed(
    guarantees: tuple[int, ...], limits: tuple[int, ...], steps: list[Any], *, is_preempting: bool
) -> None:
    specs = (
        share("top", guarantees[0] + guarantees[1]), share("x", guarantees[0], limit=limits[0], parent="top"),
        share("y", guarantees[1], limit=limits[1], parent="top"), share("z", guarantees[2], limit=limits[2]),
    )  # fmt: skip
    promised = dict(zip(TEAMS, (guarantees[0] + guarantees[1], *guarantees), strict=True))
    most = dict(zip(TEAMS, (8, *limits), strict=True))
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(batch_scheduler_enabled=is_preempting))
    state = after(cluster(*specs, nodes=(4, 4)), c.SetSchedulerConfiguration(configuration=config))
    now = factories.NOW
    for number, (namespace, count, gpus, priority, moved, ends, is_late) in enumerate(steps):
        now = UnixNano(now + seconds(moved))
        job = job_of(f"job-{number}", namespace, count, gpus, priority=priority)
        state = after(state, c.RegisterJob(job=job))
        plan = attempt(state, job, now).plan
        before = {name: held(state, name) for name in TEAMS}
        if is_late:
            # Something ends between the attempt and the check.
            state = ended(state, *sorted(filter(is_using, state.allocs.values()), key=lambda alloc: alloc.id)[:ends])
            before = {name: held(state, name) for name in TEAMS}
        accepted = scheduler.check_plan(state, plan, QUOTAS).accepted
        if accepted.is_empty:
            continue
        chosen = [state.allocs[stop.id] for stop in accepted.preemptions]
        state = after(state, c.ApplyPlan(plan=accepted, checked_at=state.index))
        for name in TEAMS:
            assert held(state, name) <= most[name], "no limit is exceeded"
            if namespace not in members_of(state, name):
                assert held(state, name) >= min(before[name], promised[name]), "nothing is taken from a guarantee"
        for stop, victim in zip(accepted.preemptions, chosen, strict=True):
            if stop.reclaimed_for:
                above = ("top",) if namespace in ("x", "y") else ()
                assert any(held(state, name) <= promised[name] for name in (stop.reclaimed_for, *above)), "no surplus"
                age = now - victim.create_time
                assert age >= PROTECTION or age <= -PROTECTION, "nothing is reclaimed within its protection"
            else:
                assert victim.job is not None and victim.job.priority <= priority - 10


@settings(max_examples=cases(10), deadline=None)
@given(
    guarantee=st.integers(1, 4), others=st.lists(st.integers(1, 8), min_size=1, max_size=5), asked=st.integers(1, 6),
)  # fmt: skip
def test_a_guarantee_is_met_in_one_round_once_protections_are_over(
    guarantee: int, others: list[int], asked: int
) -> None:
    state = cluster(share("a", 0), share("b", guarantee))
    for number, count in enumerate(others):
        state, _ = run(state, job_of(f"borrower-{number}", "a", count))
    free = 8 - held(state, "a")
    state, plan = run(state, job_of("owner", "b", asked), LATER)
    assert len(plan.placements) == min(asked, max(guarantee, free))
    assert len(plan.preemptions) == max(0, min(asked, guarantee) - free), "no more ends than is needed"


@settings(max_examples=cases(6), deadline=None)
@given(order=st.permutations(["x", "y", "z"]), counts=st.tuples(*[st.integers(1, 8)] * 3))
def test_reclaim_comes_to_an_end(order: list[str], counts: tuple[int, ...]) -> None:
    """Evicted jobs want their place back, round after round; nobody takes from a guarantee, so all settles."""
    state = cluster(share("x", 3), share("y", 3), share("z", 2))
    jobs = [job_of(f"job-{name}", name, count) for name, count in zip(order, counts, strict=True)]
    state = after(state, *(c.RegisterJob(job=job) for job in jobs))
    now, evictions = factories.NOW, 0
    for _ in range(6):
        now = UnixNano(now + PROTECTION)
        changed = 0
        for job in jobs:
            plan = scheduler.check_plan(state, attempt(state, job, now).plan, QUOTAS).accepted
            changed += len(plan.preemptions)
            if not plan.is_empty:
                state = after(state, c.ApplyPlan(plan=plan, checked_at=state.index))
            gone = [alloc for alloc in state.allocs.values() if is_using(alloc) and is_terminal(alloc)]
            state = ended(state, *gone)
        evictions += changed
    assert changed == 0 and evictions <= 8
    for job, count in zip(jobs, counts, strict=True):
        least = {"x": 3, "y": 3, "z": 2}[job.namespace]
        assert held(state, job.namespace) >= min(count, least), "every guarantee is met"
    assert sum(held(state, name) for name in "xyz") == min(8, sum(counts)), "and nothing is left idle"


def test_equal_histories_give_equal_plans() -> None:
    plans = []
    for _ in range(2):
        state, _ = run(cluster(share("a", 2), share("b", 4), nodes=(4, 4)), job_of("borrower", "a", 8))
        plans.append(attempt(after(state, c.RegisterJob(job=job_of("owner", "b", 3))), job_of("owner", "b", 3)).plan)
    assert plans[0] == plans[1] and plans[0].preemptions
