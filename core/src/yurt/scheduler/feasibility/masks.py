"""Feasibility: the nodes that a job and its groups may use, as masks over the rows of the columns.

Every check gives one mask, computed once per node shape (or per node, where it asks for something unique) and kept
with the node columns, so that it costs nothing until a node changes, and then little. A group's mask is the
conjunction; its reasons are the masks themselves, so every constraint says how many nodes it filtered, not only the
first one that did.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable

import msgspec
import numpy as np
import numpy.typing as npt

from yurt.scheduler.constraints.operators import DISTINCT_HOSTS, DISTINCT_PROPERTY, answers, holds
from yurt.scheduler.constraints.targets import is_unique, resolve, resolve_all
from yurt.scheduler.devices.offers import has_devices, looks_at_instances
from yurt.scheduler.feasibility.node_cache import answers_by_row, answers_by_shape, cached_answer
from yurt.state.arrays import IntArray
from yurt.state.columns import DATACENTER, IS_NODE, IS_READY, NODE_CLASS, POOL, NodeColumns, Shape
from yurt.state.store import Snapshot
from yurt.structs.constraint import Constraint
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.predicates import POOL_ALL, is_for_node, is_match
from yurt.structs.resources import RequestedDevice

BoolArray = npt.NDArray[np.bool_]

OF_EVERY_NODE = frozenset({"", "host", "none"})
"""Modes of group networks that every node supports."""


class Check(msgspec.Struct, frozen=True):
    """A condition on nodes. `is_class_wide`: equal for all nodes of a computed class."""

    text: str
    key: Hashable
    test: Callable[[Node], bool]
    is_class_wide: bool
    is_per_node: bool = False
    constraint: Constraint | None = None
    part: Callable[[Shape], Hashable] | None = None
    """The part of a node's shape that the test examines."""


class Candidates(msgspec.Struct, frozen=True):
    """The ready nodes of a job's datacenters and node pool."""

    mask: BoolArray
    in_pool: int
    available: dict[str, int]


class Feasibility(msgspec.Struct, frozen=True):
    """The nodes where a group may run: `mask` of all rows, and the mask of each failed check."""

    mask: BoolArray
    failing: tuple[tuple[str, BoolArray], ...]
    class_wide: BoolArray
    is_escaped: bool
    key: Hashable
    """Equal keys on the same rows give the same answers."""


def candidates(rows: NodeColumns, job: Job) -> Candidates:
    """The ready nodes in the job's datacenters and pool."""

    def compute() -> Candidates:
        offered = rows.offered
        in_pool = offered[:, IS_NODE] > 0
        if job.node_pool != POOL_ALL:
            in_pool &= offered[:, POOL] == rows.pools.numbers.get(job.node_pool, -1)
        names = tuple(rows.datacenters.values)
        is_listed = np.array([is_in(name, job.datacenters) for name in names] or [False])
        mask = in_pool & (offered[:, IS_READY] > 0) & is_listed[offered[:, DATACENTER]]
        counts = np.bincount(offered[mask, DATACENTER], minlength=len(names))
        assert counts.sum() == np.count_nonzero(mask), "each candidate is in one datacenter"
        available = {
            name: int(counts[number])
            for number, name in sorted(enumerate(names), key=lambda entry: entry[1])
            if counts[number]
        }
        return Candidates(_frozen(mask), int(np.count_nonzero(in_pool)), available)

    answer = cached_answer(rows, ("candidates", job.datacenters, job.node_pool), compute)
    assert isinstance(answer, Candidates)
    return answer


def feasible_candidates(rows: NodeColumns, job: Job, of_job: Candidates, feasible: Feasibility) -> BoolArray:
    """The candidates that the group may use."""
    key = ("mask", job.datacenters, job.node_pool, feasible.key)
    mask = cached_answer(rows, key, lambda: _frozen(of_job.mask & feasible.mask))
    assert isinstance(mask, np.ndarray)
    return mask


def is_in(datacenter: str, globs: Iterable[str]) -> bool:
    """Whether a datacenter matches one of a job's glob patterns."""
    return any(is_match(datacenter, glob) for glob in globs)


def feasibility(snapshot: Snapshot, job: Job, group: TaskGroup) -> Feasibility:
    """A group's mask and the reasons, over all nodes."""
    checks = checks_of(job, group)
    key = ("feasible", tuple(check.key for check in checks))
    answer = cached_answer(snapshot.columns.nodes, key, lambda: _feasibility(snapshot, checks, key))
    assert isinstance(answer, Feasibility)
    return answer


