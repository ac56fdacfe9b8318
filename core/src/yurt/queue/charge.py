"""Charges: the resources of jobs and allocations as the queue counts them, and the tenant that pays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yurt.queue.amounts import Amounts
from yurt.state.namespace_usage import MILLI, NamespaceUsage, counted
from yurt.state.usage import usage_of
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job

GPU_TYPE = "gpu"
PRICE_ONE = 1000


def tenant_of(job: Job, metadata_key: str) -> tuple[str, ...]:
    """The path of a job's tenant: its namespace and, if the queue distinguishes users, the value of its meta key.

    A job without that value belongs to a leaf of its own (`job_queue.OWN_LEAF`).
    """
    return (job.namespace, job.meta.get(metadata_key, "")) if metadata_key else (job.namespace,)


def allocated_amounts(alloc: Allocation, prices: Mapping[str, float]) -> Amounts:
    """The amounts that an allocation uses; GPUs by the price of their model."""
    return priced(counted(usage_of(alloc)), prices)


def priced(usage: NamespaceUsage, prices: Mapping[str, float]) -> Amounts:
    """The queue's amounts of a usage as quotas count it."""
    return Amounts(_gpus(usage.devices, prices), usage.cpu, usage.memory)


def _gpus(devices: Iterable[tuple[str, int]], prices: Mapping[str, float]) -> int:
    """The sum of thousandths of cards times their price in thousandths."""
    return sum(amount * price_of(name, prices) for name, amount in devices if is_gpu(name))


def is_gpu(name: str) -> bool:
    """Whether a device's or request's name is that of a GPU: "gpu", "nvidia/gpu" or "nvidia/gpu/h100"."""
    parts = name.split("/", 2)
    return (parts[0] if len(parts) == 1 else parts[1]) == GPU_TYPE


def price_of(name: str, prices: Mapping[str, float]) -> int:
    """The price of a device in thousandths: that of its model, else of its kind, else 1."""
    parts = name.split("/", 2)
    for length in range(len(parts), 0, -1):
        price = prices.get("/".join(parts[:length]))
        if price is not None:
            return max(1, round(price * PRICE_ONE))
    return PRICE_ONE


def whole_gpus(amounts: Amounts) -> float:
    """The amounts as a number of GPUs of price 1."""
    return amounts.gpu / (MILLI * PRICE_ONE)
