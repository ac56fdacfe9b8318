"""Device offers: the instances a node can give to a group's requests, with their affinity scores.

A request is met by instances of one kind where one kind has enough, else by several kinds, when its name leaves the
model open. Kinds are taken in the order of the request's affinities, then whole devices before parts of split ones,
then by topology (`topology`). Suspect devices are given when the others do not suffice, those on trial only to groups
that may have them (`trials`). A share of a device goes to the device with the least remaining capacity: to a device
that is shared already before a free one. Of alternatives (`first_available`) the first that the node can give is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice, permutations
from typing import NamedTuple

import msgspec

from yurt.scheduler.devices.attributes import IDS, INSTANCE_ATTRIBUTES, admits, attribute_of, meets
from yurt.scheduler.devices.bookings import (
    COMPUTE_MAX,
    NOTHING,
    SHARES_MAX,
    Booked,
    Share,
    bookings,
    capacity_mb,
    instance_key,
    modes_of,
    part_milli,
    parted,
)
from yurt.scheduler.devices.partitions import best_start, number_of_places, profiles_of, share_at
from yurt.scheduler.devices.topology import (
    IGNORE,
    PLACES,
    PREFER,
    REQUIRE,
    Cost,
    Layout,
    TopologyRequest,
    choose,
    layout_of,
    mask_of,
    members,
)
from yurt.scheduler.devices.trials import permits, trial_of
from yurt.sdk.device import MIG, SHARE_MARK, device_of
from yurt.sdk.value import replace
from yurt.structs.alloc import AllocatedDeviceResource
from yurt.structs.node import Attribute, Node, NodeDevice, NodeDeviceResource
from yurt.structs.resources import DeviceTopology, RequestedDevice

ORDERS_MAX = 24
"""The maximum number of orders in which the requests of a group are tried when the given order fails."""

CORES_MAX = 65_536
RACKS_MAX = 16_384
REQUESTS_MAX = 256
NO_TOPOLOGY = DeviceTopology()
WHOLE_DEVICE = Booked(is_whole=True)


class DeviceGrant(NamedTuple):
    """Instances granted to one task."""

    task: str
    device: AllocatedDeviceResource


class DeviceItem(msgspec.Struct, frozen=True):
    """One instance of a node; `key` identifies its booking, `is_part` marks the parts of split devices."""

    number: int
    kind_number: int
    kind: NodeDeviceResource
    instance: NodeDevice
    key: str
    is_part: bool


class KindChoice(msgspec.Struct, frozen=True):
    """The permitted instances of one kind for a request, and the kind's affinity score."""

    number: int
    mask: int
    weight: float
    is_part: bool


class Rack:
    """A node's devices, independent of bookings; built once per node."""

    def __init__(self, devices: tuple[NodeDeviceResource, ...]) -> None:
        self.devices = devices
        self.layout: Layout = layout_of(devices)
        pairs = [(number, kind, each) for number, kind in enumerate(devices) for each in kind.instances]
        self.items = tuple(
            DeviceItem(
                at, number, kind, each, instance_key(kind, each.id), attribute_of(kind, each, "mig_parent") is not None
            )
            for at, (number, kind, each) in enumerate(pairs)
        )
        self.number_of = {item.key: item.number for item in self.items}
        self.healthy = mask_of(item.number for item in self.items if item.instance.healthy)
        self.is_usable = all(item.instance.healthy and trial_of(item.instance) is None for item in self.items)
        self.suspect = mask_of(item.number for item in self.items if is_suspect(item.instance))
        self._matching: dict[RequestedDevice, list[DeviceItem]] = {}
        self._kinds: dict[RequestedDevice, list[KindChoice]] = {}

    def kinds(self, request: RequestedDevice) -> list[KindChoice]:
        """The kinds that match the request, in the node's order."""
        kinds = self._kinds.get(request)
        if kinds is None:
            if len(self._kinds) >= REQUESTS_MAX:
                self._kinds.clear()
            kinds = self._kinds[request] = [
                KindChoice(
                    number=items[0].kind_number,
                    mask=mask_of(item.number for item in items),
                    weight=matched_weight(items[0].kind, request),
                    is_part=items[0].is_part,
                )
                for items in _by_kind(self.matching(request))
            ]
        return kinds

    def matching(self, request: RequestedDevice) -> list[DeviceItem]:
        """The healthy instances that the request permits, booked or not."""
        items = self._matching.get(request)
        if items is None:
            if len(self._matching) >= REQUESTS_MAX:
                self._matching.clear()
            named = {number for number, kind in enumerate(self.devices) if is_named(kind, request.name)}
            items = self._matching[request] = [
                item
                for item in self.items
                if item.kind_number in named
                and item.instance.healthy
                and permits(item.instance, request)
                and (not request.constraints or admits(item.kind, item.instance, request.constraints))
            ]
        return items

    def free(self, in_use: Iterable[str]) -> int:
        """The healthy instances without bookings, as a mask."""
        free, numbers = self.healthy, self.number_of
        for key in in_use:
            number = numbers.get(key)
            if number is None:
                number = numbers.get(parted(key)[0])
            if number is not None:
                free &= ~(1 << number)
        return free


