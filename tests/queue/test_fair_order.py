"""The order by fair share: deterministic, parts of the pool first, then turns that usage puts off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.queue.amounts import NOTHING, WEIGHT_MAX, WEIGHT_ONE, Amounts
from yurt.queue.fair_order import Delays, Shares, delays_of, fair_order
from yurt.queue.job_queue import CHANGES_MIN, Band, ChangeLog, JobQueue, place_in_leaf
from yurt.queue.part_split import PartBasis, PartSplit
from yurt.queue.turns import turn_of
from yurt.queue.waiting_job import Path, Waiting

from tests.queue.strategies import HOUR, POOL, RULES, TENANTS, amounts, job, jobs, usages

DAY = 24 * HOUR
DELAYS = Delays(POOL.times(DAY), 72 * HOUR)
ACCOUNTS = ("vision", "speech", "robots")
NOBODY = Shares(POOL, {}, {})
Used = dict[Path, Amounts]
holdings = st.dictionaries(st.sampled_from(ACCOUNTS), st.integers(1, 8).map(amounts), max_size=3)
weights = st.dictionaries(st.sampled_from([(name,) for name in ACCOUNTS]), st.integers(1, 5000), max_size=3)


def line_of(waiting: Iterable[Waiting], used: Used | None = None, of: Mapping[Path, int] | None = None) -> JobQueue:
    line = JobQueue()
    line.delay(delays_of(used or {}, DELAYS, of or {}))
    for one in waiting:
        line.put(one)
    line.check()
    return line


def ordered(waiting: Iterable[Waiting], used: Used | None = None, shares: Shares = NOBODY) -> list[Waiting]:
    return list(fair_order(line_of(waiting, used, shares.weights), shares))


def slow_order(waiting: list[Waiting], used: Used, shares: Shares) -> list[Waiting]:
    """The order after its definition: at each step all heads are looked at anew."""
    delays = delays_of(used, DELAYS, shares.weights)
    usage = dict(shares.usage)
    active = {one.tenant[0] for one in waiting} | set(usage)
    total = sum(shares.weight((name,)) for name in active)

    def is_within(one: Waiting) -> bool:
        now = usage.get(one.tenant[0], NOTHING).plus(one.asked)
        weight = shares.weight((one.tenant[0],))
        return all(amount * total <= whole * weight for amount, whole in zip(now, POOL, strict=True))

    def delay_of(tenant: Path) -> int:
        return delays.get(tenant[:1], 0) + delays.get(tenant, 0)

    found: list[Waiting] = []
    for band in sorted({one.band for one in waiting}, reverse=True):
        left = {tenant: sorted((one for one in waiting if one.band == band and one.tenant == tenant), key=place_in_leaf)
                for tenant in TENANTS}  # fmt: skip
        borrows: set[Path] = set()
        while any(left.values()):
            heads = [(leaf[0], tenant) for tenant, leaf in left.items() if leaf]
            borrows |= {tenant for one, tenant in heads if not is_within(one)}
            _, one = min(
                ((tenant in borrows, one.turn + delay_of(tenant), one.create_index, tenant), one)
                for one, tenant in heads
            )
            usage[one.tenant[0]] = usage.get(one.tenant[0], NOTHING).plus(one.asked)
            left[one.tenant].remove(one)
            found.append(one)
    return found


@given(jobs(), usages, holdings, weights)
def test_the_walk_is_what_its_definition_says(
    waiting: list[Waiting], used: Used, usage: dict[str, Amounts], of: dict[Path, int]
) -> None:
    shares = Shares(POOL, of, usage)
    assert ordered(waiting, used, shares) == slow_order(waiting, used, shares)


@given(jobs(), usages, st.data())
def test_equal_histories_give_equal_order_however_jobs_were_entered(
    waiting: list[Waiting], used: Used, data: st.DataObject
) -> None:
    other = data.draw(st.permutations(waiting))
    found = ordered(waiting, used)
    assert ordered(other, used) == found
    line = line_of(other)
    line.delay(delays_of(used, DELAYS, {}))
    line.check()
    assert list(fair_order(line, NOBODY)) == found, "usage may change while jobs wait"


@given(jobs(), usages)
def test_higher_bands_come_first(waiting: list[Waiting], used: Used) -> None:
    bands = [one.band for one in ordered(waiting, used)]
    assert bands == sorted(bands, reverse=True)


@given(jobs(), usages)
def test_jobs_of_one_tenant_keep_their_priority_and_turn(waiting: list[Waiting], used: Used) -> None:
    found = ordered(waiting, used)
    for tenant in TENANTS:
        own = [(-one.priority, one.turn, one.create_index) for one in found if one.tenant == tenant]
        assert own == sorted(own)


def test_who_stays_within_its_part_goes_before_who_borrows() -> None:
    usage = Shares(POOL, {}, {"vision": amounts(8)})
    assert [one.tenant[0] for one in ordered([job(1), job(2, tenant=("speech", ""))], shares=usage)] == [
        "speech", "vision",
    ]  # fmt: skip
    weighted = Shares(POOL, {("vision",): 3 * WEIGHT_ONE}, {"vision": amounts(8)})
    found = ordered([job(1), job(2, tenant=("speech", ""))], shares=weighted)
    assert [one.tenant[0] for one in found] == ["vision", "speech"], "12 of 16 cards are its part"


@given(st.integers(1, 50), st.integers(1, 50))
def test_who_has_used_less_goes_first(vision: int, speech: int) -> None:
    used = {("vision", ""): amounts(vision).times(HOUR), ("speech", ""): amounts(speech).times(HOUR)}
    found = ordered([job(1), job(1, tenant=("speech", ""))], used)
    expected = ("speech", "") if speech < vision else ("vision", "") if vision < speech else found[0].tenant
    assert found[0].tenant == expected


def test_one_users_history_puts_off_its_accounts_jobs_and_its_own_most() -> None:
    used = {("vision", "ann"): amounts(40).times(HOUR), ("speech", "bob"): amounts(50).times(HOUR)}
    tenants = [(team, user) for team in ("vision", "speech") for user in ("ann", "bob")]
    waiting = [job(number, tenant=tenant) for number, tenant in enumerate(tenants)]
    assert [one.tenant for one in ordered(waiting, used)] == [
        ("vision", "bob"), ("speech", "ann"), ("vision", "ann"), ("speech", "bob"),
    ]  # fmt: skip


def test_weights_divide_usage() -> None:
    used = {("vision", ""): amounts(30).times(HOUR), ("speech", ""): amounts(20).times(HOUR)}
    waiting = [job(1), job(1, tenant=("speech", ""))]
    assert ordered(waiting, used)[0].tenant == ("speech", "")
    weighted = Shares(POOL, {("vision",): 3000, ("vision", ""): 3000, ("speech",): 1000}, {})
    assert ordered(waiting, used, weighted)[0].tenant == ("vision", "")
    assert Delays(POOL, HOUR).of(POOL, WEIGHT_MAX) < Delays(POOL, HOUR).of(POOL, 1) == HOUR


@given(st.integers(1, 16), st.integers(1, 48), st.integers(1, 16), st.integers(1, 48), st.integers(0, 200))
def test_a_job_is_passed_only_by_such_as_come_within_reach(
    cards: int, hours: int, other: int, other_hours: int, later: int
) -> None:
    first = turn_of(0, hours * HOUR, cards, RULES)
    second = turn_of(later * HOUR, other_hours * HOUR, other, RULES)
    if second < first:
        assert later * HOUR < RULES.reach
        assert other * other_hours < cards * hours
    assert turn_of(0, 0, cards, RULES) == RULES.reach, "without a limit it counts as the longest"


def test_little_work_passes_much_that_came_shortly_before() -> None:
    found = ordered([job(1, gpus=8, hours=4), job(2, gpus=1, hours=1)])
    assert [one.key[1] for one in found] == ["job-2", "job-1"]


def test_gpus_dominate_where_they_are_the_largest_part() -> None:
    gpu_heavy = {("vision", ""): Amounts(gpu=8000, cpu=1000).times(HOUR)}
    cpu_heavy = {("speech", ""): Amounts(gpu=0, cpu=30_000).times(HOUR)}
    found = ordered([job(1), job(1, tenant=("speech", ""))], gpu_heavy | cpu_heavy)
    assert found[0].tenant == ("speech", ""), "30 of 64 GHz are a smaller part than 8 of 16 GPUs"


@given(jobs(most=15), st.data())
def test_a_line_forgets_what_left(waiting: list[Waiting], data: st.DataObject) -> None:
    line = line_of(waiting)
    gone = data.draw(st.sets(st.sampled_from([one.key for one in waiting])))
    for key in gone:
        assert line.remove(key) is not None
        line.check()
    assert {one.key for one in fair_order(line, NOBODY)} == {one.key for one in waiting} - gone


@given(jobs(most=20), st.data())
def test_walks_over_a_line_that_changes_are_those_over_a_new_one(waiting: list[Waiting], data: st.DataObject) -> None:
    """Heads, holdings, weights, delays and the pool change between walks, which begin and end anywhere."""
    line, used, of_weights = JobQueue(), dict[Path, Amounts](), dict[Path, int]()
    held, pool, log = dict[str, Amounts](), POOL, data.draw(st.sampled_from((None, ChangeLog())))
    for one in waiting:
        line.put(one)
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(("take", "put", "hold", "weights", "use", "pool"))):
            case "take" if len(line):
                line.remove(data.draw(st.sampled_from(sorted(one.key for one in line))))
            case "put":
                line.put(data.draw(st.sampled_from(waiting)) if waiting else job(1))
            case "hold":
                held = hold(held, data.draw(holdings), log)
            case "weights":
                of_weights = data.draw(weights)
            case "use":
                used |= data.draw(usages)
                line.delay(delays_of(used, DELAYS, of_weights))
            case "pool":
                pool = data.draw(st.sampled_from((POOL, POOL.times(2))))
        shares = Shares(pool, of_weights, held, log)
        again = JobQueue()
        again.delay(dict(line.delays))
        for one in line:
            again.put(one)
        most = data.draw(st.sampled_from((0, 1, 3, 100)))
        assert list(islice(fair_order(line, shares), most)) == list(
            islice(fair_order(again, Shares(pool, of_weights, held)), most)
        )


def hold(before: dict[str, Amounts], now: dict[str, Amounts], log: ChangeLog | None) -> dict[str, Amounts]:
    """Other holdings: with a log in the same mapping, as a pool's view has them."""
    if log is None:
        return now
    for name in {*before, *now}:
        log.note(name)
    before.clear()
    before.update(now)
    return before


