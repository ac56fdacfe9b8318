"""What an allocation's devices did while it held them: the record that accounting, reports and metrics read.

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
    """Card time that was looked at; `wall_ms` times the number of cards."""
    measured_ms: int = 0
    """Card time with figures."""
    unattributed_ms: int = 0
    """The part of `measured_ms` whose utilisation is that of a whole card shared with others: its plugin does not
    report it by process."""
    busy_ms: int = 0
    """Card time times the share in which the card worked: of its multiprocessors, else of any program."""
    idle_ms: int = 0
    """Card time of samples in which the card neither computed nor moved data."""
    throttled_ms: int = 0
    """Card time at a reduced clock, for any reason."""
    throttle_reasons: Mapping[str, int] = no_entries()
    """Card time by reason; several may hold at once."""
    energy_mj: int = 0
    """Millijoules; of a shared card the allocation's part."""
    memory_booked_mb: int = 0
    """MiB of device memory that it may use."""
    memory_peak_mb: int = 0
    """The largest use of all its devices in one sample."""
    memory_mb_ms: int = 0
    """The integral of device memory in use: divided by `wall_ms` it is the mean."""
    wall_ms: int = 0
    """Time with figures, however many cards."""
    pcie_bytes: int = 0
    nvlink_bytes: int = 0

    @property
    def memory_mean_mb(self) -> int:
        """The mean use of device memory."""
        return self.memory_mb_ms // self.wall_ms if self.wall_ms else 0

    @property
    def busy_percent(self) -> float | None:
        """The mean utilisation; None without figures."""
        return 100.0 * self.busy_ms / self.measured_ms if self.measured_ms else None