def _feasibility(snapshot: Snapshot, checks: tuple[Check, ...], key: Hashable) -> Feasibility:
    rows = snapshot.columns.nodes
    mask = np.ones(len(rows.offered), np.bool_)
    class_wide = mask.copy()
    failing = []
    for check in checks:
        passed = check_mask(snapshot, check)
        assert len(passed) == len(mask), (check.text, len(passed), len(mask))
        # Most checks pass on all nodes: they cost one comparison, and neither a mask nor a reason.
        if passed.all():
            continue
        failing.append((check.text, _frozen(~passed)))
        mask &= passed
        if check.is_class_wide:
            class_wide &= passed
    is_escaped = any(check.is_per_node for check in checks)
    return Feasibility(_frozen(mask), tuple(failing), _frozen(class_wide), is_escaped, key)


def check_mask(snapshot: Snapshot, check: Check) -> BoolArray:
    """The rows that pass one check."""
    rows = snapshot.columns.nodes

    def compute() -> BoolArray:
        if check.is_per_node:
            return answers_by_row(snapshot, check.key, lambda nodes: _answers(check, nodes), without=False)
        return _frozen(
            answers_by_shape(snapshot, check.key, lambda *shapes: _answers_of_shapes(check, *shapes), without=False)
        )

    answer = cached_answer(rows, check.key, compute)
    assert isinstance(answer, np.ndarray)
    return answer


def _answers_of_shapes(check: Check, shapes: list[Shape], nodes: list[Node]) -> list[bool]:
    """Whether each shape passes, judged by one of its nodes; equal relevant parts are evaluated once."""
    if check.part is None:
        return _answers(check, nodes)
    parts = list(map(check.part, shapes))
    alike = dict(zip(parts, nodes, strict=True))
    answer_of = dict(zip(alike, _answers(check, list(alike.values())), strict=True))
    return [answer_of[part] for part in parts]


def _answers(check: Check, nodes: list[Node]) -> list[bool]:
    """Whether each node passes."""
    constraint = check.constraint
    if constraint is None or constraint.r_target.startswith("${") or not constraint.l_target.startswith("${"):
        return [check.test(node) for node in nodes]
    return answers(constraint.operand, constraint.r_target, resolve_all(constraint.l_target, nodes))


