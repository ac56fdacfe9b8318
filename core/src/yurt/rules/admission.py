"""Adds implied constraints and policy targets to a job at admission.

A group's tasks need nodes that know the signals which they are sent, that register services without Consul where they
have such ones, and that know NUMA where they ask for it. All of it stands in the job that clients read, as in Nomad; a
second time adds nothing.
"""

from __future__ import annotations

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
    implied = _implied(group)
    if not implied:
        return
    present = list(group.get("Constraints") or ())
    present_keys = {_key(each) for each in present}
    added = [each for each in implied if _key(each) not in present_keys]
    if added:
        group["Constraints"] = [*present, *(dict(each) for each in added)]


def _is_default_identity(identity: Data | None) -> bool:
    """Whether an identity block equals the default one, which the API writes out and clients send back."""
    if not identity:
        return False
    fields = {name: value for name, value in identity.items() if value}
    audience = list(fields.pop("Audience", ()))
    return audience == [AUDIENCE] and fields in ({}, {"Name": "default"})


def _key(constraint: Data) -> tuple[Any, ...]:
    return tuple(constraint.get(field) or "" for field in _FIELDS)


def _implied(group: Data) -> list[Data]:
    """The constraints that follow from what a group's tasks ask for; mostly none, so it costs little without any."""
    found: list[Data] = []
    services, signals, asks_for_numa = _native(group), _saving_signals(group), False
    for task in group.get("Tasks") or ():
        services += _native(task)
        signals.update(_signals(task))
        asks_for_numa = asks_for_numa or _asks_for_numa(task)
    if signals:
        found.append({"LTarget": "${attr.os.signals}", "RTarget": ",".join(sorted(signals)), "Operand": "set_contains"})
    if services:
        found.append(SERVICES)
        found += [CHECKS] if any(service.get("Checks") for service in services) else []
    if asks_for_numa:
        found += NUMA
    return found


def _signals(task: Data) -> list[str]:
    """The signals that the task's blocks name."""
    signals = [task["KillSignal"]] if task.get("KillSignal") else []
    templates, vault = task.get("Templates"), task.get("Vault")
    if templates or vault:
        for block in (*(templates or ()), *((vault,) if vault else ())):
            if block.get("ChangeMode") == "signal" and block.get("ChangeSignal"):
                signals.append(block["ChangeSignal"])
    return signals


def _saving_signals(group: Data) -> set[str]:
    """The signal for saving work before preemption; SIGTERM, which every node has, adds no constraint."""
    checkpoint = group.get("Checkpoint")
    signal = checkpoint.get("Signal") if checkpoint else None
    return {signal} - {"SIGTERM"} if signal else set()


def _native(owner: Data) -> list[Data]:
    """The services whose provider is the cluster itself."""
    services = owner.get("Services")
    return [service for service in services if service.get("Provider") == "nomad"] if services else []


def _asks_for_numa(task: Data) -> bool:
    numa = (task.get("Resources") or {}).get("NUMA")
    return numa is not None and numa.get("Affinity") not in (None, "", "none")
