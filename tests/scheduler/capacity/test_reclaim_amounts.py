"""MIG instances within guarantees: a waiting one counts by its part of a card, as it will once it is placed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.capacity.reclaim_amounts import reclaim_amounts
from yurt.sdk.mig import MigProfile, profiles_text
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.job import Job
from yurt.structs.node import Attribute
from yurt.structs.quota import QuotaSpec
from yurt.structs.resources import RequestedDevice, Resources
from yurt.testing.cluster_models.pending_jobs import node as sized_node
from yurt.testing.cluster_models.pending_jobs import with_gpus

from tests.scheduler.capacity.test_guarantees import LATER, after, cluster, job_of, run, share, victims

PROFILES = (
    MigProfile(name="1g.10gb", memory_mb=9856, compute=14, size=1, starts=(0, 1, 2, 3, 4, 5, 6)),
    MigProfile(name="3g.40gb", memory_mb=40448, compute=42, size=4, starts=(0, 4)),
)
SPLIT = {
    "memory": Attribute(int_val=81_559, unit="MiB"),
    "sharing": Attribute(string_val="slice,mig"),
    "mig_profiles": Attribute(string_val=profiles_text(PROFILES)),
}


def split_cluster(*specs: QuotaSpec, attributes: Mapping[str, Attribute] = SPLIT, cards: int = 1) -> Snapshot:
    """Cards that their node may split, by default one."""
    node = with_gpus(sized_node(0), cards)
    (kind,) = node.node_resources.devices
    node = replace(node, node_resources=replace(node.node_resources, devices=(replace(kind, attributes=attributes),)))
    return after(cluster(*specs, nodes=()), c.RegisterNode(node=node))


def instances_of(name: str, namespace: str, count: int, memory_mb: int = 9000, **changes: Any) -> Job:
    job = job_of(name, namespace, count, 0, **changes)
    (group,) = job.task_groups
    request = RequestedDevice(name="nvidia/gpu", share="mig", memory_mb=memory_mb)
    task = replace(group.tasks[0], resources=Resources(cpu=10, memory_mb=10, devices=(request,)))
    return replace(job, task_groups=(replace(group, tasks=(task,)),))


def test_a_guarantee_covers_as_many_mig_instances_as_it_holds() -> None:
    """Seven instances of 14 % are within one GPU."""
    state, plan = run(split_cluster(share("a", 0), share("b", 1)), instances_of("borrower", "a", 7))
    assert len(plan.placements) == 7
    state, plan = run(state, instances_of("owner", "b", 9), LATER)
    assert (len(plan.placements), victims(state, plan)) == (7, ["borrower"] * 7)


def test_a_large_mig_instance_takes_its_part_of_a_guarantee() -> None:
    """Two instances of 42 % are within a GPU; a third one has no place."""
    state, _ = run(split_cluster(share("a", 0), share("b", 1)), instances_of("borrower", "a", 2, 40_000))
    state, plan = run(state, instances_of("first", "b", 1, 40_000), LATER)
    assert len(plan.preemptions) == 1
    state, plan = run(state, instances_of("second", "b", 1, 40_000), LATER)
    assert len(plan.preemptions) == 1


def test_what_a_node_books_is_within_the_guarantee_though_the_smallest_profile_would_be() -> None:
    """Each of two cards has a place of 14 % and one of 42 %: three instances are within a GPU, and four are not."""
    small, large = PROFILES
    profiles = (replace(small, starts=(0,)), replace(large, starts=(0, 4)))
    attributes = SPLIT | {"mig_profiles": Attribute(string_val=profiles_text(profiles))}
    state = split_cluster(share("a", 0), share("b", 1), attributes=attributes, cards=2)
    state, plan = run(state, instances_of("borrower", "a", 4))
    booked = [task.devices for row in state.allocs.values() for task in row.allocated_resources.tasks.values()]
    assert sorted(device.compute for (device,) in booked) == [14, 14, 42, 42]
    state, plan = run(state, instances_of("owner", "b", 4), LATER)
    assert len(plan.placements) == len(victims(state, plan)) == 3


@pytest.mark.parametrize(
    ("attributes", "memory_mb", "pool", "part"),
    [
        (SPLIT, 9000, "default", 140),
        (SPLIT, 10_000, "default", 496),
        (SPLIT, 9000, "all", 140),
        (SPLIT, 9000, "other", 1000),
        (SPLIT, 50_000, "default", 1000),
        ({"memory": SPLIT["memory"], "sharing": Attribute(string_val="mig")}, 9000, "default", 1000),
        ({}, 9000, "default", 1000),
    ],
    ids=["smallest profile", "larger profile", "every pool", "no card there", "none so large", "by hand", "no MIG"],
)
def test_a_waiting_mig_instance_counts_as_it_will_when_it_is_placed(
    attributes: Mapping[str, Attribute], memory_mb: int, pool: str, part: int
) -> None:
    state = split_cluster(attributes=attributes)
    ask = GroupAsk(instances_of("x", "a", 1, memory_mb).task_groups[0], with_memory_max=False)
    assert reclaim_amounts(ask, state, pool).devices == (("nvidia/gpu", part),)


@pytest.mark.parametrize(
    ("mode", "memory_mb", "compute", "part"),
    [("mps", 20_000, 10, 246), ("mps", 20_000, 50, 500), ("mps", 20_000, 0, 246), ("slice", 20_000, 10, 100)],
    ids=["memory dominates", "compute dominates", "memory alone", "a mode that no card has"],
)
def test_a_waiting_share_counts_by_its_dominant_part_of_the_card(
    mode: str, memory_mb: int, compute: int, part: int
) -> None:
    state = split_cluster(attributes=SPLIT | {"sharing": Attribute(string_val="mps,mig")})
    request = RequestedDevice(name="nvidia/gpu", share=mode, memory_mb=memory_mb, compute=compute)
    group = instances_of("x", "a", 1, memory_mb).task_groups[0]
    asked = replace(group.tasks[0].resources, devices=(request,))
    group = replace(group, tasks=(replace(group.tasks[0], resources=asked),))
    assert reclaim_amounts(GroupAsk(group, with_memory_max=False), state, "default").devices == (("nvidia/gpu", part),)
