"""Adds up what allocations used, by namespace and day, as they end.

Each allocation that holds a GPU ends once (invariant E7), so it is added once, to the day of its end by the command's
time. Of each namespace the newest `DAYS_MAX` days with an end are kept, and none once the namespace is deleted: the
next one of that name has another owner. Allocations without GPUs cost one look at their resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from yurt.queue.account import AllocAccount, account_of, with_account
from yurt.sdk.value import NANOSECONDS, replace
from yurt.state import Tables
from yurt.state.store import Transaction
from yurt.structs.accounting.usage_day import UsageDay
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import NodePool
from yurt.structs.rules import RECLAIM_RULES, RULES_VERSION

DAY_NS: Final = 24 * 3600 * NANOSECONDS
DAYS_MAX: Final = 400
"""The maximum number of days with usage kept per namespace: over a year and a month, so that the same month of two
years can be compared."""


def record_ends(
    tx: Transaction, ended: Iterable[Allocation], *, index: int, rules_version: int = RULES_VERSION
) -> None:
    """Add the usage of allocations that a command ended to the sums of their namespaces."""
    for alloc in ended if rules_version >= RECLAIM_RULES else map(_without_idle, ended):
        evaluation = tx.get(Tables.evals, alloc.eval_id)
        account = account_of(alloc, evaluation, prices_of(tx, alloc), now=alloc.modify_time)
        if account is not None and alloc.modify_time > 0 and tx.get(Tables.namespaces, alloc.namespace) is not None:
            _add(tx, alloc, account, index=index)


def _without_idle(alloc: Allocation) -> Allocation:
    """The allocation as rules before `RECLAIM_RULES` count it."""
    return replace(alloc, idle=None) if alloc.idle is not None else alloc


def prices_of(tx: Transaction, alloc: Allocation) -> Mapping[str, float]:
    """The prices of device models in the queue of an allocation's node pool."""
    pool: NodePool | None = tx.get(Tables.node_pools, alloc.job.node_pool) if alloc.job is not None else None
    queue = None if pool is None or pool.batch_queue is None else pool.batch_queue.fair_share
    return {} if queue is None else queue.prices


def _add(tx: Transaction, alloc: Allocation, account: AllocAccount, *, index: int) -> None:
    day = alloc.modify_time // DAY_NS
    key = (alloc.namespace, day)
    existing: UsageDay | None = tx.get(Tables.usage_days, key)
    row = existing or UsageDay(namespace=alloc.namespace, day=day, create_index=index)
    tx.put(Tables.usage_days, key, replace(with_account(row, alloc, account), modify_index=index))
    if existing is None:
        _drop_oldest(tx, alloc.namespace)


def _drop_oldest(tx: Transaction, namespace: str) -> None:
    """Keep the newest DAYS_MAX days, by number rather than by age: one future date would otherwise drop them all."""
    for key in sorted(tx.keys_where(Tables.usage_days, "namespace", namespace))[:-DAYS_MAX]:
        tx.delete(Tables.usage_days, key)


def forget_namespace(tx: Transaction, namespace: str) -> None:
    """Delete the sums of a deleted namespace."""
    for key in tx.keys_where(Tables.usage_days, "namespace", namespace):
        tx.delete(Tables.usage_days, key)
