"""Texts of `yurt service`."""

from __future__ import annotations

from typing import Any

SERVICE = {
    "ID": "_nomad-task-a", "ServiceName": "api", "Namespace": "default", "NodeID": "n" * 36, "Datacenter": "dc1",
    "JobID": "web", "AllocID": "a" * 36, "Tags": ["blue", "v2"], "Address": "10.0.0.1", "Port": 8080,
}  # fmt: skip
LIST = [{"Namespace": "default", "Services": [{"ServiceName": "api", "Tags": ["a"]}, {"ServiceName": "db"}]}]


def test_services_are_listed_with_tags(api: Any, run: Any) -> None:
    api.answers["/v1/services"] = LIST
    assert run("service", "list")[1] == "Service Name  Tags\napi           [a]\ndb            []\n"
    assert run("service", "list", "-namespace", "*", "-name", "db")[1].splitlines()[1].split() == [
        "db",
        "default",
        "[]",
    ]


def test_no_services_are_told(api: Any, run: Any) -> None:
    api.answers |= {"/v1/services": [], "/v1/service/none": []}
    assert run("service", "list")[1] == "No service registrations found\n"
    assert run("service", "info", "none")[1] == "No service registrations found\n"


def test_instances_of_a_service(api: Any, run: Any) -> None:
    api.answers["/v1/service/api"] = [SERVICE]
    assert run("service", "info", "api")[1].splitlines()[1].split() == [
        "web", "10.0.0.1:8080", "[blue,v2]", "nnnnnnnn", "aaaaaaaa",
    ]  # fmt: skip
    lines = run("service", "info", "-verbose", "api")[1].splitlines()
    assert lines[0] == "ID           = _nomad-task-a"
    assert lines[-1] == "Tags         = [blue,v2]"


def test_an_instance_is_deleted(api: Any, run: Any) -> None:
    api.answers["/v1/service/api/x"] = b""
    assert run("service", "delete", "api", "x") == (0, "Successfully deleted service registration\n", "")
    assert api.asked[0][:2] == ("DELETE", "/v1/service/api/x")


def test_checks_of_an_allocation(api: Any, run: Any) -> None:
    alloc_id = "11111111-2222-3333-4444-555555555555"
    check = {
        "ID": "c" * 32, "Check": "alive", "Group": "g", "Task": "", "Service": "api", "Status": "failure",
        "StatusCode": 503, "Mode": "healthiness", "Timestamp": 0, "Output": "ill",
    }  # fmt: skip
    api.answers |= {
        "/v1/allocations": [{"ID": alloc_id}],
        f"/v1/allocation/{alloc_id}": {"ID": alloc_id},
        f"/v1/client/allocation/{alloc_id}/checks": {check["ID"]: check},
    }
    code, out, _ = run("alloc", "checks", "11111111")
    assert (code, out.splitlines()[0]) == (0, "Status of 1 Nomad Service Checks")
    assert "Task       = (group)" in out
    assert "StatusCode = 503" in out
