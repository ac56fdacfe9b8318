"""Blocked evaluations: what unblocks them, what was missed, and one per job."""

from __future__ import annotations

from typing import Any

from yurt.broker import BlockedEvals
from yurt.structs.evaluation import Evaluation


def blocked(name: str, **changes: Any) -> Evaluation:
    made: dict[str, Any] = {"id": name, "job_id": name, "status": "blocked", "snapshot_index": 10} | changes
    return Evaluation(**made)


def test_a_class_that_was_not_ruled_out_unblocks() -> None:
    evals = BlockedEvals()
    fits, refused = blocked("a", class_eligibility={"v1:1": True}), blocked("b", class_eligibility={"v1:1": False})
    assert not evals.block(fits)
    assert not evals.block(refused)
    assert evals.unblock_class("v1:1", index=11) == (fits,)
    assert len(evals) == 1


def test_a_class_that_nobody_knew_unblocks() -> None:
    evals = BlockedEvals()
    unknown = blocked("a", class_eligibility={"v1:1": False})
    evals.block(unknown)
    assert evals.unblock_class("v1:2", index=11) == (unknown,)


def test_an_escaped_evaluation_is_unblocked_by_any_class() -> None:
    evals = BlockedEvals()
    escaped = blocked("a", escaped_computed_class=True, class_eligibility={"v1:1": False})
    evals.block(escaped)
    assert evals.escaped == 1
    assert evals.unblock_class("v1:1", index=11) == (escaped,)


def test_an_unblock_between_snapshot_and_block_is_not_missed() -> None:
    evals = BlockedEvals()
    evals.unblock_class("v1:1", index=11)
    assert evals.block(blocked("late", snapshot_index=10))
    assert not evals.block(blocked("current", snapshot_index=11))
    assert not evals.block(blocked("refused", snapshot_index=10, class_eligibility={"v1:1": False}))


def test_of_two_blocked_evaluations_of_a_job_the_older_is_superseded() -> None:
    evals = BlockedEvals()
    evals.block(blocked("old", job_id="web", snapshot_index=10))
    evals.block(blocked("new", job_id="web", snapshot_index=12))
    evals.block(blocked("older", job_id="web", snapshot_index=5))
    (first, reason), (second, _) = evals.take_superseded(10)
    assert (first.id, second.id) == ("old", "older")
    assert reason == 'existing blocked evaluation exists for job "web"'
    assert [e.id for e in evals.unblock_class("x", index=20)] == ["new"]


def test_the_same_name_in_another_namespace_is_another_job() -> None:
    evals = BlockedEvals()
    evals.block(blocked("a", job_id="web"))
    evals.block(blocked("b", job_id="web", namespace="prod"))
    assert len(evals) == 2
    assert evals.take_superseded(10) == ()


def test_a_system_evaluation_waits_for_its_node() -> None:
    evals = BlockedEvals()
    one, two = blocked("a", job_id="sys", node_id="n1"), blocked("b", job_id="sys", node_id="n2")
    evals.block(one)
    evals.block(two)
    assert evals.unblock_class("v1:1", index=11) == ()
    assert evals.unblock_node("n1", index=11) == (one,)
    assert evals.block(one)
    assert len(evals) == 1


def test_placement_conflicts_are_tried_again() -> None:
    evals = BlockedEvals()
    conflict = blocked("a", triggered_by="max-plan-attempts")
    evals.block(conflict)
    evals.block(blocked("b"))
    assert evals.unblock_failed() == (conflict,)


def test_pruned_unblocks_are_forgotten_and_newer_ones_kept() -> None:
    evals = BlockedEvals()
    evals.unblock_class("old", index=11)
    evals.prune(12)
    assert not evals.block(blocked("a", snapshot_index=10))
    evals.unblock_class("new", index=13)
    assert evals.block(blocked("b", snapshot_index=12))


def test_an_evaluation_that_ended_elsewhere_is_forgotten() -> None:
    evals = BlockedEvals()
    evaluation = blocked("a")
    evals.block(evaluation)
    evals.forget(evaluation)
    assert evals.unblock_class("v1:1", index=20) == ()
