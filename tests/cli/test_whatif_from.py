"""`yurt whatif -from`: the state of another cluster, as Nomad's API tells it, by GET requests alone."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from yurt.cli.api.client import AgentAddress, ApiClient
from yurt.cli.api.connect import connect_elsewhere
from yurt.cli.commands.whatif import COMMANDS
from yurt.cli.flags import parse
from yurt.cli.other_cluster.read import read_cluster
from yurt.state import Snapshot

NODE = {
    "ID": "00000000-0000-0000-0000-000000000001", "Name": "nomad-1", "Datacenter": "dc1", "NodePool": "default",
    "NodeClass": "", "Status": "ready", "SchedulingEligibility": "eligible", "Drain": False, "DrainStrategy": None,
    "Attributes": {"kernel.name": "linux", "driver.raw_exec": "1"}, "Meta": {"rack": "r1"}, "SecretID": "",
    "HTTPAddr": "10.0.0.1:4646", "Links": {}, "CSIControllerPlugins": {}, "CSINodePlugins": {}, "HostVolumes": None,
    "Drivers": {
        "raw_exec": {
            "Attributes": {"driver.raw_exec": "true"}, "Detected": True, "Healthy": True,
            "HealthDescription": "Healthy", "UpdateTime": "2026-11-29T08:00:00.000000001Z",
        },
    },
    "Resources": {"CPU": 4000, "MemoryMB": 8192, "DiskMB": 10_000},
    "NodeResources": {
        "Cpu": {"CpuShares": 4000, "TotalCpuCores": 4, "ReservableCpuCores": [0, 1, 2, 3]},
        "Memory": {"MemoryMB": 8192}, "Disk": {"DiskMB": 10_000}, "Devices": None, "Networks": None,
        "MinDynamicPort": 20000, "MaxDynamicPort": 32000, "Processors": {"Topology": None},
    },
    "ReservedResources": {
        "Cpu": {"CpuShares": 0}, "Memory": {"MemoryMB": 0}, "Disk": {"DiskMB": 0},
        "Networks": {"ReservedHostPorts": "22"},
    },
    "ComputedClass": "v1:123", "CreateIndex": 7, "ModifyIndex": 20,
}  # fmt: skip
JOB = {
    "ID": "web", "Name": "web", "Namespace": "default", "Type": "service", "Priority": 50, "Region": "global",
    "Datacenters": ["dc1"], "NodePool": "default", "Status": "running", "Stop": False, "Version": 3,
    "TaskGroups": [
        {
            "Name": "g", "Count": 2,
            "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/sleep"},
                       "Resources": {"CPU": 1000, "MemoryMB": 64}}],
        },
    ],
    "CreateIndex": 10, "ModifyIndex": 12, "JobModifyIndex": 10, "SubmitTime": 1_700_000_000_000_000_000,
}  # fmt: skip


def alloc(number: int) -> dict[str, Any]:
    return {
        "ID": f"00000000-0000-0000-0000-0000000000a{number}", "Namespace": "default", "EvalID": "e", "JobVersion": 3,
        "Name": f"web.g[{number}]", "NodeID": NODE["ID"], "NodeName": "nomad-1", "JobID": "web", "JobType": "service",
        "TaskGroup": "g", "DesiredStatus": "run", "ClientStatus": "running", "CreateIndex": 11, "ModifyIndex": 13,
        "CreateTime": 1_700_000_000_000_000_000, "ModifyTime": 1_700_000_001_000_000_000, "TaskStates": None,
        "AllocatedResources": {
            "TaskLifecycles": {"t": None},
            "Tasks": {"t": {"Cpu": {"CpuShares": 1000, "ReservedCores": None}, "Memory": {"MemoryMB": 64},
                            "Networks": None, "Devices": None}},
            "Shared": {"DiskMB": 300, "Networks": None, "Ports": None},
        },
    }  # fmt: skip


def answer_as_nomad(api: Any) -> None:
    """A community edition of one node with room for four allocations, of which two run."""
    api.answers |= {
        "/v1/nodes": [{"ID": NODE["ID"], "Name": "nomad-1"}],
        f"/v1/node/{NODE['ID']}": NODE,
        "/v1/jobs": [{"ID": "web", "Namespace": "default"}],
        "/v1/job/web": JOB,
        "/v1/allocations": [alloc(0), alloc(1)],
        "/v1/evaluations": [],
        "/v1/namespaces": [{"Name": "default", "Description": "Default shared namespace", "Quota": ""}],
        "/v1/quotas": (501, "Nomad Enterprise only endpoint"),
        "/v1/node/pools": [{"Name": "all"}, {"Name": "default", "SchedulerConfiguration": None}],
        "/v1/operator/scheduler/configuration": {
            "SchedulerConfig": {
                "SchedulerAlgorithm": "binpack", "PreemptionConfig": {"ServiceSchedulerEnabled": False},
                "MemoryOversubscriptionEnabled": False, "RejectJobRegistration": False, "PauseEvalBroker": False,
            },
        },
        "/v1/regions": ["global"],
        "/v1/deployments": [],
        "/v1/acl/token/self": (400, "ACL support disabled"),
    }  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "more.nomad.hcl"
    path.write_text(
        'job "more" {\n  group "g" {\n    count = 3\n    task "t" {\n      driver = "raw_exec"\n'
        '      config { command = "/bin/true" }\n      resources {\n        cpu = 1000\n        memory = 64\n'
        "      }\n    }\n  }\n}\n"
    )
    return str(path)


def test_a_nomad_cluster_is_read_and_asked(api: Any, run: Any, job: str) -> None:
    answer_as_nomad(api)
    code, out, err = run("whatif", "-from", api.address, "-token", "secret", "-job", job, "-json")
    assert (code, err) == (2, "")
    (row,) = json.loads(out)["Jobs"]
    assert (row["JobID"], row["Running"], row["Waiting"]) == ("more", 2, 1)
    assert "cpu exhausted" in row["Reason"]
    assert {method for method, _, _, _ in api.asked} == {"GET"}
    assert {headers["X-Nomad-Token"] for _, _, headers, _ in api.asked} == {"secret"}


def test_a_lost_rack_stops_what_runs_there(api: Any, run: Any) -> None:
    answer_as_nomad(api)
    code, out, _ = run("whatif", "-from", api.address, "-fail", "meta.rack=r1", "-json")
    (row,) = json.loads(out)["Jobs"]
    assert (code, row["JobID"], row["RunningBefore"], row["Running"], row["Lost"]) == (2, "web", 2, 0, 2)


def test_quotas_hold_where_there_are_some(api: Any, run: Any, job: str) -> None:
    answer_as_nomad(api)
    api.answers["/v1/namespaces"] = [{"Name": "default", "Quota": "q"}]
    limit = {"Region": "global", "RegionLimit": {"CPU": 3000, "MemoryMB": 0}, "Hash": "NLOoV2WBU8ieJIrYXXx8NRb5C2w="}
    api.answers["/v1/quotas"] = [{"Name": "q", "Limits": [limit], "CreateIndex": 5, "ModifyIndex": 5}]
    code, out, _ = run("whatif", "-from", api.address, "-job", job, "-json")
    (row,) = json.loads(out)["Jobs"]
    assert (code, row["Running"], row["Waiting"], row["Reason"]) == (2, 1, 2, 'quota "q" is used up')


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/v1/nodes", "node:read"),
        ("/v1/quotas", "quota:read"),
        ("/v1/operator/scheduler/configuration", "operator:read"),
    ],
)
def test_a_missing_right_is_named(api: Any, run: Any, path: str, right: str) -> None:
    answer_as_nomad(api)
    api.answers[path] = (403, "Permission denied")
    code, out, err = run("whatif", "-from", api.address)
    assert (code, out) == (1, "")
    assert f"GET {path}: " in err
    assert "Permission denied" in err
    assert f"-from needs a token with {right}" in err


def test_what_is_no_cluster_is_said(api: Any, run: Any) -> None:
    code, _, err = run("whatif", "-from", "http://127.0.0.1:1")
    assert code == 1
    assert "No agent answers at http://127.0.0.1:1" in err
    assert "with -from" in err
    api.answers["/v1/nodes"] = {"a": "page"}
    assert "GET /v1/nodes: the answer is not a list" in run("whatif", "-from", api.address)[2]
    assert "must begin with http" in run("whatif", "-from", "ftp://x")[2]
    assert "exclude each other" in run("whatif", "-from", api.address, "-snapshot", "x.snap")[2]


def test_a_node_of_another_form_is_said(api: Any, run: Any) -> None:
    answer_as_nomad(api)
    api.answers[f"/v1/node/{NODE['ID']}"] = NODE | {"NodeResources": {"Memory": {"MemoryMB": "much"}}}
    code, _, err = run("whatif", "-from", api.address)
    assert code == 1
    assert f"GET /v1/node/{NODE['ID']}: " in err
    assert "MemoryMB" in err


SECRETS = {
    "NOMAD_TOKEN": "own-token", "NOMAD_HTTP_AUTH": "own:password", "NOMAD_REGION": "own-region",
    "NOMAD_NAMESPACE": "own-space", "NOMAD_CLIENT_CERT": "/own/cert.pem", "NOMAD_SKIP_VERIFY": "1",
}  # fmt: skip


def test_the_credentials_of_this_cluster_stay_here(
    api: Any, run: Any, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_as_nomad(api)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    assert run("whatif", "-from", api.address, "-job", job, "-json")[0] == 2
    assert api.asked
    for _, path, headers, _ in api.asked:
        assert "own" not in f"{path} {headers}"
        assert not {"X-Nomad-Token", "Authorization"} & set(headers)


def test_tls_with_another_cluster_follows_the_flags_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    words = ["-from", "https://other:4646", "-token", "theirs", "-region", "there"]
    flags, _ = parse(words, COMMANDS[0].all_flags)
    found = connect_elsewhere(flags, "https://other:4646").connection
    assert found == AgentAddress(address="https://other:4646", token="theirs", region="there")


# What a token does not see.

CLIENT = {"AccessorID": "a", "Type": "client", "Policies": ["reader"], "Roles": None}


def warned(api: Any, run: Any, rules: str, **answers: Any) -> list[str]:
    """The warnings for a token with these rules, the same as text and as data."""
    answer_as_nomad(api)
    api.answers["/v1/acl/token/self"] = CLIENT
    api.answers["/v1/acl/policy/self"] = [{"Name": "reader", "Rules": rules}]
    api.answers |= {path.replace("_", "/"): answer for path, answer in answers.items()}
    code, out, err = run("whatif", "-from", api.address, "-json")
    assert code == 0, err
    found: list[str] = json.loads(out)["Warnings"]
    assert err == "".join(f"Warning: {each}\n" for each in found)
    return found


def test_a_token_that_sees_all_namespaces_has_no_warning(api: Any, run: Any) -> None:
    assert warned(api, run, 'namespace "*" {\n  policy = "read"\n}') == []


def test_management_and_no_access_control_have_no_warning(api: Any, run: Any) -> None:
    assert warned(api, run, "", **{"/v1/acl/token/self": {"Type": "management"}}) == []
    assert warned(api, run, "", **{"/v1/acl/token/self": {"AccessorID": "acls-disabled"}}) == []
    assert warned(api, run, "", **{"/v1/acl/token/self": (400, "ACL support disabled")}) == []


def test_namespaces_that_a_token_cannot_read_are_named(api: Any, run: Any) -> None:
    rules = 'namespace "*" {\n  policy = "read"\n}\nnamespace "dark" {\n  capabilities = ["list-jobs"]\n}\n'
    spaces = [{"Name": "default"}, {"Name": "dark"}]
    (warning,) = warned(api, run, rules, **{"/v1/namespaces": spaces})
    assert "the token lacks list-jobs or read-job in namespaces: dark;" in warning
    assert "seem to have room" in warning


def test_namespaces_that_may_exist_are_warned_of(api: Any, run: Any) -> None:
    (warning,) = warned(api, run, 'namespace "default" {\n  policy = "read"\n}')
    assert "if there are others, jobs and allocations there are missing" in warning
    hidden = 'namespace "*" {\n  policy = "read"\n}\nnamespace "secret-*" {\n  policy = "deny"\n}'
    (warning,) = warned(api, run, hidden)
    assert "in namespaces that match secret-*" in warning


def test_rights_come_from_each_policy_where_an_agent_lists_none_at_once(api: Any, run: Any) -> None:
    role = {"ID": "r1", "Name": "dev"}
    answers = {
        "/v1/acl/policy/self": (404, "no such route"),
        "/v1/acl/token/self": CLIENT | {"Policies": None, "Roles": [role]},
        "/v1/acl/role/r1": role | {"Policies": [{"Name": "all"}]},
        "/v1/acl/policy/all": {"Name": "all", "Rules": 'namespace "*" {\n  policy = "read"\n}'},
    }
    assert warned(api, run, "", **answers) == []


def test_unknown_rights_are_told(api: Any, run: Any) -> None:
    (warning,) = warned(api, run, "", **{"/v1/acl/token/self": (500, "ACL token expired")})
    assert "the rights of the token are not known (ACL token expired)" in warning
    (warning,) = warned(api, run, "namespace {{{")
    assert "the policies of the token cannot be read" in warning


def test_pools_and_quotas_that_are_not_shown_are_told(api: Any, run: Any) -> None:
    answers = {
        f"/v1/node/{NODE['ID']}": NODE | {"NodePool": "gpu"},
        "/v1/namespaces": [{"Name": "default", "Quota": "q"}],
    }
    pools, quotas = warned(api, run, 'namespace "*" {\n  policy = "read"\n}', **answers)
    assert "node pools are not shown, so they have no queue and no scheduler configuration here: gpu" in pools
    assert "quotas of namespaces are not shown, so they limit nothing here: q" in quotas


def test_a_job_that_may_be_listed_and_not_read_is_left_out_with_a_warning(api: Any, run: Any) -> None:
    rules = 'namespace "*" {\n  capabilities = ["list-jobs"]\n}'
    found = warned(api, run, rules, **{"/v1/job/web": (403, "Permission denied"), "/v1/allocations": []})
    assert "1 job is missing of namespace default, in which the token has list-jobs and not read-job" in found[-1]


def test_a_job_may_be_in_a_pool_that_the_token_does_not_see(api: Any, run: Any, job: str) -> None:
    answer_as_nomad(api)
    api.answers[f"/v1/node/{NODE['ID']}"] = NODE | {"NodePool": "gpu"}
    text = Path(job).read_text()
    Path(job).write_text(text.replace('job "more" {', 'job "more" {\n  node_pool = "gpu"'))
    code, out, err = run("whatif", "-from", api.address, "-job", job, "-json")
    assert (code, "node pools are not shown" in err) == (2, True)
    assert [(row["JobID"], row["Running"]) for row in json.loads(out)["Jobs"]] == [("more", 2)]


def test_durations_of_a_queue_may_be_long(api: Any) -> None:
    answer_as_nomad(api)
    days = 30 * 86_400 * 10**9
    queue = {"FairShare": {"HalfLife": days}}
    api.answers["/v1/node/pools"] = [{"Name": "default", "BatchQueue": queue, "NodeIdentityTTL": days}]
    (pool,) = (row for row in read_state(api).node_pools.values() if row.name == "default")
    assert pool.batch_queue is not None and pool.node_identity_ttl == days


# Versions.


def read_state(api: Any) -> Snapshot:
    with closing(ApiClient(AgentAddress(address=api.address))) as client:
        return read_cluster(client).state


def test_an_allocation_has_the_version_of_its_job_that_it_was_placed_for(api: Any) -> None:
    """Two of three have version 2, which is read once; an ended one needs none."""
    answer_as_nomad(api)
    old = alloc(1) | {"JobVersion": 2}
    ended = alloc(3) | {"JobVersion": 1, "ClientStatus": "complete"}
    api.answers["/v1/allocations"] = [alloc(0), old, alloc(2) | {"JobVersion": 2}, ended]
    before = JOB | {"Version": 2, "Priority": 70}
    api.answers[f"/v1/allocation/{old['ID']}"] = old | {"Job": before}
    state = read_state(api)
    found = {each.name: each.job for each in state.allocs.values()}
    assert {name: (job.version, job.priority) for name, job in found.items() if job is not None} == {
        "web.g[0]": (3, 50), "web.g[1]": (2, 70), "web.g[2]": (2, 70), "web.g[3]": (3, 50)
    }  # fmt: skip
    assert sum(path.startswith("/v1/allocation/") for _, path, _, _ in api.asked) == 1
    assert {version for _, _, version in state.job_versions.keys()} == {2, 3}  # noqa: SIM118 - a table, not a dict


def test_an_allocation_of_a_job_that_was_purged_and_made_anew_has_the_old_one(api: Any) -> None:
    answer_as_nomad(api)
    old = alloc(1) | {"CreateIndex": 5}
    api.answers["/v1/allocations"] = [alloc(0), old]
    api.answers[f"/v1/allocation/{old['ID']}"] = old | {"Job": JOB | {"Priority": 70, "CreateIndex": 4}}
    state = read_state(api)
    found = {each.name: each.job for each in state.allocs.values()}
    assert [found[f"web.g[{number}]"].priority for number in (0, 1)] == [50, 70]  # type: ignore[union-attr]
    assert [job.priority for job in state.job_versions.values()] == [50]


def test_allocations_know_the_newest_deployment(api: Any) -> None:
    """The one of version 3 failed half-way."""
    answer_as_nomad(api)
    old = alloc(1) | {"JobVersion": 2, "DeploymentStatus": {"Healthy": True}}
    api.answers["/v1/allocations"] = [alloc(0) | {"DeploymentStatus": {"Healthy": False}}, old]
    api.answers[f"/v1/allocation/{old['ID']}"] = old | {"Job": JOB | {"Version": 2}}
    deployment = {
        "ID": "00000000-0000-0000-0000-0000000000d1", "Namespace": "default", "JobID": "web", "JobVersion": 3,
        "JobModifyIndex": 10, "JobCreateIndex": 10, "Status": "failed", "CreateIndex": 11, "ModifyIndex": 12,
        "TaskGroups": {"g": {"DesiredTotal": 2, "PlacedAllocs": 1, "UnhealthyAllocs": 1}},
    }  # fmt: skip
    api.answers["/v1/deployments"] = [deployment, deployment | {"ID": "d0", "CreateIndex": 1}]
    state = read_state(api)
    (row,) = state.deployments.values()
    assert (row.status, row.job_version) == ("failed", 3)
    assert {each.name: each.deployment_id for each in state.allocs.values()} == {
        "web.g[0]": row.id, "web.g[1]": ""
    }  # fmt: skip


def test_devices_that_are_suspect_or_disabled_are_read_as_such(api: Any) -> None:
    """Yurt's agents tell states with times as texts, which only people read."""
    instances = [
        {"ID": "card-0", "Healthy": True, "Health": {"State": "suspect", "Since": "2026-11-29T08:00:00Z"}},
        {"ID": "card-1", "Healthy": True},
    ]
    devices = [{"Vendor": "nvidia", "Type": "gpu", "Name": "h100", "Instances": instances}]
    resources = NODE["NodeResources"] | {"Devices": devices}  # type: ignore[operator]
    mark = {"Kind": "disabled", "Reason": "noisy", "At": "2026-11-29T08:00:00Z", "Index": 7}
    answer_as_nomad(api)
    api.answers[f"/v1/node/{NODE['ID']}"] = NODE | {
        "NodeResources": resources, "DeviceMarks": {"nvidia/gpu/h100/card-1": mark}
    }  # fmt: skip
    (node,) = read_state(api).nodes.values()
    (group,) = node.node_resources.devices
    assert [each.health.state if each.health else None for each in group.instances] == ["suspect", None]
    assert node.device_marks["nvidia/gpu/h100/card-1"].kind == "disabled"
