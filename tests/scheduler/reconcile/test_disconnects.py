"""Clients that are out of reach and come back: unknown, replaced or not, and which of both stays."""

from __future__ import annotations

from typing import Any

import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.plan_check import check_plan
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Tables
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, DeploymentUpdate, Plan
from yurt.structs.policies import DisconnectStrategy
from yurt.structs.rules import PAST_DISCONNECT_RULES, RULES_VERSION
from yurt.testing import factories
from yurt.testing.cluster_models.cluster import PlannedCluster

LOST_AFTER = seconds(600)


def _job(count: int = 1, **strategy: Any) -> Job:
    disconnect = DisconnectStrategy(**{"lost_after": LOST_AFTER, "replace": True, **strategy})
    return factories.job(task_groups=(factories.group(count=count, update=None, disconnect=disconnect),))


def _running(job: Job, nodes: int = 3) -> tuple[PlannedCluster, Allocation]:
    cluster = PlannedCluster(nodes)
    cluster.register(job)
    cluster.settle(job)
    return cluster, min(cluster.live(job), key=lambda alloc: alloc.name)


def _status(cluster: PlannedCluster, node_id: str, node_status: str) -> None:
    cluster.do(c.SetNodeStatus(node_id=node_id, status=node_status, updated_at=1))


def _disconnected(cluster: PlannedCluster, job: Job, alloc: Allocation) -> None:
    _status(cluster, alloc.node_id, "disconnected")
    cluster.evaluate(job)
    cluster.clients_act(job)


def _returns(cluster: PlannedCluster, alloc: Allocation, client_status: str = "running", started_at: int = 0) -> None:
    _status(cluster, alloc.node_id, "initializing")
    failed = client_status == status.CLIENT_FAILED
    restarts = 1 if started_at > alloc.task_states["web"].started_at else 0
    state = "dead" if failed else "running"
    states = {"web": TaskState(state=state, failed=failed, started_at=started_at, restarts=restarts)}
    update = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status=client_status, task_states=states)
    cluster.do(c.UpdateAllocsFromClient(updates=(update,), now=cluster.now))
    _status(cluster, alloc.node_id, "ready")


def _winner(cluster: PlannedCluster, job: Job, original: Allocation) -> str:
    (alloc,) = cluster.live(job)
    return "original" if alloc.id == original.id else "replacement"


def _score(cluster: PlannedCluster, alloc_id: str, score: float) -> None:
    """The allocation was placed with this score."""
    alloc = cluster.state.allocs[alloc_id]
    assert alloc.metrics is not None
    best = replace(alloc.metrics.score_meta_data[0], norm_score=score)
    edit = cluster.state.edit(cluster.state.index + 1)
    edit.put(Tables.allocs, alloc_id, replace(alloc, metrics=replace(alloc.metrics, score_meta_data=(best,))))
    cluster.state = edit.commit()


@pytest.mark.parametrize(
    ("reconcile", "own_score", "started_first", "stays"),
    [
        ("keep_original", 0.1, False, "original"),
        ("keep_replacement", 0.9, True, "replacement"),
        ("best_score", 0.9, False, "original"),
        ("best_score", 0.1, True, "replacement"),
        ("", 0.1, True, "replacement"),
        ("longest_running", 0.1, True, "original"),
        ("longest_running", 0.9, False, "replacement"),
    ],
)
def test_the_strategy_decides_which_of_both_stays(
    reconcile: str, own_score: float, started_first: bool, stays: str
) -> None:
    job = _job(reconcile=reconcile)
    cluster, original = _running(job)
    _disconnected(cluster, job, original)
    replacement = next(alloc for alloc in cluster.live(job) if alloc.id != original.id)
    _score(cluster, original.id, own_score)
    _score(cluster, replacement.id, 0.5)
    born, first = (cluster.state.allocs[a.id].task_states["web"].started_at for a in (replacement, original))
    _returns(cluster, original, started_at=first if started_first else born + 1)
    cluster.settle(job)
    assert _winner(cluster, job, original) == stays
    (kept,) = cluster.live(job)
    if stays == "original":
        assert [entry.value for entry in kept.alloc_states] == ["unknown", "running"]


