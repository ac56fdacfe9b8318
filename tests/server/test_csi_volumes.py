"""CSI volumes on the servers: who is given one, who waits, and who is woken."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied, Unavailable
from yurt.sdk.value import replace
from yurt.structs.commands import AllocUpdate
from yurt.structs.job import Job
from yurt.structs.node import CSIControllerInfo, CSIInfo, Node
from yurt.structs.rpc import RegisterNodeRequest, UpdateAllocsRequest
from yurt.structs.volumes.csi import CSIClaimQuery, CSIVolume, CSIVolumeCapability
from yurt.structs.volumes.request import CSIMountOptions, VolumeRequest
from yurt.testing import factories

EBS, WRITER, WRITERS, FILES = "ebs", "single-node-writer", "multi-node-multi-writer", "file-system"
VOLUME = CSIVolume(
    id="data",
    external_id="vol-1",
    plugin_id=EBS,
    requested_capabilities=(CSIVolumeCapability(access_mode=WRITER, attachment_mode=FILES),),
    secrets={"key": "s3cret"},
    context={"tier": "fast"},
    mount_options=CSIMountOptions(fs_type="ext4"),
)


def csi_job(name: str = "web", **request: Any) -> Job:
    """A job whose group asks for the volume under the name `v`."""
    asked = VolumeRequest(
        **{"name": "v", "type": "csi", "source": "data", "access_mode": WRITER, "attachment_mode": FILES, **request}
    )
    return factories.job(name, task_groups=(replace(factories.group(update=None), volumes={"v": asked}),))


def healthy(**changes: Any) -> dict[str, CSIInfo]:
    return {EBS: CSIInfo(plugin_id=EBS, healthy=True, **changes)}


async def claimed(bench: Any, alloc: Any, volume: str = "v", **changes: Any) -> Any:
    """What a node is told of an allocation's volume."""
    query = CSIClaimQuery(**{"node_id": alloc.node_id, "alloc_id": alloc.id, "volume": volume, **changes})
    return await bench.server.clients.calls.claim_csi_volume(query)


@pytest.fixture
async def node(bench: Any) -> Any:
    """A node with a healthy plugin, and the volume registered."""
    made = await bench.add_node(csi_node_plugins=healthy())
    await bench.server.resources.csi_volumes.register((VOLUME,))
    return made


async def placed(bench: Any, job: Job) -> Any:
    """The job's one allocation."""
    await bench.server.resources.jobs.register(job)
    await bench.until(lambda: len(bench.live(job.id)) == 1)
    return bench.live(job.id)[0]


async def test_a_node_is_told_all_that_the_plugin_needs(bench: Any, node: Node) -> None:
    found = await claimed(bench, await placed(bench, csi_job()))
    assert (found.id, found.external_id, found.plugin_id, found.access_mode) == ("data", "vol-1", EBS, WRITER)
    assert (found.secrets, found.context, found.mount_options) == (VOLUME.secrets, VOLUME.context, VOLUME.mount_options)


async def test_what_the_job_says_of_mounting_comes_first(bench: Any, node: Node) -> None:
    options = CSIMountOptions(mount_flags=("noatime",))
    found = await claimed(bench, await placed(bench, csi_job(mount_options=options, read_only=True)))
    assert (found.mount_options, found.read_only) == (options, True)


async def test_only_the_node_of_the_allocation_is_given_its_volume(bench: Any, node: Node) -> None:
    alloc = await placed(bench, csi_job())
    with pytest.raises(PermissionDenied):
        await claimed(bench, alloc, node_id=factories.new_id())
    with pytest.raises(NotFound, match="asks for no CSI volume 'w'"):
        await claimed(bench, alloc, volume="w")
    with pytest.raises(NotFound, match=r"allocation .* not found"):
        await claimed(bench, alloc, alloc_id=factories.new_id())
    await bench.report("complete")
    with pytest.raises(PermissionDenied):
        await claimed(bench, alloc)


