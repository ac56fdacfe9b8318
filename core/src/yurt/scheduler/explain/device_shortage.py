"""The shortage of a node's devices for a group's requests, in numbers and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from yurt.scheduler.devices.attributes import admits
from yurt.scheduler.devices.bookings import capacity_mb, modes_of
from yurt.scheduler.devices.offers import (
    DeviceItem,
    Stock,
    capacity_for_share,
    find_offer,
    grant_devices,
    is_named,
    wish_of,
)
from yurt.scheduler.devices.partitions import profiles_of
from yurt.scheduler.devices.topology import REQUIRE
from yurt.scheduler.devices.trials import TrialRequest, permits, trial_of, trial_text
from yurt.scheduler.feasibility.masks import text_of_constraint
from yurt.sdk.device import MIG
from yurt.sdk.value import replace
from yurt.structs.constraint import Constraint
from yurt.structs.node import Node
from yurt.structs.resources import RequestedDevice

TRIALS_SHOWN = 2
"""The number of devices on trial named to a user."""
KINDS_SHOWN = 5
"""The number of kinds of devices named to a user whose request names an unknown one."""


class DeviceShortage(NamedTuple):
    """A request that a node cannot meet: the number of devices it could provide; `text` names the shortage.

    `reason` says it without the numbers of the node, to follow the name of the device: nodes are counted by it.
    `free_mb` is what a share could have at most; without the constraint `rule` all that is asked could be given.
    """

    at: int
    task: str
    request: RequestedDevice
    free: int
    text: str
    reason: str
    free_mb: int = 0
    rule: Constraint | None = None


Words = tuple[str, str]
"""The text of a shortage and its reason."""


def device_shortages(
    node: Node, keys: Iterable[str], requests: Sequence[tuple[str, RequestedDevice]]
) -> tuple[DeviceShortage, ...]:
    """The requests that are not met if each gets as much as possible, in order."""
    in_use = tuple(keys)
    if grant_devices(node, in_use, requests) is not None:
        return ()
    shortages, stock = [], Stock(node, in_use)
    for at, (task, request) in enumerate(requests):
        offer = find_offer(stock, request)
        if offer is None:
            least = _most(stock, request)
            shortages.append(_with_trials(stock, request, _short(stock, at, task, request, least)))
            offer = find_offer(stock, replace(request, count=least)) if least else None
        if offer is not None:
            stock.take(offer)
    return tuple(shortages)


def _with_trials(stock: Stock, request: RequestedDevice, short: DeviceShortage) -> DeviceShortage:
    """The shortage with the devices on trial that the group may not have, though they are free."""
    if not isinstance(request, TrialRequest):
        return short
    choices = (request, *request.first_available)
    withheld = [
        item
        for item in stock.items
        if stock.is_free(item)
        and not permits(item.instance, request)
        and any(is_named(item.kind, choice.name) for choice in choices)
    ]
    trials = [trial for item in withheld if (trial := trial_of(item.instance)) is not None]
    if not trials:
        return short
    texts = [f"{item.instance.id} is {trial_text(trial)}" for item, trial in zip(withheld, trials, strict=True)]
    more = f" and {len(texts) - TRIALS_SHOWN} more are on trial" if len(texts) > TRIALS_SHOWN else ""
    text = f"{short.text}; {'; '.join(texts[:TRIALS_SHOWN])}{more}"
    return short._replace(text=text, reason=f"{short.reason}; some are on trial, for short or restartable groups only")


def _most(stock: Stock, request: RequestedDevice) -> int:
    """The maximum number of the requested devices that could be provided."""
    if request.first_available or request.all_of_node:
        return 0
    counts = range(min(request.count - 1, len(stock.items)), 0, -1)
    return next((n for n in counts if find_offer(stock, replace(request, count=n)) is not None), 0)


def _short(stock: Stock, at: int, task: str, request: RequestedDevice, least: int) -> DeviceShortage:
    if request.first_available:
        first = _short(stock, at, task, request.first_available[0], 0)
        number = len(request.first_available)
        text = f"none of {number} alternatives fits, the first: {first.text}"
        return DeviceShortage(at, task, request, 0, text, f": none of the {number} alternatives fits")
    items = stock.matching(request)
    if not items:
        rule = _rule_in_the_way(stock, request)
        return DeviceShortage(at, task, request, 0, *_nothing_words(stock, request), rule=rule)
    if request.all_of_node:
        free = sum(stock.is_free(item) for item in items)
        text = f"{len(items) - free} of its {len(items)} {request.name} are taken, all are asked for"
        return DeviceShortage(at, task, request, 0, text, ": some are taken, all are asked for")
    if request.share == MIG:
        return DeviceShortage(at, task, request, least, *_part_words(stock, request, items))
    if request.share:
        return _share_short(stock, at, task, request, items)
    return DeviceShortage(at, task, request, least, *_whole_words(stock, request, items, least))


def _nothing_words(stock: Stock, request: RequestedDevice) -> Words:
    """The reason when no device of the node matches a request, booked or not."""
    name = request.name
    named = [item for item in stock.items if is_named(item.kind, name)]
    healthy = [item for item in named if item.instance.healthy]
    if not named:
        return f'device "{name}" is missing{_available_words(stock)}', " missing"
    permitted = [item for item in healthy if permits(item.instance, request)]
    if healthy and not permitted:
        return f"none of its {len(healthy)} healthy {name} is open to this group", ": none is open to this group"
    healthy = permitted
    if not healthy:
        return f"none of its {len(named)} {name} is healthy", " not healthy"
    unmet = [
        rule for rule in request.constraints if not any(admits(item.kind, item.instance, (rule,)) for item in healthy)
    ]
    texts = " and ".join(map(text_of_constraint, unmet or request.constraints))
    return f"none of its {len(healthy)} {name} meets {texts}", f": none meets {texts}"


def _available_words(stock: Stock) -> str:
    """The kinds that could be requested instead, as in `; the node has nvidia/gpu/A100`; "" for none."""
    kinds = sorted({f"{item.kind.vendor}/{item.kind.type}/{item.kind.name}" for item in stock.items})
    more = f" and {len(kinds) - KINDS_SHOWN} more" if len(kinds) > KINDS_SHOWN else ""
    return f"; the node has {', '.join(kinds[:KINDS_SHOWN])}{more}" if kinds else ""


def _rule_in_the_way(stock: Stock, request: RequestedDevice) -> Constraint | None:
    """The constraint without which the node could meet the request now."""
    for rule in request.constraints:
        others = tuple(other for other in request.constraints if other != rule)
        if find_offer(stock, replace(request, constraints=others)) is not None:
            return rule
    return None


def _whole_words(stock: Stock, request: RequestedDevice, items: list[DeviceItem], least: int) -> Words:
    name, count = request.name, request.count
    free = sum(stock.is_free(item) for item in items)
    wish = wish_of(request)
    if free >= count and REQUIRE in (wish.nvlink, wish.numa):
        what = "joined by NVLink" if wish.nvlink == REQUIRE else "on one NUMA node"
        return f"no {count} of its {free} free {name} are {what}, at most {max(1, least)}", f": no {count} free {what}"
    text = f"{count - least} {name} short ({count} asked, {least} free)"
    return text, f": {_fewer(count)}" + (" free" if len(items) >= count else "")


def _part_words(stock: Stock, request: RequestedDevice, items: list[DeviceItem]) -> Words:
    name, memory = request.name, request.memory_mb
    parts = [item for item in items if item.is_part]
    fitting = [item for item in parts if capacity_mb(item.kind, item.instance) >= memory]
    profiles = [profile for item in items for profile in profiles_of(item.kind, item.instance)]
    if profiles:
        return _creatable_words(stock, request, parts, max(each.memory_mb for each in profiles))
    if not parts:
        return f"no {name} is split into MIG instances", ": none is split into MIG instances"
    if not fitting:
        most = max(capacity_mb(item.kind, item.instance) for item in parts)
        return f"no MIG instance has {memory} MiB, the largest has {most}", f": no MIG instance has {memory} MiB"
    free = sum(stock.is_free(item) for item in fitting)
    text = f"{request.count} MIG instances of {memory} MiB asked, {free} free"
    return text, f": {_fewer(request.count, 'MIG instance')} of {memory} MiB free"


def _creatable_words(stock: Stock, request: RequestedDevice, parts: list[DeviceItem], profile_mb: int) -> Words:
    """The reason on a node that creates MIG instances of profiles with at most `profile_mb`."""
    most = max([profile_mb, *(capacity_mb(item.kind, item.instance) for item in parts)])
    memory = request.memory_mb
    if most < memory:
        return f"no MIG profile has {memory} MiB, the largest has {most}", f": no MIG profile has {memory} MiB"
    free = _most(stock, request)
    text = f"{request.count} MIG instances of {memory} MiB asked, {free} can be had"
    return text, f": {_fewer(request.count, 'MIG instance')} of {memory} MiB can be created"


def _share_short(stock: Stock, at: int, task: str, request: RequestedDevice, items: list[DeviceItem]) -> DeviceShortage:
    name, required = request.name, request.memory_mb
    capacities = [capacity for item in items if (capacity := capacity_for_share(stock, request, item)) is not None]
    if not capacities and any(request.share in modes_of(item.kind, item.instance) for item in items):
        text, reason = f"every {name} is taken whole or shared otherwise", ": all are taken whole or shared otherwise"
        return DeviceShortage(at, task, request, 0, text, reason)
    if not capacities:
        text = f"no {name} can be shared by {request.share}{_sharing_words(items)}"
        reason = f": none can be shared by {request.share}"
        return DeviceShortage(at, task, request, 0, text, reason)
    memory = max(capacity[0] for capacity in capacities)
    if memory < required:
        text = f"GPU memory {required - memory} MiB short ({required} asked, {memory} free)"
        return DeviceShortage(at, task, request, 0, text, f": none has {required} MiB free", free_mb=memory)
    compute = max(capacity[1] for capacity in capacities if capacity[0] >= required)
    if compute < request.compute:
        text = f"GPU compute {request.compute - compute} % short ({request.compute} asked, {compute} free)"
        return DeviceShortage(at, task, request, 0, text, f": none has {request.compute} % of its compute free")
    able_now = sum(capacity[0] >= required and capacity[1] >= request.compute for capacity in capacities)
    text = f"{request.count - able_now} {name} short ({request.count} asked, {able_now} have room for a share)"
    return DeviceShortage(at, task, request, able_now, text, f": {_fewer(request.count)} have room for a share")


def _sharing_words(items: list[DeviceItem]) -> str:
    """The ways of sharing that the devices offer instead."""
    modes = sorted({mode for item in items for mode in modes_of(item.kind, item.instance)} - {MIG})
    return f"; the node shares them by {', '.join(modes)}" if modes else "; the node gives them only as a whole"


def _fewer(count: int, noun: str = "") -> str:
    """Too few devices, without naming a number."""
    if count == 1:
        return f"no {noun}" if noun else "none"
    return f"fewer than {count}" + (f" {noun}s" if noun else "")
