"""Dynamic host volumes of a running server: which node is chosen, what is refused, and what a failure leaves."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.errors import Conflict, Invalid, NotFound, Unavailable
from yurt.sdk.value import replace
from yurt.structs.commands import PutHostVolume
from yurt.structs.constraint import Constraint
from yurt.structs.node import HostVolumeInfo, Node
from yurt.structs.rpc import RegisterNodeRequest
from yurt.structs.volumes.host import HostVolume, HostVolumeCapability, HostVolumeMade

CAPABILITY = HostVolumeCapability(access_mode="single-node-writer", attachment_mode="file-system")
ASKED = HostVolume(name="data", plugin_id="mkdir", requested_capabilities=(CAPABILITY,))


class Port:
    """A node that makes volumes, or fails."""

    def __init__(self, bench: Any, node: Node) -> None:
        self.bench, self.node = bench, node
        self.error: Exception | None = None
        self.asked: list[str] = []
        self.reports = True

    async def create_host_volume(self, volume: HostVolume) -> HostVolumeMade:
        self._called("create")
        await self.offer({volume.name: HostVolumeInfo(path="/v", id=volume.id)})
        return HostVolumeMade(path="/v", capacity_bytes=9)

    async def delete_host_volume(self, volume: HostVolume) -> None:
        self._called("delete")
        await self.offer({})

    def _called(self, name: str) -> None:
        self.asked.append(name)
        if self.error is not None:
            raise self.error

    async def offer(self, volumes: dict[str, HostVolumeInfo]) -> None:
        if not self.reports:
            return
        node = replace(self.node, host_volumes=volumes, status="ready")
        await self.bench.server.clients.calls.register_node(RegisterNodeRequest(node=node))
        await self.bench.server.clients.calls.heartbeat(self.node.id, "ready")


async def add_node(bench: Any, *, plugin: str = "mkdir", **changes: Any) -> Port:
    node = await bench.add_node(attributes={f"plugins.host_volume.{plugin}.version": "1"}, **changes)
    port = Port(bench, node)
    bench.server.clients.node_ports.attach(node.id, port)
    return port


async def test_a_volume_goes_to_a_node_that_fits_and_the_emptiest(bench: Any) -> None:
    await add_node(bench, plugin="other")
    first, second = [await add_node(bench, meta={"rack": "a"}) for _ in range(2)]
    rule = Constraint(l_target="${meta.rack}", operand="=", r_target="a")
    made = [
        (await bench.server.resources.host_volumes.create(replace(ASKED, name=name, constraints=(rule,))))[0]
        for name in "ab"
    ]
    assert {volume.node_id for volume in made} == {first.node.id, second.node.id}
    stored = bench.server.state.host_volumes[made[0].id]
    assert (stored.state, stored.host_path, stored.capacity_bytes) == ("ready", "/v", 9)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": "a/b"}, 'name "a/b" must be'),
        ({"requested_capabilities": ()}, "at least one capability"),
        ({"requested_capabilities": (replace(CAPABILITY, attachment_mode="block-device"),)}, "block-device"),
        ({"requested_capabilities": (replace(CAPABILITY, access_mode="all"),)}, 'access_mode "all" must be one of'),
        ({"requested_capacity_min_bytes": 2, "requested_capacity_max_bytes": 1}, "must be larger than capacity_min"),
        ({"capacity_bytes": -1}, "must be 0 or more"),
        ({"plugin_id": ""}, "missing plugin_id"),
        ({"plugin_id": "zfs"}, r'no node can have the volume \(1: no host volume plugin "zfs"\)'),
        ({"node_pool": "gpu"}, 'not in node pool "gpu"'),
        ({"node_id": "none"}, "Unknown node none"),
        ({"namespace": "ops"}, 'nonexistent namespace "ops"'),
        ({"id": "unknown"}, "volume not found"),
    ],
)
async def test_what_no_node_can_have_is_refused_with_its_reason(
    bench: Any, changes: dict[str, Any], error: str
) -> None:
    port = await add_node(bench)
    with pytest.raises((Invalid, Conflict, NotFound), match=error):
        await bench.server.resources.host_volumes.create(replace(ASKED, **changes))
    assert (port.asked, len(bench.server.state.host_volumes)) == ([], 0)


async def test_a_node_that_fails_leaves_no_volume(bench: Any) -> None:
    port = await add_node(bench)
    port.error = Invalid("the disk is full")
    with pytest.raises(Invalid, match="the disk is full"):
        await bench.server.resources.host_volumes.create(ASKED)
    assert (port.asked, len(bench.server.state.host_volumes)) == (["create"], 0)


async def test_the_name_of_a_deleted_volume_is_free_before_its_node_reports_that(bench: Any) -> None:
    port = await add_node(bench)
    volumes = bench.server.resources.host_volumes
    first, _ = await volumes.create(ASKED)
    port.reports = False
    await volumes.delete("default", first.id)
    assert not bench.server.state.nodes[port.node.id].host_volumes
    second, _ = await volumes.create(ASKED)
    assert second.node_id == port.node.id and second.id != first.id


async def test_a_late_report_of_a_deleted_volume_leaves_its_name_free_but_is_the_last_choice(bench: Any) -> None:
    """The node's report from before the deletion is stored after it, so its row names a volume without a row."""
    port = await add_node(bench)
    volumes = bench.server.resources.host_volumes
    first, _ = await volumes.create(ASKED)
    await volumes.delete("default", first.id)
    await port.offer({"data": HostVolumeInfo(path="/v", id=first.id)})
    other = await add_node(bench)
    assert (await volumes.create(ASKED))[0].node_id == other.node.id
    assert (await volumes.create(ASKED))[0].node_id == port.node.id


