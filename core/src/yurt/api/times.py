"""Times of the wire: RFC 3339 with nanoseconds as Go writes it, and Go's duration texts.

Go's zero time is the year 1; here it is the number 0. Fractions lose their trailing zeros.
"""

from __future__ import annotations

import datetime
import functools
import re

from yurt.sdk.value import NANOSECONDS

ZERO_TIME = "0001-01-01T00:00:00Z"

_UNITS_NS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": NANOSECONDS, "m": 60 * NANOSECONDS,
    "h": 3600 * NANOSECONDS,
}  # fmt: skip
_PART = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)\Z")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DURATION_MAX = (1 << 63) - 1
_DURATION_CHARACTERS_MAX = 64
"""Go writes at most 26; a text without a bound would keep the event loop busy."""


def rfc3339(at_ns: int) -> str:
    """Unix nanoseconds as Go's RFC3339Nano in UTC; 0 is Go's zero time."""
    if at_ns == 0:
        return ZERO_TIME
    whole, fraction = divmod(at_ns, NANOSECONDS)
    text = _second_text(whole)
    return f"{text}.{fraction:09d}".rstrip("0") + "Z" if fraction else f"{text}Z"


@functools.lru_cache(maxsize=4096)
def _second_text(seconds: int) -> str:
    """The text of a whole second; lists repeat few of them."""
    return (_EPOCH + datetime.timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def parse_rfc3339(text: str) -> int:
    """The inverse; raises ValueError for anything else."""
    if text == ZERO_TIME:
        return 0
    match = _STAMP.match(text)
    if match is None:
        raise ValueError(f'"{text}" is not a time like 2006-01-02T15:04:05Z')
    day, clock, fraction, zone = match.groups()
    moment = datetime.datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    return round((moment - _EPOCH).total_seconds()) * NANOSECONDS + int((fraction or "0").ljust(9, "0"))


def parse_duration(text: str) -> int:
    """Go's duration text ("1h30m", "250ms", "0") in nanoseconds; raises ValueError for anything else."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total, position = 0, 0
    if len(text) <= _DURATION_CHARACTERS_MAX:
        for part in _PART.finditer(rest):
            if part.start() != position:
                break
            total += _part_ns(*part.groups(default=""))
            position = part.end()
    if not rest or position != len(rest) or total > _DURATION_MAX:
        raise ValueError(f'time: invalid duration "{text[:64]}"')
    return sign * total


def _part_ns(whole: str, fraction: str, unit: str) -> int:
    """In integers, since a float holds 53 bits; a rest below a nanosecond is dropped, as Go does."""
    size = _UNITS_NS[unit]
    scale: int = 10 ** len(fraction)
    return int(whole or "0") * size + int(fraction or "0") * size // scale
