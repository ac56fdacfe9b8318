"""Maintains the usage rows of tenants in fair-share node pools as allocations start and end.

A row has the rate at which a tenant uses the pool, and the decayed integral of that rate. A command that changes a rate
first advances the integral to its time, which is the newest time in the allocations that it writes; a clock that was
set back advances nothing. Nothing else touches a row: time alone changes no state. Commands that touch no such pool
cost one look-up in an index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from yurt.queue.amounts import NOTHING, Amounts
from yurt.queue.charge import allocated_amounts, tenant_of
from yurt.queue.decay import DecayedUsage, no_usage, rebased, with_rates
from yurt.sdk.value import Duration, UnixNano
from yurt.state.store import Change, Transaction
from yurt.state.tables import Tables
from yurt.state.usage import is_using
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import NodePool
from yurt.structs.queueing.batch_queue import FairShareQueue
from yurt.structs.queueing.usage import QueueUsage

Key = tuple[str, tuple[str, ...]]
FAIR_SHARE = "fair_share"


def usage_of_row(row: QueueUsage) -> DecayedUsage:
    """Convert a stored usage row to the form that computes decay."""
    return DecayedUsage(row.landmark, row.at, tuple(int(total, 16) for total in row.totals), row.rates)


def record_usage(tx: Transaction, *, index: int, now: int) -> None:
    """Update usage from the allocations and node pools that a command changed; `now` is its time, if it has one."""
    pools = {name: _queue(tx, name) for name in tx.keys_where(Tables.node_pools, "queue", FAIR_SHARE)}
    reset: set[str] = set()
    changed: list[Change] = []
    for change in tx.changes:
        if change.table == Tables.node_pools.name and _differs(change):
            reset.add(change.key if isinstance(change.key, str) else "")
        elif change.table == Tables.allocs.name:
            changed.append(change)
    for name in sorted(reset):
        _reset(tx, name, pools.get(name), index=index, now=now)
    for (pool, tenant), delta, time in _deltas(changed, pools, reset):
        queue = pools[pool]
        assert queue is not None
        _change(tx, (pool, tenant), queue, (delta, max(now, time)), index=index)


def _queue(tx: Transaction, name: str) -> FairShareQueue | None:
    pool: NodePool | None = tx.get(Tables.node_pools, name)
    return None if pool is None or pool.batch_queue is None else pool.batch_queue.fair_share


def _differs(change: Change) -> bool:
    """Whether a pool gained or lost a fair-share queue, or its queue now counts usage by other rules."""
    before, after = (
        None if row is None or row.batch_queue is None else row.batch_queue.fair_share for row in change[2:]
    )
    if before is None or after is None:
        return before is not after
    counted = ("half_life", "metadata_key", "prices")
    return any(getattr(before, name) != getattr(after, name) for name in counted)


def _deltas(
    changes: Iterable[Change], pools: dict[str, FairShareQueue | None], reset: set[str]
) -> list[tuple[Key, Amounts, int]]:
    """The usage that a command's allocations add, by tenant and pool, and the newest time among them."""
    sums: dict[Key, Amounts] = defaultdict(lambda: NOTHING)
    times: dict[Key, int] = defaultdict(int)
    for change in changes:
        for row, sign in ((change.before, -1), (change.after, 1)):
            if row is None or row.job is None or not is_using(row):
                continue
            queue = pools.get(row.job.node_pool)
            if queue is None or row.job.node_pool in reset:
                continue
            key = (row.job.node_pool, tenant_of(row.job, queue.metadata_key))
            sums[key] = sums[key].plus(allocated_amounts(row, queue.prices), sign)
            newest = change.after if change.after is not None else change.before
            times[key] = max(times[key], newest.modify_time or newest.create_time)
    return [(key, sums[key], times[key]) for key in sorted(sums) if sums[key] != NOTHING]


def _change(tx: Transaction, key: Key, queue: FairShareQueue, change: tuple[Amounts, int], *, index: int) -> None:
    delta, time = change
    row = tx.get(Tables.queue_usages, key)
    usage = no_usage(len(delta), now=time) if row is None else usage_of_row(row)
    rates = tuple(max(0, rate + change) for rate, change in zip(usage.rates, delta, strict=True))
    _put(tx, key, with_rates(usage, rates, now=time, half_life=queue.half_life), queue.half_life, index=index)


def _reset(tx: Transaction, pool: str, queue: FairShareQueue | None, *, index: int, now: int) -> None:
    """Recompute the pool's rates from all its allocations; remaining tenants keep their decayed usage."""
    rates: dict[tuple[str, ...], Amounts] = defaultdict(lambda: NOTHING)
    for alloc in () if queue is None else _allocs_of(tx, pool):
        assert queue is not None and alloc.job is not None
        tenant = tenant_of(alloc.job, queue.metadata_key)
        rates[tenant] = rates[tenant].plus(allocated_amounts(alloc, queue.prices))
        # A pool copied from another region carries no time: usage cannot begin before its newest allocation.
        now = max(now, alloc.modify_time)
    existing: dict[Key, QueueUsage | None] = {
        key: tx.get(Tables.queue_usages, key) for key in tx.keys_where(Tables.queue_usages, "pool", pool)
    }
    for key in sorted({*existing, *((pool, tenant) for tenant in rates)}):
        row = existing.get(key)
        is_current = queue is not None and len(key[1]) == (2 if queue.metadata_key else 1)
        if queue is None or not is_current:
            tx.delete(Tables.queue_usages, key)
            continue
        usage = no_usage(len(NOTHING), now=now)
        if row is not None:
            time = max(now, row.at)
            usage = rebased(usage_of_row(row), time, before=row.half_life, after=queue.half_life)
        reserved = tuple(rates.get(key[1], NOTHING))
        _put(tx, key, with_rates(usage, reserved, now=now, half_life=queue.half_life), queue.half_life, index=index)


def _allocs_of(tx: Transaction, pool: str) -> Iterable[Allocation]:
    """The allocations of a pool's jobs that use resources."""
    rows = tx.base.allocs.values()
    return (row for row in rows if row.job is not None and row.job.node_pool == pool and is_using(row))


def _put(tx: Transaction, key: Key, usage: DecayedUsage, half_life: Duration, *, index: int) -> None:
    row = tx.get(Tables.queue_usages, key)
    assert min(*usage.totals, *usage.rates) >= 0, (key, usage, "no tenant uses less than nothing")
    stored = QueueUsage(
        pool=key[0],
        tenant=key[1],
        half_life=half_life,
        landmark=UnixNano(usage.landmark),
        at=UnixNano(usage.at),
        totals=tuple(f"{total:x}" for total in usage.totals),
        rates=usage.rates,
        create_index=index if row is None else row.create_index,
        modify_index=index,
    )
    tx.put(Tables.queue_usages, key, stored)
