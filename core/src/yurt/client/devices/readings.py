"""Converts device plugins' usage reports to readings, and adds readings to sums. Pure.

A card's *active* percentage is the larger one of the utilization of multiprocessors and of memory. "GPU utilization",
which one thread in a loop drives to 100 %, counts only where the plugin does not report multiprocessors. A figure that
is not reported is None and stays None: it makes no card idle and no sum smaller.
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
"""A sample below this active percentage is idle when there is no traffic either."""
TRAFFIC_FLOOR: Final = 1_000_000.0
"""Traffic of a card in bytes a second below which it counts as none."""
MIB: Final = 1024 * 1024
SIZES: Final = {"MiB": 1.0, "GiB": 1024.0, "MB": 1e6 / MIB, "GB": 1e9 / MIB, "bytes": 1 / MIB, "B": 1 / MIB}
ENERGIES: Final = {"J": 1.0, "mJ": 0.001, "kJ": 1000.0, "Wh": 3600.0, "kWh": 3_600_000.0}
REASONS_MAX: Final = 16
"""The largest number of throttle reasons with a sum of their own; others count as `OTHER_REASON`."""
OTHER_REASON: Final = "other"
MS: Final = 1000


class Reading(Value):
    """A card's figures at one time; None where its plugin does not report one."""

    busy_percent: float | None = None
    sm_percent: float | None = None
    memory_percent: float | None = None
    memory_mb: float | None = None
    memory_total_mb: float | None = None
    energy_j: float | None = None
    """A counter that only grows until the card is reset."""
    power_w: float | None = None
    throttling: tuple[str, ...] | None = None
    pcie: float | None = None
    """Bytes a second, like `nvlink`."""
    nvlink: float | None = None
    is_own: bool = False
    """Whether the percentages are those of the holder of a share alone, not of the whole card."""

    @property
    def active_percent(self) -> float | None:
        """The active part of the card in percent; None when unknown."""
        return active_percent(self.sm_percent, self.busy_percent, self.memory_percent)

    @property
    def traffic(self) -> float | None:
        """Bytes a second over PCIe and NVLink; None when unknown."""
        return traffic(self.pcie, self.nvlink)

    @property
    def is_known(self) -> bool:
        """Whether the plugin measures the card's load or energy; cards without either are not accounted."""
        return self.active_percent is not None or self.energy_j is not None or self.power_w is not None

    @property
    def is_idle(self) -> bool:
        """Whether the card neither computes nor moves data; False when unknown."""
        active = self.active_percent
        return active is not None and active < IDLE_BELOW_PERCENT and (self.traffic or 0.0) < TRAFFIC_FLOOR


class CardPart(Value):
    """An allocation's part of a card: 0 to 1 of the card's time and of its energy."""

    device: str
    part: float = 1.0
    energy_part: float = 1.0
    memory_booked_mb: int | None = None
    """Memory in MiB of a share; None for a whole card, of which all memory may be used."""


class CardMinute(Value):
    """Means of a card over one bucket, by default a minute; None where nothing was reported.

    On a shared card `memory_mb` is the allocation's own, and so are the percentages where the plugin reports them by
    process; the other figures are the card's.
    """

    at: UnixNano
    """The begin by the wall clock, for display only: it may jump. Compare `clock_s`."""
    clock_s: float
    """The begin by the monotonic clock of this run of the agent."""
    samples: int
    busy_percent: float | None = None
    sm_percent: float | None = None
    memory_percent: float | None = None
    memory_mb: float | None = None
    memory_max_mb: float | None = None
    energy_j: float | None = None
    """The sum over the bucket; of a shared card the allocation's part."""
    throttled: float | None = None
    """The share of samples with a reduced clock, 0 to 1."""
    pcie: float | None = None
    """Bytes a second, like `nvlink`."""
    nvlink: float | None = None

    @property
    def active_percent(self) -> float | None:
        """The active part of the card in percent; None when unknown."""
        return active_percent(self.sm_percent, self.busy_percent, self.memory_percent)

    @property
    def traffic(self) -> float | None:
        """Bytes a second over PCIe and NVLink; None when unknown."""
        return traffic(self.pcie, self.nvlink)


def traffic(pcie: float | None, nvlink: float | None) -> float | None:
    """The sum of the known figures; None when none is known."""
    reported = [each for each in (pcie, nvlink) if each is not None]
    return sum(reported) if reported else None


def active_percent(sm: float | None, busy: float | None, memory: float | None) -> float | None:
    """The largest of the known figures; `busy` only where `sm` is unknown."""
    reported = [each for each in (busy if sm is None else sm, memory) if each is not None]
    return max(reported, default=None)


def reading_of(use: DeviceUse) -> Reading:
    """The figures of a plugin; a figure with an unknown unit or a wrong type, or that is not a number, is None."""
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
    """A non-negative number, scaled; a negative, infinite or NaN value is None."""
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
    """The time before a sample that it stands for, and the card's energy in joules in that time."""

    seconds: float
    energy_j: float | None = None


def elapsed(before: Reading, now: Reading, seconds: float) -> Interval:
    """The interval between two samples of a card; the energy is unknown when its counter fell, as after a reset."""
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
    # Of its own processes' time a share may use all that it booked of the card, and no more counts as busy.
    busy_of = min(spent, interval.seconds * MS * active / 100.0) if reading.is_own and active is not None else None
    is_of_others = active is not None and card.memory_booked_mb is not None and not reading.is_own
    return replace(
        total,
        card_ms=total.card_ms + round(spent),
        measured_ms=total.measured_ms + (round(spent) if active is not None else 0),
        unattributed_ms=total.unattributed_ms + (round(spent) if is_of_others else 0),
        busy_ms=total.busy_ms + round(busy_of if busy_of is not None else spent * (active or 0.0) / 100.0),
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
    """The sums with `seconds` more, in which the allocation used `used_mb` on all its cards together."""
    spent = round(seconds * MS)
    return replace(
        total,
        memory_booked_mb=max(total.memory_booked_mb, booked_mb),
        memory_peak_mb=max(total.memory_peak_mb, round(used_mb)),
        memory_mb_ms=total.memory_mb_ms + round(used_mb * spent),
        wall_ms=total.wall_ms + spent,
    )
