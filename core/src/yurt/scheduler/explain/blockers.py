"""All reasons why each node refuses one more allocation of a group, not only the first.

A problem is a mask over the rows with a text. Ports, cores and devices are asked of every node, one after another,
which only explanations do. Allocations of the group that run on a node (`own`) shrink together with the group, so a
lower ask divides the missing amount by their number plus one; those that do not shrink (`staying`) do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from yurt.scheduler.capacity.ask import CLAIMED, NearCoreShortage
from yurt.scheduler.capacity.ports import PortProblem, port_problems
from yurt.scheduler.capacity.view import MAX_ALLOCS
from yurt.scheduler.constraints.operators import DISTINCT_HOSTS
from yurt.scheduler.explain.device_shortage import DeviceShortage, device_shortages
from yurt.scheduler.explain.disclosure import ALL, Disclosure
from yurt.scheduler.feasibility.masks import BoolArray, check_mask, checks_of, is_in
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.sdk.value import replace
from yurt.state.arrays import IntArray
from yurt.state.columns import ALLOCS, CPU, DATACENTER, DISK, IS_NODE, IS_READY, MEMORY, POOL
from yurt.state.usage import usage_of_resources
from yurt.structs.alloc import AllocatedCpuResources
from yurt.structs.constraint import Constraint
from yurt.structs.explain.explanation import AmountKind, ProblemKind
from yurt.structs.node import Node
from yurt.structs.status import ELIGIBLE, NODE_READY

AMOUNTS: Final[tuple[tuple[int, AmountKind, str], ...]] = (
    (CPU, "cpu", "MHz"),
    (MEMORY, "memory", "MB"),
    (DISK, "disk", "MB"),
)
_KINDS: Final[Mapping[str, ProblemKind]] = {
    "constraint": "constraint", "drivers": "driver", "devices": "device", "networks": "network",
    "aliases": "host_network", "volumes": "volume",
}  # fmt: skip


class NodeProblem(NamedTuple):
    """A problem on the rows of `mask`; `subject` is the constraint, if it is one."""

    kind: ProblemKind
    text: str
    mask: BoolArray
    subject: Constraint | None = None


class ExclusiveUse(NamedTuple):
    """One node's answer for ports, cores and devices."""

    cores_free: int
    per_core: int
    devices: tuple[DeviceShortage, ...]
    ports: tuple[PortProblem, ...]
    near: tuple[NearCoreShortage, ...]


