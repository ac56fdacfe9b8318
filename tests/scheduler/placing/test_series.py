"""A series of attempts on one state: each says what it would say alone, on the state with the plans before it."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.capacity.limits import LimitsOf, no_limits
from yurt.scheduler.placing import ranking
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.sdk.value import UnixNano, replace
from yurt.server.scheduling.scheduling import _QuotasOnDemand
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.cluster import Namespace, PreemptionConfig, SchedulerConfiguration
from yurt.structs.constraint import Affinity, Constraint, Spread
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import Node
from yurt.structs.plan import Plan
from yurt.structs.policies import Gang
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.nightly import cases
from yurt.testing.quotas import QUOTAS, bound, quota

CASES = cases(120)
SEED = 5
HOST = NetworkResource(mode="host", device="eth0", ip="10.0.0.1")
HTTP = NetworkResource(mode="host", dynamic_ports=(Port(label="http"),))
ON_A = Constraint(l_target="${node.class}", operand="=", r_target="a")
LIKES_B = Affinity(l_target="${node.class}", operand="=", r_target="b", weight=50)
ONE_A_HOST = Constraint(operand="distinct_hosts", r_target="true")


def _node(random: Random, number: int) -> Node:
    plain = factories.node(
        factories.number_id(number, kind=1), node_class=random.choice("ab"), node_max_allocs=random.choice((0, 0, 6))
    )
    cpu = replace(plain.node_resources.cpu, cpu_shares=random.choice((1000, 3000, 9000)))
    return replace(plain, node_resources=replace(plain.node_resources, cpu=cpu, networks=(HOST,)))


def _group(random: Random, name: str) -> TaskGroup:
    """One of few groups that jobs share, and now and then a rare one."""
    asked = Resources(cpu=random.choice((100, 300)), memory_mb=100)
    plain = factories.group(name, count=random.choice((1, 1, 2, 20)), tasks=(factories.task(resources=asked),))
    rare = random.randrange(16)
    return {
        0: replace(plain, networks=(HTTP,)),
        1: replace(plain, spreads=(Spread(attribute="${node.class}", weight=50),)),
        2: replace(plain, affinities=(LIKES_B,)),
        3: replace(plain, constraints=(ONE_A_HOST,)),
        4: replace(plain, gang=Gang(min=1)),
    }.get(rare, plain)


def _job(random: Random, number: int) -> Job:
    groups = tuple(_group(random, name) for name in ("web", "db")[: random.choice((1, 1, 2))])
    rare = random.randrange(16)
    plain = factories.job(f"job-{number}", priority=random.choice((20, 50, 80)), task_groups=groups)
    return {
        0: replace(plain, constraints=(ON_A,)),
        1: replace(plain, affinities=(LIKES_B,)),
        2: replace(plain, all_at_once=True),
        3: replace(plain, stop=True),
        4: factories.job(plain.id, type="system"),
        5: factories.job(plain.id, type="batch"),
    }.get(rare, plain)


def _cluster(random: Random) -> Snapshot:
    preemption = PreemptionConfig(service_scheduler_enabled=random.random() < 0.3)
    algorithm = random.choice(("binpack", "binpack", "spread"))
    configuration = SchedulerConfiguration(scheduler_algorithm=algorithm, preemption_config=preemption)
    commands: list[c.AnyCommand] = [
        c.SetSchedulerConfiguration(configuration=configuration),
        *(c.RegisterNode(node=_node(random, number)) for number in range(random.choice((2, 8, 60)))),
    ]
    return _after(Snapshot.empty(), *commands)


def _after(state: Snapshot, *commands: c.AnyCommand) -> Snapshot:
    for command in commands:
        state = apply(state, command, index=state.index + 1).state
    return state


def _evaluation(job: Job) -> Evaluation:
    return replace(factories.evaluation(job), id=f"eval-{job.id}")


def _alone(state: Snapshot, plans: list[Plan], job: Job, now: UnixNano, **limits: object) -> scheduler.Attempt:
    for plan in plans:
        state = scheduler.with_plans(state, (plan,))
    return scheduler.attempt(state, _evaluation(job), now=now, seed=SEED, **limits)  # type: ignore[arg-type]


def _check(state: Snapshot, jobs: list[Job], **limits: object) -> int:
    """Attempts for the jobs in their order, each compared; how many allocations they place."""
    series = scheduler.Series(state, seed=SEED, **limits)  # type: ignore[arg-type]
    plans: list[Plan] = []
    for number, job in enumerate(jobs):
        now = UnixNano(factories.NOW + number)
        made = series.attempt(_evaluation(job), now=now)
        assert msgspec.msgpack.encode(made) == msgspec.msgpack.encode(_alone(state, plans, job, now, **limits))
        plans.append(made.plan)
    return sum(len(plan.placements) for plan in plans)


def _registered(state: Snapshot, jobs: list[Job]) -> Snapshot:
    return _after(state, *(c.RegisterJob(job=job, evaluation=_evaluation(job)) for job in jobs))


@pytest.mark.parametrize("part", range(4))
def test_each_attempt_of_a_series_is_the_same_to_the_byte_as_alone(part: int) -> None:
    random = Random(part)
    placed = 0
    for _ in range(CASES // 4):
        state, old = _cluster(random), [_job(random, number) for number in range(3)]
        state = _registered(state, old)
        for job in old[:2]:
            plan = scheduler.attempt(state, _evaluation(job), now=factories.NOW, seed=1).plan
            state = _after(state, c.ApplyPlan(plan=plan))
        jobs = [_job(random, number) for number in range(2, 2 + random.randrange(2, 12))]
        state = _registered(state, jobs)
        jobs.insert(random.randrange(len(jobs)), old[0])
        placed += _check(state, jobs, **({"limits": QUOTAS} if part % 2 else {}))
    assert placed > CASES


def test_the_next_best_are_shown_although_every_job_fills_a_node() -> None:
    nodes = [factories.node(factories.number_id(number, kind=1), node_max_allocs=1) for number in range(40)]
    jobs = [factories.job(f"job-{number}") for number in range(38)]
    state = _registered(_after(Snapshot.empty(), *(c.RegisterNode(node=node) for node in nodes)), jobs)
    assert _check(state, jobs) == len(jobs)


def test_limits_are_counted_in_a_series_as_alone() -> None:
    random = Random(9)
    for _ in range(10):
        jobs = [_job(random, number) for number in range(6)]
        _check(_registered(_after(_cluster(random), *bound(spec=quota(cpu=4000))), jobs), jobs, limits=QUOTAS)


def test_jobs_with_and_without_limits_are_attempted_in_turn_as_alone() -> None:
    random = Random(10)
    for _ in range(10):
        jobs = [replace(_job(random, number), namespace=random.choice(("default", "free"))) for number in range(8)]
        free = c.UpsertNamespaces(namespaces=(Namespace(name="free"),))
        state = _after(_cluster(random), *bound(spec=quota(cpu=2000)), free)
        assert _check(_registered(state, jobs), jobs, limits=QUOTAS)


@pytest.mark.parametrize("limits", [no_limits, QUOTAS, _QuotasOnDemand("global")])
def test_a_job_of_the_same_kind_goes_on_with_the_ranking_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch, limits: LimitsOf
) -> None:
    scored: list[object] = []
    plain = ranking.Ranker._score_all

    def score_all(ranker: ranking.Ranker) -> None:
        scored.append(ranker)
        plain(ranker)

    monkeypatch.setattr(ranking.Ranker, "_score_all", score_all)
    jobs = [factories.job(f"job-{number}") for number in range(9)]
    state = _after(Snapshot.empty(), *(c.RegisterNode(node=_node(Random(1), number)) for number in range(30)))
    state = _registered(state, jobs)
    series = scheduler.Series(state, seed=SEED, limits=limits)
    for job in jobs:
        assert series.attempt(_evaluation(job), now=factories.NOW).plan.placements
    assert len(scored) == 1


def test_an_attempt_that_breaks_leaves_the_series_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [factories.job(f"job-{number}") for number in range(3)]
    state = _after(Snapshot.empty(), *(c.RegisterNode(node=_node(Random(2), number)) for number in range(4)))
    state = _registered(state, jobs)
    series = scheduler.Series(state, seed=SEED)
    first = series.attempt(_evaluation(jobs[0]), now=factories.NOW)
    with monkeypatch.context() as patched:
        patched.setattr(GroupPlacer, "run", lambda self, count: count / 0)
        with pytest.raises(ZeroDivisionError):
            series.attempt(_evaluation(jobs[1]), now=factories.NOW)
    last = series.attempt(_evaluation(jobs[2]), now=factories.NOW)
    assert last == _alone(state, [first.plan], jobs[2], factories.NOW)