def test_a_newer_version_wins_over_every_strategy() -> None:
    job = _job(reconcile="keep_original")
    cluster, original = _running(job)
    _disconnected(cluster, job, original)
    newer = replace(job, task_groups=(replace(job.task_groups[0], tasks=(factories.task(env={"V": "2"}),)),))
    cluster.register(newer)
    cluster.settle(newer)
    _returns(cluster, original)
    cluster.settle(newer)
    (kept,) = cluster.live(newer)
    assert kept.job is not None and kept.job.version == 1


def test_one_that_failed_meanwhile_gives_way() -> None:
    job = _job(reconcile="keep_original")
    cluster, original = _running(job)
    _disconnected(cluster, job, original)
    _returns(cluster, original, status.CLIENT_FAILED)
    cluster.settle(job)
    assert _winner(cluster, job, original) == "replacement"


def test_without_replace_the_slot_waits_and_the_original_goes_on() -> None:
    job = _job(2, replace=False)
    cluster, original = _running(job)
    _disconnected(cluster, job, original)
    live = {alloc.id: alloc.client_status for alloc in cluster.live(job)}
    assert len(live) == 2 and live[original.id] == "unknown"
    assert not cluster.evaluate(job)
    _returns(cluster, original)
    cluster.settle(job)
    assert {alloc.id for alloc in cluster.live(job)} == set(live)


def test_one_that_returned_and_fails_later_is_replaced_like_any_other() -> None:
    job = _job(1, replace=False)
    cluster, original = _running(job)
    _disconnected(cluster, job, original)
    _returns(cluster, original)
    cluster.settle(job)
    assert cluster.state.allocs[original.id].followup_eval_id == ""
    failed = {"web": TaskState(state="dead", failed=True, finished_at=cluster.now)}
    update = c.AllocUpdate(id=original.id, node_id=original.node_id, client_status="failed", task_states=failed)
    seed = c.EvalSeed(seed="s", now=cluster.now)
    cluster.do(c.UpdateAllocsFromClient(updates=(update,), now=cluster.now, seed=seed))
    assert [each.triggered_by for each in cluster.state.evals.where("status", "pending")] == ["alloc-failure"]
    cluster.evaluate(job)
    delayed = [each for each in cluster.followups if each.triggered_by == "alloc-failure"]
    cluster.now = UnixNano(delayed[-1].wait_until)
    cluster.settle(job)
    (replacement,) = cluster.live(job)
    assert replacement.previous_allocation == original.id


def _completed(cluster: PlannedCluster, job: Job, *, rules: int = RULES_VERSION) -> None:
    """An evaluation of the job ends."""
    done = factories.evaluation(job, status=status.EVAL_COMPLETE, modify_time=cluster.now)
    command = c.UpsertEvaluations(evaluations=(done,), rules_version=rules)
    cluster.state = apply(cluster.state, command, index=cluster.state.index + 1).state


@pytest.mark.parametrize("rules", [PAST_DISCONNECT_RULES - 1, PAST_DISCONNECT_RULES])
@pytest.mark.parametrize("replaces", [True, False])
def test_the_time_limit_of_a_disconnection_ends_with_the_last_allocation_that_waits_for_it(
    replaces: bool, rules: int
) -> None:
    job = _job(2, replace=replaces)
    cluster, first = _running(job, nodes=4)
    second = next(alloc for alloc in cluster.live(job) if alloc.id != first.id)
    for alloc in (first, second):
        _status(cluster, alloc.node_id, "disconnected")
    cluster.evaluate(job)
    (limit,) = cluster.followups
    cluster.do(c.UpsertEvaluations(evaluations=(limit,)))

    for alloc in (first, second):
        _completed(cluster, job, rules=rules)
        assert cluster.state.evals[limit.id].status == status.EVAL_PENDING, "one is still away"
        cluster.clients_act(job)
        _returns(cluster, alloc)
        cluster.settle(job)
    _completed(cluster, job, rules=rules)

    ended = cluster.state.evals[limit.id]
    if rules >= PAST_DISCONNECT_RULES:
        assert (ended.status, ended.status_description) == ("canceled", "no allocation is disconnected any more")
        assert ended.modify_time == cluster.now
    else:
        assert ended.status == status.EVAL_PENDING