async def test_a_node_that_reports_its_volume_while_it_deletes_it_makes_it_no_ready_one(bench: Any) -> None:
    port, volumes = await add_node(bench), bench.server.resources.host_volumes
    port.reports = False
    volume, _ = await volumes.create(ASKED)
    seen = list[tuple[str, str]]()

    async def delete(asked: HostVolume) -> None:
        port.reports = True
        await port.offer({"data": HostVolumeInfo(path="/v", id=volume.id)})
        seen.append((bench.server.state.host_volumes[volume.id].state, asked.state))
        with pytest.raises(Conflict, match="is being deleted"):
            await volumes.create(replace(ASKED, id=volume.id))
        if len(seen) == 1:
            raise Unavailable("No path to node")

    port.delete_host_volume = delete  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await volumes.delete("default", volume.id)
    assert bench.server.state.host_volumes[volume.id].state == "ready"
    await volumes.delete("default", volume.id)
    assert seen == [("deleting", "unavailable")] * 2 and not bench.server.state.host_volumes


@pytest.mark.parametrize("operation", ["create", "delete"])
async def test_a_request_that_fails_takes_back_nothing_of_another_one(bench: Any, operation: str) -> None:
    """Somebody changes the volume while its node is asked, and is promised that; then the node refuses."""
    port = await add_node(bench)
    volume, _ = await bench.server.resources.host_volumes.create(ASKED)
    changed = replace(volume, parameters={"owner": "other"})

    async def refuse(_: HostVolume) -> None:
        await bench.server.replica.propose(PutHostVolume(volume=changed))
        raise Unavailable("No path to node")

    setattr(port, f"{operation}_host_volume", refuse)
    volumes = bench.server.resources.host_volumes
    again = replace(ASKED, id=volume.id)
    with pytest.raises(Unavailable):
        await (volumes.create(again) if operation == "create" else volumes.delete("default", volume.id))
    assert bench.server.state.host_volumes[volume.id].parameters == {"owner": "other"}


async def test_a_failed_deletion_keeps_the_volume_unless_forced(bench: Any) -> None:
    port = await add_node(bench)
    volume, _ = await bench.server.resources.host_volumes.create(ASKED)
    port.error = Unavailable("No path to node")
    with pytest.raises(Unavailable):
        await bench.server.resources.host_volumes.delete("default", volume.id)
    assert bench.server.state.host_volumes[volume.id].state == "ready"
    await bench.server.resources.nodes.purge(port.node.id)
    assert bench.server.state.host_volumes[volume.id].state == "unavailable"
    await bench.server.resources.host_volumes.delete("default", volume.id, force=True)
    assert len(bench.server.state.host_volumes) == 0
    with pytest.raises(NotFound):
        await bench.server.resources.host_volumes.delete("default", volume.id)