_racks: dict[int, Rack] = {}
"""Racks by the identity of a node's devices, which the rack keeps alive so that the identity is not reused."""


def rack_of(node: Node) -> Rack:
    """The rack of a node."""
    devices = node.node_resources.devices
    rack = _racks.get(id(devices))
    if rack is None:
        if len(_racks) >= RACKS_MAX:
            _racks.clear()
        rack = _racks[id(devices)] = Rack(devices)
    return rack


class DeviceOffer(msgspec.Struct, frozen=True):
    """The grants for a request, their bookings and the score."""

    devices: tuple[AllocatedDeviceResource, ...]
    bookings: tuple[tuple[str, Booked], ...]
    matched: float
    scores: tuple[float, ...] = ()


class Stock:
    """A node's devices and their bookings, while requests are met one after another.

    `free` has the free instances as a mask, which is all that requests for whole devices need.
    """

    def __init__(self, node: Node, in_use: Collection[str]) -> None:
        self.rack = rack_of(node)
        self.layout = self.rack.layout
        self.items = self.rack.items
        self.free = self.rack.free(in_use)
        self._in_use = in_use
        self._new_bookings: dict[str, Booked] = {}

    @cached_property
    def _booked(self) -> dict[str, Booked]:
        """The bookings before any request."""
        return bookings(self._in_use)

    def of(self, item: DeviceItem) -> Booked:
        """The bookings of an instance."""
        return self._new_bookings.get(item.key) or self._booked.get(item.key, NOTHING)

    def is_free(self, item: DeviceItem) -> bool:
        """Whether an instance is healthy and has no bookings."""
        return item.instance.healthy and self.of(item).is_free

    def matching(self, request: RequestedDevice) -> list[DeviceItem]:
        """The healthy instances that the request permits, booked or not."""
        return self.rack.matching(request)

    def take(self, offer: DeviceOffer) -> None:
        """Book the offer's instances, which later requests then cannot use."""
        for key, booked in offer.bookings:
            self._new_bookings[key] = booked
            self.free &= ~(1 << self.rack.number_of[key])


def has_devices(node: Node, requests: Iterable[RequestedDevice]) -> bool:
    """Whether the node could meet each request alone if all of its devices were free."""
    stock = Stock(node, ())
    return all(find_offer(stock, request) is not None for request in requests)


def looks_at_instances(request: RequestedDevice) -> bool:
    """Whether nodes of one class may differ because their instances differ."""
    topology = request.topology
    if request.share or (topology is not None and REQUIRE in (topology.nvlink, topology.numa)):
        return True
    targets = {target for rule in request.constraints for target in (rule.l_target, rule.r_target)}
    if targets & {IDS, "${device.id}", *(f"${{device.attr.{name}}}" for name in INSTANCE_ATTRIBUTES)}:
        return True
    return any(looks_at_instances(other) for other in request.first_available)


