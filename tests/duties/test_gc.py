"""What garbage collection may forget, and what it must keep (D9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yurt.duties.gc import BATCH, Cutoffs, Garbage, Step, collect, dead_jobs, orphan_steps
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Snapshot
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    DeleteJobs,
    DeregisterJob,
    PutHostVolume,
    RegisterJob,
    RegisterNode,
    SetNodeStatus,
    UpdateAllocsFromClient,
    UpsertEvaluations,
)
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import Plan
from yurt.structs.volumes.host import HostVolume
from yurt.testing import factories

LATER = UnixNano(factories.NOW + seconds(3600))


def all_before(time: int) -> Cutoffs:
    at = UnixNano(time)
    return Cutoffs(eval=at, batch_eval=at, job=at, node=at, deployment=at)


def placed(state_of: Any, job: Job, client_status: str, *, on: Snapshot | None = None) -> Snapshot:
    """The job with a complete evaluation `eval-<job>` and one allocation `alloc-<job>` in that state."""
    node = factories.node("n1")
    evaluation = Evaluation(
        id=f"eval-{job.id}", job_id=job.id, type=job.type, status="complete", modify_time=factories.NOW
    )
    placement = factories.placement(job, on=node, id=f"alloc-{job.id}")
    plan = Plan(eval_id=evaluation.id, namespace="default", job_id=job.id, placements=(placement,), now=factories.NOW)
    update = AllocUpdate(id=placement.id, node_id="n1", client_status=client_status)
    return state_of(
        RegisterNode(node=node),
        RegisterJob(job=job),
        ApplyPlan(plan=plan, evaluations=(evaluation,)),
        UpdateAllocsFromClient(updates=(update,), now=factories.NOW),
        on=on,
    )


def collected(state_of: Any, state: Snapshot, cutoff: int = LATER) -> Snapshot:
    """The state after a whole collection."""
    cutoffs = all_before(cutoff)
    state = forgotten(state_of, state, dead_jobs(state, cutoffs, LATER), Garbage(cutoffs, LATER))
    return forgotten(state_of, state, collect(state, cutoffs, LATER), Garbage(cutoffs, LATER))


def forgotten(state_of: Any, state: Snapshot, steps: Iterable[Step], garbage: Garbage) -> Snapshot:
    """The state after what the steps find was deleted, as the leader does it: batch by batch."""
    for found in steps:
        if garbage.add(found):
            state = deleted(state_of, state, garbage)
    return deleted(state_of, state, garbage)


def deleted(state_of: Any, state: Snapshot, garbage: Garbage) -> Snapshot:
    for command in tuple(garbage.commands(state)):
        state = state_of(command, on=state)
        if isinstance(command, DeleteJobs):
            state = forgotten(state_of, state, orphan_steps(state, command.keys), garbage.of_left_behind())
    return state


def found(steps: Iterable[Step]) -> list[Any]:
    """What the steps find."""
    return [one for one in steps if one is not None]


def names(state: Snapshot) -> dict[str, list[str]]:
    return {
        "jobs": sorted(job.id for job in state.jobs.values()),
        "evals": sorted(state.evals.keys()),
        "allocs": sorted(state.allocs.keys()),
    }


def test_a_running_job_keeps_everything(state_of: Any) -> None:
    state = placed(state_of, factories.job(), "running")
    assert names(collected(state_of, state)) == {"jobs": ["web"], "evals": ["eval-web"], "allocs": ["alloc-web"]}


def test_a_stopped_job_goes_with_its_evaluations_and_allocations(state_of: Any) -> None:
    state = placed(state_of, factories.job(), "complete")
    state = state_of(DeregisterJob(namespace="default", job_id="web", submit_time=factories.NOW), on=state)
    assert names(collected(state_of, state)) == {"jobs": [], "evals": [], "allocs": []}


def test_what_is_young_stays(state_of: Any) -> None:
    state = placed(state_of, factories.job(), "complete")
    state = state_of(DeregisterJob(namespace="default", job_id="web", submit_time=factories.NOW), on=state)
    assert names(collected(state_of, state, factories.NOW - 1))["jobs"] == ["web"]


def test_a_failed_allocation_that_waits_for_its_replacement_stays(state_of: Any) -> None:
    state = placed(state_of, factories.job(), "failed")
    waiting = Evaluation(id="next", job_id="web", status="pending")
    state = state_of(UpsertEvaluations(evaluations=(waiting,)), on=state)
    assert names(collected(state_of, state))["allocs"] == ["alloc-web"]


def test_allocations_of_a_batch_job_that_may_run_again_stay(state_of: Any) -> None:
    job = factories.job("work", type="batch")
    state = placed(state_of, job, "running")
    state = placed(state_of, replace(job, id="idle", name="idle"), "running", on=state)
    done = AllocUpdate(id="alloc-work", node_id="n1", client_status="complete")
    state = state_of(UpdateAllocsFromClient(updates=(done,), now=factories.NOW), on=state)
    assert "alloc-work" in names(collected(state_of, state, factories.NOW - 1))["allocs"]


def test_a_batch_job_that_ended_by_itself_goes_whole_at_the_threshold_of_jobs(state_of: Any) -> None:
    job = factories.job("work", type="batch", submit_time=factories.NOW)
    state = placed(state_of, job, "complete")
    never = UnixNano(0)
    ripe = replace(all_before(LATER), eval=never, batch_eval=never)
    assert found(dead_jobs(state, replace(ripe, job=UnixNano(factories.NOW - 1)), LATER)) == []
    state = forgotten(state_of, state, dead_jobs(state, ripe, LATER), Garbage(ripe, LATER))
    assert names(state) == {"jobs": [], "evals": [], "allocs": []}


def test_a_batch_job_with_a_young_evaluation_stays(state_of: Any) -> None:
    state = placed(state_of, factories.job("work", type="batch"), "complete")
    young = Evaluation(id="young", job_id="work", type="batch", status="complete", modify_time=UnixNano(LATER + 1))
    state = state_of(UpsertEvaluations(evaluations=(young,)), on=state)
    assert names(collected(state_of, state))["allocs"] == ["alloc-work"]


def test_a_job_that_came_back_to_life_keeps_what_it_would_run_again_without(state_of: Any) -> None:
    job = factories.job("work", type="batch")
    state = placed(state_of, job, "complete")
    (dead,) = found(dead_jobs(state, all_before(LATER), LATER))
    state = state_of(UpsertEvaluations(evaluations=(Evaluation(id="new", job_id="work", status="pending"),)), on=state)
    garbage = Garbage(all_before(LATER), LATER)
    garbage.add(dead)
    assert list(garbage.commands(state)) == []
    state = state_of(DeleteJobs(keys=(dead.key,)), on=state)
    assert found(orphan_steps(state, (dead.key,))) == []
    assert names(state)["allocs"] == ["alloc-work"]


def test_evaluations_of_a_running_batch_job_that_placed_nothing_go(state_of: Any) -> None:
    state = placed(state_of, factories.job("work", type="batch"), "running")
    empty = Evaluation(id="empty", job_id="work", type="batch", status="complete", modify_time=factories.NOW)
    state = state_of(UpsertEvaluations(evaluations=(empty,)), on=state)
    assert names(collected(state_of, state))["evals"] == ["eval-work"]


def test_a_node_that_is_down_and_empty_goes_and_one_in_use_stays(state_of: Any) -> None:
    state = placed(state_of, factories.job(), "running")
    state = state_of(
        RegisterNode(node=factories.node("n2")),
        SetNodeStatus(node_id="n1", status="down", updated_at=1),
        SetNodeStatus(node_id="n2", status="down", updated_at=1),
        on=state,
    )
    assert sorted(collected(state_of, state).nodes.keys()) == ["n1"]


def test_host_volumes_go_with_their_node_only_where_its_operator_says_so(state_of: Any) -> None:
    nodes = [replace(factories.node(name), gc_volumes_on_node_gc=name == "gone") for name in ("gone", "back")]
    volumes = [HostVolume(id=f"vol-{node.id}", name="data", node_id=node.id, namespace="default") for node in nodes]
    state = state_of(
        *(RegisterNode(node=node) for node in nodes),
        *(PutHostVolume(volume=volume) for volume in volumes),
        *(SetNodeStatus(node_id=node.id, status="down", updated_at=1) for node in nodes),
    )
    found = collected(state_of, state)
    assert list(found.nodes.keys()) == []
    assert list(found.host_volumes.keys()) == ["vol-back"]


def test_commands_are_bounded(state_of: Any) -> None:
    count = 2 * BATCH + 50
    evaluations = tuple(
        Evaluation(id=f"e{i}", job_id="gone", status="canceled", modify_time=factories.NOW) for i in range(count)
    )
    state, garbage, sizes = state_of(UpsertEvaluations(evaluations=evaluations)), Garbage(all_before(LATER), LATER), []
    for one in collect(state, all_before(LATER), LATER):
        if garbage.add(one):
            sizes += [len(command.eval_ids) for command in garbage.commands(state)]  # type: ignore[union-attr]
    sizes += [len(command.eval_ids) for command in garbage.commands(state)]  # type: ignore[union-attr]
    assert sizes == [BATCH, BATCH, 50]


def test_there_is_a_step_for_each_row_that_is_looked_at(state_of: Any) -> None:
    state = Snapshot.empty()
    for number in range(5):
        state = placed(state_of, factories.job(f"work-{number}", type="batch"), "complete", on=state)
    rows = len(state.jobs) + len(state.evals) + len(state.allocs)
    assert len(list(dead_jobs(state, all_before(LATER), LATER))) == rows
    assert len(list(dead_jobs(state, all_before(0), LATER))) == len(state.jobs)


def test_allocations_of_a_batch_job_that_came_back_while_they_were_looked_for_stay(state_of: Any) -> None:
    job = factories.job("work", type="batch")
    state = placed(state_of, job, "complete")
    state = state_of(DeregisterJob(namespace="default", job_id="work", submit_time=factories.NOW), on=state)
    garbage, cutoffs = Garbage(all_before(LATER), LATER), all_before(LATER)
    assert not any(map(garbage.add, collect(state, cutoffs, LATER)))
    assert [len(command.alloc_ids) for command in garbage.commands(state)] == [1]  # type: ignore[union-attr]
    assert not any(map(garbage.add, collect(state, cutoffs, LATER)))
    state = state_of(RegisterJob(job=job), on=state)
    assert list(garbage.commands(state)) == []


def test_an_evaluation_stays_while_an_allocation_of_it_does(state_of: Any) -> None:
    state = placed(state_of, factories.job(), "complete")
    garbage = Garbage(all_before(LATER), LATER)
    garbage.add(state.evals["eval-web"])
    assert list(garbage.commands(state)) == []
