"""The order of a `dynamic_priority` queue, by the published formula of Nomad 2.1.

    adjusted = job priority + tenant + age + CPU + memory adjustment
    tenant = (1 - tenant usage / total usage) x weight, for CPU and memory together
    age    = min(1, wait / max_age) x weight
    size   = (1 - min(1, asked / max)) x weight, for CPU and for memory

Each adjustment is cut to a whole number; one whose weight or maximum is 0 adds nothing. The highest adjusted priority
goes first, of equal ones the job that came first. GPUs count together with CPU and memory if `gpu_weight` is set, which
Nomad has not got.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from yurt.queue.amounts import NOTHING, Amounts
from yurt.queue.waiting_job import Waiting


class Weights(NamedTuple):
    """The parameters of the formula; CPU in MHz, memory in MiB, GPUs in thousandths, the age in nanoseconds."""

    fairshare: int = 0
    age: int = 0
    max_age: int = 0
    cpu: int = 0
    max_cpu: int = 0
    memory: int = 0
    max_memory: int = 0
    gpu: int = 0
    max_gpu: int = 0


class Adjusted(NamedTuple):
    """A job with its adjusted priority and the terms of that sum."""

    job: Waiting
    fairshare: int
    age: int
    cpu: int
    memory: int
    gpu: int

    @property
    def priority(self) -> int:
        """The adjusted priority."""
        return self.job.priority + self.fairshare + self.age + self.cpu + self.memory + self.gpu


def dynamic_order(
    jobs: Iterable[Waiting], used: Mapping[tuple[str, ...], Amounts], weights: Weights, *, now: int
) -> list[Adjusted]:
    """The jobs by adjusted priority; `used` is the decayed usage by tenant."""
    total = NOTHING
    for amounts in used.values():
        total = total.plus(amounts)
    adjusted = (_adjusted(job, used.get(job.tenant, NOTHING), total, weights, now) for job in jobs)
    return sorted(adjusted, key=lambda one: (-one.priority, one.job.create_index, one.job.key))


def percentage_used(amounts: Amounts, total: Amounts) -> int:
    """A tenant's percentage of the decayed usage of all tenants: the mean of CPU, memory and GPUs."""
    parts = [own * 100 // whole for own, whole in zip(amounts, total, strict=True) if whole > 0]
    return sum(parts) // len(parts) if parts else 0


def _adjusted(job: Waiting, used: Amounts, total: Amounts, weights: Weights, now: int) -> Adjusted:
    return Adjusted(
        job,
        _tenant_adjustment(used, total, weights.fairshare),
        _rising(now - job.since, weights.max_age, weights.age),
        _falling(job.asked.cpu, weights.max_cpu, weights.cpu),
        _falling(job.asked.memory, weights.max_memory, weights.memory),
        _falling(job.asked.gpu, weights.max_gpu, weights.gpu),
    )


def _tenant_adjustment(used: Amounts, total: Amounts, weight: int) -> int:
    """The weight less the tenant's part of it; resources that no tenant has used are ignored."""
    used_resources = [(own, whole) for own, whole in zip(used, total, strict=True) if whole > 0]
    if not used_resources:
        return weight
    return sum((whole - own) * weight // whole for own, whole in used_resources) // len(used_resources)


def _rising(amount: int, most: int, weight: int) -> int:
    return min(most, max(0, amount)) * weight // most if most > 0 else 0


def _falling(amount: int, most: int, weight: int) -> int:
    return (most - min(most, amount)) * weight // most if most > 0 else 0