def test_an_account_that_comes_or_goes_asks_few_others_for_their_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 namespaces that hold their parts and wait; 16 cards more or less decide for one of them."""
    number = 1_000
    pool = POOL.times(number)
    line = line_of([job(at, tenant=(f"team{at}", "")) for at in range(number)])
    held = {f"team{at}": amounts(8 + at % 16) for at in range(number)}
    log, asked = ChangeLog(), list[str]()
    has_part = PartBasis.has_part

    def count(basis: PartBasis, account: str, own: Amounts, more: Amounts) -> bool:
        asked.append(account)
        return has_part(basis, account, own, more)

    monkeypatch.setattr(PartBasis, "has_part", count)
    counts = []
    for at in range(8):
        guest = job(number + at, tenant=(f"guest{at}", ""))
        for change in (lambda guest=guest: line.put(guest), lambda guest=guest: line.remove(guest.key)):
            change()
            asked.clear()
            list(islice(fair_order(line, Shares(pool, {}, held, log)), 1))
            counts.append(len(asked))
    assert counts[0] > number, "the first walk asks all"
    assert max(counts[2:]) <= number // 8


def follower_of(line: JobQueue) -> Band:
    """The line's only band."""
    (band,) = line.bands.values()
    return band


def test_a_line_that_nobody_walks_collects_no_changes() -> None:
    line = line_of([job(number) for number in range(5)])
    assert follower_of(line).changed is None


