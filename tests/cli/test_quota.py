"""`yurt quota`, and what `yurt namespace` shows of a quota."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from yurt.api.decode import decode_value
from yurt.cli.commands.quota import EXAMPLE_HCL, EXAMPLE_JSON
from yurt.cli.errors import CliError
from yurt.cli.files.quotafile import read_quota
from yurt.http.resources.quotas import normalised
from yurt.rules.validation.quota import quota_problems
from yurt.structs.quota import QuotaSpec

HASH = base64.b64encode(b"h" * 32).decode()
SPEC = {
    "Name": "team", "Description": "Ours",
    "Limits": [{"Region": "global", "Hash": HASH, "VariablesLimit": None, "RegionLimit": {
        "CPU": 2500, "Cores": None, "MemoryMB": 1000, "MemoryMaxMB": -1, "SecretsMB": 0, "NUMA": None,
        "Devices": [{"Name": "nvidia/gpu", "Count": 2}], "Storage": {"VariablesMB": 10, "HostVolumesMB": 0},
        "NodePools": [{"NodePool": "gpu", "CPU": 100, "Devices": None}],
    }}, {"Region": "far", "Hash": HASH, "RegionLimit": None}],
}  # fmt: skip
USAGE = {
    "Name": "team", "Namespaces": ["a", "b"],
    "Used": {HASH: {"Region": "global", "Hash": HASH, "RegionLimit": {
        "CPU": 500, "Cores": 1, "MemoryMB": 300, "MemoryMaxMB": 300, "SecretsMB": 0,
        "Devices": [{"Name": "nvidia/gpu", "Count": 1}], "Storage": {"VariablesMB": 1, "HostVolumesMB": 7},
        "NodePools": [{"NodePool": "gpu", "CPU": 40}],
    }}},
}  # fmt: skip


def usage_of_region(query: str) -> Any:
    return USAGE if "region=global" in query else (500, "No path to region")


@pytest.fixture
def with_quota(api: Any) -> Any:
    api.answers |= {"/v1/quota/team": SPEC, "/v1/quotas": [SPEC], "/v1/quota/usage/team": usage_of_region}
    return api


def rows(out: str, title: str) -> list[list[str]]:
    """The cells of the table below a title."""
    lines = out.split(f"\n{title}\n")[1].split("\n\n", maxsplit=1)[0].splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def test_the_status_shows_what_is_used_of_each_limit(with_quota: Any, run: Any) -> None:
    code, out, _ = run("quota", "status", "team")
    assert code == 0
    assert [line.split() for line in out.splitlines()[:4]] == [
        ["Name", "=", "team"], ["Description", "=", "Ours"], ["Limits", "=", "2"], ["Namespaces", "=", "a,", "b"],
    ]  # fmt: skip
    assert rows(out, "Quota Limits") == [
        ["Region", "CPU Usage", "Core Usage", "Memory Usage", "Memory Max Usage", "Secrets Usage", "Variables Usage",
         "Host Volumes Usage"],
        ["far", "- / inf", "- / inf", "- / inf", "- / inf", "- / inf", "- / inf", "- / inf"],
        ["global", "500 / 2500", "1 / inf", "300 / 1000", "300 / 0", "0 / inf", "1 / 10", "7 / inf"],
    ]  # fmt: skip
    assert rows(out, "Quota Device Limits")[1] == ["global", "nvidia/gpu", "1 / 2"]
    assert rows(out, "Quota Node Pool Limits")[1][:3] == ["global", "gpu", "40 / 100"]
    assert rows(out, "Lookup Failures") == [["far = No path to region"]]


def test_a_list_of_quotas(with_quota: Any, run: Any) -> None:
    assert run("quota", "list")[1].splitlines() == ["Name  Description", "team  Ours"]
    assert json.loads(run("quota", "list", "-json")[1]) == [SPEC]
    assert run("quota", "list", "-t", "{{range .}}{{.Name}}{{end}}")[1].strip() == "team"
    with_quota.answers["/v1/quotas"] = []
    assert run("quota", "list")[1] == "No quotas found\n"


def test_inspect_prints_the_quota_with_its_usage(with_quota: Any, run: Any) -> None:
    shown = json.loads(run("quota", "inspect", "team")[1])
    assert (shown["Spec"], shown["Usages"], list(shown["Failures"])) == (SPEC, {"global": USAGE}, ["far"])
    assert run("quota", "inspect", "-t", "{{.Spec.Name}}", "team")[1].strip() == "team"
    assert json.loads(run("quota", "status", "-json", "team")[1]) == SPEC


def test_the_status_of_a_namespace_shows_its_quota_to_those_who_may_read_it(with_quota: Any, run: Any) -> None:
    with_quota.answers["/v1/namespace/a"] = {"Name": "a", "Quota": "team"}
    code, out, _ = run("namespace", "status", "a")
    assert code == 0 and rows(out, "Quota Limits")[2][1] == "500 / 2500"
    with_quota.answers["/v1/quota/team"] = (403, "Permission denied")
    code, out, err = run("namespace", "status", "a")
    assert (code, err, "Quota Limits" in out) == (0, "", False)


def test_a_quota_is_deleted(with_quota: Any, run: Any) -> None:
    assert run("quota", "delete", "team")[1] == 'Successfully deleted quota "team"!\n'
    assert with_quota.asked[-1][:2] == ("DELETE", "/v1/quota/team")


@pytest.mark.parametrize(("flags", "name"), [((), "spec.hcl"), (("-json",), "spec.json")])
def test_the_example_file_can_be_applied(
    api: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    api.answers["/v1/quota"] = b""
    assert run("quota", "init", *flags)[1] == f"Example quota specification written to {name}\n"
    assert run("quota", "init", *flags)[0] == 1, "a file that is there stays"
    code, out, _ = run("quota", "apply", name)
    assert (code, out) == (0, 'Successfully applied quota specification "default-quota"!\n')
    assert api.asked[-1][3]["Limits"][0]["RegionLimit"]["CPU"] == 2500


def test_the_examples_are_one_quota_and_pass_the_rules() -> None:
    texts = (read_quota("spec.hcl", EXAMPLE_HCL), json.loads(EXAMPLE_JSON))
    specs = [decode_value(normalised(each), QuotaSpec, name="QuotaSpec") for each in texts]
    assert specs[0] == specs[1] and not specs[0][1]
    assert list(quota_problems(specs[0][0])) == []


def test_all_of_a_file_is_read() -> None:
    spec = read_quota("q.hcl", """
