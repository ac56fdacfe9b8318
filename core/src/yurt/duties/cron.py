"""Cron expressions as Nomad reads them.

Five fields are minute, hour, day of month, month, day of week; a sixth is the year; with seven the first is the
second. Months and days have names; `?` is `*`; `L` is the last day of the month, `LW` its last weekday, `15W` the
weekday nearest to the 15th; `5L` is the last Friday and `5#3` the third. When both kinds of day are restricted,
either will do. A range that runs backwards matches nothing. A time that a change of clocks skips does not run; one
that it repeats runs twice.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import product
from typing import Final

import msgspec

from yurt.sdk.errors import Invalid

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 2099
MONTHS: Final = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}
DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def _names(full: dict[str, int]) -> dict[str, int]:
    return {**full, **{name[:3]: number for name, number in full.items()}}


MONTH_NAMES: Final = _names(MONTHS)
NO_NAMES: Final[Mapping[str, int]] = {}
DAY_NAMES: Final = _names({name: number for number, name in enumerate(DAYS)})


class DaysOfMonth(msgspec.Struct, frozen=True):
    """Which days of a month match; None in `fixed` means that the field does not restrict."""

    fixed: frozenset[int] | None = None
    has_last: bool = False
    has_last_weekday: bool = False
    nearest_weekday: frozenset[int] = frozenset()


class DaysOfWeek(msgspec.Struct, frozen=True):
    """Which days of a week match, Sunday being 0; None in `fixed` means that the field does not restrict."""

    fixed: frozenset[int] | None = None
    last: frozenset[int] = frozenset()
    nth: frozenset[tuple[int, int]] = frozenset()


class Cron(msgspec.Struct, frozen=True):
    """A parsed expression."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: DaysOfMonth
    months: frozenset[int]
    weekdays: DaysOfWeek
    years: frozenset[int] | None

    def next_after(self, after: datetime) -> datetime | None:
        """The first matching instant later than `after`, in its time zone; None when there is none until 2099."""
        zone = after.tzinfo
        assert zone is not None
        if not (self.seconds and self.minutes and self.hours):
            return None
        for day in self._days_from(after.date()):
            found = self._first_on(day, after, zone)
            if found is not None:
                return found
        return None

    def _days_from(self, first: date) -> Iterator[date]:
        for year in range(first.year, LAST_YEAR + 1):
            if self.years is not None and year not in self.years:
                continue
            for month in sorted(self.months):
                found = (date(year, month, number) for number in sorted(self._matching_days(year, month)))
                yield from (day for day in found if day >= first)

    def _matching_days(self, year: int, month: int) -> set[int]:
        count = calendar.monthrange(year, month)[1]
        by_date = days_of_month(self.days, year, month)
        by_week = {number for number in range(1, count + 1) if is_weekday(self.weekdays, date(year, month, number))}
        if by_date is None and self.weekdays.fixed is None:
            return set(range(1, count + 1))
        if by_date is None:
            return by_week
        return by_date if self.weekdays.fixed is None else by_date | by_week

    def _first_on(self, day: date, after: datetime, zone: tzinfo) -> datetime | None:
        best: datetime | None = None
        for hour in self.hours:
            if best is not None and hour > best.hour + 1:
                break
            for instant in self._instants(day, hour, zone):
                if instant > after.astimezone(UTC) and (best is None or instant < best.astimezone(UTC)):
                    best = instant.astimezone(zone)
        return best

    def _instants(self, day: date, hour: int, zone: tzinfo) -> Iterator[datetime]:
        for minute, second, fold in product(self.minutes, self.seconds, (0, 1)):
            wall = datetime(day.year, day.month, day.day, hour, minute, second)
            instant = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
            if instant.astimezone(zone).replace(tzinfo=None) == wall:
                yield instant