def wants_topology(request: RequestedDevice) -> bool:
    """Whether the adjacency of a node's devices affects the choice of the node."""
    several = request.count > 1 and not request.all_of_node and not request.share
    return several or any(wants_topology(other) for other in request.first_available)


def has_topology(nodes: Iterable[Node]) -> bool:
    """Whether any device reports its location."""
    kinds = (kind for node in nodes for kind in node.node_resources.devices)
    return any(PLACES & each.attributes.keys() for kind in kinds for each in kind.instances)


class DeviceGrants(msgspec.Struct, frozen=True):
    """A node's offers for the requests (task, request) of a group, in the order of the requests."""

    requests: Sequence[tuple[str, RequestedDevice]]
    offers: tuple[DeviceOffer, ...]

    @property
    def devices(self) -> tuple[DeviceGrant, ...]:
        """The instances granted to each task."""
        pairs = zip(self.requests, self.offers, strict=True)
        return tuple([DeviceGrant(task, device) for (task, _), offer in pairs for device in offer.devices])

    @property
    def score(self) -> float:
        """The mean of affinity and adjacency scores."""
        total = sum(abs(affinity.weight) for _, request in self.requests for affinity in request.affinities)
        parts = [sum(offer.matched for offer in self.offers) / total] if total else []
        parts += [score for offer in self.offers for score in offer.scores]
        return sum(parts) / len(parts) if parts else 0.0


def grant_devices(
    node: Node, in_use: Collection[str], requests: Sequence[tuple[str, RequestedDevice]]
) -> DeviceGrants | None:
    """Free instances for every (task, request), or None when a request cannot be met.

    The requests are met in their order; when that fails other orders are tried, for one may have taken the only
    instance that another can use.
    """
    for order in islice(permutations(range(len(requests))), ORDERS_MAX):
        stock = Stock(node, in_use)
        offers: dict[int, DeviceOffer] = {}
        for at in order:
            offer = find_offer(stock, requests[at][1])
            if offer is None:
                break
            stock.take(offer)
            offers[at] = offer
        else:
            return DeviceGrants(requests, tuple([offers[at] for at in range(len(requests))]))
    return None


def find_offer(stock: Stock, request: RequestedDevice) -> DeviceOffer | None:
    """The node's present offer for a request."""
    choices = request.first_available
    for at, choice in enumerate(choices):
        offer = find_offer(stock, choice)
        if offer is not None:
            return replace(offer, scores=(*offer.scores, 1 - at / len(choices)), matched=0.0)
    if choices:
        return None
    if request.all_of_node:
        return _all(stock, stock.matching(request))
    if request.share == MIG:
        items = stock.matching(request)
        return _part(stock, request, items) or _new_parts(stock, request, items)
    if request.share:
        return _shares(stock, request, stock.matching(request))
    return _whole(stock, request)


def matched_weight(kind: NodeDeviceResource, request: RequestedDevice) -> float:
    """The total weight of the affinities that a kind of device meets."""
    return float(sum(a.weight for a in request.affinities if meets(a.operand, kind, a.l_target, a.r_target)))


def is_named(kind: NodeDeviceResource, name: str) -> bool:
    """Whether a request by `type`, `vendor/type` or `vendor/type/name` matches this kind."""
    parts = name.split("/", 2)
    if len(parts) == 1:
        return kind.type == parts[0]
    if len(parts) == 2:
        return [kind.vendor, kind.type] == parts
    return [kind.vendor, kind.type, kind.name] == parts


def wish_of(request: RequestedDevice, last: int = 0) -> TopologyRequest:
    """The adjacency that the request wants for its devices; those of the mask `last` come last."""
    topology = request.topology or NO_TOPOLOGY
    return TopologyRequest(max(0, request.count), topology.nvlink or PREFER, topology.numa or PREFER, last)


def is_suspect(device: NodeDevice) -> bool:
    """Whether a device may be used and shows signs of a fault."""
    return device.healthy and device.health is not None and device.health.state == "suspect"


def suspects_of(node: Node) -> frozenset[str]:
    """The ids of a node's suspect devices."""
    return frozenset(each.id for kind in node.node_resources.devices for each in kind.instances if is_suspect(each))


