"""What the servers add to a job that they take in."""

from __future__ import annotations

from typing import Any

from yurt.rules.admission import admitted
from yurt.rules.canonical import canonicalize_job

SIGNALS = {"LTarget": "${attr.os.signals}", "RTarget": "SIGHUP,SIGINT", "Operand": "set_contains"}
SERVICES = {"LTarget": "${attr.nomad.service_discovery}", "RTarget": "true", "Operand": "="}
CHECKS = {"LTarget": "${attr.nomad.version}", "RTarget": ">= 1.4.0", "Operand": "semver"}


def admitted_group(group: dict[str, Any], *tasks: dict[str, Any]) -> dict[str, Any]:
    job = {"ID": "web", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "main", **task} for task in tasks], **group}]}
    found: dict[str, Any] = admitted(canonicalize_job(job))["TaskGroups"][0]
    return found


def test_signals_and_services_become_constraints_once() -> None:
    template = {"ChangeMode": "signal", "ChangeSignal": "sighup"}
    service = {"Provider": "nomad", "Checks": [{"Type": "tcp"}]}
    own = {"LTarget": "${attr.os.name}", "RTarget": "debian", "Operand": "="}

    group = admitted_group({"Constraints": [own, SERVICES], "Services": [service]}, {
        "KillSignal": "SIGINT", "Templates": [template],
    })  # fmt: skip

    assert group["Constraints"] == [own, SERVICES, SIGNALS, CHECKS]


def test_a_job_that_needs_nothing_gets_no_constraint() -> None:
    group = admitted_group({"Services": [{"Provider": "consul"}]}, {"Templates": [{"ChangeMode": "restart"}]})

    assert not group.get("Constraints")


def test_policies_of_scaling_name_their_target() -> None:
    group = admitted_group({"Scaling": {"Max": 3}}, {"ScalingPolicies": [{"Type": "vertical_cpu"}]})

    target = {"Namespace": "default", "Job": "web", "Group": "g"}
    assert group["Scaling"]["Target"] == target
    assert group["Tasks"][0]["ScalingPolicies"][0]["Target"] == {**target, "Task": "main"}


def test_the_default_identity_means_the_same_as_none() -> None:
    default = {"Name": "default", "Audience": ["nomadproject.io"], "Env": False, "TTL": 0}
    named, shown = admitted_group({}, {"Identity": default}, {"Identity": {**default, "Env": True}})["Tasks"]

    assert named["Identity"] is None and shown["Identity"]["Env"] is True
