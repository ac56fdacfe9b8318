"""Durations in the format of Nomad's messages, that of Go's `time.Duration`."""

from __future__ import annotations

_SECOND = 1_000_000_000
_SMALL_UNITS = ((1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def _decimal(nanoseconds: int, unit: int) -> str:
    """`nanoseconds / unit` without trailing zeros and without rounding."""
    whole, rest = divmod(nanoseconds, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def duration_text(nanoseconds: int) -> str:
    """Nanoseconds as text: 30 minutes -> "30m0s", 1.5 s -> "1.5s", 200 ms -> "200ms"."""
    if nanoseconds < 0:
        return "-" + duration_text(-nanoseconds)
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < _SECOND:
        unit, name = next(pair for pair in _SMALL_UNITS if nanoseconds >= pair[0])
        return _decimal(nanoseconds, unit) + name
    minutes, rest = divmod(nanoseconds, 60 * _SECOND)
    text = _decimal(rest, _SECOND) + "s"
    if not minutes:
        return text
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