def test_tenants_that_come_and_go_between_walks_leave_nothing() -> None:
    line = line_of([job(0, tenant=("stays", "a")), first := job(1, tenant=("leaves", "a"))])
    list(fair_order(line, NOBODY))
    for number in range(2, 50):
        passing = job(number, tenant=(f"tenant{number}", "a"))
        line.put(passing)
        line.remove(passing.key)
    line.remove(first.key)
    assert follower_of(line).changed == {("leaves", "a")}, "the walk before knows it"
    assert [one.key for one in fair_order(line, NOBODY)] == [("stays", "job-0")]


def test_new_parts_cost_one_pass_over_the_tenants() -> None:
    """Moving each head on its own takes three times as long: more than 50 ms with 10,000 tenants."""
    line = line_of([job(number, tenant=(f"tenant{number}", "a")) for number in range(4_000)])
    split, band = PartSplit(), follower_of(line)
    bases = [PartBasis(POOL.times(number), {}, WEIGHT_ONE * len(line)) for number in (1, 4_000) * 5]

    def seconds_of(work: Callable[[PartBasis], object]) -> float:
        taken = []
        for basis in bases:
            begin = thread_time()
            work(basis)
            taken.append(thread_time() - begin)
        return min(taken)

    one_pass = seconds_of(lambda basis: [basis.has_part(head.path[0], NOTHING, amounts(1)) for head in band.heads])
    assert seconds_of(lambda basis: split.update(band, basis, {})) < 2 * one_pass
    assert len(split.within) == len(band.heads) and not split.beyond


def test_a_follower_that_is_far_behind_looks_at_everything() -> None:
    log = ChangeLog()
    for number in range(3 * CHANGES_MIN):
        log.note(str(number % 7))
    assert log.since(0) is None
    assert list(log.since(log.position) or ()) == []
    last = log.since(log.position - 3)
    assert last is not None and sorted(last) == sorted(str(n % 7) for n in range(3 * CHANGES_MIN - 3, 3 * CHANGES_MIN))
