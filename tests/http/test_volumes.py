"""Dynamic host volumes over HTTP: made, listed, read, deleted, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import replace
from yurt.structs.rpc import RegisterNodeRequest
from yurt.structs.volumes.host import HostVolume, HostVolumeMade
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, Api

CAPABILITY = {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}
ASKED = {"Name": "data", "PluginID": "mkdir", "RequestedCapabilities": [CAPABILITY], "Parameters": {"mode": "0755"}}


class VolumeNode:
    """A node that makes whatever it is asked for."""

    async def create_host_volume(self, volume: HostVolume) -> HostVolumeMade:
        return HostVolumeMade(path=f"/volumes/{volume.id}")

    async def register_host_volume(self, volume: HostVolume) -> HostVolumeMade:
        return HostVolumeMade(path=volume.host_path, capacity_bytes=volume.capacity_bytes)

    async def delete_host_volume(self, volume: HostVolume) -> None:
        return None


@pytest.fixture
async def volumes(api_with_node: Api) -> Api:
    """A server whose one node has the plugin mkdir."""
    server = api_with_node.server
    node = server.state.nodes[NODE_ID]
    able = replace(node, attributes={**node.attributes, "plugins.host_volume.mkdir.version": "1"})
    await server.clients.calls.register_node(RegisterNodeRequest(node=able))
    await server.clients.calls.heartbeat(NODE_ID, "ready")
    port: Any = VolumeNode()
    server.clients.node_ports.attach(NODE_ID, port)
    return api_with_node


async def test_a_volume_is_made_listed_read_and_deleted(volumes: Api) -> None:
    made = (await volumes.put("/v1/volume/host/create", {"Volume": ASKED})).json["Volume"]
    assert (made["NodeID"], made["State"], made["HostPath"]) == (NODE_ID, "pending", f"/volumes/{made['ID']}")
    (stub,) = (await volumes.get("/v1/volumes?type=host")).json
    assert stub == {key: made[key] for key in stub}
    assert "HostPath" not in stub
    digits = made["ID"].replace("-", "")
    for query, count in (
        ("prefix=da", 1), (f"prefix={digits}", 1), (f"prefix={digits[:10].upper()}", 1), (f"prefix={digits[:2]}-", 0),
        (f"node_id={NODE_ID}", 1), ("node_pool=gpu", 0), ("node_id=x", 0), ("namespace=ops", 0),
    ):  # fmt: skip
        assert len((await volumes.get(f"/v1/volumes?type=host&{query}")).json) == count, query
    found = (await volumes.get(f"/v1/volume/host/{made['ID']}")).json
    assert (found["Allocations"], found["Parameters"]) == ([], {"mode": "0755"})
    assert (await volumes.get(f"/v1/volume/host/{made['ID']}?namespace=ops")).json == found
    deleted = await volumes.call("DELETE", f"/v1/volume/host/{made['ID']}/delete")
    assert (deleted.status, deleted.json) == (200, {})
    assert (await volumes.get("/v1/volumes?type=host")).json == []


async def test_a_volume_is_deleted_by_the_path_of_nomads_go_package(volumes: Api) -> None:
    made = (await volumes.put("/v1/volume/host/create", {"Volume": ASKED})).json["Volume"]
    deleted = await volumes.call("DELETE", f"/v1/volume/host/{made['ID']}")
    assert (deleted.status, deleted.json) == (200, {})
    assert (await volumes.get("/v1/volumes?type=host")).json == []


@pytest.mark.parametrize(("given", "stored"), [(2_000_000, 2_000_000), (0, 1_000_000)])
async def test_a_volume_that_is_registered_again_gets_its_new_capacity(volumes: Api, given: int, stored: int) -> None:
    volume = {**ASKED, "NodeID": NODE_ID, "HostPath": "/srv/mine", "CapacityBytes": 1_000_000}
    made = (await volumes.put("/v1/volume/host/register", {"Volume": volume})).json["Volume"]
    again = await volumes.put("/v1/volume/host/register", {"Volume": {**made, "CapacityBytes": given}})
    assert (again.status, again.json["Volume"]["CapacityBytes"]) == (200, stored)


@pytest.mark.parametrize(("most", "status"), [(999_999, 500), (1_000_000, 200), (0, 200)])
async def test_a_volume_cannot_be_asked_to_be_smaller_than_it_is(volumes: Api, most: int, status: int) -> None:
    volume = {**ASKED, "NodeID": NODE_ID, "HostPath": "/srv/mine", "CapacityBytes": 1_000_000}
    volume |= {"RequestedCapacityMinBytes": 0, "RequestedCapacityMaxBytes": 0}
    made = (await volumes.put("/v1/volume/host/register", {"Volume": volume})).json["Volume"]
    bounds = {"CapacityBytes": 0, "RequestedCapacityMinBytes": 500, "RequestedCapacityMaxBytes": most}
    again = await volumes.put("/v1/volume/host/register", {"Volume": {**made, **bounds}})
    shown = (await volumes.get(f"/v1/volume/host/{made['ID']}")).json
    assert again.status == status, again.text
    assert status == 200 or again.text == "capacity_max (999999) must not be below the volume's capacity (1000000)"
    assert shown["CapacityBytes"] == 1_000_000
    assert shown["RequestedCapacityMaxBytes"] == (most if status == 200 else 0)


async def test_a_folder_is_registered(volumes: Api) -> None:
    # Clients that marshal every field send the state of a volume that has none yet.
    volume = {**ASKED, "NodeID": NODE_ID, "HostPath": "/srv/mine", "State": ""}
    made = (await volumes.put("/v1/volume/host/register", {"Volume": volume})).json["Volume"]
    assert (made["HostPath"], made["NodePool"]) == ("/srv/mine", "default")
    again = await volumes.put("/v1/volume/host/register", {"Volume": volume})
    assert (again.status, 'has a host volume "data" already' in again.text) == (500, True)


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/v1/volumes?type=tape", 404, "resource not found"),
        ("GET", f"/v1/volume/host/{UNKNOWN_ID}", 404, "volume not found"),
        ("DELETE", f"/v1/volume/host/{UNKNOWN_ID}/delete", 404, "volume not found"),
        ("DELETE", f"/v1/volume/host/{UNKNOWN_ID}/delete?force=maybe", 400, "force"),
        ("DELETE", f"/v1/volumes/claim/{UNKNOWN_ID}", 404, "host volume claim not found"),
    ],
)
async def test_what_is_not_there_is_told(volumes: Api, method: str, path: str, status: int, text: str) -> None:
    answer = await volumes.call(method, path)
    assert (answer.status, text in answer.text) == (status, True), answer.text


async def test_no_type_and_csi_are_empty_lists(volumes: Api) -> None:
    for path in ("/v1/volumes", "/v1/volumes?type=csi", "/v1/volumes/claims"):
        assert (await volumes.get(path)).json == []
