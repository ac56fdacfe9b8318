"""Edits: single changes of a job or a node, applied and described in words.

An edit with numbers leads from one to another; two edits of the same thing that follow each other are one edit, from
the number of the first to that of the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from yurt.scheduler.constraints.operators import DISTINCT_HOSTS, DISTINCT_PROPERTY
from yurt.scheduler.feasibility.distinct import limit_of
from yurt.sdk.value import replace
from yurt.structs.constraint import Constraint
from yurt.structs.explain.explanation import EditKind, SuggestedEdit
from yurt.structs.job import Job, TaskGroup
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import DriverInfo, HostVolumeInfo, Node
from yurt.structs.resources import RequestedDevice
from yurt.structs.status import ELIGIBLE
from yurt.structs.task import Task

EQUIPMENT = frozenset({"driver", "volume", "network"})
"""Kinds of edits that install something on a node."""


def numbered(
    kind: EditKind, before: int, after: int, *, task: str = "", name: str = "", constraint: Constraint | None = None
) -> SuggestedEdit:
    """An edit from one number to another."""
    made = SuggestedEdit(kind=kind, text="", task=task, name=name, before=before, after=after, constraint=constraint)
    return replace(made, text=_text(made))


def with_numbers(edit: SuggestedEdit, *, before: int, after: int) -> SuggestedEdit:
    """The edit with other numbers; one without numbers is unchanged."""
    if edit.before == before and edit.after == after:
        return edit
    return numbered(edit.kind, before, after, task=edit.task, name=edit.name, constraint=edit.constraint)


def _text(edit: SuggestedEdit) -> str:
    """The text of an edit with numbers."""
    before, after = edit.before, edit.after
    match edit.kind:
        case "cpu":
            return f'lower the cpu of task "{edit.task}" from {before} to {after} MHz'
        case "memory":
            return f'lower the memory of task "{edit.task}" from {before} to {after} MB'
        case "disk":
            return f"lower the disk of the group from {before} to {after} MB"
        case "cores":
            return f'ask {after} instead of {before} cores in task "{edit.task}"'
        case "device_memory":
            return f'lower the memory of device "{edit.name}" in task "{edit.task}" from {before} to {after} MiB'
        case "device" if after > 0:
            return f'ask {after} instead of {before} of device "{edit.name}" in task "{edit.task}"'
        case "device":
            return f'leave out the device "{edit.name}" of task "{edit.task}"'
        case _:
            assert edit.kind == DISTINCT_PROPERTY and edit.constraint is not None, edit
            return f"raise the limit of {DISTINCT_PROPERTY}: {edit.constraint.l_target} from {before} to {after}"


def volume_text(name: str, place: str, *, is_there: bool) -> str:
    """The text of an edit of a host volume at a place, "node a": to make it writable where it is there, or offer it."""
    text = f'make the host volume "{name}" writable' if is_there else f'offer the host volume "{name}"'
    return f"{text} on {place}"


def text_of(edits: Sequence[SuggestedEdit]) -> str:
    """The text of a change of several edits."""
    return "; ".join(edit.text for edit in edits)


def joined(first: Sequence[SuggestedEdit], then: Sequence[SuggestedEdit]) -> tuple[SuggestedEdit, ...]:
    """The edits of two consecutive changes, merged by subject."""
    edits = {_subject(edit): edit for edit in first}
    for edit in then:
        earlier = edits.get(_subject(edit), edit)
        edits[_subject(edit)] = with_numbers(edit, before=earlier.before, after=edit.after)
    return tuple(edits.values())


def _subject(edit: SuggestedEdit) -> tuple[object, ...]:
    return (edit.kind, edit.task, edit.name, edit.constraint, edit.node_id)


def apply_edits(job: Job, group_name: str, edits: Sequence[SuggestedEdit]) -> Job:
    """The job with its edits applied; those of nodes are skipped."""
    for edit in edits:
        job = _apply(job, group_name, edit)
    return job


def _apply(job: Job, group_name: str, edit: SuggestedEdit) -> Job:
    group = job.group(group_name)
    assert group is not None
    match edit.kind:
        case "datacenter":
            return replace(job, datacenters=(*job.datacenters, edit.name))
        case "node_pool":
            return replace(job, node_pool=edit.name)
        case "constraint" | "distinct_hosts" | "distinct_property":
            return _without(job, group, edit)
        case "disk":
            changed = replace(group, ephemeral_disk=replace(group.ephemeral_disk, size_mb=edit.after))
        case "cpu" | "memory" | "cores" | "device" | "device_constraint" | "device_memory":
            tasks = tuple(_changed_task(task, edit) if task.name == edit.task else task for task in group.tasks)
            changed = replace(group, tasks=tasks)
        case "port" | "host_network":
            changed = _changed_ports(group, edit)
        case "driver" | "volume" | "network" | "eligibility":
            return job
        case _:
            assert_never(edit.kind)
    return _with_group(job, changed)


def _with_group(job: Job, changed: TaskGroup) -> Job:
    groups = (changed if group.name == changed.name else group for group in job.task_groups)
    return replace(job, task_groups=tuple(groups))


def _changed_task(task: Task, edit: SuggestedEdit) -> Task:
    resources = task.resources
    match edit.kind:
        case "cpu":
            resources = replace(resources, cpu=edit.after)
        case "memory":
            resources = replace(resources, memory_mb=edit.after)
        case "cores":
            resources = replace(resources, cores=edit.after)
        case _:
            resources = replace(resources, devices=_changed_devices(resources.devices, edit))
    return replace(task, resources=resources)


def _changed_devices(devices: tuple[RequestedDevice, ...], edit: SuggestedEdit) -> tuple[RequestedDevice, ...]:
    """The device requests with the first one that an edit names changed or removed."""
    field = "memory_mb" if edit.kind == "device_memory" else "count"
    for at, device in enumerate(devices):
        if device.name != edit.name:
            continue
        if edit.kind == "device_constraint":
            if edit.constraint not in device.constraints:
                continue
            rules = tuple(rule for rule in device.constraints if rule != edit.constraint)
            changed = [replace(device, constraints=rules)]
        elif getattr(device, field) == edit.before:
            changed = [replace(device, **{field: edit.after})] if edit.after > 0 else []
        else:
            continue
        return (*devices[:at], *changed, *devices[at + 1 :])
    return devices


def _without(job: Job, group: TaskGroup, edit: SuggestedEdit) -> Job:
    rule = edit.constraint
    assert rule is not None

    def without_rule(constraints: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
        retained = []
        for each in constraints:
            is_same_rule = each.operand == rule.operand and each.l_target == rule.l_target
            if edit.kind == "constraint":
                is_it = each == rule
            else:
                is_it = each.operand == DISTINCT_HOSTS if edit.kind == "distinct_hosts" else is_same_rule
            if not is_it:
                retained.append(each)
            elif edit.after > 0:
                retained.append(replace(each, r_target=str(max(edit.after, limit_of(each)))))
        return tuple(retained)

    tasks = tuple(replace(task, constraints=without_rule(task.constraints)) for task in group.tasks)
    changed = replace(group, constraints=without_rule(group.constraints), tasks=tasks)
    return _with_group(replace(job, constraints=without_rule(job.constraints)), changed)


def _changed_ports(group: TaskGroup, edit: SuggestedEdit) -> TaskGroup:
    def changed(network: NetworkResource) -> NetworkResource:
        fixed, dynamic = list(network.reserved_ports), list(network.dynamic_ports)
        if edit.kind == "port":
            dynamic += [replace(port, value=0) for port in fixed if port.label == edit.name]
            fixed = [port for port in fixed if port.label != edit.name]
        else:
            fixed, dynamic = _on_default(fixed, edit.name), _on_default(dynamic, edit.name)
        return replace(network, reserved_ports=tuple(fixed), dynamic_ports=tuple(dynamic))

    tasks = tuple(
        replace(task, resources=replace(task.resources, networks=tuple(map(changed, task.resources.networks))))
        for task in group.tasks
    )
    return replace(group, networks=tuple(map(changed, group.networks)), tasks=tasks)


def _on_default(ports: list[Port], label: str) -> list[Port]:
    """The ports with the named one moved to the default host network."""
    return [replace(port, host_network="") if port.label == label else port for port in ports]


def edited_node(node: Node, edit: SuggestedEdit) -> Node:
    """The node with an operator's edit applied."""
    match edit.kind:
        case "driver":
            return replace(node, drivers={**node.drivers, edit.name: DriverInfo(detected=True, healthy=True)})
        case "volume":
            present = node.host_volumes.get(edit.name, HostVolumeInfo())
            return replace(node, host_volumes={**node.host_volumes, edit.name: replace(present, read_only=False)})
        case "network":
            resources = node.node_resources
            made = (*resources.networks, NetworkResource(mode=edit.name))
            return replace(node, node_resources=replace(resources, networks=made))
        case _:
            assert edit.kind == "eligibility", edit
            return replace(node, scheduling_eligibility=ELIGIBLE)
