"""A term begins with what the leader before knew in its memory alone: no blocked evaluation waits for ever (B4)."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.runtime.turns import Turns
from yurt.sdk.value import replace
from yurt.server.scheduling.eval_queue import EvalQueue
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.evaluation import Evaluation
from yurt.structs.plan import AllocStop, Plan
from yurt.testing import factories
from yurt.testing.fakes import FakeEnv
from yurt.testing.quotas import QUOTAS, bound, guaranteed, quota
from yurt.testing.replica import Replica

NODE = factories.node()
JOB = factories.job()
PLACEMENT = factories.placement(JOB, on=NODE)
WAITS: dict[str, dict[str, Any]] = {
    "for a class": {"class_eligibility": {NODE.computed_class: True}},
    "for any class": {"escaped_computed_class": True},
    "for a node": {"node_id": NODE.id, "type": "system"},
    "for a quota": {"class_eligibility": {NODE.computed_class: False}, "quota_limit_reached": "small"},
}
NEVER = {"class_eligibility": {NODE.computed_class: False}}
ENDED = c.UpdateAllocsFromClient(
    updates=(c.AllocUpdate(id=PLACEMENT.id, node_id=NODE.id, client_status=status.CLIENT_COMPLETE),)
)


@pytest.fixture
def replica() -> Replica:
    found = Replica()
    found.apply(c.RegisterNode(node=NODE), *bound(), c.RegisterJob(job=JOB))
    plan = Plan(eval_id="e0", namespace="default", job_id=JOB.id, placements=(PLACEMENT,))
    found.apply(c.ApplyPlan(plan=plan))
    return found


def blocked(replica: Replica, wait: dict[str, Any]) -> Evaluation:
    """An evaluation that was planned on the present state, and is stored later."""
    seen = replica.state.index
    return Evaluation(id="e1", job_id="other", status="blocked", snapshot_index=seen, **({"type": "service"} | wait))


def ready(state: Snapshot) -> int:
    queue = EvalQueue(env=FakeEnv(), writer=None, current=lambda: state, turns=Turns())
    queue.restore(state)
    queue.blocked.check()
    assert queue.broker.ready + len(queue.blocked) == 1
    return queue.broker.ready


@pytest.mark.parametrize(
    "left",
    [c.SetNodeEligibility(node_id=NODE.id, eligibility="ineligible"), c.DeleteNodes(node_ids=(NODE.id,))],
    ids=["ineligible", "removed"],
)
def test_what_waits_for_a_node_that_left_before_the_term_is_woken(replica: Replica, left: c.AnyCommand) -> None:
    evaluation = blocked(replica, WAITS["for a node"])
    replica.apply(left, c.UpsertEvaluations(evaluations=(evaluation,)))
    assert ready(replica.state) == 1
    again = replace(evaluation, snapshot_index=replica.state.index)
    replica.apply(c.UpsertEvaluations(evaluations=(again,)))
    assert ready(replica.state) == 0, "it was planned without the node"


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("is_stored_first", [True, False])
def test_what_was_freed_before_the_term_wakes_what_waits(
    replica: Replica, wait: dict[str, Any], is_stored_first: bool
) -> None:
    stored = c.UpsertEvaluations(evaluations=(blocked(replica, wait),))
    replica.apply(*((stored, ENDED) if is_stored_first else (ENDED, stored)))
    assert ready(replica.state) == 1


@pytest.mark.parametrize("wait", (*WAITS.values(), NEVER), ids=(*WAITS, "for another class"))
def test_what_knew_of_it_goes_on_waiting(replica: Replica, wait: dict[str, Any]) -> None:
    replica.apply(ENDED)
    replica.apply(c.UpsertEvaluations(evaluations=(blocked(replica, wait),)))
    assert ready(replica.state) == 0


def test_what_cannot_use_it_goes_on_waiting(replica: Replica) -> None:
    evaluation = blocked(replica, NEVER)
    replica.apply(ENDED, c.UpsertEvaluations(evaluations=(evaluation,)))
    assert ready(replica.state) == 0


def test_a_quota_that_was_raised_before_the_term_wakes_what_waits_for_it(replica: Replica) -> None:
    evaluation = blocked(replica, WAITS["for a quota"])
    replica.apply(c.UpsertQuotas(quotas=(quota(cpu=9),)), c.UpsertEvaluations(evaluations=(evaluation,)))
    assert ready(replica.state) == 1


def test_a_node_that_came_before_the_term_wakes_what_waits(replica: Replica) -> None:
    evaluation = blocked(replica, WAITS["for any class"])
    other = replace(factories.node(id="n2"), computed_class="v1:9")
    replica.apply(c.RegisterNode(node=other), c.UpsertEvaluations(evaluations=(evaluation,)))
    assert ready(replica.state) == 1


@pytest.mark.parametrize(("amounts", "woken"), [({"memory_mb": 100}, 1), ({}, 0)])
def test_a_guarantee_that_changed_before_the_term_wakes_its_namespaces_alone(
    replica: Replica, amounts: dict[str, int], woken: int
) -> None:
    evaluation = blocked(replica, NEVER)
    replica.apply(c.UpsertEvaluations(evaluations=(evaluation,)))
    spec = guaranteed(quota("small"), **amounts) if amounts else replace(quota("small"), description="other")
    replica.apply(c.UpsertQuotas(quotas=(spec,)))
    state = replica.state
    queue = EvalQueue(env=FakeEnv(), writer=None, current=lambda: state, turns=Turns(), limits=QUOTAS)
    queue.restore(state)
    assert (queue.broker.ready, len(queue.blocked)) == (woken, 1 - woken)


STOPPED = c.ApplyPlan(plan=Plan(
    eval_id="e2", namespace="default", job_id=JOB.id,
    stops=(AllocStop(id=PLACEMENT.id, node_id=NODE.id, desired_status="stop"),),
))  # fmt: skip


@pytest.mark.parametrize(("amounts", "woken"), [({"memory_mb": 100}, 1), ({}, 0)], ids=["guaranteed", "limited"])
@pytest.mark.parametrize("change", [ENDED, STOPPED], ids=["ended", "stopped"])
@pytest.mark.parametrize("is_missed", [True, False])
def test_what_goes_under_a_guarantee_wakes_what_may_be_within_it_now(
    replica: Replica, change: c.AnyCommand, amounts: dict[str, int], woken: int, *, is_missed: bool
) -> None:
    """No node of the class that it needs has become free, but there it may reclaim what is lent."""
    replica.apply(c.UpsertQuotas(quotas=(guaranteed(quota("small"), **amounts) if amounts else quota("small"),)))
    replica.apply(c.UpsertEvaluations(evaluations=(blocked(replica, NEVER),)))
    queue = EvalQueue(env=FakeEnv(), writer=None, current=lambda: replica.state, turns=Turns(), limits=QUOTAS)
    if not is_missed:
        queue.restore(replica.state)
    replica.apply(change)
    if is_missed:
        queue.restore(replica.state)
    else:
        queue.observe(replica.changes, index=replica.state.index)
    queue.blocked.check()
    assert (queue.broker.ready, len(queue.blocked)) == (woken, 1 - woken)
