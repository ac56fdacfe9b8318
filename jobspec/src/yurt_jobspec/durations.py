"""Durations in Go's syntax: "1h30m", "250ms"."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
MAX_CHARACTERS = 64
MAX_NANOSECONDS = 2**63 - 1


@lru_cache(maxsize=256)
def parse_duration(text: str) -> int:
    """A duration in nanoseconds; raises ValueError."""
    if len(text) > MAX_CHARACTERS or not _WHOLE.fullmatch(text):
        raise ValueError(f'"{text[:MAX_CHARACTERS]}" is not a duration; write for example "30s", "1h30m" or "250ms"')
    total = sum((Fraction(amount) * _UNITS[unit] for amount, unit in _PART.findall(text)), Fraction(0))
    nanoseconds = int(total)
    if nanoseconds > MAX_NANOSECONDS:
        raise ValueError(f'the duration "{text}" is too long')
    return -nanoseconds if text.startswith("-") else nanoseconds
