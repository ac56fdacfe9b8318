"""CSI volumes and plugins over HTTP: registered, listed, read, forgotten, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.value import replace
from yurt.structs.node import CSIControllerInfo, CSIInfo, CSINodeInfo
from yurt.structs.rpc import RegisterNodeRequest
from yurt.structs.task import TaskCSIPluginConfig
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories
from yurt.testing.fakes import eventually
from yurt.testing.http_api import NODE_ID, Api

FIELDS: dict[str, list[str]] = json.loads((Path(__file__).parent.parent / "api" / "api_fields.json").read_text())
WAY = {"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}
VOLUME = {
    "ID": "data", "ExternalID": "vol-1", "PluginID": "ebs", "RequestedCapabilities": [WAY],
    "Secrets": {"key": "s3cret"}, "Parameters": {"tier": "fast"},
    "RequestedTopologies": {"Required": [{"Segments": {"zone": "a"}}]},
}  # fmt: skip
ASKED = VolumeRequest(
    name="data", type="csi", source="data", access_mode=WAY["AccessMode"], attachment_mode=WAY["AttachmentMode"]
)


@pytest.fixture
async def api(api_with_node: Api) -> Api:
    """A server whose one node has the plugin ebs, healthy as node and controller."""
    server = api_with_node.server
    info = CSIInfo(plugin_id="ebs", healthy=True, provider="ebs.example", provider_version="1.2")
    node = replace(
        server.state.nodes[NODE_ID],
        csi_node_plugins={"ebs": replace(info, node_info=CSINodeInfo(id="n1", max_volumes=5))},
        csi_controller_plugins={"ebs": replace(info, controller_info=CSIControllerInfo(supports_list_volumes=True))},
    )
    await server.clients.calls.register_node(RegisterNodeRequest(node=node))
    await server.clients.calls.heartbeat(NODE_ID, "ready")
    return api_with_node


async def test_a_volume_is_registered_listed_read_and_forgotten(api: Api) -> None:
    done = await api.put("/v1/volume/csi/data", {"Volumes": [VOLUME]})
    assert (done.status, done.json) == (200, {})
    (stub,) = (await api.get("/v1/volumes?type=csi")).json
    assert (stub["Schedulable"], stub["Provider"], stub["NodesHealthy"], stub["CurrentWriters"]) == (
        True, "ebs.example", 1, 0,
    )  # fmt: skip
    for query, count in (("plugin_id=ebs", 1), ("plugin_id=nfs", 0), ("prefix=da", 1), (f"node_id={NODE_ID}", 0),
                         ("namespace=ops", 0), ("namespace=*", 1)):  # fmt: skip
        assert len((await api.get(f"/v1/volumes?type=csi&{query}")).json) == count, query
    found = (await api.get("/v1/volume/csi/data")).json
    assert (sorted(stub), sorted(found)) == (FIELDS["CSIVolumeListStub"], FIELDS["CSIVolume"])
    assert found["Secrets"] == {"key": "[REDACTED]"}
    assert found["RequestedTopologies"]["Required"] == [{"Segments": {"zone": "a"}}]
    assert (found["Name"], found["Allocations"], found["ProviderVersion"], found["AccessMode"]) == (
        "data",
        [],
        "1.2",
        "",
    )
    assert (await api.call("DELETE", f"/v1/volume/csi/data/detach?node={NODE_ID}")).status == 200
    assert (await api.call("DELETE", "/v1/volume/csi/data/detach?node=x")).text == "Unknown node x"
    assert (await api.call("DELETE", "/v1/volume/csi/data")).status == 200
    assert (await api.get("/v1/volumes?type=csi")).json == []


async def test_a_list_of_volumes_has_the_index_0_until_there_was_one(api: Api) -> None:
    assert (await api.get("/v1/volumes?type=csi")).index == 0
    assert (await api.put("/v1/volumes", {"Volumes": [VOLUME]})).status == 200
    assert (await api.get("/v1/volumes?type=csi")).index == api.server.state.index


async def test_events_tell_of_volumes_without_their_secrets(api: Api) -> None:
    await api.put("/v1/volumes", {"Volumes": [VOLUME]})
    await api.call("DELETE", "/v1/volume/csi/data")
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(60), api.client.get("/v1/event/stream?topic=CSIVolume:data") as response:
        async for line in response.content:
            events += json.loads(line).get("Events") or ()
            if len(events) == 2:
                break
    assert [event["Type"] for event in events] == ["CSIVolumeRegistered", "CSIVolumeDeregistered"]
    assert events[0]["Payload"]["Volume"]["Secrets"] == {"key": "[REDACTED]"}


async def test_volumes_and_plugins_are_found_by_the_beginning_of_their_ids(api: Api) -> None:
    await api.put("/v1/volumes", {"Volumes": [VOLUME]})
    found = await api.put("/v1/search", {"Prefix": "da", "Context": "volumes"})
    assert found.json["Matches"] == {"volumes": ["data"]}
    found = await api.put("/v1/search", {"Prefix": "e", "Context": "plugins"})
    assert found.json["Matches"] == {"plugins": ["ebs"]}


async def test_who_uses_a_volume_is_shown_and_keeps_it(api: Api) -> None:
    await api.put("/v1/volumes", {"Volumes": [VOLUME]})
    group = replace(factories.group(), volumes={"data": ASKED})
    await api.server.resources.jobs.register(factories.job(task_groups=(group,)))
    await eventually(lambda: len(api.server.state.allocs) == 1)
    (alloc,) = api.server.state.allocs.values()
    found = (await api.get("/v1/volume/csi/data")).json
    assert (found["WriteAllocs"], found["ReadAllocs"]) == ({alloc.id: None}, {})
    assert (found["AccessMode"], found["AttachmentMode"]) == ("single-node-writer", "file-system")
    assert [stub["ID"] for stub in found["Allocations"]] == [alloc.id]
    assert len((await api.get(f"/v1/volumes?type=csi&node_id={NODE_ID}")).json) == 1
    refused = await api.call("DELETE", "/v1/volume/csi/data")
    assert (refused.status, refused.text.startswith("volume in use")) == (500, True)
    held = await api.call("DELETE", f"/v1/volume/csi/data/detach?node={NODE_ID}")
    assert (held.status, alloc.id in held.text) == (500, True)
    moved = await api.put("/v1/volume/csi/data", {"Volumes": [{**VOLUME, "ExternalID": "vol-2"}]})
    assert (moved.status, "external_id cannot change" in moved.text) == (500, True)
    assert (await api.call("DELETE", "/v1/volume/csi/data?force=true")).status == 200


async def test_a_plugin_is_shown_with_those_who_run_it(api: Api) -> None:
    plain = factories.group()
    task = replace(plain.tasks[0], csi_plugin_config=TaskCSIPluginConfig(id="nfs", type="monolith"))
    group = replace(plain, tasks=(task,), count=2)
    await api.server.resources.jobs.register(factories.job("plugin", task_groups=(group,)))
    ebs, nfs = (await api.get("/v1/plugins?type=csi")).json
    assert (ebs["ID"], ebs["NodesHealthy"], ebs["ControllersHealthy"]) == ("ebs", 1, 1)
    assert (nfs["ID"], nfs["NodesExpected"], nfs["ControllersExpected"], nfs["NodesHealthy"]) == ("nfs", 2, 2, 0)
    found: dict[str, Any] = (await api.get("/v1/plugin/csi/ebs")).json
    assert (sorted(ebs), sorted(found)) == (FIELDS["CSIPluginListStub"], FIELDS["CSIPlugin"])
    assert found["Nodes"][NODE_ID]["NodeInfo"]["MaxVolumes"] == 5
    assert found["Controllers"][NODE_ID]["ControllerInfo"]["SupportsListVolumes"] is True
    await eventually(lambda: len(api.server.state.allocs) == 2)
    assert len((await api.get("/v1/plugin/csi/nfs")).json["Allocations"]) == 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"PluginID": "nfs"}, 'no CSI plugin "nfs" is known'),
        ({"ID": "a b"}, 'id "a b" must be'),
        ({"ExternalID": ""}, "missing external_id"),
        ({"RequestedCapabilities": []}, "at least one capability"),
        ({"RequestedCapabilities": [{"AccessMode": "both"}]}, 'access_mode "both" must be one of single-node-reader'),
        ({"RequestedCapacityMin": 5, "RequestedCapacityMax": 4}, "capacity_max (4) must be larger"),
        ({"Namespace": "ops"}, 'namespace "ops" not found'),
    ],
)
async def test_what_cannot_be_registered_is_told(api: Api, changes: dict[str, Any], text: str) -> None:
    answer = await api.put("/v1/volumes", {"Volumes": [{**VOLUME, **changes}]})
    assert (answer.status, text in answer.text) == (500, True), answer.text


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/v1/volume/csi/none", 404, "volume not found"),
        ("DELETE", "/v1/volume/csi/none", 500, "volume not found"),
        ("DELETE", "/v1/volume/csi/none?force=maybe", 400, "force"),
        ("DELETE", "/v1/volume/csi/none/detach", 400, "detach requires node ID"),
        ("DELETE", f"/v1/volume/csi/none/detach?node={NODE_ID}", 500, "volume not found"),
        ("GET", "/v1/plugin/csi/none", 404, "plugin not found"),
        ("GET", "/v1/plugins?type=tape", 404, "resource not found"),
        ("GET", "/v1/volumes/external", 501, "not available in this version"),
    ],
)
async def test_what_is_not_there_is_told(api: Api, method: str, path: str, status: int, text: str) -> None:
    answer = await api.call(method, path)
    assert (answer.status, text in answer.text) == (status, True), answer.text


async def test_the_body_has_the_volume_of_the_path(api: Api) -> None:
    answer = await api.put("/v1/volume/csi/other", {"Volumes": [VOLUME]})
    assert (answer.status, "the id" in answer.text) == (400, True)
