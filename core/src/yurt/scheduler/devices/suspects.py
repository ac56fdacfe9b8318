"""Whether a node would give a group a suspect device.

Suspect devices come last, so most nodes answer without a choice of devices: one with enough others gives none, and one
with too few others gives one. Only what is in between, and requests with an order or conditions of their own (shares,
parts, alternatives, affinities, required topologies), are asked for the grant itself, which takes twenty times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from yurt.scheduler.devices.offers import Rack, grant_devices, rack_of, suspects_of
from yurt.scheduler.devices.topology import REQUIRE
from yurt.sdk.device import device_of
from yurt.structs.node import Node
from yurt.structs.resources import RequestedDevice

Requests = Sequence[tuple[str, RequestedDevice]]


class SuspectQuestion:
    """The requests of a group, asked of many nodes."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._is_plain = all(_is_plain(request) for _, request in requests)
        self._total = sum(max(0, request.count) for _, request in requests)

    def grants_suspect(self, node: Node, in_use: Iterable[str]) -> bool:
        """Whether the node's grant has a suspect device; False without a grant."""
        rack, used = rack_of(node), tuple(in_use)
        answer = self._by_counts(rack, used) if self._is_plain else None
        if answer is not None:
            return answer
        granted = grant_devices(node, used, self._requests)
        ids = {device_of(each) for _, device in granted.devices for each in device.device_ids} if granted else set()
        return not ids.isdisjoint(suspects_of(node))

    def _by_counts(self, rack: Rack, used: Iterable[str]) -> bool | None:
        """The answer by the numbers of free devices; None where these do not decide it."""
        free = rack.free(used)
        sound, total = free & ~rack.suspect, self._total
        are_enough, are_too_few = True, False
        for _, request in self._requests:
            kinds = rack.kinds(request)
            # With as many of one kind as all requests ask for, no request takes the last device of another.
            if not any((kind.mask & free).bit_count() >= total for kind in kinds):
                return None
            are_enough = are_enough and any((kind.mask & sound).bit_count() >= total for kind in kinds)
            all_sound = sum((kind.mask & sound).bit_count() for kind in kinds)
            are_too_few = are_too_few or all_sound < request.count
        return True if are_too_few else False if are_enough else None


def _is_plain(request: RequestedDevice) -> bool:
    """Whether any whole devices of a kind will do."""
    topology = request.topology
    return not (
        request.first_available
        or request.all_of_node
        or request.share
        or request.affinities
        or (topology is not None and REQUIRE in (topology.nvlink, topology.numa))
    )