def _by_kind(items: Iterable[DeviceItem]) -> Iterator[list[DeviceItem]]:
    kinds: dict[int, list[DeviceItem]] = {}
    for item in items:
        kinds.setdefault(item.kind_number, []).append(item)
    yield from kinds.values()


def _whole(stock: Stock, request: RequestedDevice) -> DeviceOffer | None:
    wish, free, layout = wish_of(request, stock.rack.suspect), stock.free, stock.layout
    offers = []
    for kind in stock.rack.kinds(request):
        chosen = choose(layout, kind.mask & free, free, wish)
        if chosen is not None:
            offers.append((kind, chosen))
    if offers:
        kind, chosen = offers[0]
        if len(offers) > 1:
            kind, chosen = min(offers, key=lambda o: _rank(o[0], layout.cost(members(o[1]), free, wish)))
        return _offer_of(stock, chosen, kind.weight, wish)
    if wish.number < 2 or request.name.count("/") > 1:
        return None
    mixed = mask_of(item.number for item in stock.matching(request) if not item.is_part) & free
    chosen_of_all = choose(layout, mixed, free, wish)
    return None if chosen_of_all is None else _offer_of(stock, chosen_of_all, 0.0, wish)


def _rank(kind: KindChoice, cost: Cost) -> tuple[float, int, bool, Cost, int]:
    """The order of kinds for whole devices: affinities, fewest suspect devices, whole cards, topology."""
    return (-kind.weight, cost[0], kind.is_part, cost, kind.number)


def _all(stock: Stock, items: list[DeviceItem]) -> DeviceOffer | None:
    if not items or not all(stock.is_free(item) for item in items):
        return None
    wish = TopologyRequest(len(items), IGNORE, IGNORE)
    return _offer_of(stock, mask_of(item.number for item in items), 0.0, wish)


def _part(stock: Stock, request: RequestedDevice, matching: list[DeviceItem]) -> DeviceOffer | None:
    """An offer of MIG instances: the smallest with sufficient memory, on the most used card."""
    free_of: dict[str, int] = {}
    usable = []
    for item in matching:
        if not item.is_part or not stock.is_free(item):
            continue
        parent = _parent(item)
        free_of[parent] = free_of.get(parent, 0) + 1
        if capacity_mb(item.kind, item.instance) >= request.memory_mb:
            usable.append(item)
    for item in stock.items:
        if item.is_part and stock.is_free(item) and item not in matching and _parent(item) in free_of:
            free_of[_parent(item)] += 1
    usable.sort(
        key=lambda i: (
            capacity_mb(i.kind, i.instance),
            is_suspect(i.instance),
            free_of[_parent(i)],
            _parent(i),
            i.number,
        )
    )
    for items in _by_kind(usable):
        if len(items) >= request.count:
            chosen = mask_of(item.number for item in items[: request.count])
            return _offer_of(
                stock, chosen, matched_weight(items[0].kind, request), TopologyRequest(request.count, IGNORE, IGNORE)
            )
    return None


def _new_parts(stock: Stock, request: RequestedDevice, matching: list[DeviceItem]) -> DeviceOffer | None:
    """An offer of MIG instances that the node creates: of the smallest profile with sufficient memory that has places.

    They go to cards that are split already before free ones, and to suspect cards last.
    """
    candidates = []
    for items in _by_kind(matching):
        profiles = {p for item in items for p in profiles_of(item.kind, item.instance)}
        sizes = sorted((p.memory_mb, p.compute) for p in profiles if p.memory_mb >= request.memory_mb)
        for memory_mb, compute in dict.fromkeys(sizes):
            places = _places_for(stock, items, replace(request, memory_mb=memory_mb, compute=compute))
            if places:
                kind = items[0].kind
                weight = matched_weight(kind, request)
                candidates.append(((-weight, memory_mb, compute, items[0].kind_number), kind, places, weight))
                break
    if not candidates:
        return None
    (_, memory_mb, compute, _), kind, places, weight = min(candidates, key=lambda each: each[0])
    device = AllocatedDeviceResource(
        vendor=kind.vendor,
        type=kind.type,
        name=kind.name,
        device_ids=tuple(f"{item.instance.id}{SHARE_MARK}{booked.shares[-1].number}" for item, booked in places),
        share=MIG,
        memory_mb=memory_mb,
        compute=compute,
        part_milli=max(part_milli(kind, item.instance, memory_mb, compute) for item, _ in places),
    )
    return DeviceOffer((device,), tuple((item.key, booked) for item, booked in places), weight)


