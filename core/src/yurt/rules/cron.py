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
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
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
LENGTH_MAX: Final = 256
"""The maximum length of an expression; a list of every minute of an hour takes 169 characters."""
SECOND: Final = timedelta(seconds=1)
DAY: Final = timedelta(days=1)
SHAPES_MAX: Final = 4096
MONTHS: Final = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}
DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def _names(full: dict[str, int]) -> dict[str, int]:
    return {**full, **{name[:3]: number for name, number in full.items()}}


MONTH_NAMES: Final = _names(MONTHS)
NO_NAMES: Final[Mapping[str, int]] = {}
DAY_NAMES: Final = _names({name: number for number, name in enumerate(DAYS)})


class DaysOfMonth(msgspec.Struct, frozen=True):
    """Matching days of a month; None in `fixed` means that the field is unrestricted."""

    fixed: frozenset[int] | None = None
    has_last: bool = False
    has_last_weekday: bool = False
    nearest_weekday: frozenset[int] = frozenset()


class DaysOfWeek(msgspec.Struct, frozen=True):
    """Matching days of a week, Sunday being 0; None in `fixed` means that the field is unrestricted."""

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
        """The first matching instant later than `after`, in its time zone; None when there is none until 2099.

        The fields are searched from the year down, so that the cost depends neither on how far away the instant is nor
        on how many seconds match.
        """
        zone = after.tzinfo
        assert zone is not None
        if not (self.seconds and self.minutes and self.hours):
            return None
        earliest = after.astimezone(UTC).replace(microsecond=0) + SECOND
        for day in self._days_from(after.date()):
            found = self._first_on(day, earliest, zone)
            if found is not None:
                assert found > after.astimezone(UTC), (found, after, "a launch would come again without end")
                return found
        return None

    def _days_from(self, first: date) -> Iterator[date]:
        months = sorted(self.months)
        for year in range(first.year, LAST_YEAR + 1):
            if self.years is not None and year not in self.years:
                continue
            for month in months:
                if year == first.year and month < first.month:
                    continue
                found = matching_days(self.days, self.weekdays, _shape(year, month))
                yield from (day for number in found if (day := date(year, month, number)) >= first)

    def _first_on(self, day: date, earliest: datetime, zone: tzinfo) -> datetime | None:
        """The first matching instant of a day, not before `earliest`.

        The day is walked in spans of one offset each, in the order of time: a time that the clocks skip is in none of
        them, and one that they repeat is in two.
        """
        midnight = datetime.combine(day, time())
        for begin, end in _spans(midnight, zone):
            offset = _offset(begin, zone)
            wall = max((max(begin, earliest) + offset).replace(tzinfo=None), midnight)
            found = self._time_from(wall) if wall.date() == day else None
            if found is not None and found < (end + offset).replace(tzinfo=None):
                return (found.replace(tzinfo=UTC) - offset).astimezone(zone)
        return None

    def _time_from(self, wall: datetime) -> datetime | None:
        """The first matching time of the day at or after a time, for a constant offset.

        Only the first hour and the first minute can leave too little time below them: no loop runs a third time.
        """
        for hour in self.hours[bisect_left(self.hours, wall.hour) :]:
            is_hour = hour == wall.hour
            for minute in self.minutes[bisect_left(self.minutes, wall.minute if is_hour else 0) :]:
                is_minute = is_hour and minute == wall.minute
                at = bisect_left(self.seconds, wall.second if is_minute else 0)
                if at < len(self.seconds):
                    return wall.replace(hour=hour, minute=minute, second=self.seconds[at])
        return None


def _spans(midnight: datetime, zone: tzinfo) -> Iterator[tuple[datetime, datetime]]:
    """The UTC intervals that may contain the day that begins at that midnight, split where the offset changes.

    No zone changes its clocks twice within a day.
    """
    begin = min(midnight.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    end = max((midnight + DAY).replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    first = _offset(begin, zone)
    if _offset(end - SECOND, zone) == first:
        yield begin, end
        return
    low, high = 0, int((end - begin) / SECOND) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(begin + middle * SECOND, zone) == first:
            low = middle
        else:
            high = middle
    change = begin + high * SECOND
    yield begin, change
    yield change, end


def _offset(instant: datetime, zone: tzinfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()


class MonthShape(msgspec.Struct, frozen=True):
    """A month's number of days and its first weekday, Sunday being 0, which determine its matching days.

    There are 28 shapes, so that the days of a field are worked out 28 times at most.
    """

    length: int
    first_weekday: int

    def weekday(self, number: int) -> int:
        """The day of the week of a day of the month, Sunday being 0."""
        return (self.first_weekday + number - 1) % 7


def _shape(year: int, month: int) -> MonthShape:
    weekday, count = calendar.monthrange(year, month)
    return MonthShape(count, (weekday + 1) % 7)


@lru_cache(maxsize=SHAPES_MAX)
def matching_days(days: DaysOfMonth, weekdays: DaysOfWeek, month: MonthShape) -> tuple[int, ...]:
    """The matching days of a month in order; when both kinds of day are restricted, either matches."""
    every = range(1, month.length + 1)
    by_date = _by_date(days, month)
    by_week = {number for number in every if _is_weekday(weekdays, number, month)}
    if days.fixed is None:
        return tuple(every) if weekdays.fixed is None else tuple(sorted(by_week))
    return tuple(sorted(by_date if weekdays.fixed is None else by_date | by_week))


def days_match(cron: Cron, day: date) -> bool:
    """Whether the expression selects the day, whatever its time."""
    if (cron.years is not None and day.year not in cron.years) or day.month not in cron.months:
        return False
    return day.day in matching_days(cron.days, cron.weekdays, _shape(day.year, day.month))


def parse(expression: str) -> Cron:
    """Read an expression; raises Invalid that names the field."""
    if len(expression) > LENGTH_MAX:
        raise Invalid(
            f'cron "{expression[:32]}..." has {len(expression)} characters, at most {LENGTH_MAX} are possible: '
            "write ranges and steps, or several expressions in crons"
        )
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


def _by_date(days: DaysOfMonth, month: MonthShape) -> set[int]:
    found = {number for number in days.fixed or () if number <= month.length}
    if days.has_last:
        found.add(month.length)
    if days.has_last_weekday:
        found.add(_nearest_weekday(month.length, month))
    found.update(_nearest_weekday(number, month) for number in days.nearest_weekday if number <= month.length)
    return found


def _is_weekday(days: DaysOfWeek, number: int, month: MonthShape) -> bool:
    weekday = month.weekday(number)
    if days.fixed is not None and weekday in days.fixed:
        return True
    if weekday in days.last and number + 7 > month.length:
        return True
    return (weekday, (number - 1) // 7 + 1) in days.nth


def _nearest_weekday(number: int, month: MonthShape) -> int:
    weekday = month.weekday(number)
    if weekday == 6:
        return number - 1 if number > 1 else number + 2
    if weekday == 0:
        return number + 1 if number < month.length else number - 2
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
        if re.fullmatch(r"[0-9]+w", word):
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
        elif re.fullmatch(r"([0-9]|[a-z]{3,9})l", word) and word not in DAY_NAMES:
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
    number = names.get(text, int(text) if text.isascii() and text.isdigit() else -1)
    if not low <= number <= high:
        raise Invalid(f'cron {what} "{text}" is not within {low} to {high}')
    return number
