"""Evaluations, namespaces, node pools, configuration, launches and schemas."""

from __future__ import annotations

import msgspec
import pytest
from yurt.sdk.errors import Reason
from yurt.sdk.value import UnixNano, replace
from yurt.structs import status
from yurt.structs.cluster import ClusterMetadata, Namespace, NodePool, SchedulerConfiguration
from yurt.structs.commands import (
    AnyCommand,
    DeleteEvaluations,
    DeleteNamespaces,
    DeleteNodePools,
    KeepAlive,
    RecordPeriodicLaunch,
    RegisterJob,
    RegisterNode,
    SetClusterID,
    SetSchedulerConfiguration,
    StoreSchema,
    UpsertEvaluations,
    UpsertNamespaces,
    UpsertNodePools,
)
from yurt.structs.commands.codec import decode_command
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain.metrics import AllocationMetric
from yurt.testing import factories
from yurt.testing.replica import Replica


def put(replica: Replica, *evaluations: Evaluation) -> None:
    replica.apply(UpsertEvaluations(evaluations=evaluations))


def test_an_evaluation_keeps_its_create_index(replica: Replica) -> None:
    evaluation = factories.evaluation()
    put(replica, evaluation)
    put(replica, replace(evaluation, status="complete", create_time=UnixNano(1)))
    stored = replica.state.evals[evaluation.id]
    assert (stored.create_index, stored.modify_index, stored.create_time) == (1, 2, factories.NOW)


def test_the_evaluation_of_a_registration_names_the_index_of_its_job(replica: Replica) -> None:
    for priority, index in ((50, 1), (60, 2), (60, 2)):
        job = factories.job(priority=priority)
        evaluation = factories.evaluation(job)
        replica.apply(RegisterJob(job=job, evaluation=evaluation))
        assert replica.state.evals[evaluation.id].job_modify_index == index


def test_a_terminal_evaluation_does_not_come_back(replica: Replica) -> None:
    evaluation = factories.evaluation(status="canceled")
    put(replica, evaluation)
    put(replica, replace(evaluation, status="pending"))
    assert replica.state.evals[evaluation.id].status == status.EVAL_CANCELED


def test_queued_counts_follow_the_newest_evaluation(replica: Replica) -> None:
    replica.apply(RegisterJob(job=factories.job()))
    put(replica, factories.evaluation(queued_allocations={"web": 3, "gone": 1}))
    assert replica.state.job_summaries[("default", "web")].summary["web"].queued == 3
    put(replica, factories.evaluation(queued_allocations={"web": 0}))
    summary = replica.state.job_summaries[("default", "web")].summary
    assert summary["web"].queued == 0
    assert set(summary) == {"web"}


def test_a_full_success_cancels_what_the_job_had_blocked(replica: Replica) -> None:
    blocked, done = factories.evaluation(status="blocked"), factories.evaluation(status="complete")
    other = factories.evaluation(factories.job("db"), status="blocked")
    put(replica, blocked, other)
    put(replica, replace(done, failed_tg_allocs={"web": AllocationMetric()}))
    assert replica.state.evals[blocked.id].status == status.EVAL_BLOCKED
    again = factories.evaluation(status="complete")
    put(replica, again)
    assert replica.state.evals[blocked.id].status == status.EVAL_CANCELED
    assert replica.state.evals[blocked.id].status_description == f'evaluation "{again.id}" successful'
    assert replica.state.evals[other.id].status == status.EVAL_BLOCKED


def test_deleting_leaves_out_what_is_gone_or_goes_on(replica: Replica) -> None:
    ended, pending = factories.evaluation(status=status.EVAL_COMPLETE), factories.evaluation()
    put(replica, ended, pending)
    replica.apply(DeleteEvaluations(eval_ids=(ended.id, pending.id, "gone"), alloc_ids=("gone",)))
    assert set(replica.state.evals.keys()) == {pending.id}


@pytest.mark.parametrize(("eval_id", "kind"), [("pending", "invalid"), ("gone", "not_found")])
def test_a_strict_deletion_is_refused_as_a_whole(replica: Replica, eval_id: str, kind: str) -> None:
    ended, pending = factories.evaluation(status=status.EVAL_COMPLETE), factories.evaluation(id="pending")
    put(replica, ended, pending)
    assert replica.reject(DeleteEvaluations(eval_ids=(ended.id, eval_id), is_strict=True)).kind == kind
    assert len(replica.state.evals) == 2


def test_a_deletion_by_hand_needs_a_paused_broker_at_its_position(replica: Replica) -> None:
    ended = factories.evaluation(status=status.EVAL_COMPLETE)
    put(replica, ended)
    by_hand = DeleteEvaluations(eval_ids=(ended.id,), requires_pause=True)
    for configuration in (None, SchedulerConfiguration(pause_eval_broker=False)):
        if configuration is not None:
            replica.apply(SetSchedulerConfiguration(configuration=configuration))
        rejected = replica.reject(by_hand)
        assert (rejected.kind, rejected.reason) == ("conflict", Reason.EVAL_BROKER_ENABLED)
        assert rejected.message == "eval broker is enabled; eval broker must be paused to delete evals"
    replica.apply(SetSchedulerConfiguration(configuration=SchedulerConfiguration(pause_eval_broker=True)))
    replica.apply(by_hand)
    assert not len(replica.state.evals)


