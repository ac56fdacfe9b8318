"""What allocations used, waited for and lost is counted once, and never below zero."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.fsm.bookkeeping import accounting
from yurt.fsm.bookkeeping.accounting import forget_namespace, record_ends
from yurt.queue.account import AllocAccount, account_of, added, with_account
from yurt.sdk.value import UnixNano, replace
from yurt.state import Tables
from yurt.structs.accounting.devices import DeviceAccounting
from yurt.structs.accounting.usage_day import UsageDay
from yurt.structs.alloc import (
    AllocatedDeviceResource,
    AllocatedResources,
    AllocatedTaskResources,
    Allocation,
    IdleState,
    TaskState,
)
from yurt.structs.commands import AllocUpdate, ApplyPlan, RegisterJob, RegisterNode, UpdateAllocsFromClient
from yurt.structs.evaluation import Evaluation
from yurt.structs.plan import Plan
from yurt.structs.rules import ACCOUNTING_RULES, RULES_VERSION
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_LOST, CLIENT_RUNNING
from yurt.testing import factories
from yurt.testing.replica import Replica

S = 10**9
DAY = 24 * 3600 * S


def gpu_alloc(*, share: str = "", compute: int = 0, cards: int = 2, **fields: Any) -> Allocation:
    """An allocation that ran from second 100 to second 200."""
    device = AllocatedDeviceResource(
        vendor="nvidia", type="gpu", name="H100", device_ids=tuple(f"g{number}" for number in range(cards)),
        share=share, compute=compute,
    )  # fmt: skip
    resources = AllocatedResources(tasks={"main": AllocatedTaskResources(devices=(device,))})
    state = TaskState(state="dead", started_at=100 * S, finished_at=200 * S)
    given_fields: dict[str, Any] = {
        "allocated_resources": resources,
        "task_states": {"main": state},
        "client_status": CLIENT_COMPLETE,
        "create_time": UnixNano(90 * S),
        "modify_time": UnixNano(201 * S),
    }
    return factories.alloc(**(given_fields | fields))


def account(alloc: Allocation, evaluation: Evaluation | None = None, **prices: float) -> AllocAccount:
    found = account_of(alloc, evaluation, {f"nvidia/gpu/{name}": price for name, price in prices.items()}, now=300 * S)
    assert found is not None
    return found


def test_cards_are_held_from_the_start_of_a_task_to_the_end() -> None:
    found = account(gpu_alloc(), H100=2.5)

    assert (found.cards, found.card_ms, found.priced_ms, found.lost_ms) == (2000, 200_000, 500_000, 0)


def test_a_share_counts_by_its_compute() -> None:
    assert account(gpu_alloc(share="mps", compute=25, cards=1)).card_ms == 25_000


def test_what_the_client_knows_of_its_part_counts() -> None:
    used = DeviceAccounting(card_ms=15_000, wall_ms=100_000, measured_ms=10_000)
    found = account(gpu_alloc(share="slice", cards=1, accounting=used))

    assert (found.cards, found.card_ms, found.unknown_ms) == (150, 15_000, 5_000)


def test_an_allocation_without_gpus_has_no_account() -> None:
    assert account_of(factories.alloc(), None, {}, now=0) is None


def test_one_that_runs_counts_until_now() -> None:
    running = gpu_alloc(client_status=CLIENT_RUNNING)

    assert account(running).card_ms == 400_000


@pytest.mark.parametrize(
    ("fields", "reason", "lost_ms"),
    [
        ({"client_status": CLIENT_FAILED}, "failed", 200_000),
        ({"client_status": CLIENT_LOST}, "node_lost", 200_000),
        ({"client_status": CLIENT_FAILED, "desired_status": "evict"}, "requeued", 200_000),
        ({"desired_status": "evict", "preempted_by_allocation": "a", "client_status": "failed"}, "preempted", 200_000),
        ({"desired_status": "stop"}, "", 0),
    ],
)
def test_lost_work_has_its_reason(fields: dict[str, Any], reason: str, lost_ms: int) -> None:
    found = account(gpu_alloc(**fields))

    assert (found.lost_reason, found.lost_ms) == (reason, lost_ms)


def test_a_checkpoint_saves_what_was_done_before_it() -> None:
    state = TaskState(state="dead", started_at=100 * S, finished_at=200 * S, checkpointed_at=180 * S)

    assert account(gpu_alloc(client_status=CLIENT_FAILED, task_states={"main": state})).lost_ms == 40_000


def test_the_wait_goes_from_the_evaluation_or_its_back_off_to_the_plan() -> None:
    assert account(gpu_alloc(), factories.evaluation(create_time=30 * S)).wait_ms == 60_000
    assert account(gpu_alloc(), factories.evaluation(create_time=30 * S, wait_until=80 * S)).wait_ms == 10_000
    assert account(gpu_alloc(), factories.evaluation(create_time=95 * S)).wait_ms == 0
    assert account(gpu_alloc()).wait_ms is None


@given(started=st.integers(0, 500), finished=st.integers(0, 500), saved=st.integers(0, 500), now=st.integers(0, 500))
def test_no_clock_makes_an_account_negative_or_longer_than_the_allocation(
    started: int, finished: int, saved: int, now: int
) -> None:
    state = TaskState(state="dead", started_at=started * S, finished_at=finished * S, checkpointed_at=saved * S)
    for status in (CLIENT_FAILED, CLIENT_RUNNING):
        found = account_of(gpu_alloc(client_status=status, task_states={"main": state}), None, {}, now=now * S)
        assert found is not None
        longest = max(201 * S, now * S) - 90 * S
        assert 0 <= found.lost_ms <= found.card_ms <= 2 * longest // 10**6


NODE = factories.node()
JOB = factories.job()


def placed(replica: Replica, number: int) -> Allocation:
    """A running allocation with two cards, in the state."""
    placement = factories.placement(JOB, on=NODE, index=number, resources=gpu_alloc().allocated_resources)
    plan = Plan(eval_id="e", namespace="default", job_id=JOB.id, placements=(placement,), now=UnixNano(90 * S))
    replica.apply(ApplyPlan(plan=plan))
    return replica.state.allocs[placement.id]


def ended(alloc: Allocation, *, now: int) -> UpdateAllocsFromClient:
    used = DeviceAccounting(card_ms=200_000, wall_ms=100_000, measured_ms=150_000, busy_ms=90_000, energy_mj=7)
    state = TaskState(state="dead", started_at=now - 100 * S, finished_at=now)
    update = AllocUpdate(
        id=alloc.id, node_id=NODE.id, client_status=CLIENT_COMPLETE, task_states={"web": state}, accounting=used
    )
    return UpdateAllocsFromClient(updates=(update,), now=UnixNano(now))


def replica_of(version: int = RULES_VERSION) -> Replica:
    replica = Replica(rules_version=version)
    replica.apply(RegisterNode(node=NODE), RegisterJob(job=JOB))
    return replica


def test_an_allocation_is_added_to_the_day_of_its_end_once() -> None:
    replica = replica_of()
    alloc = placed(replica, 0)
    replica.apply(ended(alloc, now=3 * DAY + 5 * S), ended(alloc, now=3 * DAY + 9 * S))
    (row,) = replica.state.usage_days.values()

    assert (row.namespace, row.day, row.allocs) == (alloc.namespace, 3, 1)
    assert (row.card_ms, row.measured_ms, row.busy_ms, row.energy_mj) == (200_000, 150_000, 90_000, 7)
    kept = replica.state.allocs[alloc.id].accounting
    assert kept is not None
    assert kept.busy_ms == 90_000


def test_what_an_earlier_version_stored_adds_nothing() -> None:
    replica = replica_of(ACCOUNTING_RULES - 1)
    replica.apply(ended(placed(replica, 0), now=3 * DAY))

    assert not len(replica.state.usage_days)


def test_the_oldest_days_go_by_their_number_not_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "DAYS_MAX", 2)
    replica = replica_of()
    for number, day in enumerate((3, 4, 500)):
        replica.apply(ended(placed(replica, number), now=day * DAY))

    assert sorted(row.day for row in replica.state.usage_days.values()) == [4, 500]


def test_a_deleted_namespace_leaves_no_sums_and_later_ends_make_none() -> None:
    replica = replica_of()
    replica.apply(ended(placed(replica, 0), now=3 * DAY))
    (row,) = replica.state.usage_days.values()
    edit = replica.state.edit(replica.state.index + 1)
    forget_namespace(edit, "another")
    assert len(edit.commit().usage_days) == 1
    edit = replica.state.edit(replica.state.index + 1)
    forget_namespace(edit, row.namespace)
    edit.delete(Tables.namespaces, row.namespace)
    record_ends(edit, [gpu_alloc(modify_time=UnixNano(4 * DAY))], index=edit.base.index + 1)

    assert not len(edit.commit().usage_days)


@pytest.mark.parametrize("figures", [{"card_ms": 2**64 - 1, "wall_ms": 1}, {"energy_mj": -1}, {"pcie_bytes": 2**60}])
def test_figures_that_cannot_be_count_for_nothing(figures: dict[str, int]) -> None:
    alloc = gpu_alloc(accounting=DeviceAccounting(**figures))
    total = UsageDay(namespace="default", day=1)
    for _ in range(3):
        total = with_account(total, alloc, account(alloc))

    assert 0 <= total.energy_mj <= 2**50 and total.pcie_bytes == 0
    msgspec.msgpack.encode(total)


def test_sums_add_up() -> None:
    alloc = gpu_alloc(client_status=CLIENT_FAILED)
    one = with_account(UsageDay(namespace="a", day=1), alloc, account(alloc))
    two = added(one, replace(one, wait_max_ms=9))

    assert (two.allocs, two.card_ms, dict(two.lost_ms), two.wait_max_ms) == (2, 400_000, {"failed": 400_000}, 9)


def test_ends_for_idleness_and_withdrawals_add_up() -> None:
    alloc = gpu_alloc(idle=IdleState(action="requeue", spared_by_use=2, spared_by_keep=1))
    one = with_account(UsageDay(namespace="a", day=1), alloc, account(alloc))
    two = added(one, with_account(one, gpu_alloc(), account(gpu_alloc())))

    assert (two.idle_ended, two.idle_spared_by_use, two.idle_spared_by_keep) == (2, 4, 2)
