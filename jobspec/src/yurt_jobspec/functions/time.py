"""Functions on times, which are RFC 3339 texts."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from yurt_jobspec.durations import parse_duration

from .registry import Arguments, FunctionError

_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):(\d\d))")
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'")
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def _parse(text: str, argument: int | None) -> tuple[datetime, int]:
    """The time in whole seconds, and the nanoseconds."""
    found = _STAMP.fullmatch(text)
    if found is None:
        raise FunctionError(f'"{text}" is not a timestamp such as 2006-01-02T15:04:05Z', argument)
    offset = (
        timedelta()
        if found[8]
        else timedelta(hours=int(found[10]), minutes=int(found[11])) * (-1 if found[9] == "-" else 1)
    )
    try:
        year, month, day, hour, minute, second = (int(found[group]) for group in range(1, 7))
        stamp = datetime(year, month, day, hour, minute, second, tzinfo=timezone(offset))
    except ValueError as error:
        raise FunctionError(f'"{text}" is not a valid time: {error}', argument) from None
    return stamp, int((found[7] or "0").ljust(9, "0"))


def timeadd(args: Arguments) -> str:
    stamp, nanoseconds = _parse(args[0], None)
    try:
        seconds, nanoseconds = divmod(nanoseconds + parse_duration(args[1]), 10**9)
        stamp += timedelta(seconds=seconds)
    except ValueError as error:
        raise FunctionError(str(error)) from None
    except OverflowError:
        raise FunctionError("the result is out of range") from None
    return stamp.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + _zone(stamp, "Z", ":")


def _zone(stamp: datetime, utc: str, separator: str) -> str:
    offset = stamp.utcoffset() or timedelta()
    if utc and not offset:
        return utc
    minutes = int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}{separator}{abs(minutes) % 60:02d}"


def formatdate(args: Arguments) -> str:
    stamp, _ = _parse(args[1], 1)
    verbs = _verbs(stamp)

    def fill(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1].replace("''", "'")
        if found[0] == "'":
            raise FunctionError("a quoted part of the format is not closed", 0)
        if found[2] is None:
            return found[0]
        if found[0] not in verbs:
            raise FunctionError(f'invalid date format verb "{found[0]}"; put literal letters between single quotes', 0)
        return verbs[found[0]]

    return _TOKEN.sub(fill, args[0])


def _verbs(stamp: datetime) -> dict[str, str]:
    """The value of each verb of a date format."""
    hour = stamp.hour % 12 or 12
    return {
        "YYYY": f"{stamp.year:04d}",
        "YY": f"{stamp.year % 100:02d}",
        "MMMM": _MONTHS[stamp.month - 1],
        "MMM": _MONTHS[stamp.month - 1][:3],
        "MM": f"{stamp.month:02d}",
        "M": str(stamp.month),
        "DD": f"{stamp.day:02d}",
        "D": str(stamp.day),
        "EEEE": _DAYS[stamp.weekday()],
        "EEE": _DAYS[stamp.weekday()][:3],
        "hh": f"{stamp.hour:02d}",
        "h": str(stamp.hour),
        "HH": f"{hour:02d}",
        "H": str(hour),
        "AA": "AM" if stamp.hour < 12 else "PM",
        "aa": "am" if stamp.hour < 12 else "pm",
        "mm": f"{stamp.minute:02d}",
        "m": str(stamp.minute),
        "ss": f"{stamp.second:02d}",
        "s": str(stamp.second),
        "ZZZZZ": _zone(stamp, "", ":"),
        "ZZZZ": _zone(stamp, "", ""),
        "ZZZ": _zone(stamp, "UTC", ""),
        "Z": _zone(stamp, "Z", ":"),
    }