class NodeBlockers:
    """All problems of a group on all nodes, with its placer's plan applied."""

    def __init__(self, placer: GroupPlacer, disclosure: Disclosure = ALL, *, staying: Iterable[int] = ()) -> None:
        """`staying`: the rows of the group's allocations whose request would not shrink with the group's."""
        self.placer = placer
        self.disclosure = disclosure
        self.view = placer.view
        self.rows = placer.view.rows
        self.nodes: BoolArray = self.rows.offered[:, IS_NODE] > 0
        self.candidates: BoolArray = placer.candidates.mask
        self.own: IntArray = placer.ranker.own.copy()
        for row in staying:
            self.own[row] -= 1
        self.required = {column: placer.ask.plain.usage.amounts[column] for column, _, _ in AMOUNTS}
        self.in_use: dict[int, ExclusiveUse] = {}
        self._with_cores: IntArray = np.zeros(len(self.nodes), np.int64)
        """The MHz of the cores that each row lacks; a shortage of cores is not reported again as one of MHz."""
        self.required_cpu: IntArray = np.full(len(self.nodes), self.required[CPU], np.int64)
        if placer.ask.is_exclusive:
            for row in np.flatnonzero(self.nodes).tolist():
                self._ask_node(row)
        self.problems = self._find()
        self.count: IntArray = np.zeros(len(self.nodes), np.int64)
        for problem in self.problems:
            self.count += problem.mask

    def short(self, column: int) -> IntArray:
        """Each row's shortage of an amount, without the MHz of missing cores; 0 or less for none."""
        required: Any = self.required_cpu - self._with_cores if column == CPU else self.required[column]
        missing: IntArray = self.view.used[:, column] + required - self.view.offered[:, column]
        return missing

    def of_row(self, row: int) -> list[NodeProblem]:
        """The problems of one row."""
        return [problem for problem in self.problems if problem.mask[row]]

    def _find(self) -> list[NodeProblem]:
        problems = [*self._outside(), *self._checks(), *self._volumes(), *self._distinct()]
        problems += [*self._amounts(), *self._exclusive()]
        return [problem for problem in problems if problem.mask.any()]

    def _outside(self) -> list[NodeProblem]:
        """Nodes that are not candidates."""
        rows, job = self.rows, self.placer.job
        is_listed = np.array([is_in(name, job.datacenters) for name in rows.datacenters.values] or [False])
        in_dc = is_listed[rows.offered[:, DATACENTER]]
        names = ("datacenter " if len(job.datacenters) == 1 else "datacenters ") + ", ".join(job.datacenters)
        problems = [NodeProblem("datacenter", f"not in {names}", self.nodes & ~in_dc)]
        if job.node_pool != "all":
            pool = rows.offered[:, POOL] == rows.pools.numbers.get(job.node_pool, -1)
            problems.append(NodeProblem("node_pool", f'not in node pool "{job.node_pool}"', self.nodes & ~pool))
        states: dict[tuple[ProblemKind, str], BoolArray] = {}
        for row in np.flatnonzero(self.nodes & (rows.offered[:, IS_READY] == 0)).tolist():
            for key in _states(self.view.node(row)):
                states.setdefault(key, np.zeros(len(self.nodes), np.bool_))[row] = True
        problems.extend(NodeProblem(kind, text, mask) for (kind, text), mask in sorted(states.items()))
        return problems

    def _checks(self) -> list[NodeProblem]:
        problems = []
        job, group, snapshot = self.placer.job, self.placer.group, self.view.snapshot
        for check in checks_of(job, group):
            key: Any = check.key
            kind = _KINDS[key[0]]
            subject = Constraint(l_target=key[1], operand=key[2], r_target=key[3]) if kind == "constraint" else None
            problems.append(NodeProblem(kind, check.text, self.nodes & ~check_mask(snapshot, check), subject))
        return problems

    def _volumes(self) -> list[NodeProblem]:
        return [NodeProblem(reason.kind, reason.text, mask) for reason, mask in self.placer.volumes_refused.items()]

    def _distinct(self) -> list[NodeProblem]:
        distinct = self.placer.distinct
        refused = distinct.refused() if distinct.is_used else {}
        return [
            NodeProblem("distinct_hosts" if text == DISTINCT_HOSTS else "distinct_property", text, self.nodes & mask)
            for text, mask in refused.items()
        ]

    def _amounts(self) -> list[NodeProblem]:
        problems = [NodeProblem(name, name, self.nodes & (self.short(column) > 0)) for column, name, _ in AMOUNTS]
        limit, used = self.view.offered[:, ALLOCS], self.view.used[:, ALLOCS]
        problems.append(NodeProblem("max_allocs", MAX_ALLOCS, self.nodes & (limit > 0) & (used + 1 > limit)))
        return problems

    def _exclusive(self) -> list[NodeProblem]:
        masks: dict[tuple[ProblemKind, str], BoolArray] = {}
        for row, in_use in self.in_use.items():
            texts: list[tuple[ProblemKind, str]]
            texts = [("port", problem.text) for problem in in_use.ports if problem.kind != "host_network"]
            if in_use.devices:
                texts.append(("device", "devices: no devices match request"))
            if not self.view.in_use(row).volumes.isdisjoint(self.placer.ask.volumes):
                texts.append(("claim", CLAIMED))
            if in_use.cores_free < self.placer.ask.cores:
                texts.append(("cores", "cores"))
            texts.extend(("numa", f'cores near the devices of task "{short.task}"') for short in in_use.near)
            for key in texts:
                masks.setdefault(key, np.zeros(len(self.nodes), np.bool_))[row] = True
        missing = [p.mask for p in self._checks() if p.kind == "device"]
        for existing in missing:
            for key in masks:
                if key[0] == "device":
                    masks[key] &= ~existing
        return [NodeProblem(kind, text, mask) for (kind, text), mask in sorted(masks.items())]

    def _ask_node(self, row: int) -> None:
        placer, node, in_use = self.placer, self.view.node(row), self.view.in_use(row)
        ask = placer.ask
        cpu = node.node_resources.cpu
        cores_free = sum(1 for core in cpu.reservable_cpu_cores if not in_use.cores >> core & 1)
        per_core = cpu.cpu_shares // max(1, cpu.total_cpu_cores or len(cpu.reservable_cpu_cores))
        if ask.cores:
            self.required_cpu[row] = cpu_with_cores(placer, per_core)
            of_cores = int(self.required_cpu[row]) - self.required[CPU]
            self._with_cores[row] = min(of_cores, per_core * max(0, ask.cores - cores_free))
        devices = device_shortages(node, in_use.devices, ask.devices) if ask.devices else ()
        ports = port_problems(node, in_use.ports, placer.group) if ask.has_ports else ()
        near = ask.short_near_devices(node, in_use) if ask.cores <= cores_free and not devices else ()
        self.in_use[row] = ExclusiveUse(cores_free, per_core, devices, ports, near)


def _states(node: Node) -> list[tuple[ProblemKind, str]]:
    """The reasons why nodes accept no allocations."""
    states: list[tuple[ProblemKind, str]] = []
    if node.status != NODE_READY:
        states.append(("status", node.status))
    if node.drain_strategy is not None:
        states.append(("drain", "draining"))
    elif node.scheduling_eligibility != ELIGIBLE:
        states.append(("eligibility", "not eligible"))
    return states


def cpu_with_cores(placer: GroupPlacer, per_core: int) -> int:
    """The MHz of one allocation on a node with this core speed."""
    group, plain = placer.group, placer.ask.plain.resources
    tasks = dict(plain.tasks)
    for task in group.tasks:
        if task.resources.cores:
            shares = AllocatedCpuResources(cpu_shares=per_core * task.resources.cores)
            tasks[task.name] = replace(tasks[task.name], cpu=shares)
    return usage_of_resources(replace(plain, tasks=tasks), group).cpu
