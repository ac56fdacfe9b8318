"""The order by fair share: deterministic, fair on every level, and nothing gained by cutting jobs into parts."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from yurt.queue.amounts import WEIGHT_MAX, Amounts
from yurt.queue.fair_order import Shares, fair_order
from yurt.queue.line import Line
from yurt.queue.waiting import Waiting

from tests.queue.strategies import HOUR, POOL, TENANTS, amounts, job, jobs, usages

DAY = 24 * HOUR
SHARES = Shares(POOL.times(DAY), DAY, {})
Used = dict[tuple[str, ...], Amounts]


def ordered(waiting: Iterable[Waiting], used: Used | None = None, shares: Shares = SHARES) -> list[Waiting]:
    line = Line()
    for one in waiting:
        line.put(one)
    line.check()
    return list(fair_order(line.bands, used or {}, shares))


@given(jobs(), usages, st.data())
def test_equal_histories_give_equal_order_however_jobs_were_entered(
    waiting: list[Waiting], used: Used, data: st.DataObject
) -> None:
    other = data.draw(st.permutations(waiting))
    found = ordered(waiting, used)
    assert ordered(other, used) == found
    assert sorted(found) == sorted(waiting)


@given(jobs(), usages)
def test_higher_bands_come_first(waiting: list[Waiting], used: Used) -> None:
    bands = [one.band for one in ordered(waiting, used)]
    assert bands == sorted(bands, reverse=True)


@given(jobs(), usages)
def test_jobs_of_one_tenant_keep_their_priority_and_turn(waiting: list[Waiting], used: Used) -> None:
    found = ordered(waiting, used)
    for tenant in TENANTS:
        own = [(-one.priority, one.create_index) for one in found if one.tenant == tenant]
        assert own == sorted(own)


@given(st.integers(1, 50), st.integers(1, 50))
def test_who_has_used_less_goes_first(vision: int, speech: int) -> None:
    used = {("vision", ""): amounts(vision).times(HOUR), ("speech", ""): amounts(speech).times(HOUR)}
    found = ordered([job(1), job(2, tenant=("speech", ""))], used)
    expected = ("speech", "") if speech < vision else ("vision", "") if vision < speech else found[0].tenant
    assert found[0].tenant == expected


def test_one_users_history_does_not_lower_another_accounts_users() -> None:
    used = {("vision", "ann"): amounts(40).times(HOUR), ("speech", "bob"): amounts(50).times(HOUR)}
    # Vision has used less than speech, so both of its users come before speech's other user, who has used nothing.
    found = ordered([job(1, tenant=("vision", "ann"), hours=0.25), job(2, tenant=("speech", "ann"), hours=0.25)], used)
    assert [one.tenant for one in found] == [("vision", "ann"), ("speech", "ann")]


def test_weights_divide_usage() -> None:
    used = {("vision", ""): amounts(30).times(HOUR), ("speech", ""): amounts(20).times(HOUR)}
    waiting = [job(1), job(2, tenant=("speech", ""))]
    assert ordered(waiting, used)[0].tenant == ("speech", "")
    weighted = Shares(POOL.times(DAY), DAY, {("vision",): 3000, ("speech",): 1000})
    assert ordered(waiting, used, weighted)[0].tenant == ("vision", "")
    heaviest = Shares(POOL.times(DAY), DAY, {("vision",): WEIGHT_MAX, ("speech",): 1})
    assert ordered(waiting, used, heaviest)[0].tenant == ("vision", "")


@given(st.integers(2, 8))
def test_cutting_a_job_into_parts_does_not_bring_its_last_part_forward(parts: int) -> None:
    rivals = [job(number, gpus=2, tenant=("speech", "")) for number in range(100, 120)]
    whole = ordered([job(1, gpus=parts), *rivals])
    cut = ordered([*(job(number, gpus=1) for number in range(parts)), *rivals])

    def last(found: list[Waiting]) -> int:
        rivals_before = 0
        before = 0
        for one in found:
            if one.tenant == ("speech", ""):
                rivals_before += 1
            else:
                before = rivals_before
        return before

    assert last(cut) >= last(whole)


def test_a_gang_is_charged_before_it_starts() -> None:
    found = ordered([job(1, gpus=16), job(2, gpus=1, tenant=("speech", ""))])
    assert [one.key[1] for one in found] == ["job-2", "job-1"]


def test_gpus_dominate_where_they_are_the_largest_part() -> None:
    gpu_heavy = {("vision", ""): Amounts(gpu=8000, cpu=1000).times(HOUR)}
    cpu_heavy = {("speech", ""): Amounts(gpu=0, cpu=30_000).times(HOUR)}
    found = ordered([job(1), job(2, tenant=("speech", ""))], gpu_heavy | cpu_heavy)
    assert found[0].tenant == ("speech", ""), "30 of 64 GHz are a smaller part than 8 of 16 GPUs"


@given(jobs(most=15), st.data())
def test_a_line_forgets_what_left(waiting: list[Waiting], data: st.DataObject) -> None:
    line = Line()
    for one in waiting:
        line.put(one)
    gone = data.draw(st.sets(st.sampled_from([one.key for one in waiting])))
    for key in gone:
        assert line.remove(key) is not None
        line.check()
    assert {one.key for one in fair_order(line.bands, {}, SHARES)} == {one.key for one in waiting} - gone