def parse(expression: str) -> Cron:
    """Read an expression; raises Invalid that names the field."""
    text = expression.strip()
    text = MACROS.get(text.lower(), text)
    fields = text.split()
    if not 5 <= len(fields) <= 7:
        raise Invalid(f'cron "{expression}" has {len(fields)} fields; write minute hour day month weekday [year]')
    second = fields.pop(0) if len(fields) == 7 else "0"
    year = fields[5] if len(fields) == 6 else "*"
    return Cron(
        seconds=tuple(sorted(_numbers(second, "second", 0, 59))),
        minutes=tuple(sorted(_numbers(fields[0], "minute", 0, 59))),
        hours=tuple(sorted(_numbers(fields[1], "hour", 0, 23))),
        days=_days_of_month(fields[2]),
        months=frozenset(_numbers(fields[3], "month", 1, 12, MONTH_NAMES)),
        weekdays=_days_of_week(fields[4]),
        years=None if year in ("*", "?") else frozenset(_numbers(year, "year", FIRST_YEAR, LAST_YEAR)),
    )


def days_of_month(days: DaysOfMonth, year: int, month: int) -> set[int] | None:
    """The days of that month; None when the field does not restrict."""
    if days.fixed is None:
        return None
    count = calendar.monthrange(year, month)[1]
    found = {number for number in days.fixed if number <= count}
    if days.has_last:
        found.add(count)
    if days.has_last_weekday:
        found.add(_nearest_weekday(year, month, count))
    found.update(_nearest_weekday(year, month, number) for number in days.nearest_weekday if number <= count)
    return found


def is_weekday(days: DaysOfWeek, day: date) -> bool:
    """The day matches the field of days of the week."""
    number = day.isoweekday() % 7
    if days.fixed is not None and number in days.fixed:
        return True
    if number in days.last and (day + timedelta(days=7)).month != day.month:
        return True
    return (number, (day.day - 1) // 7 + 1) in days.nth


def _nearest_weekday(year: int, month: int, number: int) -> int:
    count = calendar.monthrange(year, month)[1]
    weekday = date(year, month, number).isoweekday()
    if weekday == 6:
        return number - 1 if number > 1 else number + 2
    if weekday == 7:
        return number + 1 if number < count else number - 2
    return number


def _days_of_month(field: str) -> DaysOfMonth:
    if field in ("*", "?"):
        return DaysOfMonth()
    fixed: set[int] = set()
    nearest: set[int] = set()
    words = field.lower().split(",")
    for word in words:
        if word in ("l", "lw"):
            continue
        if re.fullmatch(r"\d+w", word):
            nearest |= _numbers(word[:-1], "day of month", 1, 31)
        else:
            fixed |= _numbers(word, "day of month", 1, 31)
    return DaysOfMonth(frozenset(fixed), "l" in words, "lw" in words, frozenset(nearest))


def _days_of_week(field: str) -> DaysOfWeek:
    if field in ("*", "?"):
        return DaysOfWeek()
    fixed: set[int] = set()
    last: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for word in field.lower().split(","):
        numbered = re.fullmatch(r"(\w+)#([1-5])", word)
        if numbered:
            nth |= {(number % 7, int(numbered[2])) for number in _weekdays(numbered[1])}
        elif re.fullmatch(r"(\d|[a-z]{3,9})l", word) and word not in DAY_NAMES:
            last |= {number % 7 for number in _weekdays(word[:-1])}
        else:
            fixed |= {number % 7 for number in _weekdays(word)}
    return DaysOfWeek(frozenset(fixed), frozenset(last), frozenset(nth))


def _weekdays(text: str) -> set[int]:
    return _numbers(text, "day of week", 0, 7, DAY_NAMES)


def _numbers(field: str, what: str, low: int, high: int, names: Mapping[str, int] = NO_NAMES) -> set[int]:
    found: set[int] = set()
    for word in field.lower().split(","):
        span, _, step_text = word.partition("/")
        step = _number(step_text, what, 1, high, NO_NAMES) if "/" in word else 1
        first, dash, last = span.partition("-")
        if span in ("*", "?"):
            start, stop = low, high
        elif dash:
            start, stop = _number(first, what, low, high, names), _number(last, what, low, high, names)
        else:
            start = _number(first, what, low, high, names)
            stop = high if "/" in word else start
        found.update(range(start, stop + 1, step))
    return found


def _number(text: str, what: str, low: int, high: int, names: Mapping[str, int]) -> int:
    number = names.get(text, int(text) if text.isdigit() else -1)
    if not low <= number <= high:
        raise Invalid(f'cron {what} "{text}" is not within {low} to {high}')
    return number