def test_without_replace_a_node_that_goes_down_leaves_its_running_ones_unknown() -> None:
    job = _job(1, replace=False)
    cluster, original = _running(job)
    _status(cluster, original.node_id, "down")
    cluster.evaluate(job)
    assert [(alloc.id, alloc.client_status) for alloc in cluster.live(job)] == [(original.id, "unknown")]


def test_one_that_stays_away_for_too_long_is_lost_and_replaced_for_good() -> None:
    job = _job(replace=False)
    cluster, original = _running(job)
    _disconnected(cluster, job, original)
    (followup,) = cluster.followups
    assert followup.triggered_by == "max-disconnect-timeout" and followup.wait_until == cluster.now + LOST_AFTER
    cluster.now = UnixNano(followup.wait_until)
    cluster.settle(job)
    assert cluster.state.allocs[original.id].client_status == "lost"
    assert _winner(cluster, job, original) == "replacement"
    _returns(cluster, original)
    cluster.settle(job)
    assert _winner(cluster, job, original) == "replacement"


def test_pending_ones_of_a_disconnected_node_are_lost_at_once_and_all_are_without_lost_after() -> None:
    pending = _job()
    cluster = PlannedCluster(3)
    cluster.register(pending)
    cluster.evaluate(pending)
    (original,) = cluster.live(pending)
    _disconnected(cluster, pending, original)
    assert cluster.state.allocs[original.id].client_status == "lost"
    plain = _job(lost_after=seconds(0))
    cluster, original = _running(plain)
    _disconnected(cluster, plain, original)
    assert cluster.state.allocs[original.id].client_status == "lost"


def test_a_client_that_stops_by_itself_is_waited_for_before_the_replacement() -> None:
    strategy = DisconnectStrategy(stop_on_client_after=seconds(60), replace=True)
    job = factories.job(task_groups=(factories.group(update=None, disconnect=strategy),))
    cluster, original = _running(job)
    _status(cluster, original.node_id, "down")
    cluster.evaluate(job)
    assert cluster.state.allocs[original.id].client_status == "lost" and not cluster.live(job)
    (followup,) = cluster.followups
    assert followup.wait_until >= cluster.now + seconds(60)
    assert not cluster.evaluate(job) and not cluster.live(job)
    cluster.now = UnixNano(followup.wait_until + seconds(1))
    cluster.settle(job)
    assert _winner(cluster, job, original) == "replacement"


@pytest.mark.parametrize("expected", ["stop", "evict"])
def test_what_was_to_leave_a_node_that_went_down_is_lost_and_stopped(expected: str) -> None:
    job = factories.job(task_groups=(factories.group(update=None),))
    cluster, original = _running(job)
    leaving = AllocStop(id=original.id, node_id=original.node_id, desired_status=expected, description="why")
    cluster.do(
        c.ApplyPlan(plan=Plan(eval_id="e", namespace=job.namespace, job_id=job.id, stops=(leaving,), now=cluster.now))
    )
    _status(cluster, original.node_id, "down")
    cluster.evaluate(job)
    gone = cluster.state.allocs[original.id]
    assert (gone.desired_status, gone.client_status) == ("stop", "lost")
    assert gone.desired_description == "alloc is lost since its node is down"
    assert [alloc.name for alloc in cluster.live(job)] == [original.name]


def test_the_evaluation_that_waited_for_a_client_replaces_its_allocation_by_whatever_clock() -> None:
    strategy = DisconnectStrategy(stop_on_client_after=seconds(60), replace=True)
    job = factories.job(task_groups=(factories.group(update=None, disconnect=strategy),))
    cluster, original = _running(job)
    _status(cluster, original.node_id, "down")
    cluster.evaluate(job)
    (followup,) = cluster.followups
    cluster.now = UnixNano(followup.wait_until - seconds(3))
    assert not cluster.evaluate(job)
    assert cluster.evaluate(job, status.TRIGGER_RETRY_FAILED_ALLOC, followup.id)
    assert _winner(cluster, job, original) == "replacement"


