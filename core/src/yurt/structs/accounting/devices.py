"""The measured use of an allocation's devices: the record that accounting, reports and metrics read.

Times are card-seconds in thousandths: two whole cards for a second are 2,000, a share of a card counts by its booked
part. What no plugin reported is missing from all of them: `measured_ms` says how much of the held time the others
speak of.
"""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, no_entries


class DeviceAccounting(Value):
    """Sums since the allocation's first sample; integers, so that every server adds them to the same bytes."""

    card_ms: int = 0
    """Sampled card time: `wall_ms` times the number of cards."""
    measured_ms: int = 0
    """Card time with figures."""
    unattributed_ms: int = 0
    """The part of `measured_ms` whose utilisation is that of a whole card shared with others: its plugin does not
    report it by process."""
    busy_ms: int = 0
    """Card time times utilisation: of the multiprocessors if measured, else of any program."""
    idle_ms: int = 0
    """Card time of samples in which the card neither computed nor moved data."""
    throttled_ms: int = 0
    """Card time at a reduced clock, for any reason."""
    throttle_reasons: Mapping[str, int] = no_entries()
    """Card time by reason; several reasons may hold at once."""
    energy_mj: int = 0
    """Energy in millijoules; of a shared card, the allocation's part."""
    memory_booked_mb: int = 0
    """Booked device memory, MiB."""
    memory_peak_mb: int = 0
    """The largest sum of device memory in use in one sample, MiB."""
    memory_mb_ms: int = 0
    """Device memory in use (MiB) integrated over time (ms); divided by `wall_ms` it is the mean."""
    wall_ms: int = 0
    """Time with samples, in milliseconds, independent of the number of cards."""
    pcie_bytes: int = 0
    nvlink_bytes: int = 0

    @property
    def memory_mean_mb(self) -> int:
        """The mean device memory in use, MiB."""
        return self.memory_mb_ms // self.wall_ms if self.wall_ms else 0

    @property
    def busy_percent(self) -> float | None:
        """The mean utilisation; None without a measurement."""
        return 100.0 * self.busy_ms / self.measured_ms if self.measured_ms else None
