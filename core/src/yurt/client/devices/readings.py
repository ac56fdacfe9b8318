"""Reads what device plugins report into figures, and figures into minutes and sums. Pure.

A card is *active* by the largest of what its plugin says of multiprocessors and memory; "GPU utilization", which one
thread in a loop drives to 100, counts only where the plugin knows nothing better. What a plugin does not report is
None and stays None: an unknown figure makes nobody idle and no sum smaller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from yurt.sdk.device import (
    ENERGY,
    GPU_UTILIZATION,
    MEMORY_UTILIZATION,
    NVLINK_TRAFFIC,
    PCIE_TRAFFIC,
    POWER,
    SM_UTILIZATION,
    THROTTLING,
    DeviceUse,
    Stat,
)
from yurt.sdk.value import UnixNano, Value, replace
from yurt.structs.accounting.devices import DeviceAccounting

IDLE_BELOW_PERCENT: Final = 2.0
"""A sample below is idle, if there is no traffic either."""
TRAFFIC_FLOOR: Final = 1_000_000.0
"""Bytes a second between a card and anything else below which it counts as silent."""
MIB: Final = 1024 * 1024
SIZES: Final = {"MiB": 1.0, "GiB": 1024.0, "MB": 1e6 / MIB, "GB": 1e9 / MIB, "bytes": 1 / MIB, "B": 1 / MIB}
ENERGIES: Final = {"J": 1.0, "mJ": 0.001, "kJ": 1000.0, "Wh": 3600.0, "kWh": 3_600_000.0}
REASONS_MAX: Final = 16
"""Throttle reasons of which sums are kept."""
OTHER_REASON: Final = "other"
MS: Final = 1000


class Reading(Value):
    """What a card does at a time; None where its plugin does not say."""

    busy_percent: float | None = None
    sm_percent: float | None = None
    memory_percent: float | None = None
    memory_mb: float | None = None
    memory_total_mb: float | None = None
    energy_j: float | None = None
    """A counter."""
    power_w: float | None = None
    throttling: tuple[str, ...] | None = None
    pcie: float | None = None
    """Bytes a second, as `nvlink`."""
    nvlink: float | None = None

    @property
    def active_percent(self) -> float | None:
        """How much of the card works, in percent."""
        return active_percent(self.sm_percent, self.busy_percent, self.memory_percent)

    @property
    def traffic(self) -> float | None:
        """Bytes a second between the card and anything else."""
        return traffic(self.pcie, self.nvlink)

    @property
    def is_known(self) -> bool:
        """Whether a plugin measures what the card does: of others nothing is accounted for."""
        return self.active_percent is not None or self.energy_j is not None or self.power_w is not None

    @property
    def is_idle(self) -> bool:
        """Whether the card neither computes nor moves data; False when that is not known."""
        active = self.active_percent
        return active is not None and active < IDLE_BELOW_PERCENT and (self.traffic or 0.0) < TRAFFIC_FLOOR


class CardPart(Value):
    """A card that an allocation holds, or its part of one: 0 to 1 of the card's time, and of its energy."""

    device: str
    part: float = 1.0
    energy_part: float = 1.0
    memory_booked_mb: int | None = None
    """Of a share; None for a whole card, which may be used up."""


class CardMinute(Value):
    """A card over one bucket of time, by default a minute: means, and None where nothing was reported.

    On a shared card `memory_mb` is the allocation's own; the other figures are the card's.
    """

    at: UnixNano
    """Begin by the wall clock, to be shown. Compare `clock_s`: the wall clock may jump."""
    clock_s: float
    """Begin by the monotonic clock of this run of the agent."""
    samples: int
    busy_percent: float | None = None
    sm_percent: float | None = None
    memory_percent: float | None = None
    memory_mb: float | None = None
    memory_max_mb: float | None = None
    energy_j: float | None = None
    """Of the whole bucket; of a shared card the allocation's part."""
    throttled: float | None = None
    """The share of samples with a reduced clock, 0 to 1."""
    pcie: float | None = None
    """Bytes a second, as `nvlink`."""
    nvlink: float | None = None

    @property
    def active_percent(self) -> float | None:
        """How much of the card worked, in percent; None when nobody knows."""
        return active_percent(self.sm_percent, self.busy_percent, self.memory_percent)

    @property
    def traffic(self) -> float | None:
        """Bytes a second between the card and anything else; None when nobody knows."""
        return traffic(self.pcie, self.nvlink)


def traffic(pcie: float | None, nvlink: float | None) -> float | None:
    """The sum of the known figures; None when none is known."""
    known = [each for each in (pcie, nvlink) if each is not None]
    return sum(known) if known else None


