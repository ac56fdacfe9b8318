"""The shortages of one node for one more allocation of a group, in numbers and words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from yurt.scheduler.capacity.ask import NearCoreShortage
from yurt.scheduler.capacity.ports import PortProblem, reserved_bits
from yurt.scheduler.constraints.targets import resolve
from yurt.scheduler.explain.blockers import AMOUNTS, NodeBlockers, NodeProblem
from yurt.scheduler.explain.missing_requirements import (
    IS_THERE,
    missing_drivers,
    missing_host_networks,
    missing_networks,
    missing_volumes,
)
from yurt.state.columns import ALLOCS
from yurt.state.usage import Usage, is_using
from yurt.structs.constraint import Constraint
from yurt.structs.explain.explanation import AmountKind, Shortfall
from yurt.structs.node import DriverInfo, Node

_NAMES = {"cpu": "CPU", "memory": "memory", "disk": "disk"}


def node_shortages(blockers: NodeBlockers, row: int) -> Iterator[Shortfall]:
    """All shortages of the node, each once."""
    seen: set[str] = set()
    for problem in blockers.of_row(row):
        if problem.kind in ("port", "device", "host_network", "numa") and problem.kind in seen:
            continue
        seen.add(problem.kind)
        yield from _of_problem(blockers, row, problem)


def _of_problem(blockers: NodeBlockers, row: int, problem: NodeProblem) -> Iterator[Shortfall]:
    kind = problem.kind
    match kind:
        case "cpu" | "memory" | "disk":
            yield _amount(blockers, row, kind)
        case "cores":
            required, free = blockers.placer.ask.cores, blockers.in_use[row].cores_free
            yield Shortfall(kind=kind, text=f"{_count(required - free, 'core')} short", asked=required, free=free)
        case "numa":
            yield from (_near(short) for short in blockers.in_use[row].near)
        case "device":
            for short in blockers.in_use[row].devices:
                yield Shortfall(kind=kind, text=short.text, asked=short.request.count, free=short.free)
        case "distinct_property":
            yield _property(blockers, row, problem)
        case "max_allocs":
            limit = int(blockers.view.offered[row, ALLOCS])
            yield Shortfall(kind=kind, text=f"it takes {limit} allocations at most", asked=limit + 1, free=0)
        case _:
            yield from (Shortfall(kind=kind, text=text) for text in _texts(blockers, row, problem))


def _texts(blockers: NodeBlockers, row: int, problem: NodeProblem) -> list[str]:
    """Problems without numbers."""
    node = blockers.view.node(row)
    match problem.kind:
        case "port":
            ports = blockers.in_use[row].ports
            return [_port(blockers, node, port) for port in ports if port.kind != "host_network"]
        case "constraint":
            assert problem.subject is not None
            return [_constraint(problem.subject, node)]
        case "distinct_hosts":
            return [IS_THERE]
        case "datacenter":
            return [f'in datacenter "{node.datacenter}", not in the job\'s']
        case "node_pool":
            return [f'in node pool "{node.node_pool}", not in the job\'s']
        case "driver":
            return [_driver(name, info) for name, info in missing_drivers(blockers, node)]
        case "network":
            missing = missing_networks(blockers, node)
            return [f'network "{mode}" is missing' + (f": {why}" if why else "") for mode, why in missing]
        case "host_network":
            return [f'host network "{name}" is missing' for name in missing_host_networks(blockers, node)]
        case "claim":
            names = sorted(blockers.view.in_use(row).volumes.intersection(blockers.placer.ask.volumes))
            return [_claimed(blockers, node, name) for name in names]
        case "volume":
            return [
                f'host volume "{name}" is {"read-only" if is_there else "missing"}'
                for name, is_there in missing_volumes(blockers, node)
            ]
        case _:
            return [problem.text]


def _amount(blockers: NodeBlockers, row: int, kind: AmountKind) -> Shortfall:
    column, _, unit = next(entry for entry in AMOUNTS if entry[1] == kind)
    short = int(blockers.short(column)[row])
    free = int(blockers.view.offered[row, column] - blockers.view.used[row, column])
    return Shortfall(kind=kind, text=f"{short} {unit} {_NAMES[kind]} short", asked=free + short, free=free)


def _near(short: NearCoreShortage) -> Shortfall:
    cores = _count(short.required - short.free, "core")
    text = f'{cores} short near the devices of task "{short.task}" ({short.required} asked, {short.free} free there)'
    return Shortfall(kind="numa", text=text, asked=short.required, free=short.free)


def _constraint(constraint: Constraint, node: Node) -> str:
    """`${attr.kernel.version} is 5.1.0, wanted: version >= 5.2`."""
    left, right, operand = constraint.l_target, constraint.r_target, constraint.operand
    value = resolve(left, node)
    requirement = " ".join(part for part in (operand, right) if part)
    if right.startswith("${"):
        requirement += f" ({_shown(resolve(right, node))})"
    if not left.startswith("${"):
        return f"{left} {requirement} does not hold"
    shown = f"{left} is {_shown(value)}"
    return shown if operand == "is_set" else f"{shown}, wanted: {requirement}"


def _shown(value: str | None) -> str:
    return "not set" if value is None else value or "empty"


def _property(blockers: NodeBlockers, row: int, problem: NodeProblem) -> Shortfall:
    used, limit = blockers.placer.distinct.used_of(problem.text, row)
    target = problem.text.partition(": ")[2]
    if used < 0:
        return Shortfall(kind=problem.kind, text=f"{target} is not set (distinct_property)")
    value = resolve(target, blockers.view.node(row))
    text = f"{target} = {value} has {used} of {_count(limit, 'allocation')} (distinct_property)"
    return Shortfall(kind=problem.kind, text=text, asked=used + 1, free=limit)


def _port(blockers: NodeBlockers, node: Node, problem: PortProblem) -> str:
    """A port in use, with its holder if the state knows it."""
    text = problem.text.removeprefix("network: ")
    if not problem.value:
        return text
    if reserved_bits(node.reserved_resources.networks.reserved_host_ports) >> problem.value & 1:
        return f"{text} (the node keeps it for itself)"
    return text + _holder(blockers, node, lambda usage: any(port == problem.value for _, port in usage.ports))


def _claimed(blockers: NodeBlockers, node: Node, volume: str) -> str:
    text = f'host volume "{volume}" has its one writer already'
    return text + _holder(blockers, node, lambda usage: volume in usage.volumes)


def _holder(blockers: NodeBlockers, node: Node, has_it: Callable[[Usage], bool]) -> str:
    """The job that holds a resource of a node, in parentheses; "" if only the plan uses it.

    A job that the caller may not read has no name here.
    """
    view = blockers.view
    for alloc in view.snapshot.allocs_of_node(node.id):
        if is_using(alloc) and not view.is_released(alloc.id) and has_it(view.usage_of(alloc)):
            is_shown = blockers.disclosure.reads_jobs_in(alloc.namespace)
            return f' (job "{alloc.job_id}" has it)' if is_shown else " (a job of another namespace has it)"
    return ""


def _driver(name: str, info: DriverInfo) -> str:
    reason = f": {info.health_description}" if info.health_description else ""
    return f'driver "{name}" is {"not healthy" if info.detected else "missing"}{reason}'


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
