"""Times in the layouts of Go, which show the reference time Mon Jan 2 15:04:05 MST 2006."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from yurt.client.templates.functions.arguments import text, whole
from yurt.gotemplate import EvaluationFailure

RFC3339 = "2006-01-02T15:04:05Z07:00"
_LAYOUT = re.compile(
    r"January|Jan|Monday|Mon|MST|2006|Z07:00|Z0700|-07:00|-0700|-07|\.0+|\.9+|002|01|02|03|04|05|06|15|PM|pm|_2|1|2|3|4|5"
)
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def moment(now_ns: int) -> datetime:
    """A time in UTC; microseconds are as fine as it gets."""
    return datetime.fromtimestamp(now_ns // 1_000_000_000, UTC) + timedelta(microseconds=now_ns % 1_000_000_000 // 1000)


def shown(when: datetime, layout: str) -> str:
    """The time by a layout of Go."""
    return _LAYOUT.sub(lambda match: _part(when, match[0]), layout)


def _part(when: datetime, part: str) -> str:
    if part[0] == "." and len(part) > 1:
        digits = f"{when.microsecond:06d}000"[: len(part) - 1]
        return f".{digits}" if part[1] == "0" else f".{digits}".rstrip("0").rstrip(".")
    if part[0] in "Z-":
        return _offset(when, part)
    hour = when.hour % 12 or 12
    parts = {
        "January": f"{when:%B}", "Jan": f"{when:%b}", "Monday": f"{when:%A}", "Mon": f"{when:%a}",
        "MST": when.tzname() or "UTC", "2006": f"{when.year:04d}", "06": f"{when.year % 100:02d}",
        "01": f"{when.month:02d}", "1": str(when.month), "02": f"{when.day:02d}", "2": str(when.day),
        "_2": f"{when.day:2d}", "002": f"{when:%j}", "15": f"{when.hour:02d}", "03": f"{hour:02d}", "3": str(hour),
        "04": f"{when.minute:02d}", "4": str(when.minute), "05": f"{when.second:02d}", "5": str(when.second),
        "PM": f"{when:%p}", "pm": f"{when:%p}".lower(),
    }  # fmt: skip
    return parts[part]


def _offset(when: datetime, part: str) -> str:
    minutes = round((when.utcoffset() or timedelta()).total_seconds() / 60)
    if part[0] == "Z" and not minutes:
        return "Z"
    sign, minutes = "-" if minutes < 0 else "+", abs(minutes)
    hours = f"{sign}{minutes // 60:02d}"
    if part == "-07":
        return hours
    return f"{hours}{':' if ':' in part else ''}{minutes % 60:02d}"


def zone(name: str) -> ZoneInfo:
    """A time zone by its name."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvaluationFailure(f"unknown time zone {name!r}") from None


def duration_s(duration: str) -> float:
    """The seconds of a duration as Go writes it: `1h15m`."""
    body = duration.lstrip("+-")
    if body == "0":
        return 0.0
    if not body or _DURATION.sub("", body):
        raise EvaluationFailure(f"{duration!r} is not a valid duration; use numbers and units, for example 1h15m30s")
    total = sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(body))
    return -total if duration.startswith("-") else total


def as_time(value: object, now: datetime) -> datetime:
    """A time given as one, as unix seconds, or not at all."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC)
    return now


def timestamp(now_ns: int, *layouts: object) -> str:
    """`timestamp`: the present time, by RFC 3339 unless a layout is given; `unix` gives seconds."""
    if len(layouts) > 1:
        raise EvaluationFailure(f"timestamp wants at most one layout, not {len(layouts)}")
    layout = text(layouts[0]) if layouts else RFC3339
    return str(now_ns // 1_000_000_000) if layout == "unix" else shown(moment(now_ns), layout)


def sprig_times(now_ns: int) -> dict[str, object]:
    """Sprig's functions of time."""
    now = moment(now_ns)

    def date_in_zone(layout: object, when: object, name: object) -> str:
        return shown(as_time(when, now).astimezone(zone(text(name))), text(layout))

    def modified(change: object, when: object) -> datetime:
        return as_time(when, now) + timedelta(seconds=duration_s(text(change)))

    return {
        "now": lambda: now,
        "date": lambda layout, when: shown(as_time(when, now), text(layout)),
        "dateInZone": date_in_zone,
        "date_in_zone": date_in_zone,
        "dateModify": modified,
        "date_modify": modified,
        "htmlDate": lambda when: shown(as_time(when, now), "2006-01-02"),
        "unixEpoch": lambda when: str(int(as_time(when, now).timestamp())),
        "ago": lambda when: _duration(round((now - as_time(when, now)).total_seconds())),
        "duration": lambda count: _duration(whole(count)),
    }


def _duration(total: int) -> str:
    sign, total = "-" if total < 0 else "", abs(total)
    hours, minutes, rest = total // 3600, total // 60 % 60, total % 60
    if hours:
        return f"{sign}{hours}h{minutes}m{rest}s"
    return f"{sign}{minutes}m{rest}s" if minutes else f"{sign}{rest}s"