def _waited_for_client(**group: Any) -> tuple[PlannedCluster, Job, Allocation]:
    """A cluster in which a client has stopped the only allocation of a job after a loss of contact, at that time."""
    strategy = DisconnectStrategy(stop_on_client_after=seconds(60), replace=True)
    job = factories.job(task_groups=(factories.group(disconnect=strategy, **group),))
    cluster, original = _running(job)
    _status(cluster, original.node_id, "down")
    cluster.evaluate(job)
    (followup,) = cluster.followups
    cluster.now = UnixNano(followup.wait_until + seconds(1))
    return cluster, job, original


@pytest.mark.parametrize("kind", ["failed", "paused"])
def test_a_client_that_has_stopped_its_allocation_gets_a_replacement_whatever_the_deployment(
    kind: status.DeploymentStatus,
) -> None:
    cluster, job, original = _waited_for_client(update=factories.update_strategy())
    deployment = cluster.state.latest_deployment(job.namespace, job.id)
    assert deployment is not None
    ended = DeploymentUpdate(deployment_id=deployment.id, status=kind)
    plan = Plan(eval_id="e", namespace=job.namespace, job_id=job.id, deployment_updates=(ended,), now=cluster.now)
    cluster.do(c.ApplyPlan(plan=plan))

    cluster.evaluate(job)

    (replacement,) = cluster.live(job)
    assert cluster.state.allocs[original.id].next_allocation == replacement.id
    assert replacement.previous_allocation == original.id and replacement.name == original.name


def test_a_job_that_was_purged_meanwhile_replaces_nothing_of_the_one_before() -> None:
    cluster, job, original = _waited_for_client(update=None)
    cluster.do(c.DeregisterJob(namespace=job.namespace, job_id=job.id, purge=True))
    cluster.register(job)
    cluster.settle(job)
    (new,) = cluster.live(job)
    assert not new.previous_allocation and not cluster.state.allocs[original.id].next_allocation


def _settled(cluster: PlannedCluster, job: Job) -> list[str]:
    cluster.settle(job)
    return sorted(alloc.id for alloc in cluster.live(job))


@pytest.mark.parametrize("skew_s", [-7200, 7200])
def test_who_has_run_longest_is_known_without_the_clients_clocks(skew_s: int) -> None:
    job = _job(reconcile="longest_running")
    cluster, original = _running(job)
    _disconnected(cluster, job, original)
    _returns(cluster, original, started_at=0)
    told = TaskState(state="running", started_at=cluster.now + seconds(skew_s))
    update = c.AllocUpdate(id=original.id, node_id=original.node_id, client_status="running", task_states={"web": told})
    cluster.do(c.UpdateAllocsFromClient(updates=(update,), now=cluster.now))
    assert _settled(cluster, job) == [original.id]


def test_a_replacement_that_failed_gives_way_to_the_original_that_returns() -> None:
    job = _job(reconcile="keep_replacement")
    cluster, original = _running(job)
    _disconnected(cluster, job, original)
    replacement = next(alloc for alloc in cluster.live(job) if alloc.id != original.id)
    cluster.end(replacement, status.CLIENT_FAILED)
    _returns(cluster, original)
    assert _settled(cluster, job) == [original.id]
    assert cluster.state.allocs[replacement.id].desired_status == "stop"


def test_a_replacement_that_fails_while_the_original_is_away_is_replaced_in_its_turn() -> None:
    job = _job()
    cluster, original = _running(job, nodes=4)
    _disconnected(cluster, job, original)
    replacement = next(alloc for alloc in cluster.live(job) if alloc.id != original.id)
    cluster.end(replacement, status.CLIENT_FAILED)
    cluster.evaluate(job)
    (followup,) = cluster.followups
    cluster.now = UnixNano(followup.wait_until)
    cluster.settle(job)
    running = [alloc for alloc in cluster.live(job) if alloc.client_status == "running"]
    assert [alloc.name for alloc in running] == [original.name]
    assert running[0].previous_allocation == replacement.id


def test_what_found_no_room_when_its_node_went_away_is_placed_as_soon_as_there_is_some() -> None:
    job = _job()
    cluster, original = _running(job, nodes=1)
    _disconnected(cluster, job, original)
    assert len(cluster.blocked) == 1
    cluster.do(c.RegisterNode(node=factories.node(factories.number_id(9, kind=1))))
    cluster.settle(job)
    (placed,) = [alloc for alloc in cluster.live(job) if alloc.id != original.id]
    assert (placed.name, placed.previous_allocation) == (original.name, original.id)


