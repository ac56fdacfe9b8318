"""What is stored and has no effect is told when a job is registered; what a task cannot do without stops it."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.api.decode import decode_job
from yurt.client.requirements import unavailable
from yurt.rules.validation.job import validate_job


def job(*, task: dict[str, Any] | None = None, **group: Any) -> dict[str, Any]:
    """A job with these fields in its group and its task."""
    made = {"Name": "t", "Driver": "d", **(task or {})}
    return {"ID": "j", "Type": "batch", "Datacenters": ["*"], "TaskGroups": [{"Name": "g", "Tasks": [made], **group}]}


def warnings_of(document: dict[str, Any]) -> tuple[str, ...]:
    """What registering warns of; the job is valid."""
    errors, warnings = validate_job(decode_job(document)[0])
    assert errors == ()
    return warnings


def test_a_plain_job_has_no_warnings() -> None:
    network = {"Mode": "host", "DynamicPorts": [{"Label": "http"}], "DNS": {"Servers": []}, "MBits": 0}
    numa = {"Resources": {"NUMA": {"Affinity": "none"}}}

    assert warnings_of(job(task=numa, Networks=[network], EphemeralDisk={"Sticky": True})) == ()


@pytest.mark.parametrize(
    ("field", "document"),
    [
        ("consul", job(Consul={"Namespace": "n"})),
        ("network.cni", job(Networks=[{"CNI": {"Args": {"a": "b"}}}])),
        ("network.cidr", job(Networks=[{"CIDR": "10.0.0.0/8"}])),
        ("network.ip", job(Networks=[{"IP": "10.0.0.1"}])),
        ("network.device", job(Networks=[{"Device": "eth1"}])),
        ("network.mbits", job(Networks=[{"MBits": 10}])),
    ],
)
def test_a_field_of_a_group_without_effect_is_named(field: str, document: dict[str, Any]) -> None:
    assert warnings_of(document) == (f'Group "g" has warnings: {field} has no effect in this version',)


@pytest.mark.parametrize(
    ("field", "task"),
    [
        ("resources.numa", {"Resources": {"Cores": 1, "NUMA": {"Affinity": "require"}}}),
        ("resources.iops", {"Resources": {"IOPS": 5}}),
        ("kind", {"Kind": "connect-proxy:web"}),
        ('scaling "cpu"', {"ScalingPolicies": [{"Type": "vertical_cpu", "Max": 5}]}),
        ('identity "db"', {"Identities": [{"Name": "db", "Audience": ["db"], "TTL": 3_600_000_000_000}]}),
    ],
)
def test_a_field_of_a_task_without_effect_is_named(field: str, task: dict[str, Any]) -> None:
    prefix = 'Group "g" has warnings: Task "t" has warnings: '
    assert warnings_of(job(task=task)) == (f"{prefix}{field} has no effect in this version",)


@pytest.mark.parametrize(
    "document",
    [
        job(EphemeralDisk={"Sticky": True, "Migrate": True}),
        job(Networks=[{"DNS": {"Servers": ["10.0.0.1"]}}]),
        job(Networks=[{"Mode": "bridge", "CNI": {"Args": {"a": "b"}}}]),
        job(task={"Resources": {"SecretsMB": 5}}),
        job(task={"Resources": {"NUMA": {"Affinity": "require"}, "Devices": [{"Name": "nvidia/gpu"}]}}),
        job(Services=[{"Name": "web", "Provider": "nomad"}], ShutdownDelay=1),
        job(task={"Services": [{"Name": "web", "Provider": "nomad"}], "ShutdownDelay": 1}),
        job() | {"Type": "batch", "Periodic": {"Specs": ["0 3 * * *"], "SpecType": "cron"}},
    ],
)
def test_what_has_its_effect_is_not_warned_of(document: dict[str, Any]) -> None:
    assert warnings_of(document) == ()


CSI_BLOCK = {
    "Name": "v", "Type": "csi", "Source": "s", "AccessMode": "single-node-writer", "AttachmentMode": "block-device",
}  # fmt: skip
HOST = {"Name": "v", "Type": "host", "Source": "s"}


def mount(label: str) -> dict[str, str]:
    return {"Volume": "v", "Destination": "/d", "SELinuxLabel": label}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (job(Services=[{"Name": "web", "Provider": "nomad"}]), "it has services but no shutdown_delay"),
        (job(task={"Services": [{"Name": "web", "Provider": "nomad"}]}), "it has services but no shutdown_delay"),
        (job(task={"Resources": {"DiskMB": 300}}), "disk in resources has no effect"),
        (job(Volumes={"v": CSI_BLOCK}), 'volume "v": attachment_mode "block-device" is not available'),
        (job(Volumes={"v": HOST}, task={"VolumeMounts": [mount("z")]}), "only with drivers of containers"),
        (job(Volumes={"v": HOST}, task={"VolumeMounts": [mount("x:y")]}), 'selinux_label "x:y" has no effect'),
        (
            job() | {"Type": "batch", "Periodic": {"Spec": "0 3 * * *", "SpecType": "cron"}},
            "periodic: cron is deprecated",
        ),
    ],
)
def test_what_is_accepted_and_probably_not_meant_is_warned_of(document: dict[str, Any], told: str) -> None:
    (found,) = warnings_of(document)
    assert told in found


@pytest.mark.parametrize(
    ("what", "task"),
    [
        ("vault", {"Vault": {"Role": "r"}}),
        ("consul", {"Consul": {"Namespace": "n"}}),
        ("connect gateway", {"Services": [{"Name": "w", "Provider": "consul", "Connect": {"Gateway": {"Mesh": {}}}}]}),
        ("secret", {"Secrets": [{"Name": "s", "Provider": "nomad", "Path": "p"}]}),
        ("identity 'consul_default'", {"Identities": [{"Name": "consul_default", "Audience": ["consul"]}]}),
        ("identity 'vault_default'", {"Identities": [{"Name": "vault_default", "Audience": ["vault"]}]}),
    ],
)
def test_a_task_that_asks_for_a_token_or_a_secret_is_refused(what: str, task: dict[str, Any]) -> None:
    group = decode_job(job(task=task))[0].task_groups[0]

    assert unavailable(group, group.tasks[0]).startswith(f"{what} is not available in this version")
    assert any(f"{what} is not available in this version" in text for text in warnings_of(job(task=task)))


def test_a_comparison_with_nothing_is_doubted_and_the_operator_named() -> None:
    constraint = {"LTarget": "${attr.k}", "Operand": "=", "RTarget": ""}
    sound = {"LTarget": "${attr.k}", "Operand": "is_set"}

    (found,) = warnings_of(job() | {"Constraints": [constraint, sound]})

    assert found.startswith('constraint ${attr.k} = "" is met only where it is set and empty')
    assert found.endswith('write operator = "is_set" or "is_not_set"')


def test_a_group_that_is_only_a_gateway_is_told_that_gateways_are_not_available() -> None:
    gateway = {"Name": "edge", "Provider": "consul", "Connect": {"Gateway": {"Ingress": {}}}}
    document = job(Services=[gateway]) | {}
    document["TaskGroups"][0]["Tasks"] = []

    problems, _ = validate_job(decode_job(document)[0])

    assert any('service "edge" is a Connect gateway, and gateways are not available' in text for text in problems)
