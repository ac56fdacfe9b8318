"""Who gives up a place when a group has too many."""

from __future__ import annotations

from typing import Any

from yurt.scheduler.reconcile.alloc_names import NameIndex
from yurt.scheduler.reconcile.scale_down import scale_down_order
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation, DesiredTransition
from yurt.structs.job import Job
from yurt.structs.policies import ReschedulePolicy
from yurt.testing import factories
from yurt.testing.cluster_models.cluster import PlannedCluster

NEVER = ReschedulePolicy()
MUCH_LATER = ReschedulePolicy(delay=seconds(3600), delay_function="constant", unlimited=True)


def _of(count: int, policy: ReschedulePolicy = NEVER, **changes: Any) -> Job:
    return factories.job(task_groups=(factories.group(count=count, reschedule_policy=policy, **changes),))


def _running(job: Job) -> tuple[PlannedCluster, list[Allocation]]:
    cluster = PlannedCluster()
    cluster.register(job)
    cluster.settle(job)
    return cluster, sorted(cluster.live(job), key=lambda alloc: alloc.name)


def test_one_that_has_failed_for_good_leaves_when_its_name_is_above_the_count() -> None:
    cluster, (first, second) = _running(_of(2, update=None))
    cluster.end(second, status.CLIENT_FAILED)
    smaller = _of(1, update=None)
    cluster.register(smaller)
    cluster.settle(smaller)
    assert [alloc.id for alloc in cluster.live(smaller)] == [first.id]


def test_one_that_would_be_replaced_later_is_not_waited_for_above_the_count() -> None:
    cluster, (first, second) = _running(_of(2, MUCH_LATER, update=None))
    cluster.end(second, status.CLIENT_FAILED)
    smaller = _of(1, MUCH_LATER, update=None)
    cluster.register(smaller)
    cluster.evaluate(smaller)
    assert (cluster.followups, [alloc.id for alloc in cluster.live(smaller)]) == ([], [first.id])


def test_a_promoted_canary_takes_the_place_of_the_failed_one_of_its_name() -> None:
    update = factories.update_strategy(canary=1)
    cluster, allocs = _running(_of(3, update=update))
    cluster.end(allocs[0], status.CLIENT_FAILED)
    newer = _of(3, update=update, tasks=(factories.task(env={"V": "2"}),))
    cluster.register(newer)
    cluster.settle(newer)
    deployment = cluster.state.latest_deployment(newer.namespace, newer.id)
    assert deployment is not None
    cluster.do(c.PromoteDeployment(deployment_id=deployment.id, now=cluster.now))
    cluster.evaluate(newer)
    assert allocs[2].id in {alloc.id for alloc in cluster.live(newer)}


def test_the_newer_of_two_names_leaves_unless_the_older_has_ended() -> None:
    job = _of(1)
    older, newer = factories.alloc(job, create_index=1), factories.alloc(job, create_index=2)
    ended = replace(older, client_status=status.CLIENT_FAILED)
    names = NameIndex(job.id, "web", 1, (older, newer))
    assert scale_down_order([older, newer], [], names, ())[0] == newer
    assert scale_down_order([ended, newer], [], names, ())[0] == ended


def test_of_two_names_above_the_count_the_one_that_migrates_leaves_first() -> None:
    job = _of(1)
    stays, leaves = factories.alloc(job, index=2), factories.alloc(job, index=1)
    leaves = replace(leaves, desired_transition=DesiredTransition(migrate=True))
    names = NameIndex(job.id, "web", 1, (stays, leaves))
    assert scale_down_order([stays], [leaves], names, ()) == [leaves, stays]


def test_what_failed_above_the_count_is_replaced_under_a_name_that_is_free() -> None:
    cluster, (_, _, last) = _running(_of(3, MUCH_LATER, update=None))
    cluster.end(last, status.CLIENT_FAILED)
    for count in (0, 2):
        cluster.register(job := _of(count, MUCH_LATER, update=None))
        cluster.settle(job)
    cluster.now = UnixNano(cluster.now + seconds(7200))
    cluster.settle(job)
    assert cluster.names(job) == ["web.web[0]", "web.web[1]"]


def test_the_name_of_a_failed_one_that_is_not_replaced_is_free_for_others() -> None:
    cluster, (first, *_) = _running(_of(4, MUCH_LATER, update=None))
    cluster.end(first, status.CLIENT_FAILED)
    cluster.now = UnixNano(cluster.now + seconds(7200))
    cluster.register(job := _of(3, MUCH_LATER, update=None, tasks=(factories.task(env={"V": "2"}),)))
    cluster.settle(job)
    assert cluster.names(job) == [f"web.web[{index}]" for index in range(3)]
