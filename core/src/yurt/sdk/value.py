"""The base of all domain values, and the single rule for field names on the wire.

A value is immutable and compared by content. Its collections are tuples and read-only mappings; `replace` makes a
changed copy. Field names are Python's (`memory_mb`); `wire_name` gives Nomad's spelling (`MemoryMB`), and the struct of
the few fields with another spelling declares it with `spelled`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NewType, dataclass_transform

import msgspec

Duration = NewType("Duration", int)
"""Nanoseconds, as Nomad's API writes durations."""
UnixNano = NewType("UnixNano", int)
"""Nanoseconds since 1970, written as an integer."""
Timestamp = Annotated[int, msgspec.Meta(extra={"wire": "rfc3339"})]
"""Nanoseconds since 1970, written as an RFC 3339 text on the HTTP API; 0 is Go's zero time."""
WHEN_SET = msgspec.Meta(extra={"wire": "when set"})
"""Marks a field that the HTTP API writes only when it is not at its default: `Annotated[str, WHEN_SET]`."""
INTERNAL = msgspec.Meta(extra={"wire": "never"})
"""Marks a field that the HTTP API never writes: `Annotated[str, INTERNAL]`."""
TRUE_OR_NULL = msgspec.Meta(extra={"wire": "true or null"})
"""Marks a flag that the HTTP API writes as null when it is not set: `Annotated[bool, TRUE_OR_NULL]`."""
OWN = WHEN_SET
"""Marks a field that Nomad's API has not got: `Annotated[str, OWN]`; written only when it is set."""

NANOSECONDS = 1_000_000_000

_UNITS_NS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": NANOSECONDS, "m": 60 * NANOSECONDS,
    "h": 3600 * NANOSECONDS,
}  # fmt: skip
_PART = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_SMALL_UNITS = ((1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_DURATION_MAX = (1 << 63) - 1
_DURATION_CHARACTERS_MAX = 64
"""Go writes at most 26; a text without a bound would keep the event loop busy."""

ACRONYMS = {
    "acl": "ACL", "api": "API", "cidr": "CIDR", "cni": "CNI", "cpu": "CPU", "csi": "CSI", "dns": "DNS", "gc": "GC",
    "grpc": "GRPC", "http": "HTTP", "id": "ID", "ids": "IDs", "iops": "IOPS", "ip": "IP", "ipv6": "IPv6", "jwt": "JWT",
    "mb": "MB", "mbits": "MBits", "numa": "NUMA", "os": "OS", "selinux": "SELinux", "tg": "TG", "tls": "TLS",
    "ttl": "TTL", "ui": "UI", "url": "URL",
}  # fmt: skip


def wire_name(field: str) -> str:
    """The field's name on the wire: memory_mb -> MemoryMB; job_id -> JobID."""
    return "".join(ACRONYMS.get(word, word.capitalize()) for word in field.split("_"))


def spelled(**exceptions: str) -> Callable[[str], str]:
    """The wire rule with exceptions: `rename=spelled(cpu="Cpu")`."""
    return lambda field: exceptions.get(field) or wire_name(field)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, rename=wire_name):
    """A domain value: immutable, compared by content, made new with `replace`.

    Log and snapshots omit fields at their default; the HTTP encoding in `yurt.api` writes every field.
    """


replace = msgspec.structs.replace
"""`replace(value, **changes)`: a copy of `value` with some fields changed."""


def no_entries() -> Any:
    """The default of a read-only mapping field."""
    return msgspec.field(default_factory=dict)


def seconds(value: float) -> Duration:
    """`seconds(1.5)` as a Duration."""
    return Duration(round(value * NANOSECONDS))


def parse_duration(text: str) -> Duration:
    """Go's duration text ("1h30m", "250ms", "0") in nanoseconds; raises ValueError for anything else."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0)
    total, position = 0, 0
    if len(text) <= _DURATION_CHARACTERS_MAX:
        for part in _PART.finditer(rest):
            if part.start() != position:
                break
            total += _part_ns(*part.groups(default=""))
            position = part.end()
    if not rest or position != len(rest) or total > _DURATION_MAX:
        raise ValueError(f'time: invalid duration "{text[:64]}"')
    return Duration(sign * total)


def duration_text(nanoseconds: int) -> str:
    """Nanoseconds as Go and Nomad write them: 30 minutes -> "30m0s", 1.5 s -> "1.5s", 200 ms -> "200ms"."""
    if nanoseconds < 0:
        return "-" + duration_text(-nanoseconds)
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < NANOSECONDS:
        unit, name = next(pair for pair in _SMALL_UNITS if nanoseconds >= pair[0])
        return _decimal(nanoseconds, unit) + name
    minutes, rest = divmod(nanoseconds, 60 * NANOSECONDS)
    text = _decimal(rest, NANOSECONDS) + "s"
    if not minutes:
        return text
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"


def _decimal(nanoseconds: int, unit: int) -> str:
    """`nanoseconds / unit` without trailing zeros and without rounding."""
    whole, rest = divmod(nanoseconds, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def _part_ns(whole: str, fraction: str, unit: str) -> int:
    """In integers, since a float holds 53 bits; a rest below a nanosecond is dropped, as Go does."""
    size = _UNITS_NS[unit]
    scale: int = 10 ** len(fraction)
    return int(whole or "0") * size + int(fraction or "0") * size // scale


StrMap = Mapping[str, str]
