"""Volumes of CSI plugins and host volumes of one allocation each: where they are, and who claims them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from yurt import scheduler
from yurt.broker import BlockedEvals
from yurt.fsm import apply
from yurt.scheduler import explain
from yurt.scheduler.attempts import Attempt
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.state.claims import claims
from yurt.structs import commands as c
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import CSIInfo, CSINodeInfo, CSITopology, HostVolumeInfo, Node
from yurt.structs.rules import CSI_CLAIM_RULES
from yurt.structs.volumes.csi import CSIVolume, CSIVolumeCapability
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories

EBS = "ebs"
WRITER, READERS, WRITERS = "single-node-writer", "multi-node-reader-only", "multi-node-multi-writer"
SINGLE = "multi-node-single-writer"


def _node(number: int, *, healthy: bool = True, limit: int = 0, zone: str = "", **changes: Any) -> Node:
    topology = CSITopology(segments={"zone": zone}) if zone else None
    info = CSINodeInfo(id=f"n{number}", max_volumes=limit, accessible_topology=topology)
    plugins = {EBS: CSIInfo(plugin_id=EBS, healthy=healthy, node_info=info)}
    return factories.node(factories.number_id(number, kind=1), **{"csi_node_plugins": plugins, **changes})


def _volume(name: str = "data", *, modes: Sequence[str] = (WRITER,), **changes: Any) -> CSIVolume:
    ways = tuple(CSIVolumeCapability(access_mode=mode, attachment_mode="file-system") for mode in modes)
    return CSIVolume(id=name, plugin_id=EBS, requested_capabilities=ways, **changes)


def _job(name: str = "web", count: int = 1, **request: Any) -> Job:
    asked = VolumeRequest(**{"name": "data", "type": "csi", "source": "data", "access_mode": WRITER, **request})
    group = factories.group(count=count, volumes={"data": asked}, update=None)
    return factories.job(name, task_groups=(group,))


def _with(state: Snapshot, *made: c.AnyCommand) -> Snapshot:
    for command in made:
        step = apply(state, command, index=state.index + 1)
        assert isinstance(step.result, c.Applied), step.result
        state = step.state
    return state


def _state(nodes: Sequence[Node], *volumes: CSIVolume, jobs: Sequence[Job] = ()) -> Snapshot:
    made: list[c.AnyCommand] = [c.RegisterNode(node=node) for node in nodes]
    return _with(Snapshot.empty(), *made, c.UpsertVolumes(volumes=volumes), *(c.RegisterJob(job=job) for job in jobs))


def _attempt(state: Snapshot, job: Job, seed: int = 1) -> Attempt:
    evaluation = Evaluation(id=f"eval-{job.id}", job_id=job.id, type=job.type, triggered_by="job-register")
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=seed)


def _reasons(attempt: Attempt) -> dict[str, int]:
    return dict(attempt.outcome.evaluation.failed_tg_allocs["web"].constraint_filtered)


def _on(attempt: Attempt) -> list[str]:
    return sorted(placement.node_id[-1] for placement in attempt.plan.placements)


def test_an_allocation_goes_where_the_plugin_is_and_is_well() -> None:
    job = _job()
    nodes = [_node(1, csi_node_plugins={}), _node(2, healthy=False), _node(3)]
    assert _on(_attempt(_state(nodes, _volume(), jobs=[job]), job)) == ["3"]
    sick = _attempt(_state(nodes[:2], _volume(), jobs=[job]), job)
    assert _reasons(sick) == {"CSI plugin ebs is missing": 1, "CSI plugin ebs is unhealthy": 1}
    assert sick.outcome.created[0].escaped_computed_class


def test_a_volume_that_nobody_registered_is_waited_for() -> None:
    job = _job()
    made = _attempt(_state([_node(1)], jobs=[job]), job)
    assert _reasons(made) == {"missing CSI Volume data": 1}
    (blocked,) = made.outcome.created
    assert blocked.missing_non_node_resources == ("data",)
    waiting = BlockedEvals()
    assert not waiting.block(blocked)
    waiting.unblock_missing("other", index=9)
    assert waiting.take_unblocked(9) == ()
    waiting.unblock_missing("data", index=9)
    assert waiting.take_unblocked(9) == (blocked,)
    assert waiting.block(blocked), "what was registered after its snapshot is not missed"


@pytest.mark.parametrize(
    ("volume", "mode", "read_only", "reason"),
    [
        (_volume(), WRITER, False, ""),
        (_volume(modes=(READERS,)), READERS, True, ""),
        (_volume(modes=(READERS,)), READERS, False, "CSI volume data is unschedulable or is read-only"),
        (_volume(modes=(READERS,)), WRITER, False, "CSI volume data does not offer single-node-writer"),
        (_volume(modes=(READERS, WRITER)), WRITER, False, ""),
    ],
)
def test_the_access_mode_decides_who_may_use_it(volume: CSIVolume, mode: str, read_only: bool, reason: str) -> None:
    job = _job(access_mode=mode, read_only=read_only)
    made = _attempt(_state([_node(1)], volume, jobs=[job]), job)
    assert (not made.plan.placements) is bool(reason)
    assert not reason or [text for text in _reasons(made) if text.startswith(reason)]


def test_a_writer_of_another_job_keeps_others_out_until_it_ends_and_its_own_job_may_replace_it() -> None:
    first, second = _job("first"), _job("second")
    state = _state([_node(1), _node(2)], _volume(), jobs=[first, second])
    state = _with(state, c.ApplyPlan(plan=_attempt(state, first).plan))
    refused = _attempt(state, second)
    assert _reasons(refused) == {"CSI volume data has exhausted its available writer claims": 2}
    (group,) = explain.why_not(state, second, now=factories.NOW, seed=1).groups
    assert group.blockers[0].text == "CSI volume data has exhausted its available writer claims"
    assert group.smallest_change is None
    newer = replace(first, task_groups=(replace(first.task_groups[0], meta={"v": "2"}),))
    updated = _with(state, c.RegisterJob(job=newer))
    assert len(_attempt(updated, newer).plan.placements) == 1
    (alloc,) = state.allocs.values()
    ended = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete")
    assert _attempt(_with(state, c.UpdateAllocsFromClient(updates=(ended,))), second).plan.placements


def test_all_users_of_a_volume_use_it_in_one_mode() -> None:
    jobs = [_job("writer", access_mode=SINGLE), _job("reader", access_mode=SINGLE, read_only=True), _job("other")]
    state = _state([_node(1), _node(2)], _volume(modes=(SINGLE, WRITER)), jobs=jobs)
    for job in jobs[:2]:
        state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    assert _reasons(_attempt(state, jobs[2])) == {f"CSI volume data is used as {SINGLE} by job reader": 2}


def test_a_plugin_that_needs_a_controller_waits_for_a_healthy_one() -> None:
    job = _job()
    needy = _node(1, csi_node_plugins={EBS: CSIInfo(plugin_id=EBS, healthy=True, requires_controller_plugin=True)})
    made = _attempt(_state([needy], _volume(), jobs=[job]), job)
    assert _reasons(made) == {"CSI volume data is unschedulable: no controller of CSI plugin ebs is healthy": 1}
    controller = _node(2, csi_node_plugins={}, csi_controller_plugins={EBS: CSIInfo(plugin_id=EBS, healthy=True)})
    assert _on(_attempt(_state([needy, controller], _volume(), jobs=[job]), job)) == ["1"]


def test_two_plans_that_were_made_side_by_side_do_not_both_get_the_writer() -> None:
    first, second = _job("first"), _job("second")
    state = _state([_node(1), _node(2)], _volume(), jobs=[first, second])
    plans = [_attempt(state, job).plan for job in (first, second)]
    state = _with(state, c.ApplyPlan(plan=plans[0]))
    late = apply(state, c.ApplyPlan(plan=plans[1]), index=state.index + 1)
    assert isinstance(late.result, c.Rejected) and late.result.kind == "conflict"
    first, second = _job("first", access_mode=WRITERS), _job("second", access_mode=WRITERS)
    shared = _state([_node(1), _node(2)], _volume(modes=(WRITERS,)), jobs=[first, second])
    for job in (first, second):
        shared = _with(shared, c.ApplyPlan(plan=_attempt(shared, job).plan))
    assert len(shared.allocs) == 2


def test_a_node_takes_no_more_volumes_of_a_plugin_than_it_can_and_each_allocation_has_its_own() -> None:
    job = _job(count=5, per_alloc=True)
    volumes = [_volume(f"data[{number}]") for number in range(5)]
    made = _attempt(_state([_node(1, limit=2), _node(2, limit=2)], *volumes, jobs=[job]), job)
    assert _on(made) == ["1", "1", "2", "2"]
    assert _reasons(made) == {"CSI plugin ebs has the maximum number of volumes": 2}
    fewer = _attempt(_state([_node(1)], *volumes[:3], jobs=[job]), job)
    assert len(fewer.plan.placements) == 3 and _reasons(fewer) == {"missing CSI Volume data[3]": 1}


def test_a_volume_is_used_within_its_topology() -> None:
    job = _job()
    volume = _volume(topologies=tuple(CSITopology(segments={"zone": zone}) for zone in "bc"))
    nodes = [_node(1, zone="a"), _node(2, zone="c"), _node(3)]
    assert _on(_attempt(_state(nodes, volume, jobs=[job]), job)) == ["2"]
    outside = _attempt(_state([nodes[0], nodes[2]], volume, jobs=[job]), job)
    assert _reasons(outside) == {"did not meet topology requirement": 2}


def test_a_host_volume_for_each_allocation_puts_each_where_its_own_is() -> None:
    job = _job(count=3, type="host", per_alloc=True)
    nodes = [_node(n, host_volumes={f"data[{n}]": HostVolumeInfo(path="/d")}) for n in range(2)]
    made = _attempt(_state(nodes, jobs=[job]), job)
    assert {(p.name[-2], p.node_id[-1]) for p in made.plan.placements} == {("0", "0"), ("1", "1")}
    assert _reasons(made) == {'missing host volume "data[2]"': 2}


def test_a_system_job_skips_nodes_without_its_volume() -> None:
    job = replace(_job(read_only=True), type="system")
    nodes = [_node(1), _node(2, csi_node_plugins={})]
    made = _attempt(_state(nodes, _volume(), jobs=[job]), job)
    assert _on(made) == ["1"] and not made.outcome.created


def test_volumes_are_registered_and_forgotten_unless_they_are_used() -> None:
    job = _job()
    state = _state([_node(1)], _volume(), jobs=[job])
    used = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    gone = c.DeleteVolumes(keys=(("default", "data"),))
    refused = apply(used, gone, index=used.index + 1).result
    assert isinstance(refused, c.Rejected) and refused.message.startswith("volume in use: data, by allocations ")
    assert not len(_with(state, gone).csi_volumes)
    assert not len(_with(used, replace(gone, is_forced=True)).csi_volumes)
    moved = apply(used, c.UpsertVolumes(volumes=(_volume(external_id="other"),)), index=used.index + 1).result
    assert isinstance(moved, c.Rejected) and moved.message == "volume in use: data; its external_id cannot change"
    for volume in (CSIVolume(id="", plugin_id="p"), CSIVolume(id="a", plugin_id="p", namespace="no")):
        assert isinstance(apply(state, c.UpsertVolumes(volumes=(volume,)), index=99).result, c.Rejected)


PURGED: Sequence[c.AnyCommand] = (c.DeregisterJob(namespace="default", job_id="old", purge=True),)
WITHOUT_VOLUME: Sequence[c.AnyCommand] = (c.RegisterJob(job=factories.job("old")),)


@pytest.mark.parametrize("changes", [PURGED, WITHOUT_VOLUME], ids=["purged", "without a volume now"])
def test_an_allocation_keeps_its_volume_until_it_ends_whatever_becomes_of_its_job(
    changes: Sequence[c.AnyCommand],
) -> None:
    # given an allocation that writes to a volume, and a plan of another job that was made before it
    old, new = _job("old"), _job("new")
    both = _state([_node(1), _node(2)], _volume(), jobs=[old, new])
    early = c.ApplyPlan(plan=_attempt(both, new).plan, rules_version=CSI_CLAIM_RULES)
    gone = c.DeleteVolumes(keys=(("default", "data"),), rules_version=CSI_CLAIM_RULES)
    used = _with(both, c.ApplyPlan(plan=_attempt(both, old).plan), *changes)
    index = used.index + 1
    # then nobody else gets the volume, neither by a new plan nor by that one, and it stays registered
    assert [claim.job_id for claim in claims(used, "default")["data"]] == ["old"]
    assert not _attempt(used, new).plan.placements
    assert isinstance(apply(used, early, index=index).result, c.Rejected)
    assert isinstance(apply(used, gone, index=index).result, c.Rejected)
    # and entries of earlier rules are applied as they were
    assert isinstance(apply(used, replace(early, rules_version=CSI_CLAIM_RULES - 1), index=index).result, c.Applied)
    assert isinstance(apply(used, replace(gone, rules_version=CSI_CLAIM_RULES - 1), index=index).result, c.Applied)
    # and once it has ended the volume is free
    (held,) = used.allocs_of_job("default", "old")
    ended = c.AllocUpdate(id=held.id, node_id=held.node_id, client_status="complete")
    free = _with(used, c.UpdateAllocsFromClient(updates=(ended,)))
    assert _on(_attempt(free, new))


def test_the_modes_of_all_claims_on_a_volume_count() -> None:
    # given a job whose allocations of a new version, with another mode, wait for one of the old version
    old, new = _job(), _job(access_mode=WRITERS, count=2)
    state = _state([_node(1), _node(2)], _volume(modes=(WRITER, WRITERS)), jobs=[old])
    state = _with(state, c.ApplyPlan(plan=_attempt(state, old).plan), c.RegisterJob(job=new))
    plan = _attempt(state, new, seed=2).plan
    assert (len(plan.placements), len(plan.stops)) == (2, 1)
    state = _with(state, c.ApplyPlan(plan=plan))
    # then no other job gets the volume in either mode
    for mode in (WRITER, WRITERS):
        other = _job("other", access_mode=mode)
        asked = _with(state, c.RegisterJob(job=other))
        assert not _attempt(asked, other).plan.placements
