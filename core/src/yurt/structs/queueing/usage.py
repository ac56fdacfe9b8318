"""The usage of node pools by tenant."""

from __future__ import annotations

from yurt.sdk.value import Duration, UnixNano, Value


class QueueUsage(Value):
    """A tenant's decayed usage of a node pool (`yurt.queue.decay`): GPU, CPU, memory."""

    pool: str = ""
    tenant: tuple[str, ...] = ()
    """Its namespace and, if the queue distinguishes users, the user within it."""
    half_life: Duration = Duration(0)
    landmark: UnixNano = UnixNano(0)
    at: UnixNano = UnixNano(0)
    totals: tuple[str, ...] = ()
    """Totals inflated to the landmark, in hexadecimal: they exceed 64 bits."""
    rates: tuple[int, ...] = ()
    """The amounts that its allocations hold now."""
    create_index: int = 0
    modify_index: int = 0
