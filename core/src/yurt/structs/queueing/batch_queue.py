"""The configuration of a node pool's batch queue: one of three types, two of which are Nomad's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from yurt.sdk.value import OWN, Duration, Value, no_entries, seconds

MINUTE = seconds(60)
HOUR = seconds(3600)
TENANT_NAMESPACE, TENANT_METADATA = "namespace", "metadata"


class FifoQueue(Value):
    """A queue in the order of arrival."""


class DynamicPriorityQueue(Value):
    """Nomad's `dynamic_priority`: the job's priority and weighted adjustments. CPU in MHz, memory in MiB."""

    tenant_type: str = TENANT_NAMESPACE
    metadata_key: str = ""
    calc_interval: Duration = Duration(0)
    """Accepted without effect: priorities are computed whenever they are used."""
    half_life: Duration = Duration(0)
    """Accepted without effect: the share is that of the present allocations, as in the newest Nomad."""
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
    """The key of job meta that names users within a namespace; "": namespaces are the only tenants."""
    half_life: Duration = Duration(7 * 24 * HOUR)
    weights: Mapping[str, float] = no_entries()
    """Weights by namespace or "namespace/user"; the default is 1."""
    prices: Mapping[str, float] = no_entries()
    """Prices of devices by "vendor/type/name" or "vendor/type"; the default is 1."""
    boost_after: Duration = Duration(48 * HOUR)
    """The wait after which a job precedes all others of its band; 0: never."""
    stretch: float = 2.0
    """The multiple of its cards times its declared run time for which a job lets later, smaller jobs pass."""
    reach: Duration = Duration(96 * HOUR)
    """The longest time by which a later job may pass another because it is smaller."""
    usage_delay: Duration = Duration(72 * HOUR)
    """The delay of the turns of a tenant that has always used the whole pool; that of others in proportion."""


class BatchQueue(Value):
    """Exactly one queue type, and settings of all types."""

    fifo: FifoQueue | None = None
    dynamic_priority: DynamicPriorityQueue | None = None
    fair_share: Annotated[FairShareQueue | None, OWN] = None
    reservations: Annotated[int, OWN] = 1
    """The number of jobs that do not fit and get reserved capacity; others run only in the capacity these leave."""
    backfill_depth: Annotated[int, OWN] = 500
    """The number of jobs that do not fit and are passed over in one pass; 0: the first one blocks all others."""
    default_run_duration: Annotated[Duration, OWN] = Duration(0)
    """The run time that reservations assume for jobs without `max_run_duration`; 0: unlimited."""

    @property
    def type(self) -> str:
        """The name of its type in API answers."""
        names = ("fifo", "dynamic_priority", "fair_share")
        return next((name for name in names if getattr(self, name) is not None), "passthrough")