def _places_for(
    stock: Stock, items: list[DeviceItem], request: RequestedDevice
) -> list[tuple[DeviceItem, Booked]] | None:
    """Places for `count` instances of the profile with this memory and compute, each with its card's bookings then."""
    after = {item.key: stock.of(item) for item in items}
    places: list[tuple[DeviceItem, Booked]] = []
    while len(places) < request.count:
        place = _best_place(stock, items, after, request)
        if place is None:
            return None
        after[place[0].key] = place[1]
        places.append(place)
    return places


def _best_place(
    stock: Stock, items: list[DeviceItem], booked: dict[str, Booked], request: RequestedDevice
) -> tuple[DeviceItem, Booked] | None:
    amounts = (request.memory_mb, request.compute)
    usable: dict[int, tuple[tuple[bool, bool, int, int], Booked]] = {}
    for item in items:
        profiles, before = profiles_of(item.kind, item.instance), booked[item.key]
        profile = next((each for each in profiles if (each.memory_mb, each.compute) == amounts), None)
        start = None if profile is None else best_start(profiles, profile, before)
        if profile is not None and start is not None:
            rank = (is_suspect(item.instance), before.is_free, -before.compute, item.number)
            usable[item.number] = (rank, replace(before, shares=(*before.shares, share_at(profile, start))))
    if not usable:
        return None
    best = min(usable, key=lambda number: usable[number][0])
    if booked[stock.items[best].key].is_free:
        # Of free cards take the one whose loss costs the topology of the others least.
        fresh = mask_of(number for number, (rank, _) in usable.items() if rank[:2] == usable[best][0][:2])
        chosen = choose(stock.layout, fresh, stock.free, TopologyRequest(1, IGNORE, IGNORE))
        best = members(chosen)[0] if chosen else best
    return stock.items[best], usable[best][1]


def mig_places(stock: Stock, request: RequestedDevice) -> int:
    """The number of MIG instances for a request: present ones that are free, and those that cards have places for."""
    places = 0
    for item in stock.matching(request):
        if item.is_part:
            places += stock.is_free(item) and capacity_mb(item.kind, item.instance) >= request.memory_mb
        else:
            places += number_of_places(profiles_of(item.kind, item.instance), request.memory_mb, stock.of(item))
    return places


def mig_places_max(rack: Rack, request: RequestedDevice) -> int:
    """The maximum number of MIG instances for a request on one free card."""
    cards = (profiles_of(item.kind, item.instance) for item in rack.matching(request) if not item.is_part)
    return max((number_of_places(profiles, request.memory_mb, NOTHING) for profiles in cards), default=0)


def _parent(item: DeviceItem) -> str:
    attribute = attribute_of(item.kind, item.instance, "mig_parent")
    return (attribute.string_val or "") if attribute is not None else ""


def _offer_of(stock: Stock, chosen: int, matched: float, wish: TopologyRequest) -> DeviceOffer:
    items = [stock.items[number] for number in members(chosen)]
    devices = tuple(
        AllocatedDeviceResource(
            vendor=same[0].kind.vendor,
            type=same[0].kind.type,
            name=same[0].kind.name,
            device_ids=tuple([item.instance.id for item in same]),
        )
        for same in _by_kind(items)
    )
    is_scored = len(items) > 1 and stock.layout.has_places and IGNORE not in (wish.nvlink, wish.numa)
    scores = (stock.layout.quality(members(chosen), wish),) if is_scored else ()
    return DeviceOffer(devices, tuple([(item.key, WHOLE_DEVICE) for item in items]), matched, scores)


