"""The claims of CSI volumes are found by volume, without the other allocations of the namespace."""

from __future__ import annotations

from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.state.claims import claims, claims_of_volume
from yurt.state.tables import SEVERAL_VOLUMES
from yurt.structs import commands as c
from yurt.structs.plan import Plan
from yurt.structs.volumes.csi import CSIVolume, CSIVolumeCapability
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories
from yurt.testing.cluster_models.attempts import applied

MODE, FILES = "multi-node-multi-writer", "file-system"
OWN, SHARED = "data[1]", "shared"


def _request(source: str, *, per_alloc: bool = False) -> VolumeRequest:
    return VolumeRequest(
        name=source, type="csi", source=source, per_alloc=per_alloc, access_mode=MODE, attachment_mode=FILES
    )


def _running() -> Snapshot:
    """Three allocations with a volume each, two with a shared one, one with both, one with none."""
    capability = CSIVolumeCapability(access_mode=MODE, attachment_mode=FILES)
    ids = (*(f"data[{index}]" for index in range(3)), SHARED)
    volumes = [CSIVolume(id=id, external_id=id, plugin_id="ebs", requested_capabilities=(capability,)) for id in ids]
    node = factories.node()
    state = applied(Snapshot.empty(), c.RegisterNode(node=node), c.UpsertVolumes(volumes=tuple(volumes)))
    own, shared = _request("data", per_alloc=True), _request(SHARED)
    groups = (
        factories.group("own", 3, volumes={"own": own}),
        factories.group("both", 2, volumes={"own": own, "shared": shared}),
        factories.group("shared", 2, volumes={"shared": shared}),
        factories.group("none", 1),
    )
    names = ("own[0]", "own[1]", "own[2]", "both[1]", "shared[0]", "shared[1]", "none[0]")
    state = applied(state, c.RegisterJob(job=factories.job("app", task_groups=groups)))
    job = state.jobs["default", "app"]
    placed = [
        replace(factories.placement(job, on=node), name=f"app.{name}", task_group=name.partition("[")[0])
        for name in names
    ]
    plan = Plan(eval_id="e", namespace="default", job_id="app", now=factories.NOW, placements=tuple(placed))
    return applied(state, c.ApplyPlan(plan=plan))


def test_the_claims_of_a_volume_are_those_among_all_claims_of_its_namespace() -> None:
    state = _running()
    all_claims = claims(state, "default")
    assert {volume: len(found) for volume, found in all_claims.items()} == {
        "data[0]": 1, OWN: 2, "data[2]": 1, SHARED: 3,
    }  # fmt: skip
    for volume in (*all_claims, "unknown"):
        assert claims_of_volume(state, "default", volume) == all_claims.get(volume, [])
    assert claims_of_volume(state, "other", OWN) == []


def test_an_allocation_is_indexed_by_its_volume_and_only_one_with_several_by_none() -> None:
    state = _running()
    counted = {
        volume: state.allocs.count_where("csi", ("default", volume)) for volume in (OWN, SHARED, SEVERAL_VOLUMES)
    }
    assert counted == {OWN: 1, SHARED: 2, SEVERAL_VOLUMES: 1}


def test_an_ended_allocation_leaves_the_index() -> None:
    state = _running()
    (alloc,) = state.allocs.where("csi", ("default", OWN))
    update = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete")
    state = applied(state, c.UpdateAllocsFromClient(updates=(update,), now=factories.NOW))
    assert not state.allocs.where("csi", ("default", OWN))
    assert len(claims_of_volume(state, "default", OWN)) == 1
