"""Clients that are out of reach and come back: unknown, replaced or not, and which of both stays (semantics 7, 8)."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.job import Job
from yurt.structs.policies import DisconnectStrategy
from yurt.testing import factories
from yurt.testing.cluster import Cluster

LOST_AFTER = seconds(600)


def _job(count: int = 1, **strategy: Any) -> Job:
    disconnect = DisconnectStrategy(**{"lost_after": LOST_AFTER, "replace": True, **strategy})
    return factories.job(task_groups=(factories.group(count=count, update=None, disconnect=disconnect),))


def _running(job: Job, nodes: int = 3) -> tuple[Cluster, Allocation]:
    cluster = Cluster(nodes)
    cluster.register(job)
    cluster.settle(job)
    return cluster, min(cluster.live(job), key=lambda alloc: alloc.name)


def _status(cluster: Cluster, node_id: str, node_status: str) -> None:
    cluster.do(c.SetNodeStatus(node_id=node_id, status=node_status, updated_at=1))


def _disconnected(cluster: Cluster, job: Job, alloc: Allocation) -> None:
    _status(cluster, alloc.node_id, "disconnected")
    cluster.evaluate(job)
    cluster.clients_act(job)


def _returns(cluster: Cluster, alloc: Allocation, client_status: str = "running", started_at: int = 0) -> None:
    _status(cluster, alloc.node_id, "initializing")
    failed = client_status == status.CLIENT_FAILED
    states = {"web": TaskState(state="dead" if failed else "running", failed=failed, started_at=started_at)}
    update = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status=client_status, task_states=states)
    cluster.do(c.UpdateAllocsFromClient(updates=(update,), now=cluster.now))
    _status(cluster, alloc.node_id, "ready")


def _winner(cluster: Cluster, job: Job, original: Allocation) -> str:
    (alloc,) = cluster.live(job)
    return "original" if alloc.id == original.id else "replacement"


def _score(cluster: Cluster, alloc_id: str, score: float) -> None:
    """The allocation was placed with this score."""
    alloc = cluster.state.allocs[alloc_id]
    assert alloc.metrics is not None
    best = replace(alloc.metrics.score_meta_data[0], norm_score=score)
    edit = cluster.state.edit(cluster.state.index + 1)
    edit.put("allocs", alloc_id, replace(alloc, metrics=replace(alloc.metrics, score_meta_data=(best,))))
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
    born = cluster.state.allocs[replacement.id].task_states["web"].started_at
    _returns(cluster, original, started_at=born - 1 if started_first else born + 1)
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
    cluster = Cluster(3)
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