def active_percent(sm: float | None, busy: float | None, memory: float | None) -> float | None:
    """The largest of the known figures; `busy` only where `sm` is unknown."""
    known = [each for each in (busy if sm is None else sm, memory) if each is not None]
    return max(known, default=None)


def reading_of(use: DeviceUse) -> Reading:
    """The figures of a plugin; those with foreign units, of a wrong type or that are no numbers are unknown."""
    stats = use.stats
    throttling = stats.get(THROTTLING)
    energy = stats.get(ENERGY)
    return Reading(
        busy_percent=_percent(stats.get(GPU_UTILIZATION)),
        sm_percent=_percent(stats.get(SM_UTILIZATION)),
        memory_percent=_percent(stats.get(MEMORY_UTILIZATION)),
        memory_mb=_number(use.summary, SIZES.get(use.summary.unit)),
        memory_total_mb=_whole(use.summary),
        energy_j=None if energy is None else _number(energy, ENERGIES.get(energy.unit)),
        power_w=_number(stats.get(POWER), 1.0),
        throttling=_words(throttling),
        pcie=_number(stats.get(PCIE_TRAFFIC), 1.0),
        nvlink=_number(stats.get(NVLINK_TRAFFIC), 1.0),
    )


def _number(stat: Stat | None, scale: float | None) -> float | None:
    """A non-negative number, scaled; a plugin's nonsense (negative, infinite, not a number) is unknown."""
    if stat is None or scale is None or isinstance(stat.value, bool | str):
        return None
    value = float(stat.value) * scale
    return value if 0.0 <= value < float("inf") else None


def _percent(stat: Stat | None) -> float | None:
    value = _number(stat, 1.0)
    return None if value is None else min(value, 100.0)


def _whole(stat: Stat) -> float | None:
    return None if stat.of is None else _number(Stat(value=stat.of), SIZES.get(stat.unit))


def _words(stat: Stat | None) -> tuple[str, ...] | None:
    if stat is None or not isinstance(stat.value, str):
        return None
    return tuple(dict.fromkeys(word.strip()[:64] for word in stat.value.split(",") if word.strip()))


class Interval(Value):
    """The time that a sample speaks of, up to it, and the energy of the card in it."""

    seconds: float
    energy_j: float | None = None


def elapsed(before: Reading, now: Reading, seconds: float) -> Interval:
    """The interval between two samples of a card; a counter that fell, as after a reset, says nothing."""
    energy: float | None = None
    if before.energy_j is not None and now.energy_j is not None:
        spent = now.energy_j - before.energy_j
        energy = spent if spent >= 0 else None
    elif now.power_w is not None:
        energy = now.power_w * seconds
    return Interval(seconds=seconds, energy_j=energy)


def with_sample(total: DeviceAccounting, card: CardPart, reading: Reading, interval: Interval) -> DeviceAccounting:
    """The sums with one more sample of one card; memory is added for all cards at once by `with_memory`."""
    spent = interval.seconds * card.part * MS
    active = reading.sm_percent if reading.sm_percent is not None else reading.busy_percent
    reasons = reading.throttling or ()
    return replace(
        total,
        card_ms=total.card_ms + round(spent),
        measured_ms=total.measured_ms + (round(spent) if active is not None else 0),
        busy_ms=total.busy_ms + (round(spent * active / 100.0) if active is not None else 0),
        idle_ms=total.idle_ms + (round(spent) if reading.is_idle and active is not None else 0),
        throttled_ms=total.throttled_ms + (round(spent) if reasons else 0),
        throttle_reasons=_with_reasons(total, reasons, round(spent)) if reasons else total.throttle_reasons,
        energy_mj=total.energy_mj + round((interval.energy_j or 0.0) * card.energy_part * MS),
        pcie_bytes=total.pcie_bytes + round((reading.pcie or 0.0) * interval.seconds * card.part),
        nvlink_bytes=total.nvlink_bytes + round((reading.nvlink or 0.0) * interval.seconds * card.part),
    )


def _with_reasons(total: DeviceAccounting, reasons: Iterable[str], spent: int) -> dict[str, int]:
    found = dict(total.throttle_reasons)
    for reason in reasons:
        name = reason if reason in found or len(found) < REASONS_MAX else OTHER_REASON
        found[name] = found.get(name, 0) + spent
    return found


def with_memory(total: DeviceAccounting, *, used_mb: float, booked_mb: int, seconds: float) -> DeviceAccounting:
    """The sums with a further time, and the memory in use on all of an allocation's cards in it."""
    spent = round(seconds * MS)
    return replace(
        total,
        memory_booked_mb=max(total.memory_booked_mb, booked_mb),
        memory_peak_mb=max(total.memory_peak_mb, round(used_mb)),
        memory_mb_ms=total.memory_mb_ms + round(used_mb * spent),
        wall_ms=total.wall_ms + spent,
    )
