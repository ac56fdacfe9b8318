"""Every struct has the fields of Nomad's API, spelled as there; the exceptions are named here, each with its reason."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import msgspec
import pytest
from yurt.api.encode import encode_builtins, encode_json, to_wire
from yurt.api.stubs import alloc_stub, allocation_wire, job_stub, node_stub, node_wire
from yurt.sdk.value import UnixNano, replace
from yurt.structs.alloc import (
    AllocatedDeviceResource,
    AllocatedResources,
    AllocatedTaskResources,
    Allocation,
    AllocDeploymentStatus,
    AllocNetworkStatus,
    TaskEvent,
    TaskState,
)
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.rpc import StatValue
from yurt.structs.task import Task
from yurt.testing import factories

FIELDS: dict[str, list[str]] = json.loads(Path(__file__).with_name("api_fields.json").read_text())
"""Wire fields by type, of the public `api` package of Nomad 2.0."""
MODULES = (
    "alloc", "cluster", "constraint", "deployment", "evaluation", "explain.diff", "explain.metrics", "job", "network",
    "node", "policies", "quota", "resources", "rpc", "service", "summary", "task", "volumes.request",
)  # fmt: skip
OWN = {
    "AllocatedDeviceResource": {"Compute", "MemoryMB", "PartMilli", "Share"},
    "AllocResourceUsage": {"Accounting"},
    "Allocation": {"Accounting", "Idle"},
    "AllocationMetric": {"Gang"},
    "CSIInfo": {"Provider", "ProviderVersion"},
    "Evaluation": {"Attempts"},
    "Namespace": {"Idle"},
    "NodePool": {"BatchQueue", "Idle"},  # the first one of Nomad 2.1, written only when it is set
    "QuotaLimit": {"Guaranteed"},
    "QuotaSpec": {"Parent", "Protection", "Weight"},
    "QuotaUsage": {"Namespaces"},
    "Job": {"Checkpoint", "Requeue"},
    "JobSummary": {"PlanIndex", "PlanSnapshotIndex", "PlanToken"},
    "RescheduleTracker": {"Lost", "Requeues"},
    "TaskState": {"CheckpointedAt"},
    "RequestedDevice": {"AllOfNode", "Compute", "FirstAvailable", "Idle", "MemoryMB", "OnFailure", "Share", "Topology"},
    "TaskGroup": {"Gang", "Requeue", "Checkpoint"},
    "Gang": {"Elastic", "Rendezvous"},
    "Node": {"DeviceMarks"},
    "NodeDevice": {"Attributes", "Health"},
}
"""Fields of our own: written only when they are set."""
ADDED = {
    **OWN,
    "AttemptRecord": {"After", "Ahead", "Now", "Number", "Seed", "StateIndex"},
    "AllocatedCpuResources": {"ReservedCores"},  # written by Nomad's servers, unknown to its Go client
    "Allocation": {"Accounting", "AllocStates", "Idle"},  # as above, and our own
    "DeploymentState": {"AutoPromote"},  # as above
    "Attribute": {"Bool", "Float", "Int", "String"},  # the servers' spelling, which its Go client reads by tags
    "HostStats": {"Timestamp"},  # written by Nomad's clients
    # Written by the servers; the marks are Yurt's own.
    "Node": {"ComputedClass", "DeviceMarks", "LastAllocUpdateIndex", "LastMissedHeartbeatIndex", "SecretID"},
    "NodeResources": {"NodeNetworks", "Processors"},  # written by the servers, unknown to Nomad's Go client
    "RescheduleEvent": {"Delay"},  # as above
    "TaskState": {"CheckpointedAt", "Paused"},  # as above
}
LEFT_OUT = {
    "Allocation": {"Resources", "TaskResources"},  # added by allocation_wire
    "Attribute": {"BoolVal", "FloatVal", "IntVal", "StringVal"},  # names inside the Go client, not on the wire
    "MemoryStats": {"KernelMaxUsage", "KernelUsage"},  # cgroups v1 only
    "Node": {"Drain", "Reserved", "Resources"},  # added by node_wire
}


def structs() -> dict[str, type[msgspec.Struct]]:
    """Every struct of the domain by name."""
    found: dict[str, type[msgspec.Struct]] = {}
    for name in MODULES:
        module = importlib.import_module(f"yurt.structs.{name}")
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__:
                found[kind.__name__] = kind
    return found


@pytest.mark.parametrize("name", sorted(FIELDS.keys() & structs().keys()))
def test_a_struct_has_the_fields_of_the_api(name: str) -> None:
    ours = set(structs()[name].__struct_encode_fields__)
    theirs = set(FIELDS[name])
    assert ours - theirs == ADDED.get(name, set())
    assert theirs - ours == LEFT_OUT.get(name, set())


@pytest.mark.parametrize(
    ("name", "wire", "added"),
    [
        ("JobListStub", job_stub(Job(), None), {"Multiregion", "NodePool", "Version"}),
        ("AllocationListStub", alloc_stub(Allocation()), set()),
        ("NodeListStub", node_stub(Node()), set()),
    ],
)
def test_a_stub_has_the_fields_of_the_api(name: str, wire: dict[str, object], added: set[str]) -> None:
    missing = set(FIELDS[name]) - wire.keys()
    assert (missing, wire.keys() - set(FIELDS[name])) == (set(), added)


@pytest.mark.parametrize("name", sorted(FIELDS.keys() & structs().keys()))
def test_every_struct_can_be_written_with_all_its_fields(name: str) -> None:
    kind = structs()[name]
    if any(field.required for field in msgspec.structs.fields(kind)):
        pytest.skip("has required fields")
    wire = json.loads(encode_json(kind()))
    assert list(wire) == sorted(set(kind.__struct_encode_fields__) - OWN.get(name, set()))


def test_empty_lists_and_maps_are_null_but_for_those_that_nomad_makes() -> None:
    alloc = json.loads(encode_json(Allocation()))
    assert (alloc["PreemptedAllocations"], alloc["TaskStates"], alloc["Job"]) == (None, None, None)
    assert alloc["AllocatedResources"]["Tasks"] == {}
    assert json.loads(encode_json(TaskEvent()))["Details"] == {}


def test_times_are_rfc3339_and_go_has_a_zero_time() -> None:
    state = to_wire(TaskState(started_at=1_500_000_000_120_000_000))
    assert state["StartedAt"] == "2017-07-14T02:40:00.12Z"
    assert state["FinishedAt"] == "0001-01-01T00:00:00Z"


def test_bytes_are_base64() -> None:
    assert to_wire(Job(payload=b"hi"))["Payload"] == "aGk="
    assert to_wire(Job())["Payload"] is None


def test_a_node_never_shows_its_secret() -> None:
    assert b"hidden" not in encode_builtins(node_wire(Node(secret_id="hidden")))


def test_a_driver_config_is_written_as_it_was_sent() -> None:
    config = {"args": ["-c", 1], "nested": {"Key": None, "list": []}}
    assert to_wire(Task(config=config))["Config"] == config


def big_alloc(number: int) -> Allocation:
    """An allocation as a list of running ones holds it."""
    group = TaskGroup(name="group", tasks=(Task(name="main"),))
    events = tuple(TaskEvent(type=kind, time=UnixNano(number)) for kind in ("Received", "Task Setup", "Started"))
    return Allocation(
        id=str(number), job=Job(id="web", task_groups=(group,)), job_id="web", create_index=number,
        task_states={"main": TaskState(state="running", started_at=1_700_000_000_000_000_000 + number, events=events)},
        allocated_resources=AllocatedResources(tasks={"main": AllocatedTaskResources()}),
        deployment_status=AllocDeploymentStatus(healthy=True, timestamp=number),
    )  # fmt: skip


def test_a_list_of_allocations_is_written_with_few_calls() -> None:
    allocs = [big_alloc(number) for number in range(1, 101)]
    encode_builtins([alloc_stub(alloc) for alloc in allocs])  # which compiles the encoders
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        encode_builtins([alloc_stub(alloc) for alloc in allocs])
    finally:
        sys.setprofile(None)
    assert calls < 40 * len(allocs)


def test_a_field_of_our_own_is_written_only_when_it_is_set() -> None:
    whole = AllocatedDeviceResource(vendor="nvidia", type="gpu", name="H100", device_ids=("GPU-1",))

    assert set(to_wire(whole)) == set(FIELDS["AllocatedDeviceResource"])
    assert to_wire(replace(whole, share="mps", memory_mb=1024)) == {
        **to_wire(whole), "Share": "mps", "MemoryMB": 1024
    }  # fmt: skip


def test_a_figure_of_nothing_is_still_a_figure() -> None:
    assert to_wire(StatValue(int_numerator_val=0, unit="%")) == {"IntNumeratorVal": 0, "Unit": "%"}


def test_an_allocation_that_its_client_reported_has_a_network_status() -> None:
    placed = factories.alloc()
    assert allocation_wire(placed)["NetworkStatus"] is None
    reported = replace(placed, task_states={"main": TaskState(state="running")})
    assert allocation_wire(reported)["NetworkStatus"] == {
        "Address": "", "AddressIPv6": "", "DNS": None, "InterfaceName": "",
    }  # fmt: skip
    own = AllocNetworkStatus(interface_name="eth0", address="172.26.64.2")
    assert allocation_wire(replace(reported, network_status=own))["NetworkStatus"]["Address"] == "172.26.64.2"
