"""The smallest change with which one node accepts one more allocation of a group.

The change for a node is determined: drop each constraint that it fails, lower each amount by exactly the shortage.
The smallest change of all is that of the node with the lowest cost. Costs compare by the number of edits to a node's
equipment, then by the number of edits, then by their relative size. Allocations of the group that already run on the
node shrink with the group, so they share the shortage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec

from yurt.scheduler.capacity.ports import grant_ports
from yurt.scheduler.constraints.operators import DISTINCT_HOSTS, DISTINCT_PROPERTY
from yurt.scheduler.devices.offers import has_devices
from yurt.scheduler.explain.blockers import AMOUNTS, NodeBlockers, NodeProblem, cpu_with_cores
from yurt.scheduler.explain.device_shortage import DeviceShortage
from yurt.scheduler.explain.edits import EQUIPMENT, apply_edits, numbered, volume_text
from yurt.scheduler.explain.missing_requirements import (
    missing_drivers,
    missing_networks,
    missing_volumes,
    plugin_problem,
)
from yurt.scheduler.feasibility.masks import text_of_constraint
from yurt.state.columns import CPU
from yurt.state.exclusive_resources import NOTHING_IN_USE
from yurt.structs.constraint import Constraint
from yurt.structs.explain.explanation import AmountKind, SuggestedEdit
from yurt.structs.job import TaskGroup
from yurt.structs.node import DriverInfo, Node
from yurt.structs.task import Task

CPU_MIN, MEMORY_MIN, DISK_MIN = 1, 10, 10
HOPELESS = frozenset({"status", "drain", "csi", "volume_claim", "max_allocs", "claim"})
WHOLE = frozenset({"port", "host_network", "device", "cores"})
"""Kinds of edits that resolve all problems of their kind at once."""

OMITTED = 1.5
"""The size of an edit that drops a device request; dropping one of its constraints is a smaller edit."""

Cost = tuple[int, int, float]
"""(number of edits of a node's equipment, number of edits, their sizes relative to the requested amounts)."""


class NodeChange(msgspec.Struct, frozen=True):
    """The edits for a row, with their size."""

    cost: Cost
    edits: tuple[SuggestedEdit, ...]


def change_for(blockers: NodeBlockers, row: int) -> NodeChange | None:
    """The change with which the row accepts one more; None if no available edit of job or node suffices."""
    edits: list[SuggestedEdit] = []
    weight = 0.0
    whole: set[str] = set()
    for problem in blockers.of_row(row):
        if problem.kind in whole:
            continue
        if problem.kind in WHOLE:
            whole.add(problem.kind)
        sized = _edits(blockers, row, problem)
        if sized is None:
            return None
        for edit, size in sized:
            edits.append(edit)
            weight += size
    equipment = sum(1 for edit in edits if edit.kind in EQUIPMENT)
    change = NodeChange((equipment, len(edits), weight), tuple(edits))
    return change if _is_sufficient(blockers, row, change) else None


Sized = tuple[SuggestedEdit, float]
"""An edit and its size relative to the requested amount."""


def _edits(blockers: NodeBlockers, row: int, problem: NodeProblem) -> list[Sized] | None:
    """The edits that solve a row's problem; None if there are none."""
    match problem.kind:
        case "cpu" | "memory" | "disk":
            return _amount(blockers, row, problem.kind)
        case "cores":
            return _cores(blockers, row)
        case "device":
            return device_edits(blockers, row)
        case _:
            edits = _plain_edits(blockers, row, problem)
            return None if edits is None else [(edit, 1.0) for edit in edits]


def _plain_edits(blockers: NodeBlockers, row: int, problem: NodeProblem) -> Iterable[SuggestedEdit] | None:
    """Edits without numbers; all have the same size."""
    node = blockers.view.node(row)
    match problem.kind:
        case "constraint":
            text = f"drop the constraint {problem.text}"
            return (SuggestedEdit(kind="constraint", text=text, constraint=problem.subject),)
        case "distinct_hosts":
            constraint = Constraint(operand=DISTINCT_HOSTS)
            return (
                SuggestedEdit(kind="distinct_hosts", text="drop the constraint distinct_hosts", constraint=constraint),
            )
        case "distinct_property":
            return (_property_edit(blockers, row, problem),)
        case "datacenter":
            text = f'add the datacenter "{node.datacenter}"'
            return (SuggestedEdit(kind="datacenter", text=text, name=node.datacenter),)
        case "node_pool":
            text = f'use the node pool "all" instead of "{blockers.placer.job.node_pool}"'
            return (SuggestedEdit(kind="node_pool", text=text, name="all"),)
        case "eligibility":
            return (
                SuggestedEdit(
                    kind="eligibility", text=f"make node {node.name or node.id[:8]} eligible", node_id=node.id
                ),
            )
        case "driver":
            return _drivers(blockers, row)
        case "network":
            return _networks(blockers, row)
        case "volume":
            return _volumes(blockers, row)
        case "host_network":
            return _host_networks(blockers, row)
        case "port":
            return _ports(blockers, row)
        case "status" | "drain" | "csi" | "volume_claim" | "max_allocs" | "claim" | "numa":
            return None
        case "cpu" | "memory" | "disk" | "cores" | "device":
            raise AssertionError(f"{problem.kind} has a size")
        case _:
            assert_never(problem.kind)


def _amount(blockers: NodeBlockers, row: int, kind: AmountKind) -> list[Sized] | None:
    """A reduction of an amount by the shortage, shared with the group's allocations on the row."""
    if kind == "cpu" and blockers.placer.ask.cores:
        return _cores_for_cpu(blockers, row)
    column = next(column for column, name, _ in AMOUNTS if name == kind)
    group, required = blockers.placer.group, blockers.required[column]
    cut = -(-int(blockers.short(column)[row]) // (int(blockers.own[row]) + 1))
    edits = lowered(group, kind, required - cut)
    return None if edits is None else [(edit, cut / required / len(edits)) for edit in edits]


def lowered(group: TaskGroup, kind: AmountKind, target: int) -> list[SuggestedEdit] | None:
    """The edits that reduce an allocation's request to `target`; None if that is below the minimum."""
    if kind == "disk":
        return [numbered("disk", group.ephemeral_disk.size_mb, target)] if target >= disk_min(group) else None
    amounts = lowered_tasks(group, kind, target)
    if amounts is None:
        return None
    before = {task.name: amount_of(task, kind) for task in group.tasks}
    return [numbered(kind, before[name], after, task=name) for name, after in amounts.items()]


def amount_of(task: Task, kind: AmountKind) -> int:
    """A task's request of an amount."""
    if kind == "cpu":
        return 0 if task.resources.cores else task.resources.cpu
    return task.resources.memory_mb


def least_of(task: Task, kind: AmountKind) -> int:
    """The minimum of a task's request of an amount."""
    if kind == "cpu":
        return 0 if task.resources.cores else CPU_MIN
    return max(MEMORY_MIN, task.resources.secrets_mb)


def disk_min(group: TaskGroup) -> int:
    """The minimum disk of a group: its logs must fit."""
    logs = (t.log_config.max_files * t.log_config.max_file_size_mb for t in group.tasks if t.log_config is not None)
    return max(DISK_MIN, 1 + max(logs, default=0))


def lowered_tasks(group: TaskGroup, kind: AmountKind, target: int) -> dict[str, int] | None:
    """Reduced requests of tasks with which an allocation requests `target`; None if that is below the minimum.

    Tasks that never run together share, so every phase is brought down to what the sidecars leave, its largest tasks
    first; the sidecars are lowered only when nothing else is left.
    """
    phases: dict[str, list[Task]] = {"sidecar": [], "prestart": [], "main": [], "poststop": []}
    for task in group.tasks:
        phases[_phase(task)].append(task)
    amounts = {task.name: amount_of(task, kind) for task in group.tasks}
    sidecars = sum(amounts[task.name] for task in phases["sidecar"])
    largest = 0
    for name in ("prestart", "main", "poststop"):
        least = sum(least_of(task, kind) for task in phases[name])
        _lower(phases[name], amounts, kind, max(least, target - sidecars))
        largest = max(largest, sum(amounts[task.name] for task in phases[name]))
    _lower(phases["sidecar"], amounts, kind, target - largest)
    if largest + sum(amounts[task.name] for task in phases["sidecar"]) > target:
        return None
    return {task.name: amounts[task.name] for task in group.tasks if amounts[task.name] != amount_of(task, kind)}


def _phase(task: Task) -> str:
    lifecycle = task.lifecycle
    if lifecycle is None or lifecycle.hook not in ("prestart", "poststop"):
        return "main"
    if lifecycle.hook == "poststop":
        return "poststop"
    return "sidecar" if lifecycle.sidecar else "prestart"


def _lower(tasks: list[Task], amounts: dict[str, int], kind: AmountKind, target: int) -> None:
    """Reduce the sum of some tasks to the target, the largest first, none below its minimum."""
    over = sum(amounts[task.name] for task in tasks) - target
    for task in sorted(tasks, key=lambda task: (-amounts[task.name], task.name)):
        cut = min(over, amounts[task.name] - least_of(task, kind))
        if cut > 0:
            amounts[task.name] -= cut
            over -= cut


def _property_edit(blockers: NodeBlockers, row: int, problem: NodeProblem) -> SuggestedEdit:
    target = problem.text.removeprefix(f"{DISTINCT_PROPERTY}: ")
    used, limit = blockers.placer.distinct.used_of(problem.text, row)
    constraint = Constraint(l_target=target, operand=DISTINCT_PROPERTY)
    if used < 0:
        return SuggestedEdit(
            kind="distinct_property", text=f"drop the constraint {problem.text}", constraint=constraint
        )
    return numbered("distinct_property", limit, used + 1, constraint=constraint)


def _drivers(blockers: NodeBlockers, row: int) -> Iterator[SuggestedEdit]:
    node = blockers.view.node(row)
    for driver, info in missing_drivers(blockers, node):
        text = f"{_driver_change(driver, info, node)} on node {node.name}"
        yield SuggestedEdit(kind="driver", text=text, name=driver, node_id=node.id)


def _driver_change(driver: str, info: DriverInfo, node: Node) -> str:
    if info.detected:
        return f'make driver "{driver}" healthy'
    if driver in node.drivers:  # its plugin is there, but what it needs is not, or the operator has disabled it
        return f'make driver "{driver}" available'
    return f'{"enable" if plugin_problem(driver, node) else "install"} driver "{driver}"'


def _networks(blockers: NodeBlockers, row: int) -> Iterator[SuggestedEdit]:
    node = blockers.view.node(row)
    for mode, reason in missing_networks(blockers, node):
        text = f'make the network "{mode}" available on node {node.name}'
        yield SuggestedEdit(kind="network", text=f"{text} ({reason})" if reason else text, name=mode, node_id=node.id)


def _volumes(blockers: NodeBlockers, row: int) -> Iterator[SuggestedEdit]:
    node = blockers.view.node(row)
    for name, is_there in missing_volumes(blockers, node):
        text = volume_text(name, f"node {node.name}", is_there=is_there)
        yield SuggestedEdit(kind="volume", text=text, name=name, node_id=node.id)


def _host_networks(blockers: NodeBlockers, row: int) -> Iterator[SuggestedEdit]:
    in_use = blockers.in_use.get(row)
    for problem in in_use.ports if in_use is not None else ():
        if problem.kind == "host_network":
            text = f'leave out host_network of port "{problem.label}"'
            yield SuggestedEdit(kind="host_network", text=text, name=problem.label)


def _ports(blockers: NodeBlockers, row: int) -> list[SuggestedEdit] | None:
    labels: dict[str, None] = {}
    for problem in blockers.in_use[row].ports:
        if problem.kind == "static":
            labels[problem.label] = None
        elif problem.kind != "host_network":
            return None
    return [SuggestedEdit(kind="port", text=f'let port "{label}" be dynamic', name=label) for label in labels]


def device_edits(blockers: NodeBlockers, row: int) -> list[Sized]:
    """The edits that reduce the group's device requests to a row's devices, with the size of each."""
    own = int(blockers.own[row])
    return [_device_edit(short, own) for short in blockers.in_use[row].devices]


def _device_edit(short: DeviceShortage, own: int) -> Sized:
    """Less memory per device or one constraint fewer, if the node lacks one of these; else fewer devices."""
    task, name = short.task, short.request.name
    if short.free_mb > 0 and not own:
        memory = short.request.memory_mb
        edit = numbered("device_memory", memory, short.free_mb, task=task, name=name)
        return edit, (memory - short.free_mb) / memory
    if short.rule is not None and not own:
        text = f'drop the constraint {text_of_constraint(short.rule)} of device "{name}" in task "{task}"'
        return SuggestedEdit(kind="device_constraint", text=text, task=task, name=name, constraint=short.rule), 1.0
    required = short.request.count
    after = max(0, (short.free + own * required) // (own + 1))
    return numbered("device", required, after, task=task, name=name), (
        required - after
    ) / required if after else OMITTED


def _cores(blockers: NodeBlockers, row: int) -> list[Sized] | None:
    """Fewer cores, from the largest tasks first, but at least one per task that requests any."""
    required, fitting = blockers.placer.ask.cores, _fitting_cores(blockers, row)
    before = {task.name: task.resources.cores for task in blockers.placer.group.tasks if task.resources.cores}
    if not len(before) <= fitting < required:
        return None
    cores = dict(before)
    for _ in range(required - fitting):
        largest = max(cores, key=lambda name: (cores[name], name))
        cores[largest] -= 1
    changed = [name for name in cores if cores[name] != before[name]]
    size = (required - fitting) / required / len(changed)
    return [(numbered("cores", before[name], cores[name], task=name), size) for name in changed]


def _fitting_cores(blockers: NodeBlockers, row: int) -> int:
    """The number of cores that one more allocation could request on a row so that their MHz fit too; others shrink
    alike."""
    placer, in_use, own = blockers.placer, blockers.in_use[row], int(blockers.own[row])
    required, whole = placer.ask.cores, cpu_with_cores(placer, in_use.per_core)
    others = int(blockers.view.used[row, CPU]) - own * whole
    capacity = (int(blockers.view.offered[row, CPU]) - others) // (own + 1)
    fitting = (in_use.cores_free + own * required) // (own + 1)
    while fitting > 0 and whole - in_use.per_core * (required - fitting) > capacity:
        fitting -= 1
    return fitting


def _cores_for_cpu(blockers: NodeBlockers, row: int) -> list[Sized] | None:
    """Fewer cores for a shortage of MHz in a group that requests cores, unless another edit reduces them already."""
    if any(problem.kind == "cores" for problem in blockers.of_row(row)):
        return []
    return _cores(blockers, row)


def _is_sufficient(blockers: NodeBlockers, row: int, change: NodeChange) -> bool:
    """Whether the node accepts one more with the change applied; the group's allocations there are disregarded."""
    placer = blockers.placer
    if not placer.ask.has_ports and not placer.ask.devices:
        return True
    job = apply_edits(placer.job, placer.group.name, change.edits)
    group = job.group(placer.group.name)
    assert group is not None
    node = blockers.view.node(row)
    in_use = blockers.view.in_use(row) if not blockers.own[row] else NOTHING_IN_USE
    devices = [device for task in group.tasks for device in task.resources.devices]
    if devices and not has_devices(node, devices):
        return False
    return not isinstance(grant_ports(node, in_use.ports, group, salt=0), str)
