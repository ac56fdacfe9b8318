"""The hours in which a task with a `schedule` block runs.

`start` is a cron expression of five fields or six, the year being the sixth; its minute and hour are one number each,
its other fields select days. `end` is the minute and the hour of the same day. Both are times of the wall clock in the
time zone of the block, or in the node's own ("Local"). A time that a change of clocks skips counts as the time after
the change, and the hour that it repeats as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, tzinfo
from functools import lru_cache
from typing import Final

import msgspec

from yurt.rules.cron import Cron, days_match
from yurt.rules.periodic import parsed, time_zone
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.structs.task import TaskSchedule, TaskScheduleCron

LOCAL: Final = ("", "Local")
_START_FIELDS: Final = (5, 6)
_END: Final = re.compile(r"(?P<minute>\d{1,2})\s+(?P<hour>\d{1,2})\Z")
_NUMBER: Final = re.compile(r"\d{1,2}\Z")


class Hours(msgspec.Struct, frozen=True):
    """The hours in which a task runs: from `start` to `end` on the days of `cron`; `zone` is None for the node's
    own."""

    cron: Cron
    start: time
    end: time
    zone: tzinfo | None


class ScheduleWindow(msgspec.Struct, frozen=True):
    """Whether the task may run now, and the seconds until the next check at the latest."""

    is_open: bool
    again_s: float


def schedule_problems(schedule: TaskSchedule | None) -> Iterator[str]:
    """All problems of a schedule block, each with the correct spelling."""
    if schedule is None:
        return
    if schedule.cron is None:
        yield 'Schedule needs a cron block: cron { start = "30 9 * * MON-FRI *", end = "0 16" }'
        return
    for part in (_start, _end, _zone):
        try:
            part(schedule.cron)
        except Invalid as error:
            yield f"Schedule: {error}"
            return
    if _end(schedule.cron) <= _start(schedule.cron)[1]:
        yield (
            f'Schedule: end "{schedule.cron.end[:64]}" is not later than start "{schedule.cron.start[:64]}"; a task '
            "cannot run overnight: choose a timezone in which both are on one day"
        )


@lru_cache(maxsize=1024)
def hours(schedule: TaskSchedule) -> Hours:
    """The parsed schedule; raises Invalid."""
    if schedule.cron is None:
        raise Invalid("a schedule without a cron block")
    cron, start = _start(schedule.cron)
    return Hours(cron, start, _end(schedule.cron), _zone(schedule.cron))


def window_at(schedule: TaskSchedule, now: UnixNano, *, longest_s: float) -> ScheduleWindow:
    """Whether a task with this schedule may run now, and the seconds to today's next start or end, at most
    `longest_s`."""
    when = hours(schedule)
    instant = datetime.fromtimestamp(now / NANOSECONDS, UTC)
    today = instant.astimezone(when.zone).date()
    edges = [_instant(today, at, when.zone) for at in (when.start, when.end)]
    is_open = days_match(when.cron, today) and edges[0] <= instant < edges[1]
    ahead = [(edge - instant).total_seconds() for edge in edges if edge > instant]
    return ScheduleWindow(is_open, min([longest_s, *ahead]))


def _instant(day: date, at: time, zone: tzinfo | None) -> datetime:
    wall = datetime.combine(day, at)
    # astimezone() takes a naive time as one of the node's own zone.
    return (wall if zone is None else wall.replace(tzinfo=zone)).astimezone(UTC)


def _start(cron: TaskScheduleCron) -> tuple[Cron, time]:
    text = cron.start
    fields = text.split()
    if not fields:
        raise Invalid('start is missing; write minute, hour, day, month and weekday, for example "30 9 * * MON-FRI *"')
    if len(fields) not in _START_FIELDS or "," in text or "/" in text or not all(map(_NUMBER.match, fields[:2])):
        raise Invalid(
            f'start "{text[:64]}" is not a daily time: write one minute, one hour, then days, months, weekdays and '
            'years without "," or "/", for example "30 9 * * MON-FRI *"'
        )
    return parsed(text), _time(fields[0], fields[1], "start", text)


def _end(cron: TaskScheduleCron) -> time:
    if not cron.end:
        raise Invalid('end is missing; write minute and hour, for example "0 16"')
    found = _END.match(cron.end.strip())
    if found is None:
        raise Invalid(f'end "{cron.end[:64]}" is not a minute and an hour, for example "0 16"')
    return _time(found["minute"], found["hour"], "end", cron.end)


def _time(minute: str, hour: str, what: str, text: str) -> time:
    try:
        return time(int(hour), int(minute))
    except ValueError:
        raise Invalid(f'{what} "{text[:64]}": a minute is 0 to 59 and an hour 0 to 23') from None


def _zone(cron: TaskScheduleCron) -> tzinfo | None:
    return None if cron.timezone in LOCAL else time_zone(cron.timezone)
