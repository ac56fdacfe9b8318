"""Quotas: each dimension, what gives back, what is shared, and that no history of plans exceeds one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.capacity.limits import LimitChange
from yurt.scheduler.capacity.quotas import RegionQuota
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.state.namespace_usage import NOTHING_USED, NamespaceUsage, counted, summed
from yurt.state.quota_totals import devices_used, is_covered, used_by
from yurt.state.usage import Usage, is_using, usage_of
from yurt.structs import commands as c
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import NodePool, PreemptionConfig, SchedulerConfiguration
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, InPlaceUpdate, Plan
from yurt.structs.policies import Gang
from yurt.structs.predicates import is_terminal
from yurt.structs.quota import NodePoolLimit, QuotaSpec
from yurt.structs.resources import RequestedDevice, Resources
from yurt.structs.status import ClientStatus
from yurt.testing import factories
from yurt.testing.cluster_models.pending_jobs import node as sized_node
from yurt.testing.cluster_models.pending_jobs import with_gpus
from yurt.testing.nightly import cases
from yurt.testing.quotas import QUOTAS, bound, quota


def job_of(name: str, count: int, resources: Resources, **changes: Any) -> Job:
    task = factories.task(resources=resources)
    return factories.job(name, task_groups=(factories.group(count=count, tasks=(task,), update=None),), **changes)


def after(state: Snapshot, *made: c.AnyCommand) -> Snapshot:
    for command in made:
        step = apply(state, command, index=state.index + 1)
        assert isinstance(step.result, c.Applied), step.result
        state = step.state
    return state


def attempt(state: Snapshot, job: Job) -> scheduler.Attempt:
    evaluation = Evaluation(
        id=f"eval-{job.id}-{state.index}", namespace=job.namespace, job_id=job.id, type=job.type,
        triggered_by="job-register",
    )  # fmt: skip
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=1, limits=QUOTAS)


def run(state: Snapshot, job: Job) -> tuple[Snapshot, scheduler.Attempt]:
    """Register a job, attempt it, and store the plan as the applier does; its check refuses nothing."""
    state = after(state, c.RegisterJob(job=job))
    made = attempt(state, job)
    result = scheduler.check_plan(state, made.plan, QUOTAS)
    assert result.is_full, result.rejected_nodes
    return after(state, c.ApplyPlan(plan=made.plan, checked_at=state.index)), made


def ended(state: Snapshot, alloc_id: str, status: ClientStatus = "complete") -> c.AllocUpdate:
    return c.AllocUpdate(id=alloc_id, node_id=state.allocs[alloc_id].node_id, client_status=status)


def why(made: scheduler.Attempt) -> tuple[str, ...]:
    return made.outcome.evaluation.failed_tg_allocs["web"].quota_exhausted


def cluster(spec: QuotaSpec, *namespaces: str, nodes: int = 2) -> Snapshot:
    made: list[c.AnyCommand] = [c.RegisterNode(node=factories.node()) for _ in range(nodes)]
    return after(Snapshot.empty(), *made, *bound(*namespaces, spec=spec))


CPU = Resources(cpu=400, memory_mb=100, memory_max_mb=300, secrets_mb=2)


@pytest.mark.parametrize(
    ("limits", "placed", "text"),
    [
        ({"cpu": 1000}, 2, "cpu exhausted (400 MHz needed, 200 of 1000 MHz left)"),
        ({"memory_mb": 250}, 2, "memory exhausted (100 MB needed, 50 of 250 MB left)"),
        ({"memory_max_mb": 250}, 2, "memory_max exhausted (100 MB needed, 50 of 250 MB left)"),
        ({"secrets_mb": 3}, 1, "secrets exhausted (2 MB needed, 1 of 3 MB left)"),
        ({"cpu": -1}, 0, "cpu exhausted (400 MHz needed, none allowed)"),
        ({"cpu": 0, "memory_mb": None}, 3, ""),
        ({"cores": -1}, 3, ""),
    ],
)
def test_each_dimension_limits(limits: dict[str, int | None], placed: int, text: str) -> None:
    _, made = run(cluster(quota("team", **limits)), job_of("web", 3, CPU))
    assert len(made.plan.placements) == placed
    assert made.outcome.evaluation.quota_limit_reached == ("team" if text else "")
    if text:
        assert why(made) == (text,)


def test_a_hard_limit_of_memory_counts_where_the_pool_oversubscribes() -> None:
    state = after(
        cluster(quota("team", memory_max_mb=700)),
        c.SetSchedulerConfiguration(configuration=SchedulerConfiguration(memory_oversubscription_enabled=True)),
    )
    _, made = run(state, job_of("web", 3, CPU))
    assert why(made) == ("memory_max exhausted (300 MB needed, 100 of 700 MB left)",)


def test_all_exhausted_dimensions_are_told() -> None:
    _, made = run(cluster(quota("team", cpu=500, memory_mb=150)), job_of("web", 2, CPU))
    assert [text.split()[0] for text in why(made)] == ["cpu", "memory"]


def test_reserved_cores_count_and_so_do_their_mhz() -> None:
    cores = Resources(cores=1, memory_mb=10)
    _, made = run(cluster(quota("team", cores=1)), job_of("web", 2, cores))
    assert why(made) == ("cores exhausted (1 cores needed, 0 of 1 cores left)",)
    state, made = run(cluster(quota("team", cpu=1500)), job_of("web", 2, cores))
    assert len(made.plan.placements) == 1, "how many MHz a core has is known from the node that gives it"
    assert why(made)[0].startswith("cpu exhausted (1000 MHz needed, 500 of 1500 MHz left)")
    assert used_by(state, ("default",)).cpu == 1000


def gpus(count: int, name: str = "nvidia/gpu", **changes: Any) -> Resources:
    return Resources(cpu=10, memory_mb=10, devices=(RequestedDevice(name=name, count=count, **changes),))


def with_devices(*specs: tuple[str, int]) -> tuple[RequestedDevice, ...]:
    return tuple(RequestedDevice(name=name, count=count) for name, count in specs)


@pytest.mark.parametrize(
    ("limit", "asked"), [("nvidia/gpu", "nvidia/gpu"), ("gpu", "nvidia/gpu"), ("nvidia/gpu", "gpu")]
)
def test_devices_are_limited_by_type_vendor_and_name(limit: str, asked: str) -> None:
    spec = quota("team", devices=with_devices((limit, 3)))
    state = after(Snapshot.empty(), c.RegisterNode(node=with_gpus(sized_node(1), 8)), *bound(spec=spec))
    _, made = run(state, job_of("web", 2, gpus(2, asked)))
    assert len(made.plan.placements) == 1
    assert why(made) == (f"device {limit} exhausted (2 needed, 1 of 3 left)",)


def test_a_device_is_covered_by_a_limit_that_says_less() -> None:
    assert is_covered("nvidia/gpu/a100", "gpu") and is_covered("nvidia/gpu/a100", "nvidia/gpu/a100")
    assert not is_covered("amd/gpu/mi300", "nvidia/gpu") and not is_covered("gpu", "nvidia/gpu")


def test_a_share_counts_as_its_part_of_a_device() -> None:
    usage = counted(Usage(devices=("nvidia/gpu/a100/uuid::0|slice|1000|25", "nvidia/gpu/a100/other")))
    assert devices_used(usage, "nvidia/gpu") == 1250


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("uuid::0|mig|20096|14|247", 247),
        ("uuid::0|mig|20096|14", 140),
        ("uuid::0|mps|20096|0|247", 247),
        ("uuid::0|mps|20096|0", 1000),
    ],
    ids=["dominant part", "compute, as older servers placed it", "memory alone", "memory alone, by an older server"],
)
def test_a_share_counts_as_it_did_when_it_was_placed(key: str, part: int) -> None:
    assert devices_used(counted(Usage(devices=(f"nvidia/gpu/a100/{key}",))), "nvidia/gpu") == part


def test_namespaces_share_a_quota_and_others_do_not_count() -> None:
    state = after(cluster(quota("team", cpu=1000), "a", "b"), *bound("c", spec=quota("other", cpu=10_000)))
    state, first = run(state, job_of("web", 2, CPU, namespace="a"))
    state, second = run(state, job_of("web", 2, CPU, namespace="b"))
    state, third = run(state, job_of("web", 2, CPU, namespace="c"))
    assert [len(made.plan.placements) for made in (first, second, third)] == [2, 0, 2]
    assert used_by(state, ("a", "b")).cpu == 800


def test_only_the_limit_of_the_own_region_counts() -> None:
    _, made = run(cluster(quota("team", region="elsewhere", cpu=-1)), job_of("web", 3, CPU))
    assert len(made.plan.placements) == 3


def test_a_node_pool_has_limits_of_its_own_and_jobs_of_all_pools_count_in_each() -> None:
    spec = quota("team", cpu=2000, pools=(NodePoolLimit(node_pool="gpu", cpu=900),))
    node = factories.node(node_pool="gpu")
    state = after(cluster(spec), c.UpsertNodePools(pools=(NodePool(name="gpu"),)), c.RegisterNode(node=node))
    state, of_pool = run(state, job_of("web", 3, CPU, node_pool="gpu"))
    assert why(of_pool) == ('node pool "gpu": cpu exhausted (400 MHz needed, 100 of 900 MHz left)',)
    state, elsewhere = run(state, job_of("other", 1, CPU))
    assert len(elsewhere.plan.placements) == 1
    _, anywhere = run(state, job_of("any", 1, CPU, node_pool="all"))
    assert not anywhere.plan.placements


# -- what gives back ---------------------------------------------------------------------------------------------------


def test_an_update_replaces_within_a_full_quota_also_of_a_system_job() -> None:
    for kind in ("service", "system"):
        state, made = run(cluster(quota("team", cpu=800)), job_of("web", 2 if kind == "service" else 1, CPU, type=kind))
        assert len(made.plan.placements) == 2
        state, made = run(state, job_of("web", 2 if kind == "service" else 1, replace(CPU, memory_mb=90), type=kind))
        assert (len(made.plan.placements), len(made.plan.stops)) == (2, 2), kind


def test_a_full_quota_is_asked_once_for_all_nodes_of_a_system_job(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[LimitChange]] = []
    exceeded = RegionQuota.exceeded_dimensions
    monkeypatch.setattr(
        RegionQuota,
        "exceeded_dimensions",
        lambda self, changes: exceeded(self, asked.append(given := tuple(changes)) or given),
    )
    state, job = cluster(quota("team", cpu=800), nodes=30), job_of("web", 1, CPU, type="system")
    made = attempt(after(state, c.RegisterJob(job=job)), job)
    failed = made.outcome.evaluation.failed_tg_allocs["web"]
    assert len(made.plan.placements) == 2
    assert (failed.coalesced_failures, failed.nodes_evaluated) == (27, 1)
    assert why(made) == ("cpu exhausted (400 MHz needed, 0 of 800 MHz left)",)
    assert made.outcome.evaluation.queued_allocations == {"web": 28}
    assert len(asked) < 10


def test_a_lowered_quota_stops_nothing_and_permits_updates_of_the_same_size() -> None:
    state, _ = run(cluster(quota("team", cpu=800)), job_of("web", 2, CPU))
    state = after(state, c.UpsertQuotas(quotas=(quota("team", cpu=500),)))
    state, same = run(state, job_of("web", 2, replace(CPU, memory_mb=90)))
    assert (len(same.plan.placements), len(same.plan.stops)) == (2, 2)
    _, larger = run(state, job_of("web", 2, replace(CPU, cpu=410)))
    assert not larger.plan.placements and not larger.plan.stops


def test_what_is_stopped_counts_until_its_client_has_ended_it() -> None:
    state, made = run(cluster(quota("team", cpu=800)), job_of("one", 2, CPU))
    ids = [placement.id for placement in made.plan.placements]
    state = after(state, c.DeregisterJob(namespace="default", job_id="one"))
    stopping = attempt(state, job_of("one", 2, CPU))
    state = after(state, c.ApplyPlan(plan=stopping.plan))
    _, waits = run(state, job_of("two", 1, CPU))
    assert not waits.plan.placements
    updates = tuple(ended(state, alloc_id) for alloc_id in ids)
    state = after(state, c.UpdateAllocsFromClient(updates=updates))
    _, placed = run(state, job_of("two", 1, CPU))
    assert len(placed.plan.placements) == 1


def test_stops_on_a_node_that_refuses_the_plan_give_nothing_back() -> None:
    state, made = run(cluster(quota("team", cpu=800), nodes=2), job_of("web", 2, CPU, constraints=()))
    old = made.plan.placements[0]
    node = next(node for node in state.nodes.values() if node.id != old.node_id)
    new = replace(old, id="new", name="web.web[7]", node_id=node.id)
    moved = replace(old, id="moved", name="web.web[8]")
    plan = Plan(
        eval_id="e", namespace="default", job_id="web", now=factories.NOW, placements=(moved, new),
        stops=(AllocStop(id=old.id, node_id=old.node_id),),
    )  # fmt: skip
    drained = after(state, c.SetNodeEligibility(node_id=old.node_id, eligibility="ineligible"))
    result = scheduler.check_plan(drained, plan, QUOTAS)
    assert not result.accepted.placements and not result.accepted.stops
    assert set(result.rejected_nodes) == {old.node_id, node.id}


def test_a_gang_that_falls_apart_in_the_check_takes_what_it_gave_back_with_it() -> None:
    state, made = run(cluster(quota("team", cpu=800), nodes=3), job_of("web", 2, CPU))
    first, second = made.plan.placements
    nodes = sorted(state.nodes.keys())
    small = replace(first.resources, tasks={
        name: replace(each, cpu=replace(each.cpu, cpu_shares=100)) for name, each in first.resources.tasks.items()
    })  # fmt: skip
    others = [node for node in nodes if node not in (first.node_id, second.node_id)] or nodes
    gang = [
        replace(first, id="g1", name="web.web[5]", previous_allocation=first.id, node_id=others[0], resources=small),
        replace(first, id="g2", name="web.web[6]", node_id="gone", resources=small),
    ]
    plan = Plan(
        eval_id="e", namespace="default", job_id="web", now=factories.NOW, placements=tuple(gang),
        stops=(AllocStop(id=first.id, node_id=first.node_id),), gangs={"web": 2},
    )  # fmt: skip
    accepted = scheduler.check_plan(state, plan, QUOTAS).accepted
    assert not accepted.placements and not accepted.stops


def test_an_update_in_place_that_grants_more_is_checked() -> None:
    state, made = run(cluster(quota("team", cpu=500)), job_of("web", 1, CPU))
    (old,) = made.plan.placements
    large = replace(old.resources, tasks={
        name: replace(each, cpu=replace(each.cpu, cpu_shares=600)) for name, each in old.resources.tasks.items()
    })  # fmt: skip
    update = InPlaceUpdate(id=old.id, node_id=old.node_id, job_version=0, resources=large)
    plan = Plan(eval_id="e", namespace="default", job_id="web", now=factories.NOW, in_place=(update,))
    result = scheduler.check_plan(state, plan, QUOTAS)
    assert result.rejected_nodes == {old.node_id: "quota team: cpu exhausted (200 MHz needed, 100 of 500 MHz left)"}
    assert scheduler.check_plan(state, replace(plan, in_place=(replace(update, resources=None),)), QUOTAS).is_full


def test_what_is_preempted_under_the_same_quota_is_given_back() -> None:
    preempting = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
    state = after(
        Snapshot.empty(), c.RegisterNode(node=sized_node(1)), *bound("a", "b", spec=quota("team", cpu=5000)),
        c.SetSchedulerConfiguration(configuration=preempting),
    )  # fmt: skip
    large = Resources(cpu=3000, memory_mb=100)
    state, _ = run(state, job_of("low", 1, large, namespace="a", priority=20))
    task = factories.task(resources=Resources(cpu=2000, memory_mb=100))
    other = factories.task(resources=Resources(cpu=1500, memory_mb=100))
    groups = (
        factories.group("first", count=1, tasks=(task,), update=None),
        factories.group("second", count=1, tasks=(other,), update=None),
    )
    state, made = run(state, factories.job("high", namespace="b", priority=80, task_groups=groups))
    assert len(made.plan.preemptions) == 1
    assert len(made.plan.placements) == 2, "the second fits only because the first gave back what it preempted"


# -- histories ---------------------------------------------------------------------------------------------------------

LIMIT = 1000
NAMES = ("a", "b")


def oracle(allocs: Sequence[Allocation]) -> NamespaceUsage:
    """What live allocations use, counted one by one."""
    total = NOTHING_USED
    for alloc in allocs:
        total = total.plus(counted(usage_of(alloc)))
    return total


@settings(max_examples=cases(60), deadline=None)
@given(st.integers(0, 2**32))
@example(239834462)  # two plans in flight stop the same allocation
def test_no_history_of_stale_plans_of_several_workers_exceeds_a_quota(seed: int) -> None:
    random, limit, before = Random(seed), LIMIT, NOTHING_USED
    state = cluster(quota("team", cpu=LIMIT, memory_mb=LIMIT), *NAMES, "free", nodes=3)
    state = after(state, c.UpsertNamespaces(namespaces=(replace(state.namespaces["free"], quota=""),)))
    writing, late = scheduler.InFlightPlans(), list[tuple[Plan, int, NamespaceUsage]]()
    ready: list[Plan] = []
    for _ in range(80):
        move = random.choice((1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 5, 6))
        if move == 1:
            job = job_of(
                f"job-{random.randrange(4)}", random.randrange(1, 8),
                Resources(cpu=random.choice((100, 300)), memory_mb=random.choice((100, 500))),
                namespace=random.choice((*NAMES, "free")), type=random.choice(("service", "batch", "system")),
            )  # fmt: skip
            known = state.jobs.get(job.key)
            job = job if known is None or known.type == job.type else replace(job, type=known.type)
            state = after(state, c.RegisterJob(job=job))
            view = writing.view(state) if random.random() < 0.5 else state  # workers elsewhere know no plan in flight
            ready.append(attempt(view, job).plan)
        elif move == 2 and ready:
            accepted = scheduler.check_plan(
                writing.view(state), ready.pop(random.randrange(len(ready))), QUOTAS
            ).accepted
            if not accepted.is_empty:
                writing.add(state, (accepted,))
                late.append((accepted, state.index, before))
        elif move == 3 and late:
            plan, checked_at, seen = late.pop(0)
            before = NamespaceUsage(cpu=max(before.cpu, seen.cpu), memory=max(before.memory, seen.memory))
            state = apply(state, c.ApplyPlan(plan=plan, checked_at=checked_at), index=state.index + 1).state
            writing.remove((plan,))
        elif move == 4 and state.jobs:
            key = random.choice(sorted(state.jobs.keys()))
            stopped = replace(state.jobs[key], stop=True)
            state = after(state, c.DeregisterJob(namespace=key[0], job_id=key[1], purge=random.random() < 0.5))
            ready.append(attempt(writing.view(state), state.jobs.get(key, stopped)).plan)
        elif move == 5:
            live = sorted(alloc.id for alloc in state.allocs.values() if is_using(alloc))
            chosen = random.sample(live, min(2, len(live)))
            status = random.choice(("complete", "failed"))
            updates = tuple(ended(state, alloc_id, status) for alloc_id in chosen)
            state = after(state, c.UpdateAllocsFromClient(updates=updates)) if updates else state
        elif move == 6:  # raised or lowered, also below what is used
            limit = random.choice((300, 600, LIMIT, 2 * LIMIT))
            state = after(state, c.UpsertQuotas(quotas=(quota("team", cpu=limit, memory_mb=limit),)))
        expected = oracle([a for a in state.allocs.values() if a.namespace in NAMES and not is_terminal(a)])
        # A lowered quota stops nothing. Above it nothing grows beyond what was there when the plan was checked.
        assert expected.cpu <= max(limit, before.cpu) and expected.memory <= max(limit, before.memory), (seed, expected)
        before = expected
        using = oracle([a for a in state.allocs.values() if a.namespace in NAMES and is_using(a)])
        assert used_by(state, NAMES) == using
        kept = {namespace: dict(pools) for namespace, pools in state.columns.by_namespace.items()}
        assert kept == summed(state.allocs.values())


def test_the_allocations_of_a_purged_job_count_until_their_clients_have_ended_them() -> None:
    state, made = run(cluster(quota("team", cpu=800)), job_of("one", 2, CPU))
    stopped = replace(state.jobs["default", "one"], stop=True)
    state = after(state, c.DeregisterJob(namespace="default", job_id="one", purge=True))
    assert state.jobs.get(("default", "one")) is None
    state = after(state, c.ApplyPlan(plan=attempt(state, stopped).plan))
    _, waits = run(state, job_of("two", 1, CPU))
    assert not waits.plan.placements and waits.outcome.created[0].quota_limit_reached == "team"
    updates = tuple(ended(state, placement.id) for placement in made.plan.placements)
    _, placed = run(after(state, c.UpdateAllocsFromClient(updates=updates)), job_of("two", 1, CPU))
    assert len(placed.plan.placements) == 1


def test_a_plan_of_a_job_that_was_purged_after_its_check_places_nothing() -> None:
    """Without the job nobody knows under which quota its placements would count."""
    job = job_of("one", 2, CPU)
    state = after(cluster(quota("team", cpu=800)), c.RegisterJob(job=job))
    accepted, checked_at = scheduler.check_plan(state, attempt(state, job).plan, QUOTAS).accepted, state.index
    assert len(accepted.placements) == 2
    state = after(state, c.DeregisterJob(namespace="default", job_id="one", purge=True))
    late = apply(state, c.ApplyPlan(plan=accepted, checked_at=checked_at), index=state.index + 1)
    assert isinstance(late.result, c.Rejected) and late.result.kind == "stale"
    assert not scheduler.check_plan(state, accepted, QUOTAS).accepted.placements


def test_a_gang_larger_than_its_quota_places_nothing_and_takes_nothing() -> None:
    task = factories.task(resources=CPU)
    groups = (
        factories.group("gang", count=3, tasks=(task,), update=None, gang=Gang()),
        factories.group("web", count=2, tasks=(task,), update=None),
    )
    _, made = run(cluster(quota("team", cpu=1000)), factories.job("both", task_groups=groups))
    assert [placement.task_group for placement in made.plan.placements] == ["web", "web"]
