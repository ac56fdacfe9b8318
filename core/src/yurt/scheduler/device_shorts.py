"""What a node's devices lack for the requests of a group, in numbers and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from yurt.scheduler.bookings import capacity_mb, modes_of
from yurt.scheduler.device_values import admits
from yurt.scheduler.devices import Item, Stock, find_offer, grant_devices, is_named, room_for_share, wish_of
from yurt.scheduler.feasible import text_of_constraint
from yurt.scheduler.topology import REQUIRE
from yurt.sdk.device import MIG
from yurt.sdk.value import replace
from yurt.structs.constraint import Constraint
from yurt.structs.node import Node
from yurt.structs.resources import RequestedDevice


class DeviceShort(NamedTuple):
    """A request that a node cannot meet: so many of what is asked could be given; `text` says what lacks.

    `room_mb` is what a share could have at most; without the constraint `rule` all that is asked could be given.
    """

    at: int
    task: str
    request: RequestedDevice
    free: int
    text: str = ""
    room_mb: int = 0
    rule: Constraint | None = None


def device_shortages(
    node: Node, taken: Iterable[str], requests: Sequence[tuple[str, RequestedDevice]]
) -> tuple[DeviceShort, ...]:
    """The requests that find too little when every one takes what it can get, in order."""
    held = tuple(taken)
    if grant_devices(node, held, requests) is not None:
        return ()
    found, stock = [], Stock(node, held)
    for at, (task, request) in enumerate(requests):
        offer = find_offer(stock, request)
        if offer is None:
            least = _most(stock, request)
            found.append(_short(stock, at, task, request, least))
            offer = find_offer(stock, replace(request, count=least)) if least else None
        if offer is not None:
            stock.take(offer)
    return tuple(found)


def _most(stock: Stock, request: RequestedDevice) -> int:
    """How many of the asked could be given."""
    if request.first_available or request.all_of_node:
        return 0
    counts = range(min(request.count - 1, len(stock.items)), 0, -1)
    return next((n for n in counts if find_offer(stock, replace(request, count=n)) is not None), 0)


def _short(stock: Stock, at: int, task: str, request: RequestedDevice, least: int) -> DeviceShort:
    if request.first_available:
        first = _short(stock, at, task, request.first_available[0], 0)
        number = len(request.first_available)
        return DeviceShort(at, task, request, 0, f"none of {number} alternatives fits, the first: {first.text}")
    items = stock.matching(request)
    if not items:
        return DeviceShort(at, task, request, 0, _nothing_text(stock, request), rule=_rule_in_the_way(stock, request))
    if request.all_of_node:
        free = sum(stock.is_free(item) for item in items)
        text = f"{len(items) - free} of its {len(items)} {request.name} are taken, all are asked for"
        return DeviceShort(at, task, request, 0, text)
    if request.share == MIG:
        return DeviceShort(at, task, request, least, _part_text(stock, request, items))
    if request.share:
        return _share_short(stock, at, task, request, items)
    return DeviceShort(at, task, request, least, _whole_text(stock, request, items, least))


def _nothing_text(stock: Stock, request: RequestedDevice) -> str:
    """Why no device of the node is one that is asked for, taken or not."""
    name = request.name
    named = [item for item in stock.items if is_named(item.kind, name)]
    healthy = [item for item in named if item.instance.healthy]
    if not healthy:
        return f"none of its {len(named)} {name} is healthy" if named else f'device "{name}" is missing'
    unmet = [
        rule for rule in request.constraints if not any(admits(item.kind, item.instance, (rule,)) for item in healthy)
    ]
    texts = " and ".join(map(text_of_constraint, unmet or request.constraints))
    return f"none of its {len(healthy)} {name} meets {texts}"


def _rule_in_the_way(stock: Stock, request: RequestedDevice) -> Constraint | None:
    """The constraint of a request without which the node could meet it now."""
    for rule in request.constraints:
        others = tuple(other for other in request.constraints if other != rule)
        if find_offer(stock, replace(request, constraints=others)) is not None:
            return rule
    return None


def _whole_text(stock: Stock, request: RequestedDevice, items: list[Item], least: int) -> str:
    free = sum(stock.is_free(item) for item in items)
    wish = wish_of(request)
    if free >= request.count and REQUIRE in (wish.nvlink, wish.numa):
        what = "joined by NVLink" if wish.nvlink == REQUIRE else "on one NUMA node"
        return f"no {request.count} of its {free} free {request.name} are {what}, at most {max(1, least)}"
    return f"{request.count - least} {request.name} short ({request.count} asked, {least} free)"


def _part_text(stock: Stock, request: RequestedDevice, items: list[Item]) -> str:
    parts = [item for item in items if item.is_part]
    fitting = [item for item in parts if capacity_mb(item.kind, item.instance) >= request.memory_mb]
    if not parts:
        return f"no {request.name} is split into MIG instances"
    if not fitting:
        most = max(capacity_mb(item.kind, item.instance) for item in parts)
        return f"no MIG instance has {request.memory_mb} MiB, the largest has {most}"
    free = sum(stock.is_free(item) for item in fitting)
    return f"{request.count} MIG instances of {request.memory_mb} MiB asked, {free} free"


def _share_short(stock: Stock, at: int, task: str, request: RequestedDevice, items: list[Item]) -> DeviceShort:
    rooms = [room for item in items if (room := room_for_share(stock, request, item)) is not None]
    if not rooms:
        able = any(request.share in modes_of(item.kind, item.instance) for item in items)
        text = (
            f"every {request.name} is taken whole or shared otherwise"
            if able
            else f"no {request.name} can be shared by {request.share}"
        )
        return DeviceShort(at, task, request, 0, text)
    memory = max(room[0] for room in rooms)
    if memory < request.memory_mb:
        text = f"GPU memory {request.memory_mb - memory} MiB short ({request.memory_mb} asked, {memory} free)"
        return DeviceShort(at, task, request, 0, text, room_mb=memory)
    compute = max(room[1] for room in rooms if room[0] >= request.memory_mb)
    if compute < request.compute:
        text = f"GPU compute {request.compute - compute} % short ({request.compute} asked, {compute} free)"
        return DeviceShort(at, task, request, 0, text)
    able_now = sum(room[0] >= request.memory_mb and room[1] >= request.compute for room in rooms)
    text = f"{request.count - able_now} {request.name} short ({request.count} asked, {able_now} have room for a share)"
    return DeviceShort(at, task, request, able_now, text)