name = "team"
limit {
  region = "global"
  variables_limit = 3
  region_limit {
    cpu = -1
    memory = "2 GiB"
    secrets = 4
    device "nvidia/gpu" { count = 2 }
    device "gpu" {}
    storage { host_volumes = "1 TiB" }
    node_pool "gpu" {
      cores = 5
      device "nvidia/gpu" { count = 1 }
    }
  }
}
limit { region = "far" }
""")  # fmt: skip
    near, far = spec["Limits"]
    assert (near["VariablesLimit"], far) == (3, {"Region": "far"})
    assert near["RegionLimit"] == {
        "CPU": -1, "MemoryMB": 2048, "SecretsMB": 4,
        "Devices": [{"Name": "nvidia/gpu", "Count": 2}, {"Name": "gpu", "Count": 1}],
        "Storage": {"HostVolumesMB": 1 << 20},
        "NodePools": [{"NodePool": "gpu", "Cores": 5, "Devices": [{"Name": "nvidia/gpu", "Count": 1}]}],
    }  # fmt: skip


def test_all_mistakes_of_a_file_are_told_at_their_places() -> None:
    text = """name = 5
limit {
  region = "global"
  region_limit {
    memroy = 5
    cpu = "many"
    device { count = 1 }
    storage { host_volume = 1 }
    storage { }
    cores = 1.5
  }
}
limt {}
"""
    with pytest.raises(CliError) as found:
        read_quota("q.hcl", text)
    told = str(found.value)
    for part in (
        "q.hcl:1", '"name" is a text', "q.hcl:5", 'Did you mean "memory"?', '"cpu" is a whole number', "q.hcl:7",
        "Missing label", 'Did you mean "host_volumes"?', "q.hcl:9", "may stand once", "q.hcl:13",
        'Did you mean "limit"?',
        '"cores" is a whole number',
    ):  # fmt: skip
        assert part in told, part


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "A quota needs a name"), ('name = "a"', "A quota needs a limit"),
     ('name = "a"\nlimit {}', "A limit names its region"), ('name = ', "q.hcl:1"),
     ('name = "a"\nlimit = 5', '"limit" is a block')],
)  # fmt: skip
def test_what_a_file_lacks_is_told(text: str, told: str) -> None:
    with pytest.raises(CliError, match=r"(?s).*" + told):
        read_quota("q.hcl", text)


def test_mistakes_that_the_servers_find_are_listed(api: Any, run: Any, tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text(json.dumps(SPEC))
    api.answers["/v1/quota"] = (400, '2 errors occurred:\n\t* invalid name "a b": use letters\n\t* no limits\n\n')
    code, _, error = run("quota", "apply", str(tmp_path / "q.json"))
    assert code == 1
    assert error.startswith('Error: the quota specification is not valid:\n  - invalid name "a b": use letters')
    assert "\n  - no limits\n" in error and "\t" not in error


def test_a_json_file_that_is_no_quota_is_refused(run: Any, tmp_path: Path) -> None:
    for text in ("{", "[]", "{}"):
        (tmp_path / "q.json").write_text(text)
        code, _, err = run("quota", "apply", str(tmp_path / "q.json"))
        assert code == 1 and "q.json" in err


SHARED = """name = "low"
parent = "top"
weight = 0.5
protection = "90s"
limit {
  region = "global"
  region_limit {
    cpu = 900
  }
  guaranteed {
    cpu = 500
    device "nvidia/gpu" { count = 1 }
    node_pool "gpu" { memory = "1 GiB" }
  }
}
"""


def test_a_file_has_a_guarantee_a_weight_and_a_parent() -> None:
    spec = read_quota("q.hcl", SHARED)
    assert (spec["Parent"], spec["Weight"], spec["Protection"]) == ("top", 0.5, 90_000_000_000)
    assert spec["Limits"][0]["Guaranteed"] == {
        "CPU": 500, "Devices": [{"Name": "nvidia/gpu", "Count": 1}],
        "NodePools": [{"NodePool": "gpu", "MemoryMB": 1024, "Devices": []}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("weight = 0.5", "weight = 0", 3, "0 is not between 0.001 and 1000"),
        ("weight = 0.5", "weight = -1", 3, "-1 is not between"),
        ("weight = 0.5", "weight = 1000000000000", 3, "1e+12 is not between"),
        ("weight = 0.5", 'weight = "much"', 3, '"weight" is a number'),
        ('protection = "90s"', 'protection = "25h"', 4, 'it must be between "0s" and "24h"'),
        ('protection = "90s"', "protection = 5", 4, '"protection" is a time'),
        ("cpu = 500", "cpu = 901", 10, "cpu = 901 is above its limit of 900"),
        ("cpu = 500", "storage { variables = 1 }", 11, '"storage" is not expected here'),
    ],
)
def test_a_mistake_in_a_share_is_told_at_its_place(old: str, new: str, line: int, text: str) -> None:
    with pytest.raises(CliError) as found:
        read_quota("q.hcl", SHARED.replace(old, new))
    assert f"q.hcl:{line}" in str(found.value) and text in str(found.value)


def test_what_does_not_fit_other_quotas_is_told_at_its_place(api: Any, run: Any, tmp_path: Path) -> None:
    api.answers["/v1/quota"] = (
        400, '2 errors occurred:\n\t* parent: quota "top" does not exist; apply it first\n\t* guaranteed: too much\n\n',
    )  # fmt: skip
    path = tmp_path / "low.hcl"
    path.write_text(SHARED)
    code, _, err = run("quota", "apply", str(path))
    assert code == 1 and f"{path}:2" in err and f"{path}:10" in err and "does not exist; apply it first" in err
    api.answers["/v1/quota"] = (400, "1 error occurred:\n\t* other: x\n\n")
    assert "the quota specification is not valid: other: x" in run("quota", "apply", str(path))[2]


def test_the_status_shows_what_is_lent_and_borrowed(with_quota: Any, run: Any) -> None:
    guaranteed: dict[str, Any] = {"CPU": 400, "MemoryMB": 300, "Devices": [{"Name": "nvidia/gpu", "Count": 2}],
        "NodePools": [{"NodePool": "gpu", "CPU": 90}]}  # fmt: skip
    used = {"CPU": 500, "MemoryMB": 300, "Devices": [{"Name": "nvidia/gpu", "Count": 1}], "NodePools": [
        {"NodePool": "gpu", "CPU": 40}]}  # fmt: skip
    spec: dict[str, Any] = SPEC
    near = {**spec["Limits"][0], "Guaranteed": guaranteed}
    with_quota.answers["/v1/quota/team"] = {
        **spec, "Limits": [near], "Parent": "top", "Weight": 2.5, "Protection": 60_000_000_000,
    }  # fmt: skip
    known: dict[str, Any] = USAGE
    usage = {**known, "Used": {HASH: {**known["Used"][HASH], "Guaranteed": used}}}
    with_quota.answers["/v1/quota/usage/team"] = usage
    _, out, _ = run("quota", "status", "team")
    shown = [line.split() for line in out.splitlines()[3:6]]
    assert shown == [["Parent", "=", "top"], ["Weight", "=", "2.5"], ["Protection", "=", "1m0s"]]
    assert rows(out, "Quota Guarantees")[1:] == [
        ["global", "CPU", "400", "500", "borrows 100"], ["global", "MemoryMB", "300", "300", "-"],
        ["global", "device nvidia/gpu", "2", "1", "lends 1"], ["global, pool gpu", "CPU", "90", "40", "lends 50"],
    ]  # fmt: skip