async def test_a_successor_waits_until_its_predecessor_has_let_go(bench: Any, node: Node) -> None:
    old = await placed(bench, csi_job())
    await bench.report("running")
    changed = csi_job()
    task = replace(changed.task_groups[0].tasks[0], env={"v": "2"})
    await bench.server.resources.jobs.register(
        replace(changed, task_groups=(replace(changed.task_groups[0], tasks=(task,)),))
    )
    await bench.until(lambda: [alloc.id for alloc in bench.live()] not in ([], [old.id]))
    new = next(alloc for alloc in bench.live() if alloc.id != old.id)
    with pytest.raises(Unavailable, match=f"waited for until allocations {old.id[:8]} have let go"):
        await claimed(bench, new)
    assert (await claimed(bench, old)).id == "data"
    ended = AllocUpdate(id=old.id, node_id=old.node_id, client_status="complete")
    await bench.server.clients.calls.update_allocs(UpdateAllocsRequest(node_id=old.node_id, updates=(ended,)))
    assert (await claimed(bench, new)).id == "data"


async def test_a_plugin_that_attaches_volumes_is_refused(bench: Any, node: Node) -> None:
    info = healthy(requires_controller_plugin=True, controller_info=CSIControllerInfo(supports_attach_detach=True))
    await bench.add_node(id=factories.new_id(), csi_controller_plugins=info)
    alloc = await placed(bench, csi_job())
    with pytest.raises(Invalid, match="attaches volumes to nodes by its controller"):
        await claimed(bench, alloc)


async def test_a_job_that_waits_for_its_plugin_is_woken_when_it_is_healthy(bench: Any) -> None:
    known = await bench.add_node(csi_node_plugins=healthy())
    await bench.server.resources.csi_volumes.register((VOLUME,))
    sick = {EBS: replace(healthy()[EBS], healthy=False)}
    await bench.server.clients.calls.register_node(RegisterNodeRequest(node=replace(known, csi_node_plugins=sick)))
    await bench.server.clients.calls.heartbeat(known.id, "ready")
    await bench.server.resources.jobs.register(csi_job())
    await bench.until(lambda: ("queued-allocs", "blocked") in bench.evals())
    await bench.server.clients.calls.register_node(RegisterNodeRequest(node=replace(known, status="ready")))
    await bench.until(bench.live)


async def test_a_job_that_waits_for_a_writer_on_another_kind_of_node_is_woken_by_its_end(
    bench: Any, node: Node
) -> None:
    await bench.add_node(id=factories.new_id(), csi_node_plugins=healthy(), node_class="other")
    first = await placed(bench, csi_job("first"))
    await bench.server.resources.jobs.register(csi_job("second"))
    await bench.until(lambda: ("queued-allocs", "blocked") in bench.evals("second"))
    ended = AllocUpdate(id=first.id, node_id=first.node_id, client_status="complete")
    await bench.server.resources.jobs.deregister("default", "first")
    await bench.server.clients.calls.update_allocs(UpdateAllocsRequest(node_id=first.node_id, updates=(ended,)))
    await bench.until(lambda: bench.live("second"))


async def test_the_allocations_of_a_new_access_mode_all_wait_for_those_of_the_old_one(bench: Any, node: Node) -> None:
    both = tuple(CSIVolumeCapability(access_mode=mode, attachment_mode=FILES) for mode in (WRITER, WRITERS))
    await bench.server.resources.csi_volumes.register((replace(VOLUME, requested_capabilities=both),))
    old = await placed(bench, csi_job())
    await bench.report("running")
    changed = csi_job(access_mode=WRITERS)
    await bench.server.resources.jobs.register(
        replace(changed, task_groups=(replace(changed.task_groups[0], count=3),))
    )
    await bench.until(lambda: len([alloc for alloc in bench.live() if alloc.id != old.id]) == 3)
    for new in (alloc for alloc in bench.live() if alloc.id != old.id):
        with pytest.raises(Unavailable, match=f"used as {WRITER} by job web"):
            await claimed(bench, new)
