"""Accounts of allocations, from their rows: resources held and used, the wait, and the lost work. Pure.

A card counts in thousandths, as quotas count it (a share by its booked compute); where the client reported how much of
its cards an allocation held, that counts, because the client knows how much memory a card has. Card times are in
thousandths of card-seconds. The time in which an allocation holds its cards is that from the start of its first task
to its end. Times come from the client's clock, bounded by those of the servers: a clock that is wrong makes no account
negative, nor longer than the allocation exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from yurt.queue.charge import is_gpu, price_of
from yurt.sdk.value import NANOSECONDS, replace
from yurt.state.namespace_usage import MILLI, counted
from yurt.state.usage import usage_of
from yurt.structs.accounting.devices import DeviceAccounting
from yurt.structs.accounting.usage_day import UsageDay
from yurt.structs.alloc import Allocation, IdleState
from yurt.structs.evaluation import Evaluation
from yurt.structs.predicates import is_client_terminal
from yurt.structs.queueing.requeue import ended_at, has_done_its_work, lost_work
from yurt.structs.status import CLIENT_FAILED, CLIENT_LOST, DESIRED_EVICT

NS_OF_MS: Final = 1_000_000
PRICE_ONE: Final = 1000
CARDS_MAX: Final = 1_000_000
"""The maximum of cards that one allocation is charged for, in thousandths of a card: a thousand cards."""
FIGURE_MAX: Final = 2**50
"""The maximum of one figure of an allocation: 35,000 years of card time in milliseconds, or a pebibyte."""
SUM_MAX: Final = 2**62
"""The maximum of a sum: a row with a larger number could not be stored."""
REASONS_MAX: Final = 16
PREEMPTED, REQUEUED, NODE_LOST, FAILED = "preempted", "requeued", "node_lost", "failed"
"""Reasons of lost work: preempted by a job; requeued by a rule (idle, failed card); node down; failed."""


class AllocAccount(NamedTuple):
    """The use of one allocation until its end or until now; card times in thousandths of card-seconds."""

    cards: int
    """The cards that it holds, in thousandths of a card."""
    card_ms: int
    wait_ms: int | None
    """Milliseconds from its evaluation to its plan; None when the evaluation is deleted."""
    lost_ms: int
    lost_reason: str
    """The reason of lost work; "" when nothing was lost."""
    price: int
    """The price of one card, in thousandths."""
    used: DeviceAccounting
    """The last usage that its client reported."""

    @property
    def priced_ms(self) -> int:
        """Card time times price."""
        return self.card_ms * self.price // PRICE_ONE

    @property
    def unknown_ms(self) -> int:
        """Card time, in milliseconds, without a measurement by a plugin."""
        return max(0, self.card_ms - self.used.measured_ms)


def account_of(
    alloc: Allocation, evaluation: Evaluation | None, prices: Mapping[str, float], *, now: int
) -> AllocAccount | None:
    """The account of an allocation; None for one that holds no GPU and has no measured usage."""
    used = _possible(alloc.accounting)
    gpus = [each for each in counted(usage_of(alloc)).devices if is_gpu(each[0])]
    if not gpus and alloc.accounting is None:
        return None
    booked = sum(amount for _, amount in gpus)
    cards = min(used.card_ms * MILLI // used.wall_ms, booked or CARDS_MAX) if used.wall_ms else booked
    reason = lost_reason(alloc)
    end = ended_at(alloc) if is_client_terminal(alloc) else max(now, alloc.create_time)
    lost = min(lost_work(alloc, end), _run_time(alloc, end)) if reason else 0
    return AllocAccount(
        cards=cards,
        card_ms=cards * _run_time(alloc, end) // NANOSECONDS,
        wait_ms=waited(alloc, evaluation),
        lost_ms=cards * lost // NANOSECONDS,
        lost_reason=reason if lost else "",
        price=_mean_price(gpus, prices),
        used=used,
    )


def _possible(reported: DeviceAccounting | None) -> DeviceAccounting:
    """A client's report, or an empty one if a number in it is impossible: plugins measure, and sums last."""
    if reported is None:
        return DeviceAccounting()
    numbers = (getattr(reported, name) for name in DeviceAccounting.__struct_fields__ if name != "throttle_reasons")
    is_possible = all(0 <= each <= FIGURE_MAX for each in (*numbers, *reported.throttle_reasons.values()))
    return reported if is_possible and len(reported.throttle_reasons) <= REASONS_MAX else DeviceAccounting()


