"""Times of the wire: RFC 3339 with nanoseconds as Go writes it.

Go's zero time is the year 1; here it is the number 0. Fractions lose their trailing zeros.
"""

from __future__ import annotations

import datetime
import functools
import re

from yurt.sdk.value import NANOSECONDS

ZERO_TIME = "0001-01-01T00:00:00Z"

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)\Z")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


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
