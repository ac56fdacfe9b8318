"""For any state that the log can lead to, the scheduler answers, always the same, and its plan holds on that state."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.feasibility.masks import candidates, is_row_feasible
from yurt.scheduler.plan_check import check_plan
from yurt.sdk.value import UnixNano
from yurt.state import Snapshot
from yurt.state.columns import ALLOCS, Columns
from yurt.state.namespace_usage import summed
from yurt.structs.commands import Applied, ApplyPlan
from yurt.structs.evaluation import Evaluation
from yurt.structs.plan import Plan
from yurt.structs.predicates import is_client_terminal, is_server_terminal
from yurt.structs.status import TRIGGER_NODE_UPDATE
from yurt.testing import factories
from yurt.testing.nightly import cases
from yurt.testing.rows.random_commands import random_history

NOW = UnixNano(factories.NOW + 3_600_000_000_000)
CASES = cases(300)
histories = st.integers(0, 2**32).map(lambda seed: _history(seed, 60))
PLAN_OF_A_HISTORY = """
import sys
sys.path[:0] = sys.argv[1:2]
from test_any_state import NOW, _history, _plans
import msgspec
print(msgspec.msgpack.encode(_plans(_history(11, 80))).hex())
"""


def _history(seed: int, length: int) -> Snapshot:
    state = Snapshot.empty()
    for step in random_history(Random(seed), length):
        state = step.state
    return state


def _evaluation(namespace: str, job_id: str) -> Evaluation:
    return factories.evaluation(namespace=namespace, job_id=job_id, triggered_by=TRIGGER_NODE_UPDATE)


def _keys(state: Snapshot) -> list[tuple[str, str]]:
    return sorted({*state.jobs.keys(), *((alloc.namespace, alloc.job_id) for alloc in state.allocs.values())})


def _plans(state: Snapshot) -> list[Plan]:
    evaluations = [msgspec.structs.replace(_evaluation(*key), id=f"eval-{key}") for key in _keys(state)]
    return [scheduler.attempt(state, evaluation, now=NOW, seed=3).plan for evaluation in evaluations]


@settings(max_examples=CASES, deadline=None)
@given(histories)
def test_columns_kept_incrementally_equal_columns_rebuilt(state: Snapshot) -> None:
    assert state.columns.content() == Columns.rebuild(state.nodes.values(), state.allocs.values()).content()


@settings(max_examples=CASES, deadline=None)
@given(histories)
def test_the_usage_of_namespaces_kept_incrementally_is_the_sum_of_their_allocations(state: Snapshot) -> None:
    kept = {namespace: dict(pools) for namespace, pools in state.columns.by_namespace.items()}
    assert kept == summed(state.allocs.values())


@settings(max_examples=CASES, deadline=None)
@given(histories)
def test_an_evaluation_of_any_job_gets_an_answer(state: Snapshot) -> None:
    for key in [*_keys(state), ("default", "never-heard-of")]:
        made = scheduler.attempt(state, _evaluation(*key), now=NOW, seed=1)
        assert made.outcome.evaluation.status
        assert len({placement.id for placement in made.plan.placements}) == len(made.plan.placements)


@settings(max_examples=CASES, deadline=None)
@given(histories)
def test_the_same_question_gets_the_same_answer_to_the_byte(state: Snapshot) -> None:
    for key in _keys(state):
        evaluation = _evaluation(*key)
        first, second = (scheduler.attempt(state, evaluation, now=NOW, seed=2) for _ in range(2))
        assert msgspec.msgpack.encode(first) == msgspec.msgpack.encode(second)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_answer_does_not_depend_on_the_hash_seed_of_the_process(hash_seed: str) -> None:
    folder = os.path.dirname(__file__)
    command = [sys.executable, "-c", PLAN_OF_A_HISTORY, folder]
    told = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.strip() == msgspec.msgpack.encode(_plans(_history(11, 80))).hex()


@settings(max_examples=CASES, deadline=None)
@given(histories)
def test_a_plan_is_accepted_whole_by_the_state_that_it_was_made_on(state: Snapshot) -> None:
    for plan in _plans(state):
        result = check_plan(state, plan)
        assert result.rejected_nodes == {}
        assert result.accepted == plan
        step = apply(state, ApplyPlan(plan=plan), index=state.index + 1)
        assert isinstance(step.result, Applied), step.result


@settings(max_examples=CASES, deadline=None)
@given(histories)
def test_nodes_that_receive_allocations_have_room_for_them(state: Snapshot) -> None:
    for plan in _plans(state):
        after = apply(state, ApplyPlan(plan=plan), index=state.index + 1).state
        for node_id in {placement.node_id for placement in plan.placements}:
            row = after.columns.rows[node_id]
            leaving = Columns.rebuild(
                after.nodes.values(),
                [alloc for alloc in after.allocs_of_node(node_id) if not is_server_terminal(alloc)],
            )
            used = leaving.used[leaving.rows[node_id]]
            offered = after.columns.nodes.offered[row]
            assert (used[:3] <= offered[:3]).all(), (used, offered)
            assert not offered[ALLOCS] or used[ALLOCS] <= offered[ALLOCS]
            in_use = leaving.in_use.get(node_id)
            before = state.columns.in_use.get(node_id)
            assert in_use is None or len(in_use.extra) <= (len(before.extra) if before is not None else 0)


@settings(max_examples=CASES, deadline=None)
@given(histories)
def test_every_placement_meets_the_hard_constraints(state: Snapshot) -> None:
    for plan in _plans(state):
        current = state.jobs.get((plan.namespace, plan.job_id))
        for placement in plan.placements:
            assert current is not None and not current.stop
            # While canaries try a new version, what leaves is replaced by its own one.
            job = state.version(plan.namespace, plan.job_id, placement.job_version)
            assert job is not None
            group = job.group(placement.task_group)
            assert group is not None
            row = state.columns.rows[placement.node_id]
            assert candidates(state.columns.nodes, job).mask[row]
            assert is_row_feasible(state, job, group, row)


@settings(max_examples=CASES, deadline=None)
@given(histories)
def test_names_of_running_allocations_of_a_version_are_unique(state: Snapshot) -> None:
    for plan in _plans(state):
        job = state.jobs.get((plan.namespace, plan.job_id))
        if job is None or job.type == "system":
            continue
        names = [placement.name for placement in plan.placements]
        assert len(set(names)) == len(names)
        stopped = {stop.id for stop in plan.stops}
        kept = {
            alloc.name
            for alloc in state.allocs_of_job(plan.namespace, plan.job_id)
            if not (is_client_terminal(alloc) or is_server_terminal(alloc))
            and alloc.id not in stopped
            and alloc.client_status != "unknown"
            and alloc.id not in {update.id for update in plan.attributes}
            and not (alloc.deployment_status is not None and alloc.deployment_status.canary)
        }
        assert not kept.intersection(names)


@settings(max_examples=CASES, deadline=None)
@given(histories)
def test_applied_plans_soon_leave_nothing_more_to_do(state: Snapshot) -> None:
    """Soon is at the latest when each allocation was replaced apart from the others, as `max_parallel` may ask."""
    for namespace, job_id in _keys(state):
        after, job = state, state.jobs.get((namespace, job_id))
        expected = sum(group.count for group in job.task_groups) if job is not None else 0
        for number in range(3 + expected):
            plan = scheduler.attempt(after, _evaluation(namespace, job_id), now=NOW, seed=number).plan
            after = apply(after, ApplyPlan(plan=plan), index=after.index + 1).state
        assert plan.is_empty