def _run_time(alloc: Allocation, end: int) -> int:
    """Nanoseconds from the start of the first task; 0 when none has started."""
    starts = [state.started_at for state in alloc.task_states.values() if state.started_at]
    return max(0, end - max(min(starts), alloc.create_time)) if starts else 0


def waited(alloc: Allocation, evaluation: Evaluation | None) -> int | None:
    """Milliseconds between the moment from which an allocation could have been placed and its plan."""
    if evaluation is None or not alloc.create_time or not evaluation.create_time:
        return None
    return max(0, alloc.create_time - max(evaluation.create_time, evaluation.wait_until)) // NS_OF_MS


def lost_reason(alloc: Allocation) -> str:
    """The reason why the work since the last checkpoint is lost; "" when none is lost."""
    if alloc.client_status == CLIENT_LOST:
        return NODE_LOST
    if not is_client_terminal(alloc):
        return ""
    if alloc.desired_status == DESIRED_EVICT:
        if has_done_its_work(alloc):
            return ""
        return PREEMPTED if alloc.preempted_by_allocation else REQUEUED
    return FAILED if alloc.client_status == CLIENT_FAILED else ""


def _mean_price(gpus: Iterable[tuple[str, int]], prices: Mapping[str, float]) -> int:
    """The mean price, in thousandths, of the cards that an allocation holds."""
    amounts = list(gpus)
    total = sum(amount for _, amount in amounts)
    return sum(amount * price_of(name, prices) for name, amount in amounts) // total if total else PRICE_ONE


def with_account(row: UsageDay, alloc: Allocation, account: AllocAccount) -> UsageDay:
    """The sums including one more allocation."""
    used, lost, idle = account.used, dict(row.lost_ms), alloc.idle or IdleState()
    if account.lost_ms:
        lost[account.lost_reason] = min(lost.get(account.lost_reason, 0) + account.lost_ms, SUM_MAX)
    return _bounded(
        row,
        allocs=row.allocs + 1,
        failed=row.failed + (alloc.client_status == CLIENT_FAILED),
        preempted=row.preempted + bool(alloc.preempted_by_allocation),
        card_ms=row.card_ms + account.card_ms,
        measured_ms=row.measured_ms + min(used.measured_ms, account.card_ms),
        unattributed_ms=row.unattributed_ms + min(used.unattributed_ms, account.card_ms),
        busy_ms=row.busy_ms + min(used.busy_ms, account.card_ms),
        idle_ms=row.idle_ms + min(used.idle_ms, account.card_ms),
        throttled_ms=row.throttled_ms + min(used.throttled_ms, account.card_ms),
        lost_ms=lost,
        energy_mj=row.energy_mj + used.energy_mj,
        memory_peak_mb=max(row.memory_peak_mb, used.memory_peak_mb),
        pcie_bytes=row.pcie_bytes + used.pcie_bytes,
        nvlink_bytes=row.nvlink_bytes + used.nvlink_bytes,
        waited=row.waited + (account.wait_ms is not None),
        wait_ms=row.wait_ms + (account.wait_ms or 0),
        wait_max_ms=max(row.wait_max_ms, account.wait_ms or 0),
        priced_ms=row.priced_ms + account.priced_ms,
        idle_ended=row.idle_ended + bool(idle.action),
        idle_spared_by_use=row.idle_spared_by_use + idle.spared_by_use,
        idle_spared_by_keep=row.idle_spared_by_keep + idle.spared_by_keep,
    )


def _bounded(row: UsageDay, *, lost_ms: Mapping[str, int], **sums: int) -> UsageDay:
    return replace(row, lost_ms=lost_ms, **{name: min(value, SUM_MAX) for name, value in sums.items()})


def added(one: UsageDay, other: UsageDay) -> UsageDay:
    """The sum of two usages."""
    lost = dict(one.lost_ms)
    for reason, amount in other.lost_ms.items():
        lost[reason] = lost.get(reason, 0) + amount
    largest = ("memory_peak_mb", "wait_max_ms")
    excluded = ("namespace", "day", "lost_ms", "create_index", "modify_index")
    sums = {
        name: (max if name in largest else int.__add__)(getattr(one, name), getattr(other, name))
        for name in UsageDay.__struct_fields__
        if name not in excluded
    }
    return replace(one, lost_ms=lost, **sums)
