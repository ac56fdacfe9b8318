"""Files of volumes: HCL and JSON say the same, sizes have units, and mistakes are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from yurt.cli.commands.volume.examples import EXAMPLES
from yurt.cli.commands.volume.specification import parse_size, read_spec
from yurt.cli.errors import CliError
from yurt.structs.volumes.csi import CSIVolume


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_examples_in_hcl_and_json_say_the_same(tmp_path: Path, kind: str) -> None:
    hcl, json = EXAMPLES[kind]
    spec = read_spec(written(tmp_path, "v.hcl", hcl))
    assert spec == read_spec(written(tmp_path, "v.json", json))
    assert spec.kind == kind


def test_the_example_of_a_host_volume_has_the_names_of_the_api(tmp_path: Path) -> None:
    spec = read_spec(written(tmp_path, "v.hcl", EXAMPLES["host"][0])).fields
    assert (spec["Name"], spec["RequestedCapacityMinBytes"]) == ("example", 10 * 1024 * 1024)
    assert spec["Constraints"] == [{"LTarget": "${attr.kernel.name}", "Operand": "=", "RTarget": "linux"}]
    assert spec["RequestedCapabilities"] == [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]


def test_the_example_of_a_csi_volume_has_the_names_of_the_api(tmp_path: Path) -> None:
    spec = read_spec(written(tmp_path, "v.hcl", EXAMPLES["csi"][0])).fields
    assert (spec["ID"], spec["ExternalID"], spec["PluginID"]) == ("ebs_prod_db1", "vol-23452345", "ebs-prod")
    assert spec["MountOptions"] == {"FSType": "ext4", "MountFlags": ["noatime"]}
    assert spec["RequestedTopologies"] == {"Required": [{"Segments": {"rack": "R1"}}]}
    assert spec["Context"] == {"endpoint": "http://192.168.1.101:9425"}
    assert spec.keys() <= set(CSIVolume.__struct_encode_fields__)


@pytest.mark.parametrize(
    ("given", "size"),
    [(5, 5), ("7", 7), ("1KiB", 1024), ("1kb", 1000), ("1.5 GiB", 1610612736), ("2G", 2_000_000_000), ("3b", 3)],
)
def test_sizes_have_units(given: object, size: int) -> None:
    assert parse_size("v.hcl", "capacity", given) == size


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('name = "x"\nnode_id = "y"', 'unknown key "node_id"'),
        ('type = "csi"\nmount_options {\n  fstype = "x"\n}', 'unknown key "fstype".*fs_type'),
        ("topology_request {\n  required {\n    topologie {}\n  }\n}", 'unknown key "topologie".*topology'),
        ('type = "tape"', 'unknown volume type "tape"'),
        ('type = "host"\nnam = "x"', 'unknown key "nam".*name'),
        ('type = "host"\ncapability {\n  acces_mode = "x"\n}', 'unknown key "acces_mode".*access_mode'),
        ('type = "host"\ncapacity_min = "much"', '"much" is not a valid size'),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(CliError, match=error):
        read_spec(written(tmp_path, "v.hcl", text))


@pytest.mark.parametrize(("kind", "path"), [("host", "/v1/volume/host/v1/delete"), ("csi", "/v1/volume/csi/v1/delete")])
def test_a_volume_is_deleted_whatever_its_type(api: Any, run: Any, kind: str, path: str) -> None:
    stub = {"ID": "v1", "Name": "data", "Namespace": "default"}
    api.answers["/v1/volumes"] = lambda query: [stub] if f"type={kind}" in query else []
    api.answers[path] = {}

    assert run("volume", "delete", "data") == (0, 'Successfully deleted volume "v1"!\n', "")
    assert api.asked[-1][:2] == ("DELETE", f"{path}?namespace=default")

    api.answers["/v1/volumes"] = []
    assert run("volume", "delete", "data")[2].startswith('No volume(s) with prefix or ID "data" found\n')


def test_the_beginning_of_an_id_deletes_no_csi_volume_unless_its_type_is_given(api: Any, run: Any) -> None:
    stub = {"ID": "data-prod", "Name": "data-prod", "Namespace": "default"}
    api.answers["/v1/volumes"] = lambda query: [stub] if "type=csi" in query else []
    api.answers["/v1/volume/csi/data-prod/delete"] = {}

    code, _, error = run("volume", "delete", "data")
    assert code == 1 and "give its whole ID" in error and all(method == "GET" for method, *_ in api.asked)
    assert run("volume", "delete", "-type=csi", "data")[0] == 0