class _Texts:
    """Permanent numbers for texts; thread-safe. Some numbers may be unused."""

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {None: -1}
        self._texts: dict[int, str] = {}
        self._next = itertools.count()

    def numbers(self, texts: Iterable[str | None]) -> list[int]:
        """The number of each text; -1 for None."""
        return [self._number(text) if (number := self._numbers.get(text)) is None else number for text in texts]

    def _number(self, text: str | None) -> int:
        number = self._numbers.setdefault(text, next(self._next))
        self._texts[number] = text or ""
        return number

    def texts(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The texts for numbers."""
        return tuple([self._texts[number] for number in numbers])


def property_codes(snapshot: Snapshot, target: str) -> tuple[IntArray, tuple[str, ...]]:
    """Each row's number of its value of an attribute (-1: no value), and the values."""
    rows = snapshot.columns.nodes
    # Permanent numbers, across changes of nodes, so that cached answers by row stay valid. They have gaps, and are made
    # dense below, because spreads and distinct rules have a list entry for each number.
    texts: _Texts = rows.lasting.setdefault(("texts", target), _Texts())

    def ask(nodes: list[Node]) -> list[int]:
        return texts.numbers(resolve_all(target, nodes))

    def compute() -> tuple[IntArray, tuple[str, ...]]:
        if is_unique(target):
            by_row = answers_by_row(snapshot, texts, ask, without=-1)
        else:
            by_row = answers_by_shape(snapshot, texts, lambda _, nodes: ask(nodes), without=-1)
        numbers = np.bincount(by_row[by_row >= 0]).nonzero()[0]
        codes: IntArray = np.full(int(by_row.max(initial=-1)) + 2, -1, np.int64)
        codes[numbers] = np.arange(len(numbers))
        codes = codes[by_row]
        codes.flags.writeable = False
        return codes, texts.texts(numbers.tolist())

    answer = cached_answer(rows, ("property", target), compute)
    assert isinstance(answer, tuple)
    return answer


def checks_of(job: Job, group: TaskGroup) -> tuple[Check, ...]:
    """All conditions of a group on nodes, except those that depend on other allocations."""
    constraints = [*job.constraints, *group.constraints, *(c for task in group.tasks for c in task.constraints)]
    checks = [
        constraint_check(constraint)
        for constraint in dict.fromkeys(constraints)
        if constraint.operand not in (DISTINCT_HOSTS, DISTINCT_PROPERTY)
    ]
    # Sorted, because the tuple is a part of the key: groups with the same drivers share one answer.
    drivers = tuple(sorted({task.driver for task in group.tasks}))
    checks.append(
        Check(
            "missing drivers",
            ("drivers", drivers),
            lambda node: _has_drivers(node, drivers),
            is_class_wide=False,
            part=lambda shape: shape.drivers,
        )
    )
    devices = tuple(device for task in group.tasks for device in task.resources.devices)
    if devices:
        checks.append(_device_check(devices))
    modes = tuple(sorted({network.mode for network in group.networks} - OF_EVERY_NODE))
    if modes:
        checks.append(Check("missing network", ("networks", modes), lambda node: _has_networks(node, modes), False))
    aliases = tuple(sorted(host_networks(group)))
    if aliases:
        text = f'missing host network "{", ".join(aliases)}" for port'
        checks.append(
            Check(text, ("aliases", aliases), lambda node: all(a in node.host_networks for a in aliases), False)
        )
    volumes = tuple(
        sorted((v.source, v.read_only) for v in group.volumes.values() if v.type == "host" and not v.per_alloc)
    )
    if volumes:
        checks.append(host_volumes_check(volumes))
    return tuple(checks)


def host_volumes_check(volumes: tuple[tuple[str, bool], ...]) -> Check:
    """The check for host volumes: (name, whether read-only access is sufficient)."""
    text = "missing compatible host volumes"
    return Check(text, ("volumes", volumes), lambda node: _has_volumes(node, volumes), False)


def text_of_constraint(constraint: Constraint) -> str:
    """`${node.class} = big`."""
    return " ".join(part for part in (constraint.l_target, constraint.operand, constraint.r_target) if part)


def constraint_check(constraint: Constraint) -> Check:
    """The check of one constraint; its text appears in the API's metrics."""
    left, right, operand = constraint.l_target, constraint.r_target, constraint.operand
    is_per_node = is_unique(left) or is_unique(right)
    return Check(
        text=text_of_constraint(constraint),
        key=("constraint", left, operand, right),
        test=lambda node: holds(operand, resolve(left, node), resolve(right, node)),
        is_class_wide=not is_per_node,
        is_per_node=is_per_node,
        constraint=constraint,
    )


def is_row_feasible(snapshot: Snapshot, job: Job, group: TaskGroup, row: int) -> bool:
    """Whether one node is in the job's datacenters and pool and passes the group's checks, ready or not."""
    node = snapshot.nodes[snapshot.columns.nodes.ids[row]]
    return is_for_node(job, node) and all(check_mask(snapshot, check)[row] for check in checks_of(job, group))


def class_counts(rows: NodeColumns, mask: BoolArray) -> dict[str, int]:
    """The number of rows by node class; nodes without a class are not counted."""
    names = tuple(rows.classes.values)
    counts = np.bincount(rows.offered[:, NODE_CLASS][mask], minlength=len(names))
    return {name: int(n) for name, n in sorted(zip(names, counts, strict=True)) if name and n}


def _has_drivers(node: Node, drivers: tuple[str, ...]) -> bool:
    infos = (node.drivers.get(driver) for driver in drivers)
    return all(info is not None and info.detected and info.healthy for info in infos)


def _device_check(devices: tuple[RequestedDevice, ...]) -> Check:
    is_per_node = any(looks_at_instances(device) for device in devices) or any(
        is_unique(target)
        for device in devices
        for rule in device.constraints
        for target in (rule.l_target, rule.r_target)
    )
    return Check("missing devices", ("devices", devices), lambda node: has_devices(node, devices), False, is_per_node)


def _has_networks(node: Node, modes: tuple[str, ...]) -> bool:
    offered = {network.mode for network in node.node_resources.networks}
    return all(mode in offered for mode in modes)


def host_networks(group: TaskGroup) -> set[str]:
    """The host networks of a group's ports."""
    networks = [*group.networks, *(network for task in group.tasks for network in task.resources.networks)]
    aliases = {port.host_network for net in networks for port in (*net.reserved_ports, *net.dynamic_ports)}
    return aliases - {"", "default"}


def _has_volumes(node: Node, volumes: tuple[tuple[str, bool], ...]) -> bool:
    volumes_of_node = ((node.host_volumes.get(source), is_read_only) for source, is_read_only in volumes)
    return all(
        volume is not None and (is_read_only or not volume.read_only) for volume, is_read_only in volumes_of_node
    )


def _frozen(array: BoolArray) -> BoolArray:
    array.flags.writeable = False
    return array