def test_a_deletion_of_an_earlier_version_has_no_condition_on_the_broker(replica: Replica) -> None:
    ended = factories.evaluation(status=status.EVAL_COMPLETE)
    put(replica, ended)
    stored = {"$": "DeleteEvaluations", "EvalIDs": [ended.id], "IsStrict": True}
    replica.apply(decode_command(msgspec.msgpack.encode(stored)))
    assert not len(replica.state.evals)


@pytest.mark.parametrize("changes", [{"id": ""}, {"status": "odd"}])
def test_an_evaluation_that_makes_no_sense_is_rejected(replica: Replica, changes: dict[str, str]) -> None:
    assert replica.reject(UpsertEvaluations(evaluations=(factories.evaluation(**changes),))).kind == "invalid"


def test_the_default_namespace_and_the_built_in_pools_are_there_from_the_start(replica: Replica) -> None:
    assert set(replica.state.namespaces.keys()) == {"default"}
    assert set(replica.state.node_pools.keys()) == {"all", "default"}
    assert replica.state.namespaces["default"].modify_index == 1


def test_a_namespace_in_use_is_not_deleted(replica: Replica) -> None:
    replica.apply(UpsertNamespaces(namespaces=(Namespace(name="ops"),)))
    replica.apply(RegisterJob(job=factories.job(namespace="ops")))
    assert replica.reject(DeleteNamespaces(names=("ops",))).kind == "conflict"


def test_a_pool_in_use_is_not_deleted(replica: Replica) -> None:
    replica.apply(UpsertNodePools(pools=(NodePool(name="gpu"), NodePool(name="arm"))))
    replica.apply(RegisterNode(node=factories.node(node_pool="gpu")), RegisterJob(job=factories.job(node_pool="arm")))
    assert replica.reject(DeleteNodePools(names=("gpu",))).kind == "conflict"
    assert replica.reject(DeleteNodePools(names=("arm",))).kind == "conflict"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (DeleteNamespaces(names=("default",)), "invalid"),
        (DeleteNamespaces(names=("odd",)), "not_found"),
        (DeleteNodePools(names=("all",)), "invalid"),
        (DeleteNodePools(names=("odd",)), "not_found"),
        (UpsertNodePools(pools=(NodePool(name="default"),)), "invalid"),
        (UpsertNamespaces(namespaces=(Namespace(),)), "invalid"),
        (RecordPeriodicLaunch(namespace="default", job_id="odd", launched_at=UnixNano(1)), "not_found"),
    ],
)
def test_what_can_not_be_is_rejected(replica: Replica, command: AnyCommand, kind: str) -> None:
    assert replica.reject(command).kind == kind


def test_what_is_free_is_deleted(replica: Replica) -> None:
    replica.apply(UpsertNodePools(pools=(NodePool(name="gpu"),)), UpsertNamespaces(namespaces=(Namespace(name="ops"),)))
    replica.apply(DeleteNodePools(names=("gpu",)), DeleteNamespaces(names=("ops",)))
    assert set(replica.state.node_pools.keys()) == {"all", "default"}
    assert set(replica.state.namespaces.keys()) == {"default"}


def test_the_scheduler_configuration_changes_only_from_the_index_that_was_seen(replica: Replica) -> None:
    spread = SchedulerConfiguration(scheduler_algorithm="spread")
    replica.apply(SetSchedulerConfiguration(configuration=spread, check_index=0))
    assert replica.reject(SetSchedulerConfiguration(configuration=spread, check_index=0)).kind == "conflict"
    replica.apply(SetSchedulerConfiguration(configuration=SchedulerConfiguration(), check_index=1))
    stored = replica.state.scheduler_config
    assert (stored.scheduler_algorithm, stored.create_index, stored.modify_index) == ("binpack", 1, 3)


def test_the_last_launch_never_goes_back(replica: Replica) -> None:
    replica.apply(RegisterJob(job=factories.job()))
    for time in (5, 9, 7):
        replica.apply(RecordPeriodicLaunch(namespace="default", job_id="web", launched_at=UnixNano(time)))
    launch = replica.state.periodic_launches[("default", "web")]
    assert (launch.launch, launch.create_index, launch.modify_index) == (9, 2, 3)


def test_a_schema_is_stored_once(replica: Replica) -> None:
    for _ in range(2):
        replica.apply(StoreSchema(driver="raw_exec", digest="d", schema={"command": {"type": "string"}}))
    assert replica.state.schemas[("raw_exec", "d")].create_index == 1


def test_keep_alive_changes_the_index_alone(replica: Replica) -> None:
    replica.apply(KeepAlive())
    assert replica.state.index == 1
    assert replica.changes == ()


def test_the_first_id_of_a_cluster_stays(replica: Replica) -> None:
    replica.apply(SetClusterID(cluster_id="first"))
    assert replica.reject(SetClusterID(cluster_id="second")).kind == "conflict"
    assert replica.state.cluster_metadata[""] == ClusterMetadata(cluster_id="first", create_index=1, modify_index=1)
    assert Replica().reject(SetClusterID(cluster_id="")).kind == "invalid"
