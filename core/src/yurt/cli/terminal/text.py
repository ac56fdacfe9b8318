"""Times, durations and sizes as Nomad's command line writes them."""

from __future__ import annotations

import re
import time

SECOND = 1_000_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 24 * 3600 * SECOND
UNITS = (("y", 365 * DAY), ("mo", 30 * DAY), ("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND))
WORDS_MAX = 500
"""Characters of the words of another program in a message."""
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\d*(Z|[+-]\d\d:\d\d)\Z")
_ZERO = "0001-01-01"


def now_ns() -> int:
    """Unix nanoseconds."""
    return time.time_ns()


def clock() -> str:
    """The local time of now, for lines of a monitor."""
    return local_time(now_ns())


def local_time(at_ns: int) -> str:
    """ISO 8601 in local time, whole seconds; `N/A` for no time at all."""
    import datetime

    if at_ns <= 0:
        return "N/A"
    moment = datetime.datetime.fromtimestamp(at_ns // SECOND, datetime.UTC).astimezone()
    return moment.isoformat().replace("+00:00", "Z")


def ago(at_ns: int, *, now: int | None = None) -> str:
    """`5m3s ago`."""
    if at_ns <= 0:
        return "N/A"
    return f"{two_units(max(0, (now_ns() if now is None else now) - at_ns))} ago"


def two_units(span_ns: int) -> str:
    """The two largest units of a span: `1d3h`, `5m3s`, `0s`."""
    parts: list[tuple[int, str]] = []
    for name, size in UNITS:
        count, rest = divmod(span_ns, size)
        if count or parts:
            parts.append((count, name))
        span_ns = rest
        if len(parts) == 2:
            break
    return "".join(f"{count}{name}" for count, name in parts if count) or "0s"


def go_duration(span_ns: int) -> str:
    """Go's text of a duration: `1h0m0s`, `1.5s`, `250ms`."""
    sign, left = ("-", -span_ns) if span_ns < 0 else ("", span_ns)
    if left == 0:
        return "0s"
    if left < SECOND:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if left >= size:
                return f"{sign}{_trimmed(left / size)}{unit}"
    hours, left = divmod(left, HOUR)
    minutes, left = divmod(left, MINUTE)
    text = f"{_trimmed(left / SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def parse_duration(text: str) -> int:
    """Go's duration text as nanoseconds; raises ValueError for anything else."""
    from yurt.sdk.value import parse_duration as parse  # few commands need it

    try:
        return parse(text)
    except ValueError:
        raise ValueError(f'"{text[:64]}" is not a duration such as 30s or 1h30m') from None


def parse_time(text: str | None) -> int:
    """RFC 3339 as unix nanoseconds; 0 for Go's zero time, an empty text, and an invalid time."""
    import datetime

    match = _STAMP.match(text or "")
    if match is None or (text or "").startswith(_ZERO):
        return 0
    base, fraction, zone = match.groups()
    moment = datetime.datetime.fromisoformat(base + ("+00:00" if zone == "Z" else zone))
    return int(moment.timestamp()) * SECOND + int((fraction or "0").ljust(9, "0"))


def mebibytes(count: int) -> str:
    """`300 MiB`, `1.5 GiB`."""
    return bytes_text(count * 1024 * 1024)


def bytes_text(count: int) -> str:
    """Bytes in the largest binary unit that keeps them above one."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024 or unit == "PiB":
            return f"{_trimmed(round(value, 1))} {unit}"
        value /= 1024
    raise AssertionError("the last unit returns")


def _trimmed(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def plural(count: int, noun: str) -> str:
    """`1 allocation`, `2 allocations`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def sentence(text: str) -> str:
    """`Node n1 was chosen.` for `node n1 was chosen`."""
    return f"{text[:1].upper()}{text[1:]}."


def printable(text: str) -> str:
    """Words of another program for a terminal: without control characters, and not longer than `WORDS_MAX`."""
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[: WORDS_MAX + 1])
    return shown if len(shown) <= WORDS_MAX else f"{shown[:WORDS_MAX]}..."
