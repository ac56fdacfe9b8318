"""Bounds on the numbers and lists of rows from another cluster, which its own servers checked or did not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, get_args

import msgspec

from yurt.api.decode import INT_MAX
from yurt.sdk.value import Duration, UnixNano
from yurt.structs.alloc import AllocatedMemoryResources
from yurt.structs.network import Port, PortMapping
from yurt.structs.node import Attribute, Node, NodeResources

AMOUNT_MAX: Final = 1 << 50
ITEMS_MAX: Final = 10_000
"""Entries of one list or mapping: devices, cores, ports, attributes."""
TEXT_MAX: Final = 64 * 1024
CORE_MAX: Final = 1 << 16
PORT_MAX: Final = 65535
NESTING_MAX: Final = 16
LIMITS: Final[Mapping[tuple[type, str], tuple[int, int]]] = {
    (Port, "value"): (0, PORT_MAX), (Port, "to"): (-1, PORT_MAX),
    (PortMapping, "value"): (0, PORT_MAX), (PortMapping, "to"): (-1, PORT_MAX),
    (NodeResources, "min_dynamic_port"): (0, PORT_MAX), (NodeResources, "max_dynamic_port"): (0, PORT_MAX),
    (AllocatedMemoryResources, "memory_max_mb"): (-1, AMOUNT_MAX),
}  # fmt: skip


class _Field(NamedTuple):
    name: str
    shown: str
    low: int
    high: int


def bound_problems(value: Any, name: str, depth: int = 0) -> Iterator[str]:
    """What exceeds its bounds, with its field; `name` opens the paths."""
    if isinstance(value, bool) or value is None or type(value) is Attribute:
        return
    if depth > NESTING_MAX:
        yield f"{name}: nested too deeply"
    elif isinstance(value, msgspec.Struct):
        for field in _fields(type(value)):
            part = getattr(value, field.name)
            if type(part) is not int:
                yield from bound_problems(part, f"{name}.{field.shown}", depth + 1)
            elif not field.low <= part <= field.high:
                yield f"{name}.{field.shown}: {part} is not from {field.low} to {field.high}"
    elif isinstance(value, str):
        if len(value) > TEXT_MAX:
            yield f"{name}: a text of {len(value)} characters; {TEXT_MAX} are possible"
    elif isinstance(value, Mapping | tuple):
        yield from _list_problems(value, name, depth)
    elif type(value) is int and not 0 <= value <= AMOUNT_MAX:
        yield f"{name}: {value} is not from 0 to {AMOUNT_MAX}"


def _list_problems(value: Mapping[str, Any] | tuple[Any, ...], name: str, depth: int) -> Iterator[str]:
    if len(value) > ITEMS_MAX:
        yield f"{name} has {len(value)} entries; {ITEMS_MAX} are possible"
        return
    entries = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, each in entries:
        yield from bound_problems(each, f"{name}[{str(key)[:64]}]", depth + 1)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    return tuple(
        _Field(field.name, field.encode_name, *LIMITS.get((kind, field.name), (0, _most(field.type))))
        for field in msgspec.structs.fields(kind)
    )


def _most(kind: Any) -> int:
    """The largest value of a number: times and durations are in nanoseconds, and 30 days of these exceed 2^50."""
    return INT_MAX if {Duration, UnixNano} & {kind, *get_args(kind)} else AMOUNT_MAX


def node_problems(node: Node) -> Iterator[str]:
    """What of a node no agent reports."""
    yield from bound_problems(node, "Node")
    resources = node.node_resources
    yield from _core_problems(resources.cpu.reservable_cpu_cores, "Node.NodeResources.Cpu.ReservableCpuCores")
    ids = [each.id for device in resources.devices for each in device.instances]
    if not all(ids):
        yield "Node.NodeResources.Devices: a device without an ID"
    if len(set(ids)) < len(ids):
        yield "Node.NodeResources.Devices: two devices have the same ID"
    topology = resources.processors.topology
    if topology is not None:
        name = "Node.NodeResources.Processors.Topology"
        yield from _core_problems([each.id for each in topology.cores], f"{name}.Cores")
        if any(len(row) != len(topology.distances) for row in topology.distances):
            yield f"{name}.Distances: not as many columns as rows"


def _core_problems(cores: Any, name: str) -> Iterator[str]:
    if len(set(cores)) < len(cores):
        yield f"{name}: a core twice"
    yield from (f"{name}: {each} is not the number of a core" for each in cores if each >= CORE_MAX)
