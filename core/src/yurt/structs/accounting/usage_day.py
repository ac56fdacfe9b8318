"""The usage of a namespace's allocations that ended on one day: the row outlives their garbage collection."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, no_entries

UsageDayKey = tuple[str, int]
"""(namespace, day)."""


class UsageDay(Value):
    """Sums over allocations by the day of their end; card times in thousandths of card-seconds, as `DeviceAccounting`.

    Integers, added by `apply` when an allocation ends. An allocation counts once, with all that it used, on the day
    (UTC) of its end, however many days it ran.
    """

    namespace: str
    day: int
    """Days since 1970-01-01 UTC."""
    allocs: int = 0
    failed: int = 0
    preempted: int = 0
    card_ms: int = 0
    """Card time, from the start of the first task to the end; a share counts by its booked part."""
    measured_ms: int = 0
    unattributed_ms: int = 0
    """The part of `measured_ms` whose utilisation is that of whole cards that were shared."""
    busy_ms: int = 0
    idle_ms: int = 0
    throttled_ms: int = 0
    lost_ms: Mapping[str, int] = no_entries()
    """Card time whose work was lost, by reason: preempted, requeued, node lost, failed."""
    energy_mj: int = 0
    memory_peak_mb: int = 0
    """The largest device memory in use of one allocation, MiB."""
    pcie_bytes: int = 0
    nvlink_bytes: int = 0
    waited: int = 0
    """The number of allocations with a known wait before the plan."""
    wait_ms: int = 0
    """The sum of their waits, from the creation of their evaluation to the plan."""
    wait_max_ms: int = 0
    priced_ms: int = 0
    """Card time times the price of its model (`prices` of the pool's queue, else 1)."""
    idle_ended: int = 0
    """Allocations that were ended for not using their devices."""
    idle_spared_by_use: int = 0
    """Announced ends that were withdrawn because the devices were used again."""
    idle_spared_by_keep: int = 0
    """Announced ends that were withdrawn by `alloc keep`."""
    create_index: int = 0
    modify_index: int = 0
