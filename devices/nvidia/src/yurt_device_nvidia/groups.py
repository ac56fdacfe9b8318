"""Converts facts to offered groups and instances with their attributes, by the names of README.md. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yurt.sdk.device import MIG, AttributeValue, DeviceGroup, DeviceInstance, Quantity, Severity
from yurt.sdk.mig import MIG_PROFILES

from yurt_device_nvidia.facts import CardFacts, MigFacts, SystemFacts

VENDOR, TYPE = "nvidia", "gpu"
MANAGED = "Managed"
"""The MIG mode of a card that the plugin splits as tasks need it."""
Attributes = dict[str, AttributeValue]


class GroupOffer:
    """The offer: `reasons` and `severities` map a device with a fault (a card or a MIG instance) to its verdict.

    Without a severity it has failed. A card that the plugin splits itself (`is_managed`) is offered as a card,
    whatever instances it has now.
    """

    def __init__(
        self,
        system: SystemFacts,
        cards: Iterable[CardFacts],
        *,
        reasons: Mapping[str, str],
        ignored: frozenset[str] = frozenset(),
        modes: tuple[str, ...] = (),
        severities: Mapping[str, Severity] | None = None,
    ) -> None:
        self._system = system
        self._cards = tuple(cards)
        self._reasons = reasons
        self._ignored = ignored
        self._modes = modes
        self._severities = severities or {}

    def groups(self) -> tuple[DeviceGroup, ...]:
        """All groups; a group's attributes are those of its first card."""
        found: dict[str, tuple[Attributes, list[DeviceInstance]]] = {}
        peers = nvlink_peers(self._cards)
        for card in sorted(self._cards, key=lambda each: each.index):
            placed = {**place_attributes(card), **peers.get(card.uuid, {})}
            if card.mig_profiles:
                placed |= {"sharing": ",".join((*self._modes, MIG)), MIG_PROFILES: card.mig_profiles}
            if not card.is_split:
                group = found.setdefault(card.name, (self._card_attributes(card), []))
                group[1].append(self._instance(card.uuid, card, placed))
            for mig in card.migs if card.is_split else ():
                group = found.setdefault(mig.name, (self._mig_attributes(card, mig), []))
                group[1].append(self._instance(mig.uuid, card, {**place_attributes(card), "mig_parent": card.uuid}))
        return tuple(
            DeviceGroup(
                vendor=VENDOR, type=TYPE, name=name, attributes=attributes, instances=tuple(each for each in devices)
            )
            for name, (attributes, instances) in found.items()
            if (devices := [each for each in instances if each.id not in self._ignored])
        )

    def _instance(self, device: str, card: CardFacts, attributes: Attributes) -> DeviceInstance:
        source = device if device in self._reasons else card.uuid
        reason = self._reasons.get(source, "")
        severity = self._severities.get(source, "failed") if reason else "healthy"
        return DeviceInstance(
            id=device,
            is_healthy=severity in ("healthy", "suspect"),
            reason=reason,
            severity=severity,
            pci_bus_id=card.pci_bus_id,
            attributes=attributes,
        )

    def _card_attributes(self, card: CardFacts) -> Attributes:
        return given(
            {
                **self._common(card),
                "memory": mib(card.memory_mb),
                "memory_reserved": mib(card.reserved_mb),
                "bar1": mib(card.bar1_mb),
                "power": None if card.power_w is None else Quantity(value=card.power_w, unit="W"),
                "nvlink_count": len(card.links) or None,
                "sharing": ",".join(self._modes) or None,
            }
        )

    def _mig_attributes(self, card: CardFacts, mig: MigFacts) -> Attributes:
        return given(
            {
                **self._common(card),
                "memory": mib(mig.memory_mb),
                "memory_reserved": mib(0),
                "mig_profile": mig.profile or None,
                "multiprocessors": mig.multiprocessors or None,
                "sharing": "mig",
            }
        )

    def _common(self, card: CardFacts) -> dict[str, AttributeValue | None]:
        return {
            "driver_version": self._system.driver_version or None,
            "cuda_version": self._system.cuda_version or None,
            "cores_clock": in_unit(card.cores_clock_mhz, "MHz"),
            "memory_clock": in_unit(card.memory_clock_mhz, "MHz"),
            "pci_bandwidth": in_unit(card.pci_bandwidth_mb, "MB/s"),
            "display_state": switched(card.display),
            "persistence_mode": switched(card.persistence),
            "ecc_mode": switched(card.ecc),
            "mig_mode": MANAGED if card.is_managed else switched(card.mig),
            "compute_mode": card.compute_mode,
            "compute_capability": card.capability,
            "architecture": card.architecture,
        }


def given(attributes: Mapping[str, AttributeValue | None]) -> Attributes:
    """The items with a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def in_unit(value: int | None, unit: str) -> Quantity | None:
    """A number with its unit."""
    return None if value is None else Quantity(value=value, unit=unit)


def mib(value: int | None) -> Quantity | None:
    """A size."""
    return in_unit(value, "MiB")


def switched(value: bool | None) -> str | None:
    """A mode as Nomad's plugin spells it."""
    return None if value is None else "Enabled" if value else "Disabled"


def place_attributes(card: CardFacts) -> Attributes:
    """The location and number of a card."""
    return given(
        {
            "index": card.index,
            "minor": card.minor,
            "serial": card.serial or None,
            "numa_node": card.numa_node,
            "cpu_affinity": ranges(card.cpus) or None,
            "topology": ",".join(f"{other}={level}" for other, level in sorted(card.ancestors.items())) or None,
        }
    )


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges: "0-3,8" for 0, 1, 2, 3 and 8."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in found)


def nvlink_counts(cards: Iterable[CardFacts]) -> dict[str, dict[str, int]]:
    """The number of links between each pair of cards: direct ones, plus the smaller number to shared switches."""
    all_cards = tuple(cards)
    by_bus = {bus_key(card.pci_bus_id): card.uuid for card in all_cards}
    direct: dict[str, dict[str, int]] = {card.uuid: {} for card in all_cards}
    switches: dict[str, list[str]] = {}
    for card in all_cards:
        switches[card.uuid] = [bus_key(link.to) for link in card.links if link.kind == "switch"]
        for link in card.links:
            other = by_bus.get(bus_key(link.to))
            if link.kind != "switch" and other is not None and other != card.uuid:
                direct[card.uuid][other] = direct[card.uuid].get(other, 0) + 1
    for one, others in direct.items():
        for two in direct:
            shared = set(switches[one]) & set(switches[two])
            if two != one and shared:
                counts = [sum(each in shared for each in switches[card_id]) for card_id in (one, two)]
                others[two] = others.get(two, 0) + min(counts)
    return direct


def nvlink_peers(cards: Iterable[CardFacts]) -> dict[str, Attributes]:
    """The attributes with the cards reachable by NVLink."""
    return {
        uuid: {
            "nvlink_peers": ",".join(sorted(counts)),
            "nvlink_links": ",".join(f"{other}={count}" for other, count in sorted(counts.items())),
        }
        for uuid, counts in nvlink_counts(cards).items()
        if counts
    }


def bus_key(bus_id: str) -> str:
    """A normalised bus address: NVML writes domains with four or eight digits."""
    domain, separator, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}{separator}{rest}"
