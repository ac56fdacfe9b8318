"""Terms of scores: each kind is documented, and a new one takes part in every way in which placements are ordered."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.placing import runs
from yurt.scheduler.placing.terms import registry
from yurt.scheduler.placing.terms.term import UNIT, FixedTerm, ScoreTerm, TermContext, TermKind
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.state.arrays import IntArray
from yurt.state.columns import CPU
from yurt.structs import commands as c
from yurt.structs.constraint import Spread
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.resources import Resources
from yurt.testing import factories

PAGE = Path(__file__).parents[3] / "docs/explanation/scheduling.md"


def _price(context: TermContext) -> ScoreTerm:
    """Minus the price that a node tells, in tenths of one."""
    view = context.view
    values: IntArray = np.zeros(len(view.offered), np.int64)
    for node_id, row in view.columns.rows.items():
        values[row] = -int(view.snapshot.nodes[node_id].meta.get("price", 0)) * UNIT // 10
    return FixedTerm("price", values)


class Power:
    """Minus the square of the share of cpu that is used: the power that one more allocation costs grows with it."""

    name = "power"
    counts_at_zero = True
    follows_placements = True

    def __init__(self, context: TermContext) -> None:
        self._view, self._asked = context.view, context.ask.plain.usage.cpu
        self.values: IntArray = np.zeros(len(context.view.offered), np.int64)

    def refresh(self, rows: BoolArray) -> None:
        every = np.arange(len(self.values))
        self.values = self.upcoming(every, np.array([1]))[:, 0]

    def update(self, row: int) -> None:
        self.values[row] = self.upcoming(np.array([row]), np.array([1]))[0, 0]

    def upcoming(self, rows: IntArray, numbers: IntArray) -> IntArray:
        used = self._view.used[rows, CPU][:, None] + numbers * self._asked
        shares = used / np.maximum(1, self._view.offered[rows, CPU])[:, None]
        return -np.rint(shares * shares * UNIT).astype(np.int64)


KINDS = (*registry.KINDS, TermKind("price", make=_price), TermKind("power", counts_at_zero=True, make=Power))


def _state(random: Random) -> Snapshot:
    state = Snapshot.empty()
    for number in range(random.randrange(2, 25)):
        node = factories.node(factories.number_id(number, kind=1), meta={"price": str(random.randrange(3))})
        resources = node.node_resources
        cpu = replace(resources.cpu, cpu_shares=random.choice((1000, 2000, 3000)))
        node = replace(node, node_resources=replace(resources, cpu=cpu))
        state = apply(state, c.RegisterNode(node=node), index=state.index + 1).state
    return state


def _job(*, count: int, spreads: tuple[Spread, ...] = ()) -> Job:
    task = factories.task(resources=Resources(cpu=100, memory_mb=16))
    group = factories.group(count=count, tasks=(task,), spreads=spreads)
    return factories.job("web", datacenters=("*",), task_groups=(group,))


def _attempt(state: Snapshot, job: Job) -> scheduler.Attempt:
    evaluation = Evaluation(id="eval", job_id=job.id, type=job.type, triggered_by="job-register")
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=7)


def test_every_kind_has_a_name_of_its_own_and_a_line_in_the_documentation() -> None:
    names = [kind.name for kind in registry.KINDS]

    assert len(set(names)) == len(names)
    assert [name for name in names if f"| `{name}` |" not in PAGE.read_text()] == []


def test_a_term_that_no_placement_changes_decides_between_nodes_and_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", KINDS[:-1])
    state = Snapshot.empty()
    for number, price in enumerate((9, 0)):
        node = factories.node(factories.number_id(number, kind=1), meta={"price": str(price)})
        state = apply(state, c.RegisterNode(node=node), index=state.index + 1).state
    job = _job(count=1)
    state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state

    (placement,) = _attempt(state, job).plan.placements

    assert placement.metrics is not None
    cheap, dear = placement.metrics.score_meta_data
    assert (placement.node_id, cheap.scores["price"]) == (factories.number_id(1, kind=1), 0)
    assert dear.scores["price"] == -0.9
    assert dear.norm_score == pytest.approx((dear.scores["binpack"] - 0.9) / 2)


@pytest.mark.parametrize("spreads", [(), (Spread(attribute="${meta.price}", weight=50),)])
def test_a_run_with_new_terms_is_the_same_as_one_placement_after_another(
    spreads: tuple[Spread, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "KINDS", KINDS)
    random = Random(29)
    for _ in range(40):
        state = _state(random)
        job = _job(count=random.choice((1, 20, 60)), spreads=spreads)
        state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state
        plans = []
        for few, cells in ((0, 1 << 15), (3, 16), (1 << 20, 1)):
            monkeypatch.setattr(runs, "FEW", few)
            monkeypatch.setattr(runs, "CELLS_MAX", cells)
            plans.append(_attempt(state, job).plan)
        assert plans[0].placements
        assert all(plan == plans[0] for plan in plans)


def test_the_mean_counts_each_term_as_its_kind_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", KINDS)
    random = Random(31)
    state, job = _state(random), _job(count=50)
    state = apply(state, c.RegisterJob(job=job), index=state.index + 1).state

    for placement in _attempt(state, job).plan.placements:
        assert placement.metrics is not None
        for meta in placement.metrics.score_meta_data:
            shown = [value for name, value in meta.scores.items() if value or name in ("binpack", "power")]
            assert meta.norm_score == pytest.approx(sum(shown) / len(shown))
