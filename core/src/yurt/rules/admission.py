"""Adds implied constraints and policy targets to a job at admission.

A group's tasks need nodes that know the signals which they are sent, that register services without Consul where they
have such ones, and that know NUMA where they ask for it. All of it stands in the job that clients read, as in Nomad; a
second time adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from yurt.rules.workload_claims import AUDIENCE

Data = dict[str, Any]

SERVICES: Final[Data] = {"LTarget": "${attr.nomad.service_discovery}", "RTarget": "true", "Operand": "="}
CHECKS: Final[Data] = {"LTarget": "${attr.nomad.version}", "RTarget": ">= 1.4.0", "Operand": "semver"}
NUMA: Final[tuple[Data, ...]] = (
    {"LTarget": "${attr.nomad.version}", "RTarget": ">= 1.7.0-dev", "Operand": "semver"},
    {"LTarget": "${attr.kernel.name}", "RTarget": "linux", "Operand": "="},
)
_FIELDS = ("LTarget", "RTarget", "Operand")


def admitted(job: Data) -> Data:
    """Complete a canonical job, in place, and return it."""
    for group in job.get("TaskGroups") or ():
        _add_constraints(group)
        target = {"Namespace": job["Namespace"], "Job": job["ID"], "Group": group["Name"]}
        if group.get("Scaling"):
            group["Scaling"]["Target"] = target
        for task in group.get("Tasks") or ():
            if _is_default_identity(task.get("Identity")):
                task["Identity"] = None
            for policy in task.get("ScalingPolicies") or ():
                policy["Target"] = target | {"Task": task["Name"]}
    return job


def _add_constraints(group: Data) -> None:
    present = list(group.get("Constraints") or ())
    present_keys = {_key(each) for each in present}
    added = [each for each in _implied(group) if _key(each) not in present_keys]
    if added:
        group["Constraints"] = [*present, *(dict(each) for each in added)]


def _is_default_identity(identity: Data | None) -> bool:
    """Whether an identity block equals the default one, which the API writes out and clients send back."""
    fields = {name: value for name, value in (identity or {}).items() if value}
    audience = list(fields.pop("Audience", ()))
    return audience == [AUDIENCE] and fields in ({}, {"Name": "default"})


def _key(constraint: Data) -> tuple[Any, ...]:
    return tuple(constraint.get(field) or "" for field in _FIELDS)


def _implied(group: Data) -> Iterator[Data]:
    tasks = group.get("Tasks") or ()
    signals = sorted({signal for task in tasks for signal in _signals(task)} | set(_saving_signal(group)))
    if signals:
        yield {"LTarget": "${attr.os.signals}", "RTarget": ",".join(signals), "Operand": "set_contains"}
    services = [*_native(group), *(service for task in tasks for service in _native(task))]
    if services:
        yield SERVICES
    if any(service.get("Checks") for service in services):
        yield CHECKS
    if any(_asks_for_numa(task) for task in tasks):
        yield from NUMA


def _signals(task: Data) -> Iterator[str]:
    """The signals that the task's blocks name."""
    if task.get("KillSignal"):
        yield task["KillSignal"]
    for block in (*(task.get("Templates") or ()), *((task["Vault"],) if task.get("Vault") else ())):
        if block.get("ChangeMode") == "signal" and block.get("ChangeSignal"):
            yield block["ChangeSignal"]


def _saving_signal(group: Data) -> Iterator[str]:
    """The signal for saving work before preemption; SIGTERM, which every node has, adds no constraint."""
    signal = (group.get("Checkpoint") or {}).get("Signal") or "SIGTERM"
    if signal != "SIGTERM":
        yield signal


def _native(owner: Data) -> Iterable[Data]:
    """The services whose provider is the cluster itself."""
    return (service for service in owner.get("Services") or () if service.get("Provider") == "nomad")


def _asks_for_numa(task: Data) -> bool:
    numa = (task.get("Resources") or {}).get("NUMA")
    return numa is not None and numa.get("Affinity") not in (None, "", "none")
