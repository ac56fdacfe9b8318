"""Blocked evaluations: what unblocks them, what was missed, and one per job."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from yurt.broker import BlockedEvals
from yurt.structs.evaluation import Evaluation


def blocked(name: str, **changes: Any) -> Evaluation:
    made: dict[str, Any] = {"id": name, "job_id": name, "status": "blocked", "snapshot_index": 10} | changes
    return Evaluation(**made)


def unblocked(evals: BlockedEvals, computed_class: str, *, index: int) -> tuple[Evaluation, ...]:
    evals.unblock_class(computed_class, index=index)
    return looked_through(evals)


def looked_through(evals: BlockedEvals) -> tuple[Evaluation, ...]:
    found: list[Evaluation] = []
    while evals.has_changes:
        found += evals.take_unblocked(2)
    return tuple(found)


def test_a_class_that_was_not_ruled_out_unblocks() -> None:
    evals = BlockedEvals()
    fits, refused = blocked("a", class_eligibility={"v1:1": True}), blocked("b", class_eligibility={"v1:1": False})
    assert not evals.block(fits)
    assert not evals.block(refused)
    assert unblocked(evals, "v1:1", index=11) == (fits,)
    assert len(evals) == 1


def test_a_class_that_nobody_knew_unblocks() -> None:
    evals = BlockedEvals()
    unknown = blocked("a", class_eligibility={"v1:1": False})
    evals.block(unknown)
    assert unblocked(evals, "v1:2", index=11) == (unknown,)


def test_an_escaped_evaluation_is_unblocked_by_any_class() -> None:
    evals = BlockedEvals()
    escaped = blocked("a", escaped_computed_class=True, class_eligibility={"v1:1": False})
    evals.block(escaped)
    assert evals.escaped == 1
    assert unblocked(evals, "v1:1", index=11) == (escaped,)


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
    assert [e.id for e in unblocked(evals, "x", index=20)] == ["new"]


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
    assert unblocked(evals, "v1:1", index=11) == ()
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
    assert unblocked(evals, "v1:1", index=20) == ()


def test_news_is_looked_at_in_bounded_steps_the_most_urgent_first() -> None:
    evals = BlockedEvals()
    waiting = [blocked(f"{number:03}", priority=number % 3 + 1) for number in range(100)]
    for evaluation in waiting:
        evals.block(evaluation)
    evals.unblock_class("v1:1", index=11)
    evals.unblock_class("v1:2", index=12)
    steps = []
    while evals.has_changes:
        steps.append(evals.take_unblocked(20))
    assert {len(step) for step in steps} == {10, 0}
    assert [one for step in steps for one in step] == sorted(waiting, key=lambda one: -one.priority)
    assert len(evals) == 0


def test_what_took_the_place_of_an_evaluation_during_a_round_is_not_unblocked_by_what_it_saw() -> None:
    evals = BlockedEvals()
    evals.block(blocked("first", priority=90))
    evals.block(blocked("old", job_id="web"))
    evals.unblock_class("v1:1", index=11)
    assert [one.id for one in evals.take_unblocked(1)] == ["first"]
    evals.block(blocked("new", job_id="web", snapshot_index=11))
    assert looked_through(evals) == ()
    assert [one.id for one in unblocked(evals, "v1:1", index=12)] == ["new"]


CLASSES = ("v1:1", "v1:2")
NAMES = ("", "a", "b")
BLOCK = st.tuples(
    st.just("block"), st.integers(0, 4), st.integers(0, 3), st.sets(st.sampled_from(CLASSES), max_size=1),
    st.booleans(), st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES[1:])), st.sampled_from(("", "", "n1", "n2")),
)  # fmt: skip
NEWS = st.one_of(
    st.tuples(st.just("class"), st.sampled_from(CLASSES)),
    st.tuples(st.just("limit"), st.sampled_from(NAMES[1:])),
    st.tuples(st.just("missing"), st.sampled_from(NAMES[1:])),
    st.tuples(st.just("node"), st.sampled_from(("n1", "n2"))),
)
LOOK = st.tuples(st.just("look"), st.integers(1, 4))
FORGET = st.tuples(st.just("forget"), st.integers(0, 5))


def unblocks(kind: str, name: str, one: Evaluation) -> bool:
    """What wakes an evaluation, said once more and plainly."""
    match kind:
        case "class":
            return not one.node_id and (one.escaped_computed_class or one.class_eligibility.get(name, True))
        case "limit":
            return one.quota_limit_reached == name
        case "missing":
            return name in one.missing_non_node_resources
        case _:
            return one.node_id == name


@given(st.lists(st.one_of(BLOCK, BLOCK, NEWS, LOOK, LOOK, FORGET), min_size=15, max_size=60))
def test_whatever_comes_between_two_looks_each_evaluation_wakes_once_for_news_it_has_not_seen_and_for_no_other(
    events: list[tuple[Any, ...]],
) -> None:
    evals, made, gone = BlockedEvals(), list[Evaluation](), set[str]()
    news: list[tuple[int, str, str]] = []
    woken: list[Evaluation] = []
    for index, event in enumerate(events, start=1):
        match event:
            case ("block", job, age, ruled_out, escaped, limit, lacks, node_id):
                one = blocked(
                    f"e{index}", job_id=f"job-{job}", snapshot_index=max(0, index - 1 - age), create_index=index,
                    class_eligibility=dict.fromkeys(ruled_out, False), escaped_computed_class=escaped,
                    quota_limit_reached=limit, missing_non_node_resources=tuple(sorted(lacks)), node_id=node_id,
                )  # fmt: skip
                made.append(one)
                woken += [one] if evals.block(one) else []
                gone.update(superseded.evaluation.id for superseded in evals.take_superseded(9))
            case ("look", limit):
                woken += evals.take_unblocked(limit) if evals.has_changes else ()
            case ("forget", number):
                found = made[number % len(made)] if made else blocked("none")
                evals.forget(found)
                gone.add(found.id)
            case (kind, name):
                news.append((index, kind, name))
                if kind == "node":
                    woken += evals.unblock_node(name, index=index)
                else:
                    getattr(evals, f"unblock_{kind}")(name, index=index)
        evals.check()
    woken += looked_through(evals)
    due = {
        one.id for one in made if any(at > one.snapshot_index and unblocks(kind, name, one) for at, kind, name in news)
    }
    ids = [one.id for one in woken]
    assert len(ids) == len(set(ids))
    assert set(ids) <= due
    assert due - set(ids) <= gone
    assert len(evals) == len({one.id for one in made} - set(ids) - gone)
