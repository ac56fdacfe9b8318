"""Changes: the least that has to change so that a node takes one more allocation of a group, and jobs with it applied.

What a node needs is determined: each constraint that it fails is dropped, each amount lowered by exactly what is
short. So the least change of all is that of some node, by a cost that grows with every part of a change: changes of
nodes' equipment cost more than any change of the job, then the number of edits counts, then their relative size.
Allocations of the group that are on the node already would shrink with the group: what is short is shared with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from yurt.scheduler.blockers import AMOUNTS, Blocked, Problem, cpu_with_cores
from yurt.scheduler.devices import has_devices
from yurt.scheduler.distinct import limit_of
from yurt.scheduler.feasible import text_of_constraint
from yurt.scheduler.operators import DISTINCT_HOSTS, DISTINCT_PROPERTY
from yurt.scheduler.ports import grant_ports
from yurt.scheduler.shortfalls import missing_networks
from yurt.sdk.value import replace
from yurt.state.columns import CPU, DISK
from yurt.state.held import NOTHING_HELD
from yurt.structs.constraint import Constraint
from yurt.structs.explain import Edit
from yurt.structs.job import Job, TaskGroup
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import DriverInfo, HostVolumeInfo, Node
from yurt.structs.resources import RequestedDevice
from yurt.structs.status import ELIGIBLE
from yurt.structs.task import Task

CPU_MIN, MEMORY_MIN, DISK_MIN = 1, 10, 10
EQUIPMENT = frozenset({"driver", "volume", "network"})
HOPELESS = frozenset({"status", "drain", "csi", "volume_claim", "max_allocs", "claim"})
WHOLE = frozenset({"port", "host_network", "device", "cores"})
"""Kinds whose edits answer all problems of the kind at once."""

LEFT_OUT = 1.5
"""The size of asking nothing of a device any more: to drop one of its constraints changes less."""

Cost = tuple[int, int, float]
"""(edits of a node's equipment, edits, their sizes relative to what is asked)."""


class Change(NamedTuple):
    """What a row needs."""

    cost: Cost
    edits: tuple[Edit, ...]


def change_for(blocked: Blocked, row: int) -> Change | None:
    """What has to change so that the row takes one more; None when no change of job or node that we know does it."""
    edits: list[Edit] = []
    weight = 0.0
    whole: set[str] = set()
    for problem in blocked.of_row(row):
        if problem.kind in whole:
            continue
        if problem.kind in WHOLE:
            whole.add(problem.kind)
        found = _edits(blocked, row, problem)
        if found is None:
            return None
        for edit, size in found:
            edits.append(edit)
            weight += size
    equipment = sum(1 for edit in edits if edit.kind in EQUIPMENT)
    change = Change((equipment, len(edits), weight), tuple(edits))
    return change if _is_enough(blocked, row, change) else None


Sized = tuple[Edit, float]


def _edits(blocked: Blocked, row: int, problem: Problem) -> list[Sized] | None:
    placer, node = blocked.placer, blocked.view.node(row)
    job = placer.job
    match problem.kind:
        case "cpu" | "memory" | "disk":
            return _amount(blocked, row, problem.kind)
        case "constraint":
            assert problem.subject is not None
            text = f"drop the constraint {problem.text}"
            return [(Edit(kind="constraint", text=text, constraint=problem.subject), 1.0)]
        case "distinct_hosts" | "distinct_property":
            return [(_distinct_edit(blocked, row, problem), 1.0)]
        case "datacenter":
            text = f'add the datacenter "{node.datacenter}"'
            return [(Edit(kind="datacenter", text=text, name=node.datacenter), 1.0)]
        case "node_pool":
            text = f'use the node pool "all" instead of "{job.node_pool}"'
            return [(Edit(kind="node_pool", text=text, name="all"), 1.0)]
        case "eligibility":
            text = f"make node {node.name or node.id[:8]} eligible"
            return [(Edit(kind="eligibility", text=text, node_id=node.id), 1.0)]
        case "driver":
            return [(edit, 1.0) for edit in _drivers(blocked, row)]
        case "network":
            return [(edit, 1.0) for edit in _networks(blocked, row)]
        case "volume":
            return [(edit, 1.0) for edit in _volumes(blocked, row)]
        case "host_network":
            return [(edit, 1.0) for edit in _host_networks(blocked, row)]
        case "port":
            return _ports(blocked, row)
        case "device":
            return device_edits(blocked, row)
        case "cores":
            return _cores(blocked, row)
        case _:
            return None


def _amount(blocked: Blocked, row: int, kind: str) -> list[Sized] | None:
    column, _, unit = next(entry for entry in AMOUNTS if entry[1] == kind)
    short = int(blocked.short(column)[row])
    cut = -(-short // (int(blocked.own[row]) + 1))
    group = blocked.placer.group
    asked = blocked.asked[column]
    if column == CPU and blocked.placer.ask.cores:
        return _cores_for_cpu(blocked, row)
    if column == DISK:
        least, after = _disk_min(group), asked - cut
        if after < least:
            return None
        text = f"lower the disk of the group from {asked} to {after} MB"
        return [(Edit(kind="disk", text=text, before=asked, after=after), cut / asked)]
    lowered = lowered_tasks(group, kind, asked - cut)
    if lowered is None:
        return None
    before = {task.name: _amount_of(task, kind) for task in group.tasks}
    edits = [
        Edit(
            kind=kind,
            text=f'lower the {kind} of task "{name}" from {before[name]} to {after} {unit}',
            task=name,
            before=before[name],
            after=after,
        )
        for name, after in lowered.items()
    ]
    return [(edit, cut / asked / len(edits)) for edit in edits]


def _amount_of(task: Task, kind: str) -> int:
    if kind == "cpu":
        return 0 if task.resources.cores else task.resources.cpu
    return task.resources.memory_mb


def _least_of(task: Task, kind: str) -> int:
    if kind == "cpu":
        return 0 if task.resources.cores else CPU_MIN
    return max(MEMORY_MIN, task.resources.secrets_mb)


def _disk_min(group: TaskGroup) -> int:
    logs = (t.log_config.max_files * t.log_config.max_file_size_mb for t in group.tasks if t.log_config is not None)
    return max(DISK_MIN, 1 + max(logs, default=0))


def lowered_tasks(group: TaskGroup, kind: str, target: int) -> dict[str, int] | None:
    """New amounts of the tasks to lower so that an allocation asks `target`; None when it cannot be so little.

    Tasks that never run together share, so every phase is brought down to what the sidecars leave, its largest tasks
    first; the sidecars are lowered only when nothing else is left.
    """
    phases: dict[str, list[Task]] = {"sidecar": [], "prestart": [], "main": [], "poststop": []}
    for task in group.tasks:
        phases[_phase(task)].append(task)
    amounts = {task.name: _amount_of(task, kind) for task in group.tasks}
    sidecars = sum(amounts[task.name] for task in phases["sidecar"])
    largest = 0
    for name in ("prestart", "main", "poststop"):
        least = sum(_least_of(task, kind) for task in phases[name])
        _lower(phases[name], amounts, kind, max(least, target - sidecars))
        largest = max(largest, sum(amounts[task.name] for task in phases[name]))
    _lower(phases["sidecar"], amounts, kind, target - largest)
    if largest + sum(amounts[task.name] for task in phases["sidecar"]) > target:
        return None
    return {task.name: amounts[task.name] for task in group.tasks if amounts[task.name] != _amount_of(task, kind)}


def _phase(task: Task) -> str:
    lifecycle = task.lifecycle
    if lifecycle is None or lifecycle.hook not in ("prestart", "poststop"):
        return "main"
    if lifecycle.hook == "poststop":
        return "poststop"
    return "sidecar" if lifecycle.sidecar else "prestart"


def _lower(tasks: list[Task], amounts: dict[str, int], kind: str, target: int) -> None:
    """Bring the sum of some tasks down to the target, the largest first, none below its least."""
    over = sum(amounts[task.name] for task in tasks) - target
    for task in sorted(tasks, key=lambda task: (-amounts[task.name], task.name)):
        cut = min(over, amounts[task.name] - _least_of(task, kind))
        if cut > 0:
            amounts[task.name] -= cut
            over -= cut


def _distinct_edit(blocked: Blocked, row: int, problem: Problem) -> Edit:
    if problem.kind == "distinct_hosts":
        constraint = Constraint(operand=DISTINCT_HOSTS)
        return Edit(kind="distinct_hosts", text="drop the constraint distinct_hosts", constraint=constraint)
    target = problem.text.removeprefix(f"{DISTINCT_PROPERTY}: ")
    used, limit = blocked.placer.distinct.used_of(problem.text, row)
    constraint = Constraint(l_target=target, operand=DISTINCT_PROPERTY)
    if used < 0:
        return Edit(kind="distinct_property", text=f"drop the constraint {problem.text}", constraint=constraint)
    text = f"raise the limit of {problem.text} from {limit} to {used + 1}"
    return Edit(kind="distinct_property", text=text, constraint=constraint, before=limit, after=used + 1)


def _drivers(blocked: Blocked, row: int) -> Iterator[Edit]:
    node = blocked.view.node(row)
    for driver in sorted({task.driver for task in blocked.placer.group.tasks}):
        info = node.drivers.get(driver)
        if info is None or not info.detected:
            text = f'install driver "{driver}" on node {node.name}'
        elif not info.healthy:
            text = f'make driver "{driver}" healthy on node {node.name}'
        else:
            continue
        yield Edit(kind="driver", text=text, name=driver, node_id=node.id)


def _networks(blocked: Blocked, row: int) -> Iterator[Edit]:
    node = blocked.view.node(row)
    for mode, reason in missing_networks(blocked, node):
        text = f'make the network "{mode}" available on node {node.name}'
        yield Edit(kind="network", text=f"{text} ({reason})" if reason else text, name=mode, node_id=node.id)


def _volumes(blocked: Blocked, row: int) -> Iterator[Edit]:
    node = blocked.view.node(row)
    for request in blocked.placer.group.volumes.values():
        if request.type != "host" or request.per_alloc:
            continue
        volume = node.host_volumes.get(request.source)
        if volume is None:
            text = f'offer the host volume "{request.source}" on node {node.name}'
        elif volume.read_only and not request.read_only:
            text = f'make the host volume "{request.source}" writable on node {node.name}'
        else:
            continue
        yield Edit(kind="volume", text=text, name=request.source, node_id=node.id)


def _host_networks(blocked: Blocked, row: int) -> Iterator[Edit]:
    held = blocked.held.get(row)
    for problem in held.ports if held is not None else ():
        if problem.kind == "host_network":
            text = f'leave out host_network of port "{problem.label}"'
            yield Edit(kind="host_network", text=text, name=problem.label)


def _ports(blocked: Blocked, row: int) -> list[Sized] | None:
    labels: dict[str, None] = {}
    for problem in blocked.held[row].ports:
        if problem.kind == "static":
            labels[problem.label] = None
        elif problem.kind != "host_network":
            return None
    return [(Edit(kind="port", text=f'let port "{label}" be dynamic', name=label), 1.0) for label in labels]


def device_edits(blocked: Blocked, row: int) -> list[Sized]:
    """What the group asks less of a row's devices, with the size of each edit."""
    found: list[Sized] = []
    own = int(blocked.own[row])
    for short in blocked.held[row].devices:
        asked, memory = short.request.count, short.request.memory_mb
        if short.room_mb > 0 and not own:
            text = (
                f'lower the memory of device "{short.request.name}" in task "{short.task}" from {memory} to '
                f"{short.room_mb} MiB"
            )
            edit = Edit(
                kind="device_memory",
                text=text,
                task=short.task,
                name=short.request.name,
                before=memory,
                after=short.room_mb,
            )
            found.append((edit, (memory - short.room_mb) / memory))
            continue
        after = (short.free + own * asked) // (own + 1)
        name = short.request.name
        if short.rule is not None and not own:
            rule = text_of_constraint(short.rule)
            text = f'drop the constraint {rule} of device "{name}" in task "{short.task}"'
            edit = Edit(kind="device_constraint", text=text, task=short.task, name=name, constraint=short.rule)
            found.append((edit, 1.0))
            continue
        if after > 0:
            text = f'ask {after} instead of {asked} of device "{name}" in task "{short.task}"'
        else:
            text = f'leave out the device "{name}" of task "{short.task}"'
        edit = Edit(kind="device", text=text, task=short.task, name=name, before=asked, after=after)
        found.append((edit, (asked - after) / asked if after > 0 else LEFT_OUT))
    return found


def _cores(blocked: Blocked, row: int) -> list[Sized] | None:
    """Fewer cores, so few that also their MHz fit."""
    placer, held = blocked.placer, blocked.held[row]
    own, asked = int(blocked.own[row]), placer.ask.cores
    tasks = [task for task in placer.group.tasks if task.resources.cores]
    fitting = (held.cores_free + own * asked) // (own + 1)
    used, offered = int(blocked.view.used[row, CPU]), int(blocked.view.offered[row, CPU])
    whole = cpu_with_cores(placer, held.per_core)
    after = fitting
    while after >= len(tasks):
        cpu = whole - held.per_core * (asked - after)
        if used - own * whole + (own + 1) * cpu <= offered:
            break
        after -= 1
    if after < len(tasks) or after >= asked:
        return None
    cores = {task.name: task.resources.cores for task in tasks}
    for _ in range(asked - after):
        largest = max(cores, key=lambda name: (cores[name], name))
        cores[largest] -= 1
    changed = [task for task in tasks if cores[task.name] != task.resources.cores]
    return [
        (
            Edit(
                kind="cores",
                text=f'ask {cores[task.name]} instead of {task.resources.cores} cores in task "{task.name}"',
                task=task.name,
                before=task.resources.cores,
                after=cores[task.name],
            ),
            (asked - after) / asked / len(changed),
        )
        for task in changed
    ]


def _cores_for_cpu(blocked: Blocked, row: int) -> list[Sized] | None:
    """MHz are short in a group that asks for cores: fewer cores, unless that is said already."""
    if any(problem.kind == "cores" for problem in blocked.of_row(row)):
        return []
    return _cores(blocked, row)


def _is_enough(blocked: Blocked, row: int, change: Change) -> bool:
    """What only the node can tell, asked again with the change applied; allocations of the group there stay out."""
    placer = blocked.placer
    if not placer.ask.has_ports and not placer.ask.devices:
        return True
    job = apply_edits(placer.job, placer.group.name, change.edits)
    group = job.group(placer.group.name)
    assert group is not None
    node = blocked.view.node(row)
    held = blocked.view.held(row) if not blocked.own[row] else NOTHING_HELD
    devices = [device for task in group.tasks for device in task.resources.devices]
    if devices and not has_devices(node, devices):
        return False
    return not isinstance(grant_ports(node, held.ports, group, salt=0), str)


# -- the job with a change applied -------------------------------------------------------------------------------------


def apply_edits(job: Job, group_name: str, edits: tuple[Edit, ...]) -> Job:
    """The job with the edits that concern it; edits of nodes are for their operators."""
    for edit in edits:
        job = _apply(job, group_name, edit)
    return job


def joined(first: tuple[Edit, ...], then: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """The edits of a change and of one that was found after it: those of the same thing become one."""
    edits = {_subject(edit): edit for edit in first}
    for edit in then:
        known = edits.get(_subject(edit))
        edits[_subject(edit)] = edit if known is None else _from(known.before, edit)
    return tuple(edits.values())


def _subject(edit: Edit) -> tuple[object, ...]:
    return (edit.kind, edit.task, edit.name, edit.constraint, edit.node_id)


def _from(before: int, edit: Edit) -> Edit:
    """The edit as it is from another number."""
    text = edit.text.replace(f" from {edit.before} to ", f" from {before} to ")
    text = text.replace(f" instead of {edit.before} ", f" instead of {before} ")
    return replace(edit, text=text, before=before)


def _apply(job: Job, group_name: str, edit: Edit) -> Job:
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
        case _:
            return job
    return _with_group(job, changed)


def _with_group(job: Job, changed: TaskGroup) -> Job:
    groups = (changed if group.name == changed.name else group for group in job.task_groups)
    return replace(job, task_groups=tuple(groups))


def _changed_task(task: Task, edit: Edit) -> Task:
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


def _changed_devices(devices: tuple[RequestedDevice, ...], edit: Edit) -> tuple[RequestedDevice, ...]:
    """The requests with the first that an edit means changed, or left out."""
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


def _without(job: Job, group: TaskGroup, edit: Edit) -> Job:
    rule = edit.constraint
    assert rule is not None

    def kept(constraints: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
        found = []
        for each in constraints:
            is_same_rule = each.operand == rule.operand and each.l_target == rule.l_target
            if edit.kind == "constraint":
                is_it = each == rule
            else:
                is_it = each.operand == DISTINCT_HOSTS if edit.kind == "distinct_hosts" else is_same_rule
            if not is_it:
                found.append(each)
            elif edit.after > 0:
                found.append(replace(each, r_target=str(max(edit.after, limit_of(each)))))
        return tuple(found)

    tasks = tuple(replace(task, constraints=kept(task.constraints)) for task in group.tasks)
    changed = replace(group, constraints=kept(group.constraints), tasks=tasks)
    return _with_group(replace(job, constraints=kept(job.constraints)), changed)


def _changed_ports(group: TaskGroup, edit: Edit) -> TaskGroup:
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
    """The ports with that of the label on the default host network."""
    return [replace(port, host_network="") if port.label == label else port for port in ports]


def edited_node(node: Node, edit: Edit) -> Node:
    """The node as an operator makes it by an edit."""
    match edit.kind:
        case "driver":
            return replace(node, drivers={**node.drivers, edit.name: DriverInfo(detected=True, healthy=True)})
        case "volume":
            known = node.host_volumes.get(edit.name, HostVolumeInfo())
            return replace(node, host_volumes={**node.host_volumes, edit.name: replace(known, read_only=False)})
        case "network":
            resources = node.node_resources
            made = (*resources.networks, NetworkResource(mode=edit.name))
            return replace(node, node_resources=replace(resources, networks=made))
        case _:
            return replace(node, scheduling_eligibility=ELIGIBLE)
