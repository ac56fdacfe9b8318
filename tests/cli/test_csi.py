"""Texts of `yurt volume` about CSI volumes, and of `yurt plugin status`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yurt.cli.commands.volume.examples import EXAMPLES

STUB = {
    "ID": "data", "Name": "database", "Namespace": "default", "PluginID": "ebs", "Schedulable": True, "AccessMode": "",
    "Provider": "ebs.example", "ControllersHealthy": 0, "ControllersExpected": 0, "NodesHealthy": 2,
    "NodesExpected": 3,
}  # fmt: skip
VOLUME = {
    **STUB, "ExternalID": "vol-1", "ProviderVersion": "1.2", "Capacity": 1 << 30, "AttachmentMode": "",
    "MountOptions": {"FSType": "ext4", "MountFlags": ["noatime"]}, "Allocations": [],
    "RequestedCapabilities": [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}],
    "Topologies": [{"Segments": {"zone": "a"}}],
}  # fmt: skip
PLUGIN = {
    "ID": "ebs", "Provider": "ebs.example", "Version": "1.2", "ControllersHealthy": 1, "ControllersExpected": 1,
    "NodesHealthy": 0, "NodesExpected": 1, "Allocations": [],
    "Controllers": {"n1": {"Healthy": True, "ControllerInfo": {"SupportsCreateDelete": True}}},
    "Nodes": {"n2": {"Healthy": False, "HealthDescription": "no answer", "NodeInfo": {"SupportsStats": False}}},
}  # fmt: skip


def _volumes(query: str) -> list[dict[str, Any]]:
    return [STUB] if "type=csi" in query else []


def test_both_types_of_volumes_are_listed(api: Any, run: Any) -> None:
    api.answers["/v1/volumes"] = _volumes
    code, out, _ = run("volume", "status")
    assert code == 0 and "No dynamic host volumes" in out
    assert "data  database  default    ebs        true         <none>" in out


def test_a_csi_volume_is_found_by_its_name_and_shown(api: Any, run: Any) -> None:
    api.answers |= {"/v1/volumes": _volumes, "/v1/volume/csi/data": VOLUME}
    out = run("volume", "status", "database")[1]
    for line in (
        "External ID          = vol-1",
        "Capacity             = 1 GiB",
        "Mount Options        = fs_type: ext4 flags: noatime",
        "0         zone=a",
        "single-node-writer",
    ):
        assert line in out, out
    assert run("volume", "status", "-type=host", "data")[2].splitlines()[0].endswith('ID "data" found')


def test_a_csi_volume_is_registered_and_forgotten(api: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "v.hcl"
    path.write_text(EXAMPLES["csi"][0])
    api.answers |= {"/v1/volume/csi/ebs_prod_db1": {}, "/v1/volumes": _volumes, "/v1/volume/csi/data": b""}
    assert run("volume", "register", str(path)) == (0, 'Registered CSI volume "ebs_prod_db1"\n', "")
    (sent,) = api.asked[-1][3]["Volumes"]
    assert (sent["ID"], sent["PluginID"], "Type" in sent) == ("ebs_prod_db1", "ebs-prod", False)
    assert run("volume", "deregister", "-force", "data")[1] == 'Successfully deregistered volume "data"!\n'
    assert api.asked[-1][0] == "DELETE" and "force=true" in api.asked[-1][1]


def test_a_volume_is_detached_from_a_node(api: Any, run: Any) -> None:
    node_id = "11111111-2222-3333-4444-555555555555"
    api.answers |= {"/v1/volumes": _volumes, "/v1/nodes": [{"ID": node_id, "Name": "n"}]}
    api.answers |= {f"/v1/node/{node_id}": {"ID": node_id}, "/v1/volume/csi/data/detach": b""}
    assert run("volume", "detach", "data", "11111111")[1] == f'Volume "data" is detached from node {node_id}\n'
    assert f"node={node_id}" in api.asked[-1][1]


def test_what_controllers_would_make_is_refused_with_a_way_out(api: Any, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "v.hcl"
    path.write_text(EXAMPLES["csi"][0])
    code, _, said = run("volume", "create", str(path))
    assert code == 1 and "yurt volume register" in said


def test_an_example_is_of_a_csi_volume_unless_another_is_asked_for(run: Any, tmp_path: Path) -> None:
    for flags, text in (((), EXAMPLES["csi"][0]), (("-json", "-type=host"), EXAMPLES["host"][1])):
        path = tmp_path / f"v{len(flags)}"
        assert run("volume", "init", *flags, str(path))[0] == 0
        assert path.read_text() == text


def test_an_allocation_shows_its_volumes(api: Any, run: Any) -> None:
    alloc_id = "11111111-2222-3333-4444-555555555555"
    requests = {
        "v": {"Name": "v", "Type": "csi", "Source": "data", "PerAlloc": True, "ReadOnly": True},
        "gone": {"Name": "gone", "Type": "csi", "Source": "none", "MountOptions": {"FSType": "xfs"}},
        "h": {"Name": "h", "Type": "host", "Source": "srv"},
    }
    alloc = {
        "ID": alloc_id, "Name": "web.g[3]", "NodeID": "n", "JobID": "web", "Namespace": "default", "TaskGroup": "g",
        "ClientStatus": "complete", "DesiredStatus": "stop",
        "Job": {"TaskGroups": [{"Name": "g", "Volumes": requests}]},
    }  # fmt: skip
    api.answers |= {
        "/v1/allocations": [{"ID": alloc_id}], f"/v1/allocation/{alloc_id}": alloc, "/v1/volume/csi/data[3]": VOLUME,
        "/v1/volume/csi/data%5B3%5D": VOLUME,
    }  # fmt: skip
    out = run("alloc", "status", "11111111")[1]
    assert "srv  false" in out
    rows = [line.split("  ") for line in out.splitlines() if "  data[3]  " in line or "  none  " in line]
    shown = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert shown == [
        ["gone", "none", "<none>", "<none>", "false", "false", "fs_type: xfs"],
        ["v", "data[3]", "ebs", "ebs.example", "true", "true", "fs_type: ext4 flags: noatime"],
    ]


def test_plugins_are_listed_and_shown(api: Any, run: Any) -> None:
    api.answers |= {"/v1/plugins": [PLUGIN], "/v1/plugin/csi/ebs": PLUGIN}
    out = run("plugin", "status")[1]
    assert "ebs  ebs.example  1/1                           0/1" in out
    out = run("plugin", "status", "eb")[1]
    for line in ("Version              = 1.2", "create delete", "Node  n2       no answer", "No allocations placed"):
        assert line in out, out
    api.answers["/v1/plugins"] = []
    text = 'No plugin(s) with prefix or ID "x" found\n`yurt plugin status` lists them.\n'
    assert run("plugin", "status", "x")[2].endswith(text)
