"""Gangs: a group's allocations are placed together or not at all, and no gang is ever left in part."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler import explain
from yurt.scheduler.attempts import Attempt
from yurt.scheduler.plan_check import check_plan
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation, DesiredTransition, TaskState
from yurt.structs.constraint import Constraint
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.plan import DeploymentUpdate, Plan
from yurt.structs.policies import DisconnectStrategy, Gang, ReschedulePolicy, UpdateStrategy
from yurt.structs.predicates import is_terminal
from yurt.structs.resources import Resources
from yurt.structs.rules import GANG_GROWTH_RULES, GANG_MEMBER_RULES, RULES_VERSION
from yurt.testing import factories
from yurt.testing.nightly import cases
from yurt.testing.sim.change_checks import gangs_in_part


def _node(number: int) -> Node:
    return factories.node(factories.number_id(number, kind=1))


def _group(name: str, count: int, memory_mb: int, least: int | None = 0) -> TaskGroup:
    task = factories.task(resources=Resources(cpu=10, memory_mb=memory_mb))
    gang = None if least is None else Gang(min=least)
    return factories.group(name, count, tasks=(task,), gang=gang, update=None)


def _job(*groups: TaskGroup, **changes: Any) -> Job:
    return factories.job(task_groups=groups, **changes)


def _with(state: Snapshot, *made: c.AnyCommand) -> Snapshot:
    for command in made:
        step = apply(state, command, index=state.index + 1)
        assert isinstance(step.result, c.Applied), step.result
        state = step.state
    return state


def _state(nodes: int, job: Job) -> Snapshot:
    made = [c.RegisterNode(node=_node(number)) for number in range(nodes)]
    return _with(Snapshot.empty(), *made, c.RegisterJob(job=job))


def _attempt(state: Snapshot, job: Job) -> Attempt:
    evaluation = Evaluation(id=f"eval-{job.id}-{state.index}", job_id=job.id, triggered_by="job-register")
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=state.index)


def _placed(attempt: Attempt) -> dict[str, int]:
    found: dict[str, int] = {}
    for placement in attempt.plan.placements:
        found[placement.task_group] = found.get(placement.task_group, 0) + 1
    return found


ROOM = 8192 - 256
"""Memory of one node of the factories that jobs may have."""


def test_a_gang_that_does_not_fit_as_a_whole_is_not_placed_and_says_how_much_fits() -> None:
    job = _job(_group("gang", 5, ROOM // 2))
    made = _attempt(_state(2, job), job)
    metric = made.outcome.evaluation.failed_tg_allocs["gang"]
    assert not made.plan.placements and not made.plan.preemptions
    assert metric.gang == "4 of the 5 that must run together find room"
    assert metric.coalesced_failures == 4 and made.outcome.evaluation.queued_allocations == {"gang": 5}
    assert [evaluation.status for evaluation in made.outcome.created] == ["blocked"]


@pytest.mark.parametrize(
    ("nodes", "room"),
    [(0, "0 of the 2 that must run together find room"), (1, "1 of the 2 that must run together finds room")],
)
def test_few_that_find_room_are_told_in_good_english(nodes: int, room: str) -> None:
    job = _job(_group("gang", 2, ROOM))
    assert _attempt(_state(nodes, job), job).outcome.evaluation.failed_tg_allocs["gang"].gang == room


def test_a_minimum_is_enough_and_the_rest_follows_later() -> None:
    job = _job(_group("gang", 5, ROOM // 2, least=3))
    state = _state(2, job)
    made = _attempt(state, job)
    assert _placed(made) == {"gang": 4} and made.plan.gangs == {"gang": 3}
    assert made.outcome.evaluation.queued_allocations == {"gang": 1}
    state = _with(state, c.ApplyPlan(plan=made.plan), c.RegisterNode(node=_node(9)))
    again = _attempt(state, job)
    assert _placed(again) == {"gang": 1} and again.plan.gangs == {}


def test_room_that_a_gang_left_is_given_to_the_other_groups() -> None:
    job = _job(_group("gang", 3, ROOM // 2), _group("web", 2, ROOM // 2, least=None))
    made = _attempt(_state(1, job), job)
    assert _placed(made) == {"web": 2}
    assert set(made.outcome.evaluation.failed_tg_allocs) == {"gang"}


def test_two_gangs_do_not_keep_each_other_out_by_halves() -> None:
    job = _job(_group("a", 3, ROOM // 4), _group("b", 3, ROOM // 4))
    made = _attempt(_state(1, job), job)
    assert _placed(made) == {"a": 3}


def test_members_that_are_lost_are_replaced_together_or_not_at_all() -> None:
    job = _job(_group("gang", 4, ROOM))
    state = _state(4, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    lost = [alloc.node_id for alloc in state.allocs_of_job("default", job.id)][:2]
    state = _with(state, *(c.SetNodeStatus(node_id=node, status="down", updated_at=1) for node in lost))
    state = _with(state, c.RegisterNode(node=_node(10)))
    made = _attempt(state, job)
    assert not made.plan.placements and len(made.plan.stops) == 2
    assert made.outcome.evaluation.failed_tg_allocs["gang"].gang == "3 of the 4 that must run together find room"
    state = _with(state, c.ApplyPlan(plan=made.plan), c.RegisterNode(node=_node(11)))
    assert _placed(_attempt(state, job)) == {"gang": 2}


@pytest.mark.parametrize("is_updated", [True, False])
def test_a_drain_of_a_batch_gang_places_the_missing_members_only_with_successors_of_the_older_version(
    is_updated: bool,
) -> None:
    """The drained ones are not replaced in their own version, and without them too few would run together."""
    job = _job(_group("workers", 3, ROOM), type="batch")
    state = _state(3, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    drained = DesiredTransition(migrate=True, migrate_disable_placement=True)
    leaving = {alloc.id: drained for alloc in state.allocs.values()}
    state = _with(state, c.RegisterJob(job=_job(_group("workers", 5, ROOM), type="batch")))
    if is_updated:
        state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    state = _with(state, *(c.RegisterNode(node=_node(number)) for number in range(10, 15)))
    state = _with(state, c.SetDesiredTransitions(transitions=leaving))
    made, outcome = _attempt(state, job)
    assert {stop.id for stop in made.stops} == leaving.keys() and not outcome.created
    told = 'gang "workers" waits: 3 of the 5 that must run together are missing'
    assert (len(made.placements), outcome.evaluation.status_description) == ((0, told) if is_updated else (5, ""))


@pytest.mark.parametrize("end", ["complete", "failed"])
def test_members_of_a_batch_gang_that_a_drain_has_stopped_do_not_count_when_the_missing_ones_find_room(
    end: status.ClientStatus,
) -> None:
    job = _job(_group("gang", 5, ROOM, least=3), type="batch")
    state = _state(3, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    drained = DesiredTransition(migrate=True, migrate_disable_placement=True)
    state = _with(state, c.SetDesiredTransitions(transitions={each.id: drained for each in state.allocs.values()}))
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    states = {"web": TaskState(state="dead", failed=end == "failed", finished_at=factories.NOW)}
    reports = tuple(
        c.AllocUpdate(id=each.id, node_id=each.node_id, client_status=end, task_states=states)
        for each in state.allocs.values()
    )
    state = _with(state, c.UpdateAllocsFromClient(updates=reports, now=factories.NOW))
    state = _with(state, *(c.RegisterNode(node=_node(number)) for number in (10, 11)))
    assert len(reports) == 3 and not _attempt(state, job).plan.placements


@pytest.mark.parametrize("kind", ["service", "batch"])
def test_a_member_is_not_placed_alone_while_those_that_failed_wait_for_their_replacement(kind: str) -> None:
    policy = ReschedulePolicy(delay=seconds(30), delay_function="constant", unlimited=True)
    gang = replace(_group("gang", 3, ROOM, least=2), reschedule_policy=policy)
    job = _job(gang, type=kind)
    state = _state(2, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    both = state.allocs_of_job("default", job.id)
    failed = TaskState(state="dead", failed=True, finished_at=factories.NOW)
    reports = tuple(
        c.AllocUpdate(id=each.id, node_id=each.node_id, client_status="failed", task_states={"web": failed})
        for each in both
    )
    state = _with(state, c.UpdateAllocsFromClient(updates=reports, now=factories.NOW))
    made = _attempt(state, job)
    (followup,) = [each for each in made.outcome.created if each.wait_until]
    assert len(both) == 2 and not made.plan.placements and not made.outcome.evaluation.failed_tg_allocs
    state = _with(state, c.ApplyPlan(plan=made.plan), c.UpsertEvaluations(evaluations=(followup,)))
    state = _with(state, c.RegisterNode(node=_node(10)), c.RegisterNode(node=_node(11)))
    assert not _attempt(state, job).plan.placements
    due = UnixNano(followup.wait_until)
    assert _placed(scheduler.attempt(state, followup, now=due, seed=1)) == {"gang": 3}


@pytest.mark.parametrize(("failed", "lost", "count"), [(2, 1, 3), (3, 0, 3), (3, 0, 4), (2, 1, 4), (2, 0, 3)])
def test_a_new_version_starts_a_gang_whose_members_have_ended_although_it_updates_one_by_one(
    failed: int, lost: int, count: int
) -> None:
    update, never = UpdateStrategy(max_parallel=1), ReschedulePolicy()
    job = _job(replace(_group("gang", 3, 100, least=2), update=update, reschedule_policy=never))
    state = _state(6, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    members = state.allocs_of_job("default", job.id)
    dead = TaskState(state="dead", failed=True, finished_at=factories.NOW)
    reports = tuple(
        c.AllocUpdate(id=each.id, node_id=each.node_id, client_status="failed", task_states={"web": dead})
        for each in members[:failed]
    )
    state = _with(state, c.UpdateAllocsFromClient(updates=reports, now=factories.NOW))
    nodes = [each.node_id for each in members[failed : failed + lost]]
    state = _with(state, *(c.SetNodeStatus(node_id=node, status="down", updated_at=1) for node in nodes))
    fixed = _job(replace(_group("gang", count, 101, least=2), update=update, reschedule_policy=never))
    state = _with(state, c.RegisterJob(job=fixed))

    state = _with(state, c.ApplyPlan(plan=_attempt(state, fixed).plan))

    live = [each for each in state.allocs_of_job("default", job.id) if not is_terminal(each)]
    assert len(live) == 2, "one by one, no two members would run together"
    assert sum(each.job is not None and each.job.version == 0 for each in live) == 3 - failed - lost


def test_the_applier_drops_a_gang_of_which_one_node_refuses_its_part() -> None:
    job = _job(_group("gang", 3, ROOM), _group("web", 1, 100, least=None))
    state = _state(4, job)
    plan = _attempt(state, job).plan
    gone = next(placement.node_id for placement in plan.placements if placement.task_group == "gang")
    late = _with(state, c.SetNodeEligibility(node_id=gone, eligibility="ineligible"))
    result = check_plan(late, plan)
    assert not result.is_full and result.refresh_index
    kept = {placement.task_group for placement in result.accepted.placements}
    assert "gang" not in kept and plan.gang_members == {"gang": 3} and result.accepted.gang_members == {}
    short = check_plan(late, replace(plan, gangs={"gang": 2})).accepted
    assert sum(placement.task_group == "gang" for placement in short.placements) == 2


def test_a_destructive_update_of_a_gang_that_does_not_fit_leaves_the_old_one_running() -> None:
    old = _job(_group("gang", 3, 100))
    state = _state(1, old)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, old).plan))
    new = _job(_group("gang", 3, ROOM))
    state = _with(state, c.RegisterJob(job=new))
    made = _attempt(state, new)
    assert len(made.plan.stops) == len(made.plan.placements) <= 1
    running = 3 - len(made.plan.stops) + len(made.plan.placements)
    assert running == 3


def test_why_not_says_that_the_gang_is_the_reason_and_what_the_next_member_lacks() -> None:
    job = _job(_group("gang", 5, ROOM // 2))
    state = _state(2, job)
    (found,) = explain.why_not(state, job, now=factories.NOW, seed=1).groups
    assert found.notes == ("gang: 4 of the 5 that must run together find room, so none of them is placed",)
    assert found.near_misses and found.unplaced == 5


@settings(max_examples=cases(500), deadline=None)
@given(
    nodes=st.integers(1, 5),
    shapes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(0, 6)), min_size=1, max_size=3),
    apart=st.booleans(),
)
def test_no_plan_holds_a_gang_in_part(nodes: int, shapes: list[tuple[int, int, int]], apart: bool) -> None:
    groups = [
        _group(f"g{number}", count, ROOM // share, least=min(least, count))
        for number, (count, share, least) in enumerate(shapes)
    ]
    rules = (Constraint(operand="distinct_hosts"),) if apart else ()
    job = _job(*groups, constraints=rules)
    state = _state(nodes, job)
    made = _attempt(state, job)
    placed = _placed(made)
    for group in groups:
        assert placed.get(group.name, 0) == 0 or placed[group.name] >= group.least
        assert placed.get(group.name, 0) + made.outcome.evaluation.queued_allocations[group.name] == group.count
    assert check_plan(state, made.plan).is_full


@pytest.mark.parametrize("lost", [1, 2])
def test_canaries_do_not_count_among_the_members_of_the_version_that_they_are_to_replace(lost: int) -> None:
    policy = ReschedulePolicy(delay=seconds(30), delay_function="constant", unlimited=True)
    update = UpdateStrategy(max_parallel=1, canary=4)
    group = replace(_group("gang", 4, 100), update=update, reschedule_policy=policy)
    job = _job(group)
    state = _state(8, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    old = state.allocs_of_job("default", job.id)
    newer = _job(replace(group, tasks=tuple(replace(task, env={"A": "b"}) for task in group.tasks)))
    state = _with(state, c.RegisterJob(job=newer))
    canaries = _attempt(state, newer).plan
    assert len(old) == len(canaries.placements) == 4
    state = _with(state, c.ApplyPlan(plan=canaries))
    dead = TaskState(state="dead", failed=True, finished_at=factories.NOW)
    reports = tuple(
        c.AllocUpdate(id=each.id, node_id=each.node_id, client_status="failed", task_states={"web": dead})
        for each in old[: 4 - lost - 1]
    )
    state = _with(state, c.UpdateAllocsFromClient(updates=reports, now=factories.NOW))
    away = [c.SetNodeStatus(node_id=each.node_id, status="down", updated_at=1) for each in old[4 - lost :]]
    state = _with(state, *away)
    assert not _attempt(state, newer).plan.placements


def _with_new_version(least: int | None, *, nodes: int) -> Snapshot:
    """Three members of a version run, each on its own node, and the next one is a gang that tries three canaries."""
    update = UpdateStrategy(max_parallel=1, canary=3)
    group = replace(_group("gang", 3, ROOM, least=least), update=update)
    job = _job(group)
    state = _state(3, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    task = replace(group.tasks[0], env={"A": "b"})
    made = (c.RegisterNode(node=_node(10 + number)) for number in range(nodes))
    return _with(state, *made, c.RegisterJob(job=_job(replace(group, gang=Gang(), tasks=(task,)))))


@pytest.mark.parametrize("least", [None, 0])
def test_canaries_of_a_gang_that_do_not_find_room_as_a_whole_are_not_placed(least: int | None) -> None:
    state = _with_new_version(least, nodes=1)
    job = state.jobs["default", "web"]
    made = _attempt(state, job)
    assert not made.plan.placements
    metric = made.outcome.evaluation.failed_tg_allocs["gang"]
    assert metric.gang == "1 of the 3 that must run together finds room"
    state = _with(state, *(c.RegisterNode(node=_node(20 + number)) for number in range(2)))
    assert _placed(_attempt(state, job)) == {"gang": 3}


@pytest.mark.parametrize(("least", "placed"), [(0, {}), (None, {"gang": 1})])
def test_canaries_make_up_for_no_lost_member_of_the_version_before(least: int | None, placed: dict[str, int]) -> None:
    state = _with_new_version(least, nodes=3)
    job = state.jobs["default", "web"]
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    first, second, _ = (each for each in state.allocs.values() if each.job is not None and each.job.version == 0)
    down = [c.SetNodeStatus(node_id=each.node_id, status="down", updated_at=1) for each in (first, second)]
    state = _with(state, *down, c.RegisterNode(node=_node(30)))
    made = _attempt(state, job)
    assert _placed(made) == placed, "one of the two finds room"
    command = replace(c.ApplyPlan(plan=made.plan), rules_version=RULES_VERSION)
    assert isinstance(apply(state, command, index=state.index + 1).result, c.Applied)


def test_lost_members_of_a_batch_gang_do_not_count_as_finished_although_their_tasks_had_ended() -> None:
    job = _job(_group("gang", 5, ROOM, least=3), type="batch")
    state = _state(3, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    done = {"web": TaskState(state="dead", finished_at=factories.NOW)}
    finished, *lost = state.allocs_of_job("default", job.id)
    ends: list[tuple[Allocation, status.ClientStatus]] = [(finished, "complete"), *((each, "running") for each in lost)]
    reports = tuple(
        c.AllocUpdate(id=each.id, node_id=each.node_id, client_status=end, task_states=done) for each, end in ends
    )
    state = _with(state, c.UpdateAllocsFromClient(updates=reports, now=factories.NOW))
    down = [c.SetNodeStatus(node_id=each.node_id, status="down", updated_at=1) for each in (finished, *lost)]
    state = _with(state, *down)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan), c.RegisterNode(node=_node(10)))
    assert [(state.allocs[each.id].client_status, dict(state.allocs[each.id].task_states)) for each in lost] == [
        ("lost", done), ("lost", done),
    ]  # fmt: skip
    assert not _attempt(state, job).plan.placements
    assert _placed(_attempt(_with(state, c.RegisterNode(node=_node(11))), job)) == {"gang": 2}


def _ended(state: Snapshot, *ends: tuple[Allocation, status.ClientStatus]) -> Snapshot:
    """The state after the clients' reports of the ends of some allocations."""
    reports = tuple(
        c.AllocUpdate(
            id=each.id,
            node_id=each.node_id,
            client_status=end,
            task_states={"web": TaskState(state="dead", failed=end == "failed", finished_at=factories.NOW)},
        )
        for each, end in ends
    )
    return _with(state, c.UpdateAllocsFromClient(updates=reports, now=factories.NOW))


