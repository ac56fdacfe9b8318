"""The vectorised scheduler places as a slow, plain one does that scores every node for every placement."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import numpy as np
import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler import plan_check
from yurt.scheduler.constraints.operators import holds
from yurt.scheduler.constraints.targets import resolve
from yurt.scheduler.ids import mix, number_of
from yurt.scheduler.placing import cells, runs, top_k
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.state.columns import tie_of
from yurt.structs import commands as c
from yurt.structs.cluster import PreemptionConfig, SchedulerConfiguration
from yurt.structs.constraint import Affinity, Constraint, Spread, SpreadTarget
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.nightly import cases

CASES = cases(300)
UNIT = 1_000_000_000
Used = dict[str, list[int]]


def _node(random: Random, number: int) -> Node:
    node = factories.node(
        factories.number_id(number, kind=1),
        node_class=random.choice("abc"),
        datacenter=random.choice(("dc1", "dc2")),
        meta={"rack": f"r{random.randrange(4)}"} if random.random() < 0.9 else {},
        node_max_allocs=random.choice((0, 0, 3)),
    )
    resources = node.node_resources
    cpu = replace(resources.cpu, cpu_shares=random.choice((1000, 2000, 3000)))
    memory = replace(resources.memory, memory_mb=random.choice((1000, 2048, 0)))
    return replace(node, node_resources=replace(resources, cpu=cpu, memory=memory))


def _job(random: Random, name: str) -> Job:
    constraint = Constraint(l_target="${node.class}", operand="!=", r_target=random.choice("abc"))
    affinities = (
        Affinity(l_target="${node.class}", operand="=", r_target="a", weight=random.choice((50, -50, 100))),
        Affinity(l_target="${meta.rack}", operand="regexp", r_target="^r[01]$", weight=30),
    )
    targets = (SpreadTarget(value="dc1", percent=70), SpreadTarget(value="dc2", percent=random.choice((0, 30))))
    spreads = (
        Spread(attribute="${node.datacenter}", weight=50, spread_target=random.choice(((), targets))),
        Spread(attribute="${meta.rack}", weight=random.choice((20, 50))),
    )
    task = factories.task(resources=Resources(cpu=random.choice((100, 250, 700)), memory_mb=random.choice((64, 300))))
    group = factories.group(
        count=random.randrange(1, 30),
        tasks=(task,),
        constraints=(constraint,) if random.random() < 0.3 else (),
        affinities=affinities[: random.randrange(3)],
        spreads=spreads[: random.choice((0, 0, 1, 2))],
    )
    return factories.job(name, datacenters=("*",), task_groups=(group,))


def _state(random: Random) -> Snapshot:
    state = Snapshot.empty()
    algorithm = random.choice(("binpack", "spread"))
    commands: list[c.AnyCommand] = [
        c.SetSchedulerConfiguration(configuration=SchedulerConfiguration(scheduler_algorithm=algorithm)),
        *(c.RegisterNode(node=_node(random, number)) for number in range(random.randrange(1, 40))),
    ]
    for command in commands:
        state = apply(state, command, index=state.index + 1).state
    return state


def _attempt(state: Snapshot, job: Job) -> scheduler.Attempt:
    evaluation = Evaluation(id=f"eval-{job.id}", job_id=job.id, type=job.type, triggered_by="job-register")
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=7)


class Plain:
    """One group, one placement at a time, one node at a time."""

    def __init__(self, state: Snapshot, job: Job) -> None:
        self.job, self.group = job, job.task_groups[0]
        self.everywhere = list(state.nodes.values())
        self.nodes = [node for node in state.nodes.values() if self._is_feasible(node)]
        self.used: Used = {node.id: [0, 0, 0] for node in state.nodes.values()}
        self.allocs = Counter[str]()
        self.own = Counter[str]()
        for alloc in state.allocs.values():
            task = alloc.allocated_resources.tasks["web"]
            self._take(alloc.node_id, task.cpu.cpu_shares, task.memory.memory_mb)
        self.binpacks = state.scheduler_config.scheduler_algorithm != "spread"
        self.salt = number_of(7, "rank", self.group.name)

    def _is_feasible(self, node: Node) -> bool:
        rules = (*self.job.constraints, *self.group.constraints)
        return all(holds(r.operand, resolve(r.l_target, node), resolve(r.r_target, node)) for r in rules)

    def _take(self, node_id: str, cpu: int, memory: int) -> None:
        self.used[node_id][0] += cpu
        self.used[node_id][1] += memory
        self.used[node_id][2] += 300
        self.allocs[node_id] += 1

    def place(self) -> tuple[str, float] | None:
        asked = self.group.tasks[0].resources
        best = None
        for node in self.nodes:
            if self._has_capacity(node, asked):
                parts = self._parts(node, asked)
                score = sum(parts) / len(parts)
                tie = int(mix(np.array([tie_of(node.id)], np.uint64), self.salt)[0])
                if best is None or (-score, tie) < best[:2]:
                    best = (-score, tie, node.id)
        if best is None:
            return None
        self._take(best[2], asked.cpu, asked.memory_mb)
        self.own[best[2]] += 1
        return best[2], round(-best[0]) / UNIT

    def scores(self) -> dict[str, float]:
        """What every node with room is worth."""
        asked = self.group.tasks[0].resources
        parts = {node.id: self._parts(node, asked) for node in self.nodes if self._has_capacity(node, asked)}
        return {node_id: round(sum(each) / len(each)) / UNIT for node_id, each in parts.items()}

    def exhausted(self) -> tuple[int, dict[str, int], dict[str, int]]:
        """How many nodes have no room, by class, and by what they lack."""
        asked = self.group.tasks[0].resources
        full = [node for node in self.nodes if not self._has_capacity(node, asked)]
        lacks = Counter(name for node in full for name in self._lacking(node, asked))
        return len(full), dict(sorted(Counter(node.node_class for node in full).items())), dict(sorted(lacks.items()))

    def _has_capacity(self, node: Node, asked: Resources) -> bool:
        return not self._lacking(node, asked)

    def _lacking(self, node: Node, asked: Resources) -> list[str]:
        used, has = self.used[node.id], node.node_resources
        limit = node.node_max_allocs
        fits = {
            "cpu": used[0] + asked.cpu <= has.cpu.cpu_shares,
            "memory": used[1] + asked.memory_mb <= has.memory.memory_mb,
            "disk": used[2] + 300 <= has.disk.disk_mb,
            "max allocations exceeded": not limit or self.allocs[node.id] < limit,
        }
        return [name for name, does_fit in fits.items() if not does_fit]

    def _parts(self, node: Node, asked: Resources) -> list[int]:
        used, has = self.used[node.id], node.node_resources
        total = sum(
            math.exp((1 - (taken + more) / offered) * math.log(10))
            for taken, more, offered in (
                (used[0], asked.cpu, has.cpu.cpu_shares),
                (used[1], asked.memory_mb, has.memory.memory_mb),
            )
        )
        raw = 20 - total if self.binpacks else total - 2
        parts = [round(min(18.0, max(0.0, raw)) * (UNIT / 18))]
        if self.own[node.id]:
            parts.append(-round((self.own[node.id] + 1) / self.group.count * UNIT))
        for extra in (self._affinity(node), self._spread(node)):
            if extra:
                parts.append(extra)
        return parts

    def _affinity(self, node: Node) -> int:
        expected = self.group.affinities
        weight = sum(abs(a.weight) for a in expected)
        met = sum(a.weight for a in expected if holds(a.operand, resolve(a.l_target, node), a.r_target))
        return round(met / weight * UNIT) if weight else 0

    def _spread(self, node: Node) -> int:
        weights = sum(spread.weight for spread in self.group.spreads)
        return sum(self._boost(spread, node, weights) for spread in self.group.spreads)

    def _boost(self, spread: Spread, node: Node, weights: int) -> int:
        value = resolve(spread.attribute, node)
        if value is None:
            return -UNIT
        counts = Counter[str | None]()
        every = {node.id: resolve(spread.attribute, node) for node in self.everywhere}
        for node_id, number in self.own.items():
            counts[every[node_id]] += number
        if spread.spread_target:
            expected = {target.value: target.percent / 100 * self.group.count for target in spread.spread_target}
            desired = expected[value]
            if not desired:
                others = [(expected[each], counts[each]) for each in set(every.values()) if each and expected[each]]
                shares = [(d - count - 1) / d * (spread.weight / weights) for d, count in others]
                return min([-UNIT, *(round(share * UNIT) for share in shares)])
            return round((desired - counts[value] - 1) / desired * (spread.weight / weights) * UNIT)
        seen = [counts[each] for each in counts if each is not None and counts[each]]
        if not seen:
            return 0
        low, high, count = min(seen), max(seen), counts[value]
        if count == low:
            return -UNIT if low == high else round((high - low) / low * UNIT)
        return round((low - count) / low * UNIT)


def _exhausted(metrics: AllocationMetric) -> tuple[int, dict[str, int], dict[str, int]]:
    return metrics.nodes_exhausted, dict(metrics.class_exhausted), dict(metrics.dimension_exhausted)


@pytest.mark.parametrize("seed", range(8))
def test_placements_and_their_scores_are_those_of_the_plain_scheduler(seed: int) -> None:
    random = Random(seed)
    placed = 0
    for _ in range(CASES // 8):
        state = _state(random)
        for name in ("first", "second"):
            job = _job(random, name)
            state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state
            plain = Plain(state, job)
            plan = _attempt(state, job).plan
            for placement in plan.placements:
                metrics = placement.metrics
                assert metrics is not None
                chosen = metrics.score_meta_data[0]
                assert _exhausted(metrics) == plain.exhausted()
                assert (placement.node_id, chosen.norm_score) == plain.place()
                assert chosen.node_id == placement.node_id
                tables = [meta.node_id for meta in metrics.score_meta_data]
                assert len(set(tables)) == len(tables)
            assert len(plan.placements) == job.task_groups[0].count or plain.place() is None
            placed += len(plan.placements)
            if not plan.is_empty:
                state = apply(state, c.ApplyPlan(plan=plan), index=state.index + 1).state
    assert placed > 100


def _norm(parts: list[int]) -> float:
    return round(sum(parts) / len(parts)) / UNIT


def test_the_next_best_of_a_table_are_the_best_of_the_other_nodes() -> None:
    random = Random(3)
    for _ in range(20):
        state = _state(random)
        job = _job(random, "web")
        job = replace(job, task_groups=(replace(job.task_groups[0], spreads=(), count=12),))
        state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state
        plain = Plain(state, job)
        for placement in _attempt(state, job).plan.placements:
            asked = job.task_groups[0].tasks[0].resources
            roomy = [node for node in plain.nodes if plain._has_capacity(node, asked)]
            scores = {node.id: _norm(plain._parts(node, asked)) for node in roomy}
            assert placement.metrics is not None
            shown = {meta.node_id: meta.norm_score for meta in placement.metrics.score_meta_data}
            assert sorted(shown.values(), reverse=True) == sorted(scores.values(), reverse=True)[:5]
            assert all(scores[node_id] == score for node_id, score in shown.items())
            plain.place()


def test_a_run_is_the_same_however_much_is_looked_at_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)
    for _ in range(30):
        state = _state(random)
        job = _job(random, "web")
        job = replace(job, task_groups=(replace(job.task_groups[0], spreads=(), count=random.choice((1, 7, 60))),))
        state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state
        plans = []
        for few, size, depth in ((0, 1 << 18, 1 << 10), (3, 1 << 15, 4), (3, 16, 2), (0, 1, 1), (100, 1 << 15, 4)):
            monkeypatch.setattr(runs, "FEW", few)
            monkeypatch.setattr(runs, "CELLS_MAX", size)
            monkeypatch.setattr(runs, "DEPTH_MIN", depth)
            plans.append(_attempt(state, job).plan)
        assert all(plan == plans[0] for plan in plans)


@pytest.mark.parametrize("many", [1, 1000])
def test_spreads_place_the_same_however_their_cells_are_kept(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "MANY", many)
    random = Random(17)
    placed = 0
    for _ in range(CASES // 5):
        state = _state(random)
        job = _job(random, "web")
        shares = random.choice(((), (40, 30, 20, 10), (70, 30, 0, 0)))
        targets = tuple(SpreadTarget(value=f"r{number}", percent=share) for number, share in enumerate(shares))
        racks = Spread(attribute="${meta.rack}", weight=50, spread_target=targets)
        spreads = (racks, Spread(attribute="${node.class}", weight=20))
        job = replace(job, task_groups=(replace(job.task_groups[0], spreads=spreads[: random.choice((1, 2))]),))
        state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state
        plain = Plain(state, job)
        for placement in _attempt(state, job).plan.placements:
            assert placement.metrics is not None
            shown = placement.metrics.score_meta_data
            assert _exhausted(placement.metrics) == plain.exhausted()
            assert (placement.node_id, shown[0].norm_score) == plain.place()
            assert [meta.norm_score for meta in shown] == sorted((meta.norm_score for meta in shown), reverse=True)
            placed += 1
    assert placed > 100


def test_a_spread_goes_on_when_all_nodes_of_a_cell_were_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "MANY", 1)
    preemption = PreemptionConfig(service_scheduler_enabled=True)
    state = Snapshot.empty()
    commands: list[c.AnyCommand] = [
        c.SetSchedulerConfiguration(configuration=SchedulerConfiguration(preemption_config=preemption)),
        *(c.RegisterNode(node=factories.node(factories.number_id(number, kind=1))) for number in range(2)),
    ]
    for command in commands:
        state = apply(state, command, index=state.index + 1).state
    task = factories.task(resources=Resources(cpu=3000, memory_mb=64))
    group = factories.group(count=2, tasks=(task,), spreads=(Spread(attribute="${node.datacenter}", weight=50),))
    for name, priority in (("low", 10), ("high", 90)):
        job = factories.job(name, priority=priority, task_groups=(group,))
        state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state
        plan = _attempt(state, job).plan
        state = apply(state, c.ApplyPlan(plan=plan), index=state.index + 1).state
    assert len(plan.placements) == len(plan.preemptions) == 2


def test_the_best_of_scores_are_those_that_sorting_gives() -> None:
    random = Random(23)
    for _ in range(CASES):
        size, kinds = random.randrange(1, 900), random.choice((1, 2, 5, 1000))
        values = [random.choice((-math.inf, *range(kinds))) for _ in range(size)]
        ties = [random.getrandbits(64) for _ in range(size)]
        expected = random.randrange(1, size + 2)
        rows, is_all = top_k.best_rows(np.array(values, np.float64), np.array(ties, np.uint64), expected)
        possible = sorted((-value, tie, row) for row, (value, tie) in enumerate(zip(values, ties, strict=True)))
        everything = [row for value, _, row in possible if value < math.inf]
        assert sorted(rows.tolist()) == sorted(everything[:expected])
        assert not is_all or len(rows) == len(everything)


def test_the_quick_check_of_a_plan_refuses_what_the_slow_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(11)
    refused = 0
    for _ in range(60):
        state = _state(random)
        jobs = [_job(random, name) for name in ("first", "second")]
        for job in jobs:
            state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state
        late = _attempt(state, jobs[1]).plan
        first = _attempt(state, jobs[0]).plan
        if not first.is_empty:
            state = apply(state, c.ApplyPlan(plan=first), index=state.index + 1).state
        answers = []
        for many in (0, 1_000_000):
            monkeypatch.setattr(plan_check, "MANY", many)
            answers.append(plan_check.check_plan(state, late))
        assert answers[0] == answers[1]
        refused += bool(answers[0].rejected_nodes)
    assert refused > 5
