"""Answers of a cluster with all that `yurt whatif -from` reads, and damaged versions of them."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

NODE_IDS = [f"00000000-0000-0000-0000-00000000000{number}" for number in (1, 2)]
TIME = 1_700_000_000_000_000_000
DAMAGE: tuple[Any, ...] = (
    None, [], {}, "", "\x1b[31m\x00", "x" * 70_000, 0, -1, 1, 7, 2**31, 2**62, -(2**63), 2**63, 1.5, 1e308, True, False,
    "7", [None], [{}], [[]], {"": None}, {"a": {"a": {}}}, "default", "all", "*", "${attr.x}", "((((a*)*)*)*)*b", "run",
    "batch", "system", "running", "ready", "2026-11-29T08:00:00Z", "65535", "0-70000", "\ud800",
)  # fmt: skip


def node(node_id: str) -> dict[str, Any]:
    cores = [
        {"SocketID": 0, "NodeID": number // 2, "ID": number, "Grade": True, "Disable": False, "BaseSpeed": 1000,
         "MaxSpeed": 2000, "GuessSpeed": 0}
        for number in range(4)
    ]  # fmt: skip
    cards = [
        {
            "ID": f"GPU-{node_id[-1]}-{number}", "Healthy": True, "HealthDescription": "",
            "Locality": {"PciBusID": f"0000:0{number}:00.0"},
            "Attributes": {"nvlink_peers": {"String": "", "Unit": ""}, "numa_node": {"Int": number % 2}},
            "Health": {"State": "healthy", "Since": "2026-11-29T08:00:00Z"},
        }
        for number in range(2)
    ]  # fmt: skip
    return {
        "ID": node_id, "Name": f"nomad-{node_id[-1]}", "Datacenter": "dc1", "NodePool": "gpu", "NodeClass": "big",
        "Status": "ready", "SchedulingEligibility": "eligible", "Drain": False, "DrainStrategy": None,
        "Attributes": {"kernel.name": "linux", "driver.raw_exec": "1", "nomad.version": "1.10.0"},
        "Meta": {"rack": "r1"}, "HTTPAddr": "10.0.0.1:4646", "Links": {},
        "HostVolumes": {"data": {"Name": "data", "Path": "/data", "ReadOnly": False, "ID": ""}},
        "Drivers": {"raw_exec": {"Detected": True, "Healthy": True, "UpdateTime": "2026-11-29T08:00:00Z"}},
        "NodeResources": {
            "Cpu": {"CpuShares": 4000, "TotalCpuCores": 4, "ReservableCpuCores": [0, 1, 2, 3]},
            "Memory": {"MemoryMB": 8192}, "Disk": {"DiskMB": 10_000},
            "Devices": [
                {"Vendor": "nvidia", "Type": "gpu", "Name": "H100", "Instances": cards,
                 "Attributes": {"memory": {"Int": 80, "Unit": "GiB"}}},
            ],
            "Networks": [{"Mode": "host", "Device": "eth0", "CIDR": "10.0.0.1/32", "IP": "10.0.0.1", "MBits": 1000}],
            "NodeNetworks": [
                {"Mode": "host", "Device": "eth0", "Speed": 1000,
                 "Addresses": [{"Alias": "default", "Address": "10.0.0.1", "Family": "ipv4"}]},
            ],
            "MinDynamicPort": 20000, "MaxDynamicPort": 32000,
            "Processors": {"Topology": {"Nodes": [0, 1], "Distances": [[10, 21], [21, 10]], "Cores": cores,
                                        "OverrideTotalCompute": 0, "OverrideWitholdCompute": 0}},
        },
        "ReservedResources": {
            "Cpu": {"CpuShares": 100}, "Memory": {"MemoryMB": 100}, "Disk": {"DiskMB": 0},
            "Networks": {"ReservedHostPorts": "22,8000-8100"},
        },
        "ComputedClass": "v1:123", "CreateIndex": 7, "ModifyIndex": 20,
    }  # fmt: skip


def job(job_id: str, kind: str, *, version: int = 3, cpu: int = 500, count: int = 2) -> dict[str, Any]:
    resources = {
        "CPU": cpu, "MemoryMB": 64, "Cores": 0,
        "Devices": [{"Name": "nvidia/gpu", "Count": 1, "Constraints": None, "Affinities": None}],
        "Networks": None, "NUMA": None,
    }  # fmt: skip
    group = {
        "Name": "g", "Count": count,
        "Constraints": [{"LTarget": "${attr.kernel.name}", "RTarget": "linux", "Operand": "="}],
        "Affinities": [{"LTarget": "${meta.rack}", "RTarget": "r1", "Operand": "=", "Weight": 50}],
        "Spreads": [{"Attribute": "${node.datacenter}", "Weight": 50, "SpreadTarget": None}],
        "Networks": [{"Mode": "host", "DynamicPorts": [{"Label": "http", "Value": 0, "To": -1}],
                      "ReservedPorts": [{"Label": "admin", "Value": 9000, "To": 0}]}],
        "Volumes": {"data": {"Name": "data", "Type": "host", "Source": "data", "ReadOnly": False}},
        "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/sleep"}, "Resources": resources}],
        "MaxRunDuration": 3600_000_000_000 if kind == "batch" else None,
    }  # fmt: skip
    if kind != "service":
        del group["Affinities"], group["Spreads"]
    return {
        "ID": job_id, "Name": job_id, "Namespace": "default", "Type": kind, "Priority": 50, "Region": "global",
        "Datacenters": ["dc1"], "NodePool": "gpu", "Status": "running", "Stop": False, "Version": version,
        "TaskGroups": [group], "Meta": {"user": "ann"}, "SubmitTime": TIME,
        "CreateIndex": 10, "ModifyIndex": 12, "JobModifyIndex": 10,
    }  # fmt: skip


def alloc(number: int, job_id: str, *, version: int = 3, state: str = "running") -> dict[str, Any]:
    node_id = NODE_IDS[number % 2]
    return {
        "ID": f"00000000-0000-0000-0000-0000000000a{number}", "Namespace": "default", "EvalID": "e",
        "JobVersion": version, "Name": f"{job_id}.g[{number // 2}]", "NodeID": node_id, "NodeName": "nomad-1",
        "JobID": job_id, "TaskGroup": "g", "DesiredStatus": "run", "ClientStatus": state, "CreateIndex": 11,
        "ModifyIndex": 13, "CreateTime": TIME, "ModifyTime": TIME + 10**9, "TaskStates": None,
        "DeploymentStatus": {"Healthy": True, "Canary": False},
        "AllocatedResources": {
            "TaskLifecycles": {"t": None},
            "Tasks": {
                "t": {
                    "Cpu": {"CpuShares": 500, "ReservedCores": [number]},
                    "Memory": {"MemoryMB": 64, "MemoryMaxMB": -1},
                    "Networks": None,
                    "Devices": [{"Vendor": "nvidia", "Type": "gpu", "Name": "H100",
                                 "DeviceIDs": [f"GPU-{node_id[-1]}-{number // 2}"]}],
                },
            },
            "Shared": {
                "DiskMB": 300,
                "Networks": [{"Mode": "host", "IP": "10.0.0.1", "DynamicPorts": [{"Label": "http", "Value": 20001}]}],
                "Ports": [{"Label": "http", "Value": 20001, "To": -1, "HostIP": "10.0.0.1"}],
            },
        },
    }  # fmt: skip


def whole_answers() -> dict[str, Any]:
    """The answers by path."""
    evaluation = {
        "ID": "00000000-0000-0000-0000-0000000000e1", "Namespace": "default", "JobID": "train", "Priority": 50,
        "Type": "batch", "TriggeredBy": "queued-allocs", "Status": "blocked", "JobModifyIndex": 10, "CreateIndex": 14,
        "ModifyIndex": 14, "CreateTime": TIME, "ModifyTime": TIME,
    }  # fmt: skip
    rollout = {
        "PlacedCanaries": None, "AutoRevert": False, "AutoPromote": False, "ProgressDeadline": 600_000_000_000,
        "RequireProgressBy": "2026-11-29T08:00:00Z", "Promoted": False, "DesiredCanaries": 0, "DesiredTotal": 2,
        "PlacedAllocs": 1, "HealthyAllocs": 1, "UnhealthyAllocs": 0,
    }  # fmt: skip
    limit = {
        "Region": "global", "Hash": "NLOoV2WBU8ieJIrYXXx8NRb5C2w=",
        "RegionLimit": {"CPU": 9000, "MemoryMB": 0, "Devices": [{"Name": "nvidia/gpu", "Count": 4}]},
    }  # fmt: skip
    return {
        "/v1/nodes": [{"ID": node_id, "Name": "n"} for node_id in NODE_IDS],
        **{f"/v1/node/{node_id}": node(node_id) for node_id in NODE_IDS},
        "/v1/jobs": [{"ID": job_id, "Namespace": "default"} for job_id in ("web", "train", "sys")],
        "/v1/job/web": job("web", "service"),
        "/v1/job/train": job("train", "batch", count=4),
        "/v1/job/sys": job("sys", "system", count=1, cpu=100),
        "/v1/allocations": [alloc(0, "web"), alloc(1, "web", version=2), alloc(2, "train"),
                            alloc(3, "train", state="complete")],
        "/v1/allocation/00000000-0000-0000-0000-0000000000a1":
            alloc(1, "web", version=2) | {"Job": job("web", "service", version=2, cpu=400)},
        "/v1/evaluations": lambda query: [evaluation] if "blocked" in query else [],
        "/v1/deployments": [
            {
                "ID": "00000000-0000-0000-0000-0000000000d1", "Namespace": "default", "JobID": "web", "JobVersion": 3,
                "JobModifyIndex": 10, "JobSpecModifyIndex": 10, "JobCreateIndex": 10, "IsMultiregion": False,
                "TaskGroups": {"g": rollout}, "Status": "running", "CreateIndex": 11, "ModifyIndex": 12,
            },
        ],
        "/v1/namespaces": [{"Name": "default", "Description": "", "Quota": "q", "Meta": None}],
        "/v1/quotas": [{"Name": "q", "Limits": [limit], "CreateIndex": 5, "ModifyIndex": 5}],
        "/v1/node/pools": [
            {"Name": "all"}, {"Name": "default"},
            {"Name": "gpu", "BatchQueue": {"FairShare": {"HalfLife": 3600_000_000_000}}},
        ],
        "/v1/operator/scheduler/configuration": {
            "SchedulerConfig": {
                "SchedulerAlgorithm": "binpack",
                "PreemptionConfig": {"ServiceSchedulerEnabled": True, "BatchSchedulerEnabled": True},
                "MemoryOversubscriptionEnabled": False, "RejectJobRegistration": False, "PauseEvalBroker": False,
            },
        },
        "/v1/regions": ["global"],
        "/v1/acl/token/self": {"AccessorID": "a", "Type": "client", "Policies": ["reader"], "Roles": None},
        "/v1/acl/policy/self": [{"Name": "reader", "Rules": 'namespace "*" {\n  policy = "read"\n}\n'}],
    }  # fmt: skip


def answers_with_roles() -> dict[str, Any]:
    """The answers to a token with a role, by an agent that does not list its policies at once."""
    answers = whole_answers()
    (policy,) = answers.pop("/v1/acl/policy/self")
    answers["/v1/acl/token/self"] |= {"Policies": [], "Roles": [{"ID": "r1", "Name": "dev"}]}
    answers["/v1/acl/role/r1"] = {"ID": "r1", "Name": "dev", "Policies": [{"Name": "reader"}]}
    answers["/v1/acl/policy/reader"] = policy
    return answers


def damaged_answers(seed: int, whole: dict[str, Any]) -> dict[str, Any]:
    """The answers with one to three damages, chosen by the seed."""
    choice = random.Random(seed)
    answers = copy.deepcopy(whole)
    rows = answers["/v1/evaluations"]("blocked")
    for _ in range(choice.randint(1, 3)):
        path = choice.choice(sorted(answers))
        holder = {"document": rows if callable(answers[path]) else answers[path]}
        _damage(holder, choice)
        if callable(answers[path]):
            rows = holder["document"]
        else:
            answers[path] = holder["document"]
    answers["/v1/evaluations"] = lambda query: rows if "blocked" in query else []
    return answers


def _damage(holder: dict[str, Any], choice: random.Random) -> None:
    container, key = choice.choice(list(_places(holder)))
    kind = choice.random()
    if kind < 0.2 and container is not holder:
        del container[key]
    elif kind < 0.3 and isinstance(container, list):
        container.extend(copy.deepcopy(container[key]) for _ in range(choice.choice((1, 3, 50))))
    elif kind < 0.4:
        deep: Any = 1
        for _ in range(choice.choice((10, 70, 400))):
            deep = [deep]
        container[key] = deep
    else:
        # Mostly a value of the same type, which decoding alone does not refuse.
        alike = [each for each in DAMAGE if type(each) is type(container[key])]
        container[key] = copy.deepcopy(choice.choice(alike if alike and choice.random() < 0.8 else DAMAGE))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])