def _with_plan_for_the_rest(count: int, least: int, running: int, kind: str) -> tuple[Snapshot, Attempt]:
    """A gang with so many running members, and the plan for the others."""
    never = ReschedulePolicy()
    job = _job(replace(_group("gang", count, ROOM, least=least), reschedule_policy=never), type=kind)
    state = _state(running, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    state = _with(state, *(c.RegisterNode(node=_node(10 + number)) for number in range(count - running)))
    return state, _attempt(state, job)


@pytest.mark.parametrize(
    ("ended", "rules", "placed"),
    [(1, RULES_VERSION, 1), (2, RULES_VERSION, 0), (2, GANG_MEMBER_RULES - 1, 1)],
    ids=["enough stay", "too few stay", "too few stay, by earlier rules"],
)
def test_apply_refuses_a_member_of_a_gang_that_has_lost_the_others_since_the_plan(
    ended: int, rules: int, placed: int
) -> None:
    state, made = _with_plan_for_the_rest(3, least=2, running=2, kind="service")
    assert _placed(made) == {"gang": 1} and made.plan.gangs == {} and made.plan.gang_members == {"gang": 2}
    members = state.allocs_of_job("default", "web")
    state = _ended(state, *((each, "failed") for each in members[:ended]))

    step = apply(state, replace(c.ApplyPlan(plan=made.plan), rules_version=rules), index=state.index + 1)

    assert len(step.state.allocs) - len(members) == placed
    if not placed:
        text = 'gang "gang" of job "web" in namespace "default" would have 1 of 2 members'
        assert isinstance(step.result, c.Rejected) and step.result.kind == "stale" and text in step.result.message


@settings(max_examples=cases(200), deadline=None)
@given(data=st.data(), count=st.integers(2, 5), kind=st.sampled_from(["service", "batch"]))
def test_a_plan_leaves_no_gang_below_its_minimum_whatever_ends_before_it_is_applied(
    data: st.DataObject, count: int, kind: str
) -> None:
    least = data.draw(st.integers(1, count))
    running = data.draw(st.integers(least, count))
    state, made = _with_plan_for_the_rest(count, least=least, running=running, kind=kind)
    members = state.allocs_of_job("default", "web")
    statuses: tuple[status.ClientStatus, ...] = ("running", "complete", "failed")
    ends = data.draw(st.lists(st.sampled_from(statuses), min_size=running, max_size=running))
    state = _ended(state, *zip(members, ends, strict=True))
    command = replace(c.ApplyPlan(plan=made.plan), rules_version=RULES_VERSION)

    step = apply(state, command, index=state.index + 1)

    counting = sum(end == "running" or (end == "complete" and kind == "batch") for end in ends)
    is_refused = running < count and counting + count - running < least
    assert isinstance(step.result, c.Rejected) is is_refused
    assert len(step.state.allocs) == (running if is_refused else count)
    # The worker plans again on the state that refused: that plan is applied, so it does not try for ever.
    again = _attempt(step.state, state.jobs["default", "web"])
    ruled = replace(c.ApplyPlan(plan=again.plan), rules_version=RULES_VERSION)
    assert isinstance(apply(step.state, ruled, index=step.state.index + 1).result, c.Applied)


FIVE_MINUTES = ReschedulePolicy(delay=seconds(300), delay_function="constant", unlimited=True)


def _with_plan_of_a_drain(
    count: int, least: int, *, failed: int, moved: int, kind: str
) -> tuple[Snapshot, Attempt, tuple[Allocation, ...]]:
    """A gang that goes on with fewer members while those that failed wait, the plan that moves the last ones of the
    others, and its members."""
    job = _job(replace(_group("gang", count, 100, least=least), reschedule_policy=FIVE_MINUTES), type=kind)
    state = _state(count, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    members = state.allocs_of_job("default", "web")
    state = _ended(state, *((each, "failed") for each in members[:failed]))
    marks = {each.id: DesiredTransition(migrate=True) for each in members[count - moved :]}
    state = _with(state, c.SetDesiredTransitions(transitions=marks))
    return state, _attempt(state, job), members


@pytest.mark.parametrize("kind", ["service", "batch"])
@pytest.mark.parametrize(
    ("count", "least", "failed", "moved"), [(5, 0, 2, 1), (4, 3, 2, 1), (3, 2, 2, 1), (5, 4, 2, 2)]
)
@pytest.mark.parametrize("rules", [GANG_GROWTH_RULES - 1, GANG_GROWTH_RULES])
def test_a_member_that_fails_before_the_plan_that_moves_it_is_not_replaced_in_a_gang_below_its_minimum(
    count: int, least: int, failed: int, moved: int, kind: str, rules: int
) -> None:
    state, made, members = _with_plan_of_a_drain(count, least, failed=failed, moved=moved, kind=kind)
    assert _placed(made) == {"gang": moved}, "the gang goes on with fewer"
    command = replace(c.ApplyPlan(plan=made.plan), rules_version=rules)
    assert isinstance(apply(state, command, index=state.index + 1).result, c.Applied)
    state = _ended(state, (members[-1], "failed"))

    step = apply(state, command, index=state.index + 1)

    if rules >= GANG_GROWTH_RULES:
        text = f"would have {count - failed} of {least or count} members"
        assert isinstance(step.result, c.Rejected) and step.result.kind == "stale" and text in step.result.message
        assert _placed(_attempt(state, state.jobs["default", "web"])) == ({"gang": moved - 1} if moved > 1 else {})
    else:
        assert isinstance(step.result, c.Applied), "by the rules of its time"


@settings(max_examples=cases(200), deadline=None)
@given(data=st.data(), count=st.integers(2, 5), kind=st.sampled_from(["service", "batch"]))
def test_a_drain_makes_no_gang_larger_that_is_below_its_minimum_whatever_ends_before_its_plan_is_applied(
    data: st.DataObject, count: int, kind: str
) -> None:
    failed = data.draw(st.integers(0, count - 1))
    moved = data.draw(st.integers(1, count - failed))
    least = data.draw(st.integers(0, count))
    state, made, members = _with_plan_of_a_drain(count, least, failed=failed, moved=moved, kind=kind)
    ends = data.draw(st.lists(st.sampled_from(("running", "complete", "failed")), min_size=count, max_size=count))
    reports = [(each, end) for each, end in zip(members[failed:], ends, strict=False) if end != "running"]
    changed = _ended(state, *reports)

    step = apply(changed, replace(c.ApplyPlan(plan=made.plan), rules_version=RULES_VERSION), index=changed.index + 1)

    assert not gangs_in_part(changed, step.state, [each for each in step.changes if each.table == "allocs"])
    assert reports or isinstance(step.result, c.Applied), "nothing has changed since the plan was made"


def test_completed_members_of_a_purged_job_do_not_count_for_the_one_that_has_its_name_now() -> None:
    job = _job(_group("gang", 2, ROOM), type="batch")
    state = _state(2, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    first, second = state.allocs_of_job("default", job.id)
    state = _ended(state, (first, "complete"), (second, "complete"))
    state = _with(state, c.DeregisterJob(namespace="default", job_id=job.id, purge=True), c.RegisterJob(job=job))
    state = _with(state, c.SetNodeEligibility(node_id=first.node_id, eligibility="ineligible"))
    assert len(state.allocs) == 2 and state.jobs[job.key].version == 0
    assert not _attempt(state, job).plan.placements


AGAIN = ReschedulePolicy(delay=seconds(30), delay_function="constant", unlimited=True)


def test_members_that_a_failed_deployment_permits_are_not_placed_without_those_that_it_does_not() -> None:
    group = replace(_group("gang", 4, 100), update=UpdateStrategy(max_parallel=2), reschedule_policy=AGAIN)
    job = _job(group)
    state = _state(4, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    newer = _job(replace(group, tasks=tuple(replace(task, env={"A": "b"}) for task in group.tasks)))
    state = _with(state, c.RegisterJob(job=newer))
    state = _with(state, c.ApplyPlan(plan=_attempt(state, newer).plan))
    deployment = state.latest_deployment("default", job.id)
    assert deployment is not None and deployment.job_version == 1
    failure = DeploymentUpdate(deployment_id=deployment.id, status="failed")
    plan = Plan(eval_id="e", namespace="default", job_id=job.id, deployment_updates=(failure,))
    live = [each for each in state.allocs_of_job("default", job.id) if not is_terminal(each)]
    state = _ended(_with(state, c.ApplyPlan(plan=plan)), *((each, "failed") for each in live))
    later = UnixNano(factories.NOW + seconds(60))
    evaluation = Evaluation(id="later", job_id=job.id, triggered_by="alloc-failure")

    made = scheduler.attempt(state, evaluation, now=later, seed=1)

    assert sorted(each.job.version for each in live if each.job is not None) == [0, 0, 1, 1]
    assert not made.plan.placements
    told = 'gang "gang" waits: 2 of the 4 that must run together are missing'
    assert made.outcome.evaluation.status_description == told


@pytest.mark.parametrize(("failed", "nodes"), [(2, 4), (3, 1)], ids=["one waits", "one finds no room"])
def test_members_of_the_version_before_are_placed_by_its_minimum_while_canaries_try_one_without_a_gang(
    failed: int, nodes: int
) -> None:
    update = UpdateStrategy(max_parallel=1, canary=1)
    group = replace(_group("gang", 3, ROOM), update=update, reschedule_policy=AGAIN)
    job = _job(group)
    state = _state(3, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    members = state.allocs_of_job("default", job.id)
    small = tuple(replace(task, resources=Resources(cpu=10, memory_mb=10)) for task in group.tasks)
    newer = _job(replace(group, gang=None, tasks=small))
    state = _with(state, c.RegisterJob(job=newer))
    state = _with(state, c.ApplyPlan(plan=_attempt(state, newer).plan))
    state = _with(state, *(c.RegisterNode(node=_node(10 + number)) for number in range(nodes)))
    lost = members if failed == 3 else members[:1]
    down = [c.SetNodeStatus(node_id=each.node_id, status="down", updated_at=1) for each in lost]
    state = _ended(state, *((each, "failed") for each in members[1:] if failed == 2))
    state = _with(state, *down)

    made = _attempt(state, newer).plan

    assert not [each for each in made.placements if each.job_version == 0]


def test_a_failed_member_of_the_version_before_is_not_replaced_alone_while_lost_clients_are_waited_for() -> None:
    stops = DisconnectStrategy(stop_on_client_after=seconds(60), replace=True)
    group = replace(_group("gang", 3, 100), disconnect=stops, update=UpdateStrategy(max_parallel=2))
    job = _job(replace(group, reschedule_policy=ReschedulePolicy(attempts=0, unlimited=False)))
    state = _state(3, job)
    state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    failed, *lost = state.allocs_of_job("default", job.id)
    state = _ended(state, (failed, "failed"))
    state = _with(state, *(c.SetNodeStatus(node_id=each.node_id, status="down", updated_at=1) for each in lost))
    newer = _job(replace(job.task_groups[0], tasks=tuple(replace(task, env={"A": "b"}) for task in group.tasks)))
    state = _with(state, c.RegisterJob(job=newer))

    made = _attempt(state, newer)

    assert not made.plan.placements and failed.id not in {stop.id for stop in made.plan.stops}
    told = 'gang "gang" waits: 2 of the 3 that must run together are missing'
    assert made.outcome.evaluation.status_description == told
