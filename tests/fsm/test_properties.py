"""What holds after any sequence of commands, sensible or not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yurt.fsm import snapshot
from yurt.fsm.bookkeeping.summary_changes import SUMMARY_FIELDS
from yurt.state import TABLES, Snapshot
from yurt.structs import status
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AnyCommand, Applied, decode_command, encode_command
from yurt.structs.predicates import is_client_terminal, is_deployment_active, is_eval_terminal, is_terminal
from yurt.testing.replica import Replica
from yurt.testing.rows.random_commands import CommandMaker, random_history

histories = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
seeds = st.integers(0, 2**32)
LENGTH = 60


def alloc_changes(seed: int, length: int) -> Iterator[tuple[Allocation, Allocation]]:
    """(before, after) of each allocation that a random history changes."""
    for step in random_history(Random(seed), length):
        for change in step.changes:
            if change.table == "allocs" and change.before is not None and change.after is not None:
                yield change.before, change.after


def last_state(seed: int, length: int = LENGTH) -> Snapshot:
    state = Snapshot.empty()
    for step in random_history(Random(seed), length):
        state = step.state
    return state


def recount(state: Snapshot, key: tuple[str, str]) -> dict[str, Counter[str]]:
    """Allocations of the job's present life by group and summary field."""
    counts: dict[str, Counter[str]] = {}
    for alloc in state.allocs_of_job(*key):
        if alloc.job is not None and alloc.job.create_index == state.job_summaries[key].create_index:
            counts.setdefault(alloc.task_group, Counter())[SUMMARY_FIELDS[alloc.client_status]] += 1
    return counts


@histories
@given(seeds)
def test_no_command_stops_the_state_machine(seed: int) -> None:
    results = Counter(type(step.result).__name__ for step in random_history(Random(seed), 150))
    assert results["Applied"] > 30
    assert sum(results.values()) == 150


def test_random_commands_cover_every_type_with_both_outcomes() -> None:
    applied: set[str] = set()
    rejected: set[str] = set()
    every = {kind.__name__ for kind in get_args(AnyCommand)}
    for seed in range(60):  # a promotion of a deployment that fits is rare
        if applied == every:
            break
        maker, replica = CommandMaker(Random(seed)), Replica()
        for _ in range(1000):
            command = maker.command(replica.state)
            result = replica.step(command).result
            (applied if isinstance(result, Applied) else rejected).add(type(command).__name__)
    assert applied == every
    assert {"ApplyPlan", "RegisterJob", "PromoteDeployment", "SetDeploymentAllocHealth", "SetNodeStatus"} <= rejected


@histories
@given(seeds)
def test_summaries_equal_a_recount(seed: int) -> None:
    for step in random_history(Random(seed), LENGTH):
        state = step.state
        for key, summary in state.job_summaries.items():
            counts = recount(state, key)
            for name, group in summary.summary.items():
                told = {field: getattr(group, field) for field in SUMMARY_FIELDS.values()}
                assert told == {field: counts.get(name, Counter())[field] for field in told}
            assert set(counts) <= set(summary.summary)


@histories
@given(seeds)
def test_children_counts_equal_a_recount(seed: int) -> None:
    for step in random_history(Random(seed), LENGTH):
        for key, summary in step.state.job_summaries.items():
            found = Counter(child.status for child in step.state.jobs.where("parent", key))
            if summary.children is None:
                assert not found
            else:
                told = {name: getattr(summary.children, name) for name in ("pending", "running", "dead")}
                assert told == {name: found[name] for name in told}


@histories
@given(seeds)
def test_job_status_follows_allocations_evaluations_and_deployments(seed: int) -> None:
    for step in random_history(Random(seed), LENGTH):
        state = step.state
        for job in state.jobs.values():
            allocs = any(not is_terminal(alloc) for alloc in state.allocs_of_job(job.namespace, job.id))
            evals = any(not is_eval_terminal(one) for one in state.evals.where("job", job.key))
            rollouts = any(is_deployment_active(one) for one in state.deployments.where("job", job.key))
            if job.type == status.JOB_SYSTEM or job.is_template:
                assert job.status == (status.JOB_DEAD if job.stop else status.JOB_RUNNING)
            elif allocs or rollouts:
                assert job.status == status.JOB_RUNNING
            elif evals:
                assert job.status == status.JOB_PENDING
            else:
                assert job.status != status.JOB_RUNNING


@histories
@given(seeds)
def test_a_terminal_client_status_is_final(seed: int) -> None:
    for before, after in alloc_changes(seed, 120):
        if is_client_terminal(before):
            assert after.client_status == before.client_status


@histories
@given(seeds)
def test_a_service_lives_no_longer_than_its_allocation(seed: int) -> None:
    for step in random_history(Random(seed), 120):
        for service in step.state.services.values():
            alloc = step.state.allocs[service.alloc_id]
            assert not is_client_terminal(alloc)
            assert alloc.node_id == service.node_id