def capacity_for_share(stock: Stock, request: RequestedDevice, item: DeviceItem) -> tuple[int, int] | None:
    """MiB and percent of an instance still bookable by shares of this mode; None if it cannot be shared so."""
    booked = stock.of(item)
    if item.is_part or booked.is_whole or request.share not in modes_of(item.kind, item.instance):
        return None
    if booked.modes - {request.share} or len(booked.shares) >= SHARES_MAX:
        return None
    return capacity_mb(item.kind, item.instance) - booked.memory_mb, COMPUTE_MAX - booked.compute


def _shares(stock: Stock, request: RequestedDevice, matching: list[DeviceItem]) -> DeviceOffer | None:
    best = None
    for items in _by_kind(matching):
        chosen = _cards_for(stock, request, items)
        if chosen is None:
            continue
        weight = matched_weight(items[0].kind, request)
        fresh = sum(stock.is_free(item) for item in chosen)
        suspects = sum(is_suspect(item.instance) for item in chosen)
        candidate = ((-weight, suspects, fresh, items[0].kind_number), chosen, weight)
        best = candidate if best is None or candidate[0] < best[0] else best
    if best is None:
        return None
    _, cards, weight = best
    shares = [Share(stock.of(c).next_number(), request.share, request.memory_mb, request.compute) for c in cards]
    device = AllocatedDeviceResource(
        vendor=cards[0].kind.vendor,
        type=cards[0].kind.type,
        name=cards[0].kind.name,
        device_ids=tuple(f"{c.instance.id}{SHARE_MARK}{s.number}" for c, s in zip(cards, shares, strict=True)),
        share=request.share,
        memory_mb=request.memory_mb,
        compute=request.compute,
        part_milli=max(part_milli(c.kind, c.instance, request.memory_mb, request.compute) for c in cards),
    )
    booked = [(c.key, Booked(shares=(*stock.of(c).shares, s))) for c, s in zip(cards, shares, strict=True)]
    return DeviceOffer((device,), tuple(booked), weight)


def _cards_for(stock: Stock, request: RequestedDevice, items: list[DeviceItem]) -> list[DeviceItem] | None:
    """Cards with capacity for one share each: shared ones with the least remaining capacity first, then free ones.

    Suspect cards come after both.
    """
    fitting = []
    for item in items:
        capacity = capacity_for_share(stock, request, item)
        if capacity is not None and capacity[0] >= request.memory_mb and capacity[1] >= request.compute:
            fitting.append((capacity[0], item))
    chosen: list[DeviceItem] = []
    for is_last in (False, True):
        of_kind = [pair for pair in fitting if is_suspect(pair[1].instance) == is_last]
        used = sorted(
            (pair for pair in of_kind if not stock.is_free(pair[1])), key=lambda pair: (pair[0], pair[1].number)
        )
        chosen += [item for _, item in used[: request.count - len(chosen)]]
        fresh = mask_of(item.number for _, item in of_kind if stock.is_free(item))
        missing = min(request.count - len(chosen), fresh.bit_count())
        if missing > 0:
            mask = choose(stock.layout, fresh, stock.free, TopologyRequest(missing, IGNORE, IGNORE))
            chosen += [stock.items[number] for number in members(mask or 0)]
    return chosen if len(chosen) == request.count else None


def near_cores(node: Node, devices: Iterable[AllocatedDeviceResource]) -> frozenset[int]:
    """The cores near the devices, as the devices report them."""
    device_ids = {device_of(each) for device in devices for each in device.device_ids}
    cores: set[int] = set()
    for kind in node.node_resources.devices if device_ids else ():
        for instance in kind.instances:
            if instance.id in device_ids:
                cores.update(_numbers(attribute_of(kind, instance, "cpu_affinity")))
    return frozenset(cores)


def _numbers(attribute: Attribute | None) -> Iterator[int]:
    """The numbers in a text: "0-3,8" as 0, 1, 2, 3 and 8."""
    for part in (attribute.string_val or "").split(",") if attribute is not None else ():
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            yield from range(int(first), min(int(last or first), int(first) + CORES_MAX) + 1)
