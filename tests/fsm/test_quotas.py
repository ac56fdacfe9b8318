"""Quotas in the state machine: who names them, what they limit of stored data, and plans that come too late."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.fsm import snapshot
from yurt.sdk.value import replace
from yurt.structs import commands as c
from yurt.structs.cluster import Namespace
from yurt.structs.commands import Applied, Rejected
from yurt.structs.plan import InPlaceUpdate, Placement, Plan
from yurt.structs.quota import with_hashes
from yurt.structs.variable import EncryptedVariable, RootKeyMeta, VariableLock
from yurt.structs.volumes.host import HostVolume
from yurt.testing import factories
from yurt.testing.quotas import REGION, bound, guaranteed, quota
from yurt.testing.replica import Replica

MIB = 1 << 20
NODE = factories.node()
TEAM = c.UpsertQuotas(quotas=(quota("team"),))
DELETE = c.DeleteQuotas(names=("team",))


def named(name: str, quota_name: str) -> c.UpsertNamespaces:
    return c.UpsertNamespaces(namespaces=(Namespace(name=name, quota=quota_name),))


def test_a_namespace_names_only_a_quota_that_exists() -> None:
    replica = Replica()
    refused = replica.reject(named("a", "team"))
    assert (refused.kind, refused.message) == (
        "not_found", 'namespace "a" names quota "team", which does not exist',
    )  # fmt: skip
    replica.apply(TEAM, named("a", "team"))
    assert replica.state.namespaces["a"].quota == "team"


@pytest.mark.parametrize("is_named_first", [True, False])
def test_of_a_deletion_and_a_namespace_that_names_the_quota_the_second_is_refused(is_named_first: bool) -> None:
    replica = Replica()
    replica.apply(TEAM)
    first, second = (named("a", "team"), DELETE) if is_named_first else (DELETE, named("a", "team"))
    replica.apply(first)
    replica.reject(second)
    assert ("team" in replica.state.quotas) == is_named_first


def test_a_quota_is_deleted_once_no_namespace_names_it() -> None:
    replica = Replica()
    replica.apply(TEAM, named("a", "team"), named("b", "team"))
    assert replica.reject(DELETE).message == (
        'quota "team" is named by 2 namespaces; apply them with another quota or none first'
    )
    replica.apply(named("a", ""), named("b", ""), DELETE)
    assert replica.reject(DELETE).kind == "not_found"


def test_a_quota_keeps_its_create_index_and_survives_a_snapshot() -> None:
    replica = Replica()
    replica.apply(TEAM)
    first = replica.state.quotas["team"]
    replica.apply(c.UpsertQuotas(quotas=(quota("team", cpu=5),)))
    second = replica.state.quotas["team"]
    assert (second.create_index, second.modify_index) == (first.create_index, replica.state.index)
    assert second.limits[0].hash != first.limits[0].hash
    again = snapshot.decode(snapshot.encode(replica.state))
    assert again.quotas["team"] == second
    assert snapshot.digest(again) == snapshot.digest(replica.state)


def test_the_hash_of_a_limit_follows_from_its_content_alone() -> None:
    spec = quota("team", cpu=5)
    assert with_hashes(spec) == spec
    assert with_hashes(replace(quota("other", cpu=5), create_index=3)).limits[0].hash == spec.limits[0].hash


# -- variables and host volumes ----------------------------------------------------------------------------------------


def limited(**limits: int) -> Replica:
    replica = Replica()
    replica.apply(c.PutRootKey(key=RootKeyMeta(key_id="k")), *bound("a", "b", spec=quota("team", **limits)))
    return replica


def put(replica: Replica, path: str, size: int, *, namespace: str = "a", region: str = REGION) -> Applied | Rejected:
    row = EncryptedVariable(namespace=namespace, path=path, key_id="k", data=b"x" * size)
    return replica.step(c.PutVariable(variable=row, region=region)).result


def test_variables_of_all_namespaces_of_a_quota_stay_within_it() -> None:
    replica = limited(variables_mb=1)
    assert isinstance(put(replica, "one", MIB - 10), Applied)
    refused = put(replica, "two", 11, namespace="b")
    assert isinstance(refused, Rejected) and refused.message == (
        'quota "team" allows 1 MiB of variables; 1 MiB are used, 11 bytes more are needed'
    )
    assert isinstance(put(replica, "one", MIB - 11), Applied), "what shrinks is never refused"
    assert isinstance(put(replica, "two", 11, namespace="b"), Applied)


def test_a_lock_that_makes_a_variable_counts() -> None:
    replica = limited(variables_mb=-1)
    row = EncryptedVariable(namespace="a", path="p", key_id="k", data=b"x", lock=VariableLock(id="l"))
    refused = replica.reject(c.LockVariable(variable=row, region=REGION))
    assert refused.message == 'quota "team" allows no variables'


@pytest.mark.parametrize("region", ["", "elsewhere"])
def test_a_limit_of_another_region_does_not_count(region: str) -> None:
    assert isinstance(put(limited(variables_mb=-1), "p", 1, region=region), Applied)


def volume(number: int, gib: int, **changes: Any) -> c.PutHostVolume:
    row = HostVolume(
        id=factories.number_id(number), namespace="a", name=f"v{number}", node_id=NODE.id,
        requested_capacity_max_bytes=gib << 30,
    )  # fmt: skip
    return c.PutHostVolume(volume=replace(row, **changes), region=REGION)


def test_host_volumes_stay_within_a_quota_by_what_they_ask_for() -> None:
    replica = limited(host_volumes_mb=3 * 1024)
    replica.apply(c.RegisterNode(node=NODE), volume(1, 2))
    assert replica.reject(volume(2, 2)).message == (
        'quota "team" allows 3072 MiB of host volumes; 2048 MiB are used, 2048 MiB more are needed'
    )
    replica.apply(volume(2, 1), volume(1, 2, capacity_bytes=1 << 30), volume(3, 1))
    assert "capacity_max" in replica.reject(volume(4, 0)).message


def test_a_volume_of_negative_size_stops_no_server() -> None:
    """An earlier version stored what a caller or a node said."""
    replica = limited(host_volumes_mb=3 * 1024)
    replica.apply(c.RegisterNode(node=NODE), volume(1, 0, capacity_bytes=-1))
    replica.apply(volume(2, 1))
    assert len(replica.state.host_volumes) == 2


# -- plans -------------------------------------------------------------------------------------------------------------


changes_of_the_quota = pytest.mark.parametrize(
    "change",
    [
        c.UpsertQuotas(quotas=(quota("team", cpu=1),)),
        named("b", "team"),
        named("default", "team"),
    ],
    ids=["lowered", "shared", "bound"],
)


@changes_of_the_quota
def test_placements_checked_before_their_quota_changed_are_stale(change: c.AnyCommand) -> None:
    replica, node, job = Replica(), factories.node(), factories.job()
    replica.apply(*bound("default", spec=quota("team")), c.RegisterNode(node=node), c.RegisterJob(job=job))
    checked_at = replica.state.index
    placement = Placement(
        id="a", name="web.web[0]", task_group="web", node_id=node.id, job_version=0,
        resources=factories.alloc(job, on=node).allocated_resources,
    )  # fmt: skip
    plan = Plan(eval_id="e", namespace="default", job_id=job.id, placements=(placement,), now=factories.NOW)
    replica.apply(change)
    refused = replica.reject(c.ApplyPlan(plan=plan, checked_at=checked_at))
    assert (refused.kind, "quota of namespace" in refused.message) == ("stale", True)
    replica.apply(c.ApplyPlan(plan=plan, checked_at=replica.state.index))


@changes_of_the_quota
def test_updates_in_place_checked_before_their_quota_changed_are_stale(change: c.AnyCommand) -> None:
    replica, node, job = Replica(), factories.node(), factories.job()
    alloc = factories.alloc(job, on=node)
    replica.apply(*bound("default", spec=quota("team")), c.RegisterNode(node=node), c.RegisterJob(job=job))
    placement = Placement(
        id="a", name=alloc.name, task_group="web", node_id=node.id, job_version=0, resources=alloc.allocated_resources
    )
    placed = Plan(eval_id="e", namespace="default", job_id=job.id, placements=(placement,), now=factories.NOW)
    replica.apply(c.ApplyPlan(plan=placed, checked_at=replica.state.index))
    checked_at = replica.state.index
    update = InPlaceUpdate(id="a", node_id=node.id, job_version=0, resources=alloc.allocated_resources)
    plan = Plan(eval_id="e", namespace="default", job_id=job.id, in_place=(update,), now=factories.NOW)
    replica.apply(change)
    refused = replica.reject(c.ApplyPlan(plan=plan, checked_at=checked_at))
    assert (refused.kind, "quota of namespace" in refused.message) == ("stale", True)
    replica.apply(c.ApplyPlan(plan=plan, checked_at=replica.state.index))


def guaranteeing(name: str, memory_mb: int, **changes: Any) -> c.UpsertQuotas:
    return c.UpsertQuotas(quotas=(guaranteed(quota(name, memory_mb=1000, **changes), memory_mb=memory_mb),))


def test_of_two_guarantees_that_exceed_the_parents_together_the_second_is_refused() -> None:
    replica = Replica()
    replica.apply(guaranteeing("top", 500), guaranteeing("one", 300, parent="top"))
    refused = replica.reject(guaranteeing("two", 300, parent="top"))
    assert refused.kind == "invalid" and "add up to 600 (one 300, two 300)" in refused.message
    assert "add up to 300" in replica.reject(guaranteeing("top", 200)).message
    replica.apply(guaranteeing("two", 200, parent="top"))


def test_a_quota_that_is_given_twice_is_refused() -> None:
    replica = Replica()
    one, other = guaranteeing("a", 1).quotas[0], guaranteeing("a", 2).quotas[0]
    refused = replica.reject(c.UpsertQuotas(quotas=(one, other)))
    assert (refused.kind, refused.message) == ("invalid", 'quota "a" is given more than once; give each quota once')
    assert not len(replica.state.quotas)


def test_of_two_quotas_that_would_be_above_each_other_the_second_is_refused() -> None:
    replica = Replica()
    replica.apply(guaranteeing("a", 1), guaranteeing("b", 1, parent="a"))
    assert "a -> b -> a is a cycle" in replica.reject(guaranteeing("a", 1, parent="b")).message


def test_copies_of_another_region_come_in_any_order() -> None:
    replica = Replica()
    child = guaranteeing("child", 300, parent="top")
    assert "does not exist" in replica.reject(child).message
    replica.apply(replace(child, is_copy=True), replace(guaranteeing("top", 500), is_copy=True))


def test_a_parent_is_deleted_after_what_is_below_it() -> None:
    replica = Replica()
    replica.apply(guaranteeing("top", 500), guaranteeing("low", 300, parent="top"))
    assert replica.reject(c.DeleteQuotas(names=("top",))).message == (
        'quota "top" is the parent of quota "low"; give that another parent or none first'
    )
    replica.apply(c.DeleteQuotas(names=("low", "top")))


def test_variables_count_under_the_quotas_above_too() -> None:
    replica = Replica()
    top, low = quota("top", variables_mb=1), quota("low", parent="top")
    replica.apply(c.UpsertQuotas(quotas=(top, low)), named("a", "low"), named("b", "top"))
    replica.apply(c.PutRootKey(key=RootKeyMeta(key_id="k")))
    assert isinstance(put(replica, "p", MIB // 2), Applied)
    refused = put(replica, "p", MIB // 2 + 1, namespace="b")
    assert isinstance(refused, Rejected) and 'quota "top" allows 1 MiB of variables' in refused.message
