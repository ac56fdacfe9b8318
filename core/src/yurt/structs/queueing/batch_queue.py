"""The configuration of a node pool's batch queue: one of three types, two of which are Nomad's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from yurt.sdk.value import OWN, Duration, Value, no_entries, seconds

MINUTE = seconds(60)
HOUR = seconds(3600)
TENANT_NAMESPACE, TENANT_METADATA = "namespace", "metadata"


class FifoQueue(Value):
    """First come, first served."""


class DynamicPriorityQueue(Value):
    """Nomad's `dynamic_priority`: the job's priority and weighted adjustments. CPU in MHz, memory in MiB."""

    tenant_type: str = TENANT_NAMESPACE
    metadata_key: str = ""
    calc_interval: Duration = Duration(0)
    """Accepted and without effect: priorities are computed whenever they are used."""
    half_life: Duration = Duration(0)
    """Accepted and without effect: the share is that of the present allocations, as in the newest Nomad."""
    fairshare_weight: int = 0
    age_weight: int = 0
    max_age: Duration = Duration(0)
    cpu_weight: int = 0
    max_cpu: int = 0
    memory_weight: int = 0
    max_memory: int = 0
    gpu_weight: Annotated[int, OWN] = 0
    max_gpu: Annotated[int, OWN] = 0


class FairShareQueue(Value):
    """Yurt's `fair_share`: the order follows decayed usage (docs/explanation/queue-order.md)."""

    metadata_key: str = ""
    """Of the job meta that names users within a namespace; empty: namespaces are the only tenants."""
    half_life: Duration = Duration(7 * 24 * HOUR)
    weights: Mapping[str, float] = no_entries()
    """By namespace, or "namespace/user"; 1 where nothing is said."""
    prices: Mapping[str, float] = no_entries()
    """Of devices, "vendor/type/name" or "vendor/type"; 1 where nothing is said."""
    boost_after: Duration = Duration(48 * HOUR)
    """After so long a job stands before all others of its band; 0: never."""
    stretch: float = 2.0
    """How many times its cards and declared run time a job lets others of less work pass that came later."""
    reach: Duration = Duration(96 * HOUR)
    """Jobs that came so much later pass no job for their little work."""
    usage_delay: Duration = Duration(72 * HOUR)
    """How much later the turn of a tenant comes that has used all of the pool for ever; of others in proportion."""


class BatchQueue(Value):
    """Exactly one queue type, and settings of all types."""

    fifo: FifoQueue | None = None
    dynamic_priority: DynamicPriorityQueue | None = None
    fair_share: Annotated[FairShareQueue | None, OWN] = None
    reservations: Annotated[int, OWN] = 1
    """Jobs that do not fit and for which capacity is kept; others run only in what they leave unused."""
    backfill_depth: Annotated[int, OWN] = 500
    """Jobs that do not fit and are passed over in one look; 0: the first one blocks all others."""
    default_run_duration: Annotated[Duration, OWN] = Duration(0)
    """The run time of jobs without `max_run_duration` as far as reservations count with it; 0: for ever."""

    @property
    def type(self) -> str:
        """The name of its type in the API's answers."""
        names = ("fifo", "dynamic_priority", "fair_share")
        return next((name for name in names if getattr(self, name) is not None), "passthrough")
