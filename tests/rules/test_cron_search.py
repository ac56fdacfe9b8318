"""The field-wise search of cron times, against one that tries every time of a day in turn."""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.rules.cron import LAST_YEAR, LENGTH_MAX, Cron, parse
from yurt.sdk.errors import Invalid

ZONES = tuple(
    ZoneInfo(name)
    for name in (
        "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca",
        "America/Santiago", "Pacific/Apia", "Africa/Cairo", "America/Havana",
    )
)  # fmt: skip


def stepped(cron: Cron, after: datetime) -> datetime | None:
    """The first matching instant later than `after`, found by trying them all."""
    zone = after.tzinfo
    assert zone is not None
    for day in _days_from(cron, after.date()):
        found = [instant for instant in _instants(cron, day, zone) if instant > after.astimezone(UTC)]
        if found:
            return min(found).astimezone(zone)
    return None


def _days_from(cron: Cron, first: date) -> Iterator[date]:
    for year in range(first.year, LAST_YEAR + 1):
        if cron.years is not None and year not in cron.years:
            continue
        for month in sorted(cron.months):
            numbers = range(1, calendar.monthrange(year, month)[1] + 1)
            yield from (day for n in numbers if (day := date(year, month, n)) >= first and _is_day(cron, day))


def _is_day(cron: Cron, day: date) -> bool:
    by_date, by_week = _is_date(cron, day), _is_weekday(cron, day)
    if cron.days.fixed is None:
        return by_week or cron.weekdays.fixed is None
    return by_date or (cron.weekdays.fixed is not None and by_week)


def _is_date(cron: Cron, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    nearest = {number for number in cron.days.nearest_weekday if number <= last}
    if cron.days.has_last_weekday:
        nearest.add(last)
    return (
        day.day in (cron.days.fixed or ())
        or (cron.days.has_last and day.day == last)
        or any(day == _nearest_weekday(day.replace(day=number)) for number in nearest)
    )


def _nearest_weekday(day: date) -> date:
    steps = {5: (-1, 2), 6: (1, -2)}.get(day.weekday(), (0,))
    return next(near for step in steps if (near := day + timedelta(days=step)).month == day.month)


def _is_weekday(cron: Cron, day: date) -> bool:
    number = day.isoweekday() % 7
    is_last = (day + timedelta(days=7)).month != day.month
    return (
        number in (cron.weekdays.fixed or ())
        or (is_last and number in cron.weekdays.last)
        or (number, (day.day - 1) // 7 + 1) in cron.weekdays.nth
    )


def _instants(cron: Cron, day: date, zone: tzinfo) -> Iterator[datetime]:
    for hour, minute, second, fold in product(cron.hours, cron.minutes, cron.seconds, (0, 1)):
        wall = datetime(day.year, day.month, day.day, hour, minute, second)
        instant = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) == wall:
            yield instant


def _field(low: int, high: int, *others: str) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    word = st.one_of(
        number.map(str),
        st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}"),
        st.integers(1, high).map(lambda step: f"*/{step}"),
    )
    return st.one_of(
        st.just("*"), st.sampled_from(others or ("*",)), st.lists(word, min_size=1, max_size=3).map(",".join)
    )


EXPRESSIONS = st.tuples(
    st.sampled_from(["0", "30", "15,45"]), _field(0, 59), _field(0, 23), _field(1, 31, "L", "LW", "15W", "1W", "31W"),
    _field(1, 12), _field(0, 7, "5L", "1#1", "5#3", "?"), st.sampled_from(["*", "2027", "2028/4"]),
).map(" ".join)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.sampled_from(ZONES), st.integers(1_767_225_600, 1_893_456_000), st.sampled_from([0, 500_000]))
def test_the_search_finds_what_trying_every_time_finds(
    expression: str, zone: ZoneInfo, stamp: int, microsecond: int
) -> None:
    cron, moment = parse(expression), datetime.fromtimestamp(stamp, zone).replace(microsecond=microsecond)
    for _ in range(2):
        found = cron.next_after(moment)
        assert found == stepped(cron, moment)
        if found is None:
            return
        moment = found


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(st.sampled_from(["*/7", "30", "*"]), st.sampled_from(["*", "0", "1-3", "23,0", "2"])),
    st.sampled_from([
        (ZoneInfo("America/New_York"), date(2026, 11, 1)), (ZoneInfo("America/New_York"), date(2026, 3, 8)),
        (ZoneInfo("Australia/Lord_Howe"), date(2026, 4, 5)), (ZoneInfo("Australia/Lord_Howe"), date(2026, 10, 4)),
        (ZoneInfo("America/Santiago"), date(2026, 9, 6)), (ZoneInfo("Pacific/Apia"), date(2011, 12, 29)),
        (ZoneInfo("America/Havana"), date(2026, 11, 1)), (ZoneInfo("America/St_Johns"), date(2010, 3, 14)),
    ]),
    st.integers(-7200, 100_000),
)  # fmt: skip
def test_changes_of_clocks_are_walked_in_the_order_of_time(
    times: tuple[str, str], where: tuple[ZoneInfo, date], seconds: int
) -> None:
    zone, day = where
    cron = parse(f"0 {times[0]} {times[1]} * * * *")
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    moment = (midnight.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(zone)
    assert cron.next_after(moment) == stepped(cron, moment)


def test_an_expression_of_many_characters_is_refused_with_the_bound() -> None:
    with pytest.raises(Invalid, match=f"at most {LENGTH_MAX} are possible"):
        parse(",".join(["0"] * 200) + " * * * *")


@pytest.mark.parametrize("expression", ["² * * * *", "* * ٣w * *", "* * * * ٣l"])
def test_digits_of_other_scripts_are_no_numbers(expression: str) -> None:
    with pytest.raises(Invalid, match="cron"):
        parse(expression)