@histories
@given(seeds)
def test_health_never_comes_back(seed: int) -> None:
    for before, after in alloc_changes(seed, 120):
        was, now = before.deployment_status, after.deployment_status
        if was is not None and was.healthy is False and before.deployment_id == after.deployment_id:
            assert now is not None
            assert now.healthy is False


@histories
@given(seeds)
def test_deployments_count_at_least_the_allocations_that_are_there(seed: int) -> None:
    for step in random_history(Random(seed), LENGTH):
        for deployment in step.state.deployments.values():
            allocs = step.state.allocs.where("deployment", deployment.id)
            for name, group in deployment.task_groups.items():
                mine = [alloc.deployment_status for alloc in allocs if alloc.task_group == name]
                assert group.placed_allocs >= len(mine)
                assert group.healthy_allocs >= sum(1 for health in mine if health is not None and health.healthy)
                unhealthy = sum(1 for health in mine if health is not None and health.healthy is False)
                assert group.unhealthy_allocs >= unhealthy


@histories
@given(seeds)
def test_versions_stay_bounded_and_the_newest_stable_one_survives(seed: int) -> None:
    for step in random_history(Random(seed), LENGTH):
        state = step.state
        for key, job in state.jobs.items():
            versions = state.job_versions.where("job", key)
            assert job in versions
            assert job.version == max(one.version for one in versions)
        for change in step.changes:
            if change.table == "job_versions" and change.after is None and change.before.stable:
                key = (change.before.namespace, change.before.id)
                versions = state.job_versions.where("job", key)
                newer_stable = any(one.stable and one.version > change.before.version for one in versions)
                assert not versions or newer_stable or len(versions) == 1


@histories
@given(seeds)
def test_indexes_hold_exactly_the_rows_that_belong_there(seed: int) -> None:
    for table in last_state(seed).tables():
        expected: dict[tuple[str, object], set[object]] = {}
        for key, row in table.items():
            for column, value in table.index_keys(row):
                expected.setdefault((column, value), set()).add(key)
        for (column, value), keys in expected.items():
            assert set(table.keys_where(column, value)) == keys


@histories
@given(seeds)
def test_commands_store_a_row_under_the_key_of_its_declaration(seed: int) -> None:
    state = last_state(seed)
    for name, schema in TABLES.items():
        if schema.key_of is not None:
            assert all(schema.key_of(row) == key for key, row in state.table(name).items()), name


@histories
@given(seeds)
def test_restoring_a_snapshot_gives_the_same_state(seed: int) -> None:
    state = last_state(seed, 100)
    restored = snapshot.decode(list(snapshot.encode(state)))
    assert restored.index == state.index
    assert snapshot.digest(restored) == snapshot.digest(state)
    for table in state.tables():
        assert dict(restored.table(table.name).items()) == dict(table.items())
        assert restored.table(table.name).index == table.index


@histories
@given(seeds)
def test_a_restored_state_goes_on_as_the_one_it_was_made_from(seed: int) -> None:
    maker, replica = CommandMaker(Random(seed)), Replica()
    for _ in range(40):
        replica.step(maker.command(replica.state))
    other = Replica(snapshot.decode(list(snapshot.encode(replica.state))))
    for _ in range(40):
        command = maker.command(replica.state)
        assert other.step(command).result == replica.step(command).result
    assert snapshot.digest(other.state) == snapshot.digest(replica.state)


@histories
@given(seeds)
def test_what_was_handed_out_never_changes(seed: int) -> None:
    kept: list[tuple[Snapshot, str]] = []
    for number, step in enumerate(random_history(Random(seed), LENGTH)):
        if number % 10 == 0:
            kept.append((step.state, snapshot.digest(step.state)))
    assert [digest for _, digest in kept] == [snapshot.digest(state) for state, _ in kept]


@histories
@given(seeds)
def test_a_command_read_from_the_log_does_what_the_original_did(seed: int) -> None:
    maker, live, replayed = CommandMaker(Random(seed)), Replica(), Replica()
    for _ in range(LENGTH):
        command = maker.command(live.state)
        assert replayed.step(decode_command(encode_command(command))).result == live.step(command).result
    assert snapshot.digest(replayed.state) == snapshot.digest(live.state)


PROGRAM = """
from random import Random
from yurt.fsm import snapshot
from yurt.testing.rows.random_commands import random_history
for seed in range(4):
    *_, last = random_history(Random(seed), 150)
    changed = [(change.table, change.key) for change in last.changes]
    print(snapshot.digest(last.state), changed)
"""


@pytest.mark.parametrize("hash_seed", ["0", "1", "4711"])
def test_the_state_does_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("12345", hash_seed)
    ]
    assert outputs[0]
    assert outputs[0] == outputs[1]