def test_a_group_that_shrinks_while_its_node_is_away_is_not_replaced_beyond_its_count() -> None:
    job = _job(3)
    cluster = PlannedCluster(1)
    cluster.register(job)
    cluster.settle(job)
    (node_id,) = {alloc.node_id for alloc in cluster.live(job)}
    cluster.do(c.RegisterNode(node=factories.node(factories.number_id(9, kind=1))))
    smaller = replace(job, task_groups=(replace(job.task_groups[0], count=1),))
    cluster.register(smaller)
    _status(cluster, node_id, "disconnected")
    cluster.settle(smaller)
    assert len([alloc for alloc in cluster.live(smaller) if alloc.client_status != "unknown"]) == 1


def test_without_lost_after_what_is_not_replaced_waits_for_ever() -> None:
    job = _job(replace=False, lost_after=seconds(0))
    cluster, original = _running(job)
    _status(cluster, original.node_id, "down")
    cluster.evaluate(job)
    cluster.now = UnixNano(cluster.now + seconds(10**6))
    assert not cluster.evaluate(job)
    assert [(alloc.id, alloc.client_status) for alloc in cluster.live(job)] == [(original.id, "unknown")]


@pytest.mark.parametrize("gone", [c.SetNodeStatus(node_id="", status="down", updated_at=1), c.DeleteNodes(node_ids=())])
@pytest.mark.parametrize("kind", ["service", "batch", "system"])
def test_what_is_to_stop_on_a_node_that_is_down_or_gone_is_lost(kind: str, gone: Any) -> None:
    job = replace(_job(lost_after=seconds(0)), type=kind)
    cluster, original = _running(job, nodes=1)
    cluster.do(c.DeregisterJob(namespace=job.namespace, job_id=job.id))
    cluster.evaluate(job)
    assert cluster.state.allocs[original.id].client_status == "running"
    if isinstance(gone, c.SetNodeStatus):
        cluster.do(replace(gone, node_id=original.node_id))
    else:
        cluster.do(replace(gone, node_ids=(original.node_id,)))
    cluster.evaluate(job)
    ended = cluster.state.allocs[original.id]
    assert (ended.desired_status, ended.client_status) == ("stop", "lost")


def test_what_is_to_stop_and_stays_away_for_too_long_is_lost() -> None:
    job = _job(replace=False)
    cluster, original = _running(job)
    _disconnected(cluster, job, original)
    (followup,) = cluster.followups
    cluster.do(c.DeregisterJob(namespace=job.namespace, job_id=job.id))
    cluster.evaluate(job)
    assert cluster.state.allocs[original.id].client_status == "unknown"
    cluster.now = UnixNano(followup.wait_until)
    cluster.evaluate(job)
    assert cluster.state.allocs[original.id].client_status == "lost"


def test_a_plan_made_while_the_node_was_away_changes_nothing_when_it_has_come_back() -> None:
    job = _job()
    cluster, original = _running(job)
    _status(cluster, original.node_id, "disconnected")
    evaluation = factories.evaluation(job)
    plan = scheduler.attempt(cluster.state, evaluation, now=cluster.now, seed=1).plan
    assert plan.placements and plan.attributes
    _status(cluster, original.node_id, "initializing")

    result = check_plan(cluster.state, plan)
    cluster.do(c.ApplyPlan(plan=plan))

    assert result.rejected_nodes == {original.node_id: "node is in contact again"}
    assert result.accepted.is_empty
    assert [(alloc.id, alloc.client_status) for alloc in cluster.live(job)] == [(original.id, "running")]


def test_follow_ups_of_a_system_job_share_an_evaluation() -> None:
    job = replace(_job(), type="system")
    cluster = PlannedCluster(3)
    cluster.register(job)
    cluster.settle(job)
    for node in tuple(cluster.state.nodes.values()):
        _status(cluster, node.id, "disconnected")
    cluster.evaluate(job)
    (followup,) = cluster.followups
    assert {alloc.followup_eval_id for alloc in cluster.live(job)} == {followup.id}
